"""A small world for the declarative scheduler: a clock that is driven, a state that can be made to fail, processes
that die. All events are recorded, and checked against the theory at the end."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from gnomon.core.instants import ms_of
from gnomon.declarative import MemoryState, Scheduler
from gnomon.declarative.events import Event
from gnomon.declarative.theory import Automata, Watched, check
from gnomon.declarative.theory.traces import (
    ClockSet,
    Crash,
    End,
    Excused,
    RunError,
    RunOk,
    RunStart,
    Seen,
    TraceViolation,
)
from gnomon.testing.clock import DrivenClock

Body = Callable[[], Awaitable[None]]
NO_DELAY = timedelta()
SECOND, MINUTE = 1000, 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR


class FaultyState:
    """The state as one process sees it. When the process is dead, nothing it does reaches the rows."""

    def __init__(self, process: "SchedulerProcess") -> None:
        self._process = process
        self._world = process.world

    async def open(self) -> list[tuple[int, object]]:
        await self._turn()
        return await self._world.state.open()

    async def write(self, kept: Sequence[tuple[int, str]], removed: Sequence[int] = ()) -> None:
        await self._turn()
        fault = self._world.next_fault()
        if fault == "fail":
            raise OSError("the disk is full")
        if fault != "die before":
            await self._world.state.write(kept, removed)
            self._world.writes += 1
            self._process.committed = self._process.initialising
        if fault.startswith("die"):
            self._process.die()
        await self._turn()

    async def close(self) -> None:
        if self._process.alive:
            await self._turn()
            await self._world.state.close()

    async def _turn(self) -> None:
        for _ in range(self._world.turns()):
            await asyncio.sleep(0)
        if not self._process.alive:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise asyncio.CancelledError
            await asyncio.Event().wait()


class SchedulerProcess:
    """A scheduler, watched, in a process that can be killed."""

    def __init__(self, world: "DeclarativeWorld", **more: Any) -> None:  # noqa: ANN401 - as a Scheduler takes them
        self.world = world
        self._before = asyncio.all_tasks()
        options: dict[str, Any] = {"clock": world.clock, "timezone": world.zone, "on_event": self._hear} | more
        self.scheduler = Scheduler(FaultyState(self), **options)
        self.watched = Watched(self.scheduler, world.trace, world.clock.now)
        self.alive = True
        self.initialising: list[str] | None = None
        #: The names that an initialisation has committed and not yet returned from.
        self.committed: list[str] | None = None

    def _hear(self, event: Event) -> None:
        if self.alive:
            self.world.hear(event)

    async def initialize(self, registrations: Any) -> None:  # noqa: ANN401 - anything
        names = [one[0] for one in registrations or () if one]
        if self.initialising is None:
            self.initialising = names
        try:
            await self.watched.initialize(registrations)
            self.world.automata.registered(names)
        finally:
            if self.initialising is names:
                self.initialising = self.committed = None

    async def stop(self) -> None:
        await self.watched.stop()

    def die(self) -> None:
        """Cut the process off: its events are not seen, and its writes do not reach the rows."""
        if not self.alive:
            return
        if self.committed is not None:
            # The call has not returned, but the registrations are written.
            self.watched.note_committed()
            self.world.automata.registered(self.committed)
        self.alive = self.watched.alive = False
        self.world.note_crash()

    async def kill(self) -> None:
        """End the process and everything that ran in it; the rows stay."""
        self.die()
        mine = asyncio.all_tasks() - self._before - {asyncio.current_task()}
        for task in mine:
            task.cancel()
        await asyncio.gather(*mine, return_exceptions=True)
        self.world.state.is_open = False


class DeclarativeWorld:
    """One state, one clock, one process after the other."""

    def __init__(self, at: str = "2026-03-02T12:00:00", zone: str = "UTC") -> None:
        self.zone = zone
        self.clock = DrivenClock(self.instant(at))
        self.state = MemoryState()
        self.trace: list[Seen] = []
        self.events: list[Event] = []
        self.automata = Automata()
        self.ran: list[str] = []
        self.writes = 0
        #: The fault of coming writes: "fail", "die before", "die after" the commit.
        self.faults: list[str] = []
        self.failing = False
        self.turns: Callable[[], int] = lambda: 0

    # ---- time ------------------------------------------------------------------------------------

    def instant(self, text: str) -> int:
        """Milliseconds for a local time such as 2026-03-02T12:00:00; one that comes twice is the first."""
        return ms_of(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(self.zone)))

    def local(self, at: int | None = None) -> str:
        """The local time of an instant."""
        wall = datetime.fromtimestamp((self.clock.now() if at is None else at) / 1000, UTC)
        return wall.astimezone(ZoneInfo(self.zone)).strftime("%d %H:%M:%S")

    async def drive(self, ms: int, *, until: Callable[[], bool] = lambda: False) -> None:
        await self.clock.drive(ms, until=until)

    async def drive_to(self, text: str) -> None:
        await self.clock.drive(self.instant(text) - self.clock.now())

    async def run_loop_until(self, happened: Callable[[], bool]) -> None:
        """Run the event loop, without any time passing, until a condition holds."""
        for _ in range(1000):
            if happened():
                return
            await asyncio.sleep(0)
        raise AssertionError("it never happened")

    def set_clock(self, text: str) -> None:
        self.step_clock(self.instant(text) - self.clock.now())

    def step_clock(self, ms: int) -> None:
        now = self.clock.now()
        self.trace.append(ClockSet(now, now + ms))
        self.clock.shift_wall_clock(ms)

    # ---- tasks and processes ---------------------------------------------------------------------

    def process(self, **more: Any) -> SchedulerProcess:  # noqa: ANN401 - as a Scheduler takes them
        return SchedulerProcess(self, **more)

    async def started(self, *registrations: Any, **more: Any) -> SchedulerProcess:  # noqa: ANN401 - anything
        """A process that has initialized these tasks and done all work that is due."""
        process = self.process(**more)
        await process.initialize(list(registrations))
        await self.clock.settle()
        return process

    def task(
        self, name: str, cron: str = "* * * * *", *, delay: timedelta = NO_DELAY, body: Body | None = None
    ) -> tuple[str, str, Body, timedelta]:
        async def callback() -> None:
            self.ran.append(f"{name} {self.local()}")
            if body is not None:
                await body()

        return name, cron, callback, delay

    def body_lasting(self, ms: int, *, fails: bool = False) -> Body:
        async def body() -> None:
            await self.clock.sleep(ms / 1000)
            if fails:
                raise ValueError("it went wrong")

        return body

    # ---- what is seen ----------------------------------------------------------------------------

    def hear(self, event: Event) -> None:
        self.events.append(event)
        self.automata.see(event.name, event.task, ms_of(event.at))

    def event_names(self, *, task: str | None = None) -> list[str]:
        """The names of the events, or those of one task."""
        return [event.name for event in self.events if task is None or event.task == task]

    def record(self, name: str) -> dict[str, Any]:
        """The stored record of a task."""
        records = [msgspec.json.decode(str(text)) for text in self.state.rows.values()]
        [found] = [record for record in records if record["name"] == name]
        return dict(found)

    def next_fault(self) -> str:
        if self.failing:
            return "fail"
        return self.faults.pop(0) if self.faults else ""

    def excuse_missing_events(self) -> None:
        """Excuse missing events up to now, because the state was made to fail."""
        self.trace.append(Excused(self.clock.now()))

    def note_crash(self) -> None:
        self.automata.crash(unwritten := self.unwritten())
        self.trace.append(Crash(self.clock.now(), unwritten))

    def unwritten(self) -> frozenset[str]:
        """Tasks that run only according to the rows: their end is not written, or they never began."""
        records = [msgspec.json.decode(str(text)) for text in self.state.rows.values()]
        kept = {record["name"] for record in records if "schedulerIdentifier" in record}
        return frozenset(kept - self._running())

    def _running(self) -> set[str]:
        """Tasks that were seen to begin, and neither to end nor to die."""
        open_runs: dict[int, str] = {}
        for seen in self.trace:
            match seen:
                case RunStart(_, name, run):
                    open_runs[run] = name
                case RunOk(_, run) | RunError(_, run):
                    open_runs.pop(run, None)
                case Crash():
                    open_runs.clear()
                case _:
                    continue
        return set(open_runs.values())

    def violations(self) -> list[TraceViolation]:
        """The violations of the theory in this world."""
        return check([*self.trace, End(self.clock.now())], zone=self.zone) + self.automata.violations
