"""SQLite: one thread writes, a few read beside it, and a lock beside the file says whose scheduler it is.

Every transaction of the writer takes along all bodies that have piled up, so that many writers share one flush of
the disk. Reads go to connections of their own: under WAL they see what is committed and wait for nobody.
"""

import asyncio
import fcntl
import os
import queue
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import sqlalchemy as sa

from gnomon.adapters.sql.errors import lost_transaction_error, translate_error
from gnomon.adapters.sql.transactions import (
    MAX_BATCH,
    TransactionBody,
    TransactionResult,
    resolve_futures,
    run_batch,
)
from gnomon.errors import StoreUnavailable, UsageError
from gnomon.ports.runtime import Events

T = TypeVar("T")
READERS = 4
#: What every connection is told when it is opened.
PRAGMAS = {
    "busy_timeout": "5000",
    "journal_mode": "WAL",
    # With FULL a commit outlives a power cut. Shared by many, the flush costs next to nothing.
    "synchronous": "FULL",
    # A batch of decisions writes thousands of pages: at the default a checkpoint would follow on each. A commit
    # that has to make one keeps all others waiting, so that most are made in quiet moments, long before.
    "wal_autocheckpoint": "16000",
    "journal_size_limit": str(64 * 2**20),
}
#: How much of the file a connection keeps in mind, in KiB: the writer and each reader. The system keeps all of it, too.
_WRITERS_CACHE, _READERS_CACHE = 2048, 512
#: How many statements a connection need not read again: each of our own for several numbers of rows.
_KNOWN_STATEMENTS = 512
#: After how many changed rows a checkpoint is made, as soon as nothing has been written for so long.
_CHECKPOINT_ROWS, _QUIET_SECONDS = 4000, 0.05
#: How soon to ask again for a journal that others are changing.
_JOURNAL_SECONDS = 0.01
_NETWORK_DISKS = frozenset("nfs nfs4 cifs smb3 smbfs afs ceph glusterfs lustre fuse.sshfs fuse.glusterfs".split())


def engine_for(path: str, *, begin: str, connections: int, cache: int = _READERS_CACHE) -> sa.Engine:
    """An engine on the file, which is made if there is none, whose transactions begin as told."""
    _create_file(path)
    engine = sa.create_engine(
        # Whoever opens it later makes no empty one in the place of a file that was taken away.
        sa.URL.create("sqlite", database=f"{Path(path).absolute().as_uri()}?mode=rw", query={"uri": "true"}),
        poolclass=sa.QueuePool,
        pool_size=connections,
        max_overflow=0,
        # None: the driver leaves transactions to us.
        connect_args={"isolation_level": None, "check_same_thread": False, "cached_statements": _KNOWN_STATEMENTS},
    )

    @sa.event.listens_for(engine, "connect")
    def prepare(connection: Any, _: object) -> None:  # noqa: ANN401 - the driver's own
        for name, value in (*PRAGMAS.items(), ("cache_size", -cache)):
            _execute_pragma(connection, f"PRAGMA {name} = {value}")

    @sa.event.listens_for(engine, "begin")
    def start(conn: sa.Connection) -> None:
        conn.exec_driver_sql(begin)

    return engine


def _create_file(path: str) -> None:
    """There is a file; if it cannot be made, whoever opens it will say why."""
    # Never one that is there already: to close it would let go of the locks that we may have on it.
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _execute_pragma(connection: Any, pragma: str) -> None:  # noqa: ANN401 - the driver's own
    """The connection is told, also while others change the journal of a new file, for which SQLite does not wait."""
    give_up_at = time.monotonic() + int(PRAGMAS["busy_timeout"]) / 1000
    while True:
        try:
            connection.execute(pragma)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > give_up_at:
                raise
            time.sleep(_JOURNAL_SECONDS)
        else:
            return


class _SqliteWrite(NamedTuple):
    body: TransactionBody[Any]
    loop: asyncio.AbstractEventLoop
    answer: "asyncio.Future[Any]"


