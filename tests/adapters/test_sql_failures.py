"""What the drivers raise, and what the store makes of it."""

import sqlite3
from typing import Any

import asyncpg
import pytest
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql.asyncpg import AsyncAdapt_asyncpg_dbapi

from gnomon.adapters.sql.failures import translated
from gnomon.errors import StaleTerm, StoreUnavailable

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
    "value out of range": adapted(asyncpg.NumericValueOutOfRangeError()),
    "an answer": StaleTerm((1,)),
    "a fault": KeyError("term"),
}


@pytest.mark.parametrize("error", WORLD.values(), ids=WORLD)
def test_when_the_world_fails_the_store_is_unavailable(error: Exception) -> None:
    failure = translated(error)

    assert isinstance(failure, StoreUnavailable)
    assert failure.__cause__ is error
    assert "\n" not in str(failure)


@pytest.mark.parametrize("error", OURS.values(), ids=OURS)
def test_what_is_not_the_worlds_fault_is_not_hidden(error: Exception) -> None:
    assert translated(error) is error


def test_a_connection_that_the_library_gave_up_is_unavailable() -> None:
    error = sa.exc.DBAPIError("UPDATE schedule", {}, _dbapi.Error("gone"), connection_invalidated=True)

    assert isinstance(translated(error), StoreUnavailable)
