"""The life of a scheduler: initialising, running, stopping, in every order in which it can be told to."""

import asyncio
import inspect
import logging
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from gnomon.declarative import MemoryState, Scheduler, counters_of, errors
from gnomon.declarative.events import Event, TaskRunFailed
from gnomon.declarative.state import StateFile
from gnomon.testing.clock import DrivenClock
from support.declarative_world import HOUR, MINUTE, SECOND, DeclarativeWorld

NewWorld = Callable[..., DeclarativeWorld]


@pytest.mark.req("D-01")
def test_a_scheduler_has_two_public_methods_and_both_are_async(tmp_path: Path) -> None:
    scheduler = Scheduler(tmp_path / "state.db")

    public = [name for name in dir(scheduler) if not name.startswith("_")]

    assert public == ["initialize", "stop"]
    assert all(inspect.iscoroutinefunction(getattr(scheduler, name)) for name in public)


@pytest.mark.req("D-06", "D-08")
async def test_events_of_a_lifecycle_are_emitted_in_order(world: DeclarativeWorld) -> None:
    process = await world.started(world.task("a"))

    await process.stop()

    assert world.event_names() == [
        "SchedulerInitializationStarted",
        "PollingStarted",
        "SchedulerInitializationCompleted",
        "TaskRunStarted",
        "TaskRunCompleted",
        "SchedulerStopRequested",
        "PollingStopRequested",
        "PollingStopped",
        "SchedulerStopped",
    ]


@pytest.mark.req("D-06", "D-07")
async def test_events_carry_time_task_and_cause(world: DeclarativeWorld) -> None:
    await world.started(world.task("a", delay=timedelta(seconds=7), body=world.body_lasting(2 * SECOND, fails=True)))
    await world.drive(2 * SECOND)

    failed = world.events[-1]

    assert isinstance(failed, TaskRunFailed)
    assert (failed.task, failed.cause, repr(failed.error)) == ("a", "callback", "ValueError('it went wrong')")
    assert failed.at.isoformat() == "2026-03-02T12:00:02+00:00"
    assert failed.retry_at - failed.at == timedelta(seconds=7)
    assert world.events[-2].cause == "registration"


@pytest.mark.req("D-08")
async def test_without_tasks_there_is_no_polling_and_yet_a_running_scheduler(world: DeclarativeWorld) -> None:
    process = await world.started()

    with pytest.raises(errors.SchedulerAlreadyActiveError):
        await process.initialize([])
    await process.stop()

    assert [name for name in world.event_names() if name.startswith("Polling")] == []
    assert world.event_names()[-1] == "SchedulerStopped"


@pytest.mark.req("D-15", "D-16")
async def test_a_second_initialize_is_refused_and_changes_nothing(world: DeclarativeWorld) -> None:
    process = await world.started(world.task("a"))
    reported = world.event_names()

    with pytest.raises(errors.SchedulerAlreadyActiveError) as caught:
        await process.initialize([world.task("a")])

    assert str(caught.value) == "Cannot initialize scheduler: scheduler is already running"
    assert caught.value.details == {"currentState": "running"}
    assert world.event_names() == reported
    await world.drive(MINUTE)
    assert len(world.ran) == 2


@pytest.mark.req("D-15")
async def test_that_it_is_active_is_said_before_what_is_wrong_with_the_list(world: DeclarativeWorld) -> None:
    process = await world.started(world.task("a"))

    with pytest.raises(errors.SchedulerAlreadyActiveError):
        await process.initialize(None)


@pytest.mark.req("D-15")
async def test_of_two_concurrent_initialisations_the_first_continues(world: DeclarativeWorld) -> None:
    world.turns = lambda: 2
    process = world.process()

    first, second = await asyncio.gather(
        process.initialize([world.task("a")]), process.initialize([world.task("b")]), return_exceptions=True
    )

    assert first is None
    assert isinstance(second, errors.SchedulerAlreadyActiveError)
    assert second.details == {"currentState": "initializing"}
    await world.drive(SECOND)
    assert world.ran == ["a 02 12:00:00"]


