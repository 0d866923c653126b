"""Outages as people name them."""

from datetime import UTC, datetime

import pytest

from gnomon.core.instants import instant_of, ms_of
from gnomon.core.model import DAY_MS
from gnomon.core.time_expressions import Outage, outages
from gnomon.errors import CronError, FieldError

#: A Monday.
START = ms_of(datetime(2027, 3, 22, tzinfo=UTC))


def shown(*said: str, zone: str = "UTC", days: int = 7) -> list[str]:
    found = outages(said, zone=zone, after=START, until=START + days * DAY_MS)
    return [f"{instant_of(one.from_at):%d %H:%M}-{instant_of(one.until_at):%d %H:%M}" for one in found]


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("mon 02:00-04:00", ["22 02:00-22 04:00"]),
        ("MON 2:00 - 4:00", ["22 02:00-22 04:00"]),
        ("mon,wed 02:00-04:00", ["22 02:00-22 04:00", "24 02:00-24 04:00"]),
        ("sat-sun 02:00-04:00", ["27 02:00-27 04:00", "28 02:00-28 04:00"]),
        ("sun-mon 02:00-04:00", ["22 02:00-22 04:00", "28 02:00-28 04:00"]),
        ("wed 23:30-00:30", ["24 23:30-25 00:30"]),
        ("sun 23:30-00:30", ["22 00:00-22 00:30", "28 23:30-29 00:00"]),
        ("2027-03-23T01:00Z/2027-03-23T05:00Z", ["23 01:00-23 05:00"]),
        ("2027-03-23T01:00/2027-03-23T05:00", ["23 01:00-23 05:00"]),
        ("2027-03-01T00:00Z/2027-03-22T05:00Z", ["22 00:00-22 05:00"]),
        ("2028-03-01T00:00Z/2028-03-22T05:00Z", []),
    ],
)
def test_an_outage_is_read(said: str, found: list[str]) -> None:
    assert shown(said) == found


def test_an_outage_without_a_weekday_is_on_every_day() -> None:
    assert len(shown("02:00-04:00")) == 7


def test_wall_times_are_those_of_the_zone() -> None:
    # On the last day clocks go forward at two.
    assert shown("sat,sun 01:00-05:00", zone="Europe/Berlin") == ["27 00:00-27 04:00", "28 00:00-28 03:00"]


def test_outages_that_touch_are_one() -> None:
    assert shown("mon 02:00-04:00", "mon 03:00-05:00", "mon 05:00-06:00") == ["22 02:00-22 06:00"]


@pytest.mark.parametrize(
    "said",
    ["", "monday", "mon", "02:00", "mon 25:00-26:00", "mon 02:00", "xyz 02:00-04:00", "now/then", "/", "2027-03-23/"],
)
def test_an_invalid_outage_is_refused(said: str) -> None:
    with pytest.raises(FieldError, match=r"outage: .*is no outage such as mon 02:00-04:00"):
        shown(said)


def test_an_outage_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(FieldError, match="ends before it begins"):
        shown("2027-03-23T05:00Z/2027-03-23T01:00Z")


def test_a_zone_that_nobody_knows_is_refused() -> None:
    with pytest.raises(CronError):
        shown("mon 02:00-04:00", zone="Mars/Base")


def test_an_outage_is_a_value() -> None:
    assert Outage(1, 2) < Outage(1, 3)
