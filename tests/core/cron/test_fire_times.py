"""When cron fires: a table whose rows are promises, then the laws that hold for any input."""

import pickle
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon import Cron, Dst
from gnomon.core import timezones
from gnomon.core.cron import calendar
from gnomon.errors import UsageError

pytestmark = pytest.mark.req("H-02", "C-01")

SKIP_BOTH = Dst(gap="skip", fold="both")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


@pytest.mark.parametrize(
    ("expression", "after", "fires"),
    [
        pytest.param("* * * * *", "2026-01-01T00:00:00Z", "2026-01-01T00:01Z", id="every minute, strictly after"),
        pytest.param("* * * * *", "2026-01-01T00:00:59.9Z", "2026-01-01T00:01Z", id="a fraction does not skip one"),
        pytest.param("*/7 * * * *", "2026-01-01T00:56Z", "2026-01-01T01:00Z", id="a step begins anew each hour"),
        pytest.param("0 9 * * MON-FRI", "2026-01-02T09:00Z", "2026-01-05T09:00Z", id="weekdays sleep at weekends"),
        pytest.param("0 0 * * 7", "2026-01-01T00:00Z", "2026-01-04T00:00Z", id="7 is Sunday"),
        pytest.param("0 0 * * 5-7", "2026-01-03T00:00Z", "2026-01-04T00:00Z", id="a range may end with 7"),
        pytest.param("0 0 * jan,JUL *", "2026-02-01T00:00Z", "2026-07-01T00:00Z", id="month names in any case"),
        pytest.param("0 0 29 2 *", "2026-01-01T00:00Z", "2028-02-29T00:00Z", id="29 February waits for a leap year"),
        pytest.param("0 0 29 2 *", "2096-03-01T00:00Z", "2104-02-29T00:00Z", id="2100 is no leap year"),
        pytest.param("0 0 13 * FRI", "2026-02-01T00:00Z", "2026-02-06T00:00Z", id="two day fields mean either"),
        pytest.param("0 0 */2 * MON", "2026-02-01T00:00Z", "2026-02-09T00:00Z", id="a starred day field means both"),
        pytest.param("0 0 1-31 * MON", "2026-02-01T00:00Z", "2026-02-02T00:00Z", id="1-31 is no star: either"),
        pytest.param("0 0 L * *", "2026-02-01T00:00Z", "2026-02-28T00:00Z", id="L is the last day"),
        pytest.param("0 0 LW * *", "2026-05-01T00:00Z", "2026-05-29T00:00Z", id="LW is the last workday"),
        pytest.param("0 0 * * 5L", "2026-01-01T00:00Z", "2026-01-30T00:00Z", id="5L is the last Friday"),
        pytest.param("0 0 * * MON#2", "2026-01-01T00:00Z", "2026-01-12T00:00Z", id="MON#2 is the second Monday"),
        pytest.param("0 0 * * SUN#5", "2026-01-01T00:00Z", "2026-03-29T00:00Z", id="a fifth Sunday may be months away"),
        pytest.param("10/20 * * * *", "2026-01-01T00:10Z", "2026-01-01T00:30Z", id="a step may start at a number"),
        pytest.param("*/20 * * * * *", "2026-01-01T00:00Z", "2026-01-01T00:00:20Z", id="six fields: seconds first"),
        pytest.param("30 59 23 31 12 *", "2026-01-01T00:00Z", "2026-12-31T23:59:30Z", id="six fields, once a year"),
        pytest.param("@weekly", "2026-01-01T00:00Z", "2026-01-04T00:00Z", id="@weekly is Sunday midnight"),
        pytest.param("@Hourly", "2026-01-01T00:00Z", "2026-01-01T01:00Z", id="macros in any case"),
        pytest.param("0 0 29 2 */7", "2028-01-01T00:00Z", "2032-02-29T00:00Z", id="a leap day that is a Sunday"),
        pytest.param("0 12 * * *", "0001-01-01T00:00Z", "0001-01-01T12:00Z", id="the first day of the calendar"),
    ],
)
def test_the_next_fire(expression: str, after: str, fires: str) -> None:
    assert Cron(expression).next_after(at(after)) == at(fires)


