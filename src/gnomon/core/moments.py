"""A moment as people name it: `2026-03-29T02:30`, `yesterday 14:30`, `mon 02:00`, `02:00`.

What names no zone is meant on the clocks of a zone that is given. Such a time can come twice, when clocks are put back,
and then there are two moments; or never, when they are put forward.
"""

import re
from collections.abc import Callable
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from msgspec import Struct

from gnomon.core.instants import FIRST_SECOND, LAST_SECOND, instant_of, ms_of, second_of
from gnomon.core.model import MINUTE_MS, SECOND_MS
from gnomon.core.zones import zone
from gnomon.errors import FieldError

_DAYS = "monday tuesday wednesday thursday friday saturday sunday".split()
_SHAPE = re.compile(
    r"(?:(?P<day>[a-z]+|\d{4}-\d{2}-\d{2})(?:\s+|t))?"
    r"(?P<time>\d{1,2}:\d{2}(?P<second>:\d{2}(?P<fraction>\.\d{1,6})?)?)(?P<offset>\s*(?:z|utc|[+-]\d{2}:?\d{2}))?",
    re.IGNORECASE,
)
_EXAMPLES = 'is no moment such as 2026-03-29T02:30, "yesterday 14:30", "mon 02:00" or 02:00'


class Moment(Struct, frozen=True):
    """A moment as exactly as it was named: a minute, a second or a millisecond, its last millisecond included."""

    first_at: int
    last_at: int
    #: The wall time that was named, if clocks skipped it; the moment is then the one at which they did.
    skipped: str | None = None


def exactly(at: int) -> Moment:
    """The moment of one millisecond."""
    return Moment(at, at)


def read_moments(text: str, timezone: str, *, now: int) -> tuple[Moment, ...]:
    """The moment that the text names, seen from now; both of them, if its time comes twice that day."""
    said = text.strip()
    if said.lower() == "now":
        return (exactly(now),)
    shape = _SHAPE.fullmatch(said)
    if shape is None:
        raise _refused(text, _EXAMPLES)
    try:
        return _placed(shape, timezone, now)
    except (ValueError, OverflowError) as error:
        raise _refused(text, "lies outside the calendar" if isinstance(error, OverflowError) else _EXAMPLES) from None


def _placed(shape: re.Match[str], timezone: str, now: int) -> tuple[Moment, ...]:
    clock = datetime.strptime(shape["time"], _clock_shape(shape)).time()  # noqa: DTZ007 - a time of day has no zone
    length = 1 if shape["fraction"] else SECOND_MS if shape["second"] else MINUTE_MS

    def on(day: date) -> tuple[Moment, ...]:
        return _on_the_clocks(datetime.combine(day, clock), timezone, length)

    said = (shape["day"] or "").lower()
    if shape["offset"]:
        if not said[:1].isdigit():
            raise ValueError(said)
        offset = shape["offset"].strip().replace("utc", "Z").replace("UTC", "Z")
        return (_lasting(ms_of(datetime.fromisoformat(f"{said}T{clock.isoformat()}{offset}")), length),)
    if said[:1].isdigit():
        return on(date.fromisoformat(said))
    return _on_a_day(said, instant_of(now).astimezone(ZoneInfo(timezone)).date(), on, now)


def _clock_shape(shape: re.Match[str]) -> str:
    return "%H:%M" + (":%S" if shape["second"] else "") + (".%f" if shape["fraction"] else "")


def _on_a_day(said: str, today: date, on: Callable[[date], tuple[Moment, ...]], now: int) -> tuple[Moment, ...]:
    """On a day that is named from here: a weekday, or none, is the last one on which the time was not yet to come."""
    named = {"today": 0, "yesterday": -1, "tomorrow": 1}
    if said in named:
        return on(today + timedelta(named[said]))
    back = 0
    if said:
        [weekday] = [number for number, name in enumerate(_DAYS) if said in (name, name[:3])]
        back = (today.weekday() - weekday) % 7
    found = on(today - timedelta(back))
    return found if found[0].first_at <= now else on(today - timedelta(back + (7 if said else 1)))


def _on_the_clocks(wall: datetime, timezone: str, length: int) -> tuple[Moment, ...]:
    rules = ZoneInfo(timezone)
    first, second = (ms_of(wall.replace(tzinfo=rules, fold=fold)) for fold in (0, 1))
    if first < second:
        return _lasting(first, length), _lasting(second, length)
    if first == second:
        return (_lasting(first, length),)
    known = zone(timezone)
    assert known is not None  # noqa: S101 - a schedule goes by it
    changed_at = known.span_at(second_of(instant_of(first))).start * SECOND_MS
    return (Moment(changed_at, changed_at, f"{wall:%H:%M}" if length == MINUTE_MS else f"{wall:%H:%M:%S}"),)


def _lasting(at: int, length: int) -> Moment:
    if not FIRST_SECOND <= at // SECOND_MS <= LAST_SECOND:
        raise OverflowError
    return Moment(at, at + length - 1)


def _refused(text: str, reason: str) -> FieldError:
    return FieldError("at", text, reason)
