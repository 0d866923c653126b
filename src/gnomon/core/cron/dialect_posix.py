"""The `posix` dialect: numbers, lists, ranges and the star, and nothing else.

Only ASCII digits, spaces and tabs are accepted; `int()`, `isdigit()` and `split()` alone would accept more. The
wording of the reasons is a published vocabulary: callers may rely on it.
"""

import re
from functools import partial

from gnomon.core.cron.dialect_standard import MACROS
from gnomon.core.cron.fields import (
    DAY,
    HOUR,
    MINUTE,
    MONTH,
    POSIX_WEEKDAY,
    WEEKDAY,
    CronParseError,
    Field,
    FieldKind,
    Fields,
    format_values,
    number_in,
    read_list,
    read_words,
    reversed_range_error,
    split_fields,
)

_KINDS = (MINUTE, HOUR, DAY, MONTH, POSIX_WEEKDAY)
_NAMES = {MONTH: MONTH.names, POSIX_WEEKDAY: WEEKDAY.names}
_RANGE = re.compile(r"([0-9]+)-([0-9]+)")
_STEP = re.compile(r"(?:\*|([0-9]{1,2})-([0-9]{1,2}))/([0-9]{1,2})")


def parse(expression: str) -> Fields:
    """The fields of `expression`; raise CronParseError if it cannot be read."""
    words = split_fields(expression)
    if not words:
        raise CronParseError("is empty", text=expression)
    if words[0][0].startswith("@"):
        text = expression.strip(" \t")
        meaning = MACROS.get(text.lower())
        raise CronParseError(f'has the macro "{text}", which POSIX cron lacks', text=text, instead=meaning)
    if len(words) != 5:
        raise CronParseError(f"must have exactly 5 fields; it has {len(words)}", text=expression)
    return read_words(words, _KINDS, _field)


def _field(kind: FieldKind, text: str) -> Field:
    if text == "*":
        return Field(frozenset(range(kind.low, kind.high + 1)), starred=True)
    return Field(frozenset(value for values in read_list(text, partial(_element, kind)) for value in values))


def _element(kind: FieldKind, text: str) -> range:
    if text.isascii() and text.isdigit():
        value = _number(kind, text, text=text)
        return range(value, value + 1)
    bounds = _RANGE.fullmatch(text)
    if bounds is None:
        raise _refusal(kind, text)
    start, end = (_number(kind, bound, text=text) for bound in bounds.groups())
    if start > end:
        raise reversed_range_error(kind, text, start, end)
    return range(start, end + 1)


def _number(kind: FieldKind, digits: str, *, text: str) -> int:
    if kind is POSIX_WEEKDAY and digits.lstrip("0") == "7":
        instead = "0" if text == digits else None
        raise CronParseError("has 7, which is out of range 0-6 (Sunday is 0)", text=text, instead=instead)
    return number_in(kind, digits, text=text)


def _refusal(kind: FieldKind, text: str) -> CronParseError:
    """The error that says why `text` is outside the grammar."""
    if not text:
        return CronParseError("has an empty element", text=text)
    if "/" in text:
        return CronParseError(
            f'has the step "{text}", which POSIX cron lacks', text=text, instead=_spelled_out(kind, text)
        )
    if "*" in text:
        return CronParseError('has "*" beside something else', text=text)
    if text.upper() in _NAMES.get(kind, {}) or (text[0].isalpha() and not set(text) & set("LW#")):
        instead = _NAMES.get(kind, {}).get(text.upper())
        reason = f'has the name "{text}"; POSIX cron takes numbers only'
        return CronParseError(reason, text=text, instead=None if instead is None else str(instead))
    token = next((token for token in "?LW#" if token in text), None)
    if token is not None:
        reason = f'has the token "{token}", which POSIX cron lacks'
        return CronParseError(reason, text=text, instead="*" if text == "?" else None)
    return CronParseError(f'has "{text}", which is neither a decimal number nor a range of two', text=text)


def _spelled_out(kind: FieldKind, text: str) -> str | None:
    """The list of values that a step stands for; None if it is no valid step."""
    step = _STEP.fullmatch(text)
    if step is None or int(step[3]) == 0:
        return None
    start, end = (int(step[1]), int(step[2])) if step[1] else (kind.low, kind.high)
    return format_values(set(range(start, end + 1, int(step[3]))) & set(range(kind.low, kind.high + 1))) or None
