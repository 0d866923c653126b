"""The services behind the API on one store, and the gateway that handles requests without a server."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from gnomon.adapters.auth.fallback_authenticators import RejectingAuthenticator
from gnomon.adapters.dry_run_process import DryRunProcesses
from gnomon.adapters.host import RandomIds, SystemClock, tzdata_version
from gnomon.api.local import LocalRequest, handle_locally
from gnomon.api.route import ApiServices, ModelServer
from gnomon.app.local_user import local_groups
from gnomon.app.operations import Operations
from gnomon.app.settings import catchup_limit, schedule_defaults
from gnomon.client.transport import ApiRequest
from gnomon.config.settings import Settings
from gnomon.core.auth import read_certificates
from gnomon.core.health import NodeHealth
from gnomon.core.jobs.origins import OriginKind
from gnomon.core.model import RunSource
from gnomon.errors import Unauthenticated, UsageError
from gnomon.ports.auth import Caller, Role, TokenAuthenticator
from gnomon.services.observability.change_stream import ChangeStream
from gnomon.services.operations.bulk_changes import BulkChangeService
from gnomon.services.operations.calendar import CalendarService
from gnomon.services.operations.dead_letters import DeadLetterService
from gnomon.services.operations.executions import SearchService
from gnomon.services.operations.job_revisions import JobRevisionService
from gnomon.services.operations.job_search import JobSearchService
from gnomon.services.operations.launcher import Launcher
from gnomon.services.operations.overview import OverviewService
from gnomon.services.operations.schedules import ScheduleService
from gnomon.services.operations.tasks import TaskService


def _certificate_callers(settings: Settings) -> dict[str, Caller]:
    """The callers by the names in their client certificates."""
    granted = read_certificates(settings.auth.certificates)
    return {name: Caller(name, frozenset({Role(f"scheduler-{one.role}")}), one.tenant) for name, one in granted.items()}


def api_services(  # noqa: PLR0913 - all that requests need
    operations: Operations,
    settings: Settings,
    *,
    tokens: TokenAuthenticator,
    change_stream: ChangeStream,
    health: Callable[[], Awaitable[NodeHealth]],
    busy: Callable[[], bool],
    login_failed: Callable[[Unauthenticated, str], None],
    changed: Callable[[], None],
    launcher: Launcher | None = None,
    model_server: ModelServer | None = None,
) -> ApiServices:
    """The services of the API on the store of these operations; see ApiServices.

    `launcher` replaces the launcher of the operations.
    """
    store, clock, defaults = operations.store, operations.clock, schedule_defaults(settings)
    launcher = launcher or operations.launcher
    job_search = JobSearchService(operations.jobs, store.schedules, store.tick_history, clock)
    search = SearchService(
        store.executions,
        store.run_tasks,
        store.jobs,
        operations.jobs,
        announcements=store.announcements,
        tick_history=store.tick_history,
    )
    return ApiServices(
        tokens=tokens,
        jobs=operations.jobs,
        schedules=ScheduleService(
            store.schedules,
            store.history,
            clock,
            RandomIds(),
            jobs=store.jobs,
            compute=operations.compute,
            defaults=defaults,
            tzdata=tzdata_version(),
            catchup_limit=catchup_limit(settings),
        ),
        launcher=launcher,
        executions=operations.executions,
        search=search,
        overview=OverviewService(store.overview, store.workers, health, clock),
        job_search=job_search,
        bulk_changes=BulkChangeService(
            operations.jobs, operations.executions, launcher, store.schedules, clock, jobs=job_search, runs=search
        ),
        calendar=CalendarService(
            store.schedules, store.history, store.calendar, store.jobs, clock, compute=operations.compute
        ),
        revisions=JobRevisionService(store.schedules, store.history, store.jobs, compute=operations.compute),
        workflows=operations.workflows,
        events=operations.events,
        dead_letters=DeadLetterService(store.dead_letters, store.executions, launcher, clock),
        announcements=operations.announcements,
        breakers=operations.breakers,
        agent_usage=operations.agent_usage,
        agent_sessions=operations.agent_sessions,
        tasks=TaskService(store.jobs, launcher, clock, operations.compute),
        explainer=operations.explainer,
        backfills=operations.backfills,
        planner=operations.planner,
        audit=operations.audit,
        command_policy=operations.command_policy,
        model_actions=operations.model_actions,
        policy=operations.policy,
        approvals=operations.approvals,
        quarantine=operations.quarantine,
        dry_runner=DryRunProcesses(),
        issued_tokens=operations.tokens,
        sign_in_codes=operations.sign_in_codes,
        workers=store.workers,
        health=health,
        change_stream=change_stream,
        clock=clock,
        defaults=defaults,
        server=settings.server,
        cursor_key=store.cursor_key,
        compute=operations.compute,
        max_token_length=settings.auth.max_token_bytes,
        certificates=_certificate_callers(settings),
        busy=busy,
        login_failed=login_failed,
        model_server=model_server,
        changed=changed,
    )


T = TypeVar("T")


class Gateway(Protocol):
    """Handles requests of a client."""

    async def send(self, request: ApiRequest[T]) -> T:
        """Return the response, or raise its error."""
        ...


class RequestActor(Struct, frozen=True):
    """The actor and the tenant of a request, and the origin of jobs that it registers."""

    actor: str
    tenant: str = "default"
    origin: OriginKind = OriginKind.CLI


class LocalGateway:
    """Handles requests on a store in this process. A user who can open the store may do everything."""

    def __init__(self, services: ApiServices, who: RequestActor) -> None:
        self._services = services
        self._caller = Caller(who.actor, frozenset({Role.ADMIN}), who.tenant, groups=local_groups())
        self._origin = who.origin

    async def send(self, request: ApiRequest[T]) -> T:
        """See Gateway.send."""
        local = LocalRequest(
            method=request.method, target=request.target, content=request.content, headers=request.headers
        )
        return cast(
            "T",
            await handle_locally(self._services, self._caller, local, source=RunSource.MANUAL, origin=self._origin),
        )


@asynccontextmanager
async def open_local(settings: Settings, who: RequestActor, *, make: bool = False) -> AsyncIterator[Gateway]:
    """The gateway to the store that the settings name; NoDatabase if it is a missing file and not `make`."""
    async with Operations.open(settings, make=make) as operations:
        yield LocalGateway(services_without_scheduler(operations, settings), who)


@asynccontextmanager
async def open_empty(settings: Settings, who: RequestActor) -> AsyncIterator[Gateway]:
    """The gateway to an empty store in memory, with the channels of the settings."""
    from gnomon.adapters.memory import MemoryStore

    clock = SystemClock()
    settings = replace(Settings(), channels=settings.channels, agents=settings.agents)
    operations = Operations(MemoryStore(clock.now), settings)
    yield LocalGateway(services_without_scheduler(operations, settings), who)


def services_without_scheduler(
    operations: Operations, settings: Settings, *, changed: Callable[[], None] = lambda: None
) -> ApiServices:
    """The services of a process that answers only itself: no loop waits for changes, and no caller has to log in."""
    return api_services(
        operations,
        settings,
        tokens=RejectingAuthenticator(),
        change_stream=ChangeStream(most=0),
        health=_health_unavailable,
        busy=lambda: False,
        login_failed=lambda _error, _address: None,
        changed=changed,
    )


async def _health_unavailable() -> NodeHealth:
    raise UsageError("only a running scheduler knows its health: ask it with --server")
