"""What the processes on one store share besides it: leases, whose turn it is, and what was seen before.

Redis keeps it if there is one, else NATS what it can, else the store. Whoever keeps it may be away or lose it all: then
the store, or each process by itself, has to do.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from gnomon.adapters.memory.coordination import MemoryCounters, MemoryGuard
from gnomon.adapters.sql.store import SqlStore
from gnomon.errors import Unavailable
from gnomon.ports.coordination import Counters, Guard
from gnomon.ports.maintenance import Turns
from gnomon.ports.runtime import Clock, Events
from gnomon.services.coordination import LeasedTurns, OnlyNode, TolerantCounters, TolerantGuard, Turn
from gnomon.settings import Settings

if TYPE_CHECKING:
    from gnomon.bureau import Bureau
    from gnomon.crew import Crew
    from gnomon.services.maintenance.audit_sealer import Sealer

#: How long a turn lasts at what is looked at all the time: so long everybody waits if its holder dies.
_SHORT_TURN_MS = 10_000
#: The reconciler's lasts for so many of its looks.
_LOOKS_A_TURN = 2


class Commons:
    """What one process has in common with others. With `alone` there are none, and it costs nothing."""

    def __init__(
        self, store: SqlStore, settings: Settings, clock: Clock, events: Events, *, holder: str, alone: bool
    ) -> None:
        self._clock = clock
        self._holder = holder
        self._alone = alone
        self._reconciler_turn_ms = _LOOKS_A_TURN * settings.reconciler.poll_ms
        self._closing: list[Callable[[], Awaitable[object]]] = []
        self.turns: Turns = OnlyNode() if alone else store
        self.guard: Guard = MemoryGuard(clock.now)
        self.counters: Counters = MemoryCounters(clock.now)
        if settings.redis.url:
            self._keep_in_redis(store, settings, events)
        elif settings.nats.url and not alone:
            self._keep_in_nats(store, settings, events)

    def _keep_in_redis(self, store: SqlStore, settings: Settings, events: Events) -> None:
        from gnomon.adapters.redis.connection import client_of
        from gnomon.adapters.redis.coordination import RedisCounters, RedisGuard, RedisLeases

        client, prefix, clock = client_of(settings.redis), settings.redis.prefix, self._clock
        self._closing.append(client.aclose)
        self.guard = TolerantGuard(RedisGuard(client, prefix), self.guard, clock, events)
        self.counters = TolerantCounters(RedisCounters(client, prefix), self.counters, clock, events)
        if not self._alone:
            self.turns = LeasedTurns(RedisLeases(client, prefix), store, clock, events)

    def _keep_in_nats(self, store: SqlStore, settings: Settings, events: Events) -> None:
        from gnomon.adapters.nats.leases import LateNatsLeases

        leases = LateNatsLeases(settings.nats, events)
        self._closing.append(leases.close)
        self.turns = LeasedTurns(leases, store, self._clock, events)

    def take_turns(self, doers: "Crew | Bureau | None", sealer: "Sealer") -> None:
        """Of all nodes one at a time does what one is enough for."""
        if self._alone:
            return
        sealer.turn = self._turn("sealer", _SHORT_TURN_MS)
        if doers is not None:
            doers.reconciler.turn = self._turn("reconciler", self._reconciler_turn_ms)
            doers.gatherer.turn = self._turn("gatherer", _SHORT_TURN_MS)
            doers.backfiller.turn = self._turn("backfiller", _SHORT_TURN_MS)

    def _turn(self, name: str, ttl_ms: int) -> Turn:
        return Turn(self.turns, self._clock, name, self._holder, ttl_ms=ttl_ms)

    async def leave(self) -> None:
        """Others may take over what was our turn."""
        await self.turns.give_turns_up(self._holder)

    async def close(self) -> None:
        """Let go of every connection."""
        for close in self._closing:
            with suppress(Unavailable, OSError):
                await close()
