"""Serves the API over HTTP in the process of the scheduler."""

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast

import uvicorn

from gnomon.api.app import create_app
from gnomon.api.connection_limits import http_protocol
from gnomon.api.middleware import App, with_request_checks
from gnomon.api.route import ApiServices
from gnomon.config.sections import ServerSettings
from gnomon.errors import FieldError, UsageError
from gnomon.services.observability.change_stream import ChangeStream

#: The number of connections that may wait to be accepted.
_BACKLOG = 512
#: The interval at which the Date header is updated.
_DATE_SECONDS = 1.0
_BIND_ERRORS = {errno.EADDRINUSE: "another process listens on that port", errno.EACCES: "permission denied"}


def listen(server: ServerSettings) -> socket.socket:
    """A listening socket on the configured address; UsageError if it cannot be bound. Port 0 means any free port."""
    family = socket.AF_INET6 if ":" in server.host else socket.AF_INET
    # With an explicit protocol asyncio sets TCP_NODELAY; otherwise a body leaves 40 ms after its headers.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((server.host, server.port))
        made.listen(_BACKLOG)
    except OSError as error:
        made.close()
        reason = _BIND_ERRORS.get(error.errno or 0, error.strerror or str(error))
        hint = "set server.port to another port, or start with --no-api"
        raise UsageError(f"cannot listen on {server.host}:{server.port}: {reason}; {hint}") from None
    return made


def address_of(listening: socket.socket, server: ServerSettings | None = None) -> str:
    """The URL of the socket."""
    host, port = listening.getsockname()[:2]
    scheme = "https" if server is not None and server.tls_cert_file else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def check_tls(server: ServerSettings) -> None:
    """Raise FieldError for certificates that cannot be used, before anything else starts."""
    if not server.tls_cert_file:
        for field in ("tls_key_file", "tls_client_ca_file"):
            if getattr(server, field):
                raise FieldError(f"server.{field}", getattr(server, field), "goes with server.tls_cert_file")
        return
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(server.tls_cert_file, server.tls_key_file or None)
    except (OSError, ssl.SSLError) as error:
        raise FieldError("server.tls_cert_file", server.tls_cert_file, f"cannot be used: {error}") from None
    if not server.tls_client_ca_file:
        return
    try:
        context.load_verify_locations(server.tls_client_ca_file)
    except (OSError, ssl.SSLError) as error:
        raise FieldError("server.tls_client_ca_file", server.tls_client_ca_file, f"cannot be used: {error}") from None


def _tls(server: ServerSettings) -> dict[str, Any]:
    """The TLS options of uvicorn. Client certificates are optional: a caller may send a token instead."""
    if not server.tls_cert_file:
        return {}
    found: dict[str, Any] = {"ssl_certfile": server.tls_cert_file, "ssl_keyfile": server.tls_key_file or None}
    if server.tls_client_ca_file:
        found |= {"ssl_ca_certs": server.tls_client_ca_file, "ssl_cert_reqs": ssl.CERT_OPTIONAL}
    return found


class _EmbeddedServer(uvicorn.Server):
    """Leaves signals to the process, and wakes once a second instead of ten times, so that an idle process sleeps."""

    def __init__(self, config: uvicorn.Config, change_stream: ChangeStream, stop: asyncio.Event) -> None:
        super().__init__(config)
        self._change_stream = change_stream
        self._stop = stop

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture no signals."""
        yield

    async def main_loop(self) -> None:
        """Update the Date header until the server stops."""
        while not self._stop.is_set():
            await self.on_tick(0)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), _DATE_SECONDS)
        # Streams end only when they are closed.
        self._change_stream.close()


async def serve_api(
    services: ApiServices, listening: socket.socket, stop: asyncio.Event, *, surprised: Callable[[BaseException], None]
) -> None:
    """Serve requests until `stop` is set; requests in progress may then finish within `server.drain`."""
    config = uvicorn.Config(
        with_request_checks(cast("App", create_app(services, surprised=surprised)), services.busy),
        http=http_protocol(services.server),
        ws="none",
        loop="none",
        **_tls(services.server),
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=max(1, services.server.drain_ms // 1000),
    )
    try:
        await _EmbeddedServer(config, services.change_stream, stop).serve(sockets=[listening])
    finally:
        listening.close()
