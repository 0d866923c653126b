"""Opening a store by its address."""

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
    """The file that `sqlite:///path` names; None for a server; UsageError for anything else."""
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
    """The store in a file, which is made if there is none. Leases are judged by `now`."""
    from gnomon.adapters.sql.sqlite import SqliteTransactions, refuse_network_disk

    _folder_exists(path)
    refuse_network_disk(path)
    transactions = SqliteTransactions(path, now=now)
    try:
        return await _ready(transactions, partial(transactions.write, migrator.upgrade) if migrate else None)
    except StoreUnavailable as error:
        raise open_error(path, error) from error


def _folder_exists(path: str) -> None:
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
    """The store on a server. Without the cache of statements it works behind a pooler of transactions, too.

    A server, or a lock, that keeps us waiting for longer than our patience is unavailable.
    """
    from gnomon.adapters.sql.postgres import PostgresTransactions

    async def upgrade() -> None:
        # Building an index may take hours, and whoever waits for that waits for good reason.
        patient = PostgresTransactions(url, statement_cache=statement_cache, pool_size=1, patience_ms=None)
        try:
            await patient.write(migrator.upgrade)
        finally:
            await patient.close()

    transactions = PostgresTransactions(
        url, statement_cache=statement_cache, pool_size=pool_size, patience_ms=patience_ms
    )
    return await _ready(transactions, upgrade if migrate else None)


async def _ready(transactions: Transactions, upgrade: Callable[[], Awaitable[object]] | None) -> SqlStore:
    """The store, once the schema is one that this program knows."""
    try:
        if upgrade is not None and not await transactions.read(migrator.is_current):
            await upgrade()
        await transactions.read(migrator.check_schema)
    except BaseException:
        await transactions.close()
        raise
    return SqlStore(transactions)


async def migrate(url: str) -> str:
    """The database at `url` has the newest schema; its revision comes back."""
    store = await open_store(url)
    try:
        return await store.transactions.write(migrator.upgrade)
    finally:
        await store.close()
