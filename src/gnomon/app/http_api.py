"""The HTTP API of a node, as `gnomon up` and `gnomon server` open it."""

import asyncio

from msgspec.structs import replace

from gnomon.adapters.auth.fallback_authenticators import AnonymousAdminAuthenticator, RejectingAuthenticator
from gnomon.adapters.host import SystemClock
from gnomon.api.route import ApiServices
from gnomon.api.server import address_of, check_tls, listen, serve_api
from gnomon.app.auth import LocalAccess, TokenVerifier, ensure_local_access, key_path, open_token_verifier
from gnomon.app.gateway import api_services
from gnomon.app.node import Node
from gnomon.app.operations import Operations
from gnomon.config.settings import Settings
from gnomon.core.auth import read_certificates
from gnomon.ports.runtime import Events
from gnomon.services.observability.change_stream import ChangeStream


class HttpApi:
    """A listening socket, the verifier of tokens, and the change stream of a node."""

    def __init__(self, settings: Settings, events: Events) -> None:
        """Listen at once, so that an address in use is reported before anything else starts."""
        check_tls(settings.server)
        read_certificates(settings.auth.certificates)
        self._listening = listen(settings.server)
        try:
            self._tokens, self._access = token_verifier_for(settings, events), local_access_for(settings)
        except BaseException:
            self._listening.close()
            raise
        self.address = address_of(self._listening, settings.server)
        self.change_stream = ChangeStream(SystemClock(), events, most=settings.server.max_streams)

    async def serve(self, node: Node, stop: asyncio.Event) -> None:
        """Answer requests to the node until `stop` is set."""

        def on_error(error: BaseException) -> None:
            node.events.emit("request_failed", error=repr(error))

        node.events.emit("answering", address=self.address)
        self._emit_access_mode(node)
        try:
            await serve_api(
                api_services_for(node, self.change_stream, self._tokens), self._listening, stop, surprised=on_error
            )
        finally:
            await self._tokens.close()

    def _emit_access_mode(self, node: Node) -> None:
        if not node.settings.auth.verify_tokens:
            node.events.emit("open_to_everybody", address=self.address)
        elif self._access is not None:
            node.events.emit("local_access", file=str(self._access.token_file), hint=self._access.hint(self.address))
        elif isinstance(self._tokens, RejectingAuthenticator):
            node.events.emit("closed_to_everybody", address=self.address)

    def close(self) -> None:
        """Close the socket."""
        self._listening.close()


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


def api_services_for(node: Node, change_stream: ChangeStream, tokens: TokenVerifier) -> ApiServices:
    """The services for requests to this node."""
    services = api_services(
        Operations(node.store, node.settings, clock=node.clock),
        node.settings,
        tokens=tokens,
        change_stream=change_stream,
        health=node.observability.health.report,
        # It hands the tasks that it starts to the dispatcher of this node, in the same commit.
        launcher=node.launcher,
        changed=node.check_soon,
    )
    return replace(services, busy=lambda: node.busy)