NEW_YORK = "America/New_York"
GAP_DAY = "2026-03-08T00:00-05:00"
FOLD_DAY = "2026-11-01T00:00-04:00"


@pytest.mark.parametrize(
    ("expression", "zone", "dst", "after", "fires"),
    [
        pytest.param(
            "30 2 * * *", NEW_YORK, Dst(), GAP_DAY,
            ["03-08T03:00-04:00", "03-09T02:30-04:00"],
            id="a skipped time fires right after the jump",
        ),
        pytest.param(
            "30 2 * * *", NEW_YORK, Dst(gap="skip"), GAP_DAY,
            ["03-09T02:30-04:00", "03-10T02:30-04:00"],
            id="or not at all, when asked",
        ),
        pytest.param(
            "0-59 2 * * *", NEW_YORK, Dst(), GAP_DAY,
            ["03-08T03:00-04:00", "03-09T02:00-04:00"],
            id="many skipped times make one fire",
        ),
        pytest.param(
            "0 2,3 * * *", NEW_YORK, Dst(), GAP_DAY,
            ["03-08T03:00-04:00", "03-09T02:00-04:00"],
            id="a made-up fire is not doubled by the one that is due there",
        ),
        pytest.param(
            "*/30 * * * *", NEW_YORK, Dst(), "2026-03-08T01:30-05:00",
            ["03-08T03:00-04:00", "03-08T03:30-04:00"],
            id="a schedule by the minute goes on without a pause",
        ),
        pytest.param(
            "*/30 2 * * *", NEW_YORK, Dst(), GAP_DAY,
            ["03-09T02:00-04:00", "03-09T02:30-04:00"],
            id="starred minutes of a skipped hour do not fire",
        ),
        pytest.param(
            "30 1 * * *", NEW_YORK, Dst(), FOLD_DAY,
            ["11-01T01:30-04:00", "11-02T01:30-05:00"],
            id="a repeated time fires the first time",
        ),
        pytest.param(
            "30 1 * * *", NEW_YORK, Dst(fold="both"), FOLD_DAY,
            ["11-01T01:30-04:00", "11-01T01:30-05:00"],
            id="or both times, when asked",
        ),
        pytest.param(
            "*/30 * * * *", NEW_YORK, Dst(), "2026-11-01T01:30-04:00",
            ["11-01T01:00-05:00", "11-01T01:30-05:00"],
            id="a schedule by the minute goes on through the repeated hour",
        ),
        pytest.param(
            "0 30 2 * * *", NEW_YORK, Dst(), GAP_DAY,
            ["03-08T03:00-04:00", "03-09T02:30-04:00"],
            id="a seconds field of 0 changes nothing",
        ),
        pytest.param(
            "15 2 * * *", "Australia/Lord_Howe", Dst(), "2026-10-04T00:00+10:30",
            ["10-04T02:30+11:00", "10-05T02:15+11:00"],
            id="half an hour is skipped on Lord Howe",
        ),
        pytest.param(
            "0 0 * * *", "America/Santiago", Dst(), "2026-09-05T12:00-04:00",
            ["09-06T01:00-03:00", "09-07T00:00-03:00"],
            id="a skipped midnight fires at one o'clock",
        ),
        pytest.param(
            "30 1 * * *", "Europe/Dublin", Dst(), "2026-10-25T00:00+01:00",
            ["10-25T01:30+01:00", "10-26T01:30+00:00"],
            id="Dublin's winter time is the negative one",
        ),
    ],
)  # fmt: skip
def test_clock_changes(expression: str, zone: str, dst: Dst, after: str, fires: list[str]) -> None:
    cron = Cron(expression, timezone=zone, dst=dst)

    first = cron.next_after(at(after))
    assert first is not None
    second = cron.next_after(first)

    assert [first, second] == [at(f"2026-{fire}") for fire in fires]


def test_a_day_that_a_country_skipped_is_made_up_for_at_its_end() -> None:
    cron = Cron("0 10 * * *", timezone="Pacific/Apia")

    assert cron.next_after(at("2011-12-29T12:00-10:00")) == at("2011-12-31T00:00+14:00")


