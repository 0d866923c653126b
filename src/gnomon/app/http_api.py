"""The API of a process: the desk behind it, how it is, and what it listens to. What `gnomon up` and `server` open."""

import asyncio

from msgspec.structs import replace

from gnomon.adapters.auth.policies import NoTokens, OpenTokens
from gnomon.adapters.host import SystemClock
from gnomon.adapters.sql.after_commit import Tallied
from gnomon.api.route import Desk
from gnomon.api.server import address_of, check_tls, listen, serve_api
from gnomon.app.auth import LocalAccess, TokenCheck, key_path, local_tokens, open_tokens
from gnomon.app.gateway import desk_on
from gnomon.app.node import Node
from gnomon.app.operations import Office
from gnomon.config.settings import Settings
from gnomon.core.auth import read_certificates
from gnomon.ports.runtime import Events
from gnomon.services.observability.change_stream import Hub, RunNews


class Facing:
    """A process's face to the world: a socket that it has, and a hub that hears what it does."""

    def __init__(self, settings: Settings, events: Events) -> None:
        """Listens already, so that an address that cannot be had is known before anything else begins."""
        check_tls(settings.server)
        read_certificates(settings.auth.certificates)
        self._listening = listen(settings.server)
        try:
            self._tokens, self._access = tokens_of(settings, events), own_access(settings)
        except BaseException:
            self._listening.close()
            raise
        self.address = address_of(self._listening, settings.server)
        self.hub = Hub(SystemClock(), events, most=settings.server.max_streams)

    async def serve(self, node: Node, stop: asyncio.Event) -> None:
        """Answer requests to the node until told to stop."""

        def surprised(error: BaseException) -> None:
            node.events.emit("request_failed", error=repr(error))

        node.ticker.on_decided = self.hub.decided
        node.store.transactions = Tallied(node.store.transactions, RunNews(self.hub))
        node.events.emit("answering", address=self.address)
        self._say_who_may(node)
        try:
            await serve_api(desk_of(node, self.hub, self._tokens), self._listening, stop, surprised=surprised)
        finally:
            await self._tokens.close()

    def _say_who_may(self, node: Node) -> None:
        if not node.settings.auth.verify_tokens:
            node.events.emit("open_to_everybody", address=self.address)
        elif self._access is not None:
            node.events.emit("local_access", file=str(self._access.token_file), hint=self._access.hint(self.address))
        elif isinstance(self._tokens, NoTokens):
            node.events.emit("closed_to_everybody", address=self.address)

    def close(self) -> None:
        """Listen no longer."""
        self._listening.close()


def tokens_of(settings: Settings, events: Events) -> TokenCheck:
    """Who knows a good token from a bad one; FieldError if the settings contradict themselves."""
    auth = settings.auth
    if not auth.verify_tokens:
        return OpenTokens(open_tokens(settings, events=events))
    if not (auth.iam_url or auth.jwks_url or auth.jwks_file) and key_path(settings) is None:
        return NoTokens()
    return open_tokens(settings, events=events)


def own_access(settings: Settings) -> LocalAccess | None:
    """A token of our own for whoever owns the files, if tokens count and ours do."""
    return local_tokens(settings) if settings.auth.verify_tokens else None


def desk_of(node: Node, hub: Hub, tokens: TokenCheck) -> Desk:
    """Everything that a request to this node may need."""
    desk = desk_on(
        Office(node.store, node.settings, clock=node.clock),
        node.settings,
        tokens=tokens,
        hub=hub,
        health=node.instruments.vitals.report,
        # What it starts is passed on to whoever executes in the same breath.
        launcher=node.launcher,
        changed=node.look,
    )
    return replace(desk, busy=lambda: node.busy)
