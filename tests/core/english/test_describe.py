"""Cron as English: the sentences people read, and that each reads back as the same schedule."""

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.core.cron.dialect_standard import parse
from gnomon.core.cron.fields import DAY, HOUR, MINUTE, MONTH, SECOND, WEEKDAY, Field, FieldKind, Fields
from gnomon.core.english import CronResult, describe, parse_sentence

EXAMPLES = settings(max_examples=4 * settings().max_examples)

DESCRIBED = {
    # times of day
    "0 2 * * *": "every day at 02:00",
    "0 9 * * 1-5": "every weekday at 09:00",
    "0 9 * * MON": "every Monday at 09:00",
    "0 8,20 * * *": "every day at 08:00 and 20:00",
    "0 18 * * 1,3,5": "every Monday, Wednesday and Friday at 18:00",
    "0 8 * * 1-4": "every Monday through Thursday at 08:00",
    "0 12 * * 0,6": "on weekends at 12:00",
    "30 0 9 * * *": "every day at 09:00:30",
    "0 9 * 1 1": "every Monday in January at 09:00",
    "0 0-23 * * *": "every hour from 00:00 to 23:00 every day",
    "0 1-16/5 * * *": "every day at 01:00, 06:00, 11:00 and 16:00",
    "0 9-17/2 * * 1-5": "every 2 hours from 09:00 to 17:00 on weekdays",
    # days of the month and dates
    "0 6 1,15 * *": "on the 1st and 15th of the month at 06:00",
    "0 6 1-7,L * *": "on the 1st through 7th and last day of the month at 06:00",
    "0 23 L * *": "on the last day of the month at 23:00",
    "0 0 LW * *": "on the last weekday of the month at 00:00",
    "0 17 * * 5L": "on the last Friday of the month at 17:00",
    "0 10 * * 2#2": "on the second Tuesday of the month at 10:00",
    "0 10 * * 1#1,1#3": "on the first and third Monday of the month at 10:00",
    "0 10 * * 3,1#1": "on Wednesday and the first Monday of the month at 10:00",
    "0 12 29 2 *": "on 29 February at 12:00",
    "0 0 30 2 *": "on the 30th of the month in February at 00:00",
    "0 9 1 1,4,7,10 *": "on the 1st of January, April, July and October at 09:00",
    "0 9 13 * 5": "at 09:00 on the 13th of the month or on Friday",
    "0 9 */10 * 1,5": "at 09:00 on the 1st, 11th, 21st and 31st of the month if it is a Monday or Friday",
    "0 9 */15 * 1-5": "at 09:00 on the 1st, 16th and 31st of the month if it is a weekday",
    # how often
    "* * * * * *": "every second",
    "* * * * *": "every minute",
    "0 * * * *": "every hour",
    "5 * * * *": "every hour at minute 5",
    "*/5 * * * *": "every 5 minutes",
    "0,30 * * * *": "every 30 minutes",
    "*/30 * * * * *": "every 30 seconds",
    "30 * * * * *": "every minute at second 30",
    "0 */2 * * *": "every 2 hours",
    "*/15 9-17 * * 1-5": "every 15 minutes from 09:00 to 17:59 on weekdays",
    "*/15 * * 3-5 *": "every 15 minutes in March through May",
    # elapsed time or the clock's time
    "*/15 2 * * *": "every 15 minutes from 02:00 to 02:59 every day",
    "0,15,30,45 2 * * *": "every day at 02:00, 02:15, 02:30 and 02:45",
    # any times at all
    "0,7,14 * * * *": "at minutes 0, 7 and 14 past every hour",
    "*/7 * * * *": "at every 7th minute past every hour",
    "0 */5 * * *": "at minute 0 past every 5th hour",
    "*/10 1-5,8 * * *": "at every 10th minute past hours 1 through 5 and 8",
    "30 */10 2,4 * * *": "at second 30 of every 10th minute past hours 2 and 4",
    "*/60 2 * * *": "at minute 0 past hour 2 by elapsed time",
    "0 */2,5 * * *": ("at minute 0 past hours 0, 2, 4 through 6, 8, 10, 12, 14, 16, 18, 20 and 22 by elapsed time"),
}


