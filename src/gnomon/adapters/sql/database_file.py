"""The database file as the file system sees it: one file, one path, one log.

SQLite finds the log (WAL) of a database by its path. Three things follow. A file with a second path has a second log,
and two processes that use both destroy it. A file that is replaced while it is open leaves its process with a file that
has no name. A log of another database beside a file is taken for its own. None of these is noticed by SQLite.

The database therefore has an id, which never changes. Writers write the page of the id now and then, so that
practically every log holds it: with a foreign log, the file has another id than without it.
"""

import fcntl
import json
import os
import re
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

import sqlalchemy as sa

from gnomon.adapters.sql.schema import gnomon_meta
from gnomon.errors import FileError, StoreUnavailable
from gnomon.ports.runtime import Events

#: How often to check that the file still exists.
_CHECK_SECONDS = 1.0
#: The key of the id. Its value is a number, as all values of this table are for older programs.
_ID_KEY = "database_id"
#: The errors of SQLite for a file that the log does not fit: it is corrupt, not a database, or lacks the table.
_NOT_A_STORE_CODES = frozenset(
    (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_SCHEMA)
)

_ESCAPED = re.compile(rb"\\([0-3][0-7]{2})")


class FileIdentity(NamedTuple):
    """A file, whatever its name."""

    device: int
    inode: int


