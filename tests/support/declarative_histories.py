"""Long random histories for the declarative scheduler: restarts, crashes at commits, new registrations, failing
writes, set clocks and clock changes, all from one seed."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

from gnomon.declarative.errors import SchedulerError
from support.declarative_world import DAY, HOUR, MINUTE, SECOND, Body, DeclarativeWorld, SchedulerProcess

CRONS = (
    *("* * * * *", "* * * * *", "0,15,30,45 * * * *", "0 * * * *", "59 * * * *"),
    *("30 2 * * *", "30 1 * * *", "5 1-3 * * *", "0 0 1 * 1", "0 12 29 2 *"),
)
DELAYS = tuple(timedelta(milliseconds=ms) for ms in (0, 1, 1000, 5000, 90_000, 2 * HOUR))
DURATIONS = (0, 0, 0, 500, 20 * SECOND, 59 * SECOND, 150 * SECOND, 2 * HOUR)
ZONES = (
    ("UTC", "2026-02-27T22:00:00"),
    ("America/New_York", "2026-03-07T22:00:00"),
    ("America/New_York", "2026-10-31T22:00:00"),
    ("Australia/Lord_Howe", "2026-04-04T22:00:00"),
    ("Europe/Berlin", "2026-10-24T20:00:00"),
)


class RandomHistory:
    """One history."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        zone, begin = self._rng.choice(ZONES)
        self.world = DeclarativeWorld(begin, zone)
        self.world.turns = lambda: self._rng.choice((0, 0, 0, 1, 2))
        self._process: SchedulerProcess | None = None
        self._calls: set[asyncio.Task[None]] = set()
        #: Reported events that a crash in a quiet moment would lose: must stay empty.
        self.forgotten: list[str] = []

    async def run(self, steps: int) -> DeclarativeWorld:
        """Perform so many random actions, then let some quiet time pass."""
        actions = {
            self._pass_time: 60,
            self._initialize: 14,
            self._stop: 8,
            self._crash: 6,
            self._crash_at_a_commit: 6,
            self._set_clock: 4,
            self._fail_for_a_while: 5,
            self._initialize_and_interfere: 5,
            self._initialize_badly: 3,
        }
        for _ in range(steps):
            if not self.world.state.is_open and self._rng.random() < 0.7:
                await self._initialize()
            [action] = self._rng.choices(list(actions), list(actions.values()))
            await action()
            await self._wait_for_death()
        await self._drive(3 * MINUTE)
        await self._wait_for_death()
        if self._process is not None:
            await self._process.kill()
        await asyncio.gather(*self._calls, return_exceptions=True)
        return self.world

    async def _drive(self, ms: int) -> None:
        process = self._process
        await self.world.drive(ms, until=lambda: process is not None and not process.alive)

    async def _wait_for_death(self) -> None:
        """Clean up after a process that died."""
        if self._process is not None and not self._process.alive:
            await self._process.kill()
            self._process = None
            self.world.faults.clear()

    # ---- actions ---------------------------------------------------------------------------------

    async def _pass_time(self) -> None:
        longest = self._rng.choice((SECOND, MINUTE, MINUTE, 5 * MINUTE, HOUR, 5 * HOUR))
        await self._drive(self._rng.randint(1, longest))

    async def _initialize(self) -> None:
        self._call(partial(self._alive().initialize, self._registrations()))
        await self.world.clock.settle()

    async def _initialize_badly(self) -> None:
        wrong: Any = self._rng.choice((None, [None], [self._task("x", "@daily")], [self._task("x", "* * * * *")] * 2))
        self._call(partial(self._alive().initialize, wrong))
        await self.world.clock.settle()

    async def _initialize_and_interfere(self) -> None:
        process = self._alive()
        self._call(partial(process.initialize, self._registrations()))
        for _ in range(self._rng.randint(0, 4)):
            await asyncio.sleep(0)
        if self._rng.random() < 0.5:
            await process.kill()
        else:
            self._call(process.stop)
            await self._drive(self._rng.randint(1, MINUTE))

    async def _stop(self) -> None:
        if self._process is not None:
            self._call(self._process.stop)
            await self._drive(self._rng.randint(1, 10 * SECOND))

    async def _crash(self) -> None:
        if self._process is None:
            return
        quiet = self._rng.random() < 0.5
        if quiet:
            await self.world.clock.settle()
            self.forgotten += self.world.unwritten()
        else:
            for _ in range(self._rng.randint(0, 6)):
                await asyncio.sleep(0)
        await self._process.kill()

    async def _crash_at_a_commit(self) -> None:
        if self._process is not None:
            before = [""] * self._rng.randint(0, 3)
            self.world.faults = [*before, self._rng.choice(("die before", "die after"))]
            await self._drive(self._rng.randint(1, 5 * MINUTE))
            self.world.faults.clear()

    async def _set_clock(self) -> None:
        ms = self._rng.choice((SECOND, 90 * SECOND, HOUR, 26 * HOUR))
        self.world.step_clock(self._rng.choice((-ms, ms)))

    async def _fail_for_a_while(self) -> None:
        """The disk is full. A stop that ends meanwhile could not write, so none is under way."""
        if self._process is None or self._calls:
            return
        self.world.failing = True
        await self._drive(self._rng.randint(1, 3 * MINUTE))
        self.world.failing = False
        self.world.excuse_missing_events()
        # Reported events are written as soon as possible.
        await self._drive(2 * SECOND)

    # ---- parts -----------------------------------------------------------------------------------

    def _alive(self) -> SchedulerProcess:
        """The process; sometimes a new one, if the last has ended gracefully."""
        if self._process is None or (not self.world.state.is_open and not self._calls and self._rng.random() < 0.5):
            self._process = self.world.process()
        return self._process

    def _call(self, call: Callable[[], Awaitable[None]]) -> None:
        """Start a call without waiting for its result."""

        async def carry_out() -> None:
            with suppress(SchedulerError):
                await call()

        task = asyncio.create_task(carry_out())
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    def _registrations(self) -> list[tuple[str, str, Body, timedelta]]:
        names = [f"t{number}" for number in range(5) if self._rng.random() < 0.8]
        return [self._task(name, self._rng.choice(CRONS)) for name in names]

    def _task(self, name: str, cron: str) -> tuple[str, str, Body, timedelta]:
        async def body() -> None:
            # Failures depend on the clock, so that random numbers are drawn in one order only.
            await self.world.clock.sleep(self._rng.choice(DURATIONS) / 1000)
            if self._rng.random() < 0.3:
                raise ValueError(name)

        return self.world.task(name, cron, delay=self._rng.choice(DELAYS), body=body)


def simulated_days(world: DeclarativeWorld) -> float:
    return world.clock.elapsed() / (DAY / 1000)
