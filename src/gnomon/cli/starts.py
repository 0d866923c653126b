"""The instant to look from: the one a person named, or now."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from gnomon.core.cron import known_zone
from gnomon.errors import UsageError


def start_of(text: str | None, *, timezone: str | None = None, option: str = "--from") -> datetime:
    """The instant `text` names, in `timezone` if it has no zone of its own; without a text, now.

    Now is read here and nowhere else.
    """
    if text is None:
        return datetime.now(UTC)
    try:
        instant = datetime.fromisoformat(text.strip())
    except ValueError:
        raise _refused(option, text, "is not an instant such as 2026-12-01T09:00:00Z") from None
    if instant.tzinfo is None:
        if timezone is None:
            raise _refused(option, text, "names no time zone: add one, such as Z for UTC")
        known_zone(timezone)
        instant = instant.replace(tzinfo=ZoneInfo(timezone))
    try:
        return instant.astimezone(UTC)
    except OverflowError:
        raise _refused(option, text, "lies outside the calendar") from None


def _refused(option: str, text: str, reason: str) -> UsageError:
    shown = text if len(text) <= 60 else f"{text[:57]}..."
    return UsageError(f'{option}: "{shown}" {reason}')
