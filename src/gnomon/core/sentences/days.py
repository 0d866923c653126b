"""The clauses about days: weekdays, days of the month, dates and months."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from gnomon.core.cron.fields import DAY, Field
from gnomon.core.sentences.said import Refusal, Said
from gnomon.core.sentences.tidying import place_of
from gnomon.core.sentences.trees import (
    around,
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
from gnomon.core.sentences.words import MONTH_LENGTHS, MONTHS, WEEKDAYS, ordinal
from gnomon.errors import Position

if TYPE_CHECKING:
    from lark import Token

    from gnomon.core.sentences.trees import Node


def put_days(said: Said, tree: "Node") -> None:
    """Say which days of the month, which weekdays, or how the two are joined."""
    parts = trees_in(tree)
    for token in of_type(tree, "OR"):
        if len({part.data == "weekdays" for part in parts}) == 1:
            place = place_of(token)
            instead = f"{said.text[: place.start]}and{said.text[place.end :]}"
            raise Refusal(f'has "{token}" between days of one kind', place, instead)
    for part in parts:
        if "EVERY" in types_in(tree):
            _check_every(said, part, place_in(tree))
        _DAY_LISTS[str(part.data)](said, part)
    if len(parts) == 2:
        said.either = "OR" in types_in(tree)


def _check_every(said: Said, tree: "Node", place: Position) -> None:
    """Refuse what may mean "the third of the month" and "one in three" alike."""
    counted = [
        token
        for part in tree.iter_subtrees()
        for token in of_type(part, "ORDINAL")
        if part.data == "ordinal_day" or (part.data == "ordinals" and tree.data == "weekdays")
        if token.lower() not in ("first", "1st")
    ]
    if counted and not any(part.data == "of" for part in tree.iter_subtrees()):
        word = said.text[slice(*place_of(counted[0]))]
        reason = f'has "every {word}", which may mean one in so many or that one of each month'
        rest = said.text[place.end :]
        raise Refusal(reason, place, f"{said.text[: place.end]} of the month{rest}", vague=True)


def _weekdays(said: Said, tree: "Node") -> None:
    values: set[int] = set()
    tokens: set[str] = set()
    for child in tree.children:
        if isinstance(child, str):
            if tokens:
                raise _uncounted(said, tree, child)
            values |= _weekday_values(child)
        elif child.data == "nth_weekday":
            tokens |= _nth(child)
        elif child.data == "weekday_range":
            values |= set(around(child, WEEKDAYS))
        else:
            _of(said, child)
    said.put("weekday", Field(frozenset(values), tokens=frozenset(tokens)), place_in(tree))


def _uncounted(said: Said, tree: "Node", token: "Token") -> Refusal:
    """The refusal of "the first Monday and Friday", with "the first Monday and the first Friday" to say instead."""
    counted = next(part for part in tree.children if not isinstance(part, str) and part.data == "nth_weekday")
    which = said.text[slice(*place_in(trees_in(counted)[0]))]
    place = place_of(token)
    reason = f'has "{token}" after a counted weekday, so it is unclear whether it is counted too'
    return Refusal(reason, place, f"{said.text[: place.start]}the {which} {said.text[place.start :]}")


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
        raise Refusal(f"has the {ordinal(min(wrong))} {WEEKDAYS[weekday]}, but a month has 5", place_in(which))
    if "LW" in days.tokens:
        raise Refusal('has "last weekday" before a weekday', place_in(tree))
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


def _month_days(said: Said, tree: "Node") -> None:
    (ordinals,) = trees_in(tree)
    for last in of_type(ordinals, "LAST"):
        place = place_of(last)
        before, after = said.text[: place.end], said.text[place.end :]
        raise Refusal('has "last" without saying of what', place, f"{before} day of the month{after}")
    said.put("day", _ordinals(ordinals), place_in(tree))


def _dates(said: Said, tree: "Node") -> None:
    found = [_date(part) for part in trees_in(tree)]
    day, months = found[0]
    for more, others in found[1:]:
        if day == more:
            months = months | others if months and others else None
        elif months == others:
            day = Field(day.values | more.values, tokens=day.tokens | more.tokens)
        else:
            place, first = place_in(tree), said.text[slice(*place_in(trees_in(tree)[0]))]
            alone = said.text[: place.start] + first + said.text[place.end :]
            raise Refusal("has dates that one schedule cannot hold; make one for each", place, alone)
    if months:
        _check_possible(said, day, months, place_in(tree))
        said.put("months", months, place_in(tree))
    said.put("day", day, place_in(tree))


def _check_possible(said: Said, day: Field, months: frozenset[int], place: Position) -> None:
    month = max(months, key=lambda month: MONTH_LENGTHS[month - 1])
    if day.tokens or min(day.values) <= MONTH_LENGTHS[month - 1]:
        return
    before = re.sub(r"(\b(on|every)\s+)?(\bthe\s+)?$", "", said.text[: place.start], flags=re.IGNORECASE)
    date = f"on {MONTH_LENGTHS[month - 1]} {MONTHS[month - 1]}"
    reason = f"never happens: {MONTHS[month - 1]} has no {ordinal(min(day.values))}"
    raise Refusal(reason, place, f"{before}{date}{said.text[place.end :]}", date)


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


def _of(said: Said, tree: "Node") -> None:
    months = _of_months(tree)
    if months:
        said.put("months", months, place_in(tree))


def _of_months(tree: "Node") -> frozenset[int] | None:
    """The months named after "of"; None for "of the month", which restricts nothing."""
    names = trees_in(tree)
    return _month_values(names[0]) if names else None


def _month_values(tree: "Node") -> frozenset[int]:
    if tree.data == "month_range":
        return frozenset(month + 1 for month in around(tree, MONTHS))
    single = frozenset(index_of(token, MONTHS) + 1 for token in tokens_in(tree))
    return single.union(*(_month_values(part) for part in trees_in(tree)))


def put_months(said: Said, tree: "Node") -> None:
    """Say which months."""
    said.put("months", _month_values(trees_in(tree)[0]), place_in(tree))


def _weekdays_alone(said: Said, tree: "Node") -> None:
    said.put("weekday", Field(frozenset(around(tree, WEEKDAYS))), place_in(tree))


_DAY_LISTS: dict[str, Callable[[Said, "Node"], None]] = {
    "weekdays": _weekdays,
    "weekday_range": _weekdays_alone,
    "month_days": _month_days,
    "dates": _dates,
    "months_first": _dates,
}
