"""Schedules, workflows and the run launcher, for programs that deploy graphs of steps."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from gnomon.api.examples import SCHEDULE, SCHEDULE_REQUEST, WORKFLOW, WORKFLOW_LINE
from gnomon.api.requests import body_fields, make_page, read_cursor
from gnomon.api.route import (
    IDEMPOTENCY_KEY,
    LIST_DEFAULTS,
    ApiCall,
    ApiRoute,
    Cursor,
    Limit,
    Permission,
    Reply,
    RequestBody,
)
from gnomon.core import responses
from gnomon.core.jobs.export import workflow_as_data
from gnomon.core.model import Catchup, Overlap
from gnomon.errors import FieldError
from gnomon.services.operations.presenters import optional_instant, schedule_detail, workflow_deployed, workflow_summary

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
        "schedule_id": {**_NAME, "description": "Made up if it is not given."},
        "workflow_id": _NAME,
        "workflow_version": _VERSION,
        "version": {**_VERSION, "description": "Another name for workflow_version."},
        "user_id": _TEXT,
        "schedule": {**_TEXT, "description": "Cron, a macro or a sentence."},
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
        "user_id": _TEXT,
        "scheduled_for": {"type": ["string", "integer"], "description": "The instant that it is planned for."},
        "idempotency_key": {"type": "string", "minLength": 1, "maxLength": 255},
    },
}
WORKFLOW_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "A graph of steps, in the words of a job, with the triggers that belong to it.",
    "anyOf": [{"required": ["workflow_id"]}, {"required": ["id"]}],
}


class LastAsked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much to show of a schedule."""

    coming: Annotated[int, Meta(ge=0, le=100, description="How many planned times to come.")] = 5
    last: Annotated[int, Meta(ge=0, le=1000, description="How many decisions.")] = 10


class WorkflowsAsked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which workflows to list."""

    limit: Limit = 100
    cursor: Cursor | None = None


class VersionAsked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which version of a workflow to show."""

    version: Annotated[int, Meta(ge=1, le=_LAST_VERSION, description="The newest, if not given.")] | None = None


async def upsert(call: ApiCall) -> Reply:
    """Make a schedule say what is said. Saying it again changes nothing; a pause goes on."""
    done = await call.services.registrar.upsert(call.body, actor=call.actor, tenant=call.tenant)
    call.services.changed()
    coming = optional_instant(done.next_run_at)
    return Reply(body=responses.ScheduleRegistered(schedule_id=done.schedule_id, next_run_at=coming))


async def pause(call: ApiCall) -> Reply:
    """Pause a schedule, or let it go on."""
    said = body_fields(call.body, "schedule_id", "paused")
    name, registrar = said.name("schedule_id"), call.services.registrar
    said.required("paused")
    act = registrar.pause if said.flag("paused", default=True) else registrar.resume
    await act(name, actor=call.actor, tenant=call.tenant)
    call.services.changed()
    return Reply(body=schedule_detail(await registrar.get(name, tenant=call.tenant)))


async def delete(call: ApiCall) -> Reply:
    """Delete a schedule. Its history stays."""
    await call.services.registrar.delete(call.path["id"], actor=call.actor, tenant=call.tenant)
    call.services.changed()
    return Reply(status=204)


async def show(call: ApiCall) -> Reply:
    """Show a schedule with its next planned times and its last decisions."""
    asked: LastAsked = call.query
    view = await call.services.registrar.get(call.path["id"], tenant=call.tenant, coming=asked.coming, last=asked.last)
    return Reply(body=schedule_detail(view))


async def start(call: ApiCall) -> Reply:
    """Start a run of a workflow, once for each key; `started` is false if there is no such workflow."""
    said = body_fields(call.body, "workflow_id", "version", "user_id", "scheduled_for", "idempotency_key")
    said.required("version")
    scheduled_for = said.instant("scheduled_for")
    if scheduled_for is None:
        raise FieldError("scheduled_for", None, "is missing")
    started = await call.services.launcher.start(
        said.name("workflow_id"),
        said.whole("version", 1, low=1, high=_LAST_VERSION),
        said.text("user_id", call.actor),
        scheduled_for,
        said.text("idempotency_key", call.key),
        tenant=call.tenant,
    )
    call.services.changed()
    return Reply(body=responses.Launched(started=started))


async def deploy(call: ApiCall) -> Reply:
    """Keep a workflow as a new version, and let its triggers stand. Doing it again changes nothing."""
    done = await call.services.workflows.deploy(call.body, actor=call.actor, tenant=call.tenant)
    call.services.changed()
    return Reply(body=workflow_deployed(done), status=201 if done.new else 200)


async def list_workflows(call: ApiCall) -> Reply:
    """List workflows by name, each in its newest version."""
    asked: WorkflowsAsked = call.query
    found = await call.services.workflows.page(
        after=read_cursor(call, str) or "", limit=asked.limit, tenant=call.tenant
    )
    after = found[-1].workflow_id if len(found) == asked.limit else None
    return Reply(body=make_page(call, [workflow_summary(one) for one in found], after))


async def show_workflow(call: ApiCall) -> Reply:
    """Show a version of a workflow."""
    asked: VersionAsked = call.query
    found = await call.services.workflows.get(call.path["id"], asked.version, tenant=call.tenant)
    return Reply(body=workflow_as_data(found))


_DEPLOYED = {"workflow_id": "etl", "version": 1, "new": True, "schedules": ["etl.nightly"], "removed": []}
_START = {"workflow_id": "etl", "version": 1, "scheduled_for": "2026-03-02T02:00:00Z", "idempotency_key": "monday"}
ROUTES = (
    ApiRoute(
        method="POST",
        path="/v1/schedules/upsert",
        name="upsert_schedule",
        permission=Permission.ADMINISTER,
        handle=upsert,
        answer=responses.ScheduleRegistered,
        success={200: "It stands as said."},
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
        answer=responses.ScheduleDetail,
        success={200: "It is as asked for."},
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
        success={204: "It is gone."},
        error_statuses=(404, 409),
    ),
    ApiRoute(
        method="GET",
        path="/v1/schedules/{id}",
        name="show_schedule",
        permission=Permission.READ,
        handle=show,
        answer=responses.ScheduleDetail,
        success={200: "It is as told."},
        query=LastAsked,
        error_statuses=(404,),
        example=SCHEDULE,
    ),
    ApiRoute(
        method="POST",
        path="/v1/run-launcher/start",
        name="start_run",
        permission=Permission.OPERATE,
        handle=start,
        answer=responses.Launched,
        success={200: "Whether it could be started is told."},
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
        answer=responses.WorkflowDeployed,
        success={201: "It is a new version.", 200: "It was the newest already."},
        body=RequestBody(schema=WORKFLOW_SCHEMA, example=WORKFLOW),
        error_statuses=(404, 409),
        example=_DEPLOYED,
    ),
    ApiRoute(
        path="/v1/workflows",
        name="list_workflows",
        handle=list_workflows,
        query=WorkflowsAsked,
        answer=responses.Page[responses.WorkflowSummary],
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
        success={200: "It is as told."},
        query=VersionAsked,
        error_statuses=(404,),
        example={**WORKFLOW, "version": 1},
    ),
)
