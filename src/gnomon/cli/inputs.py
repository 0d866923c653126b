"""Parse option values: JSON, JSON files and instants."""

import json
import re
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from gnomon.cli.reader_zone import reader_zone
from gnomon.core.cron import known_zone
from gnomon.core.instants import instant_of, ms_of
from gnomon.core.time_expressions import parse_bound
from gnomon.errors import FieldError, FileError, UsageError

#: As of a jobs file.
_LARGEST_JOBS = 8 * 2**20
_DATE = re.compile(r"[0-9]{4}-?[0-9]{2}-?[0-9]{2}")


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


class JobsSource(NamedTuple):
    """A jobs file to read, and its content if it came from standard input."""

    path: Path
    content: bytes | None = None


def jobs_files(named: Iterable[Path]) -> list[JobsSource]:
    """The files that `-f` names: themselves, those of a folder, or standard input; FileError for an empty folder."""
    found: list[JobsSource] = []
    for path in named:
        if str(path) == "-":
            content = sys.stdin.buffer.read(_LARGEST_JOBS + 1)
            if len(content) > _LARGEST_JOBS:
                raise FileError("stdin", f"cannot be read: it has more than {_LARGEST_JOBS // 2**20} MiB")
            found.append(JobsSource(Path("stdin"), content))
        elif path.is_dir():
            inside = sorted(file for file in path.iterdir() if file.suffix in (".yaml", ".yml") and file.is_file())
            if not inside:
                raise FileError(path, "is a folder without files that end in .yaml or .yml")
            found += map(JobsSource, inside)
        else:
            found.append(JobsSource(path))
    return found


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


def parse_bounds(given: Mapping[str, str | None], zone: str | None = None) -> dict[str, str | None]:
    """The values of --since and --until as instants, in the zone of the reader or of the one job that is shown."""
    found: dict[str, str | None] = {}
    for field in ("since", "until"):
        text = given.get(field)
        if text is not None:
            at = parse_bound(f"--{field}", text, reader_zone(zone), now=ms_of(parse_start(None)), ends=field == "until")
            text = instant_of(at).isoformat()
        found[field] = text
    return found


def parse_end(text: str, *, timezone: str, option: str = "--to") -> datetime:
    """Like `parse_start`, for the last instant of a range: a date without a time includes that whole day."""
    found = parse_start(text, timezone=timezone, option=option)
    if not _DATE.fullmatch(text.strip()):
        return found
    try:
        next_day = found.astimezone(ZoneInfo(timezone)).replace(tzinfo=None) + timedelta(days=1)
        return next_day.replace(tzinfo=ZoneInfo(timezone)).astimezone(UTC) - timedelta(milliseconds=1)
    except OverflowError:
        raise _usage_error(option, text, "lies outside the calendar") from None


def _usage_error(option: str, text: str, reason: str) -> UsageError:
    shown = text if len(text) <= 60 else f"{text[:57]}..."
    return UsageError(f'{option}: "{shown}" {reason}')
