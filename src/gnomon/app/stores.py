"""Opening stores, and composing what observes their commits."""

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from msgspec import Struct

from gnomon.adapters.host import RandomIds, SystemClock
from gnomon.adapters.payload_cipher import LockedCipher, build_cipher
from gnomon.adapters.sql.change_log import ChangeLogWriter
from gnomon.adapters.sql.connect import PayloadAccess, migrate, move_to_schema, open_postgres, open_sqlite, sqlite_path
from gnomon.adapters.sql.migrator import upgrade
from gnomon.adapters.sql.sqlite import engine_for, refuse_read_only
from gnomon.adapters.sql.store import SqlStore
from gnomon.app.coordination import build_hints
from gnomon.app.extras import check_extras
from gnomon.config.settings import Settings
from gnomon.errors import NoDatabase, UsageError
from gnomon.ports.change_log import ChangeLog
from gnomon.ports.commit_observer import CommitObserver, MetricsOutbox
from gnomon.ports.coordination import Hints
from gnomon.ports.runtime import Events
from gnomon.ports.store import Store
from gnomon.services.observability.changes import CommitChanges
from gnomon.services.observability.commit_metrics import OutboxEntry
from gnomon.services.observability.metrics import MetricsRecorder


class ConnectedStore(Struct, frozen=True, kw_only=True):
    """The store of a process. Its observers are notified of every commit of this process, and its hints are sent."""

    store: Store
    #: The changes of other processes, and the name of this process in them; None if no other process has the store.
    changes: ChangeLog | None = None
    origin: str = ""
    #: None on a file.
    hints: Hints | None = None
    #: Counts the commits of this process; None if it does not.
    metrics: MetricsRecorder | None = None
    #: The commits of processes that do not count their own.
    outbox: MetricsOutbox

    @classmethod
    async def open(
        cls,
        settings: Settings,
        events: Events,
        *,
        create: bool,
        counts: bool = True,
        observers: Sequence[CommitObserver] = (),
    ) -> Self:
        """Open the store that the settings name, for writing.

        If metrics are on, the commits of this process are counted, by itself or, unless it `counts`, by a server. See
        `open_store` for `create`. UsageError if the database is a file that this process may not write.
        """
        if (path := sqlite_path(settings.database.url)) is not None:
            refuse_read_only(path)
        counted = counts and settings.metrics.enabled
        metrics = MetricsRecorder(max_jobs=settings.metrics.max_jobs) if counted else None
        store = await open_store(settings, create=create, executes=True)
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
        """The open store with these observers, metrics, and the hints that the settings choose.

        Without `metrics` its commits are left for a server to count, if metrics are on.
        """
        hints = build_hints(settings, events)
        all_observers = [*([] if metrics is None else [metrics]), *observers]
        origin = RandomIds().new("process", SystemClock().now())
        observed = store.observed(
            observers=all_observers,
            hint=None if hints is None else hints.send,
            journal=OutboxEntry if metrics is None and settings.metrics.enabled else None,
            change_log=ChangeLogWriter(origin, CommitChanges),
        )
        return cls(
            store=observed,
            changes=observed.changes,
            origin=origin,
            hints=hints,
            metrics=metrics,
            outbox=observed.metrics_outbox,
        )

    async def close(self) -> None:
        """Close the hints and the store."""
        if self.hints is not None:
            await self.hints.close()
        await self.store.close()


async def open_store(settings: Settings, *, create: bool, executes: bool = False) -> SqlStore:
    """The store that the settings name, migrated; NoDatabase if it is a missing file and `create` is False.

    A process that `executes` must have the key of encrypted payloads; others see that they are encrypted.
    """
    check_extras(settings)
    database = settings.database
    cipher = build_cipher(settings.payload.keys)
    payloads = PayloadAccess(cipher=cipher, without_key=LockedCipher(), required=executes)
    path = sqlite_path(database.url)
    if path is None:
        return await open_postgres(
            database.url,
            statement_cache=database.statement_cache,
            pool_size=database.max_connections,
            patience_ms=database.patience_ms,
            schema=database.schema,
            payloads=payloads,
        )
    if not create:
        require_database_file(settings)
    return await open_sqlite(path, payloads=payloads)


def require_database_file(settings: Settings) -> None:
    """NoDatabase if the database is a file, and there is none."""
    path = sqlite_path(settings.database.url)
    if path is not None and not Path(path).exists():
        raise NoDatabase(path)


async def migrate_database(settings: Settings) -> str:
    """Give the database the newest schema, and return its revision."""
    check_extras(settings)
    return await migrate(settings.database.url, schema=settings.database.schema)


async def move_database(settings: Settings) -> None:
    """Move the tables of a server into the configured schema. UsageError on a file, or while they are in use."""
    check_extras(settings)
    if sqlite_path(settings.database.url) is not None:
        raise UsageError("a database file has no schemas: --schema is for PostgreSQL")
    await move_to_schema(settings.database.url, settings.database.schema)


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
