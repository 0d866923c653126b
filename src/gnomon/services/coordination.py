"""Doing without what is shared while it is away: what this process knows by itself has to do."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from gnomon.core.leases import LONGEST_MS, SHORTEST_MS
from gnomon.errors import Unavailable
from gnomon.ports.coordination import IN_FLIGHT_MS, PROCESSED_MS, Counters, Guard, Leases, Standing
from gnomon.ports.maintenance import Turns
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


#: How much of a turn passes until it is asked for again, whether it is ours or not.
_ASKED_AGAIN = 0.25


class Turn:
    """One node's turn at one thing, which it keeps by asking for it again in time."""

    def __init__(self, turns: Turns, clock: Clock, name: str, holder: str, *, ttl_ms: int) -> None:
        self._turns = turns
        self._clock = clock
        self._name = name
        self._holder = holder
        self._ttl_ms = ttl_ms
        self._ours = False
        self._ask_at = float("-inf")

    @property
    def again_seconds(self) -> float:
        """How long whoever does not have it waits before they ask again."""
        return self._ttl_ms / 1000 * _ASKED_AGAIN

    async def ours(self) -> bool:
        """Whether it is our turn. Unavailable if nobody says."""
        asked_at = self._clock.elapsed()
        if asked_at >= self._ask_at:
            self._ours = await self._turns.take_turn(self._name, self._holder, ttl_ms=self._ttl_ms)
            self._ask_at = asked_at + self.again_seconds
        return self._ours


class OnlyNode:
    """The port Turns where nobody else can be alive: every turn is ours, and costs nothing."""

    async def take_turn(self, name: str, holder: str, *, ttl_ms: int) -> bool:
        """See Turns.take_turn."""
        del name, holder, ttl_ms
        return True

    async def give_turns_up(self, holder: str) -> None:
        """See Turns.give_turns_up."""


class LeasedTurns:
    """The port Turns by leases, so that the store is not asked; while nobody keeps them, by the store after all."""

    def __init__(self, leases: Leases, store: Turns, clock: Clock, events: Events) -> None:
        self._leases = leases
        self._store = store
        self._shared = Shared("turns", clock, events)
        #: By the names of who holds what, the tokens.
        self._tokens: dict[tuple[str, str], int] = {}

    async def take_turn(self, name: str, holder: str, *, ttl_ms: int) -> bool:
        """See Turns.take_turn."""
        return await self._shared.ask(
            lambda: self._leased(name, holder, min(max(ttl_ms, SHORTEST_MS), LONGEST_MS)),
            lambda: self._store.take_turn(name, holder, ttl_ms=ttl_ms),
        )

    async def give_turns_up(self, holder: str) -> None:
        """See Turns.give_turns_up."""
        ours = [(name, token) for (name, owner), token in self._tokens.items() if owner == holder]
        await self._shared.ask(lambda: self._release(ours, holder), lambda: self._store.give_turns_up(holder))

    async def _leased(self, name: str, holder: str, ttl_ms: int) -> bool:
        # It stays with us while nobody says that it is ours no longer.
        key, token = _key(name), self._tokens.get((name, holder))
        if token is not None:
            token = await self._leases.renew(key, token, ttl_ms=ttl_ms)
        if token is None:
            self._tokens.pop((name, holder), None)
            token = await self._leases.acquire(key, holder, ttl_ms=ttl_ms)
        if token is not None:
            self._tokens[name, holder] = token
        return token is not None

    async def _release(self, ours: list[tuple[str, int]], holder: str) -> None:
        for name, token in ours:
            self._tokens.pop((name, holder), None)
            await self._leases.release(_key(name), token)
        # Some may have been taken there while nobody kept leases.
        await self._store.give_turns_up(holder)


def _key(name: str) -> str:
    return f"turn.{name}"
