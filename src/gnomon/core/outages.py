"""Outages that are pretended: stretches of time as people name them, such as `mon 02:00-04:00`."""

import re
from collections.abc import Iterable, Sequence
from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from msgspec import Struct

from gnomon.core.cron import known_zone
from gnomon.core.instants import instant_of, ms_of
from gnomon.errors import FieldError

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY = "|".join(_DAYS)
_WEEKLY = re.compile(
    rf"(?:(?P<days>(?:{_DAY})(?:[,-](?:{_DAY}))*)\s+)?(?P<first>\d\d?:\d\d)\s*-\s*(?P<last>\d\d?:\d\d)", re.IGNORECASE
)
_HINT = "is no outage such as mon 02:00-04:00, 23:30-00:30 or 2027-03-28T01:00Z/2027-03-28T05:00Z"


class Outage(Struct, frozen=True, order=True):
    """A stretch of time in which nothing is decided: `from_at` belongs to it, `until_at` does not."""

    from_at: int
    until_at: int


def outages(said: Iterable[str], *, zone: str, after: int, until: int, field: str = "outage") -> tuple[Outage, ...]:
    """Every outage between `after` and `until`, in order; those that touch are one. Wall times are the zone's."""
    known_zone(zone)
    found = [one for text in said for one in _read(field, text.strip(), zone, after, until)]
    clipped = [Outage(max(one.from_at, after), min(one.until_at, until)) for one in found]
    return _joined(sorted(one for one in clipped if one.from_at < one.until_at))


def _joined(found: Sequence[Outage]) -> tuple[Outage, ...]:
    joined: list[Outage] = []
    for one in found:
        if joined and one.from_at <= joined[-1].until_at:
            joined[-1] = Outage(joined[-1].from_at, max(joined[-1].until_at, one.until_at))
        else:
            joined.append(one)
    return tuple(joined)


def _read(field: str, text: str, zone: str, after: int, until: int) -> list[Outage]:
    first, slash, last = text.partition("/")
    if slash:
        once = Outage(_instant(field, text, first, zone), _instant(field, text, last, zone))
        if once.from_at >= once.until_at:
            raise FieldError(field, text, "ends before it begins")
        return [once]
    weekly = _WEEKLY.fullmatch(text)
    if weekly is None:
        raise FieldError(field, text, _HINT)
    begins, ends = _wall_time(field, text, weekly["first"]), _wall_time(field, text, weekly["last"])
    days = _weekdays(weekly["days"])
    day = instant_of(after).astimezone(ZoneInfo(zone)).date() - timedelta(days=1)
    found: list[Outage] = []
    while (begin := _at(day, begins, zone)) < until:
        if day.weekday() in days:
            # What ends before it begins ends on the next day.
            end = _at(day + timedelta(days=ends <= begins), ends, zone)
            found.append(Outage(begin, end))
        day += timedelta(days=1)
    return found


def _weekdays(said: str | None) -> frozenset[int]:
    if said is None:
        return frozenset(range(7))
    found: set[int] = set()
    for part in said.lower().split(","):
        ends = [_DAYS.index(name) for name in part.split("-")]
        found |= {day % 7 for day in range(ends[0], ends[-1] + (1 if ends[-1] >= ends[0] else 8))}
    return frozenset(found)


def _wall_time(field: str, text: str, said: str) -> time:
    try:
        return time.fromisoformat(said.zfill(5))
    except ValueError:
        raise FieldError(field, text, _HINT) from None


def _at(day: date, at: time, zone: str) -> int:
    return ms_of(datetime.combine(day, at, tzinfo=ZoneInfo(zone)))


def _instant(field: str, text: str, said: str, zone: str) -> int:
    try:
        instant = datetime.fromisoformat(said.strip())
    except ValueError:
        raise FieldError(field, text, _HINT) from None
    return ms_of(instant if instant.tzinfo is not None else instant.replace(tzinfo=ZoneInfo(zone)))
