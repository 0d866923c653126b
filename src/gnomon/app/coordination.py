"""Coordination with other processes: one clock, hints, singletons and deduplication."""

from collections.abc import Awaitable, Callable
from contextlib import suppress

from gnomon.adapters.memory.deduplicator import MemoryDeduplicator
from gnomon.adapters.sql.connect import sqlite_path
from gnomon.adapters.synced_clock import StoreSyncedClock
from gnomon.config.settings import Settings
from gnomon.errors import Unavailable
from gnomon.ports.coordination import Deduplicator, Hints, PublishedLocks
from gnomon.ports.maintenance import SingletonLeases
from gnomon.ports.runtime import Clock, Events
from gnomon.ports.store import Store
from gnomon.services.coordination import (
    AlwaysHeldSingleton,
    FallbackDeduplicator,
    LeasedSingletons,
    Singleton,
    SingletonLease,
)

#: How often the clock is compared with the store's.
_SYNC_INTERVAL_SECONDS = 10.0


class ClockSynchronizer:
    """Implements ClockSync: corrects the clock of a process by the store's."""

    def __init__(self, clock: StoreSyncedClock, store: Store, events: Events, **who: str) -> None:
        """`who` is the process, as events name it."""
        self._clock = clock
        self._store = store
        self._events = events
        self._who = who

    async def step(self) -> float:
        """Compare, if the store is available. Returns how many seconds to wait before the next time."""
        with suppress(Unavailable):
            await self.compare()
        return _SYNC_INTERVAL_SECONDS

    async def compare(self) -> None:
        """See ClockSync.compare."""
        asked_at = self._clock.now()
        wrong = self._clock.synchronize(await self._store.now(), asked_at=asked_at)
        if wrong:
            self._events.emit("clock_corrected", **self._who, wrong_ms=wrong)


def build_hints(settings: Settings, events: Events) -> Hints | None:
    """The hints by which processes announce their writes to each other: over NATS if there is one, else PostgreSQL.

    None on a file: processes that share one notice each other's commits.
    """
    if sqlite_path(settings.database.url) is not None:
        return None
    if settings.nats.url:
        from gnomon.adapters.nats.hints import NatsHints

        return NatsHints(settings.nats, events)
    from gnomon.adapters.sql.postgres_notify import PostgresHints

    database = settings.database
    # Behind a pooler, which also forbids cached statements, LISTEN does not work.
    return PostgresHints(database.url, events, listens=database.statement_cache)


#: If the holder of a short lease dies, its work waits for so long.
_SHORT_LEASE_MS = 10_000


class Coordination:
    """The coordination of a process with others: leases and deduplication. With `alone` it costs nothing."""

    def __init__(
        self, store: Store, settings: Settings, clock: Clock, events: Events, *, holder: str, alone: bool
    ) -> None:
        self._clock = clock
        self._holder = holder
        self._alone = alone
        self._closing: list[Callable[[], Awaitable[object]]] = []
        self._singletons: SingletonLeases = store.singletons
        self.deduplicator: Deduplicator = MemoryDeduplicator(clock.now)
        #: Where other programs see the locks of jobs; None if there is neither Redis nor NATS.
        self.published_locks: PublishedLocks | None = None
        if settings.redis.url:
            self._use_redis(store, settings, events)
        elif settings.nats.url:
            self._use_nats(store, settings, events)

    def _use_redis(self, store: Store, settings: Settings, events: Events) -> None:
        from gnomon.adapters.redis.connection import create_client
        from gnomon.adapters.redis.coordination import RedisDeduplicator, RedisJobLocks, RedisLeases

        client, prefix, clock = create_client(settings.redis), settings.redis.prefix, self._clock
        self._closing.append(client.aclose)
        self.deduplicator = FallbackDeduplicator(RedisDeduplicator(client, prefix), self.deduplicator, clock, events)
        self.published_locks = RedisJobLocks(client, prefix)
        if not self._alone:
            self._singletons = LeasedSingletons(RedisLeases(client, prefix), store.singletons, clock, events)

    def _use_nats(self, store: Store, settings: Settings, events: Events) -> None:
        from gnomon.adapters.nats.leases import LazyNatsLeases

        leases = LazyNatsLeases(settings.nats, events)
        self._closing.append(leases.close)
        self.published_locks = leases
        if not self._alone:
            self._singletons = LeasedSingletons(leases, store.singletons, self._clock, events)

    def singleton(self, name: str, *, ttl_ms: int | None = None) -> Singleton:
        """The lease of this name, for a service that only one node runs.

        Without `ttl_ms` the lease is short: for a service that is stepped all the time.
        """
        if self._alone:
            return AlwaysHeldSingleton()
        return SingletonLease(self._singletons, self._clock, name, self._holder, ttl_ms=ttl_ms or _SHORT_LEASE_MS)

    async def release_singletons(self) -> None:
        """Release every singleton of this process, so that other nodes need not wait for the leases to end."""
        if not self._alone:
            await self._singletons.release_singletons(self._holder)

    async def close(self) -> None:
        """Close every connection."""
        for close in self._closing:
            with suppress(Unavailable, OSError):
                await close()
