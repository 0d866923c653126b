"""How the API is served, as the settings say it."""

from msgspec import Struct

from gnomon.core.model import MINUTE_MS


class Server(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the API listens."""

    host: str = "127.0.0.1"
    port: int = 8062
    #: The body of a request may have so many bytes.
    max_body: int = 1_048_576
    #: How long requests may take to finish after a stop was asked for.
    drain_ms: int = 5_000
    #: How many may follow the stream of changes at once.
    max_streams: int = 100


SERVER_BOUNDS = {
    "server.port": (0, 65_535),
    "server.max_body": (1024, 64 * 2**20),
    "server.drain_ms": (0, 10 * MINUTE_MS),
    "server.max_streams": (0, 10_000),
}
