"""Whose turn it is to do what one of several nodes is enough for.

Turns save work. Two who believe at once that it is theirs do no harm: whatever is done in a turn is compared and set
by the store.
"""

from gnomon.core.leases import LONGEST_MS, SHORTEST_MS
from gnomon.ports.coordination import Leases
from gnomon.ports.maintenance import Turns
from gnomon.ports.runtime import Clock, Events
from gnomon.services.degrading import Shared

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
