"""The scheduled tasks of a running scheduler, and the writer that persists their records."""

import asyncio

from gnomon.declarative.cron import Occurrences
from gnomon.declarative.event_log import EventPublisher
from gnomon.declarative.records import TaskRecord, encode
from gnomon.declarative.registrations import Callback
from gnomon.declarative.state import State
from gnomon.ports.runtime import Clock


class ScheduledTask:
    """The record of a task with its callback and its occurrences."""

    __slots__ = ("callback", "due_at", "due_since", "number", "occurrences", "record")

    def __init__(self, number: int, record: TaskRecord, callback: Callback, occurrences: Occurrences) -> None:
        #: The number of its row.
        self.number = number
        self.record = record
        self.callback = callback
        self.occurrences = occurrences
        #: Its instant in the queue.
        self.due_at = 0
        #: The instant from which lateness is counted: due, and free to start.
        self.due_since = 0


#: The delay before a failed write is retried, and the number of attempts at the last write.
RETRY_SECONDS = 1.0
_FINAL_TRIES = 3


class StateWriter:
    """Writes the records of tasks to the state. Each write includes all records that are still unwritten."""

    def __init__(self, state: State, clock: Clock, publisher: EventPublisher) -> None:
        self._state = state
        self._clock = clock
        self._publisher = publisher
        self._unwritten: dict[int, ScheduledTask] = {}
        # One write at a time: an older record must not arrive after a newer one.
        self._write_lock = asyncio.Lock()
        self._writing: asyncio.Task[None] | None = None

    def enqueue(self, task: ScheduledTask) -> None:
        """Write the task's record soon, as it is at that time."""
        self._unwritten[task.number] = task
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_loop())

    async def write_now(self, marks: dict[int, TaskRecord]) -> None:
        """Write the queued records in one transaction; those in `marks` replace the records of their tasks."""
        async with self._write_lock:
            queued, self._unwritten = self._unwritten, {}
            records = {number: task.record for number, task in queued.items()} | marks
            try:
                await self._state.write([(number, encode(record)) for number, record in records.items()])
            except BaseException:
                self._unwritten = queued | self._unwritten
                raise

    async def finish(self) -> None:
        """Write all queued records; give up after a few attempts."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.wait({self._writing})
        for tries_left in reversed(range(_FINAL_TRIES)):
            if not self._unwritten:
                return
            try:
                await self.write_now({})
            except Exception as error:  # noqa: BLE001 - a State may raise anything
                self._publisher.write_failed(error)
                if tries_left:
                    await self._clock.sleep(RETRY_SECONDS)
        if self._unwritten:
            self._publisher.outcomes_lost(len(self._unwritten))

    async def _write_loop(self) -> None:
        while self._unwritten:
            try:
                await self.write_now({})
            except Exception as error:  # noqa: BLE001 - a State may raise anything
                self._publisher.write_failed(error)
                await self._clock.sleep(RETRY_SECONDS)