def identify(path: str) -> FileIdentity | None:
    """The file at the path; None if there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116 - before every transaction; a Path would only cost
    except OSError:
        return None
    return FileIdentity(found.st_dev, found.st_ino)


def log_path(path: str) -> str:
    """The path of the log of the database at the path."""
    return f"{path}-wal"


# ---- a file that is open -------------------------------------------------------------------------


class OpenDatabaseFile:
    """Checks that a path still leads to the file, and to the log, that this process has open."""

    def __init__(self, path: str) -> None:
        self._path = os.path.realpath(path)
        self._file = identify(self._path)
        self._log: FileIdentity | None = None

    def check(self) -> None:
        """StoreUnavailable if the file was moved, deleted or replaced."""
        if identify(self._path) != self._file:
            raise StoreUnavailable(
                f"the database file {self._path} was moved, deleted or replaced while it was in use:"
                " put it back, or restart to use the file that is there now"
            )

    def check_with_log(self) -> None:
        """StoreUnavailable if the file or its log was moved, deleted or replaced."""
        self.check()
        if self._log is not None and identify(log_path(self._path)) != self._log:
            raise StoreUnavailable(
                f"the log {log_path(self._path)} was moved, deleted or replaced while it was in use: restart"
            )

    def remember_log(self) -> None:
        """Expect the present log from now on.

        Only a connection that has made a transaction keeps the log: before that, any other process that closes its
        connection as the last one removes it.
        """
        if self._log is None:
            self._log = identify(log_path(self._path))

    def forget_log(self) -> None:
        """Expect a new log: the last connection may be closed, which removes it."""
        self._log = None


class DatabaseFileMonitor:
    """Emits an event when the path no longer leads to the file that it led to at first, and again if that recurs."""

    def __init__(self, path: str, events: Events) -> None:
        self._path = os.path.realpath(path)
        self._events = events
        self._first = identify(self._path)
        self._gone = False

    async def step(self) -> float:
        """Check once; return the seconds until the next check."""
        gone = identify(self._path) != self._first
        if gone and not self._gone:
            self._events.emit("database_gone", path=self._path)
        self._gone = gone
        return _CHECK_SECONDS


# ---- a file that is about to be opened -----------------------------------------------------------


def refuse_second_path(path: str, mounts: str = "/proc/mounts") -> None:
    """FileError if the file has several names, or is mounted without the folder that holds its log."""
    real = Path(path).resolve()
    # Opening anything but a file reports what it is.
    if not real.is_file():
        return
    found = real.stat()
    if found.st_nlink > 1:
        reason = f"has {found.st_nlink} names (hard links), and a log for each: keep one"
        raise FileError(path, f"{reason}; find / -xdev -inum {found.st_ino} lists them")
    if str(real) in read_mounts(mounts):
        raise FileError(path, "is mounted as a single file, without the log beside it: mount its folder instead")


def read_mounts(mounts: str) -> dict[str, str]:
    """The kind of the file system at each mounted path; nothing where the system does not list them."""
    try:
        lines = Path(mounts).read_bytes().split(b"\n")
    except OSError:
        return {}
    # A name may have any bytes; only white space and backslashes are escaped, as octal numbers.
    fields = [line.split(b" ") for line in lines if line.count(b" ") > 1]
    return {os.fsdecode(_ESCAPED.sub(_unescaped, place)): os.fsdecode(kind) for _, place, kind, *_ in fields}


def _unescaped(found: re.Match[bytes]) -> bytes:
    return bytes([int(found[1], 8)])


class LockRecord(NamedTuple):
    """The content of a lock file: which process schedules, on which file."""

    pid: int
    file: FileIdentity | None

    def encode(self) -> bytes:
        """The record as text."""
        return json.dumps({"pid": self.pid, "file": self.file}).encode() + b"\n"


def lock_path(path: str) -> str:
    """The path of the lock file: all symbolic links to a database lead to one."""
    return os.path.realpath(path) + ".lock"


def read_lock_record(path: str) -> LockRecord | None:
    """The record in the lock file of the database; None if there is none, as in files of older programs."""
    try:
        found = json.loads(Path(lock_path(path)).read_bytes()[:4096])
        file = None if found["file"] is None else FileIdentity(*found["file"])
        return LockRecord(int(found["pid"]), file)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def scheduler_of_another_file(path: str) -> LockRecord | None:
    """The scheduler that runs for this path and has another file open; None if there is none."""
    record = read_lock_record(path)
    if record is None or record.file == identify(path):
        return None
    try:
        descriptor = os.open(lock_path(path), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return record
    finally:
        os.close(descriptor)
    return None


def refuse_foreign_log(path: str) -> None:
    """FileError if the log beside the file belongs to another database.

    Read-only connections show the file without the log and with it, and leave both as they are.
    """
    if not _has_content(log_path(os.path.realpath(path))):
        return
    with suppress(sqlite3.Error):
        alone = _read_database_id(path, "immutable=1")
        if alone is None or alone == _id_with_log(path):
            return
        raise FileError(
            log_path(path),
            f"is the log of another database than {path}. Nothing was changed. Put the right log back, or move this"
            " one away to go on without its changes",
        )


def _id_with_log(path: str) -> str | None:
    """The id that the log makes of the file; None if they do not fit. sqlite3.Error if they cannot be read now."""
    try:
        # Such a connection never moves the log into the file, not even when it is closed as the last one.
        return _read_database_id(path, "mode=ro")
    except sqlite3.Error as error:
        if error.sqlite_errorcode & 0xFF not in _NOT_A_STORE_CODES:
            raise
        return None


def _read_database_id(path: str, option: str) -> str | None:
    with closing(sqlite3.connect(f"{Path(path).absolute().as_uri()}?{option}", uri=True)) as connection:
        query = "SELECT value FROM gnomon_meta WHERE key = ?"
        row = connection.execute(query, (_ID_KEY,)).fetchone()
    return None if row is None else str(row[0])


def _has_content(path: str) -> bool:
    try:
        return Path(path).stat().st_size > 0
    except OSError:
        return False


# ---- the id in the database ----------------------------------------------------------------------


def has_database_id(conn: sa.Connection) -> bool:
    """Whether the database has an id."""
    return conn.execute(sa.select(gnomon_meta.c.value).where(gnomon_meta.c.key == _ID_KEY)).first() is not None


def create_database_id(conn: sa.Connection) -> None:
    """Give the database an id, unless it has one."""
    if not has_database_id(conn):
        fresh = str(int.from_bytes(os.urandom(8)) >> 1)
        conn.execute(sa.insert(gnomon_meta).values(key=_ID_KEY, value=fresh))


#: A row beside the id, on the same page: SQLite does not write a page whose content stays the same.
_COUNT_LOGS = sa.text(
    "INSERT INTO gnomon_meta (key, value) VALUES ('database_id_writes', '1')"
    " ON CONFLICT (key) DO UPDATE SET value = CAST(CAST(value AS INTEGER) + 1 AS TEXT)"
)


def touch_database_id(conn: sa.Connection) -> None:
    """Write the page of the id again, so that the log holds it."""
    with suppress(sa.exc.OperationalError):  # a new database has no table yet
        conn.execute(_COUNT_LOGS)
