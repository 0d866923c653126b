"""A registered task in a living scheduler."""

import asyncio

from gnomon.declarative.cron import Occurrences
from gnomon.declarative.event_log import EventPublisher
from gnomon.declarative.records import TaskRecord, encode
from gnomon.declarative.registrations import Callback
from gnomon.declarative.state import State
from gnomon.ports.runtime import Clock


class ScheduledTask:
    """What is kept of a task, and what it takes to run it."""

    __slots__ = ("callback", "due_at", "due_since", "number", "occurrences", "record")

    def __init__(self, number: int, record: TaskRecord, callback: Callback, occurrences: Occurrences) -> None:
        #: The number of its row.
        self.number = number
        self.record = record
        self.callback = callback
        self.occurrences = occurrences
        #: Where it stands on the agenda.
        self.due_at = 0
        #: Since when it could have been started: what lateness is counted from.
        self.due_since = 0


#: How long to wait before a write that failed is tried again, and how often the last one is tried.
RETRY_SECONDS = 1.0
_FINAL_TRIES = 3


class StateWriter:
    """Keeps the state in step with the slots. What is not written yet is written with whatever is next."""

    def __init__(self, state: State, clock: Clock, publisher: EventPublisher) -> None:
        self._state = state
        self._clock = clock
        self._publisher = publisher
        self._unwritten: dict[int, ScheduledTask] = {}
        # One write at a time: an older record must not arrive after a newer one.
        self._write_lock = asyncio.Lock()
        self._writing: asyncio.Task[None] | None = None

    def enqueue(self, slot: ScheduledTask) -> None:
        """The slot's record, as it is when its turn comes, will be written."""
        self._unwritten[slot.number] = slot
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_loop())

    async def write_now(self, marks: dict[int, TaskRecord]) -> None:
        """These records, in place of those in the slots, and all that was noted are durable; or nothing is."""
        async with self._write_lock:
            noted, self._unwritten = self._unwritten, {}
            records = {number: slot.record for number, slot in noted.items()} | marks
            try:
                await self._state.write([(number, encode(record)) for number, record in records.items()])
            except BaseException:
                self._unwritten = noted | self._unwritten
                raise

    async def finish(self) -> None:
        """All is written, or it was tried often enough."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.wait({self._writing})
        for tries_left in reversed(range(_FINAL_TRIES)):
            if not self._unwritten:
                return
            try:
                await self.write_now({})
            except Exception as error:  # noqa: BLE001 - whatever the state is made of
                self._publisher.write_failed(error)
                if tries_left:
                    await self._clock.sleep(RETRY_SECONDS)
        if self._unwritten:
            self._publisher.outcomes_lost(len(self._unwritten))

    async def _write_loop(self) -> None:
        while self._unwritten:
            try:
                await self.write_now({})
            except Exception as error:  # noqa: BLE001 - whatever the state is made of
                self._publisher.write_failed(error)
                await self._clock.sleep(RETRY_SECONDS)
