"""What was said as a whole: an expression that cron knows, or a plain interval.

A sentence that leaves something open is refused, never completed by a guess. The one exception is old
custom: days without a time mean midnight, as in `@daily`.
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
class Calendar:
    """A sentence that cron can say."""

    #: Five fields, or six with seconds first.
    expression: str
    #: The time zone the sentence named, and where.
    zone: str | None
    zone_place: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Interval:
    """A sentence that counts elapsed time: cron cannot say its period evenly, or it says so itself."""

    period: timedelta


def compile_statement(said: ScheduleStatement) -> Calendar | Interval:
    """What the clauses mean together, or Refusal."""
    if said.period is not None:
        _check_period(said, said.period)
        if said.counted or _even(said.period) is None:
            return _interval(said, said.period)
    if said.counted:
        reason = 'has "counted from its start", but no period that could be counted'
        raise said.refuse("counted", reason, "every 7 minutes, counted from its start")
    clock = _by_elapsed_time(said, _clock(said))
    day, month, weekday = _days(said)
    texts = [_text(kind, field) for kind, field in zip((SECOND, MINUTE, HOUR), clock, strict=True)]
    texts += [_text(DAY, day), _months_text(month), _text(WEEKDAY, weekday)]
    expression = " ".join(texts[1:] if texts[0] == "0" else texts)
    return Calendar(expression, said.zone, said.places.get("zone"))


# ---- how often -----------------------------------------------------------------------------------


def _check_period(said: ScheduleStatement, period: Fraction) -> None:
    if not period:
        raise said.refuse("period", "has a period of nothing", said.instead("period", "every minute"))
    if period < Fraction(SHORTEST_PERIOD.total_seconds()).limit_denominator(1000):
        raise said.refuse("period", "has a period shorter than 100 ms", "every 100ms")
    if period > LONGEST_PERIOD.total_seconds():
        reason = "has a period longer than 100 years"
        raise said.refuse("period", reason, f"every {LONGEST_PERIOD.days} days")
    if (period * 1000).denominator != 1:
        reason = "has a period that is not a whole number of milliseconds"
        raise said.refuse("period", reason, f"every {round(period * 1000)}ms")


def _even(period: Fraction) -> tuple[FieldKind, int] | None:
    """The field whose every nth value is `period` apart, all day long."""
    for kind, size in ((HOUR, 3600), (MINUTE, 60), (SECOND, 1)):
        count = period / size
        whole = kind.high + 1
        if count.denominator == 1 and count < whole and whole % count.numerator == 0:
            return kind, count.numerator
    return None


def _interval(said: ScheduleStatement, period: Fraction) -> Interval:
    others = [slot for slot in said.places if slot not in ("period", "counted")]
    if others:
        reason = (
            f'has "{_quoted(said, "period")}", which does not divide its hour or day evenly and so runs '
            f'by elapsed time alone, without "{_quoted(said, others[0])}"'
        )
        # A day or more apart, nothing even is near: then the period alone, as the reason says.
        near = [said.instead("period", f"every {_nearest_even(period)}")] if period < DAY_SECONDS else []
        raise said.refuse("period", reason, *near, _quoted(said, "period"))
    return Interval(timedelta(microseconds=round(period * 1_000_000)))


def _nearest_even(period: Fraction) -> str:
    kind, size = (HOUR, 3600) if period >= 3600 else (MINUTE, 60) if period >= 60 else (SECOND, 1)
    counts = [count for count in range(1, kind.high + 1) if (kind.high + 1) % count == 0]
    nearest = min(counts, key=lambda count: abs(count - period / size))
    return f"{nearest} {kind.name}s" if nearest > 1 else kind.name


def _quoted(said: ScheduleStatement, slot: str) -> str:
    return said.text[slice(*said.places[slot])]


# ---- times of day --------------------------------------------------------------------------------


def _clock(said: ScheduleStatement) -> tuple[Field, Field, Field]:
    if said.count is not None and len(said.times or ()) != said.count:
        reason = f"asks for {said.count} times a day but names {len(said.times or ()) or 'none'}"
        raise SentenceRefusal(reason, said.places["count"], *_spread(said, said.count))
    if said.times is not None:
        return _times(said, said.times)
    if said.period is not None:
        return _rhythm(said, said.period)
    if said.window is not None:
        start, end = said.window
        reason = "says from when to when, but not how often"
        raise said.refuse("window", reason, f"every hour from {start} to {end}", "every hour")
    if said.minute is not None or said.second is not None:
        return _chosen(said)
    if said.elapsed:
        raise said.refuse("elapsed", 'has "by elapsed time", but no times that could follow it')
    if said.months and not (said.span or said.day or said.weekday):
        raise said.refuse("months", "does not say on which days", f"every day at 00:00 {said.text}")
    if not (said.span or said.day or said.weekday):
        raise said.refuse("zone", "says where, but not when")
    return _ZERO, _ZERO, _ZERO


def _spread(said: ScheduleStatement, count: int) -> Iterator[str]:
    """Ways to name `count` times of a day, if none are named yet."""
    if said.times is None or said.times == _TWICE[:1]:
        yield from [f"every day at {joined([str(time) for time in _TWICE])}"] if count == 2 else []
    if said.times is None and count == 1:
        yield "every day at 09:00"
    if said.times is None and 24 % count == 0:
        yield f"every {24 // count} hours" if count < 24 else "every hour"


def _times(said: ScheduleStatement, times: tuple[Time, ...]) -> tuple[Field, Field, Field]:
    for slot in ("period", "window", "minute", "second"):
        if slot in said.places:
            reason = f'has "{_quoted(said, slot)}" beside "{_quoted(said, "times")}"; only one can hold'
            raise said.refuse(slot, reason, said.instead("times", ""))
    if not (said.span or said.day or said.weekday):
        reason, days = "does not say on which days", "every day"
        raise said.refuse("times", reason, f"{days} {said.text}", f"{days} at {times[0]}")
    hours, minutes, seconds = (frozenset(values) for values in zip(*times, strict=True))
    if len(hours) * len(minutes) * len(seconds) != len(set(times)):
        reason = f"has {joined([str(time) for time in times])}, which one schedule cannot hold; make one for each"
        raise said.refuse("times", reason, said.instead("times", f"at {times[0]}"))
    return Field(seconds), Field(minutes), Field(hours)


def _chosen(said: ScheduleStatement) -> tuple[Field, Field, Field]:
    """The fields of "at minutes 0 and 30 past hours 1 through 5"."""
    if said.window is not None:
        raise said.refuse("window", "says both from when to when and at which minutes")
    if said.minute is None:
        raise said.refuse("second", "does not say of which minutes", f"every minute {said.text}")
    if said.hour is None:
        raise said.refuse("minute", "does not say past which hours", f"every hour {said.text}")
    return said.second or _ZERO, said.minute, said.hour


def _rhythm(said: ScheduleStatement, period: Fraction) -> tuple[Field, Field, Field]:
    kind, count = _even(period) or (SECOND, 1)
    finer = {"hour": ("minute", "second"), "minute": ("second",), "second": ()}[kind.name]
    for slot in ("hour", "minute", "second"):
        if slot in said.places and slot not in finer:
            reason = f'has "{_quoted(said, slot)}" beside "{_quoted(said, "period")}"; only one can hold'
            raise said.refuse(slot, reason)
    if said.span is not None and said.span != ("day", 1):
        raise said.refuse("span", f'has "{_quoted(said, "span")}" beside "{_quoted(said, "period")}"')
    every = Field(frozenset(range(0, kind.high + 1, count)), starred=True)
    if said.window is not None:
        return _within(said, kind, count, said.window)
    second, minute = said.second or _ZERO, said.minute or _ZERO
    if kind is HOUR:
        return second, minute, every
    return (second, every, _EVERY_HOUR) if kind is MINUTE else (every, _EVERY_MINUTE, _EVERY_HOUR)


def _within(
    said: ScheduleStatement, kind: FieldKind, count: int, window: tuple[Time, Time]
) -> tuple[Field, Field, Field]:
    """The fields of a rhythm that begins and ends each day."""
    start, end = window
    if start >= end:
        last = Time(23, start.minute) if kind is HOUR else Time(23, 59, 59 if kind is SECOND else 0)
        reason = "has a window that passes midnight; make one schedule for each side"
        raise said.refuse("window", reason, said.instead("window", f"from {start} to {last}"))
    if kind is HOUR:
        if said.minute or said.second:
            raise said.refuse("window", "says both from when to when and at which minutes")
        return _hours_within(count, start, end)
    _check_edges(said, kind, count, window)
    hours = Field(frozenset(range(start.hour, end.hour + 1)))
    every = Field(frozenset(range(0, kind.high + 1, count)), starred=True)
    return (said.second or _ZERO, every, hours) if kind is MINUTE else (every, _EVERY_MINUTE, hours)


def _hours_within(count: int, start: Time, end: Time) -> tuple[Field, Field, Field]:
    hours = (hour for hour in range(start.hour, end.hour + 1, count) if (hour, start.minute, start.second) <= end)
    return Field(frozenset({start.second})), Field(frozenset({start.minute})), Field(frozenset(hours))


def _check_edges(said: ScheduleStatement, kind: FieldKind, count: int, window: tuple[Time, Time]) -> None:
    """Refuse a window that begins or ends within an hour, or whose last moment is unclear."""
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
    raise said.refuse("window", reason, said.instead("window", f"from {Time(min(start.hour, last.hour), 0)} to {last}"))


def _by_elapsed_time(said: ScheduleStatement, clock: tuple[Field, Field, Field]) -> tuple[Field, Field, Field]:
    """The same times, written so that cron follows elapsed time through clock changes."""
    if not said.elapsed or any(field.starred for field in clock):
        return clock
    for place in (2, 1, 0):
        if 0 in clock[place].values:
            starred = [*clock]
            starred[place] = Field(clock[place].values, starred=True)
            return starred[0], starred[1], starred[2]
    raise said.refuse("elapsed", 'has "by elapsed time", which cron can only say of times that include a 0')


# ---- days ----------------------------------------------------------------------------------------


def _days(said: ScheduleStatement) -> tuple[Field, frozenset[int] | None, Field]:
    day, weekday, months = said.day, said.weekday, said.months
    if said.span is not None:
        _check_span(said)
        if said.span.unit == "week":
            weekday = weekday or _ZERO
        elif said.span.unit != "day":
            day = day or (Field(frozenset({1})) if weekday is None else None)
            months = months or _months_apart(said)
    if day is None or weekday is None:
        return day or _EVERY_DAY, months, weekday or _EVERY_WEEKDAY
    if said.either is None:
        raise _unjoined(said)
    if not said.either:
        day, weekday = _both(said, day, weekday)
    return day, months, weekday


def _check_span(said: ScheduleStatement) -> None:
    unit, count = said.span or ("day", 1)
    if unit == "day" and (said.day or said.weekday):
        raise said.refuse("span", "says every day and also which days")
    if unit == "week" and said.day:
        raise said.refuse("span", "says every week and also days of the month")
    if unit in ("month", "year") and said.weekday and not said.day and not said.weekday.tokens:
        name = WEEKDAYS[min(said.weekday.values)]
        reason = f"does not say which {name} of the month"
        raise said.refuse("weekday", reason, said.instead("weekday", f"the first {name} of the month"))
    if unit == "month" and count > 1 and said.months:
        raise said.refuse("months", "says which months twice")
    if unit == "year" and not said.months and (said.day or said.weekday):
        raise said.refuse("span", "does not say in which month", f"{said.text} in January")
    if (unit == "year" and count > 1) or (unit == "month" and (12 % count if count <= 12 else count % 12)):
        reason = f'has "{_quoted(said, "span")}", which cron cannot count across years'
        # Nothing near can be said of years.
        near = [said.instead("span", "every 6 months")] if unit == "month" else []
        raise SentenceRefusal(reason, said.places["span"], *near)


def _months_apart(said: ScheduleStatement) -> frozenset[int] | None:
    unit, count = said.span or ("month", 1)
    return frozenset(range(1, 13, 12 if unit == "year" else count))


def _unjoined(said: ScheduleStatement) -> SentenceRefusal:
    reason = 'has both days of the month and weekdays: say "or" if either suffices'
    instead = []
    if said.day and said.weekday and said.places.keys() <= {"day", "weekday", "times", "zone", "span"}:
        times = f" at {joined([str(time) for time in said.times])}" if said.times else ""
        zone = f" in {said.zone}" if said.zone else ""
        instead.append(f"{either_in_words(said.day, said.weekday)}{times}{zone}")
    return SentenceRefusal(reason, said.places["weekday"], *instead)


def _both(said: ScheduleStatement, day: Field, weekday: Field) -> tuple[Field, Field]:
    """The two fields written so that cron wants both: one of them must begin with a star."""
    if 1 in day.values:
        return Field(day.values, starred=True, tokens=day.tokens), weekday
    if 0 in weekday.values:
        return day, Field(weekday.values, starred=True, tokens=weekday.tokens)
    reason = "wants days of the month and weekdays at once, which cron can only say from the 1st or of Sundays"
    raise SentenceRefusal(reason, said.places["weekday"])


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
