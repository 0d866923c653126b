"""The stored state: overrides, orphans, crashes at every commit, failing writes, implausible records."""

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from gnomon.declarative import MemoryState, Scheduler, counters_of, errors
from gnomon.testing.clock import DrivenClock
from support.declarative_world import HOUR, MINUTE, SECOND, DeclarativeWorld

NewWorld = Callable[..., DeclarativeWorld]
DELAY = timedelta(minutes=10)


# ---- overrides -----------------------------------------------------------------------------------


@pytest.mark.req("D-13", "D-16")
async def test_an_unchanged_state_is_not_written_again(world: DeclarativeWorld) -> None:
    first = await world.started(world.task("a", "0 13 * * *"))
    await first.stop()
    before = dict(world.state.rows)

    second = await world.started(world.task("a", "0 13 * * *"))
    await second.stop()

    assert (world.writes, world.state.rows) == (1, before)


@pytest.mark.req("D-13")
async def test_a_new_configuration_keeps_the_history(world: DeclarativeWorld) -> None:
    first = await world.started(world.task("a", delay=DELAY, body=world.body_lasting(0, fails=True)))
    await first.stop()
    before = world.record("a")

    second = await world.started(world.task("a", "30 15 * * *", delay=timedelta(hours=2)))
    await second.stop()

    assert world.record("a") == before | {"cronExpression": "30 15 * * *", "retryDelayMs": 2 * HOUR}
    assert before["pendingRetryUntil"] == world.clock.now() + 10 * MINUTE


@pytest.mark.req("D-13")
@pytest.mark.parametrize(("cron", "changed"), [("0  13 * * *", True), ("0 13 * * *", False)])
async def test_expressions_are_compared_as_they_are_written(
    world: DeclarativeWorld, cron: str, *, changed: bool
) -> None:
    first = await world.started(world.task("a", "0 13 * * *"))
    await first.stop()

    await world.started(world.task("a", cron))

    assert world.writes == 1 + changed


@pytest.mark.req("D-13")
async def test_occurrences_of_a_new_expression_count_since_the_last_attempt(world: DeclarativeWorld) -> None:
    first = await world.started(world.task("a", "0 * * * *"))
    await first.stop()
    await world.drive(30 * MINUTE)

    await world.started(world.task("a", "15 * * * *"))

    assert world.ran == ["a 02 12:00:00", "a 02 12:30:00"]


@pytest.mark.req("D-13")
@pytest.mark.parametrize(("cron", "ran"), [("30 * * * *", []), ("0 12 * * *", ["a 02 12:05:00"])])
async def test_a_task_that_was_due_when_it_was_registered_is_due_by_its_new_expression(
    world: DeclarativeWorld, cron: str, ran: list[str]
) -> None:
    first = world.process()
    await first.initialize([world.task("a", "* * * * *")])
    await first.stop()  # before the task has started
    assert world.record("a")["dueAtRegistration"]
    await world.drive(5 * MINUTE)

    await world.started(world.task("a", cron))

    assert world.ran == ran


@pytest.mark.req("D-16")
async def test_a_failure_without_an_attempt_counts_as_one() -> None:
    clock, started = DrivenClock(5 * HOUR), asyncio.Event()

    async def task() -> None:
        started.set()

    record = {"name": "a", "cronExpression": "0 * * * *", "retryDelayMs": HOUR, "registeredAt": 0}
    failure = {"lastFailureAt": clock.now(), "pendingRetryUntil": clock.now() + 10 * MINUTE}
    state = MemoryState([(1, msgspec.json.encode(record | failure).decode())])
    causes: list[str] = []
    scheduler = Scheduler(state, clock=clock, timezone="UTC", on_event=lambda event: causes.append(event.cause))

    await scheduler.initialize([("a", "0 * * * *", task, timedelta(hours=1))])
    await clock.drive(10 * MINUTE - 1)
    assert not started.is_set()
    await clock.drive(1)

    assert started.is_set()
    assert causes[-2:] == ["retry", "callback"]
    await scheduler.stop()


