"""The storage of records: the protocol that the scheduler needs, a state in memory, and a SQLite file."""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol, TypeVar

from gnomon.declarative.errors import (
    InvalidArgumentError,
    StateForeignError,
    StateInUseError,
    StateUnavailableError,
)

_URL = "sqlite:///"


class State(Protocol):
    """Numbered rows. The scheduler that opens it has it exclusively until it closes it or its process dies."""

    async def open(self) -> list[tuple[int, object]]:
        """Lock the state and return all rows, ordered by number; StateInUseError if another scheduler has it."""
        ...

    async def write(self, kept: Sequence[tuple[int, str]], removed: Sequence[int] = ()) -> None:
        """Write and remove rows in one transaction, durable on return. Idempotent."""
        ...

    async def close(self) -> None:
        """Release the state. Does nothing if it is not open."""
        ...


class MemoryState:
    """Rows in memory, for tests and simulations."""

    def __init__(self, rows: Iterable[tuple[int, object]] = ()) -> None:
        self.rows: dict[int, object] = dict(rows)
        self.is_open = False

    async def open(self) -> list[tuple[int, object]]:
        """See State.open."""
        if self.is_open:
            raise StateInUseError
        self.is_open = True
        return sorted(self.rows.items())

    async def write(self, kept: Sequence[tuple[int, str]], removed: Sequence[int] = ()) -> None:
        """See State.write."""
        self.rows.update(kept)
        for number in removed:
            self.rows.pop(number, None)

    async def close(self) -> None:
        """See State.close."""
        self.is_open = False


def state_at(place: object) -> State:
    """The state at `place`: a path, a SQLite URL, or a State itself."""
    if not isinstance(place, str | os.PathLike):
        if not all(callable(getattr(place, method, None)) for method in ("open", "write", "close")):
            raise InvalidArgumentError("state", place, "must be a path, a sqlite:/// URL or a State")
        state: State = place  # type: ignore[assignment]  # its methods were checked above
        return state

    text = os.fspath(place)
    if isinstance(text, bytes):
        raise InvalidArgumentError("state", place, "must be a text")
    if "://" in text and not text.startswith(_URL):
        raise InvalidArgumentError("state", _without_secrets(text), "must be a path or a sqlite:/// URL")
    path = text.removeprefix(_URL)
    if path in ("", ":memory:") or "\0" in path:
        reason = "must name a file; use MemoryState() for a state that is not persisted"
        raise InvalidArgumentError("state", text, reason)
    return StateFile(Path(path).absolute())


def _without_secrets(url: str) -> str:
    return url.partition("://")[0] + "://…"


T = TypeVar("T")
#: "gnom": marks the files of this scheduler.
APPLICATION_ID = 0x676E6F6D
VERSION = 1
#: How long to wait for the lock of a scheduler that is just closing.
_PATIENCE_SECONDS = 1.0
_PRAGMAS = ("journal_mode = WAL", "synchronous = FULL", "wal_autocheckpoint = 16000")
_PUT = "INSERT INTO task (id, record) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET record = excluded.record"


class StateFile:
    """A State in a SQLite file, with an exclusive lock. All access is on one thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread: ThreadPoolExecutor | None = None
        self._connection: sqlite3.Connection | None = None

    def exists(self) -> bool:
        """Whether the file has been created."""
        return self._path.exists()

    async def open(self) -> list[tuple[int, object]]:
        """See State.open."""
        if self._thread is not None:
            raise StateInUseError(str(self._path))
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

    async def _do(self, action: str, call: Callable[[], T]) -> T:
        try:
            if self._thread is None:
                raise sqlite3.ProgrammingError("the state file is closed")
            return await asyncio.get_running_loop().run_in_executor(self._thread, call)
        except (sqlite3.Error, OSError) as error:
            raise StateUnavailableError(action, error, str(self._path)) from error

    # ---- in the thread ---------------------------------------------------------------------------

    def _open(self) -> list[tuple[int, object]]:
        self._connection = connection = sqlite3.connect(
            self._path, timeout=_PATIENCE_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            # The first transaction takes the lock, and the connection holds it from then on.
            connection.execute("BEGIN EXCLUSIVE")
            self._refuse_foreign(connection)
            connection.execute("COMMIT")
            for pragma in _PRAGMAS:
                connection.execute(f"PRAGMA {pragma}")
            self._make(connection)
            return connection.execute("SELECT id, record FROM task ORDER BY id").fetchall()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
                raise StateInUseError(str(self._path)) from error
            raise

    def _refuse_foreign(self, connection: sqlite3.Connection) -> None:
        """Refuse the file of another program or of a newer scheduler, without changing it."""
        [(application_id,)] = connection.execute("PRAGMA application_id")
        [(version,)] = connection.execute("PRAGMA user_version")
        [(object_count,)] = connection.execute("SELECT count(*) FROM sqlite_schema")
        if object_count and application_id != APPLICATION_ID:
            raise StateForeignError("belongs to another program", str(self._path))
        if version > VERSION:
            raise StateForeignError(f"has version {version}; this scheduler knows {VERSION}", str(self._path))

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
