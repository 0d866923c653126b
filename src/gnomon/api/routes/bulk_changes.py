"""Changes of many jobs or executions: by name, or by the filters of their lists; with a preview."""

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta, Struct

from gnomon.api.requests import CursorName, CursorNumber, body_fields, make_page, parse_instant, read_cursor
from gnomon.api.route import (
    IDEMPOTENCY_KEY,
    ApiCall,
    ApiRoute,
    Cursor,
    Instant,
    Limit,
    Name,
    Permission,
    Reply,
    RequestBody,
)
from gnomon.api.routes.tick_exceptions import RESUME_SCHEMA, read_resume_choice
from gnomon.core.jobs.fields import FieldReader, printable, schedule_name
from gnomon.core.model import RunSource, RunStatus
from gnomon.core.responses.base import Page
from gnomon.core.responses.bulk_changes import ExecutionCancelled, JobChanged
from gnomon.core.runs.states import WaitReason
from gnomon.errors import FieldError
from gnomon.ports.runs import RunQuery
from gnomon.services.operations.bulk_changes import JobSelection
from gnomon.services.operations.job_search import JobFilter, JobStateFilter
from gnomon.services.operations.presenters.bulk_changes import execution_cancelled, job_changed

#: The maximum number of objects that a request names.
_MOST_NAMED = 500


class ManyJobsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The query of a change of many jobs."""

    q: Annotated[
        Name | None, Meta(description="Only jobs with this text in their name, description or a tag, in any case.")
    ] = None
    tag: Annotated[Name | None, Meta(description="Only jobs with this tag.")] = None
    state: Annotated[JobStateFilter | None, Meta(description="Only jobs in this state.")] = None
    limit: Limit = 100
    cursor: Cursor | None = None


class ManyExecutionsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The query of a cancellation of many executions."""

    job: Annotated[Name | None, Meta(description="Only executions of this job.")] = None
    trigger: Annotated[RunSource | None, Meta(description="Only executions started this way.")] = None
    status: Annotated[RunStatus | None, Meta(description="Only `pending` or `running` executions.")] = None
    waiting: Annotated[
        WaitReason | None, Meta(description="Only executions of which a step waits for this reason.")
    ] = None
    tag: Annotated[Name | None, Meta(description="Only executions of jobs with this tag.")] = None
    since: Instant | None = None
    until: Instant | None = None
    limit: Limit = 100
    cursor: Cursor | None = None


def _schema(names: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON Schema
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            names: {
                "type": "array",
                "minItems": 1,
                "maxItems": _MOST_NAMED,
                "items": {"type": "string", "minLength": 1, "maxLength": 200},
                "description": "Only these; not with a filter of the query.",
            },
            "all": {"type": "boolean", "description": "Required if there is neither a name nor a filter."},
            "preview": {"type": "boolean", "description": "Change nothing: show what would be changed."},
            **fields,
        },
    }


def _named(call: ApiCall, fields: FieldReader, names: str) -> list[str] | None:
    """The names in the body; None if a filter selects. FieldError if nothing does, or both do."""
    filters = {field: value for field, value in call.raw_query.items() if field not in ("limit", "cursor")}
    everything = fields.flag("all", default=False)
    if names not in fields:
        if not filters and not everything:
            raise FieldError("all", everything, f"must be true to change all: there are no {names} and no filter")
        return None
    if everything:
        raise FieldError("all", everything, f"cannot be used with {names}")
    for field, value in call.raw_query.items():
        raise FieldError(field, value, f"cannot be used with {names}")
    found = [printable(path, one, longest=200) for path, one in fields.entries(names, most=_MOST_NAMED)]
    if not found:
        raise FieldError(names, fields[names], "is empty")
    return list(dict.fromkeys(found))


async def _job_selection(call: ApiCall, fields: FieldReader) -> JobSelection:
    query: ManyJobsQuery = call.query
    named = _named(call, fields, "names")
    return JobSelection(
        names=None if named is None else [schedule_name("names", name) for name in named],
        filters=JobFilter(text=query.q, tag=query.tag, state=query.state),
        after=await read_cursor(call, tuple[CursorNumber | None, CursorName]),
        limit=query.limit,
    )


async def pause_jobs(call: ApiCall) -> Reply:
    """Pause many jobs: no planned time starts an execution until a job is resumed."""
    fields = body_fields(call.body, "names", "all", "preview")
    preview, selection = fields.flag("preview", default=False), await _job_selection(call, fields)
    done = await call.services.bulk_changes.pause(selection, actor=call.actor, tenant=call.tenant, preview=preview)
    call.services.changed()
    return Reply(body=await make_page(call, job_changed, done.items, done.after))


