"""Translates the errors of both databases: failures of the environment, refused values, and faults of the program.

A failure of the environment (disk, network, lock, operator) becomes StoreUnavailable, and the caller retries. A value
that the database cannot hold becomes UsageError. Any other error is a fault of the program, and is raised as it is.
"""

from typing import Any

import sqlalchemy as sa

from gnomon.errors import StoreUnavailable, UsageError

#: Primary result codes of SQLite that are failures of the environment.
SQLITE_CODES = {
    3: "PERM",
    4: "ABORT",
    5: "BUSY",
    6: "LOCKED",
    7: "NOMEM",
    8: "READONLY",
    9: "INTERRUPT",
    10: "IOERR",
    11: "CORRUPT",
    13: "FULL",
    14: "CANTOPEN",
    15: "PROTOCOL",
    22: "NOLFS",
    23: "AUTH",
    26: "NOTADB",
}
_NOT_A_DATABASE = 26
#: Classes of SQLSTATE, and single ones, that are failures of the environment.
SQLSTATES = {
    "08": "connection",
    "25006": "read only",
    "25P03": "idle for too long",
    "25P04": "transaction for too long",
    "28": "authorization refused",
    "3D000": "no such database",
    "40": "rolled back: deadlock, or not serialisable",
    "53": "out of resources: disk, memory, connections",
    "55P03": "lock not available",
    "57": "stopped by an operator, or starting up",
    "58": "system error",
    "XX": "internal error, or corrupt",
}
#: The transaction lost a conflict and was rolled back: serialization failure, and deadlock.
CONFLICT_SQLSTATES = frozenset(("40001", "40P01"))
#: The error of the server for an unknown setting.
_NO_SUCH_THING, _UNKNOWN_SETTING = "42704", "unrecognized configuration parameter"
#: The class of SQLSTATE of values that the server cannot hold.
_BAD_VALUE = "22"


def translate_error(error: Exception) -> Exception:
    """StoreUnavailable if the environment failed, UsageError if the database cannot hold a value.

    Otherwise the error itself: a fault of the program, or an exception that the transaction raised on purpose.
    """
    if _refused_value(error):
        refused = UsageError(f"a value that the database cannot hold: {_first_line(error)[:_LONGEST]}")
        refused.__cause__ = error
        return refused
    if sqlstate_of(error) == _NO_SUCH_THING and _UNKNOWN_SETTING in str(_origin(error)):
        # The address of the database contains a setting that the server does not know.
        return UsageError(f"the address of the database: {_first_line(error)[:_LONGEST]}")
    if not _is_environment_failure(error):
        return error
    failure = StoreUnavailable(_first_line(error))
    failure.__cause__ = error
    return failure


def lost_transaction_error(error: Exception) -> StoreUnavailable:
    """The error for every body of a transaction that was lost."""
    failure = StoreUnavailable(_first_line(error))
    failure.__cause__ = error
    return failure


def open_error(path: str, failure: StoreUnavailable) -> StoreUnavailable | UsageError:
    """The error for a file that cannot be opened, with its path; UsageError if it is not a database.

    The errors of SQLite do not contain the path.
    """
    code = getattr(_origin(failure.__cause__ or failure), "sqlite_errorcode", None)
    if code is not None and code & 0xFF == _NOT_A_DATABASE:
        return UsageError(f"{path} is no database: {failure}")
    return StoreUnavailable(f"cannot open the database {path}: {failure}")


def sqlstate_of(error: BaseException) -> str | None:
    """The SQLSTATE of the error, if it has one."""
    state = getattr(_origin(error), "sqlstate", None)
    return state if isinstance(state, str) else None


def connection_closed(error: sa.exc.DBAPIError) -> bool:
    """Whether the driver has noticed that the server closed the connection."""
    return error.connection_invalidated or _kind(_origin(error)) in _CLOSING


def _refused_value(error: Exception) -> bool:
    origin = _origin(error)
    # sqlite3 refuses an integer that is too large. An overflow in our own arithmetic has another text.
    if isinstance(origin, OverflowError):
        return "SQLite" in str(origin)
    # Half of a surrogate pair, which cannot be encoded.
    if isinstance(origin, UnicodeEncodeError):
        return True
    return (sqlstate_of(error) or "").startswith(_BAD_VALUE) or _BAD_INPUT in (_kind(origin), _kind(origin.__cause__))


def _is_environment_failure(error: Exception) -> bool:
    if getattr(error, "connection_invalidated", False):
        return True
    origin = _origin(error)
    code, state = getattr(origin, "sqlite_errorcode", None), sqlstate_of(error)
    if code is not None:
        return code & 0xFF in SQLITE_CODES
    if state is not None:
        return any(state.startswith(known) for known in SQLSTATES)
    # OSError: refused, reset, unreachable, timed out. The others have no code: the driver itself raised them.
    return isinstance(origin, OSError) or _kind(origin) in _DRIVER_ERRORS


#: asyncpg raises this for a value, before it sends the statement.
_BAD_INPUT = "asyncpg.exceptions._base.DataError"
_LONGEST = 120
#: asyncpg raises these when the server is closing the connection and it is not closed yet.
_CLOSING = {
    "asyncpg.exceptions._base.InternalClientError",
    "sqlalchemy.dialects.postgresql.asyncpg.AsyncAdapt_asyncpg_dbapi.InternalClientError",
}
#: By module and name, so that only the driver in use is imported.
_DRIVER_ERRORS = {
    "asyncpg.exceptions._base.InterfaceError",
    *_CLOSING,
    "sqlalchemy.dialects.postgresql.asyncpg.AsyncAdapt_asyncpg_dbapi.InterfaceError",
    "sqlalchemy.exc.PendingRollbackError",
    "sqlalchemy.exc.TimeoutError",
}


def _kind(error: BaseException | None) -> str:
    return f"{type(error).__module__}.{type(error).__qualname__}"


def _origin(error: BaseException) -> Any:  # noqa: ANN401 - an error of any driver
    """The driver's error inside that of SQLAlchemy."""
    return getattr(error, "orig", None) or error


def _first_line(error: Exception) -> str:
    origin = _origin(error)
    text = str(origin).strip() or type(error).__name__
    if isinstance(origin, OSError):
        text = f"the database cannot be reached: {origin.strerror or text}"
    return text.splitlines()[0]
