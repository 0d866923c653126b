"""Who must be looked at when. Looking at what is due costs nothing for what is not."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from typing import Generic, TypeVar

from gnomon.core.instants import instant_of
from gnomon.declarative.decide import AT_ONCE, MINUTE_MS, Start, decide, owed_at
from gnomon.declarative.event_log import Announcer
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
from gnomon.declarative.writer import AGAIN_SECONDS, Scribe, Slot
from gnomon.ports.runtime import Clock

T = TypeVar("T")


class Agenda(Generic[T]):
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
_TOGETHER = 2000
#: By the specification a start may be a minute late, and later where there are very many tasks.
_ALLOWED_MS, _ALLOWED_MS_PER_TASK = 60_000, 6


class Polling:
    """Looks at schedules at every minute, and whenever a task could be due, from `start` until `stop`."""

    def __init__(
        self, slots: Sequence[Slot], identifier: str, clock: Clock, scribe: Scribe, announcer: Announcer
    ) -> None:
        self._identifier = identifier
        self._clock = clock
        self._scribe = scribe
        self._announcer = announcer
        self._agenda: Agenda[Slot] = Agenda()
        self._active = False
        self._loop: asyncio.Task[None] | None = None
        self._runs: set[asyncio.Task[None]] = set()
        self._nap: asyncio.Task[None] | None = None
        self._nap_until = AT_ONCE
        now = clock.now()
        self._count = len(slots)
        self._allowed_ms = max(_ALLOWED_MS, _ALLOWED_MS_PER_TASK * self._count)
        for slot in slots:
            self._place(slot, now)

    def start(self) -> None:
        """Begin to look, from the next turn of the event loop on, if there is anything to look at."""
        if not self._count:
            return
        self._active = True
        self._announcer.tell(PollingStarted, Cause.SCHEDULED)
        self._loop = asyncio.create_task(self._poll_on())

    def is_running(self, task: "asyncio.Task[object] | None") -> bool:
        """Whether this is where one of the callbacks runs."""
        return task in self._runs

    def request_stop(self) -> None:
        """From here on nothing is started."""
        if self._loop is None:
            return
        self._active = False
        self._announcer.tell(PollingStopRequested, Cause.CALL)
        if self._nap is not None:
            self._nap.cancel()

    async def stopped(self) -> None:
        """Nothing is running any more, and all is written as far as it can be."""
        if self._loop is not None:
            await asyncio.wait({self._loop})
        while self._runs:
            await asyncio.wait(self._runs)
        await self._scribe.finish()

    def announce_stopped(self) -> None:
        """Tell that polling is over, if it ever began."""
        if self._loop is not None:
            self._announcer.tell(PollingStopped, Cause.QUIET)

    # ---- the loop --------------------------------------------------------------------------------

    async def _poll_on(self) -> None:
        while self._active:
            try:
                await self._poll()
            except Exception as error:  # noqa: BLE001 - nothing ends the loop but a stop
                self._announcer.stumbled(error)
                await self._doze(AGAIN_SECONDS)
                continue
            now = self._clock.now()
            # Not longer than to the next minute: the clock may be set, and the machine may sleep.
            wake_at = now - now % MINUTE_MS + MINUTE_MS
            if self._agenda.next_at is not None:
                wake_at = min(wake_at, self._agenda.next_at)
            if wake_at > now and self._active:
                await self._doze(self._clock.until(wake_at), until=wake_at)

    async def _doze(self, seconds: float, *, until: int = AT_ONCE) -> None:
        """So much time has passed, or somebody cut it short because something is owed before `until`."""
        self._nap_until = until
        self._nap = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            await asyncio.wait({self._nap})
        finally:
            self._nap.cancel()
            self._nap = None

    async def _poll(self) -> None:
        """Everything that is due is started, in portions."""
        self._announcer.counters.polls += 1
        now = self._clock.now()
        due = list(self._agenda.take(now))
        for first in range(0, len(due), _TOGETHER):
            if not await self._start_some(due[first : first + _TOGETHER], now):
                self._give_back(due[first:])
                return

    async def _start_some(self, slots: Sequence[Slot], now: int) -> bool:
        """Whether they were started; if not, nothing happened to them."""
        starts = [(slot, decide(slot.record, slot.occurrences, now=now)) for slot in slots]
        marks = {slot.number: started(slot.record, at=now, identifier=self._identifier) for slot in slots}
        try:
            if self._active:
                await self._scribe.mark(marks)
        except Exception as error:  # noqa: BLE001 - whatever the state is made of
            self._announcer.write_failed(error)
            await self._doze(AGAIN_SECONDS)
            return False
        if not self._active:
            # Marked, but never begun: the mark is taken back, so that nobody believes it was interrupted.
            for slot in slots:
                self._scribe.note(slot)
            return False
        now = self._clock.now()
        self._announcer.lateness([now - slot.owed_since for slot in slots], allowed_ms=self._allowed_ms)
        for slot, start in starts:
            run = asyncio.create_task(self._run(slot, start))
            self._runs.add(run)
            run.add_done_callback(self._runs.discard)
        return True

    def _give_back(self, slots: Iterable[Slot]) -> None:
        for slot in slots:
            self._agenda.put(slot, slot.owed_at)

    # ---- a run -----------------------------------------------------------------------------------

    async def _run(self, slot: Slot, start: Start) -> None:
        if not self._active:
            self._scribe.note(slot)
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

    def _begin(self, slot: Slot, start: Start) -> None:
        now = self._clock.now()
        slot.record = started(slot.record, at=now, identifier=self._identifier)
        if start.preempts_retry:
            self._announcer.tell(TaskRetryPreempted, start.cause, task=slot.record.name, at=now)
        kind = TaskRetryStarted if start.cause is Cause.RETRY else TaskRunStarted
        self._announcer.tell(kind, start.cause, task=slot.record.name, at=now)

    def _end(self, slot: Slot, error: BaseException | None) -> None:
        now = self._clock.now()
        name = slot.record.name
        if error is None:
            slot.record = succeeded(slot.record, at=now)
            self._announcer.tell(TaskRunCompleted, Cause.CALLBACK, task=name, at=now)
        else:
            slot.record = failed(slot.record, at=now)
            retry_at = instant_of(now + slot.record.retry_delay_ms)
            self._announcer.tell(TaskRunFailed, Cause.CALLBACK, task=name, at=now, error=error, retry_at=retry_at)
        self._scribe.note(slot)
        self._place(slot, now)

    def _place(self, slot: Slot, now: int) -> None:
        """The slot is looked at when a start is owed to it, which may be at once."""
        at = owed_at(slot.record, slot.occurrences)
        if at is None:
            return
        slot.owed_at, slot.owed_since = at, max(at, now)
        self._agenda.put(slot, at)
        if self._nap is not None and at < self._nap_until:
            self._nap.cancel()