async def resume_jobs(call: ApiCall) -> Reply:
    """Resume many jobs. Runs missed during their pauses are recorded as skipped unless `missed` selects them."""
    fields = body_fields(call.body, "names", "all", "preview", "missed", "since", "over")
    missed, preview = read_resume_choice(fields), fields.flag("preview", default=False)
    selection = await _job_selection(call, fields)
    done = await call.services.bulk_changes.resume(
        selection, missed, actor=call.actor, tenant=call.tenant, preview=preview
    )
    call.services.changed()
    return Reply(body=await make_page(call, job_changed, done.items, done.after))


async def trigger_jobs(call: ApiCall) -> Reply:
    """Start an execution of many jobs now, also of paused ones; once per idempotency key."""
    fields = body_fields(call.body, "names", "all", "preview", "input")
    given = call.body.get("input")
    if given is not None and not isinstance(given, Mapping):
        raise FieldError("input", given, "must be a mapping")
    preview, selection = fields.flag("preview", default=False), await _job_selection(call, fields)
    done = await call.services.bulk_changes.trigger(
        selection,
        actor=call.actor,
        groups=call.caller.groups,
        tenant=call.tenant,
        input=given,
        key=call.key,
        source=call.source,
        preview=preview,
    )
    call.services.changed()
    return Reply(body=await make_page(call, job_changed, done.items, done.after))


async def cancel_executions(call: ApiCall) -> Reply:
    """Cancel many executions that have not ended, newest first: pending steps at once, running ones as they stop."""
    query: ManyExecutionsQuery = call.query
    fields = body_fields(call.body, "ids", "all", "preview")
    if query.status not in (None, RunStatus.PENDING, RunStatus.RUNNING):
        raise FieldError("status", query.status.value, "must be pending or running: others have ended")
    filters = RunQuery(
        tenant=schedule_name("tenant", call.tenant),
        schedule_id=None if query.job is None else schedule_name("job", query.job),
        status=query.status,
        source=query.trigger,
        wait_reason=query.waiting,
        unfinished=True,
        since=parse_instant("since", query.since),
        until=parse_instant("until", query.until),
        after=await read_cursor(call, tuple[CursorNumber, CursorName]),
        limit=query.limit,
    )
    done = await call.services.bulk_changes.cancel(
        filters,
        actor=call.actor,
        ids=_named(call, fields, "ids"),
        tag=query.tag,
        preview=fields.flag("preview", default=False),
    )
    call.services.changed()
    return Reply(body=await make_page(call, execution_cancelled, done.items, done.after))


_OUTCOME: dict[str, Any] = {
    "job": "report",
    "became": "paused",
    "refused": None,
    "execution_id": None,
    "swallowed": None,
    "runs": None,
}
_SWALLOWED = {"count": 3, "first_at": "2026-03-02T14:00:00Z", "last_at": "2026-03-04T14:00:00Z"}
_LOOKING = {"all": True, "preview": True}
_INPUT = {"type": "object", "description": "Input of the executions, instead of the jobs' own."}


def _route(**fields: Any) -> ApiRoute:  # noqa: ANN401 - fields of a route
    return ApiRoute(method="POST", success={200: "The outcome of each."}, error_statuses=(404,), **fields)


ROUTES = (
    _route(
        path="/v1/bulk/jobs/pause",
        name="pause_jobs",
        permission=Permission.ADMINISTER,
        handle=pause_jobs,
        query=ManyJobsQuery,
        body=RequestBody(schema=_schema("names"), example=_LOOKING, required=False),
        answer=Page[JobChanged],
        example={"items": [_OUTCOME], "next": None},
    ),
    _route(
        path="/v1/bulk/jobs/resume",
        name="resume_jobs",
        permission=Permission.ADMINISTER,
        handle=resume_jobs,
        query=ManyJobsQuery,
        body=RequestBody(
            schema=_schema("names", **RESUME_SCHEMA["properties"]),
            example={**_LOOKING, "missed": "latest"},
            required=False,
        ),
        answer=Page[JobChanged],
        example={"items": [{**_OUTCOME, "became": "resumed", "swallowed": _SWALLOWED, "runs": 1}], "next": None},
    ),
    _route(
        path="/v1/bulk/jobs/trigger",
        name="trigger_jobs",
        permission=Permission.OPERATE,
        handle=trigger_jobs,
        query=ManyJobsQuery,
        body=RequestBody(schema=_schema("names", input=_INPUT), example=_LOOKING, required=False),
        headers=(IDEMPOTENCY_KEY,),
        answer=Page[JobChanged],
        example={"items": [{**_OUTCOME, "became": "started", "execution_id": "run_1"}], "next": None},
    ),
    _route(
        path="/v1/bulk/executions/cancel",
        name="cancel_executions",
        permission=Permission.OPERATE,
        handle=cancel_executions,
        query=ManyExecutionsQuery,
        body=RequestBody(schema=_schema("ids"), example=_LOOKING, required=False),
        answer=Page[ExecutionCancelled],
        example={
            "items": [{"execution_id": "run_1", "job": "report", "became": "cancelled", "refused": None}],
            "next": None,
        },
    ),
)
