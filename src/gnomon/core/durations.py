"""Durations as people write them: `30s`, `1h30m`, `250ms`, or a number of seconds."""

import re

from gnomon.core.model import DAY_MS, MINUTE_MS, SECOND_MS
from gnomon.errors import FieldError

_HOUR_MS = 60 * MINUTE_MS
_UNITS = {"d": DAY_MS, "h": _HOUR_MS, "m": MINUTE_MS, "s": SECOND_MS, "ms": 1}
_LONG_UNITS = {"d": DAY_MS, "h": _HOUR_MS, "min": MINUTE_MS, "s": SECOND_MS}
#: Each unit at most once, the larger before the smaller.
_WRITTEN = re.compile("".join(f"(?:(?P<{unit}>[0-9]{{1,12}}){unit}(?![a-z]))?" for unit in _UNITS))
_BARE = re.compile(r"[0-9]{1,12}")
_WORD = re.compile(r"([0-9]{1,12})\s*([a-z]{1,12})")
_UNIT_WORDS = {
    "d": "d day days",
    "h": "h hr hrs hour hours",
    "m": "m min mins minute minutes",
    "s": "s sec secs second seconds",
    "ms": "ms msec msecs millis millisecond milliseconds",
}
#: The longest duration: a century.
LONGEST_MS: int = 36_525 * DAY_MS


def duration_ms(field: str, value: object, *, low: int = 0, high: int = LONGEST_MS) -> int:
    """The duration in milliseconds; raise FieldError unless it is from `low` to `high`."""
    span = _from_text(field, value) if isinstance(value, str) else _from_number(field, value)
    if not low <= span <= high:
        raise FieldError(field, value, f"must be from {duration_text(low)} to {duration_text(high)}")
    return span


def duration_text(span_ms: int) -> str:
    """The duration as `duration_ms` reads it, in the largest units that fit."""
    words = []
    for unit, length in _UNITS.items():
        count, span_ms = divmod(span_ms, length)
        if count:
            words.append(f"{count}{unit}")
    return "".join(words) or "0s"


def span_text(span_ms: int) -> str:
    """The duration for people, in its two largest units: `350 ms`, `4.2 s`, `3 h 20 min`."""
    if span_ms < SECOND_MS:
        return f"{span_ms} ms"
    if span_ms < MINUTE_MS:
        return f"{span_ms / SECOND_MS:.1f} s"
    words: list[str] = []
    for unit, length in _LONG_UNITS.items():
        count, span_ms = divmod(span_ms, length)
        if count and len(words) < 2:
            words.append(f"{count} {unit}")
    return " ".join(words)


def _from_text(field: str, value: str) -> int:
    written = _WRITTEN.fullmatch(value)
    if not written or not value:
        meant = _meant(value)
        hint = f"; did you mean {meant}?" if meant else ""
        raise FieldError(field, value, f"is no duration such as 30s, 5m, 1h30m or 250ms{hint}")
    return sum(int(count) * _UNITS[unit] for unit, count in written.groupdict().items() if count)


def _meant(value: str) -> str | None:
    """The duration in our units: of a number without a unit, which are seconds, or with a unit in words."""
    if _BARE.fullmatch(value):
        return f"{value}s"
    word = _WORD.fullmatch(value.strip().lower())
    unit = next((unit for unit, words in _UNIT_WORDS.items() if word and word[2] in words.split()), None)
    return None if word is None or unit is None else f"{word[1]}{unit}"


def _from_number(field: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FieldError(field, value, "is no duration such as 30s, 5m, 1h30m or 250ms")
    if not abs(value) <= LONGEST_MS:
        raise FieldError(field, value, "is no number of seconds that a calendar could hold")
    if isinstance(value, int):
        return value * SECOND_MS
    span = round(value * SECOND_MS)
    if span / SECOND_MS != value:
        raise FieldError(field, value, "is finer than a millisecond")
    return span
