"""The jobs of `gnomon cron`: their definitions, their names, and what is refused before anything is registered."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.core.jobs.cron_jobs import (
    CronDefaults,
    CronKind,
    CronUpdate,
    cron_job,
    delay_ms,
    expression_fields,
    generated_name,
    instant_fields,
    interval_fields,
    kind_of,
    resolved_name,
)
from gnomon.core.jobs.fields import NAME
from gnomon.core.jobs.job import read_job
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.runs.workflow import RetryPolicy
from gnomon.errors import FieldError, NotFound, UsageError

USUAL = CronDefaults(retries=3, backoff_ms=200, max_backoff_ms=30_000, jitter_ms=250, max_run_history=50)
NOW = datetime(2027, 1, 1, 12, tzinfo=UTC)


def defaults(**changes: int) -> CronDefaults:
    return CronDefaults(**{field: getattr(USUAL, field) for field in CronDefaults.__struct_fields__} | changes)


@pytest.mark.req("Z-06", "Z-09")
def test_a_job_is_tried_four_times_and_keeps_fifty_runs() -> None:
    made = read_job(cron_job("tidy", "rm -r old", {"every": "5m"}, USUAL), Defaults(), now=0)

    [step] = made.workflow.steps
    assert step.retry == RetryPolicy(
        max_attempts=4, initial_delay_ms=200, multiplier=2, max_delay_ms=30_000, jitter=0, jitter_ms=250
    )
    assert (made.workflow.retention_runs, made.workflow.tags, made.spec.delete_after_run) == (50, ("cron",), False)


@pytest.mark.req("Z-06")
@pytest.mark.parametrize(
    ("changes", "attempts", "longest"), [({"retries": 0}, 1, 30_000), ({"backoff_ms": 90_000}, 4, 90_000)]
)
def test_settings_at_their_edges_make_valid_jobs(changes: dict[str, int], attempts: int, longest: int) -> None:
    made = read_job(cron_job("tidy", "date", {"every": "5m"}, defaults(**changes)), Defaults(), now=0)

    retry = made.workflow.steps[0].retry
    assert retry is not None
    assert (retry.max_attempts, retry.max_delay_ms) == (attempts, longest)


@pytest.mark.req("Z-08")
def test_a_job_for_one_instant_is_deleted_after_its_run_unless_it_is_kept() -> None:
    at = {"at": "2027-01-02T00:00:00+00:00"}

    assert read_job(cron_job("a", "date", at, USUAL, keep=False), Defaults(), now=0).spec.delete_after_run
    assert not read_job(cron_job("a", "date", at, USUAL), Defaults(), now=0).spec.delete_after_run


# ---- times ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "ms"),
    [("30s", 30_000), ("5m", 300_000), ("2h", 7_200_000), ("1d", 86_400_000), ("15", 900_000), (" 1h30m ", 5_400_000)],
)
def test_a_delay_is_a_duration_and_a_bare_number_is_minutes(text: str, ms: int) -> None:
    assert delay_ms("DELAY", text) == ms


@pytest.mark.req("Z-14")
@pytest.mark.parametrize("text", ["", "0", "0s", "-5", "5x", "5 minutes ago", "x", "1e3", "99999999999", "٣m", "5m30"])
def test_a_delay_of_nothing_and_nonsense_are_refused(text: str) -> None:
    with pytest.raises(FieldError) as refused:
        delay_ms("DELAY", text)
    assert refused.value.field == "DELAY"


@pytest.mark.req("Z-08")
@pytest.mark.parametrize(("text", "span"), [("60000", "1m"), ("250", "250ms"), ("5m", "5m"), ("1h30m", "1h30m")])
def test_an_interval_is_a_number_of_milliseconds_or_a_duration(text: str, span: str) -> None:
    assert interval_fields("MILLISECONDS", text) == {"every": span}


@pytest.mark.req("Z-14")
@pytest.mark.parametrize("text", ["", "0", "-1", "0s", "often", "1.5"])
def test_an_interval_of_nothing_is_refused(text: str) -> None:
    with pytest.raises(FieldError):
        interval_fields("MILLISECONDS", text)


@pytest.mark.req("Z-14")
def test_an_instant_must_be_to_come() -> None:
    later = NOW + timedelta(seconds=1)

    assert instant_fields("INSTANT", "x", later, now=NOW) == {"at": later.isoformat()}
    for past in (NOW, NOW - timedelta(days=1)):
        with pytest.raises(FieldError, match="is over: now is 2027-01-01T12:00:00"):
            instant_fields("INSTANT", past.isoformat(), past, now=NOW)


def test_an_expression_may_be_a_sentence_but_no_instant() -> None:
    assert expression_fields("EXPRESSION", "every day at 9am", "Europe/Berlin") == {
        "schedule": "every day at 9am",
        "timezone": "Europe/Berlin",
    }
    with pytest.raises(FieldError, match="use gnomon cron add-at"):
        expression_fields("EXPRESSION", "2027-01-01T00:00:00Z", None)


# ---- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ('echo "hello world"', "echo-hello-world"),
        ("./Backup.SH --all", "backup-sh-all"),
        ("PGHOST=db vacuumdb", "pghost-db-vacuumdb"),
        ("日本語", "command"),
        ("x" * 100, "x" * 40),
        ("a" * 39 + " -b", "a" * 39),
    ],
)
def test_a_name_is_made_of_the_command(command: str, name: str) -> None:
    assert generated_name(command, ()) == name
    assert generated_name(command, {name, f"{name}-2"}) == f"{name}-3"


@given(st.text(max_size=200), st.integers(0, 30))
def test_a_generated_name_is_valid_and_free(command: str, others: int) -> None:
    taken: set[str] = set()
    for _ in range(others):
        name = generated_name(command, taken)
        assert NAME.fullmatch(name)
        assert name not in taken
        taken.add(name)


def test_a_name_is_given_by_as_much_of_it_as_no_other_has_and_in_any_case() -> None:
    names = ["echo", "echo-2", "report"]

    assert resolved_name("echo", names) == "echo"
    assert resolved_name("REP", names) == "report"
    assert resolved_name(" echo-2 ", names) == "echo-2"


@pytest.mark.parametrize("given_name", ["", "other", "*", "%", "report-", "é"])
def test_a_name_that_no_job_has_is_not_found(given_name: str) -> None:
    with pytest.raises(NotFound):
        resolved_name(given_name, ["echo", "report"])


def test_a_name_that_several_jobs_begin_with_is_refused_with_a_list() -> None:
    with pytest.raises(UsageError, match=r"'e' is the beginning of several names: e0, e1, e2, e3, e4, \.\.\."):
        resolved_name("e", [f"e{number}" for number in range(9)])


# ---- updates -------------------------------------------------------------------------------------


@pytest.mark.req("Z-14")
@pytest.mark.parametrize(
    ("update", "kind", "option"),
    [
        ({"expression": "* * * * *"}, CronKind.AT, "--expression"),
        ({"expression": "* * * * *"}, CronKind.EVERY, "--expression"),
        ({"timezone": "UTC"}, CronKind.EVERY, "--tz"),
        ({"timezone": "UTC"}, CronKind.AT, "--tz"),
        ({"at": "x"}, CronKind.CRON, "--at"),
        ({"every": "5m"}, CronKind.CRON, "--every"),
        ({"every": "5m", "command": "date"}, CronKind.AT, "--every"),
    ],
)
def test_an_update_must_fit_the_kind_of_the_job(update: dict[str, Any], kind: CronKind, option: str) -> None:
    with pytest.raises(FieldError, match="does not fit: tidy runs") as refused:
        CronUpdate(**update).check("tidy", kind)
    assert refused.value.field == option


def test_an_update_that_says_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="nothing would change: give --expression"):
        CronUpdate().check("tidy", CronKind.CRON)


@pytest.mark.parametrize(
    ("update", "kind"),
    [
        ({"command": "date"}, CronKind.EVERY),
        ({"expression": "@daily", "timezone": "UTC"}, CronKind.CRON),
        ({"timezone": "UTC"}, CronKind.CRON),
        ({"at": "2027-01-01T00:00", "timezone": "UTC"}, CronKind.AT),
        ({"every": "5m"}, CronKind.EVERY),
    ],
)
def test_an_update_that_fits_is_accepted(update: dict[str, Any], kind: CronKind) -> None:
    CronUpdate(**update).check("tidy", kind)


def test_a_job_without_a_schedule_of_these_commands_is_not_theirs_to_change() -> None:
    assert kind_of({"name": "a", "at": "x"}) is CronKind.AT
    with pytest.raises(UsageError, match="a has no schedule that gnomon cron makes"):
        kind_of({"name": "a", "on": {"event": "x"}})