@pytest.mark.req("D-15")
async def test_initialize_while_stopping_is_refused_as_running(world: DeclarativeWorld) -> None:
    process = await world.started(world.task("a", body=world.body_lasting(30 * SECOND)))
    stopping = asyncio.create_task(process.stop())
    await world.clock.settle()

    with pytest.raises(errors.SchedulerAlreadyActiveError) as caught:
        await process.initialize([])
    await world.drive(MINUTE)
    await stopping

    assert caught.value.details == {"currentState": "running"}


@pytest.mark.req("D-15")
async def test_a_stopped_scheduler_can_be_initialised_again_any_number_of_times(world: DeclarativeWorld) -> None:
    process = world.process()
    for _ in range(3):
        await process.initialize([world.task("a")])
        await world.drive(MINUTE)
        await process.stop()

    assert world.ran == [f"a 02 12:0{minute}:00" for minute in range(4)]


@pytest.mark.req("D-15")
async def test_stop_waits_for_running_tasks_and_starts_nothing_meanwhile(world: DeclarativeWorld) -> None:
    process = await world.started(world.task("slow", body=world.body_lasting(150 * SECOND)), world.task("quick"))
    stopping = asyncio.create_task(process.stop())
    await world.drive(149 * SECOND)
    assert not stopping.done()

    await world.drive(SECOND)

    assert stopping.done()
    assert sorted(world.ran) == ["quick 02 12:00:00", "slow 02 12:00:00"]
    assert "schedulerIdentifier" not in world.record("slow")


@pytest.mark.req("D-15")
async def test_stop_at_any_time_and_any_number_of_times_is_no_error(world: DeclarativeWorld) -> None:
    process = world.process()
    await process.stop()
    await process.initialize([world.task("a", body=world.body_lasting(5 * SECOND))])
    await world.clock.settle()
    stops = [asyncio.create_task(process.stop()) for _ in range(3)]
    await world.drive(5 * SECOND)
    await asyncio.gather(*stops)
    await process.stop()

    assert world.event_names().count("SchedulerStopRequested") == 1
    assert world.event_names().count("SchedulerStopped") == 1


@pytest.mark.req("D-15")
async def test_stop_during_initialize_lets_it_return_and_nothing_starts(world: DeclarativeWorld) -> None:
    world.turns = lambda: 3
    process = world.process()
    initialising = asyncio.create_task(process.initialize([world.task("a")]))
    await asyncio.sleep(0)

    await process.stop()

    assert initialising.done()
    assert initialising.exception() is None
    assert world.event_names() == [
        "SchedulerInitializationStarted",
        "SchedulerInitializationCompleted",
        "SchedulerStopRequested",
        "SchedulerStopped",
    ]
    await world.drive(20 * SECOND)
    assert world.ran == []
    # The minute of its registration is not over: it is owed, and runs when it may.
    await process.initialize([world.task("a")])
    await world.drive(SECOND)
    assert world.ran == ["a 02 12:00:20"]


@pytest.mark.req("D-15")
async def test_stop_during_an_initialize_that_fails_is_no_error(world: DeclarativeWorld) -> None:
    world.turns = lambda: 3
    world.faults = ["fail"]
    process = world.process()
    process.watched.excused = True
    initialising = asyncio.create_task(process.initialize([world.task("a")]))
    await asyncio.sleep(0)

    await process.stop()

    with pytest.raises(errors.StateUnavailableError):
        await initialising
    assert not world.state.is_open


@pytest.mark.req("D-15")
async def test_stop_with_a_task_that_fails_is_no_error(world: DeclarativeWorld) -> None:
    process = await world.started(world.task("a", body=world.body_lasting(5 * SECOND, fails=True)))
    stopping = asyncio.create_task(process.stop())

    await world.drive(5 * SECOND)
    await stopping

    assert world.record("a")["lastFailureAt"] == world.clock.now()


