"""The cron trigger: an expression in a time zone, its next and previous fire, and its canonical spelling.

Times are searched in wall time, one span of constant UTC offset at a time (`Zone.span_at`). Wall times that a
clock change skips or repeats are handled where two spans meet, as `Dst` says.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from gnomon.core.cron import dialect_posix, dialect_standard
from gnomon.core.cron.calendar import NEVER, FireTimeFinder, count_wall_times, day_rule, fire_time_finder
from gnomon.core.cron.dst import Dst, check_dst
from gnomon.core.cron.fields import (
    DAY,
    HOUR,
    MINUTE,
    MONTH,
    ON_THE_MINUTE,
    SECOND,
    WEEKDAY,
    CronParseError,
    Field,
    FieldKind,
    Fields,
    format_values,
)
from gnomon.core.instants import DAY_SECONDS, EPOCH, instant_at, naive_instant_error, second_of
from gnomon.core.timezones import OffsetSpan, Zone, nearest_zone, zone
from gnomon.errors import CronError, Position

Dialect = Literal["standard", "posix"]
_AS_DEBIAN = Dst()
_PARSERS = {"standard": dialect_standard.parse, "posix": dialect_posix.parse}
#: Lists in POSIX expressions name every value, so they may be long.
_LONGEST = {"standard": 1000, "posix": 10_000}
_MAX_CORRECTIONS = 6
#: The calendar repeats after 400 years: an expression that did not fire in that time never will.
_CYCLE = 146_097 * DAY_SECONDS
#: Twice the largest change a clock has ever seen.
_MARGIN = 2 * DAY_SECONDS


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron expression in a time zone. Immutable; it keeps no position.

    Two are equal if their texts are equal. Compare `canonical` to find out whether they mean the same.
    """

    expression: str
    timezone: str = "UTC"
    dialect: Dialect = "standard"
    dst: Dst = _AS_DEBIAN

    fields: Fields = field(init=False, repr=False, compare=False)
    _zone: Zone = field(init=False, repr=False, compare=False)
    _ahead: FireTimeFinder = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        parsed = _parsed(self.expression, self.dialect)
        check_dst(self.dst)
        object.__setattr__(self, "fields", parsed)
        object.__setattr__(self, "_zone", known_zone(self.timezone))
        object.__setattr__(self, "_ahead", fire_time_finder(parsed, mirrored=False))

    def __reduce__(self) -> tuple[object, ...]:
        return (Cron, (self.expression, self.timezone, self.dialect, self.dst))

    @property
    def canonical(self) -> str:
        """The same schedule in one agreed spelling: numbers only, sorted, macros written out."""
        return canonical(self.fields)

    def describe(self) -> str:
        """One English sentence, which `parse_schedule` reads back."""
        from gnomon.core.english import describe

        sentence = describe(self.fields)
        return sentence if self.timezone == "UTC" else f"{sentence} in {self.timezone}"

    def next_after(self, instant: datetime) -> datetime | None:
        """The first fire after `instant`, in UTC; None if no more will come."""
        try:
            since = instant - EPOCH
        except TypeError:
            raise naive_instant_error(instant) from None
        day = since.days
        span = self._zone.recent
        if span.first_day <= day <= span.last_day:
            offset = span.offset
            found = self._ahead.first_from(day, since.seconds + offset + 1) - offset
            if found < span.end:
                return instant_at(found)
        return instant_at(self._first_after(day * DAY_SECONDS + since.seconds))

    def previous_before(self, instant: datetime) -> datetime | None:
        """The last fire before `instant`, in UTC; None if there was none."""
        second = second_of(instant)
        # A UTC offset may have microseconds too, so `instant.microsecond` alone does not tell.
        if (instant - EPOCH).microseconds:
            second += 1
        return instant_at(self._last_before(second))

    def matches(self, instant: datetime) -> bool:
        """Whether a fire lies in the minute of `instant`; in its second, where seconds are named."""
        second = second_of(instant)
        if self.fields.second == ON_THE_MINUTE:
            second -= (second + self._zone.span_at(second).offset) % 60
        return self._first_after(second - 1) == second

    def count(self, *, after: datetime, until: datetime) -> int:
        """How many fires lie after `after` and up to `until`, computed without enumerating them."""
        start, end = second_of(after) + 1, second_of(until) + 1
        total = 0
        while start < end:
            span = self._zone.span_at(start)
            stop = min(end, span.end)
            total += self._count_in(span, start, stop)
            start = stop
        return total

    def _count_in(self, span: OffsetSpan, start: int, end: int) -> int:
        begin = max(start, span.start + span.repeated) if self._once else start
        count = count_wall_times(self.fields, begin + span.offset, end + span.offset)
        made_up = start <= span.resumes < end and self._makes_up_for(span)
        # A fire due in the same minute in which skipped times fire counts once.
        return count + (made_up and self._ahead.first_from(0, span.resumes + span.offset) != span.resumes + span.offset)

    def _first_after(self, second: int) -> int:
        """The first fire after `second`, or NEVER."""
        start, limit = second + 1, second + _CYCLE
        while start <= limit:
            span = self._zone.span_at(start)
            found = self._first_in(span, start)
            if found < span.end:
                return found
            # After a span that was searched from its beginning no wall time repeats, so the next fire is not
            # before the wall time found, give or take the largest change of a clock.
            start = max(span.end, found - _MARGIN) if start <= span.settled else span.end
        return NEVER

    def _first_in(self, span: OffsetSpan, start: int) -> int:
        """The first fire of the span from `start` on; if there is none, a second past its end."""
        begin = max(start, span.start + span.repeated) if self._once else start
        found = self._ahead.first_from(0, begin + span.offset) - span.offset
        if start <= span.resumes < found and self._makes_up_for(span):
            return span.resumes
        return found

    def _last_before(self, second: int) -> int:
        """The last fire before `second`, or -NEVER."""
        end, limit = second, second - _CYCLE
        while end >= limit:
            span = self._zone.span_at(end - 1)
            found = self._last_in(span, end)
            if found >= span.start:
                return found
            end = min(span.start, found + _MARGIN) if end >= span.settled else span.start
        return -NEVER

    def _last_in(self, span: OffsetSpan, end: int) -> int:
        """The last fire of the span before `end`; if there is none, a second before its start."""
        backwards = fire_time_finder(self.fields, mirrored=True)
        found = ~backwards.first_from(0, ~(end - 1 + span.offset)) - span.offset
        if self._once and found < span.start + span.repeated:
            found = min(found, span.start - 1)
        if found < span.resumes < end and self._makes_up_for(span):
            return span.resumes
        return found

    def _makes_up_for(self, span: OffsetSpan) -> bool:
        """Whether a skipped wall time before this span must fire at the beginning of the span."""
        if not span.skipped or not self.fields.fixed or self.dst.gap == "skip":
            return False
        reopens = span.start + span.offset
        return self._ahead.first_from(0, reopens - span.skipped) < reopens

    @property
    def _once(self) -> bool:
        return self.dst.fold == "first" and self.fields.fixed


