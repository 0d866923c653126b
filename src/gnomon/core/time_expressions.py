"""Times as people write them: moments (`2026-03-29T02:30`, `yesterday 14:30`, `mon 02:00`) and simulated outages.

A time without an offset is a wall time of the given zone. Such a time can come twice, when clocks are put back, and
then there are two moments; or never, when they are put forward.

An outage (`mon 02:00-04:00`) is a range of time in which a simulated scheduler does not run.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from msgspec import Struct

from gnomon.core.cron import known_zone
from gnomon.core.durations import duration_ms
from gnomon.core.instants import FIRST_SECOND, LAST_SECOND, instant_of, ms_of, second_of
from gnomon.core.model import MINUTE_MS, SECOND_MS
from gnomon.core.timezones import zone
from gnomon.errors import FieldError

_WEEKDAYS = tuple("monday tuesday wednesday thursday friday saturday sunday".split())
_SHAPE = re.compile(
    r"(?:(?P<day>[a-z]+|\d{4}-\d{2}-\d{2})(?:\s+|t))?"
    r"(?P<time>\d{1,2}:\d{2}(?P<second>:\d{2}(?P<fraction>\.\d{1,6})?)?)(?P<offset>\s*(?:z|utc|[+-]\d{2}:?\d{2}))?",
    re.IGNORECASE,
)
_EXAMPLES = 'is no moment such as 2026-03-29T02:30, "yesterday 14:30", "mon 02:00" or 02:00'


class TimeRange(Struct, frozen=True):
    """A moment as exact as its text: a minute, a second or a millisecond; the last millisecond is included."""

    first_at: int
    last_at: int
    #: The wall time of the text, if clocks skipped it; the moment is then that of the clock change.
    skipped: str | None = None


def exact_time_range(at: int) -> TimeRange:
    """The moment of one millisecond."""
    return TimeRange(at, at)


def parse_time_ranges(text: str, timezone: str, *, now: int) -> tuple[TimeRange, ...]:
    """The moment that the text names, relative to now; two moments if the wall time comes twice that day."""
    if text.strip().lower() == "now":
        return (exact_time_range(now),)
    shape = _SHAPE.fullmatch(text.strip())
    if shape is None:
        raise _refused(text, _EXAMPLES)
    try:
        return _placed(shape, timezone, now)
    except (ValueError, OverflowError) as error:
        raise _refused(text, "lies outside the calendar" if isinstance(error, OverflowError) else _EXAMPLES) from None


_A_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_BOUND_EXAMPLES = "is no time such as 2026-03-29T02:30, 2026-03-29, yesterday, mon 02:00, or 90m for 90 minutes ago"


def parse_bound(field: str, text: str, timezone: str, *, now: int, ends: bool = False) -> int:
    """The instant from which, or with `ends` before which, entries are wanted.

    It is a time as `parse_time_ranges` reads it, an ISO instant, a duration before now, or a day: from its beginning,
    or up to its end.
    """
    words = text.strip().lower()
    try:
        first = _day_named(words, timezone, now)
        if first is not None:
            day = first + timedelta(days=1) if ends else first
            return _on_the_clocks(datetime.combine(day, time()), timezone, 1)[0].first_at
        if _SPAN.fullmatch(words.removesuffix(" ago")):
            return now - duration_ms(field, words.removesuffix(" ago"))
        if _SHAPE.fullmatch(words) or words == "now":
            return parse_time_ranges(text, timezone, now=now)[0].first_at
        if _MILLISECONDS.fullmatch(words):
            return _on_the_calendar(field, int(words))
        instant = datetime.fromisoformat(text.strip())
        at = ms_of(instant if instant.tzinfo is not None else instant.replace(tzinfo=ZoneInfo(timezone)))
    except (ValueError, OverflowError):
        raise FieldError(field, text, _BOUND_EXAMPLES) from None
    return _on_the_calendar(field, at)


def _on_the_calendar(field: str, at: int) -> int:
    if not FIRST_SECOND <= at // SECOND_MS <= LAST_SECOND:
        raise FieldError(field, at, "lies outside the calendar")
    return at


#: Milliseconds since 1970.
_MILLISECONDS = re.compile(r"\d{10,17}")
#: A duration with a unit; a bare number would look like a date or an instant.
_SPAN = re.compile(r"(?:\d{1,6}(?:ms|[dhms]))+")


def _day_named(words: str, timezone: str, now: int) -> date | None:
    """The day that the words name: a date, today, yesterday, tomorrow, or a weekday, which is the latest one."""
    if _A_DATE.fullmatch(words):
        return date.fromisoformat(words)
    today = instant_of(now).astimezone(ZoneInfo(timezone)).date()
    named = {"today": 0, "yesterday": -1, "tomorrow": 1}
    if words in named:
        return today + timedelta(named[words])
    for number, name in enumerate(_WEEKDAYS):
        if words in (name, name[:3]):
            return today - timedelta((today.weekday() - number) % 7)
    return None


def _placed(shape: re.Match[str], timezone: str, now: int) -> tuple[TimeRange, ...]:
    clock = datetime.strptime(shape["time"], _clock_shape(shape)).time()  # noqa: DTZ007 - a time of day has no zone
    length = 1 if shape["fraction"] else SECOND_MS if shape["second"] else MINUTE_MS

    def on(at: date) -> tuple[TimeRange, ...]:
        return _on_the_clocks(datetime.combine(at, clock), timezone, length)

    day = (shape["day"] or "").lower()
    if shape["offset"]:
        if not day[:1].isdigit():
            raise ValueError(day)
        offset = shape["offset"].strip().replace("utc", "Z").replace("UTC", "Z")
        return (_lasting(ms_of(datetime.fromisoformat(f"{day}T{clock.isoformat()}{offset}")), length),)
    if day[:1].isdigit():
        return on(date.fromisoformat(day))
    return _on_a_day(day, instant_of(now).astimezone(ZoneInfo(timezone)).date(), on, now)


def _clock_shape(shape: re.Match[str]) -> str:
    return "%H:%M" + (":%S" if shape["second"] else "") + (".%f" if shape["fraction"] else "")


def _on_a_day(day: str, today: date, on: Callable[[date], tuple[TimeRange, ...]], now: int) -> tuple[TimeRange, ...]:
    """The moment on a relative day. A weekday, or no day, means the latest one on which the time has passed."""
    named = {"today": 0, "yesterday": -1, "tomorrow": 1}
    if day in named:
        return on(today + timedelta(named[day]))
    back = 0
    if day:
        [weekday] = [number for number, name in enumerate(_WEEKDAYS) if day in (name, name[:3])]
        back = (today.weekday() - weekday) % 7
    found = on(today - timedelta(back))
    return found if found[0].first_at <= now else on(today - timedelta(back + (7 if day else 1)))


def _on_the_clocks(wall: datetime, timezone: str, length: int) -> tuple[TimeRange, ...]:
    rules = ZoneInfo(timezone)
    first, second = (ms_of(wall.replace(tzinfo=rules, fold=fold)) for fold in (0, 1))
    if first < second:
        return _lasting(first, length), _lasting(second, length)
    if first == second:
        return (_lasting(first, length),)
    known = zone(timezone)
    assert known is not None  # noqa: S101 - a schedule uses it
    changed_at = known.span_at(second_of(instant_of(first))).start * SECOND_MS
    return (TimeRange(changed_at, changed_at, f"{wall:%H:%M}" if length == MINUTE_MS else f"{wall:%H:%M:%S}"),)


def _lasting(at: int, length: int) -> TimeRange:
    if not FIRST_SECOND <= at // SECOND_MS <= LAST_SECOND:
        raise OverflowError
    return TimeRange(at, at + length - 1)


def _refused(text: str, reason: str) -> FieldError:
    return FieldError("at", text, reason)


# ---- outages -------------------------------------------------------------------------------------

_SHORT_DAYS = [name[:3] for name in _WEEKDAYS]
_DAY = "|".join(_SHORT_DAYS)
_WEEKLY = re.compile(
    rf"(?:(?P<days>(?:{_DAY})(?:[,-](?:{_DAY}))*)\s+)?(?P<first>\d\d?:\d\d)\s*-\s*(?P<last>\d\d?:\d\d)", re.IGNORECASE
)
_HINT = "is no outage such as mon 02:00-04:00, 23:30-00:30 or 2027-03-28T01:00Z/2027-03-28T05:00Z"


class Outage(Struct, frozen=True, order=True):
    """A range of time in which no tick is decided: `from_at` is included, `until_at` is not."""

    from_at: int
    until_at: int


def outages(texts: Iterable[str], *, zone: str, after: int, until: int, field: str = "outage") -> tuple[Outage, ...]:
    """Every outage between `after` and `until`, in order; adjacent ones are merged. `zone` is that of wall times."""
    known_zone(zone)
    found = [outage for text in texts for outage in _read(field, text.strip(), zone, after, until)]
    clipped = [Outage(max(outage.from_at, after), min(outage.until_at, until)) for outage in found]
    return _joined(sorted(outage for outage in clipped if outage.from_at < outage.until_at))


def _joined(found: Sequence[Outage]) -> tuple[Outage, ...]:
    joined: list[Outage] = []
    for outage in found:
        if joined and outage.from_at <= joined[-1].until_at:
            joined[-1] = Outage(joined[-1].from_at, max(joined[-1].until_at, outage.until_at))
        else:
            joined.append(outage)
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
            # An outage whose end is before its beginning ends on the next day.
            end = _at(day + timedelta(days=ends <= begins), ends, zone)
            found.append(Outage(begin, end))
        day += timedelta(days=1)
    return found


def _weekdays(names: str | None) -> frozenset[int]:
    if names is None:
        return frozenset(range(7))
    found: set[int] = set()
    for part in names.lower().split(","):
        ends = [_SHORT_DAYS.index(name) for name in part.split("-")]
        found |= {day % 7 for day in range(ends[0], ends[-1] + (1 if ends[-1] >= ends[0] else 8))}
    return frozenset(found)


def _wall_time(field: str, text: str, clock: str) -> time:
    try:
        return time.fromisoformat(clock.zfill(5))
    except ValueError:
        raise FieldError(field, text, _HINT) from None


def _at(day: date, at: time, zone: str) -> int:
    return ms_of(datetime.combine(day, at, tzinfo=ZoneInfo(zone)))


def _instant(field: str, text: str, part: str, zone: str) -> int:
    try:
        instant = datetime.fromisoformat(part.strip())
    except ValueError:
        raise FieldError(field, text, _HINT) from None
    return ms_of(instant if instant.tzinfo is not None else instant.replace(tzinfo=ZoneInfo(zone)))
