"""PostgreSQL: URLs of servers, connections with time limits, and writers that coalesce.

A few tasks write: bodies that wait while one commits go together into the next transaction (see transactions.py).
"""

import asyncio
from collections import deque
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from gnomon.adapters.sql.bulk import MAY_COPY
from gnomon.adapters.sql.errors import (
    CONFLICT_SQLSTATES,
    connection_closed,
    lost_transaction_error,
    sqlstate_of,
    translate_error,
)
from gnomon.adapters.sql.payloads import CIPHER
from gnomon.adapters.sql.postgres_schema import SCHEMA_OPTION
from gnomon.adapters.sql.transactions import (
    MAX_BATCH,
    PATIENCE_MS,
    TransactionBody,
    TransactionResult,
    resolve_futures,
    run_batch,
)
from gnomon.errors import StoreUnavailable, UsageError
from gnomon.ports.payloads import PayloadCipher

_SHAPE = "postgresql://USER:PASSWORD@HOST:PORT/NAME"
_LAST_PORT = 65_535
_TLS = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
#: Parameters of other clients, which ours handles in its own way or not at all.
_IGNORED_PARAMETERS = frozenset(
    {
        "channel_binding",
        "connect_timeout",
        "fallback_application_name",
        "gssencmode",
        "keepalives",
        "keepalives_count",
        "keepalives_idle",
        "keepalives_interval",
        "tcp_user_timeout",
    }
)


def server_address(url: str) -> tuple[sa.URL, dict[str, Any]]:
    """The address of a server, and the driver's arguments from the query of the URL.

    UsageError if the URL is not valid. The message does not repeat it, because it may contain a password.
    """
    try:
        found = sa.make_url(url).set(drivername="postgresql+asyncpg")
    except (ValueError, sa.exc.ArgumentError):
        raise UsageError(f"the address of the database cannot be read: it looks like {_SHAPE}") from None
    if found.port is not None and not 0 < found.port <= _LAST_PORT:
        raise UsageError(f"the address of the database names an invalid port: {found.port}")
    parameters = {name: value if isinstance(value, str) else value[-1] for name, value in found.query.items()}
    _check(parameters)
    ours = {name: value for name, value in parameters.items() if value and name not in _IGNORED_PARAMETERS}
    # The driver reads these itself: TLS parameters as in libpq, and settings of the server.
    return found.set(query={}), {"dsn": f"postgresql://?{urlencode(ours)}"} if ours else {}


def _check(parameters: dict[str, str]) -> None:
    if parameters.get("sslmode", _TLS[0]) not in _TLS:
        raise UsageError(f"the address of the database: sslmode must be one of {', '.join(_TLS)}")
    if parameters.get("channel_binding") == "require":
        raise UsageError("the address of the database: channel_binding=require cannot be had; sslmode=verify-full can")


T = TypeVar("T")
#: How long past the limit to wait for the server to report the timeout, before the connection counts as lost.
_GRACE_MS = 2000
#: Each body waits at least this long for a lock, however many share the limit.
_SHORTEST_WAIT_MS = 20
#: A connection that was used this recently counts as alive; and the key of the time of its last use.
_TRUSTED_SECONDS, _USED_AT = 1.0, "gnomon_used_at"
#: Sets all limits in one round trip. The last parameter makes them local to the transaction.
_LIMIT = (
    "SELECT set_config('lock_timeout', $1, $4), set_config('statement_timeout', $2, $4),"
    " set_config('idle_in_transaction_session_timeout', $2, $4),"
    # A client that vanishes in the middle of a message is neither idle nor running a statement: only this ends it.
    " CASE WHEN current_setting('server_version_num')::int >= 170000"
    " THEN set_config('transaction_timeout', $3, $4) END"
)
#: The limit of a transaction, as a multiple of the limit of a statement.
_TRANSACTION_FACTOR = 5
#: The number of writers: while one commits, the other takes new bodies.
_WRITERS = 2
#: How often a body is retried that the server chose as the victim of a deadlock or conflict.
_RETRIES = 3
#: The isolation level of writes.
_ISOLATION = "READ COMMITTED"
_NOW = sa.text("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")


