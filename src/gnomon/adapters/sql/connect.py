"""Opening the SQL store by its URL."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gnomon.adapters.guarded_files import check_database_file
from gnomon.adapters.sql import migrator
from gnomon.adapters.sql.database_file import (
    create_database_id,
    has_database_id,
    refuse_foreign_log,
    refuse_second_path,
)
from gnomon.adapters.sql.errors import open_error
from gnomon.adapters.sql.payloads import holds_encrypted_payloads, mark_encrypted
from gnomon.adapters.sql.postgres_schema import find_schema, move_tables
from gnomon.adapters.sql.store import SqlStore
from gnomon.adapters.sql.transactions import PATIENCE_MS, Transactions
from gnomon.errors import StoreUnavailable, UsageError
from gnomon.ports.payloads import PayloadCipher

if TYPE_CHECKING:
    from gnomon.adapters.sql.postgres import PostgresTransactions
    from gnomon.adapters.sql.sqlite import SqliteTransactions


class PayloadAccess(NamedTuple):
    """How a process reads and writes payloads."""

    #: The cipher with the configured keys; None without any.
    cipher: PayloadCipher | None = None
    #: The cipher for encrypted payloads without a key.
    without_key: PayloadCipher | None = None
    #: Whether the process decides or executes, and so must read every payload.
    required: bool = False


PLAIN_PAYLOADS = PayloadAccess()


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


async def open_store(url: str, *, migrate: bool = True, schema: str = "") -> SqlStore:
    """The store at `sqlite:///path` or `postgresql://user@host:port/database`; see `open_postgres` for `schema`."""
    path = sqlite_path(url)
    if path is None:
        return await open_postgres(url, migrate=migrate, schema=schema)
    return await open_sqlite(path, migrate=migrate)


async def open_sqlite(
    path: str,
    *,
    now: Callable[[], int] = wall_clock,
    migrate: bool = True,
    payloads: PayloadAccess = PLAIN_PAYLOADS,
) -> SqlStore:
    """The store in a file, which is created if it does not exist. `now` is the clock of its leases."""
    from gnomon.adapters.sql.sqlite import SqliteTransactions, refuse_network_disk

    _require_folder(path)
    refuse_network_disk(path)
    check_database_file(Path(path))
    refuse_second_path(path)
    refuse_foreign_log(path)
    transactions = SqliteTransactions(path, now=now)
    try:
        upgrade = partial(transactions.write, migrator.upgrade) if migrate else None
        store = await _ready(transactions, upgrade, payloads)
        if migrate and not await transactions.read(has_database_id):
            await transactions.write(create_database_id)
            # The file has the id without its log, too: see refuse_foreign_log.
            await asyncio.to_thread(transactions.checkpoint)
    except StoreUnavailable as error:
        raise open_error(path, error) from error
    return store


def _require_folder(path: str) -> None:
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder} for the database {path}")


async def open_postgres(
    url: str,
    *,
    schema: str = "",
    statement_cache: bool = True,
    pool_size: int = 10,
    migrate: bool = True,
    patience_ms: int = PATIENCE_MS,
    payloads: PayloadAccess = PLAIN_PAYLOADS,
) -> SqlStore:
    """The store on a PostgreSQL server. Without the statement cache it also works behind a transaction pooler.

    The tables are in `schema`; if that is empty, where they are found, or in the default schema. StoreUnavailable if
    the server, or a lock, takes longer than `patience_ms`.
    """
    from gnomon.adapters.sql.postgres import PostgresTransactions

    async def upgrade() -> None:
        # Building an index may take hours, so a migration has no time limit.
        migrating = PostgresTransactions(url, statement_cache=statement_cache, pool_size=1, patience_ms=None)
        try:
            await migrating.use_schema(transactions.schema)
            await migrating.write(migrator.upgrade)
        finally:
            await migrating.close()

    transactions = PostgresTransactions(
        url, statement_cache=statement_cache, pool_size=pool_size, patience_ms=patience_ms
    )
    try:
        await transactions.use_schema(await transactions.read(partial(find_schema, configured=schema)))
    except BaseException:
        await transactions.close()
        raise
    return await _ready(transactions, upgrade if migrate else None, payloads)


async def _ready(
    transactions: "SqliteTransactions | PostgresTransactions",
    upgrade: Callable[[], Awaitable[object]] | None,
    payloads: PayloadAccess,
) -> SqlStore:
    """The store, once its schema is migrated, if asked to, and one that this program supports."""
    try:
        if upgrade is not None and not await transactions.read(migrator.is_current):
            await upgrade()
        await transactions.read(migrator.check_schema)
        cipher = await _payload_cipher(transactions, payloads)
        if cipher is not None:
            transactions.use_cipher(cipher)
    except BaseException:
        await transactions.close()
        raise
    return SqlStore(transactions)


async def _payload_cipher(transactions: Transactions, payloads: PayloadAccess) -> PayloadCipher | None:
    """The cipher to use; UsageError if payloads have to be read and there is no key for them."""
    encrypted = await transactions.read(holds_encrypted_payloads)
    if payloads.cipher is not None:
        if not encrypted:
            await transactions.write(mark_encrypted)
        return payloads.cipher
    if encrypted and payloads.required:
        raise UsageError("the payloads of this database are encrypted: set payload.keys")
    return payloads.without_key if encrypted else None


async def migrate(url: str, *, schema: str = "") -> str:
    """Migrate the database at `url` to the newest tables, and return their revision."""
    store = await open_store(url, schema=schema)
    try:
        return await store.transactions.write(migrator.upgrade)
    finally:
        await store.close()


async def postgres_schema(url: str, *, schema: str = "", statement_cache: bool = True) -> str | None:
    """The schema with the tables of a server; None if connections find them by themselves."""
    from gnomon.adapters.sql.postgres import PostgresTransactions

    transactions = PostgresTransactions(url, statement_cache=statement_cache, pool_size=1)
    try:
        return await transactions.read(partial(find_schema, configured=schema))
    finally:
        await transactions.close()


async def move_to_schema(url: str, to: str) -> None:
    """Migrate the database of a server, and move its tables into another schema. UsageError while it is in use."""
    from gnomon.adapters.sql.postgres import PostgresTransactions

    transactions = PostgresTransactions(url, statement_cache=True, pool_size=1, patience_ms=None)
    try:
        # Where they are now, which may be in the schema that they are to be moved to.
        await transactions.use_schema(await transactions.read(find_schema))
        await transactions.write(migrator.upgrade)
        await transactions.read(migrator.check_schema)
        await transactions.write(partial(move_tables, to=to))
    finally:
        await transactions.close()
