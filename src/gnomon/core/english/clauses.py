"""The clauses of a parsed sentence, read into a ScheduleStatement: times, frequency, days, months and the zone.

Each function reads one kind of clause and refuses what is wrong in that clause alone. The compiler decides
whether the clauses make sense together.
"""

import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import TYPE_CHECKING

from gnomon.core.cron.fields import DAY, HOUR, MINUTE, SECOND, Field, FieldKind
from gnomon.core.english.normalizer import place_of
from gnomon.core.english.statement import RepeatInterval, ScheduleStatement, SentenceRefusal, Time, unknown_zone_reason
from gnomon.core.english.tree import (
    cyclic_range,
    index_of,
    number_of,
    numbers_of,
    of_type,
    place_in,
    range_of,
    tokens_in,
    trees_in,
    types_in,
)
from gnomon.core.english.vocabulary import MONTH_LENGTHS, MONTHS, NUMBERS, WEEKDAYS, ordinal
from gnomon.core.instants import DAY_SECONDS
from gnomon.core.timezones import nearest_zone, zone, zone_of_place
from gnomon.errors import Position

if TYPE_CHECKING:
    from lark import Token

    from gnomon.core.english.tree import Node


_TIME = re.compile(r"(\d+)(?::(\d+))?(?::(\d+))?\s*(?:([ap])\.?m\.?)?", re.IGNORECASE)
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)", re.IGNORECASE)
#: By the first letter of the unit; milliseconds are an exception.
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
    "DAY": RepeatInterval("day"),
    "WEEK": RepeatInterval("week"),
    "MONTH": RepeatInterval("month"),
    "QUARTER": RepeatInterval("month", 3),
    "YEAR": RepeatInterval("year"),
}
_ADVERBS = {
    "daily": RepeatInterval("day"),
    "nightly": RepeatInterval("day"),
    "weekly": RepeatInterval("week"),
    "monthly": RepeatInterval("month"),
    "quarterly": RepeatInterval("month", 3),
    "yearly": RepeatInterval("year"),
    "annually": RepeatInterval("year"),
}


def statement_from_tree(text: str, tree: "Node") -> ScheduleStatement:
    """The clauses of `tree`; raise SentenceRefusal if one of them is wrong by itself or given twice."""
    statement = ScheduleStatement(text)
    for clause in trees_in(tree):
        _CLAUSES[str(clause.data)](statement, clause)
    return statement


# ---- times of day --------------------------------------------------------------------------------


def _times(statement: ScheduleStatement, tree: "Node") -> None:
    statement.put("times", tuple(_time(statement, token) for token in of_type(tree, "TIME")), place_in(tree))


def _window(statement: ScheduleStatement, tree: "Node") -> None:
    start, end = (_time(statement, token) for token in of_type(tree, "TIME"))
    statement.put("window", (start, end), place_in(tree))


def _time(statement: ScheduleStatement, token: "Token") -> Time:
    word, place = token.lower(), place_of(token)
    if word.endswith(("noon", "midday", "midnight")):
        return Time(0 if word.endswith("midnight") else 12, 0)
    found = _TIME.fullmatch(word)
    digits = [(found and found[group]) or "00" for group in (1, 2, 3)]
    if len(digits[0]) > 2 or len(digits[1]) != 2 or len(digits[2]) != 2:
        raise SentenceRefusal(f'has "{token}", which is no time of day', place, vague=True)
    hour, minute, second = map(int, digits)
    half = found and found[4]
    if half and not 1 <= hour <= 12:
        reason = f'has "{token}", but with {half}m an hour is 1 to 12'
        raise SentenceRefusal(
            reason, place, statement.text[: place.start] + f"{hour % 24:02}:{minute:02}" + statement.text[place.end :]
        )
    if hour > 23 or minute > 59 or second > 59:
        raise SentenceRefusal(f'has "{token}", which is no time of day', place)
    if half:
        hour = hour % 12 + (12 if half == "p" else 0)
    return Time(hour, minute, second)


def _clock(statement: ScheduleStatement, tree: "Node") -> None:
    for part in trees_in(tree):
        if part.data in ("marks", "on_the_hour"):
            statement.put("minute", _marked(part), place_in(part))
            continue
        kind = {"seconds": SECOND, "minutes": MINUTE, "hours": HOUR}[str(part.data)]
        statement.put(kind.name, _choice(part, kind), place_in(part))


def _marked(tree: "Node") -> Field:
    """The minutes of ":15 and :45", "on the hour" or "on the half hour"."""
    if tree.data == "on_the_hour":
        return Field(frozenset({30 if "half" in tokens_in(tree)[0].lower() else 0}))
    for token in tokens_in(tree):
        if int(token[1:]) > MINUTE.high:
            raise SentenceRefusal(f'has "{token}", but a minute is a whole number from 0 to 59', place_of(token))
    return Field(frozenset(int(token[1:]) for token in tokens_in(tree)))


