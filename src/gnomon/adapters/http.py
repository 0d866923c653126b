"""A call over HTTP, as small as a ping needs: one request, of whose answer only the first line is read."""

import asyncio
import ssl
from contextlib import suppress
from urllib.parse import SplitResult, urlsplit

from gnomon.core.pings import is_address
from gnomon.errors import PingFailed
from gnomon.version import __version__

_PORTS = {"http": 80, "https": 443}
_LONGEST_LINE = 1024
_GOOD = range(200, 400)
_CLOSING_SECONDS = 1.0


class HttpSender:
    """Calls by GET, follows nothing, and keeps no connection open."""

    async def send(self, url: str, *, timeout_ms: int) -> None:
        """See Sender.send."""
        if not is_address(url):
            raise PingFailed("that is no address")
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                status = await _called(urlsplit(url))
        except TimeoutError:
            raise PingFailed(f"no answer within {timeout_ms / 1000:g} s") from None
        except (OSError, ssl.SSLError, ValueError, asyncio.IncompleteReadError) as error:
            raise PingFailed(f"cannot be called: {type(error).__name__}") from None
        if status not in _GOOD:
            raise PingFailed(f"answered {status}")


async def _called(parts: SplitResult) -> int:
    """What the answer to the call begins with."""
    port = parts.port or _PORTS[parts.scheme]
    secure = ssl.create_default_context() if parts.scheme == "https" else None
    reader, writer = await asyncio.open_connection(parts.hostname, port, ssl=secure, limit=_LONGEST_LINE)
    try:
        writer.write(_request(parts))
        await writer.drain()
        line = await reader.readline()
    finally:
        writer.close()
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_CLOSING_SECONDS):
                await writer.wait_closed()
    protocol, _, rest = line.decode("ascii", "replace").partition(" ")
    if not protocol.startswith("HTTP/"):
        raise ValueError("no HTTP")
    return int(rest[:3])


def _request(parts: SplitResult) -> bytes:
    host = parts.netloc.rpartition("@")[2]
    target = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
    lines = (f"GET {target} HTTP/1.1", f"Host: {host}", f"User-Agent: gnomon/{__version__}", "Connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")
