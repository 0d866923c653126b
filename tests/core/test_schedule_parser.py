"""Text becomes a trigger, or an error with a suggestion."""

from datetime import UTC, datetime, timedelta
from zoneinfo import available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon import At, Cron, CronError, Dst, Every, parse_schedule
from gnomon.core.timezones import zone as known
from gnomon.errors import Position, SentenceError


@pytest.mark.req("H-03")
@pytest.mark.parametrize(
    ("text", "trigger"),
    [
        ("*/5 * * * *", Cron("*/5 * * * *")),
        ("0 0 9 * * 1-5", Cron("0 0 9 * * 1-5")),
        ("@daily", Cron("@daily")),
        ("0 9 * * *\n", Cron("0 9 * * *")),
        ("\r\n@daily\r\n", Cron("@daily")),
        ("every day @ 9am", Cron("0 9 * * *")),
        ("every day @9am", Cron("0 9 * * *")),
        ("once at 2026-12-01T09:00:00+00:00", At(datetime(2026, 12, 1, 9, tzinfo=UTC))),
        ("every 5 minutes", Cron("*/5 * * * *")),
        ("every Monday at 9am UTC", Cron("0 9 * * 1", "UTC")),
        ("every Monday at 9am in Europe/Rome", Cron("0 9 * * 1", "Europe/Rome")),
        ("every 90s", Every(timedelta(seconds=90))),
        ("every 7 minutes", Every(timedelta(minutes=7))),
        ("2026-12-01T09:00:00Z", At(datetime(2026, 12, 1, 9, tzinfo=UTC))),
        ("2026-12-01 09:00+01:00", At(datetime(2026, 12, 1, 8, tzinfo=UTC))),
        (" 2026-12-01T09:00:00.250Z ", At(datetime(2026, 12, 1, 9, 0, 0, 250_000, tzinfo=UTC))),
    ],
)
def test_expressions_are_parsed(text: str, trigger: object) -> None:
    assert parse_schedule(text) == trigger


def test_the_time_zone_is_for_texts_that_name_none() -> None:
    assert parse_schedule("every Monday at 9am", timezone="Europe/Rome") == Cron("0 9 * * 1", "Europe/Rome")


def test_a_sentence_and_a_time_zone_must_not_contradict() -> None:
    with pytest.raises(
        SentenceError, match="names the zone UTC, but the timezone given with it is Europe/Rome"
    ) as refused:
        parse_schedule("every Monday at 9am utc", timezone="Europe/Rome")

    assert (refused.value.position, refused.value.understood) == (Position(20, 23), "every Monday at 9am")


def test_the_choice_about_clock_changes_is_handed_on() -> None:
    dst = Dst(gap="skip", fold="both")

    assert parse_schedule("every day at 2am", dst=dst) == Cron("0 2 * * *", dst=dst)


@pytest.mark.req("D-09")
@pytest.mark.parametrize("text", ["every 5 minutes", "*/5 * * * *", "@daily", "2026-12-01T09:00:00Z"])
def test_the_posix_dialect_takes_only_posix_cron(text: str) -> None:
    with pytest.raises(CronError):
        parse_schedule(text, dialect="posix")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("2026-12-01", "names a day, but no time of it"),
        ("2026-12-01T09:00", "names no time zone"),
        ("2026-02-30T09:00Z", "is not an instant: day is out of range for month"),
        ("2026-12-01T23:59:60Z", "is not an instant: second must be in 0..59"),
        ("2026-12-01T25:00Z", "is not an instant: hour must be in 0..23"),
        ("2026-12-01Tnoon", "is not an instant: Invalid isoformat string: '2026-12-01Tnoon'"),
    ],
)
def test_an_instant_must_be_whole(text: str, reason: str) -> None:
    with pytest.raises(SentenceError) as refused:
        parse_schedule(text)

    assert refused.value.reason == reason


def test_a_local_instant_is_read_in_the_zone_given_with_it() -> None:
    assert parse_schedule("2026-12-01T09:00", timezone="Europe/Rome") == At(datetime(2026, 12, 1, 8, tzinfo=UTC))


def test_a_local_instant_that_comes_twice_is_the_first() -> None:
    assert parse_schedule("2026-10-25T02:30", timezone="Europe/Rome") == At(datetime(2026, 10, 25, 0, 30, tzinfo=UTC))


def test_a_local_instant_that_does_not_exist_is_refused() -> None:
    with pytest.raises(SentenceError, match="does not exist in Europe/Rome"):
        parse_schedule("2026-03-29T02:30", timezone="Europe/Rome")


@pytest.mark.parametrize(("text", "zone"), [("0001-01-01T00:00", "Asia/Tokyo"), ("9999-12-31T23:59", "US/Eastern")])
def test_a_local_instant_beyond_the_calendar_is_refused(text: str, zone: str) -> None:
    with pytest.raises(SentenceError, match="lies outside the calendar"):
        parse_schedule(text, timezone=zone)


def test_a_sentence_that_never_fires_is_refused_as_a_sentence() -> None:
    with pytest.raises(SentenceError, match="never fires") as refused:
        parse_schedule("on the 30th of the month in February")

    assert refused.value.expression == "on the 30th of the month in February"


