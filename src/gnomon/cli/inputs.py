"""Parse option values: JSON, JSON files and instants."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from gnomon.core.cron import known_zone
from gnomon.errors import FieldError, UsageError


def json_option(option: str, given: str | None) -> Any:  # noqa: ANN401 - the action validates the value
    """The value of an option: JSON, or the content of the JSON file named after an @."""
    if given is None:
        return None
    if given.startswith("@"):
        return json_file(option, given[1:], given)
    return _json(option, given, given)


def json_file(option: str, path: str, given: str | None = None) -> Any:  # noqa: ANN401 - as above
    """The content of a JSON file. `given` is the option value to quote in errors, if it is not the path."""
    quoted = path if given is None else given
    try:
        return _json(option, Path(path).read_text(encoding="utf-8"), quoted)
    except (OSError, UnicodeDecodeError) as error:
        raise FieldError(option, quoted, f"cannot be read: {error}") from None


def _json(option: str, text: str, quoted: str) -> Any:  # noqa: ANN401 - as above
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FieldError(option, quoted, f"is not JSON: {error}") from None


def parse_start(text: str | None, *, timezone: str | None = None, option: str = "--from") -> datetime:
    """The instant that `text` names, in `timezone` if it has no offset; the current time if it is None.

    The command line reads the current time only here.
    """
    if text is None:
        return datetime.now(UTC)
    try:
        instant = datetime.fromisoformat(text.strip())
    except ValueError:
        raise _usage_error(option, text, "is not an instant such as 2026-12-01T09:00:00Z") from None
    if instant.tzinfo is None:
        if timezone is None:
            raise _usage_error(option, text, "names no time zone: add one, such as Z for UTC")
        known_zone(timezone)
        instant = instant.replace(tzinfo=ZoneInfo(timezone))
    try:
        return instant.astimezone(UTC)
    except OverflowError:
        raise _usage_error(option, text, "lies outside the calendar") from None


def _usage_error(option: str, text: str, reason: str) -> UsageError:
    shown = text if len(text) <= 60 else f"{text[:57]}..."
    return UsageError(f'{option}: "{shown}" {reason}')
