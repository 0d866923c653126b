"""Who must be looked at when. Looking at what is due costs nothing for what is not."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
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


class DueQueue(Generic[T]):
    """Items by instant. Most share theirs, the beginning of a minute, so instants are sorted and items are not."""

    def __init__(self) -> None:
        self._items: dict[int, list[T]] = {}
        self._instants: list[int] = []

    def put(self, item: T, at: int) -> None:
        """The item will be taken at `at`."""
        items = self._items.get(at)
        if items is None:
            items = self._items[at] = []
            heappush(self._instants, at)
        items.append(item)

    def take(self, now: int) -> Iterator[T]:
        """The items whose instant has come. They are on the agenda no more."""
        while self._instants and self._instants[0] <= now:
            yield from self._items.pop(heappop(self._instants))

    @property
    def next_at(self) -> int | None:
        """The earliest instant on it."""
        return self._instants[0] if self._instants else None


#: How many starts share a transaction. The first of many need not wait for the last.
_BATCH_SIZE = 2000
#: By the specification a start may be a minute late, and later where there are very many tasks.
_ALLOWED_MS, _ALLOWED_MS_PER_TASK = 60_000, 6


class PollingLoop:
    """Looks at schedules at every minute, and whenever a task could be due, from `start` until `stop`."""

    def __init__(
        self,
        slots: Sequence[ScheduledTask],
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
        self._runs: set[asyncio.Task[None]] = set()
        self._sleep: asyncio.Task[None] | None = None
        self._sleep_until = IMMEDIATELY
        now = clock.now()
        self._count = len(slots)
        self._allowed_ms = max(_ALLOWED_MS, _ALLOWED_MS_PER_TASK * self._count)
        for slot in slots:
            self._enqueue(slot, now)

    def start(self) -> None:
        """Begin to look, from the next turn of the event loop on, if there is anything to look at."""
        if not self._count:
            return
        self._active = True
        self._publisher.publish(PollingStarted, Cause.SCHEDULED)
        self._loop = asyncio.create_task(self._run_loop())

    def is_running(self, task: "asyncio.Task[object] | None") -> bool:
        """Whether this is where one of the callbacks runs."""
        return task in self._runs

    def request_stop(self) -> None:
        """From here on nothing is started."""
        if self._loop is None:
            return
        self._active = False
        self._publisher.publish(PollingStopRequested, Cause.CALL)
        if self._sleep is not None:
            self._sleep.cancel()

    async def stopped(self) -> None:
        """Nothing is running any more, and all is written as far as it can be."""
        if self._loop is not None:
            await asyncio.wait({self._loop})
        while self._runs:
            await asyncio.wait(self._runs)
        await self._writer.finish()

    def announce_stopped(self) -> None:
        """Tell that polling is over, if it ever began."""
        if self._loop is not None:
            self._publisher.publish(PollingStopped, Cause.QUIET)

    # ---- the loop --------------------------------------------------------------------------------

    async def _run_loop(self) -> None:
        while self._active:
            try:
                await self._poll()
            except Exception as error:  # noqa: BLE001 - nothing ends the loop but a stop
                self._publisher.poll_failed(error)
                await self._sleep_for(RETRY_SECONDS)
                continue
            now = self._clock.now()
            # Not longer than to the next minute: the clock may be set, and the machine may sleep.
            wake_at = now - now % MINUTE_MS + MINUTE_MS
            if self._due_queue.next_at is not None:
                wake_at = min(wake_at, self._due_queue.next_at)
            if wake_at > now and self._active:
                await self._sleep_for(self._clock.until(wake_at), until=wake_at)

    async def _sleep_for(self, seconds: float, *, until: int = IMMEDIATELY) -> None:
        """So much time has passed, or somebody cut it short because something is owed before `until`."""
        self._sleep_until = until
        self._sleep = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            await asyncio.wait({self._sleep})
        finally:
            self._sleep.cancel()
            self._sleep = None

    async def _poll(self) -> None:
        """Everything that is due is started, in portions."""
        self._publisher.counters.polls += 1
        now = self._clock.now()
        due = list(self._due_queue.take(now))
        for first in range(0, len(due), _BATCH_SIZE):
            if not await self._start_batch(due[first : first + _BATCH_SIZE], now):
                self._requeue(due[first:])
                return

    async def _start_batch(self, slots: Sequence[ScheduledTask], now: int) -> bool:
        """Whether they were started; if not, nothing happened to them."""
        starts = [(slot, decide(slot.record, slot.occurrences, now=now)) for slot in slots]
        marks = {slot.number: started(slot.record, at=now, identifier=self._identifier) for slot in slots}
        try:
            if self._active:
                await self._writer.write_now(marks)
        except Exception as error:  # noqa: BLE001 - whatever the state is made of
            self._publisher.write_failed(error)
            await self._sleep_for(RETRY_SECONDS)
            return False
        if not self._active:
            # Marked, but never begun: the mark is taken back, so that nobody believes it was interrupted.
            for slot in slots:
                self._writer.enqueue(slot)
            return False
        now = self._clock.now()
        self._publisher.record_lateness([now - slot.due_since for slot in slots], allowed_ms=self._allowed_ms)
        for slot, start in starts:
            run = asyncio.create_task(self._run(slot, start))
            self._runs.add(run)
            run.add_done_callback(self._runs.discard)
        return True

    def _requeue(self, slots: Iterable[ScheduledTask]) -> None:
        for slot in slots:
            self._due_queue.put(slot, slot.due_at)

    # ---- a run -----------------------------------------------------------------------------------

    async def _run(self, slot: ScheduledTask, start: StartDecision) -> None:
        if not self._active:
            self._writer.enqueue(slot)
            return
        self._begin(slot, start)
        error: BaseException | None = None
        try:
            await slot.callback()
        except asyncio.CancelledError as cancelled:
            if self._loop is not None and self._loop.cancelling():
                # The whole program is being taken down. That is no outcome: the task was interrupted.
                raise
            error = cancelled
        except (Exception, SystemExit) as raised:  # noqa: BLE001 - whatever it is, the task has failed, and nothing else
            error = raised
        self._end(slot, error)

    def _begin(self, slot: ScheduledTask, start: StartDecision) -> None:
        now = self._clock.now()
        slot.record = started(slot.record, at=now, identifier=self._identifier)
        if start.preempts_retry:
            self._publisher.publish(TaskRetryPreempted, start.cause, task=slot.record.name, at=now)
        kind = TaskRetryStarted if start.cause is Cause.RETRY else TaskRunStarted
        self._publisher.publish(kind, start.cause, task=slot.record.name, at=now)

    def _end(self, slot: ScheduledTask, error: BaseException | None) -> None:
        now = self._clock.now()
        name = slot.record.name
        if error is None:
            slot.record = succeeded(slot.record, at=now)
            self._publisher.publish(TaskRunCompleted, Cause.CALLBACK, task=name, at=now)
        else:
            slot.record = failed(slot.record, at=now)
            retry_at = instant_of(now + slot.record.retry_delay_ms)
            self._publisher.publish(TaskRunFailed, Cause.CALLBACK, task=name, at=now, error=error, retry_at=retry_at)
        self._writer.enqueue(slot)
        self._enqueue(slot, now)

    def _enqueue(self, slot: ScheduledTask, now: int) -> None:
        """The slot is looked at when a start is owed to it, which may be at once."""
        at = due_at(slot.record, slot.occurrences)
        if at is None:
            return
        slot.due_at, slot.due_since = at, max(at, now)
        self._due_queue.put(slot, at)
        if self._sleep is not None and at < self._sleep_until:
            self._sleep.cancel()
