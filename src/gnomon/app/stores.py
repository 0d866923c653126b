"""Opening stores, and composing what observes their commits."""

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from msgspec import Struct

from gnomon.adapters.sql.connect import migrate, open_postgres, open_sqlite, sqlite_path
from gnomon.adapters.sql.migrator import upgrade
from gnomon.adapters.sql.sqlite import engine_for
from gnomon.adapters.sql.store import SqlStore
from gnomon.app.coordination import build_hints
from gnomon.config.settings import Settings
from gnomon.errors import NoDatabase
from gnomon.ports.commit_observer import CommitObserver
from gnomon.ports.coordination import Hints
from gnomon.ports.runtime import Events
from gnomon.ports.store import Store
from gnomon.services.observability.metrics import MetricsRecorder


class ConnectedStore(Struct, frozen=True, kw_only=True):
    """The store of a process. Its observers are notified of every commit of this process, and its hints are sent."""

    store: Store
    #: None on a file.
    hints: Hints | None = None
    #: None if metrics are off.
    metrics: MetricsRecorder | None = None

    @classmethod
    async def open(
        cls, settings: Settings, events: Events, *, create: bool, observers: Sequence[CommitObserver] = ()
    ) -> Self:
        """Open the store that the settings name, with metrics if they are on; see `open_store` for `create`."""
        metrics = MetricsRecorder(max_jobs=settings.metrics.max_jobs) if settings.metrics.enabled else None
        store = await open_store(settings, create=create)
        return cls.observed(store, settings, events, metrics=metrics, observers=observers)

    @classmethod
    def observed(
        cls,
        store: SqlStore,
        settings: Settings,
        events: Events,
        *,
        metrics: MetricsRecorder | None = None,
        observers: Sequence[CommitObserver] = (),
    ) -> Self:
        """The open store with these observers, metrics, and the hints that the settings choose."""
        hints = build_hints(settings, events)
        all_observers = [*([] if metrics is None else [metrics]), *observers]
        observed = store.observed(observers=all_observers, hint=None if hints is None else hints.tell)
        return cls(store=observed, hints=hints, metrics=metrics)

    async def close(self) -> None:
        """Close the hints and the store."""
        if self.hints is not None:
            await self.hints.close()
        await self.store.close()


async def open_store(settings: Settings, *, create: bool) -> SqlStore:
    """The store that the settings name, migrated; NoDatabase if it is a missing file and `create` is False."""
    database = settings.database
    path = sqlite_path(database.url)
    if path is None:
        return await open_postgres(
            database.url,
            statement_cache=database.statement_cache,
            pool_size=database.max_connections,
            patience_ms=database.patience_ms,
        )
    if not create:
        require_database_file(settings)
    return await open_sqlite(path)


def require_database_file(settings: Settings) -> None:
    """NoDatabase if the database is a file, and there is none."""
    path = sqlite_path(settings.database.url)
    if path is not None and not Path(path).exists():
        raise NoDatabase(path)


async def migrate_database(settings: Settings) -> str:
    """Give the database the newest schema, and return its revision."""
    return await migrate(settings.database.url)


def create_database_in_child(url: str) -> None:
    """Create a missing database file, with the newest schema, in a child process, which frees the migration's memory.

    Only from a process without threads, which a fork would leave behind; other processes create the file when they
    open it. Opening it also reports errors that the child ignores.
    """
    path = sqlite_path(url)
    if path is None or Path(path).exists() or not Path(path).parent.is_dir():
        return
    if threading.active_count() > 1 or not hasattr(os, "fork"):
        return
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        with engine_for(path, begin="BEGIN IMMEDIATE", connections=1).begin() as conn:
            upgrade(conn)
    finally:
        # Whether it worked or not, everything else belongs to the parent.
        os._exit(0)
