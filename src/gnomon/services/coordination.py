"""Coordination with other nodes, with a local fallback while the shared service is unavailable."""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from gnomon.core import component_names
from gnomon.core.leases import LONGEST_MS, SHORTEST_MS
from gnomon.errors import Unavailable
from gnomon.ports.coordination import IN_FLIGHT_MS, PROCESSED_MS, Deduplicator, DedupState, Leases
from gnomon.ports.maintenance import SingletonLeases
from gnomon.ports.runtime import Clock, Events

T = TypeVar("T")
#: How long a service that did not answer is not asked again: each try may cost a whole timeout.
_RETRY_AFTER_SECONDS = 2.0


class FallbackService:
    """Asks a shared service, and a local one while the shared one is unavailable. Announces both changes."""

    def __init__(self, what: str, clock: Clock, events: Events) -> None:
        self._what = what
        self._clock = clock
        self._events = events
        self._retry_at = float("-inf")
        #: Whether the last answer was local.
        self.degraded = False

    async def ask(self, shared: Callable[[], Awaitable[T]], own: Callable[[], Awaitable[T]]) -> T:
        """The answer of the shared service, or of the local one."""
        if self._clock.elapsed() < self._retry_at:
            return await own()
        try:
            answer = await shared()
        except Unavailable as error:
            if not self.degraded:
                self._events.emit("degraded", what=self._what, error=str(error))
            self.degraded, self._retry_at = True, self._clock.elapsed() + _RETRY_AFTER_SECONDS
            return await own()
        if self.degraded:
            self._events.emit("degraded_no_more", what=self._what)
        self.degraded = False
        return answer


class FallbackDeduplicator:
    """A Deduplicator that is always available: without the shared one, messages are processed at least once."""

    def __init__(self, shared: Deduplicator, own: Deduplicator, clock: Clock, events: Events) -> None:
        self._shared = shared
        self._own = own
        self._ask = FallbackService(component_names.DEDUPLICATOR, clock, events).ask

    async def begin(self, consumer: str, message: str, *, ttl_ms: int = IN_FLIGHT_MS) -> DedupState:
        """See Deduplicator.begin."""
        # The local one first: it then knows what is in flight here if the shared one fails or loses its data.
        known = await self._own.begin(consumer, message, ttl_ms=ttl_ms)
        if known is not DedupState.NEW:
            return known
        state = await self._ask(lambda: self._shared.begin(consumer, message, ttl_ms=ttl_ms), _not_seen)
        if state is not DedupState.NEW:
            await self._own.give_up(consumer, message)
        return state

    async def mark_processed(self, consumer: str, message: str, *, ttl_ms: int = PROCESSED_MS) -> None:
        """See Deduplicator.mark_processed."""
        await self._own.mark_processed(consumer, message, ttl_ms=ttl_ms)
        await self._ask(lambda: self._shared.mark_processed(consumer, message, ttl_ms=ttl_ms), _no_op)

    async def give_up(self, consumer: str, message: str) -> None:
        """See Deduplicator.give_up."""
        await self._own.give_up(consumer, message)
        await self._ask(lambda: self._shared.give_up(consumer, message), _no_op)


async def _not_seen() -> DedupState:
    return DedupState.NEW


async def _no_op() -> None:
    """Do nothing: the local part was done."""


#: The part of a lease that passes before it is asked for again, held or not.
_RENEW_FRACTION = 0.25


class Singleton(Protocol):
    """The right to run a service that only one node should run."""

    @property
    def retry_seconds(self) -> float:
        """Seconds that a node without the right waits before it asks again."""
        ...

    async def ours(self) -> bool:
        """Whether this node has the right now. Unavailable if the leases cannot be reached."""
        ...


class AlwaysHeldSingleton:
    """The singleton of a process that shares its store with no other: always held, at no cost."""

    retry_seconds = 0.0

    async def ours(self) -> bool:
        """See Singleton.ours."""
        return True


class SingletonLease:
    """A singleton by a lease. The holder renews it in time; other nodes poll for it."""

    def __init__(self, leases: SingletonLeases, clock: Clock, name: str, holder: str, *, ttl_ms: int) -> None:
        self._leases = leases
        self._clock = clock
        self._name = name
        self._holder = holder
        self._ttl_ms = ttl_ms
        self._ours = False
        self._ask_at = float("-inf")

    @property
    def retry_seconds(self) -> float:
        """See Singleton.retry_seconds."""
        return self._ttl_ms / 1000 * _RENEW_FRACTION

    async def ours(self) -> bool:
        """See Singleton.ours."""
        asked_at = self._clock.elapsed()
        if asked_at >= self._ask_at:
            self._ours = await self._leases.acquire_singleton(self._name, self._holder, ttl_ms=self._ttl_ms)
            self._ask_at = asked_at + self.retry_seconds
        return self._ours


#: After so many lifetimes of a lease that others hold, a node asks the store whether that is true.
_DOUBTED_AFTER = 2


class LeasedSingletons:
    """Implements SingletonLeases with the help of leases outside of the store.

    The store decides. The leases only spare it the questions of nodes that would be refused: a node asks the store if
    it has the lease, or was refused it for so long that the lease service may be wrong. A service that lies therefore
    costs time, and never stops a singleton for good.
    """

    def __init__(self, leases: Leases, store: SingletonLeases, clock: Clock, events: Events) -> None:
        self._leases = leases
        self._store = store
        self._clock = clock
        self._shared = FallbackService(component_names.SINGLETON_LEASES, clock, events)
        #: The tokens of held leases, by name and holder.
        self._tokens: dict[tuple[str, str], int] = {}
        #: The singletons that the store has given us, and since when the lease service refuses the others.
        self._ours: set[tuple[str, str]] = set()
        self._refused_since: dict[tuple[str, str], float] = {}

    async def acquire_singleton(self, name: str, holder: str, *, ttl_ms: int) -> bool:
        """See SingletonLeases.acquire_singleton."""
        key, span = (name, holder), min(max(ttl_ms, SHORTEST_MS), LONGEST_MS)
        leased = await self._shared.ask(lambda: self._leased(name, holder, span), _unknown)
        if not leased and not self._doubts_refusal(key, span):
            return False
        self._refused_since.pop(key, None)
        if await self._store.acquire_singleton(name, holder, ttl_ms=ttl_ms):
            self._ours.add(key)
        else:
            self._ours.discard(key)
        return key in self._ours

    def _doubts_refusal(self, key: tuple[str, str], ttl_ms: int) -> bool:
        """Whether to ask the store although the lease service says that another node has the singleton."""
        now = self._clock.elapsed()
        refused_since = self._refused_since.setdefault(key, now)
        return key in self._ours or now - refused_since >= ttl_ms / 1000 * _DOUBTED_AFTER

    async def release_singletons(self, holder: str) -> None:
        """See SingletonLeases.release_singletons."""
        # The store first: the next node to get a lease asks the store at once.
        await self._store.release_singletons(holder)
        self._ours = {key for key in self._ours if key[1] != holder}
        ours = [(name, token) for (name, owner), token in self._tokens.items() if owner == holder]
        await self._shared.ask(lambda: self._release(ours, holder), _no_op)

    async def _leased(self, name: str, holder: str, ttl_ms: int) -> bool:
        # A lease is held until the service says that it is not.
        key, token = _lease_key(name), self._tokens.get((name, holder))
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
            await self._leases.release(_lease_key(name), token)


async def _unknown() -> bool:
    """Let the store decide."""
    return True


def _lease_key(name: str) -> str:
    return f"turn.{name}"
