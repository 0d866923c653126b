"""Strict POSIX cron for the declarative scheduler: parse expressions and find their occurrences.

An occurrence is an instant at which a civil minute begins whose local fields match. A minute that a clock change skips
has no such instant, and a repeated minute has two, so clock changes need no further rule.
"""

import time
from datetime import UTC, datetime
from functools import lru_cache
from zoneinfo import ZoneInfo

from gnomon.core.cron import Cron, known_zone
from gnomon.core.cron.calendar import fire_time_finder
from gnomon.core.cron.fields import Fields
from gnomon.core.instants import DAY_SECONDS, FIRST_SECOND, LAST_SECOND, instant_of, ms_of
from gnomon.core.timezones import Zone
from gnomon.declarative.errors import (
    CronCalculationError,
    FieldParseError,
    InvalidArgumentError,
    InvalidCronExpressionError,
)
from gnomon.errors import CronError

#: The calendar repeats after 400 years: an expression without an occurrence in that time has none.
_CYCLE = 146_097 * DAY_SECONDS
#: Twice the largest clock change in the time zone database.
_MARGIN = 2 * DAY_SECONDS


@lru_cache(maxsize=4096)
def parse(expression: str) -> Fields:
    """The fields of a strict POSIX expression, or InvalidCronExpressionError."""
    try:
        return Cron(expression, dialect="posix").fields
    except CronError as error:
        raise _refusal(error) from _field_refusal(error)


def _refusal(error: CronError) -> InvalidCronExpressionError:
    return InvalidCronExpressionError(error.expression, error.field, error.reason)


def _field_refusal(error: CronError) -> FieldParseError | None:
    """The error of the field that was refused; None if the expression as a whole was."""
    if error.field == "expression" or error.position is None:
        return None
    value = error.expression[error.position.start : error.position.end]
    return FieldParseError(value, error.field, error.reason)


class Occurrences:
    """The occurrences of an expression in a zone. Instants are milliseconds."""

    __slots__ = ("_ahead", "_behind", "_zone", "expression")

    def __init__(self, expression: str, zone: Zone) -> None:
        fields = parse(expression)
        self.expression = expression
        self._ahead = fire_time_finder(fields, mirrored=False)
        self._behind = fire_time_finder(fields, mirrored=True)
        self._zone = zone

    def first_after(self, at: int) -> int | None:
        """The first occurrence later than `at`; None if the calendar ends before it."""
        start = at // 1000 + 1
        limit = min(start + _CYCLE, LAST_SECOND)
        while start <= limit:
            span = self._zone.span_at(start)
            found = self._ahead.first_from(0, start + span.offset) - span.offset
            if found < span.end:
                return found * 1000 if found <= limit else None
            # After a span that was searched from its beginning no wall time is new, so the next occurrence is not
            # before the wall time found, give or take the largest clock change.
            start = max(span.end, found - _MARGIN) if start <= span.settled else span.end
        return None

    def last_until(self, at: int) -> int | None:
        """The last occurrence not later than `at`; None if there was none."""
        end = at // 1000 + 1
        limit = end - _CYCLE
        while end >= limit:
            span = self._zone.span_at(end - 1)
            found = ~self._behind.first_from(0, ~(end - 1 + span.offset)) - span.offset
            if found >= span.start:
                return found * 1000 if found >= FIRST_SECOND else None
            end = min(span.start, found + _MARGIN) if end >= span.settled else span.start
        return None

    def next_after(self, instant: datetime) -> datetime:
        """The first occurrence after `instant`, in UTC, or CronCalculationError."""
        found = self.first_after(ms_of(instant))
        if found is None:
            raise CronCalculationError(self.expression, instant, LookupError("no future occurrence"))
        return instant_of(found)

    def previous_until(self, instant: datetime) -> datetime:
        """The last occurrence not after `instant`, in UTC, or CronCalculationError."""
        found = self.last_until(ms_of(instant))
        if found is None:
            raise CronCalculationError(self.expression, instant, LookupError("no previous occurrence"))
        return instant_of(found)


class HostZone(Zone):
    """The local time of the operating system, from TZ or /etc/localtime, even if the zone has no name."""

    def __init__(self) -> None:
        super().__init__("host", UTC)

    def _offset(self, second: int) -> int:
        # Two days short of the calendar's ends, as in every other zone.
        within = min(max(second, FIRST_SECOND + 2 * DAY_SECONDS), LAST_SECOND - 2 * DAY_SECONDS)
        return time.localtime(within).tm_gmtoff


def zone_of(timezone: str | ZoneInfo | None) -> Zone:
    """The IANA zone of that name, or InvalidArgumentError; without a name, the host's as it is now."""
    if timezone is None:
        return HostZone()
    name = timezone.key if isinstance(timezone, ZoneInfo) else timezone
    if name is None:
        raise InvalidArgumentError("timezone", timezone, "must have a key: make it by name")
    try:
        return known_zone(name)
    except CronError as error:
        hint = f"; did you mean {error.suggestion}?" if error.suggestion else ""
        raise InvalidArgumentError("timezone", timezone, error.reason + hint) from error
