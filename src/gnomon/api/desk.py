"""Everything that a request may need, at one desk."""

from collections.abc import Awaitable, Callable, Mapping

from msgspec import Struct

from gnomon.core.health import Report
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.ports.auth import Caller, Tokens
from gnomon.ports.runtime import Clock
from gnomon.ports.tasks import Workers
from gnomon.sections import Server
from gnomon.services.observability.change_stream import Hub
from gnomon.services.operations.audit import AuditBook
from gnomon.services.operations.backfills import BackfillDesk
from gnomon.services.operations.dead_letters import DeadLetterOffice
from gnomon.services.operations.events import Announcer
from gnomon.services.operations.executions import ExecutionBook, Search
from gnomon.services.operations.explain import Explainer
from gnomon.services.operations.job_plan import Planner
from gnomon.services.operations.jobs import JobBook
from gnomon.services.operations.launcher import Launcher
from gnomon.services.operations.tasks import TaskDesk
from gnomon.services.operations.workflows import WorkflowStore
from gnomon.services.scheduling.registrar import Registrar


class Desk(Struct, frozen=True, kw_only=True):
    """The same services as behind the command line, and who may use them."""

    tokens: Tokens
    jobs: JobBook
    registrar: Registrar
    launcher: Launcher
    executions: ExecutionBook
    search: Search
    workflows: WorkflowStore
    events: Announcer
    dead_letters: DeadLetterOffice
    tasks: TaskDesk
    explainer: Explainer
    backfills: BackfillDesk
    planner: Planner
    audit: AuditBook
    workers: Workers
    #: Tells how the node is.
    health: Callable[[], Awaitable[Report]]
    hub: Hub
    clock: Clock
    defaults: Defaults
    server: Server
    #: A token may have so many characters.
    longest_token: int = 8192
    #: Whom services are that show a certificate of this name.
    certificates: Mapping[str, Caller] = {}
    #: Whether the scheduler has something in hand, to which requests should give way.
    busy: Callable[[], bool] = lambda: False
    #: Called when something was changed, so that those who wait for it look at once.
    changed: Callable[[], None] = lambda: None
