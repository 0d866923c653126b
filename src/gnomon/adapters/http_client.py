"""Calls over HTTP, of whose answers only the status counts."""

from gnomon.core.pings import is_http_url
from gnomon.errors import PingFailed
from gnomon.version import __version__

_GOOD = range(200, 400)


class HttpPingSender:
    """Calls by GET, follows nothing, and keeps no connection open."""

    async def send(self, url: str, *, timeout_ms: int) -> None:
        """See PingSender.send."""
        # Most nodes never call anybody, and need not carry it.
        import aiohttp

        if not is_http_url(url):
            raise PingFailed("that is no address")
        patience = aiohttp.ClientTimeout(total=timeout_ms / 1000)
        said = {"User-Agent": f"gnomon/{__version__}"}
        try:
            async with (
                aiohttp.ClientSession(timeout=patience, headers=said) as session,
                session.get(url, allow_redirects=False) as answer,
            ):
                status = answer.status
        except TimeoutError:
            raise PingFailed(f"no answer within {timeout_ms / 1000:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # Not its text: that may hold the address, which may hold a secret.
            raise PingFailed(f"cannot be called: {type(error).__name__}") from None
        if status not in _GOOD:
            raise PingFailed(f"answered {status}")
