"""Restoring a backup: a copy is prepared beside the target, and takes its place as a whole.

The copy gets the newest schema and a new epoch: leases and workers of the old one are forgotten, and terms begin above
all that were given out before, so that no node of the old epoch can write. The caller decides on the copy about what is
in doubt, before anything can schedule on it.
"""

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from gnomon.adapters.sql import bulk, migrator, schema
from gnomon.adapters.sql.backup_file import BACKUP_AT, TABLES, copy_sqlite, read_table
from gnomon.adapters.sql.postgres_backup import use_schema
from gnomon.adapters.sql.rows import RUN, column_list, run_of
from gnomon.adapters.sql.sqlite import FileLock, engine_for
from gnomon.adapters.sql.transactions import Transactions
from gnomon.core.model import Run, RunId
from gnomon.errors import FileError, UsageError

if TYPE_CHECKING:
    from asyncpg import Connection

#: Tables of what is alive now, and tables that a new store has rows in: they do not make a store one in use.
_LIVE = ("node", "worker", "turn", "metrics_outbox", "change_follower", "change_log")
_NEVER_EMPTY = {*_LIVE, "shard", "gnomon_meta"}
_EPOCH = "epoch"
_OPEN_RUNS = bulk.statement(
    f"SELECT {column_list(RUN)} FROM run WHERE {schema.NOT_OVER} AND run_id > ? ORDER BY run_id LIMIT ?"  # noqa: S608 - our own
)


