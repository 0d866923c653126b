"""Opening the SQL store by its URL."""

import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from gnomon.adapters.sql import migrator
from gnomon.adapters.sql.errors import open_error
from gnomon.adapters.sql.store import SqlStore
from gnomon.adapters.sql.transactions import PATIENCE_MS, Transactions
from gnomon.errors import StoreUnavailable, UsageError


def wall_clock() -> int:
    """The clock of this machine, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def sqlite_path(url: str) -> str | None:
    """The path in `sqlite:///path`; None for a PostgreSQL URL; UsageError for any other URL."""
    scheme, _, rest = url.partition("://")
    match scheme.partition("+")[0]:
        case "sqlite":
            return rest.removeprefix("/")
        case "postgresql" | "postgres":
            return None
        case _:
            raise UsageError(f'a store is at "sqlite:///path" or "postgresql://user@host/database", not {scheme!r}')


async def open_store(url: str, *, migrate: bool = True) -> SqlStore:
    """The store at `sqlite:///path` or `postgresql://user@host:port/database`."""
    path = sqlite_path(url)
    return await (open_postgres(url, migrate=migrate) if path is None else open_sqlite(path, migrate=migrate))


async def open_sqlite(path: str, *, now: Callable[[], int] = wall_clock, migrate: bool = True) -> SqlStore:
    """The store in a file, which is created if it does not exist. `now` is the clock of its leases."""
    from gnomon.adapters.sql.sqlite import SqliteTransactions, refuse_network_disk

    _require_folder(path)
    refuse_network_disk(path)
    transactions = SqliteTransactions(path, now=now)
    try:
        return await _ready(transactions, partial(transactions.write, migrator.upgrade) if migrate else None)
    except StoreUnavailable as error:
        raise open_error(path, error) from error


def _require_folder(path: str) -> None:
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder} for the database {path}")


async def open_postgres(
    url: str,
    *,
    statement_cache: bool = True,
    pool_size: int = 10,
    migrate: bool = True,
    patience_ms: int = PATIENCE_MS,
) -> SqlStore:
    """The store on a PostgreSQL server. Without the statement cache it also works behind a transaction pooler.

    StoreUnavailable if the server, or a lock, takes longer than `patience_ms`.
    """
    from gnomon.adapters.sql.postgres import PostgresTransactions

    async def upgrade() -> None:
        # Building an index may take hours, so a migration has no time limit.
        migrating = PostgresTransactions(url, statement_cache=statement_cache, pool_size=1, patience_ms=None)
        try:
            await migrating.write(migrator.upgrade)
        finally:
            await migrating.close()

    transactions = PostgresTransactions(
        url, statement_cache=statement_cache, pool_size=pool_size, patience_ms=patience_ms
    )
    return await _ready(transactions, upgrade if migrate else None)


async def _ready(transactions: Transactions, upgrade: Callable[[], Awaitable[object]] | None) -> SqlStore:
    """The store, once its schema is migrated, if asked to, and one that this program supports."""
    try:
        if upgrade is not None and not await transactions.read(migrator.is_current):
            await upgrade()
        await transactions.read(migrator.check_schema)
    except BaseException:
        await transactions.close()
        raise
    return SqlStore(transactions)


async def migrate(url: str) -> str:
    """Migrate the database at `url` to the newest schema, and return its revision."""
    store = await open_store(url)
    try:
        return await store.transactions.write(migrator.upgrade)
    finally:
        await store.close()
