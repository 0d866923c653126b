"""Instants as whole numbers since 1970 in UTC: seconds for calendar arithmetic, milliseconds in the ledger.

Also the detection of steps of the wall clock: the clock was set, or the machine slept, if the wall clock and the
monotonic clock disagree about the elapsed time.
"""

from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from gnomon.errors import UsageError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY_SECONDS = 86_400

#: The first and the last second that a `datetime` can represent.
FIRST_SECOND = int((datetime.min.replace(tzinfo=UTC) - EPOCH).total_seconds())
LAST_SECOND = int((datetime.max.replace(tzinfo=UTC, microsecond=0) - EPOCH).total_seconds())
#: Later than any instant, in milliseconds.
FOREVER = 1 << 62


def second_of(instant: datetime) -> int:
    """The second in which `instant` lies."""
    try:
        since = instant - EPOCH
    except TypeError:
        raise naive_instant_error(instant) from None
    return since.days * DAY_SECONDS + since.seconds


class _Midnights(dict[int, datetime]):
    """A cache from the day since 1970 to the instant it begins. It is cleared when it gets large."""

    def __missing__(self, day: int) -> datetime:
        if len(self) >= 4096:
            self.clear()
        midnight = self[day] = EPOCH + timedelta(day)
        return midnight


_MIDNIGHTS = _Midnights()
_MINUTES = tuple(timedelta(minutes=minute) for minute in range(1440))
_SECONDS = tuple(timedelta(seconds=second) for second in range(60))


def instant_at(second: int) -> datetime | None:
    """The instant at the beginning of `second`; None if the calendar does not reach that far.

    Adding cached values takes a third of the time of `datetime.fromtimestamp`.
    """
    day = second // DAY_SECONDS
    second -= day * DAY_SECONDS
    minute = second // 60
    try:
        instant = _MIDNIGHTS[day] + _MINUTES[minute]
    except OverflowError:
        return None
    second -= minute * 60
    return instant + _SECONDS[second] if second else instant


def ms_of(instant: datetime) -> int:
    """The millisecond in which `instant` lies."""
    try:
        since = instant - EPOCH
    except TypeError:
        raise naive_instant_error(instant) from None
    return (since.days * DAY_SECONDS + since.seconds) * 1000 + since.microseconds // 1000


def instant_of(ms: int) -> datetime:
    """The instant at the beginning of a millisecond; outside the calendar, its nearest end."""
    second, rest = divmod(ms, 1000)
    instant = instant_at(second)
    if instant is None:
        return datetime.max.replace(tzinfo=UTC) if ms > 0 else datetime.min.replace(tzinfo=UTC)
    return instant + timedelta(milliseconds=rest) if rest else instant


def in_zone(instant: datetime, zone: str) -> datetime:
    """The instant in the zone; unchanged if its local time lies outside the calendar."""
    try:
        return instant.astimezone(ZoneInfo(zone))
    except OverflowError:
        return instant


def naive_instant_error(instant: object) -> Exception:
    """The error for a value that is not an aware datetime."""
    if isinstance(instant, datetime):
        return UsageError(f"instant {instant.isoformat()} has no time zone: add one, such as tzinfo=UTC")
    return TypeError(f"an instant must be an aware datetime, not {type(instant).__name__}")


# ---- steps of the wall clock ---------------------------------------------------------------------

#: Less than this is ordinary drift and rounding.
CLOCK_STEP_TOLERANCE_MS = 2000


class ClockReading(NamedTuple):
    """The wall clock and the monotonic clock at one moment."""

    wall_ms: int
    elapsed: float


def clock_step_ms(before: ClockReading, after: ClockReading) -> int:
    """By how many milliseconds the wall clock moved beyond the elapsed time; 0 if within the tolerance."""
    moved = after.wall_ms - before.wall_ms - round((after.elapsed - before.elapsed) * 1000)
    return moved if abs(moved) > CLOCK_STEP_TOLERANCE_MS else 0
