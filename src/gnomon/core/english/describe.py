"""Cron fields described in English that `parse_sentence` reads back as the same schedule.

Common shapes have a sentence of their own; every other expression gets one built field by field. Two properties
must survive that the numbers do not show. An expression follows elapsed time through clock changes if its
second, minute or hour begins with a star: "every 15 minutes" and "past every 5th hour" express that, lists and
times of day do not, and "by elapsed time" is added where no other words can. Days of the month and weekdays
are joined with "or", or with "if it is" where a star makes cron require both.
"""

from collections.abc import Callable, Iterable
from itertools import product

from gnomon.core.cron.fields import DAY, HOUR, MINUTE, MONTH, SECOND, WEEKDAY, Field, FieldKind, Fields, format_ranges
from gnomon.core.english.vocabulary import MONTH_LENGTHS, MONTHS, ORDINALS, WEEKDAYS, joined, ordinal

_MAX_TIMES = 12
_WORKDAYS = frozenset({1, 2, 3, 4, 5})
_WEEKEND = frozenset({0, 6})


def describe(fields: Fields) -> str:
    """One sentence, without a time zone: "every weekday at 09:00"."""
    day, weekday = _restrictions(fields)
    times = _times(fields)
    if times and not (day and weekday):
        days = _leading_days(day, weekday, fields.month)
        return f"{days} at {times}"
    clock = f"at {times}" if times else _rhythm(fields) or _general(fields)
    return " ".join(part for part in (clock, _trailing_days(fields, day, weekday, clock)) if part)


def _restrictions(fields: Fields) -> tuple[Field | None, Field | None]:
    """The day fields that restrict anything."""
    day = None if fields.day.full(DAY) else fields.day
    weekday = None if fields.weekday.full(WEEKDAY) else fields.weekday
    if fields.either_day and not (day and weekday):
        # Either field suffices, and one of them matches every day.
        return None, None
    return day, weekday


# ---- times of day --------------------------------------------------------------------------------


def _times(fields: Fields) -> str | None:
    """The times of day, if they are few and the clock's times are meant."""
    hours, minutes, seconds = (sorted(field.values) for field in (fields.hour, fields.minute, fields.second))
    count = len(hours) * len(minutes) * len(seconds)
    if not fields.fixed or not 0 < count <= _MAX_TIMES or _hours_in_a_row(fields):
        return None
    return joined([_time(*time) for time in product(hours, minutes, seconds)])


def _time(hour: int, minute: int, second: int = 0) -> str:
    return f"{hour:02}:{minute:02}" + (f":{second:02}" if second else "")


def _hours_in_a_row(fields: Fields) -> int | None:
    """The distance between the hours, if they say "every 2 hours from 09:00 to 17:00"."""
    hours = sorted(fields.hour.values)
    if len(fields.minute.values) != 1 or len(fields.second.values) != 1 or len(hours) < 4 or not fields.fixed:
        return None
    step = hours[1] - hours[0]
    even = 24 % step == 0 and hours == list(range(hours[0], hours[-1] + 1, step))
    return step if even else None


def _rhythm(fields: Fields) -> str | None:
    """A sentence such as "every 15 minutes", with its window, if the fields repeat evenly."""
    hours, minutes = sorted(fields.hour.values), sorted(fields.minute.values)
    step = _hours_in_a_row(fields)
    if step:
        ends = [_time(hour, minutes[0], min(fields.second.values)) for hour in (hours[0], hours[-1])]
        return f"every {_counted(step, 'hour')} from {ends[0]} to {ends[1]}"
    if fields.fixed:
        return None
    if fields.second.values == {0}:
        return _rhythm_of_hours(fields) or _rhythm_of_minutes(fields)
    if len(fields.second.values) == 1:
        rhythm = _rhythm_of_minutes(fields)
        return rhythm and f"{rhythm} at second {min(fields.second.values)}"
    seconds = _beat(SECOND, fields.second)
    if seconds and fields.minute.full(MINUTE):
        return _windowed(f"every {_counted(seconds, 'second')}", hours, ":59:59")
    return None


def _rhythm_of_hours(fields: Fields) -> str | None:
    step, minutes = _beat(HOUR, fields.hour), sorted(fields.minute.values)
    if not step or len(minutes) != 1:
        return None
    return f"every {_counted(step, 'hour')}" + (f" at minute {minutes[0]}" if minutes[0] else "")


def _rhythm_of_minutes(fields: Fields) -> str | None:
    step = _beat(MINUTE, fields.minute)
    return _windowed(f"every {_counted(step, 'minute')}", sorted(fields.hour.values), ":59") if step else None


def _beat(kind: FieldKind, field: Field) -> int | None:
    """The distance between values that continue evenly from one hour or day to the next."""
    size, count = kind.high + 1, len(field.values)
    step = size // count if count else 0
    return step if step and step < size and field.values == set(range(0, size, step)) else None


def _windowed(rhythm: str, hours: list[int], end: str) -> str | None:
    if len(hours) == 24:
        return rhythm
    if hours and hours == list(range(hours[0], hours[-1] + 1)):
        return f"{rhythm} from {hours[0]:02}:00 to {hours[-1]:02}{end}"
    return None


def _counted(count: int, unit: str) -> str:
    return unit if count == 1 else f"{count} {unit}s"


# ---- any times at all ----------------------------------------------------------------------------