def engine_for(url: str, *, statement_cache: bool, pool_size: int, patience_ms: int | None) -> AsyncEngine:
    """An engine on the database. A connection that died while idle is replaced before it is used.

    Reads and liveness checks use no transaction, which saves two of three round trips. Behind a transaction pooler
    reads have one, because each statement might go to another server connection otherwise. Limits are set once per
    connection; behind a pooler, per transaction, because another client may get the connection next.
    """
    connect: dict[str, Any] = {}
    pool_options: dict[str, Any] = {}
    if patience_ms is not None:
        seconds = (patience_ms + _GRACE_MS) / 1000
        connect |= {"timeout": seconds, "command_timeout": seconds}
        # Applies while all connections are in use.
        pool_options |= {"pool_timeout": seconds}
    if not statement_cache:
        # An unnamed statement is replaced by the next one, so none is left on a connection that the pooler gives to
        # another client.
        connect |= {
            "statement_cache_size": 0,
            "prepared_statement_cache_size": 0,
            "prepared_statement_name_func": str,
        }
    address, arguments = server_address(url)
    engine = create_async_engine(
        address,
        pool_size=pool_size,
        # No connections beyond the pool: they would be opened anew each time. The connection that was used last has the
        # most prepared statements.
        max_overflow=0,
        pool_use_lifo=True,
        **pool_options,
        connect_args=connect | arguments,
        isolation_level="AUTOCOMMIT" if statement_cache else _ISOLATION,
        execution_options={MAY_COPY: statement_cache},
    )
    if statement_cache and patience_ms is not None:
        _set_connection_timeouts(engine, patience_ms)
    _ping_idle_connections(engine)
    return engine


def _ping_idle_connections(engine: AsyncEngine) -> None:
    """Ping a connection before use, unless it was used within the last second: that would cost a round trip each time.

    A connection that the server has closed is recognized without a ping.
    """

    @sa.event.listens_for(engine.sync_engine, "checkin")
    def used(_: object, record: sa.pool.ConnectionPoolEntry) -> None:
        record.info[_USED_AT] = monotonic()

    @sa.event.listens_for(engine.sync_engine, "checkout")
    def is_alive(connection: Any, record: sa.pool.ConnectionPoolEntry, _: object) -> None:  # noqa: ANN401 - the driver's own
        driver, now = connection.driver_connection, monotonic()
        if not driver.is_closed() and now - record.info.get(_USED_AT, now) > _TRUSTED_SECONDS:
            with suppress(Exception):
                connection.ping()
        if driver.is_closed():
            raise sa.exc.InvalidatePoolError


def _set_connection_timeouts(engine: AsyncEngine, patience_ms: int) -> None:
    limits = _timeout_parameters(patience_ms, sharing=1, local=False)

    @sa.event.listens_for(engine.sync_engine, "connect")
    def limit(connection: Any, _: object) -> None:  # noqa: ANN401 - the driver's own
        connection.run_async(lambda driver: driver.execute(_LIMIT, *limits))