def _choice(tree: "Node", kind: FieldKind) -> Field:
    whole = range(kind.low, kind.high + 1)
    for numbers in trees_in(tree):
        return Field(frozenset(numbers_of(numbers, kind)))
    if "EVERY" not in types_in(tree):
        for number in of_type(tree, "NUMBER"):
            return Field(frozenset({number_of(number, kind)}))
    for step in (*of_type(tree, "ORDINAL"), *of_type(tree, "NUMBER")):
        size = number_of(step, FieldKind(f"step of {kind.name}s", 1, len(whole)))
        return Field(frozenset(whole[::size]), starred=True)
    return Field(frozenset(whole), starred=True)


def _counted(statement: ScheduleStatement, tree: "Node") -> None:
    statement.put("counted", True, place_in(tree))


def _elapsed(statement: ScheduleStatement, tree: "Node") -> None:
    statement.put("elapsed", True, place_in(tree))


# ---- how often -----------------------------------------------------------------------------------


def _rhythm(statement: ScheduleStatement, tree: "Node") -> None:
    words, amounts, place = types_in(tree), trees_in(tree), place_in(tree)
    if not amounts:
        part = 2 if "HALF" in words else 4 if "QUARTER" in words else 1
        unit = "HOUR" if words == ["HOURLY"] else words[-1]
        _check_singular(statement, tokens_in(tree)[-1])
        statement.put("period", _SECONDS[unit] / part * _step(statement, tree), place)
        return
    parts = [part for amount in amounts for part in _amounts(amount)]
    units = [unit for _, unit in parts]
    if len(parts) == 1 and units[0] in _SPANS and (units[0] not in _SECONDS or parts[0][0] == 1):
        _counted_span(statement, parts[0], place)
    elif not set(units) <= set(_SECONDS):
        raise SentenceRefusal("adds months or years to something else, which have no fixed length", place)
    elif units != sorted(set(units), key=list(_SECONDS).index):
        raise SentenceRefusal("must name every unit once, the longest first", place, "every 1 hour and 30 minutes")
    else:
        statement.put("period", sum(count * _SECONDS[unit] for count, unit in parts), place)


def _step(statement: ScheduleStatement, tree: "Node") -> int:
    """The step of an ordinal: 3 for "every third hour", which must divide its day, hour or minute evenly."""
    for step in of_type(tree, "ORDINAL"):
        unit, size = tokens_in(tree)[-1], {"SECOND": 60, "MINUTE": 60, "HOUR": 24}[types_in(tree)[-1]]
        count = number_of(step, FieldKind(f"step of {unit}s", 1, size))
        if size % count:
            place, of = place_in(tree), {"SECOND": "minute", "MINUTE": "hour", "HOUR": "day"}[unit.type]
            reason = f'has "{statement.text[slice(*place)]}", which does not divide its {of} evenly'
            raise SentenceRefusal(reason, place, f"every {count} {unit}s")
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


def _counted_span(statement: ScheduleStatement, part: tuple[Fraction, str], place: Position) -> None:
    count, unit = part
    if count.denominator != 1 or not 1 <= count <= 12:
        reason = "counts months or years in a way that a calendar cannot repeat"
        raise SentenceRefusal(reason, place)
    statement.put("span", RepeatInterval(_SPANS[unit].unit, _SPANS[unit].times * int(count)), place)


def _span(statement: ScheduleStatement, tree: "Node") -> None:
    word = tokens_in(tree)[-1]
    _check_singular(statement, word)
    span = _SPANS.get(word.type) or _ADVERBS[word.lower()]
    steps = [number_of(step, FieldKind("step of months", 1, 12)) for step in of_type(tree, "ORDINAL")]
    statement.put("span", RepeatInterval(span.unit, span.times * steps[0]) if steps else span, place_in(tree))


def _check_singular(statement: ScheduleStatement, unit: "Token") -> None:
    if unit.lower().endswith("s"):
        place = place_of(unit)
        before, after = statement.text[: place.start], statement.text[place.end :]
        reason = f'has "every {unit}" without a number'
        raise SentenceRefusal(reason, place, f"{before}{unit[:-1]}{after}")


def _count(statement: ScheduleStatement, tree: "Node") -> None:
    tokens = tokens_in(tree)
    if tokens[-1].type == "ADVERB" and tokens[-1].lower() != "daily":
        raise SentenceRefusal(f'has "{tokens[-1]}", but only times of a day can be counted', place_of(tokens[-1]))
    number = 2 if tokens[0].type == "TWICE" else number_of(tokens[0], FieldKind("number of times", 1, 24))
    statement.put("count", number, place_in(tree))
    statement.put("span", RepeatInterval("day"), place_in(tree))


