"""The parts of the API's route table: services, permissions, calls, replies and routes."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import Enum
from typing import Annotated, Any, Literal, Protocol, Self
from urllib.parse import unquote

from msgspec import Meta, Struct

from gnomon.config.sections import ServerSettings
from gnomon.core.health import NodeHealth
from gnomon.core.jobs.origins import OriginKind
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.model import RunSource
from gnomon.core.model_names import MODEL_HEADER, model_actor, model_name
from gnomon.errors import FieldError, Forbidden, NotFound, Unauthenticated
from gnomon.ports.auth import Caller, Role, TokenAuthenticator
from gnomon.ports.dry_runs import DryRunner
from gnomon.ports.runtime import Clock
from gnomon.ports.tasks import Workers
from gnomon.services.loop import ComputeQueue
from gnomon.services.observability.change_stream import ChangeStream
from gnomon.services.operations.agent_sessions import AgentSessionService
from gnomon.services.operations.agents import AgentUsageService
from gnomon.services.operations.announcements import AnnouncementService
from gnomon.services.operations.approvals import ApprovalService
from gnomon.services.operations.audit import AuditService
from gnomon.services.operations.backfills import BackfillService
from gnomon.services.operations.breakers import BreakerService
from gnomon.services.operations.bulk_changes import BulkChangeService
from gnomon.services.operations.calendar import CalendarService
from gnomon.services.operations.command_policy import CommandPolicyService
from gnomon.services.operations.dead_letters import DeadLetterService
from gnomon.services.operations.events import EventService
from gnomon.services.operations.executions import ExecutionService, SearchService
from gnomon.services.operations.explain import Explainer
from gnomon.services.operations.job_plan import Planner
from gnomon.services.operations.job_revisions import JobRevisionService
from gnomon.services.operations.job_search import JobSearchService
from gnomon.services.operations.jobs import JobService
from gnomon.services.operations.launcher import Launcher
from gnomon.services.operations.model_actions import ModelActions
from gnomon.services.operations.overview import OverviewService
from gnomon.services.operations.policy import PolicyService
from gnomon.services.operations.quarantine import QuarantineService
from gnomon.services.operations.schedules import ScheduleService
from gnomon.services.operations.sign_in_codes import SignInCodeService
from gnomon.services.operations.tasks import TaskService
from gnomon.services.operations.tokens import TokenService
from gnomon.services.operations.workflows import WorkflowService


class ModelServer(Protocol):
    """Answers the messages of models."""

    async def answer(self, call: "ApiCall") -> "Reply":
        """The answer to a message, which is the body of the request."""
        ...


class ApiServices(Struct, frozen=True, kw_only=True):
    """The services that requests use, over HTTP and from the command line, and the authentication of callers."""

    tokens: TokenAuthenticator
    jobs: JobService
    schedules: ScheduleService
    launcher: Launcher
    executions: ExecutionService
    search: SearchService
    overview: OverviewService
    job_search: JobSearchService
    bulk_changes: BulkChangeService
    calendar: CalendarService
    revisions: JobRevisionService
    workflows: WorkflowService
    events: EventService
    dead_letters: DeadLetterService
    announcements: AnnouncementService
    breakers: BreakerService
    agent_usage: AgentUsageService
    agent_sessions: AgentSessionService
    tasks: TaskService
    explainer: Explainer
    backfills: BackfillService
    planner: Planner
    audit: AuditService
    command_policy: CommandPolicyService
    #: Counts the changes of models.
    model_actions: ModelActions
    #: The policy of tasks.
    policy: PolicyService
    approvals: ApprovalService
    quarantine: QuarantineService
    dry_runner: DryRunner
    issued_tokens: TokenService
    sign_in_codes: SignInCodeService
    workers: Workers
    #: Reports the health of the node.
    health: Callable[[], Awaitable[NodeHealth]]
    change_stream: ChangeStream
    clock: Clock
    defaults: Defaults
    server: ServerSettings
    #: Returns the key of the store that seals cursors.
    cursor_key: Callable[[], Awaitable[bytes]]
    #: Runs the long computations of requests.
    compute: ComputeQueue
    #: The maximum number of characters of a token.
    max_token_length: int = 8192
    #: The callers that are identified by a client certificate, by the name in it.
    certificates: Mapping[str, Caller] = {}
    #: Whether the scheduler has work to do, which takes precedence over requests.
    busy: Callable[[], bool]
    #: Called for each request whose caller could not be identified, with the address of the client.
    login_failed: Callable[[Unauthenticated, str], None]
    #: None if this server has no tools for models.
    model_server: ModelServer | None = None
    #: Called after a change, to wake the loops that wait for one.
    changed: Callable[[], None]


Limit = Annotated[int, Meta(ge=1, le=1000, description="Maximum number of items.")]
Cursor = Annotated[str, Meta(max_length=2000, description="Position of the page, as found in `next`.")]
Instant = Annotated[str, Meta(max_length=64, description="An ISO 8601 instant, or milliseconds since 1970.")]
Name = Annotated[str, Meta(max_length=200)]
Prefix = Annotated[str, Meta(min_length=1, max_length=200)]


class PageQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The query of a list without filters."""

    limit: Limit = 100
    cursor: Cursor | None = None


