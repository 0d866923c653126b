"""The event queue of a simulation: events run one at a time, in the order of their time."""

import heapq
from collections.abc import Awaitable, Callable

from gnomon.testing.clock import VirtualClock

QueuedEvent = Callable[[], Awaitable[None]]


class EventQueue:
    """Future events by their time on the monotonic clock."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._events: list[tuple[float, int, QueuedEvent]] = []
        self._numbered = 0
        self._nested = False

    def after(self, ms: float, event: QueuedEvent) -> None:
        """Queue an event for `ms` milliseconds from now."""
        self._numbered += 1
        heapq.heappush(self._events, (self._elapsed_ms() + ms, self._numbered, event))

    def _elapsed_ms(self) -> float:
        return self._clock.elapsed() * 1000

    async def run_for(self, ms: float) -> None:
        """Advance the time by `ms`, and run the events that fall into it."""
        until = self._elapsed_ms() + ms
        while self._events and self._events[0][0] <= until:
            await self._one()
        self._clock.advance(max(0, round(until - self._elapsed_ms())))

    async def _one(self) -> None:
        at, _, event = heapq.heappop(self._events)
        self._clock.advance(max(0, round(at - self._elapsed_ms())))
        await event()

    async def stall(self, ms: int) -> bool:
        """Delay the current event by `ms`, while other events run. False if they could not run: the call was nested."""
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
        """Run the next event and those of the following `ms`, in the middle of the current event."""
        if self._nested or not self._events:
            return
        self._nested = True
        try:
            await self._one()
            await self.run_for(ms)
        finally:
            self._nested = False
