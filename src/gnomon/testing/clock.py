"""Clocks, ids and events under the control of a test."""

import asyncio
import math
from collections.abc import Callable
from heapq import heappop, heappush


class VirtualClock:
    """A wall clock and a monotonic clock. `advance` moves both; `shift_wall_clock` moves the wall clock alone."""

    def __init__(self, now: int) -> None:
        self._now = now
        self._elapsed_ms = 0

    def now(self) -> int:
        """See Clock.now."""
        return self._now

    def until(self, at: int) -> float:
        """See Clock.until."""
        return (at - self._now) / 1000

    def elapsed(self) -> float:
        """See Clock.elapsed."""
        return self._elapsed_ms / 1000

    async def sleep(self, seconds: float) -> None:
        """See Clock.sleep. Advances the time instead of waiting."""
        self.advance(round(seconds * 1000))

    def advance(self, ms: int) -> None:
        """Advance both clocks."""
        self._now += ms
        self._elapsed_ms += ms

    def shift_wall_clock(self, ms: int) -> None:
        """Move the wall clock, as an administrator, a time server or a suspended machine does."""
        self._now += ms


class CountedIds:
    """Ids with a counter: the same in every execution of a test."""

    def __init__(self) -> None:
        self._last = 0

    def new(self, prefix: str, at: int) -> str:
        """See Ids.new."""
        self._last += 1
        return f"{prefix}_{at & (1 << 48) - 1:012x}{self._last:020x}"


class Recorder:
    """All emitted events, in order."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, object]]] = []

    def emit(self, name: str, **facts: object) -> None:
        """See Events.emit."""
        self.seen.append((name, facts))

    def names(self) -> list[str]:
        """The names of the events, without their fields."""
        return [name for name, _ in self.seen]


#: Iterations of the event loop after which all tasks that were ready have run.
_ITERATIONS = 20


class DrivenClock(VirtualClock):
    """A virtual clock for many tasks that sleep at once. `sleep` waits until `drive` has advanced the time."""

    def __init__(self, now: int) -> None:
        super().__init__(now)
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._slept = 0

    async def sleep(self, seconds: float) -> None:
        """See Clock.sleep."""
        if seconds <= 0:
            return await asyncio.sleep(0)
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._slept += 1
        # Never early: round up to whole milliseconds, except for a floating-point error.
        wakes_ms = self._elapsed_ms + math.ceil(round(seconds * 1000, 3))
        heappush(self._sleepers, (wakes_ms, self._slept, woken))
        return await woken

    async def drive(self, ms: int, *, until: Callable[[], bool] = lambda: False) -> None:
        """Advance the time by `ms`, from one sleeper to the next; each acts before the time advances further.

        Stops as soon as `until` is true.
        """
        await self.settle()
        end = self._elapsed_ms + ms
        while self._sleepers and self._sleepers[0][0] <= end and not until():
            at, _, woken = heappop(self._sleepers)
            if woken.done():
                continue
            self.advance(max(0, at - self._elapsed_ms))
            woken.set_result(None)
            await self.settle()
        if not until():
            self.advance(end - self._elapsed_ms)
            await self.settle()

    async def settle(self) -> None:
        """Run all tasks that are ready now. Does not wait for threads."""
        for _ in range(_ITERATIONS):
            await asyncio.sleep(0)