def _general(fields: Fields) -> str:
    """The clock field by field: "at second 30 of every minute past hours 1 through 5"."""
    named = ((SECOND, fields.second), (MINUTE, fields.minute), (HOUR, fields.hour))
    elapsed = not fields.fixed
    second, minute, hour = (_chosen(kind, field, elapsed=elapsed) for kind, field in named)
    follows = not elapsed or any("every" in words for words in (second, minute, hour))
    of_seconds = "" if fields.second.values == {0} else f"{second} of "
    return f"at {of_seconds}{minute} past {hour}" + ("" if follows else " by elapsed time")


def _chosen(kind: FieldKind, field: Field, *, elapsed: bool) -> str:
    values = sorted(field.values)
    step = values[1] - values[0] if len(values) > 1 else 0
    if elapsed and step and values == list(range(kind.low, kind.high + 1, step)):
        return f"every {kind.name}" if step == 1 else f"every {ordinal(step)} {kind.name}"
    plural = "s" if len(values) != 1 else ""
    return f"{kind.name}{plural} {joined(_ranges(values, str))}"


def _ranges(values: Iterable[int], name: Callable[[int], str]) -> list[str]:
    return format_ranges(values, name, " through ")


# ---- days ----------------------------------------------------------------------------------------


def _leading_days(day: Field | None, weekday: Field | None, month: Field) -> str:
    """The days before a time: "every Monday in January"."""
    if day:
        return f"on {_dates(day, month)}"
    if not weekday:
        return f"every day{_months(month)}"
    if weekday.values == _WORKDAYS and not weekday.tokens:
        return f"every weekday{_months(month)}"
    plain = not weekday.tokens and weekday.values != _WEEKEND
    return f"{'every' if plain else 'on'} {_weekdays(weekday)}{_months(month)}"


def weekdays_in_words(values: frozenset[int]) -> str:
    """Some weekdays as the beginning of a sentence: "every Monday through Thursday"."""
    return _leading_days(None, Field(values), Field(frozenset(range(1, 13))))


def either_in_words(day: Field, weekday: Field) -> str:
    """Days of the month or weekdays: "on the 13th of the month or on Friday"."""
    return f"on {_month_days(day)} of the month or on {_weekdays(weekday)}"


def _trailing_days(fields: Fields, day: Field | None, weekday: Field | None, clock: str) -> str:
    """The days after a clock: "on weekdays in January"; nothing if every day needs no mention."""
    if day and weekday:
        both = f"on {_month_days(day)} of the month if it is {_condition(weekday)}"
        return f"{either_in_words(day, weekday) if fields.either_day else both}{_months(fields.month)}"
    if day:
        return f"on {_dates(day, fields.month)}"
    if weekday:
        return f"on {_weekdays(weekday)}{_months(fields.month)}"
    mention = "every day" if " from " in clock else ""
    return f"{mention}{_months(fields.month)}".strip()


def _dates(day: Field, month: Field) -> str:
    """Days of certain months: "the 1st and 15th of the month", "29 February", "the last day of July"."""
    if month.full(MONTH):
        return f"{_month_days(day)} of the month"
    days, months = sorted(day.values), sorted(month.values)
    possible = day.tokens or min(days, default=1) <= max(MONTH_LENGTHS[value - 1] for value in months)
    if not possible:
        # `parse_sentence` refuses a date that never comes, such as "30 February".
        return f"{_month_days(day)} of the month{_months(month)}"
    if len(days) == len(months) == 1 and not day.tokens:
        return f"{days[0]} {MONTHS[months[0] - 1]}"
    return f"{_month_days(day)} of {_month_names(month)}"


def _month_days(day: Field) -> str:
    last = [words for token, words in (("LW", "last weekday"), ("L", "last day")) if token in day.tokens]
    return f"the {joined([*_ranges(sorted(day.values), ordinal), *last])}"


def _weekdays(weekday: Field, last: str = "and") -> str:
    """Weekdays, Monday first: "Monday and Friday", "weekends", "Sunday and the last Friday of the month"."""
    if not weekday.tokens and weekday.values in (_WORKDAYS, _WEEKEND):
        return "weekdays" if weekday.values == _WORKDAYS else "weekends"
    from_monday = [(value - 1) % 7 for value in weekday.values]
    plain = _ranges(from_monday, lambda value: WEEKDAYS[(value + 1) % 7])
    counted = [_counted_weekday(value, weekday.tokens) for value in (1, 2, 3, 4, 5, 6, 0)]
    parts = [*plain, *(words for words in counted if words)]
    return joined(parts, last) + (" of the month" if weekday.tokens else "")


def _condition(weekday: Field) -> str:
    """Weekdays as a condition: "a weekday", "a Monday or Friday", "the last Friday of the month"."""
    words = _weekdays(weekday, last="or")
    return words if words.startswith("the ") else f"a {words.removesuffix('s')}"


def _counted_weekday(weekday: int, tokens: frozenset[str]) -> str:
    """For instance "the first and last Monday"; empty if no token counts that weekday."""
    which = [name for number, name in enumerate(ORDINALS, 1) if f"{weekday}#{number}" in tokens]
    which += ["last"] if f"{weekday}L" in tokens else []
    return f"the {joined(which)} {WEEKDAYS[weekday]}" if which else ""


def _months(month: Field) -> str:
    return "" if month.full(MONTH) else f" in {_month_names(month)}"


def _month_names(month: Field) -> str:
    return joined(_ranges(sorted(month.values), lambda value: MONTHS[value - 1]))
