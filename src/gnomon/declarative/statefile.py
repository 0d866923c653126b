"""State in one SQLite file, written by one thread.

The file is locked by SQLite itself for as long as it is open, so a second scheduler is refused, and a crash lets go of
it without anybody's help. Every commit is flushed to the disk (`synchronous=FULL`).
"""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from gnomon.declarative.errors import StateForeignError, StateInUseError, StateUnavailableError

T = TypeVar("T")
#: "gnom": what tells our files from others.
APPLICATION_ID = 0x676E6F6D
VERSION = 1
#: How long to wait for a scheduler that is just letting go.
_PATIENCE_SECONDS = 1.0
_PRAGMAS = ("journal_mode = WAL", "synchronous = FULL", "wal_autocheckpoint = 16000")
_PUT = "INSERT INTO task (id, record) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET record = excluded.record"


class StateFile:
    """See State."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread: ThreadPoolExecutor | None = None
        self._connection: sqlite3.Connection | None = None

    async def open(self) -> list[tuple[int, object]]:
        """See State.open."""
        if self._thread is not None:
            raise StateInUseError
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="gnomon-state")
        try:
            return await self._do("open the state file", self._open)
        except BaseException:
            await self.close()
            raise

    async def write(self, kept: Sequence[tuple[int, str]], removed: Sequence[int] = ()) -> None:
        """See State.write."""
        await self._do("write the state file", lambda: self._write(kept, removed))

    async def close(self) -> None:
        """See State.close."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        try:
            await asyncio.get_running_loop().run_in_executor(thread, self._close)
        finally:
            thread.shutdown(wait=False)

    async def _do(self, doing: str, job: Callable[[], T]) -> T:
        try:
            if self._thread is None:
                raise sqlite3.ProgrammingError("the state file is closed")
            return await asyncio.get_running_loop().run_in_executor(self._thread, job)
        except (sqlite3.Error, OSError) as error:
            raise StateUnavailableError(doing, error) from error

    # ---- in the thread ---------------------------------------------------------------------------

    def _open(self) -> list[tuple[int, object]]:
        self._connection = connection = sqlite3.connect(
            self._path, timeout=_PATIENCE_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            # The first transaction takes the lock, and it is kept.
            connection.execute("BEGIN EXCLUSIVE")
            self._refuse_foreign(connection)
            connection.execute("COMMIT")
            for pragma in _PRAGMAS:
                connection.execute(f"PRAGMA {pragma}")
            self._make(connection)
            return connection.execute("SELECT id, record FROM task ORDER BY id").fetchall()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
                raise StateInUseError from error
            raise

    def _refuse_foreign(self, connection: sqlite3.Connection) -> None:
        """A file of something else is not touched, and neither is one of a newer scheduler."""
        [(made_by,)] = connection.execute("PRAGMA application_id")
        [(version,)] = connection.execute("PRAGMA user_version")
        [(things,)] = connection.execute("SELECT count(*) FROM sqlite_schema")
        if things and made_by != APPLICATION_ID:
            raise StateForeignError("holds something else")
        if version > VERSION:
            raise StateForeignError(f"has version {version}; this scheduler knows {VERSION}")

    def _make(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("CREATE TABLE IF NOT EXISTS task (id INTEGER PRIMARY KEY, record TEXT NOT NULL)")
        connection.execute("COMMIT")

    def _write(self, kept: Sequence[tuple[int, str]], removed: Sequence[int]) -> None:
        if self._connection is None:
            raise sqlite3.ProgrammingError("the state file is closed")
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.executemany("DELETE FROM task WHERE id = ?", [(number,) for number in removed])
            connection.executemany(_PUT, kept)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
