"""Transactions, and the coalescing of writes: many callers share one commit.

Purpose. A repository hands a *body* to `write`: a function that reads and writes through a connection. The body sees a
transaction of its own. In fact the writer takes every body that waits, up to MAX_BATCH, runs them one after the other
in a single database transaction, commits once, and then answers each caller with the result of its own body.

Why. A commit is expensive and its cost does not depend on how much it writes: an fsync on SQLite (0.1 to 10 ms), a
round trip and a WAL flush on PostgreSQL. Gnomon makes many small writes at the same moment: a tick, the admission of
its task, the claim by a worker, reports of other workers, requests of the API. Coalesced, their number hardly matters;
the throughput of a node is bound by statements, not by commits. Two properties make it more than a queue:

- Order. Bodies run in the order in which they were asked for. A caller may therefore start several writes together,
  each of which depends on the one before it (decide a tick, admit its task, take it), and await them all: they end up
  in one commit. The fast path from ticker to worker relies on this (services/execution/dispatcher.py).
- Isolation of failures. A body that raises takes back its own writes and nothing else. The batch first runs without
  savepoints, because a savepoint costs two statements per body and bodies rarely fail. If one raises, the transaction
  is rolled back and the whole batch runs again with a savepoint before each body. That is why a body may run twice, and
  must change nothing but the database: observers and hints are collected per run and delivered after the commit
  (after_commit.py).

If the commit itself fails, or the connection is lost, it is unknown whether the batch was written. Every caller of the
batch then gets StoreUnavailable. All writes of Gnomon are safe to repeat: they compare and set, under a term, a fence
or a key.

`apart` is for a body that must not wait for others, and for which no other waits: a claim of tasks that locks only rows
which no other transaction has. PostgreSQL runs it in its own transaction, beside the others; SQLite has one writer.

Without coalescing every write would be a commit of its own: on a disk with an fsync of 5 ms that is 200 writes per
second for the whole node, and a tick would reach its worker after three of them instead of one. Without the order, the
admission could run before the tick that creates its task, and would be void. Without the savepoints, one request with
a bad row would fail every write that happens to share its commit.

The writers themselves are in sqlite.py (one thread) and postgres.py (a few tasks); this module has what they share.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import sqlalchemy as sa

from gnomon.adapters.sql.errors import lost_transaction_error, translate_error

T = TypeVar("T")
#: Reads and writes through the connection, and neither commits nor rolls back. It may run again if its transaction was
#: lost, so it changes nothing but the database.
TransactionBody = Callable[[sa.Connection], T]
#: Called at the start of a transaction, with the number of bodies that may each wait for a lock in it and fail alone.
OnBegin = Callable[[sa.Connection, int], None]
#: The number of bodies that share a commit at most.
MAX_BATCH = 500
#: The limit, in ms, on waiting for a lock, on a statement, and on a transaction that a node leaves idle.
PATIENCE_MS = 8000


class Transactions(Protocol):
    """Runs bodies, each of them in a transaction of its own as far as it can tell."""

    async def write(self, body: TransactionBody[T], *, apart: bool = False) -> T:
        """Return the result of the body once it is committed; StoreUnavailable if the database failed.

        Bodies that are written without an await in between run in this order and share a commit. With `apart` the body
        waits for no other where several can write at once.
        """
        ...

    async def read(self, body: TransactionBody[T]) -> T:
        """Return the result of the body. It sees what was committed when it began, and does not wait for writers."""
        ...

    def now(self, conn: sa.Connection) -> int:
        """The time by the store's clock, which decides when leases expire."""
        ...

    async def close(self) -> None:
        """Finish the writes that were asked for, and close every connection."""
        ...


class TransactionResult(NamedTuple):
    """The result of a body, or its error."""

    value: Any = None
    error: Exception | None = None


def _no_setup(_: sa.Connection, __: int) -> None:
    """Start transactions without any setup."""


def run_batch(
    conn: sa.Connection, bodies: Sequence[TransactionBody[Any]], first: OnBegin = _no_setup
) -> list[TransactionResult]:
    """Run the bodies in one transaction and return the result of each.

    A body that raises takes back its own writes and nothing else. If the transaction itself is lost, all of them fail.
    `first` is called at the start of every transaction that this takes.
    """
    outcomes: list[TransactionResult] = []
    try:
        with conn.begin():
            first(conn, 1)
            outcomes += [TransactionResult(body(conn)) for body in bodies]
    except Exception as error:  # noqa: BLE001 - the callers get it
        if len(bodies) == 1:
            return [TransactionResult(error=translate_error(error))]
        # If all bodies ran, the commit failed: it is unknown whether they were written.
        return _lost(bodies, error) if outcomes or conn.invalidated else _run_with_savepoints(conn, bodies, first)
    return outcomes


def _run_with_savepoints(
    conn: sa.Connection, bodies: Sequence[TransactionBody[Any]], first: OnBegin
) -> list[TransactionResult]:
    """Run the bodies again, after one of them failed, with a savepoint before each."""
    try:
        with conn.begin():
            first(conn, len(bodies))
            return [_in_savepoint(conn, body) for body in bodies]
    except Exception as error:  # noqa: BLE001 - the callers get it
        return _lost(bodies, error)


def _lost(bodies: Sequence[TransactionBody[Any]], error: Exception) -> list[TransactionResult]:
    return [TransactionResult(error=lost_transaction_error(error)) for _ in bodies]


def _in_savepoint(conn: sa.Connection, body: TransactionBody[Any]) -> TransactionResult:
    try:
        with conn.begin_nested():
            return TransactionResult(body(conn))
    except Exception as error:
        # If the connection is gone, or the database rolled back by itself, the whole transaction is lost.
        if conn.invalidated or not _still_open(conn):
            raise
        return TransactionResult(error=translate_error(error))


def _still_open(conn: sa.Connection) -> bool:
    """Whether the driver has an open transaction: SQLite may end one by itself."""
    return bool(getattr(conn.connection.dbapi_connection, "in_transaction", True))


def resolve_futures(answers: list[tuple["asyncio.Future[Any]", TransactionResult]]) -> None:
    """Give every caller that still waits its result or error."""
    for answer, outcome in answers:
        if answer.done():
            continue
        if outcome.error is None:
            answer.set_result(outcome.value)
        else:
            answer.set_exception(outcome.error)
