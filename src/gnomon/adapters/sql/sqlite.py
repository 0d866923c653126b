"""SQLite: one thread writes, a few threads read, and a lock file decides which process schedules.

The writer coalesces all bodies that wait into one transaction (see transactions.py), so that they share one fsync.
Reads have connections of their own: under WAL they see what is committed and never wait for the writer.
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

from gnomon.adapters.sql.database_file import (
    LockRecord,
    OpenDatabaseFile,
    identify,
    lock_path,
    read_mounts,
    touch_database_id,
)
from gnomon.adapters.sql.errors import lost_transaction_error, translate_error
from gnomon.adapters.sql.payloads import CIPHER
from gnomon.adapters.sql.transactions import (
    MAX_BATCH,
    TransactionBody,
    TransactionResult,
    resolve_futures,
    run_batch,
)
from gnomon.errors import StoreUnavailable, UsageError
from gnomon.ports.payloads import PayloadCipher

T = TypeVar("T")
READERS = 4
#: Set on every new connection.
PRAGMAS = {
    "busy_timeout": "5000",
    "journal_mode": "WAL",
    # With FULL a commit survives a power cut. Coalesced writes share the fsync, so it costs little.
    "synchronous": "FULL",
    # A batch of decisions writes thousands of pages: with the default, each would trigger a checkpoint. A commit that
    # makes one blocks all others, so most checkpoints are made earlier, while the writer is idle.
    "wal_autocheckpoint": "16000",
    "journal_size_limit": str(64 * 2**20),
}
#: The page cache of the writer and of each reader, in KiB. The operating system caches the whole file as well.
_WRITERS_CACHE, _READERS_CACHE = 2048, 512
#: Prepared statements that a connection caches: each of ours, for several numbers of rows.
_CACHED_STATEMENTS = 512
#: A checkpoint is made after this many changed rows, once nothing has been written for this long.
_CHECKPOINT_ROWS, _QUIET_SECONDS = 4000, 0.05
#: The pause before a pragma is retried while another process changes the journal mode.
_JOURNAL_SECONDS = 0.01
_NETWORK_DISKS = frozenset("nfs nfs4 cifs smb3 smbfs afs ceph glusterfs lustre fuse.sshfs fuse.glusterfs".split())


def engine_for(path: str, *, begin: str, connections: int, cache: int = _READERS_CACHE) -> sa.Engine:
    """An engine on the file, which is created if it does not exist; `begin` starts its transactions."""
    _create_file(path)
    engine = sa.create_engine(
        # A later connection must not create an empty file in place of one that was removed.
        sa.URL.create("sqlite", database=f"{Path(path).absolute().as_uri()}?mode=rw", query={"uri": "true"}),
        poolclass=sa.QueuePool,
        pool_size=connections,
        max_overflow=0,
        # None: the driver starts no transactions by itself.
        connect_args={"isolation_level": None, "check_same_thread": False, "cached_statements": _CACHED_STATEMENTS},
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
    """Create the file unless it exists. If that fails, opening it reports why."""
    # Never open an existing file: closing it would release the locks that this process has on it.
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _execute_pragma(connection: Any, pragma: str) -> None:  # noqa: ANN401 - the driver's own
    """Execute the pragma. Retries while others change the journal mode of a new file: SQLite does not wait for that."""
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
    """Implements Transactions on one file. `now` is the machine's clock, which all processes on the file share."""

    def __init__(self, path: str, *, now: Callable[[], int]) -> None:
        self._now = now
        self._pending_writes: queue.SimpleQueue[_SqliteWrite | None] = queue.SimpleQueue()
        self._closing = False
        #: The number of transactions, committed or not.
        self.commits = 0
        #: Rows that the writer's connection has changed, in total and at the last checkpoint.
        self._changed = self._checkpointed = 0
        #: The same when the id of the database was last written; None before the first transaction.
        self._id_touched: int | None = None
        self._writing = engine_for(path, begin="BEGIN IMMEDIATE", connections=1, cache=_WRITERS_CACHE)
        self._reading = engine_for(path, begin="BEGIN", connections=READERS)
        self._file = OpenDatabaseFile(path)
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="gnomon-read")
        self._writer = threading.Thread(target=self._writer_loop, name="gnomon-write", daemon=True)
        self._writer.start()

    def use_cipher(self, cipher: PayloadCipher) -> None:
        """Encrypt payloads from now on."""
        for engine in (self._writing, self._reading):
            engine.update_execution_options(**{CIPHER: cipher})

    def now(self, conn: sa.Connection) -> int:  # noqa: ARG002 - PostgreSQL needs the connection
        """See Transactions.now."""
        return self._now()

    async def read(self, body: TransactionBody[T]) -> T:
        """See Transactions.read."""
        if self._closing:
            raise StoreUnavailable("the store is closed")
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read, body)

    def _read(self, body: TransactionBody[T]) -> T:
        try:
            self._file.check()
            with self._reading.connect() as conn:
                return body(conn)
        except Exception as error:
            failure = translate_error(error)
            if failure is error:
                raise
            raise failure from error

    async def write(self, body: TransactionBody[T], *, apart: bool = False) -> T:
        """See Transactions.write. A file has one writer, so `apart` makes no difference."""
        del apart
        if self._closing:
            raise StoreUnavailable("the store is closed")
        loop = asyncio.get_running_loop()
        write = _SqliteWrite(body, loop, loop.create_future())
        self._pending_writes.put(write)
        answer: T = await write.answer
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
        """Write until the store is closed. A failure ends a batch, never the thread."""
        while (first := self._next()) is not None:
            batch, closing = self._drain_queue(first)
            _deliver_results(batch, self._run(batch))
            if closing:
                return

    def _next(self) -> _SqliteWrite | None:
        """The next write; None to stop. If many rows have changed, it checkpoints while no write is waiting."""
        if self._changed - self._checkpointed >= _CHECKPOINT_ROWS:
            try:
                return self._pending_writes.get(timeout=_QUIET_SECONDS)
            except queue.Empty:
                self._checkpointed = self._changed
                # On a reader's thread, so that no write waits for the checkpoint.
                self._readers.submit(self.checkpoint)
        return self._pending_writes.get()

    def checkpoint(self) -> None:
        """Move committed pages from the WAL into the file, so that the WAL starts again."""
        # If it fails now, a later commit makes one and reports the error.
        with suppress(sa.exc.DBAPIError, sqlite3.Error):
            connection = self._reading.raw_connection()
            try:
                connection.cursor().execute("PRAGMA wal_checkpoint(PASSIVE)")
            finally:
                connection.close()

    def _drain_queue(self, first: _SqliteWrite) -> tuple[list[_SqliteWrite], bool]:
        """The first write and all that wait behind it, and whether the store is closing."""
        batch = [first]
        while len(batch) < MAX_BATCH:
            try:
                write = self._pending_writes.get_nowait()
            except queue.Empty:
                break
            if write is None:
                return batch, True
            batch.append(write)
        return batch, False

    def _run(self, batch: list[_SqliteWrite]) -> list[TransactionResult]:
        try:
            self._file.check_with_log()
            with self._writing.connect() as conn:
                outcomes = run_batch(conn, [write.body for write in batch], self._touch_id)
                self.commits += 1
                self._note_changes(conn)
                if all(isinstance(outcome.error, StoreUnavailable) for outcome in outcomes):
                    # Start over with a new connection, whatever the error was.
                    self._file.forget_log()
                    conn.invalidate()
                    return outcomes
            # If the file was taken away during the commit, nothing may follow from what was written.
            self._file.check_with_log()
            self._file.remember_log()
        except Exception as error:  # noqa: BLE001 - the callers get it
            return [TransactionResult(error=lost_transaction_error(error)) for _ in batch]
        return outcomes

    def _touch_id(self, conn: sa.Connection, _: int) -> None:
        """Write the id of the database again after many changes: a checkpoint may have begun the log anew."""
        if self._id_touched is None or self._changed - self._id_touched >= _CHECKPOINT_ROWS:
            touch_database_id(conn)
            self._id_touched = self._changed

    def _note_changes(self, conn: sa.Connection) -> None:
        driver = conn.connection.dbapi_connection
        if isinstance(driver, sqlite3.Connection):
            self._changed = driver.total_changes
            # A new connection starts to count at 0.
            self._checkpointed = min(self._checkpointed, self._changed)
            self._id_touched = min(self._id_touched or 0, self._changed)