@pytest.mark.req("D-15")
async def test_a_cancelled_wait_for_a_stop_does_not_cancel_the_stop(world: DeclarativeWorld) -> None:
    process = await world.started(world.task("a", body=world.body_lasting(30 * SECOND)))
    impatient = asyncio.create_task(process.scheduler.stop())
    await world.clock.settle()
    impatient.cancel()

    await world.drive(30 * SECOND)

    assert world.event_names()[-1] == "SchedulerStopped"
    assert not world.state.is_open


@pytest.mark.req("D-15")
async def test_a_task_that_waits_for_stop_gets_an_error_because_it_would_wait_for_itself(
    world: DeclarativeWorld,
) -> None:
    process = world.process()
    await process.initialize([world.task("a", body=process.scheduler.stop, delay=timedelta(hours=1))])
    await world.clock.settle()

    failed = world.events[-1]

    assert isinstance(failed, TaskRunFailed)
    assert isinstance(failed.error, errors.StopWithinTaskError)


@pytest.mark.req("D-15")
async def test_an_initialize_that_is_cancelled_lets_go_of_everything(world: DeclarativeWorld) -> None:
    world.turns = lambda: 3
    process = world.process()
    process.watched.excused = True
    initialising = asyncio.create_task(process.initialize([world.task("a")]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    initialising.cancel()
    await asyncio.wait({initialising})

    assert initialising.cancelled()
    assert not world.state.is_open
    await process.initialize([world.task("a")])


@pytest.mark.req("D-06")
@pytest.mark.parametrize("error", [RuntimeError(), SystemExit(1), asyncio.CancelledError(), GeneratorExit()])
async def test_a_listener_that_fails_harms_nobody_and_is_counted(
    world: DeclarativeWorld, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    def listen(_: Event) -> None:
        raise error

    process = await world.started(world.task("a"), on_event=listen)
    await process.stop()

    assert world.ran == ["a 02 12:00:00"]
    assert counters_of(process.scheduler).unheard == 9
    assert "a listener failed on TaskRunStarted" in caplog.text


@pytest.mark.req("D-06")
async def test_a_listener_that_returns_a_coroutine_is_logged_and_counted(
    world: DeclarativeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    process = await world.started(on_event=lambda event: an_async_listener(event))  # noqa: PLW0108 - as users hide it
    await process.stop()

    assert counters_of(process.scheduler).unheard == len(counters_of(process.scheduler).events)
    assert "the listener is async" in caplog.text


@pytest.mark.req("D-06", "D-17")
async def test_events_are_logged_and_counted(world: DeclarativeWorld, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gnomon.declarative")
    process = await world.started(world.task("a\n", body=world.body_lasting(SECOND, fails=True)))
    await world.drive(SECOND)

    assert "TaskRunStarted task='a\\n' cause=registration" in caplog.text
    [failure] = [line for line in caplog.records if line.levelno == logging.WARNING]
    assert failure.getMessage() == "TaskRunFailed task='a\\n' cause=callback"
    assert failure.exc_info is not None
    assert counters_of(process.scheduler).events["TaskRunFailed"] == 1


@pytest.mark.req("D-17")
async def test_starts_that_come_too_late_are_logged_and_counted(
    world: DeclarativeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    process = await world.started(world.task("a", "0 * * * *"))
    world.step_clock(2 * HOUR)

    await world.drive(MINUTE)

    assert counters_of(process.scheduler).late_starts == 1
    assert counters_of(process.scheduler).worst_lateness_ms == HOUR + MINUTE
    assert "1 tasks start late, up to 3660000 ms; 60000 ms are allowed" in caplog.text


@pytest.mark.req("D-17")
async def test_a_scheduler_with_nothing_due_looks_once_a_minute_and_at_nothing(world: DeclarativeWorld) -> None:
    process = await world.started(*(world.task(str(number), "0 0 29 2 *") for number in range(100)))

    await world.drive(HOUR)

    assert counters_of(process.scheduler).polls == 61
    assert world.writes == 1


async def an_async_listener(event: Event) -> None:
    del event


@pytest.mark.req("D-01")
@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"state": 5}, "state"),
        ({"state": ""}, "state"),
        ({"state": ":memory:"}, "state"),
        ({"state": "postgres://user:secret@host/db"}, "state"),
        ({"on_event": "print"}, "on_event"),
        ({"on_event": an_async_listener}, "on_event"),
        ({"timezone": "Europe/Berlim"}, "timezone"),
        ({"timezone": 60}, "timezone"),
        ({"clock": 5}, "clock"),
    ],
)
def test_a_scheduler_that_cannot_be_is_refused_when_it_is_made(options: dict[str, object], field: str) -> None:
    with pytest.raises(errors.SchedulerError) as caught:
        Scheduler(**({"state": MemoryState()} | options))  # type: ignore[arg-type]  # that is the point

    assert isinstance(caught.value, errors.InvalidArgumentError)
    assert caught.value.details["argument"] == field
    assert "secret" not in str(caught.value)


@pytest.mark.req("D-02")
def test_a_zone_that_does_not_exist_is_refused_when_the_scheduler_is_made() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="did you mean Europe/Berlin"):
        Scheduler(MemoryState(), timezone="Europe/Berlim")


@pytest.mark.req("D-02")
async def test_a_zone_may_be_given_as_an_object(new_world: Callable[..., DeclarativeWorld]) -> None:
    world = new_world("2026-03-02T11:59:00", zone="Europe/Berlin")
    await world.started(world.task("a", "0 12 * * *"), timezone=ZoneInfo("Europe/Berlin"))

    await world.drive(HOUR)

    assert world.ran == ["a 02 12:00:00"]


@pytest.mark.req("D-15")
async def test_tasks_of_a_callback_that_wait_for_stop_together_with_it_get_an_error(world: DeclarativeWorld) -> None:
    process = world.process()

    async def body() -> None:
        await asyncio.gather(process.scheduler.stop())

    await process.initialize([world.task("a", body=body), world.task("b", body=world.body_lasting(MINUTE))])
    await world.drive(MINUTE)

    [failed] = [event for event in world.events if isinstance(event, TaskRunFailed)]
    assert isinstance(failed.error, errors.StopWithinTaskError)
    assert world.event_names()[-1] == "SchedulerStopped"


@pytest.mark.req("D-15")
@pytest.mark.parametrize("callers", [1, 2, 3])
async def test_callbacks_that_all_wait_for_stop_do_not_wait_for_each_other(
    world: DeclarativeWorld, callers: int
) -> None:
    process = world.process()

    async def body() -> None:
        await asyncio.gather(process.scheduler.stop())

    names = [f"t{number}" for number in range(callers)]
    await process.initialize([world.task(name, body=body, delay=timedelta(hours=1)) for name in names])
    await world.drive(SECOND)

    failed = [event for event in world.events if isinstance(event, TaskRunFailed)]
    assert sorted(str(event.task) for event in failed) == names
    assert all(isinstance(event.error, errors.StopWithinTaskError) for event in failed)
    assert world.event_names()[-1] == "SchedulerStopped"


@pytest.mark.req("D-15")
async def test_a_task_of_an_inner_scheduler_that_waits_for_the_outer_one_gets_an_error(
    world: DeclarativeWorld,
) -> None:
    process = world.process()
    reported: list[BaseException | None] = []

    async def inner_body() -> None:
        reported.extend(await asyncio.gather(process.scheduler.stop(), return_exceptions=True))

    async def body() -> None:
        inner = Scheduler(MemoryState(), clock=world.clock, timezone=world.zone)
        await inner.initialize([world.task("inner", body=inner_body)])
        await world.clock.sleep(0.001)
        await inner.stop()

    await process.initialize([world.task("outer", body=body)])
    await world.drive(SECOND)

    assert [type(error) for error in reported] == [errors.StopWithinTaskError]
    assert world.event_names()[-1] == "SchedulerStopped"


@pytest.mark.req("D-15")
async def test_a_callback_may_have_the_scheduler_stopped_without_waiting(world: DeclarativeWorld) -> None:
    process = world.process()
    stops: list[asyncio.Task[None]] = []

    async def body() -> None:
        stops.append(asyncio.create_task(process.scheduler.stop()))

    await process.initialize([world.task("a", body=body), world.task("b", body=world.body_lasting(MINUTE))])
    await world.drive(MINUTE)

    await stops[0]
    assert world.event_names()[-1] == "SchedulerStopped"


@pytest.mark.req("D-15")
async def test_an_initialize_that_is_cancelled_while_it_writes_changes_nothing(world: DeclarativeWorld) -> None:
    first = await world.started(world.task("kept"), world.task("gone"))
    await first.stop()
    before = dict(world.state.rows)
    world.turns = lambda: 3
    process = world.process()
    process.watched.excused = True
    initialising = asyncio.create_task(process.initialize([world.task("kept", "5 * * * *"), world.task("new")]))
    await world.run_loop_until(lambda: world.state.rows != before)

    initialising.cancel()
    await asyncio.wait({initialising})

    assert initialising.cancelled()
    assert world.state.rows == before
    assert not world.state.is_open


class SlowFile(StateFile):
    """Calls back on its thread before it writes, and waits."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.before_write: Callable[[], object] = lambda: None

    def _write(self, kept: Sequence[tuple[int, str]], removed: Sequence[int]) -> None:
        self.before_write()
        super()._write(kept, removed)


@pytest.mark.req("D-15")
def test_an_initialize_that_the_end_of_the_program_cancels_while_it_writes_changes_nothing(tmp_path: Path) -> None:
    state = SlowFile(tmp_path / "scheduler.db")

    async def end_while_it_writes() -> None:
        loop, begun, ending = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

        def before_write() -> None:
            loop.call_soon_threadsafe(begun.set)
            ending.wait(30)

        state.before_write = before_write
        registered = [("a", "0 0 29 2 *", asyncio.Event().wait, timedelta())]
        initialising = asyncio.create_task(Scheduler(state).initialize(registered))
        await begun.wait()
        assert not initialising.done()
        # The end of the program cancels all asyncio tasks in the next iteration of the loop, and waits for them.
        loop.call_later(0.05, ending.set)

    asyncio.run(end_while_it_writes())

    async def rows() -> list[tuple[int, object]]:
        state.before_write = lambda: None
        try:
            return await state.open()
        finally:
            await state.close()

    assert asyncio.run(rows()) == []


class BrokenClock(DrivenClock):
    """Fails until it is repaired."""

    broken = True

    def now(self) -> int:
        if self.broken:
            raise OSError("no clock")
        return super().now()


@pytest.mark.req("D-15")
async def test_a_clock_that_fails_from_the_beginning_fails_the_initialize_and_hangs_no_stop() -> None:
    clock, state = BrokenClock(0), MemoryState()
    scheduler = Scheduler(state, clock=clock, timezone="UTC")

    with pytest.raises(errors.StateUnavailableError):
        await scheduler.initialize([("a", "* * * * *", asyncio.Event().wait, timedelta())])
    await asyncio.wait_for(scheduler.stop(), 5)

    assert not state.is_open
    clock.broken = False
    await scheduler.initialize([])
    await scheduler.stop()


class FailingClock(DrivenClock):
    """Fails at one of its readings."""

    failing_reading = 0
    readings = 0

    def now(self) -> int:
        self.readings += 1
        if self.readings == self.failing_reading:
            raise OSError("no clock")
        return super().now()


@pytest.mark.req("D-15", "D-17")
@pytest.mark.parametrize("reading", range(20))
async def test_a_reading_of_the_clock_that_fails_loses_no_task(reading: int) -> None:
    clock, ran = FailingClock(0), []
    scheduler = Scheduler(MemoryState(), clock=clock, timezone="UTC")

    async def task() -> None:
        ran.append(clock.now())

    await scheduler.initialize([("a", "* * * * *", task, timedelta())])
    clock.failing_reading = clock.readings + 1 + reading
    await clock.drive(5 * MINUTE + 2 * SECOND)
    await asyncio.wait_for(scheduler.stop(), 30)

    assert clock.readings > clock.failing_reading
    assert [at // MINUTE for at in ran] in ([0, 1, 2, 3, 4, 5], sorted([*range(6), ran[0] // MINUTE]))
