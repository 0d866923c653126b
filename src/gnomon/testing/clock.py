"""Time that passes only because someone says so."""

import asyncio
import math
from collections.abc import Callable
from heapq import heappop, heappush


class VirtualClock:
    """Both clocks of a machine. `advance` lets time pass; `set_back_or_forth` moves the wall clock alone."""

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
        """See Clock.sleep: whoever waits makes the time pass."""
        self.advance(round(seconds * 1000))

    def advance(self, ms: int) -> None:
        """Let time pass."""
        self._now += ms
        self._elapsed_ms += ms

    def shift_wall_clock(self, ms: int) -> None:
        """Set the wall clock, as an administrator or a time server does, or a lid that was closed."""
        self._now += ms


class CountedIds:
    """Names in the order they were asked for: the same in every run."""

    def __init__(self) -> None:
        self._last = 0

    def new(self, prefix: str, at: int) -> str:
        """See Ids.new."""
        self._last += 1
        return f"{prefix}_{at & (1 << 48) - 1:012x}{self._last:020x}"


class Recorder:
    """Events, kept in the order they were emitted."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, object]]] = []

    def emit(self, name: str, **facts: object) -> None:
        """See Events.emit."""
        self.seen.append((name, facts))

    def names(self) -> list[str]:
        """What happened, without the facts."""
        return [name for name, _ in self.seen]


#: Turns of the event loop after which everything that had something to do has done it.
_TURNS = 20


class DrivenClock(VirtualClock):
    """Both clocks of a machine, for many who sleep at once. Nobody who sleeps makes time pass; `drive` does."""

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
        # Never early: a part of a millisecond is a whole one, unless it is but an error of rounding.
        wakes_ms = self._elapsed_ms + math.ceil(round(seconds * 1000, 3))
        heappush(self._sleepers, (wakes_ms, self._slept, woken))
        return await woken

    async def drive(self, ms: int, *, until: Callable[[], bool] = lambda: False) -> None:
        """Let so much time pass, from one sleeper to the next; each may act before it goes on.

        Time stands still as soon as `until` is true.
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
        """Let everybody act who has something to do now. Threads are not waited for."""
        for _ in range(_TURNS):
            await asyncio.sleep(0)
