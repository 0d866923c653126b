"""Server-sent events of the changes that one caller may see, from now until its token expires or is refused."""

import asyncio
from collections.abc import AsyncGenerator
from math import inf
from typing import Any, Protocol, Self, cast

import msgspec
from litestar import Litestar, Request
from litestar.response import Stream
from litestar.response.base import ASGIResponse

from gnomon.api.route import ApiCall, ByteStream, Permission
from gnomon.errors import Unauthenticated, Unavailable
from gnomon.services.observability.change_stream import StreamedChange

#: A stream without changes sends a comment after this time, so that the client knows that the server is alive.
_KEEPALIVE_SECONDS = 15.0
_STILL_HERE = b": still here\n\n"


class EventWriter(Protocol):
    """Writes the changes of a stream as server-sent events."""

    def greeting(self, count: str, number: int) -> bytes:
        """The first bytes. The stream tells of every change of this count after that number."""
        ...

    def chunk(self, change: StreamedChange | None) -> bytes:
        """The bytes to send after this change, or after a while without one; none if they are empty."""
        ...

    def patience(self) -> float:
        """The seconds without a change after which there is something to send; infinite if there is not."""
        ...


class EachChange:
    """Implements EventWriter: an event for each change, with its facts."""

    def greeting(self, count: str, number: int) -> bytes:
        """See EventWriter.greeting."""
        del count, number
        return b": listening\n\n"

    def chunk(self, change: StreamedChange | None) -> bytes:
        """See EventWriter.chunk."""
        if change is None:
            return _STILL_HERE
        return f"id: {change.number}\n".encode() + event(change.kind, msgspec.json.encode(change.facts))

    def patience(self) -> float:
        """See EventWriter.patience."""
        return inf


class EventStream:
    """The server-sent events of one caller.

    It has a place from the beginning. `aclose` releases the place, also if nothing was read.
    """

    def __init__(self, call: ApiCall, writer: EventWriter) -> None:
        self._call = call
        self._writer = writer
        self._change_stream = call.services.change_stream
        self._subscriber = self._change_stream.subscribe(call.caller)
        self._check_at = call.services.clock.elapsed() + _KEEPALIVE_SECONDS
        self._chunks = self._generate()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        return await anext(self._chunks)

    async def aclose(self) -> None:
        """End the subscription."""
        self._change_stream.unsubscribe(self._subscriber)
        await self._chunks.aclose()

    async def _generate(self) -> AsyncGenerator[bytes]:
        await self._change_stream.complete()
        yield self._writer.greeting(self._subscriber.count, self._subscriber.number)
        async for change in self._subscriber.changes(self._quiet_seconds):
            refused = await self._refusal()
            if refused is not None:
                yield event("end", msgspec.json.encode({"reason": "token", "error": refused}))
                return
            chunk = self._writer.chunk(change)
            if chunk:
                yield chunk
            else:
                # Many changes may wait: everything else runs between them.
                await asyncio.sleep(0)

    def _quiet_seconds(self) -> float:
        """How long to wait for a change: until there is something to send, or until the token expires."""
        expires_at = self._call.caller.expires_at
        longest = min(_KEEPALIVE_SECONDS, self._writer.patience())
        left = longest if expires_at is None else self._call.services.clock.until(expires_at)
        return min(longest, max(0.0, left))

    async def _refusal(self) -> str | None:
        """The reason why the token counts no longer; None while it counts. It is verified again once in a while."""
        clock, expires_at = self._call.services.clock, self._call.caller.expires_at
        if expires_at is not None and clock.now() >= expires_at:
            return "the token has expired"
        if clock.elapsed() < self._check_at:
            return None
        self._check_at = clock.elapsed() + _KEEPALIVE_SECONDS
        try:
            caller = await self._call.authenticate()
        except Unauthenticated as error:
            return str(error)
        except Unavailable:
            # The issuer cannot be asked: the token was valid before.
            return None
        may_read = caller.tenant == self._call.tenant and caller.roles & Permission.READ.value
        return None if may_read else "the caller may not read any more"


class ClosedStream(Stream):
    """A stream that is closed when the response has ended, also if the client disconnected before the first chunk."""

    def to_asgi_response(self, app: Litestar | None, request: Request[Any, Any, Any], **options: Any) -> ASGIResponse:  # noqa: ANN401 - as Litestar passes them
        """The response as Litestar calls it; it closes the stream at the end."""
        response, stream = super().to_asgi_response(app, request, **options), cast("ByteStream", self.iterator)

        async def send_and_close(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - of ASGI
            try:
                await response(scope, receive, send)
            finally:
                await stream.aclose()

        # Litestar only calls it.
        return cast("ASGIResponse", send_and_close)


def event(kind: str, data: bytes) -> bytes:
    """A server-sent event."""
    return f"event: {kind}\ndata: ".encode() + data + b"\n\n"