# ---- days and months -----------------------------------------------------------------------------


def _days(statement: ScheduleStatement, tree: "Node") -> None:
    """Read days of the month, weekdays, and how the two are joined."""
    parts = trees_in(tree)
    for token in of_type(tree, "OR"):
        if len({part.data == "weekdays" for part in parts}) == 1:
            place = place_of(token)
            instead = f"{statement.text[: place.start]}and{statement.text[place.end :]}"
            raise SentenceRefusal(f'has "{token}" between days of one kind', place, instead)
    for part in parts:
        if "EVERY" in types_in(tree):
            _check_every(statement, part, place_in(tree))
        _DAY_LISTS[str(part.data)](statement, part)
    if len(parts) == 2:
        statement.join_days(either="OR" in types_in(tree))


def _check_every(statement: ScheduleStatement, tree: "Node", place: Position) -> None:
    """Refuse "every third", which may mean "the third of the month" or "one in three"."""
    counted = [
        token
        for part in tree.iter_subtrees()
        for token in of_type(part, "ORDINAL")
        if part.data == "ordinal_day" or (part.data == "ordinals" and tree.data == "weekdays")
        if token.lower() not in ("first", "1st")
    ]
    if counted and not any(part.data == "of" for part in tree.iter_subtrees()):
        word = statement.text[slice(*place_of(counted[0]))]
        reason = f'has "every {word}", which may mean one in so many or that one of each month'
        rest = statement.text[place.end :]
        raise SentenceRefusal(reason, place, f"{statement.text[: place.end]} of the month{rest}", vague=True)


def _weekdays(statement: ScheduleStatement, tree: "Node") -> None:
    values: set[int] = set()
    tokens: set[str] = set()
    for child in tree.children:
        if isinstance(child, str):
            if tokens:
                raise _uncounted(statement, tree, child)
            values |= _weekday_values(child)
        elif child.data == "nth_weekday":
            tokens |= _nth(child)
        elif child.data == "weekday_range":
            values |= set(cyclic_range(child, WEEKDAYS))
        else:
            _of(statement, child)
    statement.put("weekday", Field(frozenset(values), tokens=frozenset(tokens)), place_in(tree))


def _uncounted(statement: ScheduleStatement, tree: "Node", token: "Token") -> SentenceRefusal:
    """The refusal of "the first Monday and Friday", which suggests "the first Monday and the first Friday"."""
    counted = next(part for part in tree.children if not isinstance(part, str) and part.data == "nth_weekday")
    which = statement.text[slice(*place_in(trees_in(counted)[0]))]
    place = place_of(token)
    reason = f'has "{token}" after a counted weekday, so it is unclear whether it is counted too'
    return SentenceRefusal(reason, place, f"{statement.text[: place.start]}the {which} {statement.text[place.start :]}")


def _weekday_values(token: "Token") -> set[int]:
    if token.type == "WORKDAY":
        return {1, 2, 3, 4, 5}
    return {0, 6} if token.type == "WEEKEND" else {index_of(token, WEEKDAYS)}


def _nth(tree: "Node") -> set[str]:
    weekday = index_of(tokens_in(tree)[0], WEEKDAYS)
    (which,) = trees_in(tree)
    days = _ordinals(which)
    wrong = [day for day in days.values if day > 5]
    if wrong:
        raise SentenceRefusal(f"has the {ordinal(min(wrong))} {WEEKDAYS[weekday]}, but a month has 5", place_in(which))
    if "LW" in days.tokens:
        raise SentenceRefusal('has "last weekday" before a weekday', place_in(tree))
    return {f"{weekday}#{day}" for day in days.values} | {f"{weekday}L" for _ in days.tokens}


def _ordinals(tree: "Node") -> Field:
    values: set[int] = set()
    tokens: set[str] = set()
    for child in tree.children:
        if not isinstance(child, str) and child.data == "last_workday":
            tokens.add("LW")
        elif not isinstance(child, str) and child.data == "ordinal_range":
            values |= set(range_of(child, DAY))
        else:
            token = child if isinstance(child, str) else tokens_in(child)[0]
            if token.type == "LAST":
                tokens.add("L")
            else:
                values.add(number_of(token, DAY))
    return Field(frozenset(values), tokens=frozenset(tokens))


