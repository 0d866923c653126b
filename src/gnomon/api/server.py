"""Serves the API over HTTP in the process of the scheduler."""

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from http import HTTPStatus
from typing import cast

import uvicorn
from litestar.handlers import HTTPRouteHandler

from gnomon.api.app import create_app
from gnomon.api.connection_limits import (
    BoundedHttpProtocol,
    ConnectionRules,
    RequestRefused,
    refusal,
)
from gnomon.api.middleware import App, with_request_checks, with_security_headers
from gnomon.api.route import ApiServices
from gnomon.api.route_runner import RouteRunner
from gnomon.config.sections import ServerSettings
from gnomon.core.security_headers import encoded_security_headers
from gnomon.errors import FieldError, UsageError
from gnomon.ports.connections import Acceptor, ConnectionSlot
from gnomon.services.observability.change_stream import ChangeStream
from gnomon.services.observed_events import ThrottledEvents

#: The number of connections that may wait to be accepted.
_BACKLOG = 512
#: The interval at which the Date header is updated and throttled events are reported.
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


def tls_context(server: ServerSettings) -> ssl.SSLContext | None:
    """The TLS context of the configured certificates, None without any; FieldError if they cannot be used.

    Client certificates are optional: a caller may send a token instead.
    """
    if not server.tls_cert_file:
        for field in ("tls_key_file", "tls_client_ca_file"):
            if getattr(server, field):
                raise FieldError(f"server.{field}", getattr(server, field), "goes with server.tls_cert_file")
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(server.tls_cert_file, server.tls_key_file or None)
    except (OSError, ssl.SSLError) as error:
        raise FieldError("server.tls_cert_file", server.tls_cert_file, f"cannot be used: {error}") from None
    if server.tls_client_ca_file:
        try:
            context.load_verify_locations(server.tls_client_ca_file)
        except (OSError, ssl.SSLError) as error:
            reason = f"cannot be used: {error}"
            raise FieldError("server.tls_client_ca_file", server.tls_client_ca_file, reason) from None
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def no_slot_response() -> bytes:
    """The response to a connection for which there is no slot."""
    refused = RequestRefused(
        HTTPStatus.SERVICE_UNAVAILABLE, "too many connections are open", code="too_many_connections"
    )
    return refusal(refused, [*encoded_security_headers(), (b"retry-after", b"1")])


class _EmbeddedServer(uvicorn.Server):
    """Leaves signals to the process, and wakes once a second instead of ten times, so that an idle process sleeps."""

    def __init__(
        self,
        config: uvicorn.Config,
        acceptor: Acceptor,
        rules: ConnectionRules,
        change_stream: ChangeStream,
        stop: asyncio.Event,
    ) -> None:
        super().__init__(config)
        self._acceptor = acceptor
        self._rules = rules
        self._change_stream = change_stream
        self._stop = stop

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture no signals."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections."""
        del sockets
        # uvicorn only closes its servers and waits for them.
        self.servers = cast("list[asyncio.Server]", [self._acceptor])
        await self.on_tick(0)
        self._acceptor.start(self._protocol)
        self.started = True

    def _protocol(self, slot: ConnectionSlot) -> asyncio.Protocol:
        return BoundedHttpProtocol(self.config, self.server_state, slot=slot, rules=self._rules)

    async def main_loop(self) -> None:
        """Update the Date header and report throttled events until the server stops."""
        while not self._stop.is_set():
            await self.on_tick(0)
            self._rules.events.flush()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), _DATE_SECONDS)
        # Streams end only when they are closed.
        self._change_stream.close()


async def serve_api(
    services: ApiServices,
    acceptor: Acceptor,
    stop: asyncio.Event,
    *,
    events: ThrottledEvents,
    on_unexpected_error: Callable[[BaseException], None],
    pages: Callable[[RouteRunner], Sequence[HTTPRouteHandler]] = lambda _: (),
    error_pages: Callable[[App], App] = lambda app: app,
) -> None:
    """Serve requests until `stop` is set; requests in progress may then finish within `server.drain`.

    Refused clients are reported to `events`, unexpected errors of requests to `on_unexpected_error`. `pages` makes the
    handlers of the dashboard, `error_pages` the pages of what is refused before any of them.
    """
    app = create_app(services, on_unexpected_error=on_unexpected_error, pages=pages)
    config = uvicorn.Config(
        with_security_headers(error_pages(with_request_checks(cast("App", app), services.busy))),
        http=BoundedHttpProtocol,
        ws="none",
        loop="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=max(1, services.server.drain_ms // 1000),
    )
    rules = ConnectionRules(services.server, events, services.busy)
    try:
        await _EmbeddedServer(config, acceptor, rules, services.change_stream, stop).serve()
    finally:
        acceptor.close()