@pytest.mark.req("D-03")
def test_the_posix_dialect_takes_the_same_choices() -> None:
    cron = Cron("30 2 * * *", timezone="America/New_York", dialect="posix", dst=SKIP_BOTH)

    assert cron.next_after(at(GAP_DAY)) == at("2026-03-09T02:30-04:00")


@pytest.mark.req("D-10")
@pytest.mark.parametrize(
    ("expression", "fires"),
    [
        pytest.param("0 0 * * *", "2026-06-02", id="star and star: every day"),
        pytest.param("0 0 * * 1", "2026-06-08", id="star and weekday: the weekday"),
        pytest.param("0 0 15 * *", "2026-06-15", id="day and star: the day"),
        pytest.param("0 0 5,15 * 1", "2026-06-05", id="both: either"),
        pytest.param("0 0 1-31 * 1", "2026-06-02", id="a full range is restricted all the same"),
        pytest.param("0 0 5 * 0-6", "2026-06-02", id="so is a full week"),
    ],
)
def test_posix_day_fields(expression: str, fires: str) -> None:
    monday = at("2026-06-01T00:00Z")

    assert Cron(expression, dialect="posix").next_after(monday) == at(f"{fires}T00:00Z")


def test_the_search_ends_at_the_end_of_the_calendar() -> None:
    assert Cron("0 0 29 2 *").next_after(at("9997-01-01T00:00Z")) is None


def test_the_search_back_ends_at_the_beginning_of_the_calendar() -> None:
    assert Cron("0 0 29 2 *").previous_before(at("0003-01-01T00:00Z")) is None


def test_the_search_back_looks_at_the_microseconds_of_the_instant_not_of_the_clock() -> None:
    cron, odd = Cron("* * * * * *"), timezone(timedelta(microseconds=500_000))

    # Half a second past, minus an offset of half a second, is on the dot.
    assert cron.previous_before(datetime(2026, 1, 1, 0, 0, 1, 500_000, tzinfo=odd)) == datetime(2026, 1, 1, tzinfo=UTC)
    assert cron.previous_before(datetime(2026, 1, 1, 0, 0, 1, tzinfo=odd)) == datetime(2026, 1, 1, tzinfo=UTC)


def answers(seed: int) -> list[object]:
    rng = random.Random(seed)
    found: list[object] = []
    for _ in range(150):
        expression = rng.choice(["*/7 * * * *", "30 2 * * *", "0 0 29 2 *", "15 3 * * MON#2", "0 9 L * *"])
        zone = rng.choice(["America/New_York", "Europe/Berlin", "Asia/Tokyo", "Australia/Lord_Howe"])
        instant = datetime(1950, 1, 1, tzinfo=UTC) + timedelta(seconds=rng.randrange(150 * 365 * 86400))
        cron = Cron(expression, zone)
        found.append((cron.next_after(instant), cron.previous_before(instant), cron.matches(instant)))
    return found


def test_threads_that_share_the_caches_get_the_answers_of_one_alone() -> None:
    expected = [answers(seed) for seed in range(8)]
    timezones.zone.cache_clear()
    calendar.day_blocks.cache_clear()
    calendar.fire_time_finder.cache_clear()
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            assert list(threads.map(answers, range(8))) == expected
    finally:
        sys.setswitchinterval(before)


def test_a_schedule_that_clocks_always_skip_has_no_fires() -> None:
    cron = Cron("30 2 8-14 3 */7", timezone="America/New_York", dst=Dst(gap="skip"))

    assert cron.next_after(at("2026-01-01T00:00Z")) is None


@pytest.mark.parametrize(
    ("instant", "expected"),
    [
        pytest.param("2026-01-05T09:00Z", True, id="the beginning of the minute"),
        pytest.param("2026-01-05T09:00:59.999Z", True, id="the end of the minute"),
        pytest.param("2026-01-05T09:01Z", False, id="the next minute"),
        pytest.param("2026-01-05T10:00+01:00", True, id="the same minute said in another zone"),
    ],
)
def test_an_instant_matches_by_its_minute(instant: str, expected: bool) -> None:  # noqa: FBT001 - a column
    assert Cron("0 9 * * *").matches(at(instant)) is expected