class Permission(Enum):
    """The roles that may call a route; one of them is enough."""

    EVERYBODY = frozenset[Role]()
    READ = frozenset({Role.VIEWER, Role.OPERATOR, Role.ADMIN})
    OPERATE = frozenset({Role.OPERATOR, Role.ADMIN})
    ADMINISTER = frozenset({Role.ADMIN})


def missing_role(permission: Permission, caller: Caller) -> Forbidden:
    """The error for a caller that has none of the roles of a permission."""
    needed = " or ".join(_short(role) for role in Role if role in permission.value)
    return Forbidden(f"this needs the role {needed}; your token has {' and '.join(short_roles(caller)) or 'no role'}")


def refuse_without_role(route: "ApiRoute", caller: Caller) -> None:
    """Raise Forbidden unless the caller has a role that may call the route."""
    if not may_call(route, caller):
        raise missing_role(route.permission, caller)


def may_call(route: "ApiRoute", caller: Caller) -> bool:
    """Whether the caller has a role that may call the route."""
    return route.permission is Permission.EVERYBODY or bool(caller.roles & route.permission.value)


def short_roles(caller: Caller) -> list[str]:
    """The roles of the caller as they are named in commands, settings and the terms of approvals."""
    return sorted(map(_short, caller.roles))


def _short(role: str) -> str:
    """The role as it is named in commands and settings."""
    return role.removeprefix("scheduler-")


class ByteStream(Protocol):
    """A response that is made while it is sent: an asynchronous iterator that can be closed."""

    def __aiter__(self) -> Self:
        """Iterate over the chunks."""
        ...

    async def __anext__(self) -> bytes:
        """The next chunk."""
        ...

    async def aclose(self) -> None:
        """Release everything, also if nothing was read."""
        ...


def model_of(headers: Mapping[str, str]) -> str | None:
    """The model that makes the request with these headers; None if none does. FieldError for a bad name."""
    found = headers.get(MODEL_HEADER.lower())
    return None if found is None else model_name(MODEL_HEADER, found)


def acting(caller: Caller, headers: Mapping[str, str]) -> str:
    """The actor of the request of a caller with these headers."""
    model = model_of(headers)
    return caller.subject if model is None else model_actor(model, caller.subject)


class Reply(Struct, frozen=True, kw_only=True):
    """The response of a route."""

    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = {}
    #: Sent chunk by chunk instead of a body, and closed at the end.
    stream: ByteStream | None = None


class ApiCall(Struct, frozen=True, kw_only=True):
    """An authenticated and authorized request."""

    services: ApiServices
    caller: Caller
    #: The route's path with its parameters filled in.
    url: str
    path: Mapping[str, str]
    #: The query parameters, parsed by the route's `query` type, and as they were sent.
    query: Any
    raw_query: Mapping[str, str]
    body: dict[str, Any]
    headers: Mapping[str, str]
    #: The source that is recorded for executions that the call starts.
    source: RunSource = RunSource.API
    #: The origin that is recorded for jobs that the call registers.
    origin: OriginKind = OriginKind.API
    #: Identifies the caller by the token of the request, for a route that everybody may call, and again for a response
    #: that lasts. Unauthenticated if there is no token, or if it counts no longer.
    authenticate: Callable[[], Awaitable[Caller]]

    @property
    def tenant(self) -> str:
        """The tenant whose objects the caller may read and change."""
        return self.caller.tenant

    @property
    def actor(self) -> str:
        """The actor that the audit trail records: the caller, or a model that acts for it."""
        return acting(self.caller, self.headers)

    @property
    def key(self) -> str | None:
        """The idempotency key; None without one."""
        found = self.headers.get("idempotency-key")
        if found == "":
            raise FieldError("Idempotency-Key", found, "is empty")
        return found


class NoQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """No query parameters."""


class RequestBody(Struct, frozen=True, kw_only=True):
    """The body of a request: JSON Schema and example."""

    schema: Mapping[str, Any]
    example: Mapping[str, Any]
    required: bool = True
    #: The larger limit of `server.max_jobs_body` applies.
    many: bool = False
    #: One request is handled at a time, of all callers in turns.
    alone: bool = False
    #: Returns the name of the route that does the work of this body; None if that is its own route.
    works_as: Callable[[bytes], str | None] | None = None


class Header(Struct, frozen=True, kw_only=True):
    """A request header that a route reads."""

    name: str
    about: str
    example: str


#: The ASGI extension with the client certificate of the connection.
CERTIFICATE = "gnomon.certificate"
#: Read by every route that changes something.
MODEL = Header(
    name=MODEL_HEADER,
    about="The name of the model that makes the request for the caller: the actor of the audit trail. The change counts"
    " as an action of the tenant, and commands of jobs are guarded.",
    example="triage",
)
IDEMPOTENCY_KEY = Header(
    name="Idempotency-Key",
    about="A repeated request with the same key has no further effect and returns the same response.",
    example="monday-1",
)


#: The common fields of routes that only read.
READ_DEFAULTS: dict[str, Any] = {"method": "GET", "permission": Permission.READ, "success": {200: "Success."}}
#: The same for lists that many callers read at the same time.
LIST_DEFAULTS: dict[str, Any] = {**READ_DEFAULTS, "shared": True}


class ApiRoute(Struct, frozen=True, kw_only=True):
    """An operation of the API. The permission has no default: every route states who may call it."""

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    name: str
    permission: Permission
    handle: Callable[[ApiCall], Awaitable[Reply]]
    #: The type of the response body; None without one.
    answer: Any
    #: The statuses of success, with their meaning.
    success: Mapping[int, str]
    query: type[Struct] = NoQuery
    body: RequestBody | None = None
    headers: tuple[Header, ...] = ()
    #: The error statuses of this route, besides those that every route can return.
    error_statuses: tuple[int, ...] = ()
    example: Any = None
    #: Responses have an ETag.
    has_etag: bool = False
    #: The response depends only on tenant, path and query, so that concurrent equal requests share one response.
    shared: bool = False
    media_type: str = "application/json"

    @property
    def about(self) -> str:
        """The first line of the handler's docstring: the summary in the OpenAPI document."""
        return (self.handle.__doc__ or "").strip().partition("\n")[0]

    @property
    def changes(self) -> bool:
        """Whether it may change something: a request that only computes needs the permission to read."""
        return self.method != "GET" and self.permission in (Permission.OPERATE, Permission.ADMINISTER)

    @property
    def names(self) -> list[str]:
        """The names of the path parameters."""
        return [part[1:-1] for part in self.path.split("/") if part.startswith("{")]


def find_route(routes: Iterable[ApiRoute], method: str, path: str) -> tuple[ApiRoute, dict[str, str]]:
    """The route of a request, and its path parameters; NotFound if there is none."""
    words = path.split("/")
    for route in routes:
        parts = route.path.split("/")
        fits = len(parts) == len(words) and all(
            part.startswith("{") or part == word for part, word in zip(parts, words, strict=True)
        )
        if fits and route.method == method:
            pairs = zip(parts, words, strict=True)
            return route, {part[1:-1]: unquote(word) for part, word in pairs if part.startswith("{")}
    raise NotFound("address", path)


async def handle_call(route: ApiRoute, call: ApiCall) -> Reply:
    """The reply of the route; ChangesRefused if it may change something while the autonomy is read-only.

    A change of a model counts as an action of the tenant; ActionBudgetSpent if none is left.
    All requests pass here, those over HTTP and those of the command line.
    """
    if not route.changes:
        return await route.handle(call)
    call.services.command_policy.refuse_changes()
    if model_of(call.headers) is None:
        return await route.handle(call)
    async with call.services.model_actions.change(tenant=call.tenant):
        return await route.handle(call)
