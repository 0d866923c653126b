"""Columns of a calendar against the clocks of the zone, minute by minute."""

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from gnomon.core.instants import ms_of
from gnomon.core.ledger.calendar import MOST_COLUMNS, CellKind, ColumnSpan, cell_kind, columns
from gnomon.core.model import Reason, TickKind, TickStatus
from gnomon.core.timezones import zone
from gnomon.errors import FieldError

MINUTE = timedelta(minutes=1)
#: Zones with the day of a clock change, or without one.
DAYS = [
    ("Europe/Berlin", date(2026, 3, 29)),
    ("Europe/Berlin", date(2026, 10, 25)),
    ("America/New_York", date(2026, 3, 8)),
    ("America/New_York", date(2026, 11, 1)),
    ("Asia/Kathmandu", date(2026, 5, 1)),
    ("Australia/Lord_Howe", date(2026, 4, 5)),
    ("Australia/Lord_Howe", date(2026, 10, 4)),
    ("Pacific/Apia", date(2011, 12, 30)),
    ("America/Sao_Paulo", date(2018, 11, 4)),
    ("America/Sao_Paulo", date(2018, 2, 18)),
    ("America/Havana", date(2026, 3, 8)),
    ("America/Havana", date(2026, 11, 1)),
    ("America/St_Johns", date(2010, 11, 7)),
]


def expected(name: str, first: datetime, end: datetime, by: ColumnSpan) -> list[datetime]:
    """The minutes at which the clocks of the zone show a new hour or day, and those at which an hour comes again."""
    found: list[datetime] = []
    shown = before = None
    at = first
    while at < end:
        local = at.astimezone(ZoneInfo(name))
        wall = local.replace(tzinfo=None)
        unit = wall.date().isoformat() if by is ColumnSpan.DAY else f"{wall:%Y-%m-%dT%H}"
        again = by is ColumnSpan.HOUR and before is not None and wall <= before and wall.minute == 0
        if shown is None or unit > shown or again:
            found.append(at)
            shown = unit
        before, at = wall, at + MINUTE
    return found


@pytest.mark.req("H-25")
@pytest.mark.parametrize("by", ColumnSpan)
@pytest.mark.parametrize(("name", "day"), DAYS, ids=str)
def test_columns_begin_when_the_clocks_show_a_new_hour_or_day(name: str, day: date, by: ColumnSpan) -> None:
    place = zone(name)
    assert place is not None
    noon = datetime(day.year, day.month, day.day, 12, tzinfo=UTC)
    first, end = noon - timedelta(days=2), noon + timedelta(days=2)

    found = columns(ms_of(first), ms_of(end), by, place)

    # The first column began before the first minute that was looked at.
    shown = expected(name, first - timedelta(days=2), end + timedelta(days=2), by)
    begins = [ms_of(one) for one in shown]
    inside = [at for at, until in pairwise(begins) if until > ms_of(first) and at < ms_of(end)]
    assert [one.from_at for one in found] == inside
    assert [one.until_at for one in found] == [begins[begins.index(at) + 1] for at in inside]


@pytest.mark.parametrize(
    ("name", "day", "hours", "change"),
    [
        ("Europe/Berlin", date(2026, 3, 29), 23, 3600),
        ("Europe/Berlin", date(2026, 10, 25), 25, -3600),
        ("Australia/Lord_Howe", date(2026, 4, 5), 24.5, -1800),
        ("Australia/Lord_Howe", date(2026, 10, 4), 23.5, 1800),
        ("Asia/Kathmandu", date(2026, 5, 1), 24, 0),
        ("America/Havana", date(2026, 3, 8), 23, 3600),
    ],
)
def test_a_day_says_how_long_it_is_and_how_clocks_change_in_it(name: str, day: date, hours: float, change: int) -> None:
    place = zone(name)
    assert place is not None
    noon = datetime(day.year, day.month, day.day, 12, tzinfo=ZoneInfo(name)).astimezone(UTC)

    [found] = columns(ms_of(noon), ms_of(noon) + 1, ColumnSpan.DAY, place)

    assert ((found.until_at - found.from_at) / 3_600_000, found.clock_change) == (hours, change)


def test_every_tick_has_one_kind() -> None:
    kinds = {(kind, status): cell_kind(kind, Reason.ON_TIME, status) for kind in TickKind for status in TickStatus}

    assert kinds[TickKind.FIRED, TickStatus.SUCCESS] is CellKind.FIRED
    assert kinds[TickKind.QUEUED, TickStatus.FAILED] is CellKind.FAILED
    assert kinds[TickKind.QUEUED, TickStatus.STARTED] is CellKind.QUEUED
    assert kinds[TickKind.FIRED, TickStatus.SKIPPED] is CellKind.SKIPPED
    assert cell_kind(TickKind.FIRED, Reason.CAUGHT_UP, TickStatus.SUCCESS) is CellKind.LATE
    assert cell_kind(TickKind.FIRED, Reason.LATE, TickStatus.FAILED) is CellKind.FAILED
    assert not set(kinds.values()) & {CellKind.COMING, CellKind.HELD}


def test_a_calendar_has_a_limited_number_of_columns() -> None:
    place = zone("UTC")
    assert place is not None
    hour = 3_600_000

    assert len(columns(0, MOST_COLUMNS * hour, ColumnSpan.HOUR, place)) == MOST_COLUMNS
    with pytest.raises(FieldError, match="more than 200 hours"):
        columns(0, MOST_COLUMNS * hour + 1000, ColumnSpan.HOUR, place)
