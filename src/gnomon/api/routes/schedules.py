"""Schedules, workflows and the run launcher, for programs that deploy workflows as JSON."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from gnomon.api.examples import SCHEDULE, SCHEDULE_REQUEST, WORKFLOW, WORKFLOW_LINE
from gnomon.api.requests import CursorName, body_fields, make_full_page, read_cursor
from gnomon.api.route import (
    IDEMPOTENCY_KEY,
    LIST_DEFAULTS,
    ApiCall,
    ApiRoute,
    PageQuery,
    Permission,
    Reply,
    RequestBody,
)
from gnomon.core.model import Catchup, Overlap
from gnomon.core.responses.base import Page
from gnomon.core.responses.executions import Launched
from gnomon.core.responses.schedules import ScheduleDetail, ScheduleRegistered, WorkflowDeployed, WorkflowSummary
from gnomon.errors import FieldError
from gnomon.services.operations.presenters.common import optional_instant
from gnomon.services.operations.presenters.jobs import workflow_definition
from gnomon.services.operations.presenters.schedules import schedule_detail, workflow_deployed, workflow_summary

_TEXT = {"type": "string", "maxLength": 1000}
_NAME = {"type": "string", "pattern": "^[a-z0-9][a-z0-9._-]{0,127}$"}
_INSTANT = {"type": ["string", "integer", "null"]}
_OVERLAP = {"enum": [one.value for one in Overlap]}
_CATCHUP = {"enum": [*(one.value for one in Catchup), "fire_immediately"]}
_LAST_VERSION = 2**31 - 1
_VERSION = {"type": "integer", "minimum": 1, "maximum": _LAST_VERSION}
UPSERT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["workflow_id"],
    "oneOf": [{"required": ["schedule"]}, {"required": ["cron_expr"]}],
    "properties": {
        "schedule_id": {**_NAME, "description": "Generated if it is missing."},
        "workflow_id": _NAME,
        "workflow_version": _VERSION,
        "version": {**_VERSION, "description": "Another name for workflow_version."},
        "user_id": _TEXT,
        "schedule": {**_TEXT, "description": "Cron expression, macro or English sentence."},
        "cron_expr": {**_TEXT, "description": "Another name for schedule."},
        "timezone": _TEXT,
        "dialect": {"enum": ["standard", "posix"]},
        "dst": {"type": "object"},
        "start_at": _INSTANT,
        "end_at": _INSTANT,
        "overlap": _OVERLAP,
        "overlap_policy": {**_OVERLAP, "description": "Another name for overlap."},
        "catchup": _CATCHUP,
        "catchup_policy": {**_CATCHUP, "description": "Another name for catchup."},
        "jitter_ms": {"type": "integer", "minimum": 0, "maximum": 3_600_000},
        "misfire_grace_ms": {"type": "integer", "minimum": 0},
        "catchup_window_ms": {"type": "integer", "minimum": 0},
        "queue_limit": {"type": "integer", "minimum": 1, "maximum": 10_000},
    },
}
PAUSE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["schedule_id", "paused"],
    "properties": {"schedule_id": _NAME, "paused": {"type": "boolean"}},
}
START_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["workflow_id", "version", "scheduled_for"],
    "properties": {
        "workflow_id": _NAME,
        "version": _VERSION,
        "user_id": {**_TEXT, "description": "The user on whose behalf it runs; the caller by default."},
        "scheduled_for": {"type": ["string", "integer"], "description": "The instant that the run is planned for."},
        "idempotency_key": {"type": "string", "minLength": 1, "maxLength": 255},
    },
}
WORKFLOW_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "A graph of steps with its triggers; steps have the fields of a job's steps.",
    "anyOf": [{"required": ["workflow_id"]}, {"required": ["id"]}],
}


class ScheduleQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The query of a schedule."""

    coming: Annotated[int, Meta(ge=0, le=100, description="Number of coming planned times.")] = 5
    last: Annotated[int, Meta(ge=0, le=1000, description="Number of most recent ticks.")] = 10


class WorkflowVersionQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The query of a workflow."""

    version: Annotated[int, Meta(ge=1, le=_LAST_VERSION, description="The newest by default.")] | None = None


async def upsert(call: ApiCall) -> Reply:
    """Create or update a schedule. Idempotent; a paused schedule stays paused."""
    schedules, origin = call.services.schedules, call.origin.value
    workflow, version = schedules.requested_workflow(call.body)
    await call.services.command_policy.refuse_timing_open_commands(workflow, version, origin=origin, tenant=call.tenant)
    done = await schedules.upsert(call.body, actor=call.actor, tenant=call.tenant, origin=origin)
    call.services.changed()
    coming = optional_instant(done.next_run_at)
    return Reply(body=ScheduleRegistered(schedule_id=done.schedule_id, next_run_at=coming))


async def pause(call: ApiCall) -> Reply:
    """Pause or resume a schedule."""
    fields = body_fields(call.body, "schedule_id", "paused")
    name, schedules = fields.name("schedule_id"), call.services.schedules
    fields.required("paused")
    act = schedules.pause if fields.flag("paused", default=True) else schedules.resume
    await act(name, actor=call.actor, tenant=call.tenant)
    call.services.changed()
    return Reply(body=schedule_detail(await schedules.get(name, tenant=call.tenant)))


async def delete(call: ApiCall) -> Reply:
    """Delete a schedule. Its history is kept."""
    await call.services.schedules.delete(call.path["id"], actor=call.actor, tenant=call.tenant)
    call.services.changed()
    return Reply(status=204)


async def show(call: ApiCall) -> Reply:
    """Show a schedule with its next planned times and its last ticks."""
    query: ScheduleQuery = call.query
    view = await call.services.schedules.get(call.path["id"], tenant=call.tenant, coming=query.coming, last=query.last)
    return Reply(body=schedule_detail(view))


async def start(call: ApiCall) -> Reply:
    """Start a run of a workflow version, once per idempotency key; `started` is false if there is no such workflow."""
    fields = body_fields(call.body, "workflow_id", "version", "user_id", "scheduled_for", "idempotency_key")
    fields.required("version")
    scheduled_for = fields.instant("scheduled_for")
    if scheduled_for is None:
        raise FieldError("scheduled_for", None, "is missing")
    started = await call.services.launcher.start(
        fields.name("workflow_id"),
        fields.whole("version", 1, low=1, high=_LAST_VERSION),
        fields.text("user_id", call.actor),
        scheduled_for,
        fields.text("idempotency_key", call.key),
        actor=call.actor,
        groups=call.caller.groups,
        tenant=call.tenant,
    )
    call.services.changed()
    return Reply(body=Launched(started=started))


async def deploy(call: ApiCall) -> Reply:
    """Store a workflow definition as a new version and register its triggers. Idempotent."""
    done = await call.services.workflows.deploy(
        call.body, actor=call.actor, tenant=call.tenant, origin=call.origin.value
    )
    call.services.changed()
    return Reply(body=workflow_deployed(done), status=201 if done.new else 200)


async def list_workflows(call: ApiCall) -> Reply:
    """List the newest version of every workflow, by name."""
    query: PageQuery = call.query
    found = await call.services.workflows.page(
        after=await read_cursor(call, CursorName) or "", limit=query.limit, tenant=call.tenant
    )
    return Reply(body=await make_full_page(call, workflow_summary, found, lambda one: one.workflow_id))


async def show_workflow(call: ApiCall) -> Reply:
    """Show a version of a workflow."""
    query: WorkflowVersionQuery = call.query
    found = await call.services.workflows.get(call.path["id"], query.version, tenant=call.tenant)
    return Reply(body=workflow_definition(found))


_DEPLOYED = {"workflow_id": "etl", "version": 1, "new": True, "schedules": ["etl.nightly"], "removed": []}
_START = {"workflow_id": "etl", "version": 1, "scheduled_for": "2026-03-02T02:00:00Z", "idempotency_key": "monday"}
ROUTES = (
    ApiRoute(
        method="POST",
        path="/v1/schedules/upsert",
        name="upsert_schedule",
        permission=Permission.ADMINISTER,
        handle=upsert,
        answer=ScheduleRegistered,
        success={200: "The schedule is created or updated."},
        error_statuses=(409,),
        body=RequestBody(schema=UPSERT_SCHEMA, example=SCHEDULE_REQUEST),
        example={"schedule_id": "nightly", "next_run_at": "2026-03-02T02:00:00Z"},
    ),
    ApiRoute(
        method="POST",
        path="/v1/schedules/pause",
        name="pause_schedule",
        permission=Permission.ADMINISTER,
        handle=pause,
        answer=ScheduleDetail,
        success={200: "The schedule is paused or resumed."},
        error_statuses=(404, 409),
        body=RequestBody(schema=PAUSE_SCHEMA, example={"schedule_id": "nightly", "paused": True}),
        example={**SCHEDULE, "paused": True, "next_run_at": None},
    ),
    ApiRoute(
        method="DELETE",
        path="/v1/schedules/{id}",
        name="delete_schedule",
        permission=Permission.ADMINISTER,
        handle=delete,
        answer=None,
        success={204: "The schedule is deleted."},
        error_statuses=(404, 409),
    ),
    ApiRoute(
        method="GET",
        path="/v1/schedules/{id}",
        name="show_schedule",
        permission=Permission.READ,
        handle=show,
        answer=ScheduleDetail,
        success={200: "The schedule."},
        query=ScheduleQuery,
        error_statuses=(404,),
        example=SCHEDULE,
    ),
    ApiRoute(
        method="POST",
        path="/v1/run-launcher/start",
        name="start_run",
        permission=Permission.OPERATE,
        handle=start,
        answer=Launched,
        success={200: "Whether the run has started."},
        headers=(IDEMPOTENCY_KEY,),
        error_statuses=(409,),
        body=RequestBody(schema=START_SCHEMA, example=_START),
        example={"started": True},
    ),
    ApiRoute(
        method="POST",
        path="/v1/workflows",
        name="deploy_workflow",
        permission=Permission.ADMINISTER,
        handle=deploy,
        answer=WorkflowDeployed,
        success={201: "A new version is stored.", 200: "The newest version is the same: nothing has changed."},
        body=RequestBody(schema=WORKFLOW_SCHEMA, example=WORKFLOW),
        error_statuses=(404, 409),
        example=_DEPLOYED,
    ),
    ApiRoute(
        path="/v1/workflows",
        name="list_workflows",
        handle=list_workflows,
        query=PageQuery,
        answer=Page[WorkflowSummary],
        example={"items": [WORKFLOW_LINE], "next": None},
        **LIST_DEFAULTS,
    ),
    ApiRoute(
        method="GET",
        path="/v1/workflows/{id}",
        name="show_workflow",
        permission=Permission.READ,
        handle=show_workflow,
        answer=dict[str, Any],
        success={200: "The definition."},
        query=WorkflowVersionQuery,
        error_statuses=(404,),
        example={**WORKFLOW, "version": 1},
    ),
)
