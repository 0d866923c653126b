"""Cron against two oracles: cronsim, which imitates Debian's cron, and a scanner of every minute."""

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim, CronSimError

from gnomon import Cron, CronError, Dst
from gnomon.testing.scanner import scan
from support.random_schedules import clock_changes, random_cron, random_zones, seeded_rounds

pytestmark = [pytest.mark.req("H-02", "D-02", "D-03"), pytest.mark.timeout(300)]

BATCHES = range(8)
SECOND = timedelta(seconds=1)
ZONES = random_zones(random.Random("zones"), 170)
#: cronsim loses its way where clocks change within an hour of wall time; the scanner does not.
CRONSIM_ZONES = sorted(set(ZONES) - {"Pacific/Chatham", "NZ-CHAT"})
PRESETS = [Dst(gap, fold) for gap in ("next", "skip") for fold in ("first", "both")]


@cache
def changes_of(zone: str) -> list[datetime]:
    return clock_changes(zone, 1975, 2037)


def fires_forward(cron: Cron, start: datetime, end: datetime) -> list[datetime]:
    return _walk(cron.next_after, start - timedelta(microseconds=1), lambda fire: fire < end)


def fires_backward(cron: Cron, start: datetime, end: datetime) -> list[datetime]:
    return _walk(cron.previous_before, end, lambda fire: fire >= start)[::-1]


def _walk(
    step: Callable[[datetime], datetime | None], instant: datetime, within: Callable[[datetime], bool]
) -> list[datetime]:
    fires = []
    while (fire := step(instant)) is not None and within(fire):
        fires.append(fire)
        instant = fire
    return fires


def accepted(text: str, zone: str, dst: Dst) -> Cron | None:
    """The schedule, unless it is one of the few random ones that never fire."""
    try:
        return Cron(text, zone, dst=dst)
    except CronError as error:
        assert "never fires" in error.reason  # noqa: PT017 - nothing else may be wrong with it
        return None


def test_the_sample_has_a_hundred_zones_with_clock_changes() -> None:
    assert sum(1 for zone in ZONES if changes_of(zone)) >= 100


@pytest.mark.parametrize("batch", BATCHES)
def test_around_clock_changes_the_fires_are_those_of_the_scanner(batch: int) -> None:
    for rng in seeded_rounds(f"scanner {batch}", 20):
        zone = rng.choice([zone for zone in ZONES if changes_of(zone)])
        change = rng.choice(changes_of(zone))
        text = random_cron(rng, times=rng.random() < 0.8)
        cron = accepted(text, zone, rng.choice(PRESETS))
        start, end = change - timedelta(hours=26), change + timedelta(hours=26)
        if cron is None:
            continue

        expected = scan(text, zone, start, end, gap=cron.dst.gap, fold=cron.dst.fold)

        assert fires_forward(cron, start, end) == expected, cron
        assert fires_backward(cron, start, end) == expected, cron
        assert cron.count(after=start - SECOND, until=end - SECOND) == len(expected), cron


ODDITIES = {
    "Amsterdam drops its 19 min 32 s": ("Europe/Amsterdam", "1937-06-30T23:40Z"),
    "Monrovia drops its 44 min 30 s": ("Africa/Monrovia", "1972-01-07T00:44Z"),
    "New York takes standard time": ("America/New_York", "1883-11-18T17:00Z"),
    "Kolkata at war": ("Asia/Kolkata", "1941-10-01T00:00Z"),
    "Lord Howe, half an hour": ("Australia/Lord_Howe", "2026-10-03T15:30Z"),
    "Tehran at midnight": ("Asia/Tehran", "2022-03-21T20:30Z"),
}


@pytest.mark.parametrize(
    ("zone", "change", "dst"),
    [
        # Every run has each oddity, and each preset with two of them; the scanner looks at every second.
        pytest.param(zone, change, dst, id=f"{dst}-{name}", marks=[pytest.mark.thorough] if (row + column) % 3 else [])
        for row, (name, (zone, change)) in enumerate(ODDITIES.items())
        for column, dst in enumerate(PRESETS)
    ],
)
def test_historical_oddities_are_those_of_the_scanner_to_the_second(zone: str, change: str, dst: Dst) -> None:
    start = datetime.fromisoformat(change) - timedelta(minutes=95)
    end = start + timedelta(minutes=190)
    for text in ("*/20 * * * *", "7-58 0-23 * * *", "30 */25 * * * *", "45 13,50 0-23 * * *"):
        cron = Cron(text, zone, dst=dst)

        expected = scan(text, zone, start, end, gap=dst.gap, fold=dst.fold, step=1)

        assert fires_forward(cron, start, end) == expected, text
        assert fires_backward(cron, start, end) == expected, text
        assert cron.count(after=start - SECOND, until=end - SECOND) == len(expected), text


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("reverse", [False, True], ids=["forwards", "backwards"])
def test_the_fires_are_those_of_cronsim(batch: int, reverse: bool) -> None:  # noqa: FBT001 - a column
    for rng in seeded_rounds(f"cronsim {batch}", 125):
        # cronsim gives six fields no clock changes at all; we do (docs/decisions/0003).
        seconds = rng.random() < 0.2
        zone = "UTC" if seconds else rng.choice(CRONSIM_ZONES)
        text = random_cron(rng, seconds=seconds, times=rng.random() < 0.3)
        start = datetime(1975, 1, 1, tzinfo=UTC) + timedelta(seconds=rng.randrange(62 * 365 * 86400))
        expected = oracle(text, zone, start, reverse=reverse)
        cron = accepted(text, zone, Dst())
        if cron is None:
            assert not expected
            continue

        step = cron.previous_before if reverse else cron.next_after
        fires = [start]
        for _ in expected:
            fire = step(fires[-1])
            assert fire is not None
            fires.append(fire)

        assert fires[1:] == expected, (text, zone, start)


def oracle(text: str, zone: str, start: datetime, *, reverse: bool, count: int = 12) -> list[datetime]:
    """The next fires as cronsim has them; none if there are none for fifty years."""
    local = start if zone == "UTC" else start.astimezone(ZoneInfo(zone))
    fires = []
    try:
        for fire in islice(CronSim(text, local, reverse=reverse), count):
            instant = fire.astimezone(UTC)
            # Starred schedules lead cronsim to wall times that do not exist (where midnight is skipped),
            # or to the same one for ever (where less than a whole wall hour is repeated).
            imaginary = instant.astimezone(fire.tzinfo).replace(tzinfo=None) != fire.replace(tzinfo=None)
            if imaginary or instant in fires:
                break
            fires.append(instant)
    except CronSimError:
        pass
    return fires
