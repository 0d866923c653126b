"""The wire: connections that send too slowly, too much before it is known what they want, or take nothing in."""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gnomon.api.routes import CERTIFICATE
from gnomon.sections import Server


def protocol_of(server: Server) -> type[asyncio.Protocol]:
    """The protocol of a connection, within the bounds of the settings."""

    class Bounded(_Bounded):
        most_header = server.max_header
        patience = server.patience_ms / 1000

    return Bounded


class _Bounded(HttpToolsProtocol):
    """HTTP as it is usually spoken, within bounds."""

    most_header: int
    patience: float
    _coming: asyncio.TimerHandle | None = None
    _going: asyncio.TimerHandle | None = None
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
        if self._in_headers:
            self._received += len(data)
            # What comes in one piece with its headers may be the beginning of a body.
            if self._received > self.most_header + 65_536:
                self._refuse()
                return
        super().data_received(data)

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
        if size > self.most_header:
            raise ValueError("the headers are too large")
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """All of the request is there."""
        self._stop_waiting()
        super().on_message_complete()

    def pause_writing(self) -> None:
        """More is sent than is taken in."""
        super().pause_writing()
        if self._going is None:
            self._going = self.loop.call_later(self.patience, self.transport.abort)

    def resume_writing(self) -> None:
        """What was sent is taken in."""
        super().resume_writing()
        if self._going is not None:
            self._going.cancel()
            self._going = None

    def _await_request(self) -> None:
        self._stop_waiting()
        self._coming = self.loop.call_later(self.patience, self._hang_up)

    def _stop_waiting(self) -> None:
        if self._coming is not None:
            self._coming.cancel()
            self._coming = None

    def _hang_up(self) -> None:
        self.transport.abort()

    def _refuse(self) -> None:
        self.send_400_response("The headers are too large.")