def _parsed(expression: str, dialect: str) -> Fields:
    if not isinstance(expression, str):
        raise CronError(repr(expression), field="expression", reason="must be a text")
    if not isinstance(dialect, str) or dialect not in _PARSERS:
        raise CronError(str(dialect), field="dialect", reason=f"must be {' or '.join(_PARSERS)}")
    if len(expression) > _LONGEST[dialect]:
        reason = f"has {len(expression)} characters; {_LONGEST[dialect]} are enough for any schedule"
        raise CronError(expression, field="expression", reason=reason)
    try:
        fields = _PARSERS[dialect](expression)
    except CronParseError as error:
        raise _error(expression, dialect, error) from None
    if not day_rule(fields).fires_at_all():
        raise CronError(expression, field="expression", reason="never fires: no such day exists in its months")
    return fields


def _error(expression: str, dialect: str, error: CronParseError) -> CronError:
    place = Position(error.start, error.start + len(error.text))
    near = _suggestion(expression, dialect, error)
    return CronError(expression, field=error.field, reason=error.reason, position=place, suggestion=near)


def _suggestion(expression: str, dialect: str, error: CronParseError | None) -> str | None:
    """The expression with every error corrected, if the result can be read and fires."""
    for _ in range(_MAX_CORRECTIONS):
        if error is None or error.instead is None:
            break
        end = error.start + len(error.text)
        expression, error = expression[: error.start] + error.instead + expression[end:], None
        try:
            fields = _PARSERS[dialect](expression)
        except CronParseError as another:
            error = another
        else:
            return expression if day_rule(fields).fires_at_all() else None
    return None


def known_zone(name: str) -> Zone:
    """The zone of that name; raise CronError, which suggests a similar name."""
    found = zone(name) if isinstance(name, str) else None
    if found is None:
        near = nearest_zone(name) if isinstance(name, str) else None
        raise CronError(str(name), field="timezone", reason="is not an IANA time zone", suggestion=near)
    return found


# ---- canonical spelling --------------------------------------------------------------------------

_STEPS = range(2, 60)


def canonical(fields: Fields) -> str:
    """The expression in numbers, sorted, with stars where they mean something."""
    words = [
        _word(MINUTE, fields.minute),
        _word(HOUR, fields.hour),
        _word(DAY, fields.day),
        _word(MONTH, fields.month),
        _word(WEEKDAY, fields.weekday),
    ]
    if fields.second != ON_THE_MINUTE:
        words.insert(0, _word(SECOND, fields.second))
    return " ".join(words)


def _word(kind: FieldKind, field: Field) -> str:
    if not field.starred:
        parts = [format_values(field.values), *sorted(field.tokens)]
        return ",".join(part for part in parts if part)
    return ",".join([*_starred(kind, field.values), *sorted(field.tokens)])


def _starred(kind: FieldKind, values: frozenset[int]) -> list[str]:
    """The values with a star in front: the densest step among them, then the rest."""
    everything = _stepped(kind, 1)
    if values == everything:
        return ["*"]
    step = next(step for step in _STEPS if _stepped(kind, step) <= values)
    rest = format_values(values - _stepped(kind, step))
    return [f"*/{step}", rest] if rest else [f"*/{step}"]


def _stepped(kind: FieldKind, step: int) -> frozenset[int]:
    values = range(kind.low, kind.high + 1, step)
    return frozenset(value % 7 for value in values) if kind is WEEKDAY else frozenset(values)