@pytest.mark.req("D-17")
async def test_tasks_that_a_clock_far_ahead_has_silenced_are_named(
    world: DeclarativeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    process = await world.started(world.task("a", "0 * * * *"))
    world.step_clock(3 * 365 * 24 * HOUR)
    await world.drive(MINUTE)
    assert "the clock was ahead" not in caplog.text

    world.step_clock(-3 * 365 * 24 * HOUR)
    await world.drive(2 * MINUTE)
    assert caplog.text.count("the clock was ahead: a started later than it is now") == 1
    assert "may not start again before 2029-03-01T12:01" in caplog.text
    assert counters_of(process.scheduler).silenced_tasks == 1

    await process.stop()
    await world.started(world.task("a", "0 * * * *"))
    assert caplog.text.count("the clock was ahead") == 2


@pytest.mark.req("D-13")
async def test_a_new_expression_does_not_reach_back_before_the_registration(new_world: NewWorld) -> None:
    world = new_world("2026-03-02T12:00:30")
    first = await world.started(world.task("a", "0 14 * * *"))
    await first.stop()
    await world.drive(10 * MINUTE)

    await world.started(world.task("a", "0 12 * * *"))

    assert world.ran == []


@pytest.mark.req("D-13")
async def test_a_task_that_is_taken_out_is_forgotten_and_new_when_it_comes_back(world: DeclarativeWorld) -> None:
    first = await world.started(world.task("a"), world.task("b", "0 13 * * *"))
    await first.stop()
    second = await world.started(world.task("b", "0 13 * * *"))
    assert len(world.state.rows) == 1
    await second.stop()
    await world.drive(5 * HOUR)

    third = await world.started(world.task("a", "0 13 * * *"), world.task("b", "0 13 * * *"))
    await third.stop()

    assert world.ran == ["a 02 12:00:00", "b 02 17:00:00"]


@pytest.mark.req("D-13")
async def test_the_effects_of_registrations_are_reported_in_one_line(
    world: DeclarativeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    first = await world.started(world.task("gone"), world.task("a", delay=DELAY))
    await first.stop()
    caplog.set_level(logging.INFO, "gnomon.declarative")
    caplog.clear()

    await world.started(world.task("a", "5 * * * *"), world.task("new"))

    [line] = [line for line in caplog.records if line.getMessage().startswith("registrations")]
    assert line.getMessage() == "registrations: 1 added, 1 removed, 2 fields modified, 0 orphaned"
    said: dict[str, Any] = vars(line)
    assert (said["removed"], said["added"], said["total"]) == (["gone"], ["new"], 4)
    assert said["modified"] == [
        {"name": "a", "field": "cronExpression", "from": "* * * * *", "to": "5 * * * *"},
        {"name": "a", "field": "retryDelayMs", "from": 600_000, "to": 0},
    ]


@pytest.mark.req("D-13")
async def test_overrides_that_cannot_be_written_change_nothing(world: DeclarativeWorld) -> None:
    first = await world.started(world.task("a", "0 13 * * *"), world.task("b", "0 13 * * *"))
    await first.stop()
    before = dict(world.state.rows)
    world.faults = ["fail"]
    process = world.process()
    process.watched.excused = True

    with pytest.raises(errors.StateUnavailableError):
        await process.initialize([world.task("b", "0 14 * * *"), world.task("c")])

    assert world.state.rows == before
    await process.initialize([world.task("b", "0 14 * * *")])
    assert world.record("b")["cronExpression"] == "0 14 * * *"


# ---- orphans and crashes -------------------------------------------------------------------------


@pytest.mark.req("D-13", "D-14")
async def test_a_task_that_was_running_in_a_crash_starts_again_at_once(world: DeclarativeWorld) -> None:
    task = world.task("a", "0 12 * * *", delay=DELAY, body=world.body_lasting(HOUR))
    first = await world.started(task)
    await world.drive(SECOND)
    identifier = world.record("a")["schedulerIdentifier"]
    await first.kill()
    await world.drive(90 * SECOND)

    await world.started(task)

    assert world.ran == ["a 02 12:00:00", "a 02 12:01:31"]
    assert world.events[-1].cause == "orphan"
    assert world.record("a")["schedulerIdentifier"] != identifier


@pytest.mark.req("D-13")
async def test_an_orphan_with_a_new_configuration_starts_at_once_too(world: DeclarativeWorld) -> None:
    first = await world.started(world.task("a", "0 12 * * *", body=world.body_lasting(HOUR)))
    await first.kill()

    await world.started(world.task("a", "0 15 1 1 *", delay=DELAY))

    assert world.ran == ["a 02 12:00:00"] * 2
    assert world.record("a")["cronExpression"] == "0 15 1 1 *"


@pytest.mark.req("D-04", "D-13")
async def test_an_orphan_that_also_missed_occurrences_runs_once(world: DeclarativeWorld) -> None:
    first = await world.started(world.task("a", body=world.body_lasting(30 * SECOND)))
    await first.kill()
    await world.drive(HOUR + 5 * SECOND)

    await world.started(world.task("a"))
    await world.drive(50 * SECOND)

    assert world.ran == ["a 02 12:00:00", "a 02 13:00:05"]


@pytest.mark.req("D-13")
async def test_an_orphan_that_is_not_registered_any_more_is_dropped(world: DeclarativeWorld) -> None:
    first = await world.started(world.task("a", body=world.body_lasting(HOUR)))
    await first.kill()

    await world.started(world.task("b", "0 13 * * *"))

    assert [world.record("b")["name"], len(world.state.rows)] == ["b", 1]


@pytest.mark.req("D-13")
async def test_an_orphan_is_one_until_it_was_started_however_often_everything_crashes(world: DeclarativeWorld) -> None:
    task = world.task("a", "0 12 * * *", body=world.body_lasting(HOUR))
    first = await world.started(task)
    await first.kill()
    world.turns = lambda: 3
    for _ in range(3):
        process = world.process()
        await process.initialize([task])
        await process.kill()
    world.turns = lambda: 0

    await world.started(task)

    assert world.ran == ["a 02 12:00:00"] * 2


@pytest.mark.req("D-16")
@pytest.mark.parametrize("fault", ["die before", "die after"])
@pytest.mark.parametrize("commit", range(6))
async def test_a_crash_at_any_commit_loses_nothing_and_doubles_nothing_that_was_written(
    world: DeclarativeWorld, fault: str, commit: int
) -> None:
    tasks = [
        world.task("a", delay=DELAY),
        world.task("b", "0 * * * *", body=world.body_lasting(30 * SECOND, fails=True)),
    ]
    world.faults = [""] * commit + [fault]
    process = world.process()
    initialising = asyncio.create_task(process.initialize(tasks))
    await world.drive(5 * MINUTE, until=lambda: not process.alive)
    assert not process.alive
    await process.kill()
    assert initialising.done()

    await world.started(*tasks)
    await world.drive_to("2026-03-02T12:06:00")

    assert "a 02 12:06:00" in world.ran


@pytest.mark.req("D-16")
async def test_the_events_of_a_quiet_process_are_written(world: DeclarativeWorld) -> None:
    first = await world.started(world.task("a"), world.task("b", body=world.body_lasting(0, fails=True), delay=DELAY))

    await first.kill()

    assert [name for name in ("a", "b") if "schedulerIdentifier" in world.record(name)] == []
    assert world.record("a")["lastSuccessAt"] == world.record("b")["lastFailureAt"] == world.clock.now()


# ---- writes that fail ----------------------------------------------------------------------------


@pytest.mark.req("D-16")
async def test_an_outcome_that_could_not_be_written_is_written_later(
    world: DeclarativeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    process = await world.started(world.task("a", body=world.body_lasting(SECOND)))
    world.failing = True
    await world.drive(5 * SECOND)
    assert "schedulerIdentifier" in world.record("a")

    world.failing = False
    await world.drive(2 * SECOND)

    assert world.record("a")["lastSuccessAt"] == world.instant("2026-03-02T12:00:01")
    assert counters_of(process.scheduler).failed_writes > 1
    assert "will be retried" in caplog.text


@pytest.mark.req("D-16")
async def test_a_start_is_written_also_where_the_last_outcome_is_not_yet(world: DeclarativeWorld) -> None:
    process = await world.started(world.task("a", body=world.body_lasting(59_500)))
    await world.drive(30 * SECOND)
    world.failing = True
    await world.drive(29_800)
    world.failing = False
    await world.drive(400)
    assert world.ran[1:] == ["a 02 12:01:00"]

    await process.kill()

    assert world.record("a")["lastSuccessAt"] == world.instant("2026-03-02T12:00:59") + 500
    assert "schedulerIdentifier" in world.record("a")


@pytest.mark.req("D-16")
async def test_nothing_starts_that_could_not_be_written_and_it_starts_as_soon_as_it_can(
    world: DeclarativeWorld,
) -> None:
    await world.started(world.task("a", "1 * * * *"))
    world.failing = True
    await world.drive(90 * SECOND)
    assert world.ran == []

    world.failing = False
    await world.drive(SECOND)

    assert world.ran == ["a 02 12:01:31"]


@pytest.mark.req("D-15", "D-16")
async def test_a_stop_ends_although_nothing_can_be_written_and_the_task_runs_again(
    world: DeclarativeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    process = await world.started(world.task("a", "0 12 * * *", body=world.body_lasting(SECOND)))
    world.failing = True
    stopping = asyncio.create_task(process.stop())
    await world.drive(5 * SECOND)
    await stopping

    assert counters_of(process.scheduler).lost_outcomes == 1
    assert "stopped with 1 outcomes unwritten" in caplog.text
    world.failing = False
    world.note_crash()  # unwritten events are as lost as in a crash
    await world.started(world.task("a", "0 12 * * *"))
    assert world.ran == ["a 02 12:00:00", "a 02 12:00:05"]


@pytest.mark.req("D-15", "D-16")
async def test_a_stop_between_mark_and_start_takes_the_mark_back(world: DeclarativeWorld) -> None:
    world.turns = lambda: 3
    process = world.process()
    await process.initialize([world.task("a", "0 12 * * *")])
    await world.run_loop_until(lambda: world.writes == 2)

    await process.stop()

    assert world.ran == []
    assert "schedulerIdentifier" not in world.record("a")
    await world.drive(HOUR)
    await process.initialize([world.task("a", "0 12 * * *")])
    await world.drive(SECOND)
    assert world.events[-2].cause == "registration"


@pytest.mark.req("D-15", "D-16")
async def test_a_stop_in_the_very_turn_of_a_start_takes_the_mark_back(world: DeclarativeWorld) -> None:
    process = world.process()
    await process.initialize([world.task("a", "0 12 * * *")])
    await asyncio.sleep(0)
    assert (world.writes, world.ran) == (2, [])

    await process.stop()

    assert world.ran == []
    assert "schedulerIdentifier" not in world.record("a")


# ---- records that cannot be believed -------------------------------------------------------------

GOOD: dict[str, Any] = {"name": "a", "cronExpression": "0 13 * * *", "retryDelayMs": 0, "registeredAt": 1}


def without(field: str) -> str:
    return msgspec.json.encode({key: value for key, value in GOOD.items() if key != field}).decode()


def saying(**fields: object) -> str:
    return msgspec.json.encode(GOOD | fields).decode()


BAD: list[tuple[object, str, str]] = [
    ("nonsense", "TaskInvalidStructureError", "Invalid task record: it is not JSON"),
    ("[1]", "TaskInvalidStructureError", "Invalid task record: an object was expected, not array"),
    ("null", "TaskInvalidStructureError", "Invalid task record: an object was expected, not null"),
    (None, "TaskInvalidStructureError", "Invalid task record: it is not JSON"),
    (5, "TaskInvalidStructureError", "Invalid task record: it is not JSON"),
    (b"\xff", "TaskInvalidStructureError", "Invalid task record: it is not JSON"),
    (without("name"), "TaskMissingFieldError", "Missing required field: name"),
    (without("cronExpression"), "TaskMissingFieldError", "Missing required field: cronExpression"),
    (without("retryDelayMs"), "TaskMissingFieldError", "Missing required field: retryDelayMs"),
    (without("registeredAt"), "TaskMissingFieldError", "Missing required field: registeredAt"),
    (
        saying(schedulerIdentifier="x"),
        "TaskMissingFieldError",
        "Missing required field: lastAttemptAt",
    ),
    (
        saying(name=5),
        "TaskInvalidTypeError",
        "Invalid type for field 'name': expected string, got integer",
    ),
    (
        saying(retryDelayMs=1.5),
        "TaskInvalidTypeError",
        "Invalid type for field 'retryDelayMs': expected integer, got number",
    ),
    (
        saying(lastAttemptAt="noon"),
        "TaskInvalidTypeError",
        "Invalid type for field 'lastAttemptAt': expected integer, got string",
    ),
    (
        saying(lastSuccessAt=None),
        "TaskInvalidTypeError",
        "Invalid type for field 'lastSuccessAt': expected integer, got null",
    ),
    (
        saying(pendingRetryUntil=[]),
        "TaskInvalidTypeError",
        "Invalid type for field 'pendingRetryUntil': expected integer, got array",
    ),
    (
        saying(dueAtRegistration=1),
        "TaskInvalidTypeError",
        "Invalid type for field 'dueAtRegistration': expected boolean, got integer",
    ),
    (saying(name=""), "TaskInvalidValueError", "Invalid value for field 'name': must not be empty"),
    (
        saying(retryDelayMs=-1),
        "TaskInvalidValueError",
        "Invalid value for field 'retryDelayMs': must be non-negative",
    ),
    (
        saying(lastAttemptAt=1 << 62),
        "TaskInvalidValueError",
        "Invalid value for field 'lastAttemptAt': is beyond the calendar",
    ),
    (
        saying(cronExpression="@daily"),
        "TaskInvalidValueError",
        "Invalid value for field 'cronExpression': expression field has the macro \"@daily\", which POSIX cron lacks",
    ),
    (
        saying(name="z"),
        "TaskInvalidValueError",
        "Invalid value for field 'name': another record has the same",
    ),
]


@pytest.mark.req("D-11", "D-16")
@pytest.mark.parametrize(("text", "name", "message"), BAD, ids=[str(row[0]) for row in BAD])
async def test_an_implausible_record_is_refused_before_anything_is_written(
    world: DeclarativeWorld, text: object, name: str, message: str
) -> None:
    world.state.rows = {1: saying(name="z"), 2: text}
    process = world.process()
    process.watched.excused = True

    with pytest.raises(errors.TaskTryDeserializeError) as caught:
        await process.initialize([world.task("a")])

    assert (caught.value.name, str(caught.value), caught.value.record_index) == (name, message, 1)
    assert world.writes == 0
    assert not world.state.is_open


@pytest.mark.req("D-11")
@pytest.mark.parametrize(
    ("text", "details"),
    [
        (without("name"), {"field": "name"}),
        (saying(name=5), {"field": "name", "value": 5, "expectedType": "string", "actualType": "integer"}),
        (saying(retryDelayMs=-1), {"field": "retryDelayMs", "value": -1, "reason": "must be non-negative"}),
        ("[1]", {"value": [1]}),
    ],
)
async def test_the_details_of_a_bad_record_are_those_of_the_specification(
    world: DeclarativeWorld, text: str, details: dict[str, object]
) -> None:
    world.state.rows = {1: text}
    process = world.process()
    process.watched.excused = True

    with pytest.raises(errors.TaskTryDeserializeError) as caught:
        await process.initialize([])

    assert caught.value.details == details


@pytest.mark.req("D-14")
async def test_the_identifier_is_made_once_and_differs_between_schedulers(world: DeclarativeWorld) -> None:
    task = world.task("a", body=world.body_lasting(SECOND))
    seen = []
    process = world.process()
    for _ in range(2):
        await process.initialize([task])
        await world.drive(MINUTE - world.clock.now() % MINUTE)
        seen.append(world.record("a")["schedulerIdentifier"])
        stopping = asyncio.create_task(process.stop())
        await world.drive(SECOND)
        await stopping
    other = await world.started(task)
    await world.drive(MINUTE - world.clock.now() % MINUTE)
    seen.append(world.record("a")["schedulerIdentifier"])
    await other.kill()

    assert seen[0] == seen[1] != seen[2]
