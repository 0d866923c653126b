"""What is going to happen, in the order of its time. One thing happens at a time."""

import heapq
from collections.abc import Awaitable, Callable

from gnomon.testing.clock import VirtualClock

QueuedEvent = Callable[[], Awaitable[None]]


class EventQueue:
    """Events on the clock that is never set."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._events: list[tuple[float, int, QueuedEvent]] = []
        self._numbered = 0
        self._nested = False

    def after(self, ms: float, event: QueuedEvent) -> None:
        """Let something happen later."""
        self._numbered += 1
        heapq.heappush(self._events, (self._elapsed_ms() + ms, self._numbered, event))

    def _elapsed_ms(self) -> float:
        return self._clock.elapsed() * 1000

    async def run_for(self, ms: float) -> None:
        """Let so much time pass, and what is to happen in it."""
        until = self._elapsed_ms() + ms
        while self._events and self._events[0][0] <= until:
            await self._one()
        self._clock.advance(max(0, round(until - self._elapsed_ms())))

    async def _one(self) -> None:
        at, _, event = heapq.heappop(self._events)
        self._clock.advance(max(0, round(at - self._elapsed_ms())))
        await event()

    async def stall(self, ms: int) -> bool:
        """Whoever asks waits for so long in the middle of an event. False if all others had to wait, too."""
        if self._nested:
            self._clock.advance(ms)
            return False
        self._nested = True
        try:
            await self.run_for(ms)
        finally:
            self._nested = False
        return True

    async def meanwhile(self, ms: int = 0) -> None:
        """Let all that is to happen within so much time, but at least one thing, happen in the middle of an event."""
        if self._nested or not self._events:
            return
        self._nested = True
        try:
            await self._one()
            await self.run_for(ms)
        finally:
            self._nested = False
