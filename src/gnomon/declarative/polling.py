"""The polling loop: it sleeps until a task is due, marks it as running in the state, and invokes its callback.

A queue sorted by instant holds the tasks, so a poll costs nothing for tasks that are not due.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from heapq import heappop, heappush
from typing import Generic, TypeVar

from gnomon.core.instants import instant_of
from gnomon.declarative.decide import IMMEDIATELY, MINUTE_MS, StartDecision, decide, due_at
from gnomon.declarative.event_log import EventPublisher
from gnomon.declarative.events import (
    Cause,
    PollingStarted,
    PollingStopped,
    PollingStopRequested,
    TaskRetryPreempted,
    TaskRetryStarted,
    TaskRunCompleted,
    TaskRunFailed,
    TaskRunStarted,
)
from gnomon.declarative.records import failed, started, succeeded
from gnomon.declarative.writer import RETRY_SECONDS, ScheduledTask, StateWriter
from gnomon.ports.runtime import Clock

T = TypeVar("T")
_Run = asyncio.Task[None]
#: The runs whose callbacks started the present asyncio task, directly or through other tasks. There are several if a
#: callback uses a scheduler of its own.
_calling_runs: ContextVar[frozenset[_Run]] = ContextVar("gnomon_declarative_runs", default=frozenset())


class DueQueue(Generic[T]):
    """Items by instant. Many share an instant, the beginning of a minute, so the heap holds instants and not items."""

    def __init__(self) -> None:
        self._items: dict[int, list[T]] = {}
        self._instants: list[int] = []

    def put(self, item: T, at: int) -> None:
        """Add an item that is due at `at`."""
        items = self._items.get(at)
        if items is None:
            items = self._items[at] = []
            heappush(self._instants, at)
        items.append(item)

    def take(self, now: int) -> Iterator[T]:
        """Remove and return the items that are due at `now`."""
        while self._instants and self._instants[0] <= now:
            yield from self._items.pop(heappop(self._instants))

    @property
    def next_at(self) -> int | None:
        """The earliest instant in the queue."""
        return self._instants[0] if self._instants else None


#: How many starts share a transaction: the first of very many tasks does not wait for the last.
_BATCH_SIZE = 2000
#: The lateness of a start that the specification allows: a minute, or more if there are very many tasks.
_ALLOWED_MS, _ALLOWED_MS_PER_TASK = 60_000, 6


class PollingLoop:
    """Looks for due tasks at every minute, and when the next task is due, from `start` until `request_stop`."""

    def __init__(
        self,
        tasks: Sequence[ScheduledTask],
        identifier: str,
        clock: Clock,
        writer: StateWriter,
        publisher: EventPublisher,
    ) -> None:
        self._identifier = identifier
        self._clock = clock
        self._writer = writer
        self._publisher = publisher
        self._due_queue: DueQueue[ScheduledTask] = DueQueue()
        self._active = False
        self._loop: asyncio.Task[None] | None = None
        self._runs: set[_Run] = set()
        #: The runs whose callbacks have called `stop`, and the sign that no other run is left.
        self._runs_that_stop: set[_Run] = set()
        self._others_ended = asyncio.Event()
        self._sleep: asyncio.Task[None] | None = None
        self._sleep_until = IMMEDIATELY
        #: The task that waits for the end of the runs.
        self._stopper: asyncio.Task[object] | None = None
        self._tasks = tasks
        self._polled_at = self._last_known_time = now = clock.now()
        self._allowed_ms = max(_ALLOWED_MS, _ALLOWED_MS_PER_TASK * len(tasks))
        for task in tasks:
            self._enqueue(task, now)
        self._warn_of_silence(now)

    def start(self) -> None:
        """Start the loop if there are tasks. The first poll is in the next iteration of the event loop."""
        if not self._tasks:
            return
        self._active = True
        self._publisher.publish(PollingStarted, Cause.SCHEDULED)
        self._loop = asyncio.create_task(self._run_loop())
        self._loop.add_done_callback(lambda _: self._note_end())

    def calling_run(self) -> _Run | None:
        """The run whose callback calls, itself or through tasks that it started; None if no running one does."""
        return next(iter(_calling_runs.get() & self._runs), None)

    def request_stop(self) -> None:
        """Stop starting tasks."""
        if self._loop is None:
            return
        self._active = False
        self._publisher.publish(PollingStopRequested, Cause.CALL)
        if self._sleep is not None:
            self._sleep.cancel()

    async def stopped(self) -> None:
        """Wait until no callback is running, then write all records as far as possible."""
        self._stopper = asyncio.current_task()
        if self._loop is not None:
            await asyncio.wait({self._loop})
        while self._runs:
            await asyncio.wait(self._runs)
        await self._writer.finish()

    async def others_ended(self, run: _Run) -> None:
        """Wait until only callbacks are running that have called `stop`, as that of `run` has."""
        self._runs_that_stop.add(run)
        self._note_end()
        await self._others_ended.wait()

    def _note_end(self) -> None:
        if (self._loop is None or self._loop.done()) and self._runs <= self._runs_that_stop:
            self._others_ended.set()

    def announce_stopped(self) -> None:
        """Publish the end of polling, if it ever began."""
        if self._loop is not None:
            self._publisher.publish(PollingStopped, Cause.QUIET)

    # ---- the loop --------------------------------------------------------------------------------

    async def _run_loop(self) -> None:
        while self._active:
            try:
                await self._poll()
                await self._sleep_until_due()
            except Exception as error:  # noqa: BLE001 - only a stop ends the loop
                self._publisher.poll_failed(error)
                await self._sleep_for(RETRY_SECONDS)

    async def _sleep_until_due(self) -> None:
        now = self._clock.now()
        # At most until the next minute: the clock may be set, and the machine may be suspended.
        wake_at = now - now % MINUTE_MS + MINUTE_MS
        if self._due_queue.next_at is not None:
            wake_at = min(wake_at, self._due_queue.next_at)
        if wake_at > now and self._active:
            await self._sleep_for(self._clock.until(wake_at), until=wake_at)

    async def _sleep_for(self, seconds: float, *, until: int = IMMEDIATELY) -> None:
        """Sleep; `_enqueue` ends the sleep early if a task is due before `until`."""
        self._sleep_until = until
        self._sleep = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            await asyncio.wait({self._sleep})
        finally:
            self._sleep.cancel()
            self._sleep = None

    async def _poll(self) -> None:
        """Start all due tasks, in batches."""
        self._publisher.counters.polls += 1
        now = self._clock.now()
        if now < self._polled_at - MINUTE_MS:
            self._warn_of_silence(now)
        self._polled_at = now
        due = list(self._due_queue.take(now))
        for first in range(0, len(due), _BATCH_SIZE):
            if not await self._start_batch(due[first : first + _BATCH_SIZE], now):
                self._requeue(due[first:])
                return

    async def _start_batch(self, tasks: Sequence[ScheduledTask], now: int) -> bool:
        """Mark the tasks as running in the state, then start them; False if none was started."""
        starts = [(task, decide(task.record, task.occurrences, now=now)) for task in tasks]
        marks = {task.number: started(task.record, at=now, identifier=self._identifier) for task in tasks}
        try:
            if self._active:
                await self._writer.write_now(marks)
        except Exception as error:  # noqa: BLE001 - a State may raise anything
            self._publisher.write_failed(error)
            await self._sleep_for(RETRY_SECONDS)
            return False
        if not self._active:
            # Marked, but not started: remove the marks, so that the next scheduler does not see interrupted tasks.
            for task in tasks:
                self._writer.enqueue(task)
            return False
        now = self._known_time()
        self._publisher.record_lateness([now - task.due_since for task in tasks], allowed_ms=self._allowed_ms)
        for task, start in starts:
            run = asyncio.create_task(self._run(task, start))
            self._runs.add(run)
            run.add_done_callback(self._forget)
        return True

    def _forget(self, run: _Run) -> None:
        self._runs.discard(run)
        self._note_end()

    def _known_time(self) -> int:
        """The time, or the last known one if the clock fails: a run that was marked has to begin, and to end."""
        try:
            self._last_known_time = self._clock.now()
        except Exception as error:  # noqa: BLE001 - a Clock may raise anything
            self._publisher.clock_failed(error)
        return self._last_known_time

    def _requeue(self, tasks: Iterable[ScheduledTask]) -> None:
        for task in tasks:
            self._due_queue.put(task, task.due_at)

    # ---- runs ------------------------------------------------------------------------------------

    async def _run(self, task: ScheduledTask, start: StartDecision) -> None:
        if not self._active:
            self._writer.enqueue(task)
            return
        if run := asyncio.current_task():
            _calling_runs.set(frozenset({*(one for one in _calling_runs.get() if not one.done()), run}))
        self._begin(task, start)
        error: BaseException | None = None
        try:
            await task.callback()
        except BaseException as raised:
            if self._is_interrupted(raised):
                # The task keeps its mark in the state: the next scheduler starts it again at once.
                raise
            error = raised
        self._end(task, error)

    def _is_interrupted(self, error: BaseException) -> bool:
        """Whether the program ends, so that the run has no outcome. Any other error fails this task, and only it.

        The end of a program cancels the loop, or the task that waits for the stop, together with the runs. A callback
        that is cut off may raise another error than the cancellation, for example when it closes a connection.
        """
        if any(one is not None and one.cancelling() for one in (self._loop, self._stopper)):
            return True
        return isinstance(error, KeyboardInterrupt) or (isinstance(error, GeneratorExit) and self._is_abandoned())

    def _is_abandoned(self) -> bool:
        """Whether the run is being closed, which happens outside of its asyncio task."""
        try:
            return asyncio.current_task() not in self._runs
        except RuntimeError:
            return True

    def _begin(self, task: ScheduledTask, start: StartDecision) -> None:
        now = self._known_time()
        task.record = started(task.record, at=now, identifier=self._identifier)
        if start.preempts_retry:
            self._publisher.publish(TaskRetryPreempted, start.cause, task=task.record.name, at=now)
        kind = TaskRetryStarted if start.cause is Cause.RETRY else TaskRunStarted
        self._publisher.publish(kind, start.cause, task=task.record.name, at=now)

    def _end(self, task: ScheduledTask, error: BaseException | None) -> None:
        now = self._known_time()
        name = task.record.name
        if error is None:
            task.record = succeeded(task.record, at=now)
            self._publisher.publish(TaskRunCompleted, Cause.CALLBACK, task=name, at=now)
        else:
            task.record = failed(task.record, at=now)
            retry_at = instant_of(now + task.record.retry_delay_ms)
            self._publisher.publish(TaskRunFailed, Cause.CALLBACK, task=name, at=now, error=error, retry_at=retry_at)
        self._writer.enqueue(task)
        self._enqueue(task, now)

    def _warn_of_silence(self, now: int) -> None:
        """Warn of tasks that started in the future: their occurrences before that start are settled."""
        ahead = {task.record.name: task.record.settled_at for task in self._tasks}
        ahead = {name: at for name, at in ahead.items() if at > now + MINUTE_MS}
        if ahead:
            self._publisher.tasks_silenced(list(ahead), until=max(ahead.values()))

    def _enqueue(self, task: ScheduledTask, now: int) -> None:
        """Queue the task for the instant at which its next start is owed, which may be now."""
        at = due_at(task.record, task.occurrences)
        if at is None:
            return
        task.due_at, task.due_since = at, max(at, now)
        self._due_queue.put(task, at)
        if self._sleep is not None and at < self._sleep_until:
            self._sleep.cancel()
