"""What the databases say when they fail, sorted into the world's failures and our own."""

from typing import Any

import sqlalchemy as sa

from gnomon.errors import StoreUnavailable, UsageError

#: Primary result codes of SQLite that are the world's doing.
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
#: Classes of SQLSTATE, and single ones, that are the world's doing.
SQLSTATES = {
    "08": "connection",
    "25006": "read only",
    "25P03": "idle for too long",
    "25P04": "transaction for too long",
    "28": "not let in",
    "3D000": "no such database",
    "40": "rolled back: deadlock, or not serialisable",
    "53": "out of resources: disk, memory, connections",
    "55P03": "lock not available",
    "57": "stopped by an operator, or starting up",
    "58": "system error",
    "XX": "internal error, or corrupt",
}
#: Two stood in each other's way, and this one was given up: not serialisable, and a deadlock. Nothing of it is done.
CONFLICT_SQLSTATES = frozenset(("40001", "40P01"))
#: What the server says of a setting that it does not know.
_NO_SUCH_THING, _UNKNOWN_SETTING = "42704", "unrecognized configuration parameter"
#: The class of SQLSTATE of values that the server cannot hold.
_BAD_VALUE = "22"


def translate_error(error: Exception) -> Exception:
    """StoreUnavailable if the world failed, UsageError if a value was given that the database cannot hold.

    Else the error itself, which is a fault in the program or an answer.
    """
    if _refused_value(error):
        refused = UsageError(f"a value that the database cannot hold: {_first_line(error)[:_LONGEST]}")
        refused.__cause__ = error
        return refused
    if sqlstate_of(error) == _NO_SUCH_THING and _UNKNOWN_SETTING in str(_origin(error)):
        # Whoever wrote the address wrote a setting that the server does not know.
        return UsageError(f"the address of the database: {_first_line(error)[:_LONGEST]}")
    if not _is_environment_failure(error):
        return error
    failure = StoreUnavailable(_first_line(error))
    failure.__cause__ = error
    return failure


def lost_transaction_error(error: Exception) -> StoreUnavailable:
    """What to tell those whose work went down together with the transaction."""
    failure = StoreUnavailable(_first_line(error))
    failure.__cause__ = error
    return failure


def open_error(path: str, failure: StoreUnavailable) -> StoreUnavailable | UsageError:
    """What to tell whoever asked for a file that could not be opened: its name, and UsageError if it is something else.

    SQLite itself names no files.
    """
    code = getattr(_origin(failure.__cause__ or failure), "sqlite_errorcode", None)
    if code is not None and code & 0xFF == _NOT_A_DATABASE:
        return UsageError(f"{path} is no database: {failure}")
    return StoreUnavailable(f"cannot open the database {path}: {failure}")


def sqlstate_of(error: BaseException) -> str | None:
    """The SQLSTATE that the server gave, if it gave one."""
    said = getattr(_origin(error), "sqlstate", None)
    return said if isinstance(said, str) else None


def connection_closed(error: sa.exc.DBAPIError) -> bool:
    """Whether the server had closed the connection, as far as the driver has noticed."""
    return error.connection_invalidated or _kind(_origin(error)) in _HANGING_UP


def _refused_value(error: Exception) -> bool:
    origin = _origin(error)
    # An int that is too large, as sqlite3 says it. Arithmetic of our own overflows in other words.
    if isinstance(origin, OverflowError):
        return "SQLite" in str(origin)
    # Half of a surrogate pair, which no encoding has.
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
    # OSError: refused, reset, unreachable, timed out. The others have no code: the driver itself gave up.
    return isinstance(origin, OSError) or _kind(origin) in _DRIVER_GAVE_UP


#: What asyncpg raises for a value before it asks the server.
_BAD_INPUT = "asyncpg.exceptions._base.DataError"
_LONGEST = 120
#: What asyncpg raises when it has read that the server closes the connection, and the connection is not closed yet.
_HANGING_UP = {
    "asyncpg.exceptions._base.InternalClientError",
    "sqlalchemy.dialects.postgresql.asyncpg.AsyncAdapt_asyncpg_dbapi.InternalClientError",
}
#: By module and name, so that neither driver is imported for the sake of the other.
_DRIVER_GAVE_UP = {
    "asyncpg.exceptions._base.InterfaceError",
    *_HANGING_UP,
    "sqlalchemy.dialects.postgresql.asyncpg.AsyncAdapt_asyncpg_dbapi.InterfaceError",
    "sqlalchemy.exc.PendingRollbackError",
    "sqlalchemy.exc.TimeoutError",
}


def _kind(error: BaseException | None) -> str:
    return f"{type(error).__module__}.{type(error).__qualname__}"


def _origin(error: BaseException) -> Any:  # noqa: ANN401 - whatever the driver raised
    """The driver's own error inside that of the library."""
    return getattr(error, "orig", None) or error


def _first_line(error: Exception) -> str:
    origin = _origin(error)
    text = str(origin).strip() or type(error).__name__
    if isinstance(origin, OSError):
        text = f"the database cannot be reached: {origin.strerror or text}"
    return text.splitlines()[0]
