"""The `standard` dialect: the syntax of Debian's cron, and the day tokens `L`, `LW`, `5L` and `1#2` of other crons."""

import re
from difflib import get_close_matches
from functools import lru_cache, partial

from gnomon.core.cron.fields import (
    DAY,
    HOUR,
    MINUTE,
    MONTH,
    SECOND,
    WEEKDAY,
    CronParseError,
    Field,
    FieldKind,
    Fields,
    number_in,
    read_list,
    read_words,
    reversed_range_error,
    split_fields,
)
from gnomon.core.timezones import zone

MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

_FIVE = (MINUTE, HOUR, DAY, MONTH, WEEKDAY)
_SIX = (SECOND, *_FIVE)


def parse(expression: str) -> Fields:
    """The fields of `expression`; raise CronParseError if it cannot be read."""
    words = split_fields(expression)
    if words and words[0][0].startswith("@"):
        return _macro(expression.strip(" \t"))
    if not words:
        raise CronParseError("is empty", text=expression)
    if len(words) not in (5, 6):
        reason = f"must have 5 fields, or 6 with seconds first; it has {len(words)}"
        raise _misplaced_zone(words) or CronParseError(reason, text=expression)
    try:
        return read_words(words, _SIX if len(words) == 6 else _FIVE, _field)
    except CronParseError as error:
        raise _misplaced_zone(words) or error from None


def _misplaced_zone(words: list[re.Match[str]]) -> CronParseError | None:
    """The error of an expression with a time zone in front or behind, as some crons accept it."""
    for word, name in ((words[0], words[0][0].removeprefix("CRON_").removeprefix("TZ=")), (words[-1], words[-1][0])):
        if zone(name) is not None:
            reason = f'has the zone "{name}", which is no field of cron: give it beside the expression, as timezone'
            return CronParseError(reason, text=word[0], start=word.start())
    return None


def _macro(text: str) -> Fields:
    meaning = MACROS.get(text.lower())
    if meaning is not None:
        return parse(meaning)
    if text.lower() == "@reboot":
        raise CronParseError("names the start of a machine, which is no time", text=text)
    near = get_close_matches(text.lower(), MACROS, n=1)
    raise CronParseError(f'has the unknown macro "{text}"', text=text, instead=near[0] if near else None)


@lru_cache(maxsize=4096)
def _field(kind: FieldKind, text: str) -> Field:
    values: set[int] = set()
    tokens: set[str] = set()
    for found in read_list(text, partial(_element, kind)):
        if isinstance(found, str):
            tokens.add(found)
        else:
            values.update(found)
    if kind is WEEKDAY:
        values = {value % 7 for value in values}
    return Field(frozenset(values), starred=text.startswith("*"), tokens=frozenset(tokens))


def _element(kind: FieldKind, text: str) -> range | str:
    """The values of one element of a list, or the token it is."""
    token = _token(kind, text)
    if token is not None:
        return token
    body, slash, digits = text.partition("/")
    step = int(digits) if digits.isascii() and digits.isdigit() else 0
    values = _range(kind, body, step or 1, text=text)
    if not slash:
        return values
    if not step:
        raise CronParseError(f'has the step "{digits}", which is not a number from 1', text=text)
    if body != "*" and "-" not in body:
        values = range(values[0], kind.high + 1)
    return values[::step]


def _token(kind: FieldKind, text: str) -> str | None:
    upper = text.upper()
    if kind is DAY and upper in ("L", "LW"):
        return upper
    if kind is WEEKDAY and upper[:-1].isdigit() and upper.endswith("L"):
        return f"{_number(kind, text[:-1], text=text) % 7}L"
    if kind is WEEKDAY and upper[:-1] in kind.names and upper.endswith("L"):
        reason = f'has "{text}", but before L comes a number'
        raise CronParseError(reason, text=text, instead=f"{kind.names[upper[:-1]]}L")
    if kind is WEEKDAY and "#" in text:
        weekday, _, nth = text.partition("#")
        if nth not in ("1", "2", "3", "4", "5"):
            raise CronParseError(f'has "{text}", but after # comes a number 1-5', text=text)
        return f"{_number(kind, weekday, text=text) % 7}#{nth}"
    return None


def _range(kind: FieldKind, body: str, step: int, *, text: str) -> range:
    if body == "*":
        return range(kind.low, kind.high + 1)
    first, dash, last = body.partition("-")
    start = _number(kind, first, text=text)
    if not dash:
        return range(start, start + 1)
    end = _number(kind, last, text=text)
    if start > end:
        raise reversed_range_error(kind, text, start, end, step)
    return range(start, end + 1)


def _number(kind: FieldKind, word: str, *, text: str) -> int:
    if word.isascii() and word.isdigit():
        return number_in(kind, word, text=text)
    if word.upper() in kind.names:
        return kind.names[word.upper()]
    raise _unknown(kind, word, text)


def _unknown(kind: FieldKind, word: str, text: str) -> CronParseError:
    if not text:
        return CronParseError("has an empty element", text=text)
    if text == "?":
        return CronParseError('has "?", which this cron does not know', text=text, instead="*")
    near = get_close_matches(word.upper(), kind.names, n=1) if word else []
    instead = text.replace(word, near[0]) if near else None
    known = "neither a number nor a name" if kind.names else "not a number"
    return CronParseError(f'has "{text}", which is {known} of this field', text=text, instead=instead)
