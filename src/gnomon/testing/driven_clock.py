"""Time that somebody drives: sleepers wait until it has come so far."""

import asyncio
import math
from collections.abc import Callable
from heapq import heappop, heappush

from gnomon.testing.clock import VirtualClock

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
