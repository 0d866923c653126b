"""A pooler for PostgreSQL in transaction mode, like pgbouncer's.

It is as strict as possible: every transaction uses another session than the one before, and nothing is reset in
between. So state that a client leaves on a session is missing next time, or disturbs another client.
"""

import asyncio
import contextlib
import itertools
import struct
from dataclasses import dataclass, field

from support.tcp_relay import TcpRelay

_CANCEL, _ENCRYPT = 80877102, (80877103, 80877104)
#: The messages that are answered with "ready for query", and that answer.
_ASKING, _READY = b"QSF", b"Z"
_LEAVING = b"X"
_IDLE = b"I"
Message = tuple[bytes, bytes]


@dataclass(eq=False)
class _Session:
    """A connection to the server, lent to a client for one transaction."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    #: The server's messages at startup, and the key for cancel requests.
    greeting: list[Message]
    key: bytes


@dataclass(eq=False)
class _Client:
    """A client connection."""

    writer: asyncio.StreamWriter
    session: _Session | None = None
    #: How many answers are still to come, and whether a message is incomplete.
    asked: int = 0
    open: bool = False
    answering: "asyncio.Task[None] | None" = field(default=None)


class Pooler(TcpRelay):
    """A pooler in front of a server."""

    def __init__(self, port: int, *, sessions: int = 6) -> None:
        super().__init__(port)
        self._most = sessions
        #: The sessions by the startup message of clients, which names user and database.
        self._free: dict[bytes, asyncio.Queue[_Session | None]] = {}
        self._clients: dict[bytes, _Client] = {}
        self._numbers = itertools.count(1)
        #: How many transactions there were.
        self.dealt = 0

    def through(self, url: str) -> str:
        """The address of the same database through this pooler."""
        return url.replace(f":{self._to}/", f":{self.port}/")

    # ---- inside ------------------------------------------------------------------------------

    async def _close(self) -> None:
        await super()._close()
        for free in self._free.values():
            while not free.empty():
                session = free.get_nowait()
                if session is not None:
                    _abort(session)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                startup = await _startup(reader, writer)
                if startup[:4] == struct.pack("!I", _CANCEL):
                    await self._cancel(startup[4:])
                else:
                    await self._serve(startup, reader, writer)
        finally:
            writer.close()

    async def _serve(self, startup: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if startup not in self._free:
            self._free[startup] = asyncio.Queue()
            for _ in range(self._most):
                self._free[startup].put_nowait(None)
        session = await self._session(startup)
        key = struct.pack("!II", next(self._numbers), 0)
        client = self._clients[key] = _Client(writer)
        for kind, body in session.greeting:
            _write(writer, (kind, key if kind == b"K" else body))
        self._free[startup].put_nowait(session)
        try:
            await self._pass_on(startup, reader, client)
        finally:
            del self._clients[key]
            if client.answering is not None:
                client.answering.cancel()
            if client.session is not None:
                # In the middle of a transaction, which ends with its session.
                _abort(client.session)
                self._free[startup].put_nowait(None)

    async def _pass_on(self, startup: bytes, reader: asyncio.StreamReader, client: _Client) -> None:
        while True:
            kind, body = await _message(reader)
            if kind == _LEAVING:
                return
            if client.session is None:
                client.session = await self._session(startup)
                client.answering = asyncio.create_task(self._answer(startup, client.session, client))
            client.open = kind not in _ASKING
            client.asked += kind in _ASKING
            _write(client.session.writer, (kind, body))
            await client.session.writer.drain()

    async def _answer(self, startup: bytes, session: _Session, client: _Client) -> None:
        """Forward the server's messages to the client until the transaction has ended and the session is free."""
        try:
            while True:
                kind, body = await _message(session.reader)
                over = False
                if kind == _READY:
                    client.asked -= 1
                    over = body == _IDLE and not client.asked and not client.open
                if over:
                    self.dealt += 1
                    client.session = None
                    self._free[startup].put_nowait(session)
                _write(client.writer, (kind, body))
                if over:
                    return
        except (OSError, asyncio.IncompleteReadError):
            client.session = None
            _abort(session)
            self._free[startup].put_nowait(None)
            client.writer.transport.abort()

    async def _session(self, startup: bytes) -> _Session:
        """The least recently used session; create one that is missing or dead."""
        session = await self._free[startup].get()
        if session is not None and not session.reader.at_eof() and not session.writer.is_closing():
            return session
        if session is not None:
            _abort(session)
        try:
            return await self._made(startup)
        except BaseException:
            self._free[startup].put_nowait(None)
            raise

    async def _made(self, startup: bytes) -> _Session:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._to)
        writer.write(struct.pack("!I", len(startup) + 4) + startup)
        greeting: list[Message] = []
        try:
            while not greeting or greeting[-1][0] != _READY:
                greeting.append(await _message(reader))
        except BaseException:
            writer.close()
            raise
        [key] = [body for kind, body in greeting if kind == b"K"]
        return _Session(reader, writer, greeting, key)

    async def _cancel(self, key: bytes) -> None:
        client = self._clients.get(key)
        if client is None or client.session is None:
            return
        _, writer = await asyncio.open_connection("127.0.0.1", self._to)
        body = struct.pack("!I", _CANCEL) + client.session.key
        writer.write(struct.pack("!I", len(body) + 4) + body)
        writer.close()


def _abort(session: _Session) -> None:
    session.writer.transport.abort()
    session.writer.close()


async def _startup(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """The startup message of a client, after encryption was refused."""
    while True:
        [length] = struct.unpack("!I", await reader.readexactly(4))
        said = await reader.readexactly(length - 4)
        if struct.unpack("!I", said[:4])[0] not in _ENCRYPT:
            return said
        writer.write(b"N")


async def _message(reader: asyncio.StreamReader) -> Message:
    head = await reader.readexactly(5)
    [length] = struct.unpack("!I", head[1:])
    return head[:1], await reader.readexactly(length - 4)


def _write(writer: asyncio.StreamWriter, message: Message) -> None:
    kind, body = message
    writer.write(kind + struct.pack("!I", len(body) + 4) + body)
