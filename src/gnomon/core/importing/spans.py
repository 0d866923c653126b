"""Spans of time as systemd writes them: `5min 20s`, `1h`, `90` for seconds."""

import re

from gnomon.core.model import DAY_MS, MINUTE_MS, SECOND_MS
from gnomon.errors import FieldError

_HOUR_MS = 60 * MINUTE_MS
_UNITS = {
    **dict.fromkeys(("ms", "msec"), 1),
    **dict.fromkeys(("", "s", "sec", "second", "seconds"), SECOND_MS),
    **dict.fromkeys(("m", "min", "minute", "minutes"), MINUTE_MS),
    **dict.fromkeys(("h", "hr", "hour", "hours"), _HOUR_MS),
    **dict.fromkeys(("d", "day", "days"), DAY_MS),
    **dict.fromkeys(("w", "week", "weeks"), 7 * DAY_MS),
    # A year is 365.25 days there, and a month the twelfth of it.
    **dict.fromkeys(("M", "month", "months"), 1461 * DAY_MS // 48),
    **dict.fromkeys(("y", "year", "years"), 1461 * DAY_MS // 4),
}
_PART = re.compile(r"\s*([0-9]{1,9})(\.[0-9]{1,6})?\s*([A-Za-z]*)")
_LONGEST_TEXT = 200


def span_ms(field: str, text: str) -> int | None:
    """The span in milliseconds; None if it never ends."""
    text = text.strip()
    if text == "infinity":
        return None
    place, total = 0, 0.0
    while place < len(text):
        part = _PART.match(text, place) if len(text) <= _LONGEST_TEXT else None
        if part is None or part[3] not in _UNITS:
            raise FieldError(field, text, "is no span such as 5min 20s")
        total += float(part[1] + (part[2] or "")) * _UNITS[part[3]]
        place = part.end()
    if not text:
        raise FieldError(field, text, "is empty")
    return round(total)
