"""A backup: one SQLite file with the tables of a store, whatever database they come from.

A backup is written under another name, checked, and only then gets its own. It restores to either database. SQLite's
own check finds damage of the file; the number of rows of every table is compared with what was read.

A backup holds tables and indexes, and nothing that acts by itself: no trigger, no view and no virtual table. A trigger
would go on acting in the restored database, and nobody would see it.
"""

import os
import secrets
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from gnomon.adapters.sql import migrator
from gnomon.adapters.sql.schema import gnomon_meta, metadata
from gnomon.adapters.sql.sqlite import engine_for
from gnomon.errors import FileError, UsageError

#: The entry of `gnomon_meta` with the moment of a backup: only a backup has it. All values are numbers.
BACKUP_AT = "backup_at"
#: How many rows are read at once.
_BATCH = 5000
#: Everything that has no pages of its own: a table and an index have some, whatever else their definitions say.
_ACTIVE_PARTS = (
    "SELECT CASE WHEN type IN ('trigger', 'view') THEN type ELSE 'table' END, name FROM sqlite_schema"
    " WHERE type NOT IN ('table', 'index') OR coalesce(rootpage, 0) = 0 ORDER BY type = 'table'"
)
TABLES: Sequence[sa.Table] = metadata.sorted_tables


@contextmanager
def new_backup(target: Path) -> Iterator[Path]:
    """The path of a file to write. It is checked and gets the name of the target once it is complete.

    FileError if the target exists, if it cannot be written, or if the check fails.
    """
    if target.exists():
        raise FileError(target, "exists already: backups do not overwrite anything")
    unfinished = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        yield unfinished
        _seal(unfinished)
        check_backup(unfinished)
        # Refuses to replace a file that has appeared meanwhile.
        os.link(unfinished, target)
        _sync(target.parent)
    except OSError as error:
        raise FileError(target, f"cannot be written: {error.strerror or error}") from error
    finally:
        for leftover in (unfinished, *_logs(unfinished)):
            with suppress(FileNotFoundError):
                leftover.unlink()


def check_backup(file: Path) -> tuple[int, int | None]:
    """The number of its schema, and its moment if it names one; FileError unless it is an intact store."""
    if not file.is_file():
        raise FileError(file, "is no file")
    try:
        with closing(_connected(file)) as connection:
            # First: a check of a virtual table would run code on what the file says.
            _refuse_active_parts(connection, file)
            _refuse_damage(connection, file)
            meta = dict(connection.execute("SELECT key, value FROM gnomon_meta").fetchall())
            return int(meta["schema"]), None if BACKUP_AT not in meta else int(meta[BACKUP_AT])
    except FileError:
        raise
    except (sqlite3.DatabaseError, KeyError, ValueError) as error:
        raise FileError(file, f"is no backup of Gnomon: {error}") from error


def _refuse_active_parts(connection: sqlite3.Connection, file: Path) -> None:
    for kind, name in connection.execute(_ACTIVE_PARTS):
        reason = f"has a {kind} {name!r}, and no backup of Gnomon has one: it would act on what is restored"
        raise FileError(file, reason)


def _refuse_damage(connection: sqlite3.Connection, file: Path) -> None:
    damage = [text for (text,) in connection.execute("PRAGMA integrity_check(3)")]
    if damage != ["ok"]:
        raise FileError(file, f"is damaged: {damage[0]}")


def drop_active_parts(file: Path) -> None:
    """Remove triggers, views and virtual tables that were added to a database: backups have none."""
    with closing(sqlite3.connect(file)) as connection, connection:
        for kind, name in connection.execute(_ACTIVE_PARTS).fetchall():
            quoted = name.replace('"', '""')
            connection.execute(f'DROP {kind} IF EXISTS "{quoted}"')


def copy_sqlite(source: Path, target: Path) -> None:
    """Copy a database while others use it, as it was at one moment, with everything that its log holds.

    The copy holds inputs and an audit trail: only its owner may read it.
    """
    os.close(os.open(target, os.O_CREAT | os.O_RDWR, 0o600))
    with closing(_connected(source)) as read, closing(sqlite3.connect(target)) as written:
        # All pages in one step: the copy is one read transaction, which no writer waits for.
        read.backup(written, pages=-1)


def create_empty(file: Path) -> None:
    """Give the file the newest schema, and no rows."""
    engine = engine_for(str(file), begin="BEGIN IMMEDIATE", connections=1)
    try:
        with engine.begin() as conn:
            migrator.upgrade(conn)
            for table in TABLES:
                conn.execute(sa.delete(table))
    finally:
        engine.dispose()


class BackupWriter:
    """Writes rows into a file with empty tables, in one transaction. Not for several threads at once."""

    def __init__(self, file: Path) -> None:
        self._connection = sqlite3.connect(file, check_same_thread=False)

    def write(self, table: sa.Table, rows: Sequence[Sequence[Any]]) -> None:
        """Insert complete rows of the table."""
        names = ", ".join(f'"{column.name}"' for column in table.columns)
        places = ", ".join("?" * len(table.columns))
        self._connection.executemany(f"INSERT INTO {table.name} ({names}) VALUES ({places})", rows)  # noqa: S608 - our own

    def finish(self, counts: dict[str, int]) -> None:
        """Commit; UsageError unless every table has as many rows as were counted at its source."""
        self._connection.commit()
        for name, count in counts.items():
            [(found,)] = self._connection.execute(f"SELECT count(*) FROM {name}")  # noqa: S608 - our own names
            if found != count:
                raise UsageError(f"the backup has {found} rows of {name} instead of {count}")

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def read_table(file: Path, table: sa.Table) -> Iterator[list[tuple[Any, ...]]]:
    """The complete rows of the table in batches, with the types of Python."""
    names = ", ".join(f'"{column.name}"' for column in table.columns)
    booleans = [place for place, column in enumerate(table.columns) if isinstance(column.type, sa.Boolean)]
    with closing(_connected(file)) as connection:
        cursor = connection.execute(f"SELECT {names} FROM {table.name}")  # noqa: S608 - our own names
        while rows := cursor.fetchmany(_BATCH):
            yield [_with_booleans(row, booleans) for row in rows] if booleans else rows


def _with_booleans(row: tuple[Any, ...], places: Sequence[int]) -> tuple[Any, ...]:
    values = list(row)
    for place in places:
        values[place] = None if values[place] is None else bool(values[place])
    return tuple(values)


def mark_backup(file: Path, moment: int) -> None:
    """Note the moment of the backup in the file."""
    with closing(sqlite3.connect(file)) as connection, connection:
        command = f"INSERT OR REPLACE INTO {gnomon_meta.name} (key, value) VALUES (?, ?)"  # noqa: S608 - our own name
        connection.execute(command, (BACKUP_AT, str(moment)))


def _seal(file: Path) -> None:
    """Leave everything in the file itself, without a log beside it, and on the disk."""
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    _sync(file)


def _sync(place: Path) -> None:
    opened = os.open(place, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _logs(file: Path) -> list[Path]:
    return [file.with_name(f"{file.name}{end}") for end in ("-wal", "-shm", "-journal")]


def _connected(file: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=30)
    # Definitions in the file may use only functions that do nothing but compute.
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection
