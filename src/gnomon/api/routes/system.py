"""The caller, workers, the policy of commands, the stream of changes, and health."""

from collections.abc import Sequence
from typing import Any

from gnomon.api.event_stream import EachChange, EventStream
from gnomon.api.examples import HEALTH, IDENTITY, SECURITY, WORKER
from gnomon.api.route import (
    LIST_DEFAULTS,
    READ_DEFAULTS,
    ApiCall,
    ApiRoute,
    Permission,
    Reply,
    short_roles,
)
from gnomon.core.health import NodeHealth
from gnomon.core.responses.base import Page
from gnomon.core.responses.system import CallerIdentity, HealthReport, SecurityStatus, WorkerDetail
from gnomon.errors import Unauthenticated, Unavailable
from gnomon.ports.tasks import WorkerInfo, as_seen_by_tenant
from gnomon.services.operations.presenters.system import caller_identity, health_report, security_status, worker_detail


async def list_workers(call: ApiCall) -> Reply:
    """List live workers, their load and their functions."""
    workers = call.services.workers
    found: Sequence[WorkerInfo] = await workers.alive()
    if not call.caller.is_operator:
        in_hand = await workers.in_hand_of(call.tenant)
        found = [as_seen_by_tenant(worker, in_hand.get(worker.worker, 0)) for worker in found]
    return Reply(body=Page(items=[worker_detail(worker) for worker in found]))


async def whoami(call: ApiCall) -> Reply:
    """Show who the caller is: its subject, tenant, roles and groups, and when its token expires."""
    return Reply(body=caller_identity(call.caller, short_roles(call.caller)))


async def security(call: ApiCall) -> Reply:
    """Show whether changes are refused, and how many guarded commands may still start within the hour."""
    policy = call.services.command_policy
    budget = await policy.budget(tenant=call.tenant)
    return Reply(body=security_status(budget, read_only=policy.read_only))


async def stream(call: ApiCall) -> Reply:
    """Stream changes of ticks, executions, tasks and dead letters as server-sent events."""
    headers = {"X-Accel-Buffering": "no"}
    # Subscribe before the status is sent: a caller for which there is no place gets an error, not a broken stream.
    return Reply(stream=EventStream(call, EachChange()), headers=headers)


async def health(call: ApiCall) -> Reply:
    """Report the health of the scheduler and of each component."""
    found = await call.services.health()
    return Reply(body=await _shown(call, found), status=200 if found.serves else 503)


async def _report(call: ApiCall) -> HealthReport:
    return await _shown(call, await call.services.health())


async def _shown(call: ApiCall, found: NodeHealth) -> HealthReport:
    return health_report(found, messages=await _may_read(call))


async def _may_read(call: ApiCall) -> bool:
    """Whether the caller, who may be anonymous, has a role of the operator's tenant that may read."""
    try:
        caller = await call.authenticate()
    except (Unauthenticated, Unavailable):
        return False
    return caller.is_operator and bool(caller.roles & Permission.READ.value)


async def ready(call: ApiCall) -> Reply:
    """Report whether this node is ready to serve requests."""
    report = await _report(call)
    return Reply(body=report, status=200 if report.ready else 503)


async def alive(call: ApiCall) -> Reply:
    """Report whether this process is alive or should be restarted."""
    report = await _report(call)
    return Reply(body=report, status=200 if report.alive else 503)


_HEALTH_DEFAULTS: dict[str, Any] = {
    "method": "GET",
    "permission": Permission.EVERYBODY,
    "answer": HealthReport,
    "example": HEALTH,
    "success": {200: "This server can serve requests.", 503: "A component of this server is not healthy."},
}
ROUTES = (
    ApiRoute(
        path="/v1/workers",
        name="list_workers",
        handle=list_workers,
        answer=Page[WorkerDetail],
        example={"items": [WORKER], "next": None},
        **LIST_DEFAULTS,
    ),
    ApiRoute(
        path="/v1/whoami",
        name="show_caller",
        handle=whoami,
        answer=CallerIdentity,
        example=IDENTITY,
        **READ_DEFAULTS,
    ),
    ApiRoute(
        path="/v1/security",
        name="show_security",
        handle=security,
        answer=SecurityStatus,
        example=SECURITY,
        **READ_DEFAULTS,
    ),
    ApiRoute(
        path="/v1/stream",
        name="follow_changes",
        handle=stream,
        answer=None,
        media_type="text/event-stream",
        **READ_DEFAULTS,
    ),
    ApiRoute(path="/v1/health", name="show_health", handle=health, **_HEALTH_DEFAULTS),
    ApiRoute(path="/readyz", name="show_readiness", handle=ready, **_HEALTH_DEFAULTS),
    ApiRoute(path="/livez", name="show_liveness", handle=alive, **_HEALTH_DEFAULTS),
)
