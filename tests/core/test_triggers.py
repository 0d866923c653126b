"""Intervals, single instants, and walking along any trigger."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon import At, Cron, CronError, Every, parse_schedule

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
SEVEN = Every(7 * MINUTE, anchor=NOON)


@pytest.mark.req("Z-08")
@pytest.mark.parametrize(
    ("instant", "following", "preceding"),
    [
        pytest.param(-3, 0, None, id="before the anchor, the anchor is next"),
        pytest.param(0, 7, None, id="at the anchor"),
        pytest.param(1, 7, 0, id="between two points"),
        pytest.param(7, 14, 0, id="at a point"),
        pytest.param(7.001, 14, 7, id="just after a point"),
    ],
)
def test_an_interval_is_a_grid_from_its_anchor(instant: float, following: int, preceding: int | None) -> None:
    assert SEVEN.next_after(NOON + instant * MINUTE) == NOON + following * MINUTE
    assert SEVEN.previous_before(NOON + instant * MINUTE) == (None if preceding is None else NOON + preceding * MINUTE)


def test_an_interval_may_be_shorter_than_a_second() -> None:
    assert Every(timedelta(milliseconds=250), NOON).next_after(NOON) == NOON + timedelta(milliseconds=250)


@pytest.mark.parametrize(
    "period",
    [
        timedelta(),
        -MINUTE,
        timedelta(milliseconds=1),
        timedelta(days=10**6),
        timedelta(microseconds=100_500),
        True,
        5,
    ],
)
def test_a_period_outside_the_bounds_is_refused(period: timedelta) -> None:
    with pytest.raises(CronError) as refused:
        Every(period)

    assert refused.value.field == "period"


def test_an_interval_ends_with_the_calendar() -> None:
    assert SEVEN.next_after(datetime(9999, 12, 31, 23, 59, tzinfo=UTC)) is None


@pytest.mark.parametrize(
    ("period", "sentence"),
    [
        (timedelta(seconds=90), "every 90 seconds, counted from its start"),
        (timedelta(hours=36), "every 36 hours, counted from its start"),
        (timedelta(days=14), "every 14 days, counted from its start"),
        (timedelta(days=1), "every 24 hours, counted from its start"),
        (timedelta(hours=1), "every hour, counted from its start"),
        (timedelta(minutes=5), "every 5 minutes, counted from its start"),
        (timedelta(milliseconds=1500), "every 1500ms, counted from its start"),
    ],
)
def test_an_interval_says_its_period(period: timedelta, sentence: str) -> None:
    assert Every(period).describe() == sentence
    assert parse_schedule(sentence) == Every(period)


@given(st.integers(100, 10**9), st.datetimes(timezones=st.just(UTC), min_value=datetime(1990, 1, 1)))  # noqa: DTZ001
def test_next_and_previous_of_an_interval_agree(milliseconds: int, instant: datetime) -> None:
    every = Every(timedelta(milliseconds=milliseconds))
    following = every.next_after(instant)
    if following is None:
        return
    preceding = every.previous_before(following)

    assert preceding is not None
    assert preceding <= instant < following
    assert following - preceding == every.period
    assert every.matches(following)


@pytest.mark.req("Z-08")
def test_a_single_instant_fires_once() -> None:
    once = At(NOON)

    assert once.next_after(NOON - MINUTE) == NOON
    assert once.next_after(NOON) is None
    assert once.previous_before(NOON) is None
    assert once.previous_before(NOON + MINUTE) == NOON
    assert once.matches(NOON)
    assert not once.matches(NOON + MINUTE)


def test_a_single_instant_is_kept_in_utc() -> None:
    assert At(datetime.fromisoformat("2026-03-02T13:00+01:00")) == At(NOON)


def test_fractions_of_a_millisecond_are_dropped() -> None:
    finer = NOON + timedelta(microseconds=1999)

    assert At(finer).instant == Every(MINUTE, finer).anchor == NOON + timedelta(milliseconds=1)


@pytest.mark.parametrize("instant", [datetime(2026, 1, 1), "2026-01-01", None])  # noqa: DTZ001
def test_an_instant_without_a_zone_is_refused(instant: datetime) -> None:
    with pytest.raises(CronError) as refused:
        At(instant)

    assert refused.value.field == "instant"


def test_an_instant_that_falls_off_the_calendar_in_utc_is_refused() -> None:
    with pytest.raises(CronError, match="outside the calendar"):
        At(datetime.fromisoformat("0001-01-01T00:00+14:00"))


def fire_times(trigger: At | Cron | Every, *, after: datetime, until: datetime) -> list[datetime]:
    """Every fire after `after` and up to `until`, found by walking."""
    found: list[datetime] = []
    while (instant := trigger.next_after(found[-1] if found else after)) is not None and instant <= until:
        found.append(instant)
    return found


def test_walking_along_a_trigger_finds_every_fire() -> None:
    assert fire_times(SEVEN, after=NOON, until=NOON + 14 * MINUTE) == [NOON + 7 * MINUTE, NOON + 14 * MINUTE]
    assert fire_times(At(NOON), after=NOON - MINUTE, until=NOON + MINUTE) == [NOON]
    hours = fire_times(Cron("0 * * * *"), after=NOON, until=NOON + timedelta(days=1))
    assert hours == [NOON + timedelta(hours=hour) for hour in range(1, 25)]


START = datetime(2024, 1, 31, 7, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    "trigger",
    [
        SEVEN,
        At(NOON),
        Cron("*/7 3-9 * * 1-5", "America/New_York"),
        Cron("30 2 * * *", "Australia/Lord_Howe"),
        Cron("15,45 */5 L,13 * 2", "Africa/Casablanca"),
        Cron("*/45 0 0 1 * *"),
    ],
    ids=lambda trigger: trigger.describe(),
)
@pytest.mark.parametrize("days", [0, 1, 400])
@pytest.mark.parametrize("start", [START, START - timedelta(days=30_000)], ids=["lately", "before 1970"])
def test_counting_fires_is_walking_along_them(trigger: At | Cron | Every, start: datetime, days: int) -> None:
    until = start + timedelta(days=days, hours=5)

    assert trigger.count(after=start, until=until) == len(fire_times(trigger, after=start, until=until))


def test_counting_backwards_is_counting_nothing() -> None:
    assert [trigger.count(after=NOON, until=START) for trigger in (SEVEN, At(NOON), Cron("* * * * *"))] == [0, 0, 0]