def test_an_instant_matches_by_its_second_where_seconds_are_named() -> None:
    cron = Cron("30 0 9 * * *")

    assert cron.matches(at("2026-01-05T09:00:30.5Z"))
    assert not cron.matches(at("2026-01-05T09:00:31Z"))


def test_a_fire_made_up_for_matches() -> None:
    assert Cron("30 2 * * *", timezone="America/New_York").matches(at("2026-03-08T03:00-04:00"))


@pytest.mark.parametrize("ask", ["next_after", "previous_before", "matches"])
def test_an_instant_without_a_zone_is_refused(ask: str) -> None:
    with pytest.raises(UsageError, match="no time zone"):
        getattr(Cron("* * * * *"), ask)(datetime(2026, 1, 1))  # noqa: DTZ001 - that is the point


@pytest.mark.parametrize("ask", ["next_after", "previous_before", "matches"])
def test_an_invalid_instant_is_refused(ask: str) -> None:
    with pytest.raises(TypeError, match="aware datetime"):
        getattr(Cron("* * * * *"), ask)("2026-01-01")


def test_a_cron_is_a_value() -> None:
    same = Cron("0 9 * * *", "Europe/Rome"), Cron("0 9 * * *", "Europe/Rome")

    assert len({*same}) == 1
    assert Cron("0 9 * * *", "Europe/Rome") != Cron("0 9 * * *", "Europe/Paris")


def test_a_cron_survives_pickling() -> None:
    cron = Cron("0 9 * * *", "Europe/Rome", dst=SKIP_BOTH)

    assert pickle.loads(pickle.dumps(cron)) == cron  # noqa: S301 - our own bytes


def test_a_cron_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Cron("0 9 * * *").expression = "* * * * *"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("expression", "canonical"),
    [
        ("@daily", "0 0 * * *"),
        ("0 9 * * MON-FRI", "0 9 * * 1-5"),
        ("00,05 9 * Jan,feb *", "0,5 9 * 1,2 *"),
        ("*/5 * * * 7", "*/5 * * * 0"),
        ("*/1 * */2 * *", "* * */2 * *"),
        ("0-59 * * * *", "0-59 * * * *"),
        ("*/2,5 * * * *", "*/2,5 * * * *"),
        ("0 0 L,15 * 5L,mon#1", "0 0 15,L * 1#1,5L"),
        ("0 30 2 * * *", "30 2 * * *"),
        ("*/10 * * * * *", "*/10 * * * * *"),
    ],
)
def test_the_canonical_spelling(expression: str, canonical: str) -> None:
    assert Cron(expression).canonical == canonical


instants = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
rules = st.sampled_from(
    [
        Cron(expression, zone, dst=dst)
        for expression in ("30 2 * * *", "*/20 1-3 * * *", "0 0 1,15 * 1", "15,45 * * * 0", "*/40 * * * * *")
        for zone in (
            "UTC",
            "America/New_York",
            "Australia/Lord_Howe",
            "America/Santiago",
            "Africa/Casablanca",
        )
        for dst in (Dst(), SKIP_BOTH)
    ]
)


@given(rules, instants)
def test_next_and_previous_agree(cron: Cron, instant: datetime) -> None:
    following = cron.next_after(instant)
    assert following is not None
    preceding = cron.previous_before(following)

    assert preceding is not None
    assert preceding <= instant < following
    assert cron.next_after(preceding) == following


@given(rules, instants)
def test_a_fire_matches(cron: Cron, instant: datetime) -> None:
    following = cron.next_after(instant)

    assert following is not None
    assert cron.matches(following)


@given(rules, instants)
def test_nothing_fires_between_an_instant_and_its_next_fire(cron: Cron, instant: datetime) -> None:
    following = cron.next_after(instant)
    assert following is not None
    between = instant + (following - instant) / 2

    assert cron.next_after(between) == following


@given(rules, instants)
def test_fires_are_whole_seconds_in_utc(cron: Cron, instant: datetime) -> None:
    following = cron.next_after(instant)

    assert following is not None
    assert following.microsecond == 0
    assert following.utcoffset() == timedelta()