def _month_days(statement: ScheduleStatement, tree: "Node") -> None:
    (ordinals,) = trees_in(tree)
    for last in of_type(ordinals, "LAST"):
        place = place_of(last)
        before, after = statement.text[: place.end], statement.text[place.end :]
        raise SentenceRefusal('has "last" without saying of what', place, f"{before} day of the month{after}")
    statement.put("day", _ordinals(ordinals), place_in(tree))


def _dates(statement: ScheduleStatement, tree: "Node") -> None:
    found = [_date(part) for part in trees_in(tree)]
    day, months = found[0]
    for more, others in found[1:]:
        if day == more:
            months = months | others if months and others else None
        elif months == others:
            day = Field(day.values | more.values, tokens=day.tokens | more.tokens)
        else:
            place, first = place_in(tree), statement.text[slice(*place_in(trees_in(tree)[0]))]
            alone = statement.text[: place.start] + first + statement.text[place.end :]
            raise SentenceRefusal("has dates that one schedule cannot hold; make one for each", place, alone)
    if months:
        _check_possible(statement, day, months, place_in(tree))
        statement.put("months", months, place_in(tree))
    statement.put("day", day, place_in(tree))


def _check_possible(statement: ScheduleStatement, day: Field, months: frozenset[int], place: Position) -> None:
    month = max(months, key=lambda month: MONTH_LENGTHS[month - 1])
    if day.tokens or min(day.values) <= MONTH_LENGTHS[month - 1]:
        return
    before = re.sub(r"(\b(on|every)\s+)?(\bthe\s+)?$", "", statement.text[: place.start], flags=re.IGNORECASE)
    date = f"on {MONTH_LENGTHS[month - 1]} {MONTHS[month - 1]}"
    reason = f"never happens: {MONTHS[month - 1]} has no {ordinal(min(day.values))}"
    raise SentenceRefusal(reason, place, f"{before}{date}{statement.text[place.end :]}", date)


def _date(tree: "Node") -> tuple[Field, frozenset[int] | None]:
    day, months = Field(frozenset()), None
    for part in trees_in(tree):
        if part.data == "ordinals":
            day = _ordinals(part)
        elif part.data == "numbers":
            day = Field(frozenset(numbers_of(part, DAY)))
        elif part.data == "month_names":
            months = _month_values(part)
        else:
            months = _of_months(part)
    return day, months


def _of(statement: ScheduleStatement, tree: "Node") -> None:
    months = _of_months(tree)
    if months:
        statement.put("months", months, place_in(tree))


def _of_months(tree: "Node") -> frozenset[int] | None:
    """The months named after "of"; None for "of the month", which restricts nothing."""
    names = trees_in(tree)
    return _month_values(names[0]) if names else None


def _month_values(tree: "Node") -> frozenset[int]:
    if tree.data == "month_range":
        return frozenset(month + 1 for month in cyclic_range(tree, MONTHS))
    single = frozenset(index_of(token, MONTHS) + 1 for token in tokens_in(tree))
    return single.union(*(_month_values(part) for part in trees_in(tree)))


def _months(statement: ScheduleStatement, tree: "Node") -> None:
    statement.put("months", _month_values(trees_in(tree)[0]), place_in(tree))


def _weekdays_alone(statement: ScheduleStatement, tree: "Node") -> None:
    statement.put("weekday", Field(frozenset(cyclic_range(tree, WEEKDAYS))), place_in(tree))


_DAY_LISTS: dict[str, Callable[[ScheduleStatement, "Node"], None]] = {
    "weekdays": _weekdays,
    "weekday_range": _weekdays_alone,
    "month_days": _month_days,
    "dates": _dates,
    "months_first": _dates,
}


# ---- time zone -----------------------------------------------------------------------------------


def _zone(statement: ScheduleStatement, tree: "Node") -> None:
    token = next(token for token in tokens_in(tree) if token.type in ("ZONE", "IN_ZONE"))
    name = token.split()[-1]
    place = Position(place_of(token).end - len(name), place_of(token).end)
    exact = name.upper() if name.upper() in ("UTC", "GMT") else name
    if zone(exact) is None:
        near = nearest_zone(name) or zone_of_place(name)
        corrected = [statement.text[: place.start] + near + statement.text[place.end :]] if near else []
        raise SentenceRefusal(unknown_zone_reason(name), place, *corrected, vague="/" not in name, field="timezone")
    statement.put("zone", exact, place)


_CLAUSES: dict[str, Callable[[ScheduleStatement, "Node"], None]] = {
    "times": _times,
    "window": _window,
    "clock": _clock,
    "elapsed": _elapsed,
    "counted": _counted,
    "rhythm": _rhythm,
    "span": _span,
    "count": _count,
    "times_a_day": _count,
    "days": _days,
    "bare_days": _days,
    "months": _months,
    "zone": _zone,
}
