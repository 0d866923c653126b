"""A minimal HTTP server for metrics and probes: it answers GET and HEAD on a few paths.

It asks for no token, so its pages must contain only data that everybody may see.
"""

import asyncio
import errno
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from http import HTTPStatus

from msgspec import Struct

from gnomon.errors import UsageError

#: The largest request head, the time limit of a whole exchange, and how many pages are computed at once.
_LARGEST_HEAD, _PATIENCE_SECONDS, _MOST_ANSWERS = 8192, 10.0, 8


class ProbeResponse(Struct, frozen=True, kw_only=True):
    """The response of a page."""

    status: HTTPStatus = HTTPStatus.OK
    kind: str = "text/plain; charset=utf-8"
    body: bytes = b""


class ProbeServer:
    """Answers GET and HEAD on the given paths."""

    def __init__(self, pages: Mapping[str, Callable[[], Awaitable[ProbeResponse]]]) -> None:
        self._pages = pages
        self._server: asyncio.Server | None = None
        self._answers = asyncio.Semaphore(_MOST_ANSWERS)

    async def listen(self, host: str, port: int) -> int:
        """Start to listen and return the port; UsageError names the settings if that fails."""
        try:
            self._server = await asyncio.start_server(self._serve, host, port, limit=_LARGEST_HEAD)
        except OSError as error:
            reason = "is taken by another process" if error.errno == errno.EADDRINUSE else "cannot be listened on"
            raise UsageError(
                f"metrics.port: {port} on {host} {reason}: set another metrics.port (0 is any that is free)"
                " or metrics.host, or metrics.enabled: false"
            ) from error
        found: int = self._server.sockets[0].getsockname()[1]
        return found

    async def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                head = await self._head(reader)
                answer = ProbeResponse(status=HTTPStatus.BAD_REQUEST) if head is None else await self._answer(*head)
                writer.write(_encode_response(answer, with_body=head is None or head[0] != "HEAD"))
                await writer.drain()
        except (OSError, TimeoutError):
            # The client is gone, or too slow.
            pass
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
        words = head.partition(b"\r\n")[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1.") or not words[1].startswith(b"/"):
            return None
        return words[0].decode("latin-1"), words[1].partition(b"?")[0].decode("latin-1")

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


def _encode_response(answer: ProbeResponse, *, with_body: bool) -> bytes:
    allow = "Allow: GET, HEAD\r\n" if answer.status is HTTPStatus.METHOD_NOT_ALLOWED else ""
    head = (
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\nContent-Type: {answer.kind}\r\n{allow}"
        f"Content-Length: {len(answer.body)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (answer.body if with_body else b"")
