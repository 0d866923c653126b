"""The tree of a sentence read clause by clause into what was said."""

import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import TYPE_CHECKING

from gnomon.core.cron.fields import HOUR, MINUTE, SECOND, Field, Kind
from gnomon.core.instants import DAY_SECONDS
from gnomon.core.sentences.days import put_days, put_months
from gnomon.core.sentences.said import Refusal, Said, Span, Time, not_a_zone
from gnomon.core.sentences.tidying import place_of
from gnomon.core.sentences.trees import (
    number_of,
    numbers_of,
    of_type,
    place_in,
    tokens_in,
    trees_in,
    types_in,
)
from gnomon.core.sentences.words import NUMBERS
from gnomon.core.zones import nearest_zone, zone, zone_of_place
from gnomon.errors import Position

if TYPE_CHECKING:
    from lark import Token

    from gnomon.core.sentences.trees import Node

_TIME = re.compile(r"(\d+)(?::(\d+))?(?::(\d+))?\s*(?:([ap])\.?m\.?)?", re.IGNORECASE)
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)", re.IGNORECASE)
#: By its first letter, but for milliseconds.
_UNITS = {"s": "SECOND", "m": "MINUTE", "h": "HOUR", "d": "DAY", "w": "WEEK"}
#: Longest first: "1 hour and 30 minutes", never the other way round.
_SECONDS = {
    "WEEK": Fraction(7 * DAY_SECONDS),
    "DAY": Fraction(DAY_SECONDS),
    "HOUR": Fraction(3_600),
    "MINUTE": Fraction(60),
    "SECOND": Fraction(1),
    "MS": Fraction(1, 1000),
}
_SPANS = {
    "DAY": Span("day"),
    "WEEK": Span("week"),
    "MONTH": Span("month"),
    "QUARTER": Span("month", 3),
    "YEAR": Span("year"),
}
_ADVERBS = {
    "daily": Span("day"),
    "nightly": Span("day"),
    "weekly": Span("week"),
    "monthly": Span("month"),
    "quarterly": Span("month", 3),
    "yearly": Span("year"),
    "annually": Span("year"),
}


def said_in(text: str, tree: "Node") -> Said:
    """What the clauses of `tree` say, or Refusal if one of them is wrong by itself or said twice."""
    said = Said(text)
    for clause in trees_in(tree):
        _CLAUSES[str(clause.data)](said, clause)
    return said


# ---- times of day --------------------------------------------------------------------------------


def _times(said: Said, tree: "Node") -> None:
    said.put("times", tuple(_time(said, token) for token in of_type(tree, "TIME")), place_in(tree))


def _window(said: Said, tree: "Node") -> None:
    start, end = (_time(said, token) for token in of_type(tree, "TIME"))
    said.put("window", (start, end), place_in(tree))


def _time(said: Said, token: "Token") -> Time:
    word, place = token.lower(), place_of(token)
    if word.endswith(("noon", "midday", "midnight")):
        return Time(0 if word.endswith("midnight") else 12, 0)
    found = _TIME.fullmatch(word)
    digits = [(found and found[group]) or "00" for group in (1, 2, 3)]
    if len(digits[0]) > 2 or len(digits[1]) != 2 or len(digits[2]) != 2:
        raise Refusal(f'has "{token}", which is no time of day', place, vague=True)
    hour, minute, second = map(int, digits)
    half = found and found[4]
    if half and not 1 <= hour <= 12:
        reason = f'has "{token}", but with {half}m an hour is 1 to 12'
        raise Refusal(reason, place, said.text[: place.start] + f"{hour % 24:02}:{minute:02}" + said.text[place.end :])
    if hour > 23 or minute > 59 or second > 59:
        raise Refusal(f'has "{token}", which is no time of day', place)
    if half:
        hour = hour % 12 + (12 if half == "p" else 0)
    return Time(hour, minute, second)


def _clock(said: Said, tree: "Node") -> None:
    for part in trees_in(tree):
        if part.data in ("marks", "on_the_hour"):
            said.put("minute", _marked(part), place_in(part))
            continue
        kind = {"seconds": SECOND, "minutes": MINUTE, "hours": HOUR}[str(part.data)]
        said.put(kind.name, _choice(part, kind), place_in(part))


def _marked(tree: "Node") -> Field:
    """The minutes of ":15 and :45", "on the hour" or "on the half hour"."""
    if tree.data == "on_the_hour":
        return Field(frozenset({30 if "half" in tokens_in(tree)[0].lower() else 0}))
    for token in tokens_in(tree):
        if int(token[1:]) > MINUTE.high:
            raise Refusal(f'has "{token}", but a minute is a whole number from 0 to 59', place_of(token))
    return Field(frozenset(int(token[1:]) for token in tokens_in(tree)))


def _choice(tree: "Node", kind: Kind) -> Field:
    whole = range(kind.low, kind.high + 1)
    for numbers in trees_in(tree):
        return Field(frozenset(numbers_of(numbers, kind)))
    if "EVERY" not in types_in(tree):
        for number in of_type(tree, "NUMBER"):
            return Field(frozenset({number_of(number, kind)}))
    for step in (*of_type(tree, "ORDINAL"), *of_type(tree, "NUMBER")):
        size = number_of(step, Kind(f"step of {kind.name}s", 1, len(whole)))
        return Field(frozenset(whole[::size]), starred=True)
    return Field(frozenset(whole), starred=True)


