"""Errors of the drivers, and the errors of the store for them."""

import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import sqlalchemy as sa
from msgspec.structs import replace
from sqlalchemy.dialects.postgresql.asyncpg import AsyncAdapt_asyncpg_dbapi

from contracts.store import ALL_SHARDS, minutely
from gnomon.adapters.sql import SqlStore, open_postgres, open_sqlite
from gnomon.adapters.sql.errors import connection_closed, translate_error
from gnomon.errors import StaleTerm, StoreUnavailable, UsageError
from support.postgres_server import postgres

_dbapi: Any = AsyncAdapt_asyncpg_dbapi(asyncpg)  # type: ignore[no-untyped-call]


def lite(code: int, kind: type[sqlite3.Error] = sqlite3.OperationalError) -> sqlite3.Error:
    error = kind("what sqlite says")
    error.sqlite_errorcode = code
    return error


def wrapped(error: Exception) -> sa.exc.DBAPIError:
    return sa.exc.DBAPIError("UPDATE schedule", {}, error)


def adapted(error: Exception) -> sa.exc.DBAPIError:
    """As SQLAlchemy shows an error of asyncpg: inside one of its own, inside another."""
    outer = _dbapi.Error("what the server says", error)
    outer.sqlstate = getattr(error, "sqlstate", None)
    return wrapped(outer)


def bad_input(text: str) -> Exception:
    """As SQLAlchemy shows what asyncpg refuses to send: an error of its own, with that as its cause."""
    error: Exception = _dbapi.InterfaceError(text)
    error.__cause__ = asyncpg.exceptions._base.DataError(text)  # noqa: SLF001 - its public name is that of another
    return error


WORLD = {
    "sqlite busy": lite(sqlite3.SQLITE_BUSY),
    "sqlite busy snapshot": lite(sqlite3.SQLITE_BUSY_SNAPSHOT),
    "sqlite locked": lite(sqlite3.SQLITE_LOCKED),
    "sqlite full": lite(sqlite3.SQLITE_FULL),
    "sqlite full, wrapped": wrapped(lite(sqlite3.SQLITE_FULL)),
    "sqlite i/o": lite(sqlite3.SQLITE_IOERR),
    "sqlite i/o on flush": lite(sqlite3.SQLITE_IOERR_FSYNC),
    "sqlite read only": lite(sqlite3.SQLITE_READONLY),
    "sqlite cannot open": lite(sqlite3.SQLITE_CANTOPEN),
    "sqlite corrupt": lite(sqlite3.SQLITE_CORRUPT, sqlite3.DatabaseError),
    "sqlite not a database": lite(sqlite3.SQLITE_NOTADB, sqlite3.DatabaseError),
    "sqlite out of memory": lite(sqlite3.SQLITE_NOMEM),
    "refused": ConnectionRefusedError("nobody listens"),
    "reset": ConnectionResetError("gone"),
    "timed out": TimeoutError(),
    "no connection in the pool": sa.exc.TimeoutError("pool"),
    "connection lost": adapted(asyncpg.ConnectionDoesNotExistError("closed in the middle of operation")),
    "connection lost while copying": asyncpg.ConnectionDoesNotExistError("closed in the middle of operation"),
    "connection failure": adapted(asyncpg.ConnectionFailureError()),
    "admin shutdown": adapted(asyncpg.AdminShutdownError()),
    "crash of a neighbour": adapted(asyncpg.CrashShutdownError()),
    "starting up": asyncpg.CannotConnectNowError("what the server says"),
    "too many connections": asyncpg.TooManyConnectionsError("what the server says"),
    "disk full": adapted(asyncpg.DiskFullError()),
    "out of memory": adapted(asyncpg.OutOfMemoryError()),
    "read only": adapted(asyncpg.ReadOnlySQLTransactionError()),
    "deadlock": adapted(asyncpg.DeadlockDetectedError()),
    "not serialisable": adapted(asyncpg.SerializationError()),
    "cancelled by an operator": adapted(asyncpg.QueryCanceledError()),
    "lock not available": adapted(asyncpg.LockNotAvailableError()),
    "waited too long for a lock": adapted(asyncpg.LockNotAvailableError("canceling statement due to lock timeout")),
    "took too long": adapted(asyncpg.QueryCanceledError("canceling statement due to statement timeout")),
    "took too long while copying": asyncpg.QueryCanceledError("canceling statement due to statement timeout"),
    "idle for too long": adapted(asyncpg.IdleInTransactionSessionTimeoutError()),
    "transaction took too long": adapted(asyncpg.TransactionTimeoutError()),
    "no answer": wrapped(TimeoutError()),
    "system error": adapted(asyncpg.PostgresIOError()),
    "corrupt index": adapted(asyncpg.IndexCorruptedError()),
    "wrong password": asyncpg.InvalidPasswordError("what the server says"),
    "no such database": asyncpg.InvalidCatalogNameError("what the server says"),
    "driver gave up": asyncpg.InternalClientError("unexpected"),
    "driver is closed": asyncpg.InterfaceError("connection is closed"),
    "driver is closed, wrapped": wrapped(_dbapi.InterfaceError("connection is closed")),
    "transaction lost": sa.exc.PendingRollbackError("rolled back"),
}
OURS = {
    "sqlite constraint": lite(sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, sqlite3.IntegrityError),
    "sqlite error in a statement": lite(sqlite3.SQLITE_ERROR),
    "sqlite misuse": lite(sqlite3.SQLITE_MISUSE, sqlite3.ProgrammingError),
    "constraint": adapted(asyncpg.UniqueViolationError()),
    "constraint while copying": asyncpg.UniqueViolationError(),
    "error in a statement": adapted(asyncpg.PostgresSyntaxError()),
    "no such table": adapted(asyncpg.UndefinedTableError()),
    "an answer": StaleTerm((1,)),
    "a fault": KeyError("term"),
    "a fault in arithmetic": OverflowError("date value out of range"),
}
VALUES = {
    "text with NUL": adapted(asyncpg.CharacterNotInRepertoireError("what the server says")),
    "value out of range": adapted(asyncpg.NumericValueOutOfRangeError("what the server says")),
    "value out of range while copying": asyncpg.NumericValueOutOfRangeError("what the server says"),
    "int that the driver cannot send": wrapped(bad_input("value out of int64 range")),
    "int that the driver cannot copy": asyncpg.exceptions._base.DataError("value out of int64 range"),  # noqa: SLF001
    "int that sqlite cannot hold": OverflowError("Python int too large to convert to SQLite INTEGER"),
    "half of a surrogate pair": UnicodeEncodeError("utf-8", "\udc80", 0, 1, "surrogates not allowed"),
    "a long text": wrapped(bad_input("x" * 1000)),
}


