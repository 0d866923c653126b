"""Doing without what is shared while it is away: what this process knows by itself has to do."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from gnomon.errors import Unavailable
from gnomon.ports.coordination import IN_FLIGHT_MS, PROCESSED_MS, Counters, Guard, Standing
from gnomon.ports.runtime import Clock, Events

T = TypeVar("T")
#: How long nobody is asked again who has just not answered: each time may cost as long as an answer may take.
_REST_SECONDS = 2.0


class Shared:
    """Asks what is shared, and what is ours instead while that is away. Says when it goes and when it is back."""

    def __init__(self, what: str, clock: Clock, events: Events) -> None:
        self._what = what
        self._clock = clock
        self._events = events
        self._rests_until = float("-inf")
        #: Whether the last answer was our own.
        self.degraded = False

    async def ask(self, shared: Callable[[], Awaitable[T]], own: Callable[[], Awaitable[T]]) -> T:
        """The answer of the one, or of the other."""
        if self._clock.elapsed() < self._rests_until:
            return await own()
        try:
            answer = await shared()
        except Unavailable as error:
            if not self.degraded:
                self._events.emit("degraded", what=self._what, error=str(error))
            self.degraded, self._rests_until = True, self._clock.elapsed() + _REST_SECONDS
            return await own()
        if self.degraded:
            self._events.emit("degraded_no_more", what=self._what)
        self.degraded = False
        return answer


class TolerantGuard:
    """The port Guard, which is never away: without what is shared, messages are dealt with at least once."""

    def __init__(self, shared: Guard, own: Guard, clock: Clock, events: Events) -> None:
        self._shared = shared
        self._own = own
        self._ask = Shared("guard", clock, events).ask

    async def begin(self, consumer: str, message: str, *, ttl_ms: int = IN_FLIGHT_MS) -> Standing:
        """See Guard.begin."""
        # Ours first: so it knows what is in flight here when what is shared goes away, or forgets everything.
        known = await self._own.begin(consumer, message, ttl_ms=ttl_ms)
        if known is not Standing.NEW:
            return known
        elsewhere = await self._ask(lambda: self._shared.begin(consumer, message, ttl_ms=ttl_ms), _new)
        if elsewhere is not Standing.NEW:
            await self._own.give_up(consumer, message)
        return elsewhere

    async def processed(self, consumer: str, message: str, *, ttl_ms: int = PROCESSED_MS) -> None:
        """See Guard.processed."""
        await self._own.processed(consumer, message, ttl_ms=ttl_ms)
        await self._ask(lambda: self._shared.processed(consumer, message, ttl_ms=ttl_ms), _nothing)

    async def give_up(self, consumer: str, message: str) -> None:
        """See Guard.give_up."""
        await self._own.give_up(consumer, message)
        await self._ask(lambda: self._shared.give_up(consumer, message), _nothing)


class TolerantCounters:
    """The port Counters, which is never away: without what is shared, each process counts for itself."""

    def __init__(self, shared: Counters, own: Counters, clock: Clock, events: Events) -> None:
        self._shared = shared
        self._own = own
        self._ask = Shared("counters", clock, events).ask

    async def count(self, name: str, *, ttl_ms: int) -> int:
        """See Counters.count."""
        count = await self._own.count(name, ttl_ms=ttl_ms)

        async def ours() -> int:
            return count

        return await self._ask(lambda: self._shared.count(name, ttl_ms=ttl_ms), ours)

    async def counted(self, names: Sequence[str]) -> Sequence[int]:
        """See Counters.counted."""
        return await self._ask(lambda: self._shared.counted(names), lambda: self._own.counted(names))

    async def forget(self, names: Sequence[str]) -> None:
        """See Counters.forget."""
        await self._own.forget(names)
        await self._ask(lambda: self._shared.forget(names), _nothing)


async def _new() -> Standing:
    return Standing.NEW


async def _nothing() -> None:
    """All that could be done was done."""
