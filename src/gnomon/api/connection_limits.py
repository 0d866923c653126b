"""The wire: connections that send too slowly, too much before it is known what they want, or take nothing in."""

import asyncio
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gnomon.api.problems import MEDIA_TYPE, problem
from gnomon.api.route import CERTIFICATE
from gnomon.config.sections import ServerSettings

#: As much as the loop hands over at once.
_MAX_CHUNK = 262_144


def http_protocol(server: ServerSettings) -> type[asyncio.Protocol]:
    """The protocol of a connection, within the bounds of the settings."""

    class Bounded(_BoundedHttpProtocol):
        max_header_bytes = server.max_header
        timeout_seconds = server.patience_ms / 1000

    return Bounded


class _BoundedHttpProtocol(HttpToolsProtocol):
    """HTTP as it is usually spoken, within bounds."""

    max_header_bytes: int
    timeout_seconds: float
    _receive_timer: asyncio.TimerHandle | None = None
    _send_timer: asyncio.TimerHandle | None = None
    _in_headers = True
    _received = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Somebody is there; what they ask for must arrive soon."""
        super().connection_made(transport)
        found = transport.get_extra_info("ssl_object")
        self._certificate: dict[Any, Any] | None = None if found is None else found.getpeercert() or None
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is there any more."""
        self._stop_waiting()
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """A piece of a request. Nobody needs so much to say what they want as to fill the memory with it."""
        super().data_received(data)
        # Only what was read shows where the headers end: what came in one piece with them may be most of a body.
        if not self._in_headers:
            return
        self._received += len(data)
        if self._received > self.max_header_bytes + _MAX_CHUNK and not self.transport.is_closing():
            self.send_400_response("the headers are too large")

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._in_headers, self._received = True, 0
        if self._certificate is not None:
            self.scope["extensions"] = {CERTIFICATE: self._certificate}
        self._await_request()

    def on_headers_complete(self) -> None:
        """It is known what is wanted."""
        self._in_headers = False
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if size > self.max_header_bytes:
            raise ValueError("the headers are too large")
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """All of the request is there."""
        self._stop_waiting()
        super().on_message_complete()

    def pause_writing(self) -> None:
        """More is sent than is taken in."""
        super().pause_writing()
        if self._send_timer is None:
            self._send_timer = self.loop.call_later(self.timeout_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """What was sent is taken in."""
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
        """What is no request is refused as every other refusal is told."""
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