def _timeout_parameters(patience_ms: int, *, sharing: int, local: bool) -> tuple[str, str, str, bool]:
    """The parameters of _LIMIT. Bodies that may wait for locks one after the other share the limit."""
    wait = max(patience_ms // sharing, _SHORTEST_WAIT_MS)
    return str(wait), str(patience_ms), str(_TRANSACTION_FACTOR * patience_ms), local


class _PostgresWrite(NamedTuple):
    body: TransactionBody[Any]
    answer: "asyncio.Future[Any]"


class PostgresTransactions:
    """Implements Transactions on one database. It belongs to the event loop in which it was created.

    With `patience_ms=None` there are no limits, as a migration needs.
    """

    def __init__(
        self, url: str, *, statement_cache: bool, pool_size: int, patience_ms: int | None = PATIENCE_MS
    ) -> None:
        self._engine = engine_for(url, statement_cache=statement_cache, pool_size=pool_size, patience_ms=patience_ms)
        self._writing = self._engine.execution_options(isolation_level=_ISOLATION)
        self._patience_ms = patience_ms
        self._limited = statement_cache
        #: The schema with the tables; None for whatever the connection finds.
        self.schema: str | None = None
        self._set_search_paths()
        self._pending_writes: deque[_PostgresWrite] = deque()
        self._writers: set[asyncio.Task[None]] = set()
        #: The number of writers that drain the queue, and whether one is about to start.
        self._active_writers = 0
        self._writer_starting = False
        self._closing = False
        #: The number of transactions, committed or not.
        self.commits = 0

    def _set_search_paths(self) -> None:
        """Set the search path of each connection; behind a pooler, that of each transaction."""

        @sa.event.listens_for(self._engine.sync_engine, "connect")
        def connected(connection: Any, _: object) -> None:  # noqa: ANN401 - the driver's own
            # Not as a parameter of the connection: poolers refuse those that they do not know.
            if self.schema is not None and self._limited:
                command = f'SET search_path TO "{self.schema}"'
                connection.run_async(lambda driver: driver.execute(command))

        @sa.event.listens_for(self._engine.sync_engine, "begin")
        def begun(conn: sa.Connection) -> None:
            if self.schema is not None and not self._limited:
                conn.exec_driver_sql(f'SET LOCAL search_path TO "{self.schema}"')

    async def use_schema(self, schema: str | None) -> None:
        """Use the tables in this schema from now on."""
        self.schema = schema
        for engine in (self._engine, self._writing):
            engine.sync_engine.update_execution_options(**{SCHEMA_OPTION: schema})
        if schema is not None:
            await self._engine.dispose()

    def use_cipher(self, cipher: PayloadCipher) -> None:
        """Encrypt payloads from now on."""
        for engine in (self._engine, self._writing):
            engine.sync_engine.update_execution_options(**{CIPHER: cipher})

    def now(self, conn: sa.Connection) -> int:
        """See Transactions.now."""
        return int(conn.execute(_NOW).scalar_one())

    async def read(self, body: TransactionBody[T]) -> T:
        """See Transactions.read."""
        if self._closing:
            raise StoreUnavailable("the store is closed")
        try:
            return await self._read(body)
        except Exception as error:
            failure = translate_error(error)
            if failure is error:
                raise
            raise failure from error

    async def _read(self, body: TransactionBody[T]) -> T:
        try:
            async with self._engine.connect() as conn:
                return await conn.run_sync(body)
        except sa.exc.DBAPIError as error:
            if not connection_closed(error):
                raise
        # A read changes nothing, so it is repeated if the server had closed the idle connection.
        async with self._engine.connect() as conn:
            return await conn.run_sync(body)

    async def write(self, body: TransactionBody[T], *, apart: bool = False) -> T:
        """See Transactions.write."""
        if self._closing:
            raise StoreUnavailable("the store is closed")
        write = _PostgresWrite(body, asyncio.get_running_loop().create_future())
        if apart:
            self._spawn_writer(self._write([write]))
        else:
            self._pending_writes.append(write)
            if not self._writer_starting and self._active_writers < _WRITERS:
                self._writer_starting = True
                self._spawn_writer(self._write_all())
        answer: T = await write.answer
        return answer

    def _spawn_writer(self, writing: Coroutine[None, None, None]) -> None:
        writer = asyncio.create_task(writing, name="gnomon-write")
        self._writers.add(writer)
        writer.add_done_callback(self._writers.discard)

    async def close(self) -> None:
        """See Transactions.close."""
        self._closing = True
        await asyncio.gather(*self._writers)
        await self._engine.dispose()

    # ---- writers -----------------------------------------------------------------------------

    async def _write_all(self) -> None:
        """Write batches until the queue is empty."""
        self._writer_starting = False
        self._active_writers += 1
        try:
            while self._pending_writes:
                await self._write(
                    [self._pending_writes.popleft() for _ in range(min(len(self._pending_writes), MAX_BATCH))]
                )
        finally:
            self._active_writers -= 1

    async def _write(self, batch: Sequence[_PostgresWrite]) -> None:
        outcomes = await self._run([write.body for write in batch])
        resolve_futures([(write.answer, outcome) for write, outcome in zip(batch, outcomes, strict=True)])

    async def _run(self, bodies: list[TransactionBody[Any]]) -> list[TransactionResult]:
        outcomes = await self._run_batch(bodies)
        return [await self._retry_on_conflict(body, outcome) for body, outcome in zip(bodies, outcomes, strict=True)]

    async def _retry_on_conflict(self, body: TransactionBody[Any], outcome: TransactionResult) -> TransactionResult:
        """The result of the body when it is retried, if the server aborted it because of a deadlock or conflict.

        A single body takes few locks, mostly in the same order as others. But a statement on many rows locks them in
        the order in which the server finds them, so that even a single body may be aborted, and more than once.
        """
        for _ in range(_RETRIES):
            if not _is_conflict(outcome):
                break
            [outcome] = await self._run_batch([body])
        return outcome

    async def _run_batch(self, bodies: list[TransactionBody[Any]]) -> list[TransactionResult]:
        try:
            async with self._writing.connect() as conn:
                outcomes = await conn.run_sync(run_batch, bodies, self._begin)
                self.commits += 1
                return outcomes
        except Exception as error:  # noqa: BLE001 - the callers get it
            return [TransactionResult(error=lost_transaction_error(error)) for _ in bodies]

    def _begin(self, conn: sa.Connection, sharing: int) -> None:
        """Limit how long this transaction waits for others, and others for it.

        Bodies that may wait for locks one after the other share the limit, so that their sum stays within it.
        """
        if self._patience_ms is not None and not (self._limited and sharing == 1):
            conn.exec_driver_sql(_LIMIT, _timeout_parameters(self._patience_ms, sharing=sharing, local=True))


def _is_conflict(outcome: TransactionResult) -> bool:
    cause = outcome.error.__cause__ if outcome.error else None
    return cause is not None and sqlstate_of(cause) in CONFLICT_SQLSTATES
