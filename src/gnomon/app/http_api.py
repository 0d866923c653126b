"""The HTTP API of a node, as `gnomon up` and `gnomon server` open it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from urllib.parse import urlencode

from msgspec.structs import replace

from gnomon.adapters.auth.fallback_authenticators import AnonymousAdminAuthenticator, RejectingAuthenticator
from gnomon.adapters.connection_acceptor import ConnectionAcceptor
from gnomon.adapters.guarded_files import check_guarded
from gnomon.adapters.host import SystemClock
from gnomon.api.route import ApiServices, ModelServer
from gnomon.api.server import address_of, listen, no_slot_response, serve_api, tls_context
from gnomon.app.auth import (
    LocalAccess,
    TokenVerifier,
    ensure_local_access,
    key_path,
    open_token_verifier,
    read_local_token,
    session_tokens,
)
from gnomon.app.files import read_jobs_text
from gnomon.app.gateway import api_services
from gnomon.app.local_user import local_user
from gnomon.app.node import Node
from gnomon.app.operations import Operations
from gnomon.config.sections import ModelTools, ServerSettings
from gnomon.config.settings import Settings
from gnomon.core import component_names
from gnomon.core.audit import unverified_entry
from gnomon.core.auth import read_certificates
from gnomon.core.connection_table import ConnectionLimits
from gnomon.core.served_hosts import ServedHosts, is_loopback
from gnomon.errors import FieldError, Unauthenticated, Unavailable
from gnomon.ports.runtime import Events
from gnomon.runners.open_files import open_files_limit
from gnomon.services.loop import run_loop
from gnomon.services.observability.change_reader import ChangeReader
from gnomon.services.observability.change_stream import ChangeStream
from gnomon.services.observability.login_failures import LoginFailures
from gnomon.services.observed_events import ThrottledEvents
from gnomon.services.token_revocation import RevocableTokens, RevocationList
from gnomon.ui.error_pages import with_error_pages
from gnomon.ui.handlers import Dashboard


class HttpApi:
    """A listening socket, the verifier of tokens, and the change stream of a node."""

    def __init__(self, settings: Settings, events: Events) -> None:
        """Listen at once, so that an address in use is reported before anything else starts."""
        _check_tls_files(settings.server)
        self._tls = tls_context(settings.server)
        ServedHosts(settings.server.hosts, bound_to=settings.server.host)
        read_certificates(settings.auth.certificates)
        check_unverified_access(settings)
        self._listening = listen(settings.server)
        try:
            self._tokens, self._access = token_verifier_for(settings, events), local_access_for(settings)
        except BaseException:
            self._listening.close()
            raise
        self.address = address_of(self._listening, settings.server)
        self.change_stream = ChangeStream(most=settings.server.max_streams, reads_log=True)

    async def serve(self, node: Node, stop: asyncio.Event) -> None:
        """Answer requests to the node until `stop` is set."""
        # Clients cause these events: without a limit, they could fill the log.
        throttled = ThrottledEvents(node.events, SystemClock())

        def on_error(error: BaseException) -> None:
            throttled.emit("request_failed", cause=type(error).__name__, error=repr(error))

        await self._record_local_token(node)
        node.events.emit("answering", address=self.address)
        self._emit_access_mode(node)
        if not node.settings.auth.verify_tokens:
            await self._audit_unverified_access(node)
        failures = LoginFailures(throttled, SystemClock(), node.observability.metrics_recorder)
        async with open_model_server(node.settings, on_error) as model_server:
            services = api_services_for(
                node, self.change_stream, self._tokens, login_failed=failures.record, model_server=model_server
            )
            await self._emit_dashboard(node, services)
            sessions = session_tokens(node.settings)
            serving = serve_api(
                services,
                self._acceptor(node, throttled),
                stop,
                events=throttled,
                on_unexpected_error=on_error,
                pages=lambda runner: Dashboard(
                    runner,
                    sessions,
                    node.settings.ui,
                    read_jobs=partial(read_jobs_text, settings=node.settings),
                    on_unexpected_error=on_error,
                ).handlers(),
                error_pages=with_error_pages,
            )
            try:
                await asyncio.gather(serving, self._read_changes(node, stop))
            finally:
                await self._tokens.close()

    async def _read_changes(self, node: Node, stop: asyncio.Event) -> None:
        """Publish the commits of other processes to the followers of the stream."""
        stream = self.change_stream
        if node.change_log is not None:
            reader = ChangeReader(node.change_log, stream, SystemClock(), server=node.origin)
            await run_loop(component_names.CHANGE_READER, reader.step, stop=stop, wake=stream.wake, events=node.events)

    def _acceptor(self, node: Node, events: Events) -> ConnectionAcceptor:
        server = node.settings.server
        limits = connection_limits(server, open_files=open_files_limit())
        if limits.total < server.max_connections:
            node.events.emit("connections_limited", connections=limits.total, configured=server.max_connections)
        return ConnectionAcceptor([self._listening], limits, events, tls=self._tls, refusal=no_slot_response())

    async def _audit_unverified_access(self, node: Node) -> None:
        """Record that everybody may do everything; the start goes on if the store is unavailable."""
        with suppress(Unavailable):
            await node.store.audit.add(unverified_entry(self.address, actor=local_user(), now=node.clock.now()))

    async def _record_local_token(self, node: Node) -> None:
        """Record the local admin token, so that it can be listed and revoked; replace it if it is revoked."""
        if self._access is None:
            return
        with suppress(Unavailable):
            tokens, now = node.store.tokens, node.clock.now()
            self._access = ensure_local_access(node.settings, revoked=await tokens.revoked()) or self._access
            await tokens.add(replace(self._access.record, issued_by=local_user()), now=now)

    def _emit_access_mode(self, node: Node) -> None:
        if not node.settings.auth.verify_tokens:
            node.events.emit("open_to_everybody", address=self.address)
        elif self._access is not None:
            node.events.emit("local_access", file=str(self._access.token_file), hint=self._access.hint(self.address))
        elif isinstance(self._tokens, RejectingAuthenticator):
            node.events.emit("closed_to_everybody", address=self.address)

    async def _emit_dashboard(self, node: Node, services: ApiServices) -> None:
        """Say where the dashboard is; if the settings want that, with an address that signs in as the local admin."""
        link, token = "", read_local_token(node.settings) if node.settings.ui.print_link else None
        if token is not None:
            with suppress(Unavailable, Unauthenticated):
                code = await services.sign_in_codes.issue(await self._tokens.caller(token), actor=local_user())
                link = f"{self.address}/ui/login?{urlencode({'code': code.text})}"
        node.events.emit("dashboard_ready", address=f"{self.address}/ui/", link=link)

    def close(self) -> None:
        """Close the socket."""
        self._listening.close()


def _check_tls_files(server: ServerSettings) -> None:
    """FileError if others could replace the certificates of this server, or the authority of its clients."""
    for name in (server.tls_cert_file, server.tls_key_file, server.tls_client_ca_file):
        if name:
            check_guarded(Path(name))


def connection_limits(server: ServerSettings, *, open_files: int) -> ConnectionLimits:
    """The limits of the settings, lowered so that connections take at most half of the files that may be open.

    The other half is for the database and for the pipes of commands.
    """
    total = min(server.max_connections, max(1, open_files // 2))
    per_address = server.max_connections_per_address * total // server.max_connections
    return ConnectionLimits(total=total, per_address=max(1, min(total, per_address)))


def check_unverified_access(settings: Settings) -> None:
    """Raise FieldError if tokens are not verified and other machines can reach the server."""
    if not settings.auth.verify_tokens and not is_loopback(settings.server.host):
        reason = "makes everybody an admin who can reach the server; set server.host to 127.0.0.1, or verify tokens"
        raise FieldError("auth.verify_tokens", False, reason)


def token_verifier_for(settings: Settings, events: Events) -> TokenVerifier:
    """The verifier of tokens; FieldError if the settings contradict each other."""
    auth = settings.auth
    if not auth.verify_tokens:
        return AnonymousAdminAuthenticator(open_token_verifier(settings, events=events))
    if not (auth.iam_url or auth.jwks_url or auth.jwks_file) and key_path(settings) is None:
        return RejectingAuthenticator()
    return open_token_verifier(settings, events=events)


def local_access_for(settings: Settings) -> LocalAccess | None:
    """The local admin token, if tokens are verified and local ones are accepted."""
    return ensure_local_access(settings) if settings.auth.verify_tokens else None


@asynccontextmanager
async def open_model_server(
    settings: Settings, on_unexpected_error: Callable[[BaseException], None]
) -> AsyncIterator[ModelServer | None]:
    """The server of tools for models that the settings ask for; None if they ask for none."""
    offered = settings.server.mcp
    if offered is ModelTools.OFF:
        yield None
        return
    from gnomon.app.mcp_http import McpRoute

    allow_changes = offered is ModelTools.CHANGES
    async with McpRoute(allow_changes=allow_changes, on_unexpected_error=on_unexpected_error).running() as model_server:
        yield model_server


def api_services_for(
    node: Node,
    change_stream: ChangeStream,
    tokens: TokenVerifier,
    *,
    login_failed: Callable[[Unauthenticated, str], None],
    model_server: ModelServer | None = None,
) -> ApiServices:
    """The services for requests to this node. `login_failed` is called for each caller that cannot be identified."""
    return api_services(
        Operations(node.store, node.settings, clock=node.clock, compute=node.compute, events=node.events),
        node.settings,
        tokens=RevocableTokens(tokens, RevocationList(node.store.tokens, node.clock)),
        change_stream=change_stream,
        health=node.observability.health.report,
        # It hands the tasks that it starts to the dispatcher of this node, in the same commit.
        launcher=node.launcher,
        busy=lambda: node.busy,
        login_failed=login_failed,
        model_server=model_server,
        changed=node.check_soon,
    )