class SqlOpenRuns:
    """Implements OpenRuns."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def open_runs(self, *, after: RunId, limit: int) -> Sequence[Run]:
        """See OpenRuns.open_runs."""

        def read(conn: sa.Connection) -> Sequence[Run]:
            return [run_of(row) for row in bulk.fetch_rows(conn, _OPEN_RUNS, after, limit)]

        return await self._transactions.read(read)


def prepare_copy(backup: Path, copy: Path, *, restored_at: int) -> None:
    """Copy the backup, give it the newest schema, and begin a new epoch in the copy.

    FileError if the backup has not the tables and columns of a store.
    """
    copy_sqlite(backup, copy)
    engine = engine_for(str(copy), begin="BEGIN IMMEDIATE", connections=1)
    try:
        with engine.begin() as conn:
            migrator.upgrade(conn)
            _check_columns(conn, backup)
            _begin_epoch(conn, restored_at)
    except FileError:
        raise
    except (sa.exc.DBAPIError, ValueError) as error:
        why = error.orig if isinstance(error, sa.exc.DBAPIError) else error
        raise FileError(backup, f"cannot be restored: {why}") from error
    finally:
        engine.dispose()


def _check_columns(conn: sa.Connection, backup: Path) -> None:
    """FileError unless every table has its columns, and holds them itself instead of computing them."""
    for table in TABLES:
        stored = {row[1] for row in conn.exec_driver_sql(f"PRAGMA table_xinfo({table.name})") if not row[6]}
        if missing := [column.name for column in table.columns if column.name not in stored]:
            raise FileError(backup, f"is no backup of Gnomon: the table {table.name} has no column {missing[0]}")


def _begin_epoch(conn: sa.Connection, restored_at: int) -> None:
    for name in _LIVE:
        conn.execute(sa.delete(schema.metadata.tables[name]))
    # Seconds since 1970 are more than the terms that any store has given out, and more than at any restoration before.
    seconds = restored_at // 1000
    term = schema.shard.c.term
    raised = sa.case((term > seconds, term), else_=seconds)
    conn.execute(sa.update(schema.shard).values(term=raised, holder=None, lease_until=0))
    meta = schema.gnomon_meta
    epoch = int(conn.scalar(sa.select(meta.c.value).where(meta.c.key == _EPOCH)) or 0) + 1
    # Without its id the copy gets one of its own when it is opened: it is another database than its source.
    conn.execute(sa.delete(meta).where(meta.c.key.in_((_EPOCH, BACKUP_AT, "database_id", "database_id_writes"))))
    conn.execute(sa.insert(meta).values(key=_EPOCH, value=str(epoch)))


# ---- SQLite --------------------------------------------------------------------------------------


def check_target(path: Path, *, replace: bool) -> None:
    """UsageError if a backup cannot be restored into the file."""
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {path.parent} for the database {path}")
    if not replace and _is_in_use(path):
        raise UsageError(f"{path} is in use: restore into another file, or use --replace, which keeps it beside")


def _is_in_use(path: Path) -> bool:
    """Whether the file is a store that has rows, or anything else with content."""
    if not path.exists() or path.stat().st_size == 0:
        return False
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            queries = (f"SELECT 1 FROM {table.name} LIMIT 1" for table in TABLES if table.name not in _NEVER_EMPTY)  # noqa: S608 - our own names
            return any(connection.execute(query).fetchone() for query in queries)
    except sqlite3.DatabaseError:
        return True


def install_file(copy: Path, path: Path, *, replace: bool) -> Path | None:
    """Put the copy in place of the file; return the name that the file has now, if it was in use.

    UsageError if a scheduler runs on the file, or if it is in use and is not to be replaced.
    """
    lock = FileLock(str(path))
    if not lock.try_acquire():
        raise UsageError(f"a scheduler runs on {path}: stop it before you restore")
    try:
        check_target(path, replace=replace)
        kept = _set_aside(path) if _is_in_use(path) else None
        for end in ("-wal", "-shm"):
            with suppress(FileNotFoundError):
                Path(f"{path}{end}").unlink()
        copy.replace(path)
    finally:
        lock.release()
    return kept


def _set_aside(path: Path) -> Path:
    """Rename the file and its log; return the new name."""
    kept = next(name for number in range(1, 10_000) if not (name := Path(f"{path}.replaced-{number}")).exists())
    for end in ("-wal", ""):
        with suppress(FileNotFoundError):
            os.rename(f"{path}{end}", f"{kept}{end}")  # noqa: PTH104 - names with an ending
    return kept


# ---- PostgreSQL ----------------------------------------------------------------------------------


async def install_tables(copy: Path, connection: "Connection", *, schema: str | None, replace: bool) -> None:
    """Write the rows of the copy into the tables of a server, in one transaction.

    UsageError if servers or workers are alive there, or if the tables have rows and are not to be replaced.
    """
    names = ", ".join(table.name for table in TABLES)
    async with connection.transaction():
        await use_schema(connection, schema)
        # First the locks: whoever is alive can then no longer write.
        await connection.execute(f"LOCK TABLE {names} IN ACCESS EXCLUSIVE MODE")
        await _refuse_live(connection)
        if not replace:
            await _refuse_rows(connection)
        term = await connection.fetchval("SELECT coalesce(max(term), 0) FROM shard")
        await connection.execute(f"TRUNCATE {names}")
        for table in TABLES:
            await _install_rows(copy, connection, table)
            if table.autoincrement_column is not None:
                await _continue_numbers(connection, table.name, table.autoincrement_column.name)
        await connection.execute("UPDATE shard SET term = greatest(term, $1)", term + 1)


async def _install_rows(copy: Path, connection: "Connection", table: sa.Table) -> None:
    """Write the rows of the table; UsageError if the server cannot hold a value that the file has."""
    from asyncpg import DataError, IntegrityConstraintViolationError

    columns = [column.name for column in table.columns]
    try:
        for rows in read_table(copy, table):
            await connection.copy_records_to_table(table.name, records=rows, columns=columns)
    except (DataError, IntegrityConstraintViolationError, TypeError, ValueError, OverflowError) as error:
        raise UsageError(f"the backup cannot be restored: table {table.name}: {error}") from error


async def _continue_numbers(connection: "Connection", table: str, column: str) -> None:
    """Let the next row of the table get a number above those that were restored."""
    sequence = f"pg_get_serial_sequence('{table}', '{column}')"
    await connection.execute(f"SELECT setval({sequence}, coalesce(max({column}), 0) + 1, false) FROM {table}")  # noqa: S608 - our own


async def _refuse_live(connection: "Connection") -> None:
    now = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
    for table, processes in (("node", "servers"), ("worker", "workers")):
        if await connection.fetchval(f"SELECT 1 FROM {table} WHERE seen_until > {now} LIMIT 1"):  # noqa: S608 - our own
            raise UsageError(f"the database is in use: stop the {processes}, and wait until their leases end")


async def _refuse_rows(connection: "Connection") -> None:
    for table in TABLES:
        if table.name in _NEVER_EMPTY:
            continue
        if await connection.fetchval(f"SELECT 1 FROM {table.name} LIMIT 1"):  # noqa: S608 - our own names
            advice = "restore into another one, or use --replace, which deletes them"
            raise UsageError(f"the database has rows of {table.name}: {advice}")
