"""Limits on connections: slow senders, oversized headers, and clients that do not read their response."""

import asyncio
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gnomon.api.problems import MEDIA_TYPE, problem
from gnomon.api.route import CERTIFICATE
from gnomon.config.sections import ServerSettings

#: The maximum number of bytes that the event loop delivers at once.
_MAX_CHUNK = 262_144


def http_protocol(server: ServerSettings) -> type[asyncio.Protocol]:
    """The protocol class of connections, with the limits of the settings."""

    class Bounded(_BoundedHttpProtocol):
        max_header_bytes = server.max_header
        timeout_seconds = server.patience_ms / 1000

    return Bounded


class _BoundedHttpProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with limits on header size and on waiting for the client."""

    max_header_bytes: int
    timeout_seconds: float
    _receive_timer: asyncio.TimerHandle | None = None
    _send_timer: asyncio.TimerHandle | None = None
    _in_headers = True
    _received = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer for the first request."""
        super().connection_made(transport)
        found = transport.get_extra_info("ssl_object")
        self._certificate: dict[Any, Any] | None = None if found is None else found.getpeercert() or None
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timers."""
        self._stop_waiting()
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Close the connection if it sends more than the limit before the headers are complete."""
        super().data_received(data)
        # Checked after parsing, which finds the end of the headers: the same chunk may hold most of a body.
        if not self._in_headers:
            return
        self._received += len(data)
        if self._received > self.max_header_bytes + _MAX_CHUNK and not self.transport.is_closing():
            self.send_400_response("the headers are too large")

    def on_message_begin(self) -> None:
        """Reset the counters for the next request and start its timer."""
        super().on_message_begin()
        self._in_headers, self._received = True, 0
        if self._certificate is not None:
            self.scope["extensions"] = {CERTIFICATE: self._certificate}
        self._await_request()

    def on_headers_complete(self) -> None:
        """Refuse headers beyond the limit."""
        self._in_headers = False
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if size > self.max_header_bytes:
            raise ValueError("the headers are too large")
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Stop the timer of the request."""
        self._stop_waiting()
        super().on_message_complete()

    def pause_writing(self) -> None:
        """Start the timer for a client that does not read."""
        super().pause_writing()
        if self._send_timer is None:
            self._send_timer = self.loop.call_later(self.timeout_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop the timer: the client reads again."""
        super().resume_writing()
        if self._send_timer is not None:
            self._send_timer.cancel()
            self._send_timer = None

    def _await_request(self) -> None:
        self._stop_waiting()
        self._receive_timer = self.loop.call_later(self.timeout_seconds, self._close_connection)

    def _stop_waiting(self) -> None:
        if self._receive_timer is not None:
            self._receive_timer.cancel()
            self._receive_timer = None

    def _close_connection(self) -> None:
        self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Answer a malformed request with a problem document."""
        body = msgspec.json.encode(problem(400, msg, code="bad_request"))
        headers = [
            *self.server_state.default_headers,
            (b"content-type", MEDIA_TYPE.encode()),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        lines = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
        self.transport.write(b"HTTP/1.1 400 Bad Request\r\n" + lines + b"\r\n" + body)
        self.transport.close()
