"""Everything that a request may need, at one desk."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from enum import Enum
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from gnomon.config.sections import ServerSettings
from gnomon.core.health import NodeHealth
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.model import Source
from gnomon.errors import FieldError
from gnomon.ports.auth import Caller, Role, TokenAuthenticator
from gnomon.ports.runtime import Clock
from gnomon.ports.tasks import Workers
from gnomon.services.observability.change_stream import ChangeStream
from gnomon.services.operations.audit import AuditService
from gnomon.services.operations.backfills import BackfillService
from gnomon.services.operations.dead_letters import DeadLetterService
from gnomon.services.operations.events import EventService
from gnomon.services.operations.executions import ExecutionService, SearchService
from gnomon.services.operations.explain import Explainer
from gnomon.services.operations.job_plan import Planner
from gnomon.services.operations.jobs import JobService
from gnomon.services.operations.launcher import Launcher
from gnomon.services.operations.tasks import TaskService
from gnomon.services.operations.workflows import WorkflowService
from gnomon.services.scheduling.registrar import Registrar


class ApiServices(Struct, frozen=True, kw_only=True):
    """The same services as behind the command line, and who may use them."""

    tokens: TokenAuthenticator
    jobs: JobService
    registrar: Registrar
    launcher: Launcher
    executions: ExecutionService
    search: SearchService
    workflows: WorkflowService
    events: EventService
    dead_letters: DeadLetterService
    tasks: TaskService
    explainer: Explainer
    backfills: BackfillService
    planner: Planner
    audit: AuditService
    workers: Workers
    #: Tells how the node is.
    health: Callable[[], Awaitable[NodeHealth]]
    change_stream: ChangeStream
    clock: Clock
    defaults: Defaults
    server: ServerSettings
    #: A token may have so many characters.
    max_token_length: int = 8192
    #: Whom services are that show a certificate of this name.
    certificates: Mapping[str, Caller] = {}
    #: Whether the scheduler has something in hand, to which requests should give way.
    busy: Callable[[], bool] = lambda: False
    #: Called when something was changed, so that those who wait for it look at once.
    changed: Callable[[], None] = lambda: None


Limit = Annotated[int, Meta(ge=1, le=1000, description="How many at most.")]
Cursor = Annotated[str, Meta(max_length=2000, description="Where to go on; take it from `next`.")]
Instant = Annotated[str, Meta(max_length=64, description="An ISO instant, or milliseconds since 1970.")]
Name = Annotated[str, Meta(max_length=200)]


class Permission(Enum):
    """What a route asks of its caller: one of these roles."""

    EVERYBODY = frozenset[Role]()
    READ = frozenset({Role.VIEWER, Role.OPERATOR, Role.ADMIN})
    OPERATE = frozenset({Role.OPERATOR, Role.ADMIN})
    ADMINISTER = frozenset({Role.ADMIN})


class Reply(Struct, frozen=True, kw_only=True):
    """What is sent back."""

    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = {}
    #: Sent piece by piece instead of a body.
    stream: AsyncIterator[bytes] | None = None


class ApiCall(Struct, frozen=True, kw_only=True):
    """A request that was let in."""

    services: ApiServices
    caller: Caller
    #: The route's path with its names filled in.
    url: str
    path: Mapping[str, str]
    #: What was asked for, as the route's `query` has it; and the same as it was written.
    query: Any
    asked: Mapping[str, str]
    body: dict[str, Any]
    headers: Mapping[str, str]
    #: What is written down as having started what the caller starts.
    source: Source = Source.API

    @property
    def tenant(self) -> str:
        """Whose things the caller may see and touch."""
        return self.caller.tenant

    @property
    def actor(self) -> str:
        """Who is written down as having done it."""
        return self.caller.subject

    @property
    def key(self) -> str | None:
        """What makes asking again the same as asking once."""
        found = self.headers.get("idempotency-key")
        if found == "":
            raise FieldError("Idempotency-Key", found, "is empty")
        return found


class NoQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nothing can be asked for."""


class RequestBody(Struct, frozen=True, kw_only=True):
    """What a route takes."""

    schema: Mapping[str, Any]
    example: Mapping[str, Any]
    required: bool = True
    #: It may be as large as a file of jobs.
    many: bool = False


class Header(Struct, frozen=True, kw_only=True):
    """A header that a route heeds."""

    name: str
    about: str
    example: str


#: Where a request carries the certificate that its connection was opened with.
CERTIFICATE = "gnomon.certificate"
IDEMPOTENCY_KEY = Header(
    name="Idempotency-Key",
    about="Asking again with the same key does nothing new, and answers the same.",
    example="monday-1",
)


#: What all routes have in common that only look.
READ_DEFAULTS: dict[str, Any] = {"method": "GET", "permission": Permission.READ, "success": {200: "It is as told."}}
#: Looking at a page of what many may be looking at.
LIST_DEFAULTS: dict[str, Any] = {**READ_DEFAULTS, "shared": True}


class ApiRoute(Struct, frozen=True, kw_only=True):
    """One thing that can be asked for. A route that does not say who may cannot be made."""

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    name: str
    permission: Permission
    handle: Callable[[ApiCall], Awaitable[Reply]]
    #: The type of the answer; None if there is nothing to say.
    answer: Any
    #: What the statuses mean that tell of success.
    success: Mapping[int, str]
    query: type[Struct] = NoQuery
    body: RequestBody | None = None
    headers: tuple[Header, ...] = ()
    #: Which refusals are to be expected, besides those that every route may meet.
    error_statuses: tuple[int, ...] = ()
    example: Any = None
    #: Its answers have an ETag.
    has_etag: bool = False
    #: Its answer depends on tenant, address and query alone: those who ask the same at the same time get the same.
    shared: bool = False
    media_type: str = "application/json"

    @property
    def about(self) -> str:
        """What it does, in one sentence."""
        return (self.handle.__doc__ or "").strip().partition("\n")[0]

    @property
    def names(self) -> list[str]:
        """What stands in braces in its path."""
        return [part[1:-1] for part in self.path.split("/") if part.startswith("{")]
