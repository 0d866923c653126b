"""The declarative scheduler: it runs a list of registered tasks by cron, across restarts, until it is stopped."""

import asyncio
import os
import secrets
from collections.abc import Callable, Sequence
from enum import StrEnum
from zoneinfo import ZoneInfo

from gnomon.adapters.host import SystemClock
from gnomon.declarative.cron import Occurrences, zone_of
from gnomon.declarative.decide import resolve_overrides
from gnomon.declarative.errors import (
    InvalidArgumentError,
    SchedulerAlreadyActiveError,
    SchedulerError,
    StateUnavailableError,
    StopWithinTaskError,
)
from gnomon.declarative.event_log import Counters, EventPublisher
from gnomon.declarative.events import (
    Cause,
    Event,
    SchedulerInitializationCompleted,
    SchedulerInitializationFailed,
    SchedulerInitializationStarted,
    SchedulerStopped,
    SchedulerStopRequested,
)
from gnomon.declarative.polling import PollingLoop
from gnomon.declarative.records import encode, read_records, text_of
from gnomon.declarative.registrations import ParsedRegistration, Registration, is_async, read_registrations
from gnomon.declarative.state import State, state_at
from gnomon.declarative.writer import ScheduledTask, StateWriter
from gnomon.ports.runtime import Clock


class SchedulerState(StrEnum):
    """The lifecycle of a scheduler."""

    UNINITIALIZED = "uninitialized"
    INITIALIZING = "initializing"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"