@pytest.mark.parametrize("error", WORLD.values(), ids=WORLD)
def test_when_the_world_fails_the_store_is_unavailable(error: Exception) -> None:
    failure = translate_error(error)

    assert isinstance(failure, StoreUnavailable)
    assert failure.__cause__ is error
    assert "\n" not in str(failure)


@pytest.mark.parametrize("error", OURS.values(), ids=OURS)
def test_errors_of_our_own_are_not_translated(error: Exception) -> None:
    assert translate_error(error) is error


@pytest.mark.parametrize("error", VALUES.values(), ids=VALUES)
def test_a_value_that_the_database_cannot_hold_is_the_callers_to_mend(error: Exception) -> None:
    failure = translate_error(error)

    assert isinstance(failure, UsageError)
    assert failure.__cause__ is error
    assert len(str(failure)) < 200


UNFIT: dict[str, Callable[[SqlStore], Awaitable[object]]] = {
    "text with NUL": lambda store: store.schedules.find("a\0b", "report"),
    "half of a surrogate pair": lambda store: store.schedules.find("default", "\udc80"),
    "a limit": lambda store: store.ledger.due(0, shards=ALL_SHARDS, limit=2**70),
    "an instant": lambda store: store.ledger.due(2**70, shards=ALL_SHARDS, limit=1),
    "an instant of history": lambda store: store.history.ticks(minutely().uid, before=2**70, limit=1),
    "a name": lambda store: store.schedules.add([minutely("a\0")], actor="ada", tzdata=""),
    "an actor": lambda store: store.schedules.add([minutely("b")], actor="\0", tzdata=""),
    "an actor of many": lambda store: store.schedules.add(
        [minutely(f"c{i}") for i in range(30)], actor="\0", tzdata=""
    ),
    "a mark": lambda store: store.schedules.add([replace(minutely("d"), mark_at=2**70)], actor="ada", tzdata=""),
    "a holder": lambda store: store.shards.renew("\0", ttl_ms=1),
    "a lease": lambda store: store.shards.claim("node", ttl_ms=2**70, limit=3),
}
#: SQLite holds it, and gives it back as it was.
FIT_FOR_SQLITE = {"text with NUL", "a name", "an actor", "an actor of many", "a holder"}


@pytest.mark.parametrize("unfit", UNFIT)
async def test_postgres_refuses_values_that_it_cannot_hold_and_stays_usable(unfit: str) -> None:
    async with postgres(18).database() as url:
        store = await open_postgres(url, pool_size=1)
        with pytest.raises(UsageError, match="a value that the database cannot hold"):
            await UNFIT[unfit](store)
        assert await store.schedules.add([minutely()], actor="ada", tzdata="") == frozenset()
        await store.close()


@pytest.mark.parametrize("unfit", sorted(UNFIT.keys() - FIT_FOR_SQLITE))
async def test_sqlite_refuses_values_that_it_cannot_hold_and_stays_usable(unfit: str, tmp_path: Path) -> None:
    store = await open_sqlite(str(tmp_path / "gnomon.db"))
    with pytest.raises(UsageError, match="a value that the database cannot hold"):
        await UNFIT[unfit](store)
    assert await store.schedules.add([minutely()], actor="ada", tzdata="") == frozenset()
    await store.close()


def test_a_connection_that_the_library_gave_up_is_unavailable() -> None:
    error = sa.exc.DBAPIError("UPDATE schedule", {}, _dbapi.Error("gone"), connection_invalidated=True)

    assert isinstance(translate_error(error), StoreUnavailable)


# ---- files that cannot be opened -----------------------------------------------------------------


async def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("milk, eggs, bread\n" * 100)

    with pytest.raises(UsageError, match=rf"^{notes} is no database"):
        await open_sqlite(str(notes))


async def test_a_file_that_cannot_be_made_is_named() -> None:
    with pytest.raises(StoreUnavailable, match=r"^cannot open the database /proc/gnomon\.db: unable to open"):
        await open_sqlite("/proc/gnomon.db")


async def test_a_folder_in_the_place_of_a_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=f"^cannot open the database {tmp_path}: unable to open"):
        await open_sqlite(str(tmp_path))


def test_a_database_that_cannot_be_reached_is_said_in_words() -> None:
    reported = translate_error(ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 5432)"))

    assert str(reported) == "the database cannot be reached: Connect call failed ('127.0.0.1', 5432)"


def test_a_server_that_is_about_to_hang_up_has_done_so() -> None:
    assert connection_closed(wrapped(_dbapi.InternalClientError("another operation is in progress")))
    assert not connection_closed(wrapped(_dbapi.InterfaceError("something else")))