class SqliteTransactions:
    """The engine on one file. `now` is the clock of this machine, which all who share the file have in common."""

    def __init__(self, path: str, *, now: Callable[[], int]) -> None:
        self._now = now
        self._pending_writes: queue.SimpleQueue[_SqliteWrite | None] = queue.SimpleQueue()
        self._closing = False
        #: How many transactions there were, with success or without.
        self.commits = 0
        #: How many rows the writer's connection has changed, and how many of them at the last checkpoint.
        self._changed = self._settled = 0
        self._writing = engine_for(path, begin="BEGIN IMMEDIATE", connections=1, cache=_WRITERS_CACHE)
        self._reading = engine_for(path, begin="BEGIN", connections=READERS)
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="gnomon-read")
        self._writer = threading.Thread(target=self._writer_loop, name="gnomon-write", daemon=True)
        self._writer.start()

    def now(self, conn: sa.Connection) -> int:  # noqa: ARG002 - another engine asks its server
        """See Transactions.now."""
        return self._now()

    async def read(self, body: TransactionBody[T]) -> T:
        """See Transactions.read."""
        if self._closing:
            raise StoreUnavailable("the store is closed")
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read, body)

    def _read(self, body: TransactionBody[T]) -> T:
        try:
            with self._reading.connect() as conn:
                return body(conn)
        except Exception as error:
            failure = translate_error(error)
            if failure is error:
                raise
            raise failure from error

    async def write(self, body: TransactionBody[T], *, apart: bool = False) -> T:
        """See Transactions.write. On a file there is one who writes."""
        del apart
        if self._closing:
            raise StoreUnavailable("the store is closed")
        loop = asyncio.get_running_loop()
        asked = _SqliteWrite(body, loop, loop.create_future())
        self._pending_writes.put(asked)
        answer: T = await asked.answer
        return answer

    async def close(self) -> None:
        """See Transactions.close."""
        if self._closing:
            return
        self._closing = True
        self._pending_writes.put(None)
        await asyncio.to_thread(self._shut_down)

    def _shut_down(self) -> None:
        self._writer.join()
        self._readers.shutdown()
        self._reading.dispose()
        self._writing.dispose()

    # ---- the writer's thread -----------------------------------------------------------------

    def _writer_loop(self) -> None:
        """Write until told to stop; nothing that fails ends it."""
        while (first := self._next()) is not None:
            batch, closing = self._drain_queue(first)
            _deliver_results(batch, self._run(batch))
            if closing:
                return

    def _next(self) -> _SqliteWrite | None:
        """What is asked for next. A quiet moment before that is used for a checkpoint, if much has been written."""
        if self._changed - self._settled >= _CHECKPOINT_ROWS:
            try:
                return self._pending_writes.get(timeout=_QUIET_SECONDS)
            except queue.Empty:
                self._settled = self._changed
                # Not by the writer: whoever comes while it is made need not wait for it.
                self._readers.submit(self.checkpoint)
        return self._pending_writes.get()

    def checkpoint(self) -> None:
        """What was committed is in the file itself, so that the log of the next commits begins anew."""
        # What hinders it now will hinder a commit, which makes one by itself in the end and says so.
        with suppress(sa.exc.DBAPIError, sqlite3.Error):
            connection = self._reading.raw_connection()
            try:
                connection.cursor().execute("PRAGMA wal_checkpoint(PASSIVE)")
            finally:
                connection.close()

    def _drain_queue(self, first: _SqliteWrite) -> tuple[list[_SqliteWrite], bool]:
        """The first and all that have piled up behind it; whether there is nothing more to come."""
        batch = [first]
        while len(batch) < MAX_BATCH:
            try:
                asked = self._pending_writes.get_nowait()
            except queue.Empty:
                break
            if asked is None:
                return batch, True
            batch.append(asked)
        return batch, False

    def _run(self, batch: list[_SqliteWrite]) -> list[TransactionResult]:
        try:
            with self._writing.connect() as conn:
                outcomes = run_batch(conn, [asked.body for asked in batch])
                self.commits += 1
                self._note_changes(conn)
                if all(isinstance(outcome.error, StoreUnavailable) for outcome in outcomes):
                    # Whatever it was, a new connection has not seen it.
                    conn.invalidate()
                return outcomes
        except Exception as error:  # noqa: BLE001 - the callers get it
            return [TransactionResult(error=lost_transaction_error(error)) for _ in batch]

    def _note_changes(self, conn: sa.Connection) -> None:
        driver = conn.connection.dbapi_connection
        if isinstance(driver, sqlite3.Connection):
            self._changed = driver.total_changes
            # A new connection counts from nothing.
            self._settled = min(self._settled, self._changed)


def _deliver_results(batch: list[_SqliteWrite], outcomes: list[TransactionResult]) -> None:
    answers: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], TransactionResult]]] = {}
    for asked, outcome in zip(batch, outcomes, strict=True):
        answers.setdefault(asked.loop, []).append((asked.answer, outcome))
    for loop, settled in answers.items():
        try:
            loop.call_soon_threadsafe(resolve_futures, settled)
        except RuntimeError:  # the loop is closed, and nobody waits any more
            continue