@pytest.mark.parametrize(
    ("text", "reason", "suggestion"),
    [
        ("@every 5m", 'has the macro "@every", which is a sentence here', "every 5 minutes"),
        ("@every 90s", 'has the macro "@every", which is a sentence here', "every 90 seconds, counted from its start"),
        (
            "CRON_TZ=Europe/Rome 0 9 * * *",
            'has the zone "Europe/Rome", which is no field of cron: give it beside the expression, as timezone',
            None,
        ),
        (
            "0 9 * * * UTC",
            'has the zone "UTC", which is no field of cron: give it beside the expression, as timezone',
            None,
        ),
    ],
)
def test_syntax_of_other_crons_is_refused_with_advice(text: str, reason: str, suggestion: str | None) -> None:
    with pytest.raises(CronError) as refused:
        parse_schedule(text)

    assert (refused.value.reason, refused.value.suggestion) == (reason, suggestion)


@pytest.mark.parametrize("year", ["0001-01-01T00:00Z", "9999-12-31T23:59:59Z"])
def test_the_ends_of_the_calendar_are_instants(year: str) -> None:
    assert parse_schedule(year) == At(datetime.fromisoformat(year))


@pytest.mark.parametrize("text", ["61 * * * *", "* * *", "0 9 * * MOON", "٣ * * * *", "1 2 3"])
def test_text_that_looks_like_cron_is_parsed_as_cron(text: str) -> None:
    with pytest.raises(CronError) as refused:
        parse_schedule(text)

    assert type(refused.value) is CronError


KINDS = ["2026-12-01T09:00:00Z", "2026-12-01T09:00:00", "every Monday at 9am", "every 7 minutes", "@daily"]


@pytest.mark.parametrize("zone", ["Mars/Olympus", "", "europe/rome", 5])
@pytest.mark.parametrize("text", KINDS)
def test_an_unknown_zone_is_refused_whatever_the_schedule(text: str, zone: object) -> None:
    with pytest.raises(CronError) as refused:
        parse_schedule(text, timezone=zone)  # type: ignore[arg-type]

    assert (refused.value.field, refused.value.expression) == ("timezone", str(zone))


def test_an_unknown_zone_in_a_sentence_is_refused_in_its_place() -> None:
    with pytest.raises(SentenceError) as refused:
        parse_schedule("every Monday at 9am Europe/Berln")

    assert refused.value.field == "timezone"
    assert refused.value.position == Position(20, 32)
    assert refused.value.suggestion == "every Monday at 9am Europe/Berlin"


@pytest.mark.parametrize("choice", ["skip", {"gap": "skip"}, False])
@pytest.mark.parametrize("text", KINDS[2:])
def test_an_invalid_dst_policy_is_refused(text: str, choice: object) -> None:
    with pytest.raises(CronError) as refused:
        parse_schedule(text, dst=choice)  # type: ignore[arg-type]

    assert refused.value.field == "dst"


@pytest.mark.parametrize("value", [None, 5, b"@daily", ["every", "day"]])
def test_a_value_that_is_not_text_is_refused(value: object) -> None:
    with pytest.raises(CronError, match="must be a text"):
        parse_schedule(value)  # type: ignore[arg-type]


instants = st.from_regex(r"(once at )?\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?(Z|[+-]\d\d:\d\d)?)?", fullmatch=True)
crons = st.text(alphabet="0123456789*/,-#LW?MONFRI@ ", max_size=30)


@given(st.text() | instants | crons)
def test_any_text_is_a_trigger_or_a_cron_error_whose_suggestion_is_one(text: str) -> None:
    error = None
    try:
        trigger = parse_schedule(text)
    except CronError as refused:
        error, trigger = refused, parse_schedule(refused.suggestion or "@daily")

    assert str(error).isprintable()
    assert parse_schedule(trigger.describe()).describe() == trigger.describe()


@pytest.mark.req("H-03")
def test_a_description_is_read_back_in_every_zone() -> None:
    for name in sorted(available_timezones()):
        if known(name):
            cron = Cron("0 9 * * *", name)
            assert parse_schedule(cron.describe()) == cron, name


def test_the_description_of_an_instant_is_read_back() -> None:
    once = At(datetime(2026, 12, 1, 9, 0, 0, 250_000, tzinfo=UTC))

    assert parse_schedule(once.describe()) == once


SENTENCE_ZONES = ["UTC", "America/New_York", "Europe/Dublin", "Australia/Lord_Howe"]


@pytest.mark.req("H-03")
@pytest.mark.parametrize("zone", SENTENCE_ZONES)
def test_a_description_is_read_back_as_the_same_fires(zone: str) -> None:
    for text in (
        "*/15 9-17 * * 1-5",
        "30 2 * * *",
        "*/30 1 * * *",
        "0 0 13 * 5",
        "5 */3 1,15 * *",
        "0 0 */2 * MON",
    ):
        cron = Cron(text, zone)
        back = parse_schedule(cron.describe())
        instant = datetime(2026, 1, 1, tzinfo=UTC)
        for _ in range(400):
            following = cron.next_after(instant)
            assert following is not None
            assert back.next_after(instant) == following, cron.describe()
            instant = following
