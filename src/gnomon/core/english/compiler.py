"""The compiler: the clauses of a statement become a cron expression or an interval.

A sentence that leaves something open is refused, never completed by a guess. One exception follows custom:
days without a time mean midnight, as in `@daily`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from fractions import Fraction

from gnomon.core.cron.fields import DAY, HOUR, MINUTE, MONTH, SECOND, WEEKDAY, Field, FieldKind, format_values
from gnomon.core.english.describe import either_in_words
from gnomon.core.english.statement import ScheduleStatement, SentenceRefusal, Time
from gnomon.core.english.vocabulary import WEEKDAYS, joined
from gnomon.core.instants import DAY_SECONDS
from gnomon.core.triggers import LONGEST_PERIOD, SHORTEST_PERIOD
from gnomon.errors import Position

_ZERO = Field(frozenset({0}))
_EVERY_MINUTE, _EVERY_HOUR, _EVERY_DAY = (
    Field(frozenset(range(kind.low, kind.high + 1)), starred=True) for kind in (MINUTE, HOUR, DAY)
)
_EVERY_WEEKDAY = Field(frozenset(range(7)), starred=True)
_TWICE = (Time(8, 0), Time(20, 0))


@dataclass(frozen=True, slots=True)
class CronResult:
    """A sentence that cron can express."""

    #: Five fields, or six with seconds first.
    expression: str
    #: The time zone that the sentence names, and its place in the text.
    zone: str | None
    zone_place: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class IntervalResult:
    """A sentence that counts elapsed time: cron cannot repeat its period evenly, or the sentence asks for it."""

    period: timedelta


def compile_statement(statement: ScheduleStatement) -> CronResult | IntervalResult:
    """The schedule that the clauses describe together; raise SentenceRefusal if they contradict or leave a gap."""
    if statement.period is not None:
        _check_period(statement, statement.period)
        if statement.counted or _even(statement.period) is None:
            return _interval(statement, statement.period)
    if statement.counted:
        reason = 'has "counted from its start", but no period that could be counted'
        raise statement.refuse("counted", reason, "every 7 minutes, counted from its start")
    clock = _by_elapsed_time(statement, _clock(statement))
    day, month, weekday = _days(statement)
    texts = [_text(kind, field) for kind, field in zip((SECOND, MINUTE, HOUR), clock, strict=True)]
    texts += [_text(DAY, day), _months_text(month), _text(WEEKDAY, weekday)]
    expression = " ".join(texts[1:] if texts[0] == "0" else texts)
    return CronResult(expression, statement.zone, statement.places.get("zone"))


# ---- how often -----------------------------------------------------------------------------------


def _check_period(statement: ScheduleStatement, period: Fraction) -> None:
    if not period:
        raise statement.refuse("period", "has a period of nothing", statement.instead("period", "every minute"))
    if period < Fraction(SHORTEST_PERIOD.total_seconds()).limit_denominator(1000):
        raise statement.refuse("period", "has a period shorter than 100 ms", "every 100ms")
    if period > LONGEST_PERIOD.total_seconds():
        reason = "has a period longer than 100 years"
        raise statement.refuse("period", reason, f"every {LONGEST_PERIOD.days} days")
    if (period * 1000).denominator != 1:
        reason = "has a period that is not a whole number of milliseconds"
        raise statement.refuse("period", reason, f"every {round(period * 1000)}ms")


def _even(period: Fraction) -> tuple[FieldKind, int] | None:
    """The field and the step by which cron repeats `period` evenly all day; None if it cannot."""
    for kind, size in ((HOUR, 3600), (MINUTE, 60), (SECOND, 1)):
        count = period / size
        whole = kind.high + 1
        if count.denominator == 1 and count < whole and whole % count.numerator == 0:
            return kind, count.numerator
    return None


def _interval(statement: ScheduleStatement, period: Fraction) -> IntervalResult:
    others = [slot for slot in statement.places if slot not in ("period", "counted")]
    if others:
        reason = (
            f'has "{_quoted(statement, "period")}", which does not divide its hour or day evenly and so runs '
            f'by elapsed time alone, without "{_quoted(statement, others[0])}"'
        )
        # No even period is near one of a day or more: suggest the period alone, as the reason says.
        near = [statement.instead("period", f"every {_nearest_even(period)}")] if period < DAY_SECONDS else []
        raise statement.refuse("period", reason, *near, _quoted(statement, "period"))
    return IntervalResult(timedelta(microseconds=round(period * 1_000_000)))


def _nearest_even(period: Fraction) -> str:
    kind, size = (HOUR, 3600) if period >= 3600 else (MINUTE, 60) if period >= 60 else (SECOND, 1)
    counts = [count for count in range(1, kind.high + 1) if (kind.high + 1) % count == 0]
    nearest = min(counts, key=lambda count: abs(count - period / size))
    return f"{nearest} {kind.name}s" if nearest > 1 else kind.name


def _quoted(statement: ScheduleStatement, slot: str) -> str:
    return statement.text[slice(*statement.places[slot])]


# ---- times of day --------------------------------------------------------------------------------


def _clock(statement: ScheduleStatement) -> tuple[Field, Field, Field]:
    if statement.count is not None and len(statement.times or ()) != statement.count:
        reason = f"asks for {statement.count} times a day but names {len(statement.times or ()) or 'none'}"
        raise SentenceRefusal(reason, statement.places["count"], *_spread(statement, statement.count))
    if statement.times is not None:
        return _times(statement, statement.times)
    if statement.period is not None:
        return _rhythm(statement, statement.period)
    if statement.window is not None:
        start, end = statement.window
        reason = "says from when to when, but not how often"
        raise statement.refuse("window", reason, f"every hour from {start} to {end}", "every hour")
    if statement.minute is not None or statement.second is not None:
        return _chosen(statement)
    if statement.elapsed:
        raise statement.refuse("elapsed", 'has "by elapsed time", but no times that could follow it')
    if statement.months and not (statement.span or statement.day or statement.weekday):
        raise statement.refuse("months", "does not say on which days", f"every day at 00:00 {statement.text}")
    if not (statement.span or statement.day or statement.weekday):
        raise statement.refuse("zone", "says where, but not when")
    return _ZERO, _ZERO, _ZERO


def _spread(statement: ScheduleStatement, count: int) -> Iterator[str]:
    """Ways to name `count` times of a day, if none are named yet."""
    if statement.times is None or statement.times == _TWICE[:1]:
        yield from [f"every day at {joined([str(time) for time in _TWICE])}"] if count == 2 else []
    if statement.times is None and count == 1:
        yield "every day at 09:00"
    if statement.times is None and 24 % count == 0:
        yield f"every {24 // count} hours" if count < 24 else "every hour"


def _times(statement: ScheduleStatement, times: tuple[Time, ...]) -> tuple[Field, Field, Field]:
    for slot in ("period", "window", "minute", "second"):
        if slot in statement.places:
            reason = f'has "{_quoted(statement, slot)}" beside "{_quoted(statement, "times")}"; only one can hold'
            raise statement.refuse(slot, reason, statement.instead("times", ""))
    if not (statement.span or statement.day or statement.weekday):
        reason, days = "does not say on which days", "every day"
        raise statement.refuse("times", reason, f"{days} {statement.text}", f"{days} at {times[0]}")
    hours, minutes, seconds = (frozenset(values) for values in zip(*times, strict=True))
    if len(hours) * len(minutes) * len(seconds) != len(set(times)):
        reason = f"has {joined([str(time) for time in times])}, which one schedule cannot hold; make one for each"
        raise statement.refuse("times", reason, statement.instead("times", f"at {times[0]}"))
    return Field(seconds), Field(minutes), Field(hours)


def _chosen(statement: ScheduleStatement) -> tuple[Field, Field, Field]:
    """The fields of "at minutes 0 and 30 past hours 1 through 5"."""
    if statement.window is not None:
        raise statement.refuse("window", "says both from when to when and at which minutes")
    if statement.minute is None:
        raise statement.refuse("second", "does not say of which minutes", f"every minute {statement.text}")
    if statement.hour is None:
        raise statement.refuse("minute", "does not say past which hours", f"every hour {statement.text}")
    return statement.second or _ZERO, statement.minute, statement.hour


def _rhythm(statement: ScheduleStatement, period: Fraction) -> tuple[Field, Field, Field]:
    kind, count = _even(period) or (SECOND, 1)
    finer = {"hour": ("minute", "second"), "minute": ("second",), "second": ()}[kind.name]
    for slot in ("hour", "minute", "second"):
        if slot in statement.places and slot not in finer:
            reason = f'has "{_quoted(statement, slot)}" beside "{_quoted(statement, "period")}"; only one can hold'
            raise statement.refuse(slot, reason)
    if statement.span is not None and statement.span != ("day", 1):
        raise statement.refuse("span", f'has "{_quoted(statement, "span")}" beside "{_quoted(statement, "period")}"')
    every = Field(frozenset(range(0, kind.high + 1, count)), starred=True)
    if statement.window is not None:
        return _within(statement, kind, count, statement.window)
    second, minute = statement.second or _ZERO, statement.minute or _ZERO
    if kind is HOUR:
        return second, minute, every
    return (second, every, _EVERY_HOUR) if kind is MINUTE else (every, _EVERY_MINUTE, _EVERY_HOUR)


def _within(
    statement: ScheduleStatement, kind: FieldKind, count: int, window: tuple[Time, Time]
) -> tuple[Field, Field, Field]:
    """The fields of a period within a daily window."""
    start, end = window
    if start >= end:
        last = Time(23, start.minute) if kind is HOUR else Time(23, 59, 59 if kind is SECOND else 0)
        reason = "has a window that passes midnight; make one schedule for each side"
        raise statement.refuse("window", reason, statement.instead("window", f"from {start} to {last}"))
    if kind is HOUR:
        if statement.minute or statement.second:
            raise statement.refuse("window", "says both from when to when and at which minutes")
        return _hours_within(count, start, end)
    _check_edges(statement, kind, count, window)
    hours = Field(frozenset(range(start.hour, end.hour + 1)))
    every = Field(frozenset(range(0, kind.high + 1, count)), starred=True)
    return (statement.second or _ZERO, every, hours) if kind is MINUTE else (every, _EVERY_MINUTE, hours)


def _hours_within(count: int, start: Time, end: Time) -> tuple[Field, Field, Field]:
    hours = (hour for hour in range(start.hour, end.hour + 1, count) if (hour, start.minute, start.second) <= end)
    return Field(frozenset({start.second})), Field(frozenset({start.minute})), Field(frozenset(hours))


def _check_edges(statement: ScheduleStatement, kind: FieldKind, count: int, window: tuple[Time, Time]) -> None:
    """Refuse a window that begins or ends within an hour, or whose last fire is unclear."""
    start, end = window
    last = Time(end.hour, 59, 59 if kind is SECOND else 0)
    if not (end.minute or end.second):
        last = Time(end.hour - 1, 59, last.second)
        reason = f"does not say whether it still runs at {end}"
    elif start.minute or start.second:
        reason = "begins within an hour, which cron cannot say"
    elif end < (Time(end.hour, 60 - count) if kind is MINUTE else Time(end.hour, 59, 60 - count)):
        reason = "ends within an hour, which cron cannot say"
    else:
        return
    raise statement.refuse(
        "window", reason, statement.instead("window", f"from {Time(min(start.hour, last.hour), 0)} to {last}")
    )


def _by_elapsed_time(statement: ScheduleStatement, clock: tuple[Field, Field, Field]) -> tuple[Field, Field, Field]:
    """The same times, written so that cron follows elapsed time through clock changes."""
    if not statement.elapsed or any(field.starred for field in clock):
        return clock
    for place in (2, 1, 0):
        if 0 in clock[place].values:
            starred = [*clock]
            starred[place] = Field(clock[place].values, starred=True)
            return starred[0], starred[1], starred[2]
    raise statement.refuse("elapsed", 'has "by elapsed time", which cron can only say of times that include a 0')


# ---- days ----------------------------------------------------------------------------------------


def _days(statement: ScheduleStatement) -> tuple[Field, frozenset[int] | None, Field]:
    day, weekday, months = statement.day, statement.weekday, statement.months
    if statement.span is not None:
        _check_span(statement)
        if statement.span.unit == "week":
            weekday = weekday or _ZERO
        elif statement.span.unit != "day":
            day = day or (Field(frozenset({1})) if weekday is None else None)
            months = months or _months_apart(statement)
    if day is None or weekday is None:
        return day or _EVERY_DAY, months, weekday or _EVERY_WEEKDAY
    if statement.either is None:
        raise _unjoined(statement)
    if not statement.either:
        day, weekday = _both(statement, day, weekday)
    return day, months, weekday


def _check_span(statement: ScheduleStatement) -> None:
    unit, count = statement.span or ("day", 1)
    if unit == "day" and (statement.day or statement.weekday):
        raise statement.refuse("span", "says every day and also which days")
    if unit == "week" and statement.day:
        raise statement.refuse("span", "says every week and also days of the month")
    if unit in ("month", "year") and statement.weekday and not statement.day and not statement.weekday.tokens:
        name = WEEKDAYS[min(statement.weekday.values)]
        reason = f"does not say which {name} of the month"
        raise statement.refuse("weekday", reason, statement.instead("weekday", f"the first {name} of the month"))
    if unit == "month" and count > 1 and statement.months:
        raise statement.refuse("months", "says which months twice")
    if unit == "year" and not statement.months and (statement.day or statement.weekday):
        raise statement.refuse("span", "does not say in which month", f"{statement.text} in January")
    if (unit == "year" and count > 1) or (unit == "month" and (12 % count if count <= 12 else count % 12)):
        reason = f'has "{_quoted(statement, "span")}", which cron cannot count across years'
        # There is no similar sentence for years.
        near = [statement.instead("span", "every 6 months")] if unit == "month" else []
        raise SentenceRefusal(reason, statement.places["span"], *near)


def _months_apart(statement: ScheduleStatement) -> frozenset[int] | None:
    unit, count = statement.span or ("month", 1)
    return frozenset(range(1, 13, 12 if unit == "year" else count))


def _unjoined(statement: ScheduleStatement) -> SentenceRefusal:
    reason = 'has both days of the month and weekdays: say "or" if either suffices'
    instead = []
    if statement.day and statement.weekday and statement.places.keys() <= {"day", "weekday", "times", "zone", "span"}:
        times = f" at {joined([str(time) for time in statement.times])}" if statement.times else ""
        zone = f" in {statement.zone}" if statement.zone else ""
        instead.append(f"{either_in_words(statement.day, statement.weekday)}{times}{zone}")
    return SentenceRefusal(reason, statement.places["weekday"], *instead)


def _both(statement: ScheduleStatement, day: Field, weekday: Field) -> tuple[Field, Field]:
    """The two fields written so that cron requires both: one of them must begin with a star."""
    if 1 in day.values:
        return Field(day.values, starred=True, tokens=day.tokens), weekday
    if 0 in weekday.values:
        return day, Field(weekday.values, starred=True, tokens=weekday.tokens)
    reason = "wants days of the month and weekdays at once, which cron can only say from the 1st or of Sundays"
    raise SentenceRefusal(reason, statement.places["weekday"])


# ---- cron text -----------------------------------------------------------------------------------


def _months_text(months: frozenset[int] | None) -> str:
    return _text(MONTH, Field(months)) if months and len(months) < 12 else "*"


def _text(kind: FieldKind, field: Field) -> str:
    values = sorted(field.values)
    whole = list(range(kind.low, kind.high + 1))
    elements = sorted(field.tokens)
    if not field.starred:
        return ",".join(([_listed(kind, values)] if values else []) + elements)
    if field.full(kind):
        return "*"
    step = values[1] - values[0] if len(values) > 1 else len(whole)
    if whole[::step] == values and kind is not WEEKDAY:
        return ",".join([f"*/{step}", *elements])
    return ",".join([f"*/{len(whole)}", *([format_values(values[1:])] if values[1:] else []), *elements])


def _listed(kind: FieldKind, values: list[int]) -> str:
    """A list, or five and more at equal distances as a range with a step."""
    step = values[1] - values[0] if len(values) > 1 else 1
    if len(values) > 4 and step > 1 and kind is not MONTH and values == list(range(values[0], values[-1] + 1, step)):
        return f"{values[0]}-{values[-1]}/{step}"
    return format_values(values)