def _counted(said: Said, tree: "Node") -> None:
    said.put("counted", True, place_in(tree))


def _elapsed(said: Said, tree: "Node") -> None:
    said.put("elapsed", True, place_in(tree))


# ---- how often -----------------------------------------------------------------------------------


def _rhythm(said: Said, tree: "Node") -> None:
    words, amounts, place = types_in(tree), trees_in(tree), place_in(tree)
    if not amounts:
        part = 2 if "HALF" in words else 4 if "QUARTER" in words else 1
        unit = "HOUR" if words == ["HOURLY"] else words[-1]
        _check_singular(said, tokens_in(tree)[-1])
        said.put("period", _SECONDS[unit] / part * _step(said, tree), place)
        return
    parts = [part for amount in amounts for part in _amounts(amount)]
    units = [unit for _, unit in parts]
    if len(parts) == 1 and units[0] in _SPANS and (units[0] not in _SECONDS or parts[0][0] == 1):
        _counted_span(said, parts[0], place)
    elif not set(units) <= set(_SECONDS):
        raise Refusal("adds months or years to something else, which have no fixed length", place)
    elif units != sorted(set(units), key=list(_SECONDS).index):
        raise Refusal("must name every unit once, the longest first", place, "every 1 hour and 30 minutes")
    else:
        said.put("period", sum(count * _SECONDS[unit] for count, unit in parts), place)


def _step(said: Said, tree: "Node") -> int:
    """One in how many: 3 for "every third hour", which must divide its day, hour or minute evenly."""
    for step in of_type(tree, "ORDINAL"):
        unit, size = tokens_in(tree)[-1], {"SECOND": 60, "MINUTE": 60, "HOUR": 24}[types_in(tree)[-1]]
        count = number_of(step, Kind(f"step of {unit}s", 1, size))
        if size % count:
            place, of = place_in(tree), {"SECOND": "minute", "MINUTE": "hour", "HOUR": "day"}[unit.type]
            reason = f'has "{said.text[slice(*place)]}", which does not divide its {of} evenly'
            raise Refusal(reason, place, f"every {count} {unit}s")
        return count
    return 1


def _amounts(tree: "Node") -> Iterator[tuple[Fraction, str]]:
    tokens = tokens_in(tree)
    if tokens[0].type == "DURATION":
        for count, unit in _AMOUNT.findall(tokens[0].lower()):
            yield Fraction(count), "MS" if unit == "ms" else _UNITS[unit[0]]
    else:
        word = tokens[0].lower()
        yield Fraction(NUMBERS.get(word, word)), tokens[1].type


def _counted_span(said: Said, part: tuple[Fraction, str], place: Position) -> None:
    count, unit = part
    if count.denominator != 1 or not 1 <= count <= 12:
        reason = "counts months or years in a way that a calendar cannot repeat"
        raise Refusal(reason, place)
    said.put("span", Span(_SPANS[unit].unit, _SPANS[unit].times * int(count)), place)


def _span(said: Said, tree: "Node") -> None:
    word = tokens_in(tree)[-1]
    _check_singular(said, word)
    span = _SPANS.get(word.type) or _ADVERBS[word.lower()]
    steps = [number_of(step, Kind("step of months", 1, 12)) for step in of_type(tree, "ORDINAL")]
    said.put("span", Span(span.unit, span.times * steps[0]) if steps else span, place_in(tree))


def _check_singular(said: Said, unit: "Token") -> None:
    if unit.lower().endswith("s"):
        place = place_of(unit)
        before, after = said.text[: place.start], said.text[place.end :]
        reason = f'has "every {unit}" without a number'
        raise Refusal(reason, place, f"{before}{unit[:-1]}{after}")


def _count(said: Said, tree: "Node") -> None:
    tokens = tokens_in(tree)
    if tokens[-1].type == "ADVERB" and tokens[-1].lower() != "daily":
        raise Refusal(f'has "{tokens[-1]}", but only times of a day can be counted', place_of(tokens[-1]))
    number = 2 if tokens[0].type == "TWICE" else number_of(tokens[0], Kind("number of times", 1, 24))
    said.put("count", number, place_in(tree))
    said.put("span", Span("day"), place_in(tree))


def _zone(said: Said, tree: "Node") -> None:
    token = next(token for token in tokens_in(tree) if token.type in ("ZONE", "IN_ZONE"))
    name = token.split()[-1]
    place = Position(place_of(token).end - len(name), place_of(token).end)
    exact = name.upper() if name.upper() in ("UTC", "GMT") else name
    if zone(exact) is None:
        near = nearest_zone(name) or zone_of_place(name)
        mended = [said.text[: place.start] + near + said.text[place.end :]] if near else []
        raise Refusal(not_a_zone(name), place, *mended, vague="/" not in name, field="timezone")
    said.put("zone", exact, place)


_CLAUSES: dict[str, Callable[[Said, "Node"], None]] = {
    "times": _times,
    "window": _window,
    "clock": _clock,
    "elapsed": _elapsed,
    "counted": _counted,
    "rhythm": _rhythm,
    "span": _span,
    "count": _count,
    "times_a_day": _count,
    "days": put_days,
    "bare_days": put_days,
    "months": put_months,
    "zone": _zone,
}
