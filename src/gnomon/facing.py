"""The API of a process: the desk behind it, how it is, and what it listens to. What `gnomon up` and `server` open."""

import asyncio

from gnomon.adapters.system import RandomIds, SystemClock, tzdata_version
from gnomon.adapters.tokens import NoTokens, OpenTokens
from gnomon.api.desk import Desk
from gnomon.api.server import address_of, listen, serve_api
from gnomon.app import Node, Office, defaults_of
from gnomon.ports.events import Events
from gnomon.ports.identity import Tokens
from gnomon.services.health import Check, Finding, HealthDesk, Status
from gnomon.services.hub import Hub
from gnomon.services.registrar import Registrar
from gnomon.services.searching import Search
from gnomon.services.tasks import TaskDesk
from gnomon.services.ticker import Health
from gnomon.settings import Settings

#: A ticker that has not looked for so many times its interval is not well.
_SILENT_TIMES = 10


class Facing:
    """A process's face to the world: a socket that it has, and a hub that hears what it does."""

    def __init__(self, settings: Settings, events: Events) -> None:
        """Listens already, so that an address that cannot be had is known before anything else begins."""
        self._listening = listen(settings.server)
        self.address = address_of(self._listening)
        self.hub = Hub(SystemClock(), events, most=settings.server.max_streams)

    async def serve(self, node: Node, stop: asyncio.Event) -> None:
        """Answer requests to the node until told to stop."""

        def surprised(error: BaseException) -> None:
            node.events.emit("request_failed", error=repr(error))

        node.ticker.on_decided = self.hub.decided
        node.events.emit("answering", address=self.address)
        if not node.settings.auth.verify_tokens:
            node.events.emit("open_to_everybody", address=self.address)
        await serve_api(desk_of(node, self.hub), self._listening, stop, surprised=surprised)

    def close(self) -> None:
        """Listen no longer."""
        self._listening.close()


def tokens_of(settings: Settings) -> Tokens:
    """Who knows a good token from a bad one."""
    return NoTokens() if settings.auth.verify_tokens else OpenTokens()


def desk_of(node: Node, hub: Hub) -> Desk:
    """Everything that a request to this node may need."""
    store, settings, clock = node.store, node.settings, SystemClock()
    office, defaults = Office(store, settings), defaults_of(settings)
    return Desk(
        tokens=tokens_of(settings),
        jobs=office.jobs,
        registrar=Registrar(store, store, clock, RandomIds(), defaults=defaults, tzdata=tzdata_version()),
        launcher=office.launcher,
        executions=office.executions,
        search=Search(store, store, office.jobs),
        workflows=office.workflows,
        events=office.events,
        dead_letters=office.dead_letters,
        tasks=TaskDesk(store, office.launcher, clock),
        explainer=office.explainer,
        workers=store,
        health=HealthDesk(clock, checks_of(node)),
        hub=hub,
        clock=clock,
        defaults=defaults,
        server=settings.server,
        changed=node.look,
    )


def checks_of(node: Node) -> dict[str, Check]:
    """How to look at each part of a node."""

    async def store() -> Finding:
        await node.store.next_due_at(shards=frozenset({0}))
        return Finding(Status.OK, "it answers")

    async def ticker() -> Finding:
        if not node.scheduling:
            return Finding(Status.IDLE, "another process schedules")
        longest = _SILENT_TIMES * node.settings.ticker.tick_ms / 1000 + node.settings.leader.ttl_ms / 1000
        if node.ticker.health is Health.ERROR or node.ticker.silent_for > longest:
            return Finding(Status.ERROR, "ticks are not being decided")
        idle = node.ticker.health is Health.IDLE
        return Finding(Status.IDLE, "other nodes decide") if idle else Finding(Status.OK, "ticks are decided")

    async def worker() -> Finding:
        if node.crew is None:
            return Finding(Status.IDLE, "this process executes nothing")
        if not node.scheduling:
            return Finding(Status.IDLE, "it stands by")
        failing = node.crew.worker.backoff.failing
        return Finding(Status.ERROR, "it cannot reach the store") if failing else Finding(Status.OK, "it takes tasks")

    return {"store": store, "ticker": ticker, "worker": worker}
