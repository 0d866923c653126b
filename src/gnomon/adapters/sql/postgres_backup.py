"""Reads all tables of a server for a backup, as they are at one moment, without locking anybody out."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gnomon.adapters.sql.backup_file import TABLES, BackupWriter, create_empty, mark_backup
from gnomon.adapters.sql.migrator import SCHEMA
from gnomon.adapters.sql.postgres import server_address
from gnomon.errors import StoreUnavailable, UsageError

if TYPE_CHECKING:
    from asyncpg import Connection

_BATCH = 5000
_CONNECT_SECONDS = 30.0
_NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"


@asynccontextmanager
async def plain_connection(url: str) -> "AsyncIterator[Connection]":
    """A connection without limits on time. StoreUnavailable if there is none, or if it is lost."""
    import asyncpg

    address, arguments = server_address(url)
    _, options = address.get_dialect()().create_connect_args(address)
    try:
        connection = await asyncpg.connect(**options, **arguments, timeout=_CONNECT_SECONDS, statement_cache_size=0)
        try:
            yield connection
        finally:
            await connection.close()
    except (OSError, asyncpg.InterfaceError, asyncpg.PostgresConnectionError, asyncpg.InternalClientError) as error:
        raise StoreUnavailable(f"the database does not answer: {type(error).__name__}: {error}") from error


async def store_time(connection: "Connection") -> int:
    """The clock of the server."""
    return int(await connection.fetchval(_NOW))


async def use_schema(connection: "Connection", schema: str | None) -> None:
    """Let the rest of the transaction find the tables in the schema."""
    if schema is not None:
        await connection.execute(f'SET LOCAL search_path TO "{schema}"')


async def copy_server(connection: "Connection", target: Path, *, schema: str | None) -> None:
    """Write all rows into the file. They are read in one transaction, which sees one moment only."""
    await asyncio.to_thread(create_empty, target)
    writer = BackupWriter(target)
    try:
        # Before the copy: what was written since then may be in it, and what was written later is not.
        moment = await store_time(connection)
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            await use_schema(connection, schema)
            number = int(await connection.fetchval("SELECT value FROM gnomon_meta WHERE key = 'schema'"))
            if number != SCHEMA:
                raise UsageError(f"the database has schema {number}, and this program makes backups of {SCHEMA} only")
            counts = {table.name: await _copy_table(connection, table.name, writer) for table in TABLES}
        await asyncio.to_thread(writer.finish, counts)
    finally:
        writer.close()
    await asyncio.to_thread(mark_backup, target, moment)


async def _copy_table(connection: "Connection", name: str, writer: BackupWriter) -> int:
    [table] = [table for table in TABLES if table.name == name]
    columns = ", ".join(f'"{column.name}"' for column in table.columns)
    count = 0
    cursor = await connection.cursor(f"SELECT {columns} FROM {name}")  # noqa: S608 - our own names
    while rows := await cursor.fetch(_BATCH):
        await asyncio.to_thread(writer.write, table, [tuple(row) for row in rows])
        count += len(rows)
    expected = await connection.fetchval(f"SELECT count(*) FROM {name}")  # noqa: S608 - our own names
    if count != expected:
        raise UsageError(f"{count} rows of {name} were read instead of {expected}")
    return count
