"""The scheduler of the test kit: the real services on virtual time, on a user's own jobs."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import gnomon
from gnomon.core.model import Reason, RunStatus, TickKind
from gnomon.errors import FieldError, JobsFileError, NotFound, Overlapping
from gnomon.testing.scheduler import VirtualScheduler

BACKUP: dict[str, Any] = {
    "name": "backup", "schedule": "30 2 * * *", "timezone": "Europe/Berlin", "function": "storage.backup",
}  # fmt: skip
HOURLY: dict[str, Any] = {"name": "report", "schedule": "0 * * * *", "function": "reports.make", "timeout": "3h"}
ASKED: dict[str, Any] = {"name": "asked", "function": "f", "timeout": "1h"}
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.fixture
def scheduler() -> VirtualScheduler:
    return VirtualScheduler("2027-03-26T00:00")


def hour(number: int) -> datetime:
    return datetime(2027, 3, 26, tzinfo=UTC) + timedelta(hours=number)


# ---- time ----------------------------------------------------------------------------------------


async def test_a_job_runs_at_its_planned_times(scheduler: VirtualScheduler) -> None:
    await scheduler.load(HOURLY)

    await scheduler.run_until("2027-03-26T03:00")

    assert [run.planned_at for run in scheduler.runs("report")] == [hour(1), hour(2), hour(3)]
    assert [run.started_at for run in scheduler.runs("report")] == [hour(1), hour(2), hour(3)]


async def test_the_night_that_lacks_an_hour_has_its_backup(scheduler: VirtualScheduler) -> None:
    await scheduler.load(BACKUP)

    await scheduler.run_until("2027-03-28T04:00", "Europe/Berlin")

    scheduler.assert_ran_at(
        "backup", "2027-03-26T02:30", "2027-03-27T02:30", "2027-03-28T03:00", timezone="Europe/Berlin"
    )


async def test_instants_without_a_zone_are_those_of_the_scheduler() -> None:
    scheduler = VirtualScheduler("2027-03-26T00:00", timezone="Europe/Berlin")

    await scheduler.run_until("2027-03-28T04:00")

    assert scheduler.now == datetime(2027, 3, 28, 4, tzinfo=BERLIN)
    assert scheduler.now.tzinfo == BERLIN


@pytest.mark.parametrize("span", ["90m", 5400, timedelta(minutes=90)])
async def test_time_passes_by_spans_too(scheduler: VirtualScheduler, span: str | float | timedelta) -> None:
    await scheduler.run_for(span)

    assert scheduler.now == hour(0) + timedelta(minutes=90)


async def test_time_does_not_go_back(scheduler: VirtualScheduler) -> None:
    with pytest.raises(FieldError, match=r"is past: it is 2027-03-26T00:00:00\+00:00"):
        await scheduler.run_until("2027-03-25T00:00")


@pytest.mark.parametrize("when", ["tomorrow", "2027-13-01", ""])
async def test_an_invalid_instant_is_refused(scheduler: VirtualScheduler, when: str) -> None:
    with pytest.raises(FieldError, match="is not an instant such as"):
        await scheduler.run_until(when)


async def test_a_year_passes_without_waiting(scheduler: VirtualScheduler) -> None:
    await scheduler.load(BACKUP)
    began = asyncio.get_running_loop().time()

    await scheduler.run_for("365d")

    scheduler.assert_ran("backup", 365)
    scheduler.assert_succeeded()
    assert asyncio.get_running_loop().time() - began < 30


# ---- functions -----------------------------------------------------------------------------------


async def test_a_function_that_nobody_described_succeeds(scheduler: VirtualScheduler) -> None:
    await scheduler.load(ASKED)

    await scheduler.trigger("asked")

    [run] = scheduler.runs("asked")
    assert (run.status, run.output, run.attempts) == (RunStatus.COMPLETED, None, 1)


async def test_a_function_returns_what_it_is_said_to_return(scheduler: VirtualScheduler) -> None:
    scheduler.function("f", returns={"size": 3})
    await scheduler.load(ASKED)

    await scheduler.trigger("asked")

    assert scheduler.runs("asked")[0].output == {"size": 3}


async def test_a_function_takes_virtual_time(scheduler: VirtualScheduler) -> None:
    scheduler.function("f", takes="5m")
    await scheduler.load(ASKED)

    await scheduler.trigger("asked")
    assert scheduler.runs("asked")[0].status is RunStatus.RUNNING
    await scheduler.run_for("5m")

    [run] = scheduler.runs("asked")
    assert (run.status, run.ended_at) == (RunStatus.COMPLETED, hour(0) + timedelta(minutes=5))


async def test_a_run_longer_than_its_timeout_is_ended_by_it(scheduler: VirtualScheduler) -> None:
    scheduler.function("f", takes="1h")
    await scheduler.load(ASKED | {"timeout": "10m"})

    await scheduler.trigger("asked")
    await scheduler.run_for("1h")

    [run] = scheduler.runs("asked")
    assert (run.status, run.error, run.ended_at) == (
        RunStatus.FAILED,
        "took longer than 600 s",
        hour(0) + timedelta(minutes=10),
    )


async def test_a_function_fails_with_what_it_is_said_to_raise(scheduler: VirtualScheduler) -> None:
    scheduler.function("f", raises=ConnectionError("no route"))
    await scheduler.load(ASKED)

    await scheduler.trigger("asked")

    [run] = scheduler.runs("asked")
    assert run.status is RunStatus.FAILED
    assert (run.error or "").startswith("ConnectionError: no route")


async def test_calls_may_go_one_by_one(scheduler: VirtualScheduler) -> None:
    scheduler.function("f", raises=[ConnectionError, None], takes=["1m", "2m"])
    await scheduler.load(ASKED | {"retry": {"max_attempts": 3, "initial_delay": "1h", "jitter": 0}})

    await scheduler.trigger("asked")
    await scheduler.run_for("2h")

    [run] = scheduler.runs("asked")
    assert (run.status, run.attempts) == (RunStatus.COMPLETED, 2)
    assert run.ended_at == hour(1) + timedelta(minutes=3)
    assert [call.attempt for call in scheduler.calls("f")] == [1, 2]


async def test_a_function_may_ask_to_be_called_again(scheduler: VirtualScheduler) -> None:
    scheduler.function("f", raises=[gnomon.Snooze(600), None])
    await scheduler.load(ASKED)

    await scheduler.trigger("asked")
    await scheduler.run_for("10m")

    assert [call.at for call in scheduler.calls("f")] == [hour(0), hour(0) + timedelta(minutes=10)]


async def test_calls_are_kept_with_what_they_were_given(scheduler: VirtualScheduler) -> None:
    await scheduler.load(ASKED | {"input": {"top": 3}})

    await scheduler.trigger("asked")
    await scheduler.trigger("asked", {"top": 5})

    assert [call.input for call in scheduler.calls("f")] == [{"top": 3}, {"top": 5}]


async def test_a_real_function_is_called(scheduler: VirtualScheduler) -> None:
    def double(number: int) -> int:
        return 2 * number

    scheduler.function("f", double)
    await scheduler.load(ASKED | {"input": {"number": 21}})

    await scheduler.trigger("asked")

    assert scheduler.runs("asked")[0].output == 42


async def test_a_real_coroutine_is_awaited_and_knows_virtual_time(scheduler: VirtualScheduler) -> None:
    seen: list[Any] = []

    async def look(ctx: gnomon.Context) -> None:
        await asyncio.sleep(0)
        seen.append((ctx.planned_at, ctx.deadline, ctx.attempt))

    scheduler.function("f", look)
    await scheduler.load(ASKED | {"timeout": "10m", "schedule": "0 * * * *"})

    await scheduler.run_for("1h")

    assert seen == [(hour(1), hour(1) + timedelta(minutes=10), 1)]


async def test_the_exception_of_a_real_function_is_its_outcome(scheduler: VirtualScheduler) -> None:
    def give_up() -> None:
        raise gnomon.GiveUp("no such customer")

    scheduler.function("f", give_up)
    await scheduler.load(ASKED | {"retry": {"max_attempts": 5}})

    await scheduler.trigger("asked")

    [run] = scheduler.runs("asked")
    assert (run.status, run.error, run.attempts) == (RunStatus.FAILED, "no such customer", 1)


async def test_input_that_does_not_fit_a_real_function_fails(scheduler: VirtualScheduler) -> None:
    def needs(number: int) -> int:
        return number

    scheduler.function("f", needs)
    await scheduler.load(ASKED)

    await scheduler.trigger("asked")

    assert "number" in (scheduler.runs("asked")[0].error or "")


async def test_a_real_function_is_given_secrets(scheduler: VirtualScheduler) -> None:
    seen = []

    def log_in(token: str) -> None:
        seen.append(token)

    scheduler.secret("TOKEN", "correct horse")
    scheduler.function("f", log_in)
    await scheduler.load(ASKED | {"input": {"token": "${secret:TOKEN}"}})

    await scheduler.trigger("asked")

    assert seen == ["correct horse"]


async def test_registered_functions_are_used_on_request(scheduler: VirtualScheduler) -> None:
    scheduler.use_functions("examples.company")
    await scheduler.load({"name": "probe", "function": "queues/probe"})

    await scheduler.trigger("probe")

    assert scheduler.runs("probe")[0].output is not None


# ---- policies and operators ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overlap", "begun"),
    [("skip", [1, 3]), ("queue", [1, 2.5, 4]), ("allow", [1, 2, 3, 4]), ("replace", [1, 2, 3, 4])],
)
async def test_a_run_in_the_way_is_met_as_the_overlap_policy_says(
    scheduler: VirtualScheduler, overlap: str, begun: list[float]
) -> None:
    scheduler.function("reports.make", takes="90m")
    await scheduler.load(HOURLY | {"overlap": overlap})

    await scheduler.run_for("4h")

    began = [run.started_at for run in scheduler.runs("report") if run.started_at]
    assert began == [hour(0) + timedelta(hours=at) for at in begun]


async def test_a_run_that_lasts_until_the_next_tick_is_in_its_way(scheduler: VirtualScheduler) -> None:
    scheduler.function("reports.make", takes="2h")
    await scheduler.load(HOURLY)

    await scheduler.run_for("6h")

    scheduler.assert_ran_at("report", "2027-03-26T01:00", "2027-03-26T04:00")


async def test_a_pause_swallows_ticks_until_it_is_over(scheduler: VirtualScheduler) -> None:
    await scheduler.load(HOURLY)
    await scheduler.pause("report")
    await scheduler.run_for("3h")
    await scheduler.resume("report")
    await scheduler.run_for("1h")

    reported = [(tick.kind, tick.reason, tick.count) for tick in scheduler.ticks("report")]
    assert reported == [(TickKind.SKIPPED, Reason.PAUSED, 3), (TickKind.FIRED, Reason.ON_TIME, 1)]


async def test_a_trigger_that_would_overlap_is_refused(scheduler: VirtualScheduler) -> None:
    scheduler.function("f", takes="1h")
    await scheduler.load(ASKED)
    await scheduler.trigger("asked")

    with pytest.raises(Overlapping):
        await scheduler.trigger("asked")


async def test_an_active_run_can_be_cancelled(scheduler: VirtualScheduler) -> None:
    scheduler.function("f", takes="1h")
    await scheduler.load(ASKED)
    execution = await scheduler.trigger("asked")

    await scheduler.cancel(execution)

    [run] = scheduler.runs("asked")
    assert (run.status, run.ended_at) == (RunStatus.CANCELLED, hour(0))


async def test_an_event_starts_what_listens(scheduler: VirtualScheduler) -> None:
    await scheduler.load({"name": "index", "function": "f", "on": {"event": "uploaded"}})

    await scheduler.emit("uploaded", {"path": "a.txt"})

    scheduler.assert_ran("index", 1)


async def test_events_that_are_gathered_start_one_run_when_the_time_has_come(scheduler: VirtualScheduler) -> None:
    await scheduler.load(
        {"name": "index", "function": "f", "on": {"event": "uploaded", "batch": {"max": 100, "wait": "10m"}}}
    )
    for _ in range(3):
        await scheduler.emit("uploaded")

    await scheduler.run_for("10m")

    scheduler.assert_ran("index", 1)


async def test_a_failure_for_good_leaves_a_dead_letter_that_can_be_replayed(scheduler: VirtualScheduler) -> None:
    scheduler.function("f", raises=[ValueError("bad")])
    await scheduler.load(ASKED | {"dead_letter": True})
    await scheduler.trigger("asked")

    [letter] = scheduler.dead_letters("asked")
    await scheduler.replay(letter.dead_letter_id)

    assert scheduler.dead_letters() == []
    assert [run.status for run in scheduler.runs("asked")] == [RunStatus.FAILED, RunStatus.COMPLETED]


async def test_steps_hand_data_to_each_other(scheduler: VirtualScheduler) -> None:
    scheduler.function("extract", returns={"rows": 3}, takes="10m")
    scheduler.function("load", lambda rows: f"{rows} rows")
    await scheduler.load(
        {
            "name": "etl",
            "schedule": "0 * * * *",
            "timeout": "1h",
            "dag": [
                {"step": "extract", "function": "extract"},
                {
                    "step": "load",
                    "function": "load",
                    "depends_on": ["extract"],
                    "input": {"rows": "${steps.extract.output.rows}"},
                },
            ],
        }
    )

    await scheduler.run_until("2027-03-26T01:10")

    [run] = scheduler.runs("etl")
    assert run.output == {"extract": {"rows": 3}, "load": "3 rows"}
    assert (run.status, run.ended_at) == (RunStatus.COMPLETED, hour(1) + timedelta(minutes=10))


# ---- outages -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("catchup", "runs"), [("none", 1), ("latest", 2), ("all", 4)])
async def test_ticks_during_an_outage_follow_the_catch_up_policy(
    scheduler: VirtualScheduler, catchup: str, runs: int
) -> None:
    await scheduler.load(HOURLY | {"catchup": catchup, "overlap": "allow"})
    await scheduler.run_until("2027-03-26T01:30")

    await scheduler.down_until("2027-03-26T04:30")

    scheduler.assert_ran("report", runs)


async def test_nothing_happens_during_an_outage(scheduler: VirtualScheduler) -> None:
    scheduler.function("reports.make", takes="10m")
    await scheduler.load(HOURLY)
    await scheduler.run_until("2027-03-26T01:05")

    await scheduler.down_until("2027-03-26T01:30")

    # Its attempt was lost at five past, and begins again half an hour later.
    assert [call.at for call in scheduler.calls("reports.make")] == [hour(1)]
    await scheduler.run_for("20m")
    [_, again] = scheduler.calls("reports.make")
    assert again.at >= hour(1) + timedelta(minutes=30)
    scheduler.assert_succeeded("report")


async def test_an_outage_that_would_end_in_the_past_is_none(scheduler: VirtualScheduler) -> None:
    scheduler.function("f", takes="10m")
    await scheduler.load(ASKED)
    await scheduler.trigger("asked")

    with pytest.raises(FieldError, match="is past"):
        await scheduler.down_until("2027-03-25T00:00")

    await scheduler.run_for("10m")
    assert scheduler.runs("asked")[0].attempts == 1


async def test_an_at_most_once_run_is_lost_with_its_process(scheduler: VirtualScheduler) -> None:
    scheduler.function("f", takes="10m")
    await scheduler.load(ASKED | {"delivery": "at_most_once"})
    await scheduler.trigger("asked")

    await scheduler.kill()

    [run] = scheduler.runs("asked")
    assert (run.status, len(scheduler.calls("f"))) == (RunStatus.FAILED, 1)
    assert (run.error or "").startswith("worker_lost")


async def test_a_clock_that_is_set_forth_leaves_ticks_to_catch_up_with(scheduler: VirtualScheduler) -> None:
    await scheduler.load(HOURLY | {"catchup": "latest"})

    await scheduler.set_clock(timedelta(hours=3, minutes=30))

    assert scheduler.now == hour(3) + timedelta(minutes=30)
    assert [(tick.kind, tick.count) for tick in scheduler.ticks("report")] == [
        (TickKind.COALESCED, 2),
        (TickKind.FIRED, 1),
    ]


async def test_a_clock_that_is_set_back_lets_nothing_run_twice(scheduler: VirtualScheduler) -> None:
    await scheduler.load(HOURLY)
    await scheduler.run_for("3h")

    await scheduler.set_clock(timedelta(hours=-2))
    await scheduler.run_for("3h")

    scheduler.assert_ran_at("report", hour(1), hour(2), hour(3), hour(4))


# ---- loading -------------------------------------------------------------------------------------


async def test_a_file_is_found_beside_the_test(tmp_path: Path) -> None:
    (tmp_path / "jobs.yaml").write_text("jobs: [{name: a, schedule: '@hourly', function: f}]")
    scheduler = VirtualScheduler(folder=tmp_path)

    await scheduler.load("jobs.yaml")
    await scheduler.run_for("1h")

    scheduler.assert_ran("a", 1)


async def test_a_file_that_is_wrong_is_refused(tmp_path: Path) -> None:
    (tmp_path / "jobs.yaml").write_text("jobs: [{name: a, schedule: 'now and then', function: f}]")

    with pytest.raises(JobsFileError):
        await VirtualScheduler(folder=tmp_path).load("jobs.yaml")


async def test_loading_a_changed_job_changes_it(scheduler: VirtualScheduler) -> None:
    await scheduler.load(HOURLY)
    await scheduler.run_for("2h")

    await scheduler.load(HOURLY | {"schedule": "30 * * * *"})
    await scheduler.run_for("1h")

    assert [run.planned_at for run in scheduler.runs("report")] == [hour(1), hour(2), hour(2) + timedelta(minutes=30)]


async def test_a_job_that_was_deleted_can_still_be_looked_at(scheduler: VirtualScheduler) -> None:
    await scheduler.load(HOURLY)
    await scheduler.run_for("1h")
    await scheduler.delete("report")
    await scheduler.run_for("5h")
    await scheduler.load(HOURLY)
    await scheduler.run_for("1h")

    assert [tick.planned_at for tick in scheduler.ticks("report")] == [hour(1), hour(7)]
    scheduler.assert_ran("report", 2)


def test_a_job_that_never_was_is_no_job_without_runs(scheduler: VirtualScheduler) -> None:
    with pytest.raises(NotFound):
        scheduler.runs("bakcup")


# ---- demanding -----------------------------------------------------------------------------------


async def test_a_failed_assertion_shows_the_difference(scheduler: VirtualScheduler) -> None:
    scheduler.function("reports.make", takes="90m", raises=[ValueError("bad day")])
    await scheduler.load(HOURLY | {"catchup": "all"})
    await scheduler.run_for("4h")

    with pytest.raises(AssertionError, match=r"report ran 2 times, not 5\n  report planned 2027-03-26T01:00:00"):
        scheduler.assert_ran("report", 5)
    with pytest.raises(AssertionError, match="report did not run at 2027-03-26T01:00:00"):
        scheduler.assert_ran_at("report", "2027-03-26T01:00")
    with pytest.raises(AssertionError, match=r"2 of 2 executions did not succeed\n.* failed: ValueError: bad day"):
        scheduler.assert_succeeded()
    with pytest.raises(AssertionError, match=r"2 ticks did not run\n.*T02:00:00\+00:00 skipped \(overlap\)"):
        scheduler.assert_every_tick_ran()


async def test_executions_beside_each_other_are_found(scheduler: VirtualScheduler) -> None:
    scheduler.function("reports.make", takes="90m")
    await scheduler.load(HOURLY | {"overlap": "allow"})
    await scheduler.run_until("2027-03-26T01:59")
    scheduler.assert_no_overlap("report")
    await scheduler.run_for("4h")

    with pytest.raises(AssertionError, match="two executions of report overlap"):
        scheduler.assert_no_overlap("report")


async def test_a_failed_assertion_leaves_out_the_matching_runs(scheduler: VirtualScheduler) -> None:
    await scheduler.load(HOURLY)
    await scheduler.run_for("3h")

    scheduler.assert_ran("report")
    scheduler.assert_ran("report", 3)
    scheduler.assert_succeeded()
    scheduler.assert_every_tick_ran("report")
    scheduler.assert_no_overlap("report")


async def test_a_job_that_did_not_run_is_reported(scheduler: VirtualScheduler) -> None:
    await scheduler.load(ASKED)

    with pytest.raises(AssertionError, match="asked ran 0 times, not at all"):
        scheduler.assert_ran("asked")


async def test_no_run_waits_for_an_announcement_that_nobody_sends(scheduler: VirtualScheduler) -> None:
    await scheduler.load({**ASKED, "announce": {"channel": "ops", "to": "C1", "best_effort": False}})

    await scheduler.trigger("asked")
    await scheduler.run_for("1m")

    [run] = scheduler.runs("asked")
    assert run.status == "completed"


# ---- deadlines -----------------------------------------------------------------------------------


@pytest.mark.req("R-07")
async def test_a_run_ends_at_its_deadline_in_the_middle_of_a_function(scheduler: VirtualScheduler) -> None:
    scheduler.function("reports.make", takes="2h")
    await scheduler.load({**HOURLY, "deadline": "30m", "retry": {"max_attempts": 5}, "overlap": "allow"})

    await scheduler.run_until("2027-03-26T02:00")

    [run] = [one for one in scheduler.runs("report") if one.ended_at is not None]
    assert run.status is RunStatus.FAILED
    assert run.ended_at == hour(1) + timedelta(minutes=30)
    assert "its deadline passed" in (run.error or "")


@pytest.mark.req("R-07")
async def test_a_retry_after_the_deadline_is_not_made(scheduler: VirtualScheduler) -> None:
    scheduler.function("f", raises=ValueError("no luck"))
    await scheduler.load({**ASKED, "retry": {"max_attempts": 10, "initial_delay": "10m", "multiplier": 1, "jitter": 0}})
    await scheduler.trigger("asked", deadline="25m")

    await scheduler.run_for("2h")

    [run] = scheduler.runs("asked")
    assert len(scheduler.calls("f")) == 3
    assert run.ended_at == hour(0) + timedelta(minutes=20)
    assert "its deadline passed" in (run.error or "")


@pytest.mark.req("R-07")
async def test_a_queued_run_ends_at_its_deadline(scheduler: VirtualScheduler) -> None:
    scheduler.function("f", takes="50m")
    await scheduler.load({**ASKED, "overlap": "queue"})
    await scheduler.trigger("asked")
    await scheduler.trigger("asked", deadline="10m")

    await scheduler.run_for("20m")

    ended = [one for one in scheduler.runs("asked") if one.ended_at is not None]
    assert [(one.status, one.ended_at) for one in ended] == [(RunStatus.FAILED, hour(0) + timedelta(minutes=10))]
