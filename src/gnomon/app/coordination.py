"""Setting the clock of a process by the store's: all who share a store go by one clock."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from gnomon.adapters.memory.deduplicator import MemoryDeduplicator
from gnomon.adapters.sql.after_commit import HintingTransactions
from gnomon.adapters.sql.connect import sqlite_path
from gnomon.adapters.sql.store import SqlStore
from gnomon.adapters.synced_clock import StoreSyncedClock
from gnomon.config.settings import Settings
from gnomon.errors import Unavailable
from gnomon.ports.coordination import Deduplicator, Hints
from gnomon.ports.maintenance import SingletonLeases
from gnomon.ports.runtime import Clock, Events
from gnomon.services.coordination import (
    FallbackDeduplicator,
    LeasedSingletons,
    SingletonLease,
    SoleNode,
)

if TYPE_CHECKING:
    from gnomon.app.execution import LocalExecution, RemoteDispatch
    from gnomon.services.maintenance.audit_sealer import AuditSealer


#: How often it is compared with the store's.
_SYNC_INTERVAL_SECONDS = 10.0


async def sync_clock(clock: StoreSyncedClock, store: SqlStore, events: Events, **who: str) -> float:
    """The clock agrees with the store's, unless that cannot be asked. Returns how many seconds that is good for."""
    asked_at, engine = clock.now(), store.transactions
    with suppress(Unavailable):
        wrong = clock.synchronize(await engine.read(engine.now), asked_at=asked_at)
        if wrong:
            events.emit("clock_corrected", **who, wrong_ms=wrong)
    return _SYNC_INTERVAL_SECONDS


class NullEvents:
    """Events that are of no interest: whoever types a command has said all that there is to be heard."""

    def emit(self, name: str, **facts: object) -> None:
        """See Events.emit."""


def attach_hints(store: SqlStore, settings: Settings, events: Events) -> Hints | None:
    """How others hear of what is written to the store from here on: by NATS if there is one, else by PostgreSQL.

    None on a file: those who share one notice what the others write.
    """
    if sqlite_path(settings.database.url) is not None:
        return None
    hints = _build_hints(settings, events)
    store.transactions = HintingTransactions(store.transactions, hints.tell)
    return hints


def _build_hints(settings: Settings, events: Events) -> Hints:
    if settings.nats.url:
        from gnomon.adapters.nats.hints import NatsHints

        return NatsHints(settings.nats, events)
    from gnomon.adapters.sql.postgres_notify import PostgresHints

    database = settings.database
    # Whoever is behind a pooler has no statements cached, and hears nothing.
    return PostgresHints(database.url, events, listens=database.statement_cache)


#: How long a turn lasts at what is looked at all the time: so long everybody waits if its holder dies.
_SHORT_LEASE_MS = 10_000
#: The reconciler's lasts for so many of its looks.
_POLLS_PER_LEASE = 2


class Coordination:
    """What one process has in common with others. With `alone` there are none, and it costs nothing."""

    def __init__(
        self, store: SqlStore, settings: Settings, clock: Clock, events: Events, *, holder: str, alone: bool
    ) -> None:
        self._clock = clock
        self._holder = holder
        self._alone = alone
        self._reconciler_lease_ms = _POLLS_PER_LEASE * settings.reconciler.poll_ms
        self._closing: list[Callable[[], Awaitable[object]]] = []
        self.singletons: SingletonLeases = SoleNode() if alone else store
        self.deduplicator: Deduplicator = MemoryDeduplicator(clock.now)
        if settings.redis.url:
            self._use_redis(store, settings, events)
        elif settings.nats.url and not alone:
            self._use_nats(store, settings, events)

    def _use_redis(self, store: SqlStore, settings: Settings, events: Events) -> None:
        from gnomon.adapters.redis.connection import create_client
        from gnomon.adapters.redis.coordination import RedisDeduplicator, RedisLeases

        client, prefix, clock = create_client(settings.redis), settings.redis.prefix, self._clock
        self._closing.append(client.aclose)
        self.deduplicator = FallbackDeduplicator(RedisDeduplicator(client, prefix), self.deduplicator, clock, events)
        if not self._alone:
            self.singletons = LeasedSingletons(RedisLeases(client, prefix), store, clock, events)

    def _use_nats(self, store: SqlStore, settings: Settings, events: Events) -> None:
        from gnomon.adapters.nats.leases import LazyNatsLeases

        leases = LazyNatsLeases(settings.nats, events)
        self._closing.append(leases.close)
        self.singletons = LeasedSingletons(leases, store, self._clock, events)

    def assign_singleton_leases(self, doers: "LocalExecution | RemoteDispatch | None", sealer: "AuditSealer") -> None:
        """Of all nodes one at a time does what one is enough for."""
        if self._alone:
            return
        sealer.singleton_lease = self._singleton_lease("sealer", _SHORT_LEASE_MS)
        if doers is not None:
            doers.reconciler.singleton_lease = self._singleton_lease("reconciler", self._reconciler_lease_ms)
            doers.gatherer.singleton_lease = self._singleton_lease("gatherer", _SHORT_LEASE_MS)
            doers.backfiller.singleton_lease = self._singleton_lease("backfiller", _SHORT_LEASE_MS)

    def _singleton_lease(self, name: str, ttl_ms: int) -> SingletonLease:
        return SingletonLease(self.singletons, self._clock, name, self._holder, ttl_ms=ttl_ms)

    async def release_singletons(self) -> None:
        """Others may take over what was our turn."""
        await self.singletons.release_singletons(self._holder)

    async def close(self) -> None:
        """Let go of every connection."""
        for close in self._closing:
            with suppress(Unavailable, OSError):
                await close()
