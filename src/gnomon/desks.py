"""The desk behind every door: everything that a request may need, on one store."""

from collections.abc import Awaitable, Callable

from gnomon.adapters.host import RandomIds, tzdata_version
from gnomon.api.route import Desk
from gnomon.core.auth import read_certificates
from gnomon.core.health import Report
from gnomon.office import Office, defaults_of
from gnomon.ports.auth import Caller, Role, Tokens
from gnomon.services.observability.change_stream import Hub
from gnomon.services.operations.dead_letters import DeadLetterOffice
from gnomon.services.operations.executions import Search
from gnomon.services.operations.launcher import Launcher
from gnomon.services.operations.tasks import TaskDesk
from gnomon.services.scheduling.registrar import Registrar
from gnomon.settings import Settings


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
