"""Creates the client of Redis, and translates its errors."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gnomon.config.sections import RedisSettings
from gnomon.errors import Unavailable, UsageError

if TYPE_CHECKING:
    from redis.asyncio import Redis as Client


class RedisUnavailable(Unavailable):
    """Redis does not answer, or not as it should."""


def create_client(settings: RedisSettings) -> "Client":
    """A client that connects on first use and reconnects as needed; UsageError for a wrong address."""
    from redis.asyncio import Redis as Client
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

    seconds = settings.timeout_ms / 1000
    try:
        return Client.from_url(
            settings.url,
            socket_timeout=seconds,
            socket_connect_timeout=seconds,
            decode_responses=True,
            # A value that is no text is not ours; it must not raise an error of another kind.
            encoding_errors="replace",
            # Retry once: an idle connection may have been closed long ago.
            retry=Retry(NoBackoff(), 1),
        )
    except ValueError as error:
        raise UsageError(f"redis.url is not an address of Redis: {error}") from error


@contextmanager
def translated_errors() -> Iterator[None]:
    """Raise RedisUnavailable instead of the errors of the client."""
    from redis.exceptions import RedisError

    try:
        yield
    except (OSError, RedisError) as error:
        raise RedisUnavailable(f"Redis: {type(error).__name__}: {error}") from error
