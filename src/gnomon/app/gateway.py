"""The desk behind every door: everything that a request may need, on one store."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol, TypeVar, cast

from msgspec import Struct

from gnomon.adapters.auth.policies import NoTokens
from gnomon.adapters.host import RandomIds, SystemClock, tzdata_version
from gnomon.adapters.structured_log import LoggedEvents
from gnomon.api.local import Request, answered
from gnomon.api.route import Desk
from gnomon.app.operations import Office, defaults_of
from gnomon.client.transport import Ask
from gnomon.config.settings import Settings
from gnomon.core.auth import read_certificates
from gnomon.core.health import Report
from gnomon.core.model import Source
from gnomon.errors import UsageError
from gnomon.ports.auth import Caller, Role, Tokens
from gnomon.services.observability.change_stream import Hub
from gnomon.services.operations.dead_letters import DeadLetterOffice
from gnomon.services.operations.executions import Search
from gnomon.services.operations.launcher import Launcher
from gnomon.services.operations.tasks import TaskDesk
from gnomon.services.scheduling.registrar import Registrar


def _services(settings: Settings) -> dict[str, Caller]:
    """Who services are, by the names in their certificates."""
    granted = read_certificates(settings.auth.certificates)
    return {name: Caller(name, frozenset({Role(f"scheduler-{one.role}")}), one.tenant) for name, one in granted.items()}


def desk_on(
    office: Office,
    settings: Settings,
    *,
    tokens: Tokens,
    hub: Hub,
    health: Callable[[], Awaitable[Report]],
    launcher: Launcher | None = None,
    changed: Callable[[], None] = lambda: None,
) -> Desk:
    """A desk with the books of an office. What is started goes through the launcher, if there is one of its own."""
    store, clock, defaults = office.store, office.clock, defaults_of(settings)
    launcher = launcher or office.launcher
    return Desk(
        tokens=tokens,
        jobs=office.jobs,
        registrar=Registrar(store, store, clock, RandomIds(), defaults=defaults, tzdata=tzdata_version()),
        launcher=launcher,
        executions=office.executions,
        search=Search(store, store, office.jobs),
        workflows=office.workflows,
        events=office.events,
        dead_letters=DeadLetterOffice(store, store, launcher, clock),
        tasks=TaskDesk(store, launcher, clock),
        explainer=office.explainer,
        backfills=office.backfills,
        planner=office.planner,
        audit=office.audit,
        workers=store,
        health=health,
        hub=hub,
        clock=clock,
        defaults=defaults,
        server=settings.server,
        longest_token=settings.auth.max_token_bytes,
        certificates=_services(settings),
        changed=changed,
    )


T = TypeVar("T")


class Door(Protocol):
    """Where requests go."""

    async def ask(self, ask: Ask[T]) -> T:
        """The answer; the error that there is instead of one."""
        ...


class Who(Struct, frozen=True):
    """Who asks, and whose things they are about."""

    actor: str
    tenant: str = "default"


class Indoors:
    """The store at hand: who can open it may do everything."""

    def __init__(self, desk: Desk, who: Who) -> None:
        self._desk = desk
        self._caller = Caller(who.actor, frozenset({Role.ADMIN}), who.tenant)

    async def ask(self, ask: Ask[T]) -> T:
        """See Door.ask."""
        request = Request(method=ask.method, target=ask.target, content=ask.content, headers=ask.headers)
        return cast("T", await answered(self._desk, self._caller, request, source=Source.MANUAL))


@asynccontextmanager
async def indoors(settings: Settings, who: Who, *, make: bool = False) -> AsyncIterator[Door]:
    """The door to the store that the settings name. A file is made only if `make` says so."""
    async with Office.open(settings, make=make) as office:
        hub = Hub(SystemClock(), LoggedEvents(), most=0)
        yield Indoors(desk_on(office, settings, tokens=NoTokens(), hub=hub, health=_unknown), who)


@asynccontextmanager
async def nowhere(who: Who) -> AsyncIterator[Door]:
    """The door to a store in which nothing stands yet, and nothing will."""
    from gnomon.adapters.memory import MemoryStore

    clock = SystemClock()
    office = Office(cast("Any", MemoryStore(clock.now)), Settings())
    hub = Hub(clock, LoggedEvents(), most=0)
    yield Indoors(desk_on(office, Settings(), tokens=NoTokens(), hub=hub, health=_unknown), who)


async def _unknown() -> Report:
    raise UsageError("how a scheduler is knows only the one that runs: ask it with --server")
