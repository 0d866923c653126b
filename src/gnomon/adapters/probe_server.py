"""A minimal HTTP server for metrics and probes: it answers GET and HEAD on a few paths.

It asks for no token, so its pages must contain only data that everybody may see.
"""

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from http import HTTPStatus

from msgspec import Struct

from gnomon.adapters.connection_acceptor import ConnectionAcceptor
from gnomon.core.connection_table import ConnectionLimits
from gnomon.core.security_headers import SECURITY_HEADERS
from gnomon.core.served_hosts import ServedHosts
from gnomon.errors import UsageError
from gnomon.ports.connections import ConnectionSlot
from gnomon.ports.runtime import Events

#: The largest request head, the time limit of a whole exchange, and how many pages are computed at once.
_LARGEST_HEAD, _PATIENCE_SECONDS, _MOST_ANSWERS = 8192, 10.0, 8
#: The number of open connections. A program that reads metrics or probes needs one or two.
MAX_PROBE_CONNECTIONS = 64
_SECURITY_HEADERS = "".join(f"{name}: {value}\r\n" for name, value in SECURITY_HEADERS.items())
#: The number of connections that may wait to be accepted.
_BACKLOG = 128


class ProbeResponse(Struct, frozen=True, kw_only=True):
    """The response of a page."""

    status: HTTPStatus = HTTPStatus.OK
    kind: str = "text/plain; charset=utf-8"
    body: bytes = b""


class ProbeServer:
    """Answers GET and HEAD on the given paths."""

    def __init__(
        self,
        pages: Mapping[str, Callable[[], Awaitable[ProbeResponse]]],
        events: Events,
        hosts: ServedHosts,
        *,
        max_connections: int = MAX_PROBE_CONNECTIONS,
    ) -> None:
        self._pages = pages
        self._events = events
        self._hosts = hosts
        # One address may have all connections: that of a proxy, or of the machine that scrapes the metrics.
        self._limits = ConnectionLimits(total=max_connections, per_address=max_connections)
        self._acceptor: ConnectionAcceptor | None = None
        self._answers = asyncio.Semaphore(_MOST_ANSWERS)

    async def listen(self, host: str, port: int) -> int:
        """Start to listen and return the port; UsageError names the settings if that fails."""
        try:
            listening = await _bind(host, port)
        except OSError as error:
            reason = "is taken by another process" if error.errno == errno.EADDRINUSE else "cannot be listened on"
            raise UsageError(
                f"metrics.port: {port} on {host} {reason}: set another metrics.port (0 is any that is free)"
                " or metrics.host, or metrics.enabled: false"
            ) from error
        self._acceptor = ConnectionAcceptor(listening, self._limits, self._events)
        self._acceptor.start(self._protocol)
        found: int = listening[0].getsockname()[1]
        return found

    async def close(self) -> None:
        """Stop listening."""
        if self._acceptor is not None:
            self._acceptor.close()
            await self._acceptor.wait_closed()

    def _protocol(self, slot: ConnectionSlot) -> asyncio.Protocol:
        return _SlotStreamProtocol(slot, partial(self._serve, slot))

    async def _serve(self, slot: ConnectionSlot, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                head = await self._head(reader)
                slot.busy()
                answer = ProbeResponse(status=HTTPStatus.BAD_REQUEST) if head is None else await self._answer(*head)
                writer.write(_encode_response(answer, with_body=head is None or head[0] != "HEAD"))
                slot.waiting()
                await writer.drain()
        except (OSError, TimeoutError):
            # The client is gone, or too slow.
            writer.transport.abort()
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _head(self, reader: asyncio.StreamReader) -> tuple[str, str] | None:
        """The method and path of a request; None if it is malformed."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return None
        line, *fields = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
        words = line.split(b" ")
        if len(words) != 3 or words[2] not in (b"HTTP/1.0", b"HTTP/1.1") or not words[1].startswith(b"/"):
            return None
        if not self._are_hosts_accepted(fields, required=words[2] == b"HTTP/1.1"):
            return None
        return words[0].decode("latin-1"), words[1].partition(b"?")[0].decode("latin-1")

    def _are_hosts_accepted(self, fields: Sequence[bytes], *, required: bool) -> bool:
        """Whether there is one Host header, which the server answers for; in HTTP/1.0 there may be none."""
        named = [
            value.strip(b" \t") for name, _, value in (one.partition(b":") for one in fields) if name.lower() == b"host"
        ]
        return self._hosts.accepts(named[0]) if len(named) == 1 else not (named or required)

    async def _answer(self, method: str, path: str) -> ProbeResponse:
        page = self._pages.get(path)
        if page is None:
            return ProbeResponse(
                status=HTTPStatus.NOT_FOUND, body=b"there are " + ", ".join(self._pages).encode() + b"\n"
            )
        if method not in ("GET", "HEAD"):
            return ProbeResponse(status=HTTPStatus.METHOD_NOT_ALLOWED)
        try:
            async with self._answers:
                return await page()
        except Exception:  # noqa: BLE001 - the error text may be private
            return ProbeResponse(status=HTTPStatus.INTERNAL_SERVER_ERROR)


class _SlotStreamProtocol(asyncio.StreamReaderProtocol):
    """Streams for a connection that has a slot."""

    def __init__(
        self,
        slot: ConnectionSlot,
        serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    ) -> None:
        super().__init__(asyncio.StreamReader(limit=_LARGEST_HEAD), serve)
        self._slot = slot

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Fill the slot, and serve the connection."""
        assert isinstance(transport, asyncio.WriteTransport)  # noqa: S101 - as a stream protocol requires
        self._slot.opened(transport)
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Free the slot."""
        self._slot.closed()
        super().connection_lost(exc)


async def _bind(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen on every address of the host; OSError if one cannot be bound."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    made: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            made.append(socket.socket(family, kind, protocol))
            made[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                # The addresses of IPv4 are bound on their own.
                made[-1].setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            made[-1].bind(address)
            made[-1].listen(_BACKLOG)
    except OSError:
        for each in made:
            each.close()
        raise
    return made


def _encode_response(answer: ProbeResponse, *, with_body: bool) -> bytes:
    allow = "Allow: GET, HEAD\r\n" if answer.status is HTTPStatus.METHOD_NOT_ALLOWED else ""
    head = (
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\nContent-Type: {answer.kind}\r\n{allow}"
        f"Content-Length: {len(answer.body)}\r\n{_SECURITY_HEADERS}Connection: close\r\n\r\n"
    )
    return head.encode() + (answer.body if with_body else b"")