def _deliver_results(batch: list[_SqliteWrite], outcomes: list[TransactionResult]) -> None:
    answers: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], TransactionResult]]] = {}
    for write, outcome in zip(batch, outcomes, strict=True):
        answers.setdefault(write.loop, []).append((write.answer, outcome))
    for loop, results in answers.items():
        try:
            loop.call_soon_threadsafe(resolve_futures, results)
        except RuntimeError:  # the loop is closed, so no caller waits any more
            continue


# ---- the lock of the scheduler -------------------------------------------------------------------


class FileLock:
    """The right to schedule for a database file. The kernel releases it when the process ends, however it ends."""

    def __init__(self, path: str) -> None:
        self._database = path
        self.path = lock_path(path)
        refuse_network_disk(self.path)
        self._file: int | None = None
        _LOCKS.add(self)

    def try_acquire(self) -> bool:
        """Acquire the lock. False if another process, or another FileLock of this one, has it."""
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
        self._write_record(file)
        return True

    def _write_record(self, file: int) -> None:
        """Note which database this process schedules on; the lock holds without the note."""
        record = LockRecord(os.getpid(), identify(self._database)).encode()
        with suppress(OSError):
            os.ftruncate(file, 0)
            os.pwrite(file, record, 0)

    def release(self) -> None:
        """Release the lock. The lock file stays: removing it could remove one that another process has just locked."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


#: A forked child inherits the lock and would keep it alive, so it releases it at once.
_LOCKS: "weakref.WeakSet[FileLock]" = weakref.WeakSet()


def _close_locks_in_child() -> None:
    for lock in _LOCKS:
        lock.release()


os.register_at_fork(after_in_child=_close_locks_in_child)


def refuse_network_disk(path: str, mounts: str = "/proc/mounts") -> None:
    """UsageError if the file is on a network file system, where neither locks nor WAL are reliable."""
    folder, kinds = os.path.realpath(path), read_mounts(mounts)
    within = [place for place in kinds if place[:1] == "/" and os.path.commonpath([place, folder]) == place]
    kind = kinds[max(within, key=len)] if within else ""
    if kind in _NETWORK_DISKS:
        raise UsageError(f"{path} is on a network file system ({kind}), where SQLite is not safe: use a local disk")


def refuse_read_only(path: str) -> None:
    """UsageError if this process may not write the file, its folder, or the logs beside it.

    SQLite opens such a file without an error, so a scheduler would start and never decide a tick.
    """
    file = Path(path).resolve()
    for needed in (file.parent, file, file.with_name(f"{file.name}-wal"), file.with_name(f"{file.name}-shm")):
        if needed.exists() and not os.access(needed, os.W_OK):
            reason = "is read-only for this user; a scheduler or worker writes the database, its folder and its logs"
            raise UsageError(f"{needed} {reason}")


#: How often to check for commits of other processes.
_POLL_SECONDS = 0.1


class CommitWatcher:
    """Notices commits of any process by SQLite's data version, which takes microseconds to read."""

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
        """Whether there was a commit since the last call; True as well if the file cannot be read."""
        try:
            version = self._version()
        except sqlite3.Error:
            return True
        before, self._seen = self._seen, version
        return version != before

    async def watch(self, on_change: Callable[[], None], stop: asyncio.Event) -> None:
        """Call `on_change` at once, and soon after every commit, until stopped."""
        self._on_change = on_change
        on_change()
        self._schedule_check()
        try:
            await stop.wait()
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self.close()

    def _schedule_check(self) -> None:
        # A bare timer, because an idle process spends most of its time here.
        self._timer = asyncio.get_running_loop().call_later(_POLL_SECONDS, self._check)

    def _check(self) -> None:
        self._schedule_check()
        if self.changed():
            self._on_change()

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
