"""Running jobs in transactions: what the store asks of an engine, and how several jobs share one commit."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import sqlalchemy as sa

from gnomon.adapters.sql.errors import lost_transaction_error, translate_error

T = TypeVar("T")
#: Reads and writes through the connection it is given, and leaves the transaction alone. It may be run again
#: if its transaction was lost, so it changes nothing but the database.
TransactionBody = Callable[[sa.Connection], T]
#: What a transaction begins with. Told how many jobs may each wait in it and fail alone.
OnBegin = Callable[[sa.Connection, int], None]
#: How many jobs share a commit at most.
MOST_TOGETHER = 500
#: How long a transaction waits for a lock, a statement may take, and a node may leave a transaction idle, in ms.
PATIENCE_MS = 8000


class Transactions(Protocol):
    """An engine: every job is a transaction, as far as the job can tell."""

    async def write(self, job: TransactionBody[T], *, apart: bool = False) -> T:
        """What the job returns, once that is committed; StoreUnavailable if the world failed.

        Jobs that are asked for in one breath are carried out in this order and share a commit. What is to be done
        apart waits for no other job where several can write at once.
        """
        ...

    async def read(self, job: TransactionBody[T]) -> T:
        """What the job returns. It sees what was committed when it began, and does not wait for writers."""
        ...

    def now(self, conn: sa.Connection) -> int:
        """The store's clock, by which leases are judged."""
        ...

    async def close(self) -> None:
        """Finish what was asked for, and let go of every connection."""
        ...


class TransactionResult(NamedTuple):
    """What came of a job."""

    value: Any = None
    error: Exception | None = None


def _no_setup(_: sa.Connection, __: int) -> None:
    """Transactions begin with nothing else."""


def run_batch(
    conn: sa.Connection, jobs: Sequence[TransactionBody[Any]], first: OnBegin = _no_setup
) -> list[TransactionResult]:
    """The outcome of every job, all in one transaction, each of them whole or not at all.

    A job that raises takes back what it did and nothing else. If the transaction itself is lost, so are all.
    Every transaction that it takes begins with `first`, which is told how many may each wait in it by themselves.
    """
    outcomes: list[TransactionResult] = []
    try:
        with conn.begin():
            first(conn, 1)
            outcomes += [TransactionResult(job(conn)) for job in jobs]
    except Exception as error:  # noqa: BLE001 - it is handed to those who wait
        if len(jobs) == 1:
            return [TransactionResult(error=translate_error(error))]
        # If all were run, it was the commit that failed: whether they are done is not known.
        return _lost(jobs, error) if outcomes or conn.invalidated else _run_with_savepoints(conn, jobs, first)
    return outcomes


def _run_with_savepoints(
    conn: sa.Connection, jobs: Sequence[TransactionBody[Any]], first: OnBegin
) -> list[TransactionResult]:
    """The same, after one of them has failed, with a savepoint before each.

    Not at once, because savepoints cost two statements a job, and jobs rarely fail.
    """
    try:
        with conn.begin():
            first(conn, len(jobs))
            return [_in_savepoint(conn, job) for job in jobs]
    except Exception as error:  # noqa: BLE001 - it is handed to those who wait
        return _lost(jobs, error)


def _lost(jobs: Sequence[TransactionBody[Any]], error: Exception) -> list[TransactionResult]:
    return [TransactionResult(error=lost_transaction_error(error)) for _ in jobs]


def _in_savepoint(conn: sa.Connection, job: TransactionBody[Any]) -> TransactionResult:
    try:
        with conn.begin_nested():
            return TransactionResult(job(conn))
    except Exception as error:
        # Without its connection, or rolled back by the database itself, the whole transaction is gone.
        if conn.invalidated or not _still_open(conn):
            raise
        return TransactionResult(error=translate_error(error))


def _still_open(conn: sa.Connection) -> bool:
    """Whether the driver agrees that a transaction is under way; SQLite may end one by itself."""
    return bool(getattr(conn.connection.dbapi_connection, "in_transaction", True))


def resolve_futures(answers: list[tuple["asyncio.Future[Any]", TransactionResult]]) -> None:
    """Tell everyone who still waits what came of it."""
    for answer, outcome in answers:
        if answer.done():
            continue
        if outcome.error is None:
            answer.set_result(outcome.value)
        else:
            answer.set_exception(outcome.error)