class Scheduler:
    """Runs async callbacks by cron, with its state in one file.

    Without arguments it uses the clock and the time zone of the host and the state file `scheduler.db`. It calls
    `on_event` with every event, in order; an error that `on_event` raises is logged, counted and otherwise ignored.
    """

    def __init__(
        self,
        state: str | os.PathLike[str] | State = "scheduler.db",
        *,
        clock: Clock | None = None,
        timezone: str | ZoneInfo | None = None,
        on_event: Callable[[Event], object] | None = None,
    ) -> None:
        _check_listener(on_event)
        _check_clock(clock)
        zone_of(timezone)
        self._timezone = timezone
        self._state = state_at(state)
        self._clock: Clock = clock or SystemClock()
        self._publisher = EventPublisher(self._clock, on_event)
        self._status = SchedulerState.UNINITIALIZED
        self._identifier: str | None = None
        self._initialized = asyncio.Event()
        self._stop_wanted = False
        self._polling: PollingLoop | None = None
        self._stopping: asyncio.Task[None] | None = None

    async def initialize(self, registrations: Sequence[Registration]) -> None:
        """Schedule these tasks and no others.

        If it raises a SchedulerError, it has changed nothing. No callback is invoked before it returns.
        """
        if self._status is SchedulerState.INITIALIZING:
            raise SchedulerAlreadyActiveError("initializing")
        if self._status in (SchedulerState.RUNNING, SchedulerState.STOPPING):
            raise SchedulerAlreadyActiveError("running")
        self._status = SchedulerState.INITIALIZING
        self._initialized = asyncio.Event()
        self._stop_wanted = False
        try:
            self._publisher.publish(SchedulerInitializationStarted, Cause.CALL)
            self._polling = await self._prepare(read_registrations(registrations))
        except BaseException as error:
            self._status = SchedulerState.UNINITIALIZED
            self._publisher.publish(SchedulerInitializationFailed, Cause.ERROR, error=error)
            raise
        else:
            self._status = SchedulerState.RUNNING
            if not self._stop_wanted:
                self._polling.start()
            self._publisher.publish(SchedulerInitializationCompleted, Cause.CALL)
        finally:
            self._initialized.set()

    async def stop(self) -> None:
        """Stop starting tasks; return when no task is running and all records are written.

        May be called at any time, and any number of times. It waits for an `initialize` that is in progress.
        """
        run = None if self._polling is None else self._polling.calling_run()
        if run is not None and run is asyncio.current_task():
            raise StopWithinTaskError
        while self._status is SchedulerState.INITIALIZING:
            self._stop_wanted = True
            await self._initialized.wait()
        if self._status is SchedulerState.RUNNING and self._polling is not None:
            self._status = SchedulerState.STOPPING
            self._publisher.publish(SchedulerStopRequested, Cause.CALL)
            self._polling.request_stop()
            self._stopping = asyncio.create_task(self._stop(self._polling))
        if self._status is SchedulerState.STOPPING and self._stopping is not None:
            if run is not None and self._polling is not None:
                await self._let_run_end(run, self._polling)
            # A caller may be cancelled while it waits; the stop continues for the other callers.
            await asyncio.shield(self._stopping)

    async def _let_run_end(self, run: "asyncio.Task[None]", polling: PollingLoop) -> None:
        """Raise StopWithinTaskError if only runs are left whose callbacks called `stop` through other asyncio tasks.

        These callbacks may wait for their calls, for example in `asyncio.gather`; all of them would wait for ever.
        """
        await polling.others_ended(run)
        if not run.done():
            raise StopWithinTaskError

    async def _prepare(self, registered: dict[str, ParsedRegistration]) -> PollingLoop:
        """Open the state, apply the registrations to it, and return the polling loop, which is not started."""
        zone = zone_of(self._timezone)
        occurrences = {
            expression: Occurrences(expression, zone)
            for expression in {task.cron_expression for task in registered.values()}
        }
        self._identifier = self._identifier or secrets.token_hex(8)
        try:
            rows = await self._state.open()
            try:
                tasks = await self._take_over_state(rows, registered, occurrences)
                writer = StateWriter(self._state, self._clock, self._publisher)
                return PollingLoop(tasks, self._identifier, self._clock, writer, self._publisher)
            except BaseException:
                await self._state.close()
                raise
        except SchedulerError:
            raise
        except Exception as error:
            raise StateUnavailableError("initialize scheduler", error) from error

    async def _take_over_state(
        self,
        rows: list[tuple[int, object]],
        registered: dict[str, ParsedRegistration],
        occurrences: dict[str, Occurrences],
    ) -> list[ScheduledTask]:
        """The registered tasks with their history. Writes all changes to the state in one transaction."""
        kept = read_records(rows)
        persisted = {name: row.record for name, row in kept.items()}
        overrides = resolve_overrides(registered, persisted, occurrences, now=self._clock.now())
        unused = max((row.number for row in kept.values()), default=0) + 1
        numbers = {name: row.number for name, row in kept.items()}
        numbers |= {name: unused + count for count, name in enumerate(overrides.added)}
        written = [(numbers[record.name], encode(record)) for record in overrides.written]
        removed = [numbers[name] for name in overrides.removed]
        if written or removed:
            await self._write_or_undo(rows, written, removed)
        self._publisher.overrides(overrides)
        return [
            ScheduledTask(numbers[name], record, registered[name].callback, occurrences[record.cron_expression])
            for name, record in overrides.records.items()
        ]

    async def _write_or_undo(
        self, rows: list[tuple[int, object]], written: list[tuple[int, str]], removed: list[int]
    ) -> None:
        """Write the changes. If the caller is cancelled meanwhile, restore the rows, since a write cannot be recalled.

        A second cancellation ends the wait at once.
        """
        writing = asyncio.ensure_future(self._state.write(written, removed))
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            await asyncio.wait({writing})
            # The end of a program cancels the write as well, and a state may carry it out all the same.
            if writing.cancelled() or writing.exception() is None:
                before = dict(rows)
                changed = {number for number, _ in written} | set(removed)
                restored = [(number, text_of(before[number])) for number in sorted(changed & before.keys())]
                await self._state.write(restored, sorted(changed - before.keys()))
            raise

    async def _stop(self, polling: PollingLoop) -> None:
        """Wait for running tasks, then close the state. An error of either step is logged, and the next one follows."""
        for step in (polling.stopped, self._state.close):
            try:
                await step()
            except Exception as error:  # noqa: BLE001 - `stop` has to end
                self._publisher.poll_failed(error)
        polling.announce_stopped()
        self._polling = None
        self._status = SchedulerState.STOPPED
        self._publisher.publish(SchedulerStopped, Cause.QUIET)


def _check_listener(on_event: object) -> None:
    if on_event is None:
        return
    if not callable(on_event):
        raise InvalidArgumentError("on_event", on_event, "must be a function of one event")
    if is_async(on_event):
        raise InvalidArgumentError("on_event", on_event, "must not be async: events are published in order, at once")


def _check_clock(clock: object) -> None:
    if clock is not None and not all(callable(getattr(clock, method, None)) for method in ("now", "until", "sleep")):
        raise InvalidArgumentError("clock", clock, "must be a Clock, with the methods now, until and sleep")


def counters_of(scheduler: Scheduler) -> Counters:
    """The live counters of this scheduler."""
    return scheduler._publisher.counters  # noqa: SLF001 - a Scheduler has two public methods and nothing more
