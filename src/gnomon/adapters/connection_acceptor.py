"""Accepts connections within limits, which `asyncio.Server` does not have.

A connection has a slot from the moment it is accepted, so that stalled TLS handshakes count. If no slot is free, the
connection that has waited for its client longest is closed. If none waits, the new one is refused.
A few connections are accepted at once, with pauses in between, and failures are events, which can be throttled.
"""

import asyncio
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress

from gnomon.core.connection_table import ConnectionLimit, ConnectionLimits, ConnectionTable
from gnomon.ports.connections import ProtocolFactory
from gnomon.ports.runtime import Events

#: The connections accepted at once, and the pause after that many: opening and closing one takes about 0.4 ms, and
#: clients that do nothing else must leave time for the scheduler.
_ACCEPTS_AT_ONCE, _PAUSE_SECONDS = 4, 0.002
#: The pause after a failed `accept`, which fails again at once while no descriptor is free.
_RETRY_SECONDS = 0.1
#: The time limit of a TLS handshake, and of closing a TLS connection in order.
_HANDSHAKE_SECONDS, _TLS_SHUTDOWN_SECONDS = 10.0, 5.0
_DRAINED_BYTES = 65_536


class AcceptedConnection:
    """The slot of an accepted connection."""

    def __init__(self, table: "ConnectionTable[AcceptedConnection]", connection: socket.socket, address: str) -> None:
        self._table = table
        self._connection = connection
        self._transport: asyncio.WriteTransport | None = None
        self._opening: asyncio.Task[None] | None = None
        table.add(self, address)

    def open_with(self, opening: "asyncio.Task[None]") -> None:
        """Remember the task that establishes the connection."""
        self._opening = opening
        opening.add_done_callback(self._opening_ended)

    def opened(self, transport: asyncio.WriteTransport) -> None:
        """See ConnectionSlot.opened."""
        self._transport = transport

    def waiting(self) -> None:
        """See ConnectionSlot.waiting."""
        self._table.set_waiting(self)

    def busy(self) -> None:
        """See ConnectionSlot.busy."""
        self._table.set_busy(self)

    def closed(self) -> None:
        """See ConnectionSlot.closed."""
        self._table.remove(self)

    def drop(self) -> None:
        """Close the connection at once, established or not."""
        self._table.remove(self)
        if self._transport is not None:
            self._transport.abort()
        elif self._opening is not None:
            self._opening.cancel()

    def _opening_ended(self, _: "asyncio.Task[None]") -> None:
        # A task that is cancelled before it begins closes nothing by itself.
        if self._transport is None:
            self._table.remove(self)
            self._connection.close()


class ConnectionAcceptor:
    """Accepts connections on listening sockets, with limits in all and per address."""

    _protocol_for: ProtocolFactory

    def __init__(
        self,
        listening: Sequence[socket.socket],
        limits: ConnectionLimits,
        events: Events,
        *,
        tls: ssl.SSLContext | None = None,
        refusal: bytes = b"",
    ) -> None:
        """`refusal` is sent on connections without TLS for which there is no slot."""
        self._listening = tuple(listening)
        self._table: ConnectionTable[AcceptedConnection] = ConnectionTable(limits)
        self._events = events
        self._tls = tls
        self._refusal = refusal
        self._opening: set[asyncio.Task[None]] = set()
        self._paused: dict[socket.socket, asyncio.TimerHandle] = {}

    def start(self, protocol_for: ProtocolFactory) -> None:
        """See Acceptor.start."""
        self._protocol_for = protocol_for
        for each in self._listening:
            each.setblocking(False)
            self._resume(each)

    def close(self) -> None:
        """See Acceptor.close."""
        loop = asyncio.get_running_loop()
        for each in self._listening:
            if each.fileno() >= 0:
                loop.remove_reader(each)
                each.close()
        for timer in self._paused.values():
            timer.cancel()
        for task in self._opening:
            task.cancel()

    async def wait_closed(self) -> None:
        """See Acceptor.wait_closed."""
        await asyncio.gather(*self._opening, return_exceptions=True)

    def _resume(self, listening: socket.socket) -> None:
        self._paused.pop(listening, None)
        asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_ACCEPTS_AT_ONCE):
            try:
                connection, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._free_descriptor(error)
                self._pause(listening, _RETRY_SECONDS)
                return
            connection.setblocking(False)
            self._admit(connection, address[0])
        self._pause(listening, _PAUSE_SECONDS)

    def _free_descriptor(self, error: OSError) -> None:
        """Close a connection after an error that probably means that the process has no descriptor left."""
        self._events.emit("accept_failed", cause=error.strerror or repr(error), open=len(self._table))
        victim = self._table.longest_waiting()
        if victim is not None:
            victim.drop()

    def _pause(self, listening: socket.socket, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(listening)
        self._paused[listening] = loop.call_later(seconds, self._resume, listening)

    def _admit(self, connection: socket.socket, address: str) -> None:
        limit = self._table.exceeded(address)
        if limit is not None:
            victim = self._table.longest_waiting(address if limit is ConnectionLimit.PER_ADDRESS else None)
            self._events.emit(
                "connection_limit_reached", cause=limit.value, open=len(self._table), refused=victim is None
            )
            if victim is None:
                self._refuse(connection)
                return
            victim.drop()
        slot = AcceptedConnection(self._table, connection, address)
        opening = asyncio.get_running_loop().create_task(self._open(connection, address, slot))
        slot.open_with(opening)
        self._opening.add(opening)
        opening.add_done_callback(self._opening.discard)

    async def _open(self, connection: socket.socket, address: str, slot: AcceptedConnection) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self._protocol_for(slot),
                connection,
                ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else _HANDSHAKE_SECONDS,
                ssl_shutdown_timeout=None if self._tls is None else _TLS_SHUTDOWN_SECONDS,
            )
        except OSError as error:
            cause = error.reason if isinstance(error, ssl.SSLError) else str(error)
            self._events.emit("handshake_failed", cause=cause, address=address)

    def _refuse(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            if self._tls is None:
                connection.send(self._refusal)
                connection.shutdown(socket.SHUT_WR)
                # Closing with unread data would reset the connection, and the client might not see the refusal.
                connection.recv(_DRAINED_BYTES)