@pytest.mark.req("H-03")
@pytest.mark.parametrize(
    ("expression", "sentence"), [pytest.param(text, words, id=text) for text, words in DESCRIBED.items()]
)
def test_an_expression_is_described(expression: str, sentence: str) -> None:
    assert describe(parse(expression)) == sentence


class Behaviour(NamedTuple):
    """All that decides when an expression fires."""

    clock: tuple[frozenset[int], ...]
    months: frozenset[int]
    days: tuple[object, ...]
    fixed: bool


def behaviour(fields: Fields) -> Behaviour:
    clock = (fields.second.values, fields.minute.values, fields.hour.values)
    return Behaviour(clock, fields.month.values, days(fields), fields.fixed)


def days(fields: Fields) -> tuple[object, ...]:
    day, weekday = (fields.day.values, fields.day.tokens), (fields.weekday.values, fields.weekday.tokens)
    always = (fields.day.full(DAY), fields.weekday.full(WEEKDAY))
    if all(always) or (fields.either_day and any(always)):
        return ("always",)
    if any(always):
        return ("weekday", weekday) if always[0] else ("day", day)
    return ("either" if fields.either_day else "both", day, weekday)


def read_back(expression: str) -> Fields:
    found = parse_sentence(describe(parse(expression)))
    assert isinstance(found, CronResult)
    return parse(found.expression)


@pytest.mark.req("H-03")
@pytest.mark.parametrize("expression", [pytest.param(text, id=text) for text in DESCRIBED])
def test_a_description_reads_back_as_the_same_schedule(expression: str) -> None:
    assert behaviour(read_back(expression)) == behaviour(parse(expression))


def numbers(kind: FieldKind) -> st.SearchStrategy[str]:
    return st.integers(kind.low, kind.high).map(str)


def ranges(kind: FieldKind) -> st.SearchStrategy[str]:
    values = st.integers(kind.low, kind.high)
    return st.tuples(values, values).map(lambda ends: f"{min(ends)}-{max(ends)}")


def stepped(kind: FieldKind) -> st.SearchStrategy[str]:
    steps = st.sampled_from([1, 2, 3, 4, 5, 6, 7, 10, 12, 15, 20, 25, 30, 70])
    bodies = st.just("*") | ranges(kind) | numbers(kind)
    return st.tuples(bodies, steps).map(lambda parts: f"{parts[0]}/{parts[1]}")


def elements(kind: FieldKind) -> st.SearchStrategy[str]:
    plain = st.just("*") | numbers(kind) | ranges(kind) | stepped(kind)
    if kind is DAY:
        return plain | st.sampled_from(["L", "LW"])
    if kind is WEEKDAY:
        counted = st.tuples(numbers(kind), st.sampled_from(["L", "#1", "#2", "#3", "#4", "#5"]))
        return plain | counted.map("".join)
    return plain


def texts(kind: FieldKind) -> st.SearchStrategy[str]:
    return st.just("*") | elements(kind) | st.lists(elements(kind), min_size=1, max_size=4).map(",".join)


FIVE = [texts(kind) for kind in (MINUTE, HOUR, DAY, MONTH, WEEKDAY)]
expressions = st.tuples(*FIVE).map(" ".join) | st.tuples(texts(SECOND), *FIVE).map(" ".join)


@pytest.mark.req("H-03")
@EXAMPLES
@given(expressions)
def test_any_description_reads_back_as_the_same_schedule(expression: str) -> None:
    assert behaviour(read_back(expression)) == behaviour(parse(expression))


@EXAMPLES
@given(expressions)
def test_a_description_is_a_lower_case_sentence_without_a_full_stop(expression: str) -> None:
    words = describe(parse(expression))

    assert words[0].islower()
    assert not words.endswith(".")
    assert "  " not in words


def test_fields_that_admit_nothing_still_have_a_description() -> None:
    nothing = Field(frozenset())

    assert describe(Fields(nothing, nothing, nothing, nothing, nothing, nothing))
