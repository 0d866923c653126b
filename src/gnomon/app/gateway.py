"""The desk behind every door: everything that a request may need, on one store."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar, cast

from msgspec import Struct

from gnomon.adapters.auth.policies import RejectingAuthenticator
from gnomon.adapters.host import RandomIds, SystemClock, tzdata_version
from gnomon.adapters.structured_log import LoggedEvents
from gnomon.api.local import LocalRequest, handle_locally
from gnomon.api.route import ApiServices
from gnomon.app.operations import Operations
from gnomon.app.settings import schedule_defaults
from gnomon.client.transport import ApiRequest
from gnomon.config.settings import Settings
from gnomon.core.auth import read_certificates
from gnomon.core.health import NodeHealth
from gnomon.core.model import Source
from gnomon.errors import UsageError
from gnomon.ports.auth import Caller, Role, TokenAuthenticator
from gnomon.services.observability.change_stream import ChangeStream
from gnomon.services.operations.dead_letters import DeadLetterService
from gnomon.services.operations.executions import SearchService
from gnomon.services.operations.launcher import Launcher
from gnomon.services.operations.tasks import TaskService
from gnomon.services.scheduling.registrar import Registrar


def _certificate_callers(settings: Settings) -> dict[str, Caller]:
    """Who services are, by the names in their certificates."""
    granted = read_certificates(settings.auth.certificates)
    return {name: Caller(name, frozenset({Role(f"scheduler-{one.role}")}), one.tenant) for name, one in granted.items()}


def api_services(
    office: Operations,
    settings: Settings,
    *,
    tokens: TokenAuthenticator,
    change_stream: ChangeStream,
    health: Callable[[], Awaitable[NodeHealth]],
    launcher: Launcher | None = None,
    changed: Callable[[], None] = lambda: None,
) -> ApiServices:
    """A desk with the books of an office. What is started goes through the launcher, if there is one of its own."""
    store, clock, defaults = office.store, office.clock, schedule_defaults(settings)
    launcher = launcher or office.launcher
    return ApiServices(
        tokens=tokens,
        jobs=office.jobs,
        registrar=Registrar(
            store.schedules, store.history, clock, RandomIds(), defaults=defaults, tzdata=tzdata_version()
        ),
        launcher=launcher,
        executions=office.executions,
        search=SearchService(store.executions, store.jobs, office.jobs),
        workflows=office.workflows,
        events=office.events,
        dead_letters=DeadLetterService(store.dead_letters, store.executions, launcher, clock),
        tasks=TaskService(store.jobs, launcher, clock),
        explainer=office.explainer,
        backfills=office.backfills,
        planner=office.planner,
        audit=office.audit,
        workers=store.workers,
        health=health,
        change_stream=change_stream,
        clock=clock,
        defaults=defaults,
        server=settings.server,
        max_token_length=settings.auth.max_token_bytes,
        certificates=_certificate_callers(settings),
        changed=changed,
    )


T = TypeVar("T")


class Gateway(Protocol):
    """Where requests go."""

    async def send(self, request: ApiRequest[T]) -> T:
        """The answer; the error that there is instead of one."""
        ...


class RequestActor(Struct, frozen=True):
    """Who asks, and whose things they are about."""

    actor: str
    tenant: str = "default"


class LocalGateway:
    """The store at hand: who can open it may do everything."""

    def __init__(self, services: ApiServices, who: RequestActor) -> None:
        self._services = services
        self._caller = Caller(who.actor, frozenset({Role.ADMIN}), who.tenant)

    async def send(self, request: ApiRequest[T]) -> T:
        """See Gateway.send."""
        local = LocalRequest(
            method=request.method, target=request.target, content=request.content, headers=request.headers
        )
        return cast("T", await handle_locally(self._services, self._caller, local, source=Source.MANUAL))


@asynccontextmanager
async def open_local(settings: Settings, who: RequestActor, *, make: bool = False) -> AsyncIterator[Gateway]:
    """The door to the store that the settings name. A file is made only if `make` says so."""
    async with Operations.open(settings, make=make) as office:
        change_stream = ChangeStream(SystemClock(), LoggedEvents(), most=0)
        yield LocalGateway(
            api_services(
                office,
                settings,
                tokens=RejectingAuthenticator(),
                change_stream=change_stream,
                health=_health_unavailable,
            ),
            who,
        )


@asynccontextmanager
async def open_empty(who: RequestActor) -> AsyncIterator[Gateway]:
    """The door to a store in which nothing stands yet, and nothing will."""
    from gnomon.adapters.memory import MemoryStore

    clock = SystemClock()
    office = Operations(MemoryStore(clock.now), Settings())
    change_stream = ChangeStream(clock, LoggedEvents(), most=0)
    yield LocalGateway(
        api_services(
            office, Settings(), tokens=RejectingAuthenticator(), change_stream=change_stream, health=_health_unavailable
        ),
        who,
    )


async def _health_unavailable() -> NodeHealth:
    raise UsageError("how a scheduler is knows only the one that runs: ask it with --server")
