"""Pings over HTTP: only the status of the response counts."""

from gnomon.core.pings import is_http_url
from gnomon.errors import PingFailed
from gnomon.version import __version__

_GOOD = range(200, 400)


class HttpPingSender:
    """Sends GET requests, follows no redirect, and keeps no connection open."""

    async def send(self, url: str, *, timeout_ms: int) -> None:
        """See PingSender.send."""
        # Most nodes never send a ping; they do not need the import.
        import aiohttp

        if not is_http_url(url):
            raise PingFailed("it is not an http or https URL")
        timeout = aiohttp.ClientTimeout(total=timeout_ms / 1000)
        headers = {"User-Agent": f"gnomon/{__version__}"}
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, headers=headers) as session,
                session.get(url, allow_redirects=False) as answer,
            ):
                status = answer.status
        except TimeoutError:
            raise PingFailed(f"no answer within {timeout_ms / 1000:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # Not the text of the error: it may contain the address, which may contain a secret.
            raise PingFailed(f"cannot be called: {type(error).__name__}") from None
        if status not in _GOOD:
            raise PingFailed(f"answered {status}")
