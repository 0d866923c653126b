"""When tasks run: minutes, missed ones, retries, long runs, clock changes and set clocks."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest

from support.declarative_world import DAY, HOUR, MINUTE, SECOND, DeclarativeWorld

NewWorld = Callable[..., DeclarativeWorld]


@pytest.mark.req("D-02")
async def test_a_task_runs_at_the_beginning_of_every_minute_that_matches(new_world: NewWorld) -> None:
    world = new_world("2026-03-02T12:00:30")
    await world.started(world.task("a", "1,3 * * * *"))

    await world.drive(5 * MINUTE)

    assert world.ran == ["a 02 12:01:00", "a 02 12:03:00"]


@pytest.mark.req("D-05")
async def test_a_new_task_runs_at_once_if_the_present_minute_matches(new_world: NewWorld) -> None:
    world = new_world("2026-03-02T12:00:30")
    await world.started(world.task("now", "0 * * * *"), world.task("later", "1 * * * *"))

    assert world.ran == ["now 02 12:00:30"]


@pytest.mark.req("D-05")
async def test_nothing_runs_before_initialize_has_returned(world: DeclarativeWorld) -> None:
    process = world.process()

    await process.initialize([world.task("a")])

    assert world.ran == []
    await world.clock.settle()
    assert world.ran == ["a 02 12:00:00"]


@pytest.mark.req("D-05")
async def test_occurrences_before_the_first_registration_are_nobodys_business(world: DeclarativeWorld) -> None:
    await world.started(world.task("daily", "59 11 * * *"))

    await world.drive(23 * HOUR)

    assert world.ran == []


@pytest.mark.req("D-05")
async def test_a_task_that_was_added_later_is_new_although_the_state_is_not(world: DeclarativeWorld) -> None:
    first = await world.started(world.task("old"))
    await first.stop()
    await world.drive(90 * SECOND)

    await world.started(world.task("old"), world.task("new", "1 12 * * *"), world.task("late", "0 12 * * *"))

    assert sorted(world.ran) == ["new 02 12:01:30", "old 02 12:00:00", "old 02 12:01:30"]


@pytest.mark.req("D-02")
async def test_tasks_that_are_due_together_run_beside_each_other(world: DeclarativeWorld) -> None:
    both = asyncio.Barrier(2)

    async def meet() -> None:
        await both.wait()

    await world.started(world.task("a", body=meet), world.task("b", body=meet))

    assert world.event_names().count("TaskRunCompleted") == 2


@pytest.mark.req("D-02", "D-07")
async def test_a_task_never_runs_beside_itself_and_what_came_due_meanwhile_runs_once_right_after(
    world: DeclarativeWorld,
) -> None:
    await world.started(world.task("slow", body=world.body_lasting(150 * SECOND)))

    await world.drive(5 * MINUTE)

    assert world.ran == ["slow 02 12:00:00", "slow 02 12:02:30", "slow 02 12:05:00"]


@pytest.mark.req("D-04")
@pytest.mark.parametrize("downtime", [HOUR, 48 * HOUR, 7 * DAY])
async def test_after_downtime_a_task_runs_once_however_often_it_was_missed(
    world: DeclarativeWorld, downtime: int
) -> None:
    quarterly = world.task("q", "0,15,30,45 * * * *")
    first = await world.started(quarterly)
    await first.stop()
    await world.drive(downtime + 5 * MINUTE)
    world.ran.clear()

    await world.started(quarterly)
    await world.drive(5 * MINUTE)

    assert len(world.ran) == 1
    await world.drive(10 * MINUTE)
    # And then it is back on its grid.
    assert [text[-5:] for text in world.ran] == ["05:00", "15:00"]


@pytest.mark.req("D-04")
async def test_a_suspended_machine_is_downtime_too(world: DeclarativeWorld) -> None:
    await world.started(world.task("a", "0 * * * *"))
    world.step_clock(5 * HOUR + 20 * MINUTE)

    await world.drive(70 * SECOND)

    assert world.ran == ["a 02 12:00:00", "a 02 17:21:00"]
    assert world.events[-2].cause == "missed"


@pytest.mark.req("D-05")
async def test_a_restart_in_the_minute_of_a_run_does_not_run_it_again(world: DeclarativeWorld) -> None:
    first = await world.started(world.task("a"))
    await first.stop()
    await world.drive(20 * SECOND)

    await world.started(world.task("a"))
    await world.drive(20 * SECOND)

    assert world.ran == ["a 02 12:00:00"]


@pytest.mark.req("D-05")
async def test_a_task_that_never_ran_is_owed_what_came_due_since_its_registration_and_was_missed(
    world: DeclarativeWorld,
) -> None:
    task = world.task("a", "0 13 * * *")
    first = await world.started(task)
    await first.stop()
    await world.drive(90 * MINUTE)

    await world.started(task)

    assert world.ran == ["a 02 13:30:00"]


# ---- retries -------------------------------------------------------------------------------------


@pytest.mark.req("D-07")
async def test_a_failed_task_is_tried_again_when_its_delay_is_over_and_not_before(world: DeclarativeWorld) -> None:
    hours = world.task("a", "0 * * * *", delay=timedelta(seconds=90), body=world.body_lasting(5 * SECOND, fails=True))
    await world.started(hours)

    await world.drive(94 * SECOND)
    assert world.ran == ["a 02 12:00:00"]
    await world.drive(SECOND)

    assert world.ran == ["a 02 12:00:00", "a 02 12:01:35"]
    assert world.event_names(task="a") == ["TaskRunStarted", "TaskRunFailed", "TaskRetryStarted"]


@pytest.mark.req("D-07")
async def test_a_due_occurrence_preempts_a_retry_which_is_then_forgotten(world: DeclarativeWorld) -> None:
    outcomes = iter([True, False])

    async def body() -> None:
        if next(outcomes, False):
            raise ValueError

    await world.started(world.task("a", "0 * * * *", delay=timedelta(minutes=90), body=body))

    await world.drive(100 * MINUTE)

    assert world.ran == ["a 02 12:00:00", "a 02 13:00:00"]
    assert world.event_names(task="a")[1:] == [
        "TaskRunFailed",
        "TaskRetryPreempted",
        "TaskRunStarted",
        "TaskRunCompleted",
    ]
    assert "pendingRetryUntil" not in world.record("a")


@pytest.mark.req("D-07")
async def test_a_time_that_passed_during_a_failed_run_starts_at_once_without_the_retry_delay(
    world: DeclarativeWorld,
) -> None:
    slow = world.body_lasting(90 * SECOND, fails=True)
    await world.started(world.task("a", "0,1 * * * *", delay=timedelta(minutes=30), body=slow))

    await world.drive(2 * MINUTE)

    assert world.ran == ["a 02 12:00:00", "a 02 12:01:30"]
    assert world.event_names(task="a")[2:] == ["TaskRetryPreempted", "TaskRunStarted"]


@pytest.mark.req("D-07")
@pytest.mark.parametrize(
    ("down", "name"), [(4 * MINUTE, "TaskRetryStarted"), (70 * MINUTE, "TaskRunStarted")], ids=["retry", "cron"]
)
async def test_retry_and_cron_due_together_are_one_run(world: DeclarativeWorld, down: int, name: str) -> None:
    task = world.task("a", "0 * * * *", delay=timedelta(minutes=1), body=world.body_lasting(0, fails=True))
    first = await world.started(task)
    await first.stop()
    await world.drive(down)

    second = await world.started(task)
    await second.stop()

    assert len(world.ran) == 2
    assert [reported for reported in world.event_names(task="a") if reported.endswith("Started")][-1] == name


@pytest.mark.req("D-07")
async def test_no_delay_at_all_is_no_spin(world: DeclarativeWorld) -> None:
    await world.started(world.task("a", "0 * * * *", body=world.body_lasting(0, fails=True)))

    await world.drive(10 * SECOND)

    assert len(world.ran) == 11


@pytest.mark.req("D-07")
@pytest.mark.parametrize(
    ("delay", "ms"), [(timedelta(microseconds=1), 1), (timedelta(days=365), 365 * DAY), (timedelta.max, 10**9 * DAY)]
)
async def test_a_delay_may_be_short_and_long(world: DeclarativeWorld, delay: timedelta, ms: int) -> None:
    await world.started(world.task("a", "0 * * * *", delay=delay, body=world.body_lasting(0, fails=True)))

    assert world.record("a")["pendingRetryUntil"] == world.instant("2026-03-02T12:00:00") + ms


@pytest.mark.req("D-07")
async def test_the_timestamps_of_a_task_are_kept(world: DeclarativeWorld) -> None:
    outcomes = iter([False, True])

    async def body() -> None:
        await world.clock.sleep(2)
        if next(outcomes, False):
            raise ValueError

    noon = world.clock.now()
    await world.started(world.task("a", delay=timedelta(minutes=5), body=body))
    await world.drive(90 * SECOND)

    record = world.record("a")
    assert record["lastAttemptAt"] == noon + MINUTE
    assert record["lastSuccessAt"] == noon + 2 * SECOND
    assert record["lastFailureAt"] == noon + MINUTE + 2 * SECOND
    assert record["pendingRetryUntil"] == noon + MINUTE + 2 * SECOND + 5 * MINUTE


@pytest.mark.req("D-07")
async def test_a_pending_retry_outlives_a_restart(world: DeclarativeWorld) -> None:
    task = world.task("a", "0 12 * * *", delay=timedelta(minutes=10), body=world.body_lasting(0, fails=True))
    first = await world.started(task)
    await first.stop()
    await world.drive(5 * MINUTE)
    await world.started(task)

    await world.drive(6 * MINUTE)

    assert world.ran == ["a 02 12:00:00", "a 02 12:10:00"]


@pytest.mark.req("D-15")
@pytest.mark.parametrize(
    "error",
    [
        ValueError("x"),
        asyncio.CancelledError(),
        SystemExit(1),
        ExceptionGroup("g", [KeyError("k")]),
        GeneratorExit(),
        BaseExceptionGroup("g", [SystemExit(1)]),
        BaseException("no Exception"),
    ],
)
async def test_an_exception_of_a_callback_is_a_failure_and_affects_no_other(
    world: DeclarativeWorld, error: BaseException
) -> None:
    async def body() -> None:
        raise error

    await world.started(world.task("bad", body=body, delay=timedelta(hours=1)), world.task("good"))

    await world.drive(2 * MINUTE)

    assert world.event_names(task="bad") == [
        "TaskRunStarted",
        *(["TaskRunFailed", "TaskRetryPreempted", "TaskRunStarted"] * 2),
        "TaskRunFailed",
    ]
    assert world.event_names(task="good").count("TaskRunCompleted") == 3


@pytest.mark.req("D-15")
async def test_a_cancelled_run_has_failed_and_the_task_continues(world: DeclarativeWorld) -> None:
    async def body() -> None:
        this = asyncio.current_task()
        assert this is not None
        this.cancel()
        await asyncio.sleep(0)

    await world.started(world.task("a", body=body, delay=timedelta(hours=1)))

    await world.drive(MINUTE)

    assert len(world.ran) == 2
    assert world.event_names(task="a").count("TaskRunFailed") == 2


# ---- clocks --------------------------------------------------------------------------------------


@pytest.mark.req("D-03")
async def test_a_skipped_minute_does_not_run_and_is_not_missed(new_world: NewWorld) -> None:
    world = new_world("2026-03-08T01:00:00", zone="America/New_York")
    await world.started(world.task("gone", "30 2 * * *"), world.task("hourly", "59 * * * *"))

    await world.drive_to("2026-03-09T02:45:00")

    assert [text for text in world.ran if text.startswith("gone")] == ["gone 09 02:30:00"]
    assert world.ran[:2] == ["hourly 08 01:59:00", "hourly 08 03:59:00"]


@pytest.mark.req("D-03")
async def test_a_repeated_minute_runs_both_times(new_world: NewWorld) -> None:
    world = new_world("2026-11-01T00:10:00", zone="America/New_York")
    await world.started(world.task("a", "30 1 * * *"))

    await world.drive(5 * HOUR)

    assert world.ran == ["a 01 01:30:00", "a 01 01:30:00"]
    assert world.events[-2].at - world.events[-4].at == timedelta(hours=1)


@pytest.mark.req("D-03")
async def test_the_second_time_counts_as_missed_across_a_restart_within_the_repeated_hour(new_world: NewWorld) -> None:
    world = new_world("2026-11-01T01:30:00", zone="America/New_York")
    task = world.task("a", "30 1 * * *")
    first = await world.started(task)
    await first.stop()
    await world.drive(80 * MINUTE)

    await world.started(task)

    assert world.ran == ["a 01 01:30:00", "a 01 01:50:00"]


@pytest.mark.req("D-03")
async def test_a_retry_delay_is_elapsed_time_whatever_the_clock_on_the_wall_does(new_world: NewWorld) -> None:
    world = new_world("2026-11-01T01:50:00", zone="America/New_York")
    failing = world.body_lasting(0, fails=True)
    await world.started(world.task("a", "50 1 1 11 *", delay=timedelta(minutes=20), body=failing))

    await world.drive(21 * MINUTE)

    assert world.ran == ["a 01 01:50:00", "a 01 01:10:00"]


@pytest.mark.req("D-03", "D-04")
async def test_a_clock_set_back_repeats_nothing_until_it_has_passed_the_last_attempt(world: DeclarativeWorld) -> None:
    await world.started(world.task("a", "0,30 * * * *"))
    world.set_clock("2026-03-02T10:00:00")

    await world.drive(3 * HOUR)

    assert world.ran == ["a 02 12:00:00", "a 02 12:30:00", "a 02 13:00:00"]


@pytest.mark.req("D-07")
async def test_a_clock_set_back_during_a_run_that_fails_does_not_delay_its_retry(world: DeclarativeWorld) -> None:
    failing = world.body_lasting(30 * SECOND, fails=True)
    await world.started(world.task("a", "0 12 * * *", delay=timedelta(minutes=5), body=failing))
    world.set_clock("2026-03-01T12:00:00")

    await world.drive(6 * MINUTE)

    assert world.ran == ["a 02 12:00:00", "a 01 12:05:30"]


@pytest.mark.req("D-16")
async def test_state_from_the_future_is_no_obstacle(new_world: NewWorld) -> None:
    world = new_world("2100-01-01T00:00:00")
    task = world.task("a")
    first = await world.started(task)
    await first.stop()
    world.set_clock("1970-01-02T00:00:00")

    await world.started(task, world.task("b"))
    await world.drive(HOUR)

    assert [text for text in world.ran if text.startswith("a")] == ["a 01 00:00:00"]
    assert len(world.ran) == 1 + 61


@pytest.mark.req("D-02")
async def test_a_clock_set_back_during_a_run_leaves_no_task_running_for_ever(world: DeclarativeWorld) -> None:
    await world.started(world.task("a", body=world.body_lasting(30 * SECOND)))
    await world.drive(SECOND)
    world.step_clock(-HOUR)

    await world.drive(2 * HOUR + 30 * SECOND)

    assert "schedulerIdentifier" not in world.record("a")
    assert len(world.ran) == 1 + 60


# ---- many ----------------------------------------------------------------------------------------


@pytest.mark.req("D-02", "D-17")
@pytest.mark.parametrize("faults", [[], ["", "fail"], ["", "", "fail", "fail"], ["fail"]])
async def test_more_tasks_than_share_a_commit_all_start_once_although_some_commits_fail(
    world: DeclarativeWorld, faults: list[str]
) -> None:
    await world.started(*(world.task(f"t{number}", "1 12 * * *") for number in range(4500)))
    world.faults = faults

    await world.drive(MINUTE + 5 * SECOND)

    assert len(world.ran) == len(set(world.ran)) == 4500
    # Starts and outcomes share commits: there are a few of them, not thousands.
    assert world.writes < 12


@pytest.mark.req("D-15", "D-17")
async def test_a_stop_among_many_starts_lets_no_more_begin_and_the_rest_is_owed(world: DeclarativeWorld) -> None:
    tasks = [world.task(f"t{number}", "1 12 * * *") for number in range(4500)]
    world.turns = lambda: 5
    process = world.process()
    await process.initialize(tasks)
    await world.drive(MINUTE, until=lambda: len(world.ran) > 0)
    begun = len(world.ran)
    stopping = asyncio.create_task(process.stop())
    await world.drive(SECOND)
    await stopping
    assert 0 < begun == len(world.ran) < 4500

    await world.started(*tasks)
    await world.drive(5 * SECOND)

    assert len({text.split()[0] for text in world.ran}) == len(world.ran) == 4500
