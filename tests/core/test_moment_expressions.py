"""Moments as people name them, seen from Monday, 2026-03-02, noon UTC."""

from datetime import UTC, datetime

import pytest

from gnomon.core.instants import instant_of
from gnomon.core.time_expressions import TimeRange, parse_time_ranges
from gnomon.errors import FieldError

NOW = int(datetime(2026, 3, 2, 12, tzinfo=UTC).timestamp() * 1000)


def named(text: str, timezone: str = "UTC") -> list[str]:
    """The beginnings of the moments, in UTC."""
    found = parse_time_ranges(text, timezone, now=NOW)
    return [f"{instant_of(one.first_at):%Y-%m-%dT%H:%M:%S}" for one in found]


@pytest.mark.parametrize(
    ("text", "timezone", "utc"),
    [
        ("2026-03-01T14:30", "UTC", "2026-03-01T14:30:00"),
        ("2026-03-01 14:30", "America/New_York", "2026-03-01T19:30:00"),
        ("2026-03-01T14:30Z", "America/New_York", "2026-03-01T14:30:00"),
        ("2026-03-01T14:30:15+02:00", "UTC", "2026-03-01T12:30:15"),
        ("2026-03-01 14:30 UTC", "Asia/Tokyo", "2026-03-01T14:30:00"),
        ("today 02:00", "UTC", "2026-03-02T02:00:00"),
        ("today 23:00", "UTC", "2026-03-02T23:00:00"),
        ("Yesterday 14:30", "UTC", "2026-03-01T14:30:00"),
        ("tomorrow 9:00", "America/New_York", "2026-03-03T14:00:00"),
        ("02:00", "UTC", "2026-03-02T02:00:00"),
        ("02:00:30", "America/New_York", "2026-03-02T07:00:30"),
        ("mon 02:00", "UTC", "2026-03-02T02:00:00"),
        ("Sunday 02:00", "UTC", "2026-03-01T02:00:00"),
        ("tue 02:00", "UTC", "2026-02-24T02:00:00"),
        ("now", "Asia/Tokyo", "2026-03-02T12:00:00"),
    ],
)
def test_a_moment_is_read(text: str, timezone: str, utc: str) -> None:
    assert named(text, timezone) == [utc]


@pytest.mark.parametrize(("text", "instead"), [("13:00", "2026-03-01"), ("mon 13:00", "2026-02-23")])
def test_a_time_without_a_date_is_one_that_is_over(text: str, instead: str) -> None:
    assert named(text) == [f"{instead}T13:00:00"]


def test_today_is_the_day_on_the_clocks_of_the_zone() -> None:
    assert named("today 02:00", "Pacific/Kiritimati") == ["2026-03-02T12:00:00"]


@pytest.mark.parametrize(
    ("text", "length"), [("12:00", 60_000), ("12:00:00", 1000), ("12:00:00.250", 1), ("2026-03-01T12:00Z", 60_000)]
)
def test_a_moment_is_as_exact_as_it_was_named(text: str, length: int) -> None:
    [one] = parse_time_ranges(text, "UTC", now=NOW)

    assert one.last_at - one.first_at + 1 == length


def test_a_time_that_comes_twice_is_two_moments() -> None:
    assert named("2026-10-25 02:30", "Europe/Berlin") == ["2026-10-25T00:30:00", "2026-10-25T01:30:00"]


@pytest.mark.parametrize(
    ("text", "timezone", "changed"),
    [
        ("2026-03-29T02:30", "Europe/Berlin", datetime(2026, 3, 29, 1, tzinfo=UTC)),
        ("2026-10-04T02:15", "Australia/Lord_Howe", datetime(2026, 10, 3, 15, 30, tzinfo=UTC)),
    ],
)
def test_a_time_that_clocks_skip_is_the_moment_at_which_they_do(text: str, timezone: str, changed: datetime) -> None:
    at = int(changed.timestamp() * 1000)

    assert parse_time_ranges(text, timezone, now=NOW) == (TimeRange(at, at, text[-5:]),)


@pytest.mark.parametrize(
    "text",
    ["", "noon", "today", "2026-03-02", "25:00", "02:60", "2026-13-01T00:00", "someday 02:00", "02:00Z", "mon 2:00Z"],
)
def test_an_invalid_moment_is_refused(text: str) -> None:
    with pytest.raises(FieldError, match="is no moment such as"):
        parse_time_ranges(text, "UTC", now=NOW)


@pytest.mark.parametrize("text", ["9999-12-31T23:59-10:00", "0001-01-01T00:00+10:00"])
def test_a_moment_outside_the_calendar_is_refused(text: str) -> None:
    with pytest.raises(FieldError, match="lies outside the calendar"):
        parse_time_ranges(text, "UTC", now=NOW)
