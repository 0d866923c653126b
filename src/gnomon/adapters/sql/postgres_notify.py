"""Hints over PostgreSQL: NOTIFY and LISTEN, on a connection of their own.

A pooler in transaction mode forwards NOTIFY, but LISTEN receives nothing through it: then this process only sends.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from gnomon.adapters.hint_batcher import HintBatcher
from gnomon.adapters.sql.postgres import server_address
from gnomon.errors import StoreUnavailable
from gnomon.ports.coordination import HintCallback, HintTopic
from gnomon.ports.runtime import Events

if TYPE_CHECKING:
    from asyncpg import Connection

CHANNEL = "gnomon_hints"
#: How long any request to the server may take.
_CONNECT_TIMEOUT_SECONDS = 5.0
#: The pause between two tries to connect.
_PAUSE_SECONDS = 0.5
#: How often to check the connection: one that was cut by the network only falls silent.
_LIVENESS_CHECK_SECONDS = 10.0


class PostgresHints:
    """Implements Hints."""

    def __init__(self, url: str, events: Events, *, listens: bool = True) -> None:
        self._url = url
        self._events = events
        self._listens = listens
        self._batcher = HintBatcher(self._send, events)
        self.send = self._batcher.send
        #: Identifies our own messages, which are ignored.
        self._sender_id = secrets.token_hex(4)
        self._connection: Connection[Any] | None = None
        #: The connection runs one statement at a time.
        self._in_use = asyncio.Lock()
        self._lost = asyncio.Event()
        self._listening: asyncio.Task[None] | None = None

    async def listen(self, heard: HintCallback) -> None:
        """See Hints.listen."""
        if self._listens:
            self._listening = asyncio.create_task(self._keep_listening(heard), name="gnomon-listen")

    async def close(self) -> None:
        """See Hints.close."""
        await self._batcher.close()
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
        if self._connection is not None:
            with suppress(Exception):
                await self._connection.close(timeout=_CONNECT_TIMEOUT_SECONDS)

    async def _send(self, topics: Collection[HintTopic]) -> None:
        # No parameters, so that no prepared statement is left on a connection of a pooler.
        calls = ", ".join(f"pg_notify('{CHANNEL}', '{topic} {self._sender_id}')" for topic in topics)
        async with self._connected() as connection:
            await connection.execute(f"SELECT {calls}", timeout=_CONNECT_TIMEOUT_SECONDS)

    async def _keep_listening(self, heard: HintCallback) -> None:
        """Listen, and again whenever the connection is lost, until cancelled."""

        def on_notify(_: object, __: int, ___: str, payload: object) -> None:
            topic, _, sender_id = str(payload).partition(" ")
            if sender_id != self._sender_id and topic in list(HintTopic):
                heard(HintTopic(topic))

        while True:
            with suppress(StoreUnavailable):
                async with self._connected() as connection:
                    await connection.add_listener(CHANNEL, on_notify)
                # Hints may have been missed before this process listened.
                for topic in HintTopic:
                    heard(topic)
                await self._until_lost()
                self._events.emit("hints_interrupted")
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _until_lost(self) -> None:
        with suppress(StoreUnavailable):
            while not self._lost.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._lost.wait(), _LIVENESS_CHECK_SECONDS)
                    return
                async with self._connected() as connection:
                    await connection.execute("SELECT 1", timeout=_CONNECT_TIMEOUT_SECONDS)

    @asynccontextmanager
    async def _connected(self) -> "AsyncIterator[Connection[Any]]":
        """The connection, for one user at a time; StoreUnavailable if it cannot be opened, or is lost meanwhile."""
        import asyncpg

        async with self._in_use:
            try:
                if self._connection is None or self._connection.is_closed():
                    self._connection = await self._connect()
                yield self._connection
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
                if self._connection is not None:
                    self._connection.terminate()
                raise StoreUnavailable(f"hints: {type(error).__name__}: {error}") from error

    async def _connect(self) -> "Connection[Any]":
        import asyncpg

        address, arguments = server_address(self._url)
        _, options = address.get_dialect()().create_connect_args(address)
        connection = await asyncpg.connect(
            **options, **arguments, timeout=_CONNECT_TIMEOUT_SECONDS, statement_cache_size=0
        )
        self._lost.clear()
        connection.add_termination_listener(lambda _: self._lost.set())
        return connection
