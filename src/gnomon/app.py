"""The only place that knows everybody: it builds the parts and hands them to each other."""

import asyncio
from typing import Self

from gnomon.adapters.logs import LoggedEvents
from gnomon.adapters.sql.opening import migrate, open_postgres, open_sqlite, sqlite_path
from gnomon.adapters.sql.sqlite import FileLock
from gnomon.adapters.sql.store import SqlStore
from gnomon.adapters.system import RandomIds, SystemClock, tzdata_version
from gnomon.core.requests import Defaults
from gnomon.errors import Unavailable
from gnomon.ports.clock import Clock
from gnomon.ports.events import Events
from gnomon.services.elector import Elector
from gnomon.services.looping import keep_stepping
from gnomon.services.registrar import Registrar
from gnomon.services.ticker import Ticker
from gnomon.settings import Database, Settings

#: How often a process that stands by asks for the right to schedule.
_STANDBY_SECONDS = 0.5


class Node:
    """One process's share in keeping time: a store, a registrar for operators and a ticker that decides."""

    def __init__(self, store: SqlStore, settings: Settings, *, lock: FileLock | None, events: Events) -> None:
        clock: Clock = SystemClock()
        holder = RandomIds().new("node", clock.now())
        self.store = store
        self._lock = lock
        self._events = events
        self._elector = Elector(store, clock, events, settings.leader, holder=holder, alone=lock is not None)
        self.ticker = Ticker(store, self._elector, clock, events, settings.ticker)
        self.registrar = Registrar(
            store, store, clock, RandomIds(), defaults=_defaults(settings), tzdata=tzdata_version()
        )
        #: Set it to say that there may be something new to decide.
        self.wake = asyncio.Event()

    @classmethod
    async def open(cls, settings: Settings, *, events: Events | None = None) -> Self:
        """A node on the store that the settings name."""
        path = sqlite_path(settings.database.url)
        if path is not None:
            store, lock = await open_sqlite(path), FileLock(path)
        else:
            store, lock = await _open_server(settings.database), None
        return cls(store, settings, lock=lock, events=events or LoggedEvents())

    async def run(self, stop: asyncio.Event) -> None:
        """Decide ticks until told to stop; on a file that another process has, stand by until it is free."""
        if not await self._may_schedule(stop):
            return
        try:
            await keep_stepping(self.ticker.step, stop=stop, wake=self.wake)
        finally:
            await self._hand_over()

    async def _hand_over(self) -> None:
        """Others may go on at once; if the store is away, once our leases have ended."""
        try:
            await self._elector.stop()
        except Unavailable as error:
            self._events.emit("store_unavailable", error=str(error))
        finally:
            if self._lock is not None:
                self._lock.release()

    async def _may_schedule(self, stop: asyncio.Event) -> bool:
        while not stop.is_set():
            if self._lock is None or self._lock.try_acquire():
                return True
            try:
                await asyncio.wait_for(stop.wait(), _STANDBY_SECONDS)
            except TimeoutError:
                continue
        return False

    async def close(self) -> None:
        """Let go of the store."""
        await self.store.close()


async def _open_server(database: Database) -> SqlStore:
    return await open_postgres(
        database.url,
        statement_cache=database.statement_cache,
        pool_size=database.max_connections,
        patience_ms=database.patience_ms,
    )


async def migrate_database(settings: Settings) -> str:
    """The database of the settings has the newest schema; its revision comes back."""
    return await migrate(settings.database.url)


def _defaults(settings: Settings) -> Defaults:
    ticker = settings.ticker
    return Defaults(
        overlap=ticker.default_overlap,
        catchup=ticker.default_catchup,
        jitter_ms=ticker.default_jitter_ms,
        lookahead_ms=ticker.lookahead_ms,
        catchup_cap=ticker.max_catchup_per_tick,
    )