# ---- whose scheduler it is -----------------------------------------------------------------------


class FileLock:
    """The right to schedule for a database file. The kernel takes it back when its process ends, however it ends."""

    def __init__(self, path: str) -> None:
        # Whatever links lead to the database, they lead to one lock.
        self.path = os.path.realpath(path) + ".lock"
        refuse_network_disk(self.path)
        self._file: int | None = None
        _LOCKS.add(self)

    def try_acquire(self) -> bool:
        """Whether it is held now; False if another process, or another lock in this one, has it."""
        if self._file is not None:
            return True
        try:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreUnavailable(f"cannot open {self.path}: {error.strerror}") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return False
        self._file = file
        return True

    def release(self) -> None:
        """Give it back. The file stays: whoever removed it could remove one that another has just locked."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


#: A forked child shares the lock of its parent and would keep it alive; so it lets go at once.
_LOCKS: "weakref.WeakSet[FileLock]" = weakref.WeakSet()


def _close_locks_in_child() -> None:
    for lock in _LOCKS:
        lock.release()


os.register_at_fork(after_in_child=_close_locks_in_child)


def refuse_network_disk(path: str, mounts: str = "/proc/mounts") -> None:
    """UsageError if the file is known to lie on another machine, where neither locks nor WAL can be trusted."""
    try:
        lines = Path(mounts).read_text().splitlines()
    except OSError:
        return
    folder = os.path.realpath(path)
    kinds = {place.encode().decode("unicode_escape"): kind for _, place, kind, *_ in map(str.split, lines)}
    within = [place for place in kinds if os.path.commonpath([place, folder]) == place]
    kind = kinds[max(within, key=len)] if within else ""
    if kind in _NETWORK_DISKS:
        raise UsageError(f"{path} lies on a network file system ({kind}), where it is not safe: use a local disk")


#: How soon a write by another process is noticed.
_POLL_SECONDS = 0.1
#: How often to look whether the file is still there.
_CHECK_SECONDS = 1.0


class CommitWatcher:
    """Asks SQLite whether anyone has committed since the last time of asking. That costs microseconds."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._seen: int | None = None
        self._on_change: Callable[[], None] = lambda: None
        self._timer: asyncio.TimerHandle | None = None
        self.changed()

    def _version(self) -> int:
        if self._connection is None:
            self._connection = sqlite3.connect(
                Path(self._path).absolute().as_uri() + "?mode=ro",
                uri=True,
                isolation_level=None,
                check_same_thread=False,
            )
        found: int = self._connection.execute("PRAGMA data_version").fetchone()[0]
        return found

    def changed(self) -> bool:
        """Whether there was a commit since the last time of asking; True, too, if that cannot be said."""
        try:
            version = self._version()
        except sqlite3.Error:
            return True
        before, self._seen = self._seen, version
        return version != before

    async def watch(self, told: Callable[[], None], stop: asyncio.Event) -> None:
        """Whoever wants to know is told of every change soon, and once at first, until told to stop."""
        self._on_change = told
        told()
        self._schedule_check()
        try:
            await stop.wait()
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self.close()

    def _schedule_check(self) -> None:
        # A bare timer: a process that has nothing to do spends most of its time here.
        self._timer = asyncio.get_running_loop().call_later(_POLL_SECONDS, self._check)

    def _check(self) -> None:
        self._schedule_check()
        if self.changed():
            self._on_change()

    def close(self) -> None:
        """Let go of the file."""
        if self._connection is not None:
            self._connection.close()


class DatabaseFileMonitor:
    """Says once that the path no longer leads to the file that it led to at first, and again if that recurs.

    Whoever has such a file open goes on writing to what nobody will find again.
    """

    def __init__(self, path: str, events: Events) -> None:
        self._path = os.path.realpath(path)
        self._events = events
        self._first = _identity(self._path)
        self._gone = False

    async def step(self) -> float:
        """One look. Returns how many seconds to wait before the next."""
        gone = _identity(self._path) != self._first
        if gone and not self._gone:
            self._events.emit("database_gone", path=self._path)
        self._gone = gone
        return _CHECK_SECONDS


def _identity(path: str) -> tuple[int, int] | None:
    """Which file the path leads to; None if to none."""
    try:
        found = os.stat(path)  # noqa: PTH116 - each second, and there is nothing to gain from an object
    except OSError:
        return None
    return found.st_dev, found.st_ino
