"""Setting the clock of a process by the store's: all who share a store go by one clock."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from gnomon.adapters.memory.coordination import MemoryCounters, MemoryGuard
from gnomon.adapters.sql.after_commit import Hinted
from gnomon.adapters.sql.connect import sqlite_path
from gnomon.adapters.sql.store import SqlStore
from gnomon.adapters.synced_clock import GuidedClock
from gnomon.config.settings import Settings
from gnomon.errors import Unavailable
from gnomon.ports.coordination import Counters, Guard, Hints
from gnomon.ports.maintenance import Turns
from gnomon.ports.runtime import Clock, Events
from gnomon.services.coordination import LeasedTurns, OnlyNode, TolerantCounters, TolerantGuard, Turn

if TYPE_CHECKING:
    from gnomon.app.execution import Bureau, Crew
    from gnomon.services.maintenance.audit_sealer import Sealer


#: How often it is compared with the store's.
_COMPARE_SECONDS = 10.0


async def set_by_store(clock: GuidedClock, store: SqlStore, events: Events, **who: str) -> float:
    """The clock agrees with the store's, unless that cannot be asked. Returns how many seconds that is good for."""
    asked_at, engine = clock.now(), store.transactions
    with suppress(Unavailable):
        wrong = clock.hear(await engine.read(engine.now), asked_at=asked_at)
        if wrong:
            events.emit("clock_corrected", **who, wrong_ms=wrong)
    return _COMPARE_SECONDS


class Unheard:
    """Events that are of no interest: whoever types a command has said all that there is to be heard."""

    def emit(self, name: str, **facts: object) -> None:
        """See Events.emit."""


def hints_on(store: SqlStore, settings: Settings, events: Events) -> Hints | None:
    """How others hear of what is written to the store from here on: by NATS if there is one, else by PostgreSQL.

    None on a file: those who share one notice what the others write.
    """
    if sqlite_path(settings.database.url) is not None:
        return None
    hints = _hints_of(settings, events)
    store.transactions = Hinted(store.transactions, hints.tell)
    return hints


def _hints_of(settings: Settings, events: Events) -> Hints:
    if settings.nats.url:
        from gnomon.adapters.nats.hints import NatsHints

        return NatsHints(settings.nats, events)
    from gnomon.adapters.sql.postgres_notify import PostgresHints

    database = settings.database
    # Whoever is behind a pooler has no statements cached, and hears nothing.
    return PostgresHints(database.url, events, listens=database.statement_cache)


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
