"""Jobs: register, show, trigger, pause and delete one job; list jobs, coming fires and past ticks."""

from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import Annotated, Any, TypeVar

from msgspec import Meta, Struct
from msgspec.structs import replace

from gnomon.api.examples import APPLIED, DEFINITION, FIRE, JOB, JOB_LINE, STARTED, TICK
from gnomon.api.requests import CursorName, CursorNumber, body_fields, make_page, parse_instant, read_cursor
from gnomon.api.route import (
    IDEMPOTENCY_KEY,
    LIST_DEFAULTS,
    READ_DEFAULTS,
    ApiCall,
    ApiRoute,
    Cursor,
    Header,
    Instant,
    Limit,
    Name,
    Permission,
    Reply,
    RequestBody,
)
from gnomon.core.jobs.job import Job, read_job
from gnomon.core.jobs.json_schema import deadline_fields, job_schema
from gnomon.core.jobs.origins import with_origin
from gnomon.core.jobs.steps import DEADLINE_FIELDS, read_deadline
from gnomon.core.model import MINUTE_MS, Reason, Schedule, Tick, TickKind, TickStatus
from gnomon.core.responses.base import Page
from gnomon.core.responses.executions import Started
from gnomon.core.responses.jobs import (
    JobAgentUsage,
    JobApplied,
    JobDetail,
    JobSummary,
    LedgerTick,
    PlannedFire,
)
from gnomon.errors import FieldError, NameTaken, NotFound, Stale
from gnomon.ports.schedules import ScheduleOrder
from gnomon.services.operations.job_changes import JobChange, JobChangePlan
from gnomon.services.operations.job_search import JobFilter, JobStateFilter, ListedJob
from gnomon.services.operations.jobs import LAST_NAME, ApplyResult, JobView, PlanGuard, TickQuery
from gnomon.services.operations.presenters.executions import launch_response
from gnomon.services.operations.presenters.jobs import (
    job_agent_usage,
    job_applied,
    job_detail,
    job_etag,
    job_summary,
    ledger_tick,
    planned_fire,
)

#: The days whose usage of agents a job shows.
_AGENT_DAYS = 30
_IF_MATCH = Header(
    name="If-Match",
    about="The ETag of the job that the caller has read; the request fails with 412 if the job has changed since.",
    example='"sch_1.1"',
)
TRIGGER_SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "input": {"type": "object", "description": "Input of the execution, instead of the job's own."},
        "force": {
            "type": "boolean",
            "description": "Start even if another execution is active, whatever the overlap policy.",
        },
        **deadline_fields("How long the execution may take, with all waits and retries; the job may say less."),
    },
    "not": {"required": ["deadline", "budget"]},
}


#: How many jobs a list has at most if it tells why: each sentence may need the last hundred ticks of its job.
_MOST_TOLD = 100


class JobInclude(StrEnum):
    """The parts that a list of jobs has on request."""

    TICKS = "ticks"
    #: The ticks, and the newest one in a sentence.
    WHY = "why"


class JobsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The query of the list of jobs."""

    q: Annotated[
        Name | None, Meta(description="Only jobs with this text in their name, description or a tag, in any case.")
    ] = None
    tag: Annotated[Name | None, Meta(description="Only jobs with this tag.")] = None
    state: Annotated[
        JobStateFilter | None,
        Meta(
            description="Only jobs in this state; `failing`: the last execution of its newest ticks has failed;"
            " `overdue`: its next fire is."
        ),
    ] = None
    order: Annotated[
        ScheduleOrder,
        Meta(description="By name; by the next run, earliest first; or by the last decision on a tick, latest first."),
    ] = ScheduleOrder.NAME
    include: Annotated[
        JobInclude | None,
        Meta(
            description="`ticks`: the last twenty ticks of each job; `why`: these, and the newest in a sentence, the"
            " first of `/v1/jobs/{name}/why?last=1`, for a `limit` of at most 100."
        ),
    ] = None
    limit: Limit = 100
    cursor: Cursor | None = None


class JobQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The query of a job."""

    coming: Annotated[int, Meta(ge=0, le=1000, description="Number of coming planned times, of a century at most.")] = 5
    last: Annotated[int, Meta(ge=0, le=1000, description="Number of most recent ticks.")] = 10


class PlannedFiresQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The query of the list of coming fires."""

    hours: Annotated[int, Meta(ge=1, le=24 * 366, description="Hours to look ahead.")] = 24
    since: Annotated[Instant | None, Meta(description="Start at this instant instead of now.")] = None
    limit: Annotated[int, Meta(ge=1, le=10_001, description="Maximum number of items.")] = 1000
    cursor: Cursor | None = None


class TicksQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The query of the list of ticks."""

    job: Annotated[Name | None, Meta(description="Only ticks of this job.")] = None
    kind: Annotated[TickKind | None, Meta(description="Only ticks with this decision.")] = None
    reason: Annotated[Reason | None, Meta(description="Only ticks with this reason of the decision.")] = None
    status: Annotated[TickStatus | None, Meta(description="Only ticks with this status.")] = None
    since: Instant | None = None
    until: Instant | None = None
    limit: Limit = 100
    cursor: Cursor | None = None


def etag(schedule: Schedule) -> str:
    """The ETag header of the current revision of a job."""
    return f'"{job_etag(schedule)}"'


async def register(call: ApiCall) -> Reply:
    """Register a job. The same definition again changes nothing; another definition of that name is refused."""

    def only_if(plan: JobChangePlan) -> None:
        if plan.standing is not None and plan.change is not JobChange.UNCHANGED:
            raise NameTaken("job", plan.schedule.schedule_id)

    done, tag = await _applied(call, call.body, only_if)
    return Reply(
        body=job_applied(done),
        status=201 if done.change is JobChange.CREATED else 200,
        headers={"ETag": tag},
    )


async def update(call: ApiCall) -> Reply:
    """Replace the definition of a job. A paused job stays paused; `If-Match` guards against concurrent changes."""
    name = call.path["name"]
    if call.body.get("name", name) != name:
        raise FieldError("name", call.body["name"], f"differs from the name in the path: {name}")

    def only_if(plan: JobChangePlan) -> None:
        if plan.standing is None:
            raise NotFound("job", name)
        _refuse_stale(call, plan.standing)

    done, tag = await _applied(call, {**call.body, "name": name}, only_if)
    return Reply(body=job_applied(done), headers={"ETag": tag})


def _refuse_stale(call: ApiCall, standing: Schedule) -> None:
    """Raise Stale if the caller's If-Match does not name the current revision of the job."""
    if_match = call.headers.get("if-match")
    if if_match is not None and not {"*", etag(standing)} & {one.strip() for one in if_match.split(",")}:
        raise Stale("job", standing.schedule_id)


async def _applied(call: ApiCall, fields: dict[str, Any], only_if: PlanGuard) -> tuple[ApplyResult, str]:
    """Apply the definition; return the result and the new ETag."""
    job = await read_sent_job(call, fields, call.services.clock.now())
    tags: list[str] = []

    def checked(plan: JobChangePlan) -> None:
        only_if(plan)
        tags.append(etag(plan.schedule))

    [done] = await call.services.jobs.apply([job], actor=call.actor, tenant=call.tenant, only_if=checked)
    call.services.changed()
    return done, tags[-1]


async def read_sent_job(call: ApiCall, fields: dict[str, Any], now: int) -> Job:
    """Parse a job of a request."""
    job = await call.services.compute.read(fields, partial(read_job, fields, call.services.defaults, now=now))
    [registered] = with_origin([job], call.origin.value)
    return registered


async def list_jobs(call: ApiCall) -> Reply:
    """List jobs with their next run. A page may have fewer items than `limit` and still have a `next`."""
    query: JobsQuery = call.query
    if query.include is JobInclude.WHY and query.limit > _MOST_TOLD:
        raise FieldError("limit", query.limit, f"is larger than {_MOST_TOLD}, the most that `include=why` can tell")
    found = await call.services.job_search.page(
        JobFilter(text=query.q, tag=query.tag, state=query.state),
        tenant=call.tenant,
        order=query.order,
        after=await read_cursor(call, tuple[CursorNumber | None, CursorName]),
        limit=query.limit,
        with_ticks=query.include is not None,
    )
    decided = [one.view.schedule for one in found.items if one.ticks]
    told = await call.services.explainer.newest(decided) if query.include is JobInclude.WHY else {}

    def listed(one: ListedJob) -> JobSummary:
        return job_summary(one.view, one.ticks, told.get(one.view.schedule.uid))

    return Reply(body=await make_page(call, listed, found.items, found.after))


async def show(call: ApiCall) -> Reply:
    """Show a job with its definition, next planned times and last ticks. The ETag names its current revision."""
    query: JobQuery = call.query
    return await _shown(call, query)


async def _shown(call: ApiCall, query: JobQuery) -> Reply:
    view = await call.services.jobs.get(call.path["name"], tenant=call.tenant, coming=query.coming, last=query.last)
    body = job_detail(view, await _agent_usage(call, view), now=call.services.clock.now())
    return Reply(body=body, headers={"ETag": etag(view.schedule)})


async def _agent_usage(call: ApiCall, view: JobView) -> JobAgentUsage | None:
    """The usage of the agents of the job; None if it has none."""
    if view.workflow is None or not view.workflow.has_agents:
        return None
    found = await call.services.agent_usage.of_job(view.schedule.schedule_id, _AGENT_DAYS, tenant=call.tenant)
    return job_agent_usage(found, _AGENT_DAYS)


async def delete(call: ApiCall) -> Reply:
    """Delete a job. Its history is kept, active executions continue; `If-Match` guards against concurrent changes."""
    await call.services.jobs.delete(
        call.path["name"], actor=call.actor, tenant=call.tenant, only_if=lambda standing: _refuse_stale(call, standing)
    )
    call.services.changed()
    return Reply(status=204)


async def trigger(call: ApiCall) -> Reply:
    """Start an execution of a job now, even if the job is paused."""
    fields = body_fields(call.body, "input", "force", *DEADLINE_FIELDS)
    done = await call.services.launcher.trigger(
        call.path["name"],
        actor=call.actor,
        groups=call.caller.groups,
        input=call.body.get("input"),
        force=fields.flag("force", default=False),
        key=call.key,
        source=call.source,
        tenant=call.tenant,
        deadline_ms=read_deadline(fields),
    )
    call.services.changed()
    return Reply(body=launch_response(done), status=202)


async def pause(call: ApiCall) -> Reply:
    """Pause a job: no planned time starts an execution until the job is resumed."""
    await call.services.jobs.pause(call.path["name"], actor=call.actor, tenant=call.tenant)
    call.services.changed()
    return await _shown(call, JobQuery())


async def coming(call: ApiCall) -> Reply:
    """List the planned times of all jobs in the next hours, earliest first."""
    query: PlannedFiresQuery = call.query
    since = parse_instant("since", query.since)
    now = call.services.clock.now() if since is None else since
    # The cursor holds the instant and the job of the last fire, and the end of the first page.
    position = await read_cursor(call, tuple[CursorNumber, CursorName, CursorNumber])
    after, after_job, until = position or (now, LAST_NAME, now + query.hours * 60 * MINUTE_MS)
    fires = await call.services.jobs.upcoming(
        after=after, after_job=after_job, until=until, limit=query.limit + 1, tenant=call.tenant
    )
    shown = fires[: query.limit]
    more = (*shown[-1].position, until) if len(fires) > len(shown) else None
    return Reply(body=await make_page(call, planned_fire, shown, more))


async def list_ticks(call: ApiCall) -> Reply:
    """List ticks, newest first: planned times and the decision on each, of one job, or of all in one order of time."""
    query: TicksQuery = call.query
    filters = tick_query(
        since=query.since,
        until=query.until,
        limit=query.limit,
        kind=query.kind,
        reason=query.reason,
        status=query.status,
    )
    return Reply(body=await ticks_page(call, ledger_tick, filters, job=query.job))


def tick_query(
    *,
    since: str | None,
    until: str | None,
    limit: int,
    kind: TickKind | None = None,
    reason: Reason | None = None,
    status: TickStatus | None = None,
) -> TickQuery:
    """The filters of a list of ticks, with the bounds of a query."""
    bounds = {"since": parse_instant("since", since), "before": parse_instant("until", until)}
    given = {field: at for field, at in bounds.items() if at is not None}
    return TickQuery(kind=kind, reason=reason, status=status, limit=limit, **given)


T = TypeVar("T")


async def ticks_page(
    call: ApiCall, present: Callable[[Tick], T], filters: TickQuery, *, job: str | None, tag: str | None = None
) -> Page[T]:
    """A page of ticks, newest first: of one job, or of all in one order of time; job by job with `tag`."""
    if job is None and tag is None:
        last = await read_cursor(call, tuple[CursorNumber, CursorName])
        all_jobs = await call.services.search.ticks(filters, after=last, tenant=call.tenant)
        return await make_page(call, present, all_jobs.items, all_jobs.after)
    on = await read_cursor(call, tuple[CursorName, CursorNumber])
    if job is None:
        several = await call.services.search.ticks_by_job(filters, after=on, tag=tag or "", tenant=call.tenant)
        return await make_page(call, present, several.items, several.after)
    if tag is not None and not await call.services.search.is_tagged(job, tag, tenant=call.tenant):
        return await make_page(call, present, (), None)
    if on is not None:
        filters = replace(filters, before=on[1])
    found = await call.services.jobs.ledger(job, filters, tenant=call.tenant)
    return await make_page(call, present, found.ticks, None if found.before is None else (job, found.before))


#: The JSON Schema of a job: built once, used in several request bodies.
JOB_SCHEMA = job_schema()


def _job_body(*, named: bool) -> RequestBody:
    schema = JOB_SCHEMA
    example = {field: value for field, value in DEFINITION.items() if named or field != "name"}
    return RequestBody(schema=schema if named else {**schema, "required": []}, example=example)


ROUTES = (
    ApiRoute(
        method="POST",
        path="/v1/jobs",
        name="register_job",
        permission=Permission.ADMINISTER,
        handle=register,
        answer=JobApplied,
        success={201: "The job is registered.", 200: "The job was registered before with the same definition."},
        body=_job_body(named=True),
        error_statuses=(409,),
        example=APPLIED,
        has_etag=True,
    ),
    ApiRoute(
        path="/v1/jobs",
        name="list_jobs",
        handle=list_jobs,
        answer=Page[JobSummary],
        query=JobsQuery,
        example={"items": [JOB_LINE], "next": None},
        **LIST_DEFAULTS,
    ),
    ApiRoute(
        path="/v1/jobs/{name}",
        name="show_job",
        handle=show,
        answer=JobDetail,
        error_statuses=(404,),
        query=JobQuery,
        example=JOB,
        **READ_DEFAULTS,
        has_etag=True,
    ),
    ApiRoute(
        method="PUT",
        path="/v1/jobs/{name}",
        name="update_job",
        permission=Permission.ADMINISTER,
        handle=update,
        answer=JobApplied,
        success={200: "The job is updated."},
        body=_job_body(named=False),
        headers=(_IF_MATCH,),
        error_statuses=(404, 409, 412),
        example=APPLIED,
        has_etag=True,
    ),
    ApiRoute(
        method="DELETE",
        path="/v1/jobs/{name}",
        name="delete_job",
        permission=Permission.ADMINISTER,
        handle=delete,
        answer=None,
        success={204: "The job is deleted."},
        headers=(_IF_MATCH,),
        error_statuses=(404, 409, 412),
    ),
    ApiRoute(
        method="POST",
        path="/v1/jobs/{name}/trigger",
        name="trigger_job",
        permission=Permission.OPERATE,
        handle=trigger,
        answer=Started,
        success={202: "The execution has started, or is queued behind another."},
        body=RequestBody(schema=TRIGGER_SCHEMA, example={"input": {"day": "yesterday"}}, required=False),
        headers=(IDEMPOTENCY_KEY,),
        error_statuses=(404, 409),
        example=STARTED,
    ),
    ApiRoute(
        method="POST",
        path="/v1/jobs/{name}/pause",
        name="pause_job",
        permission=Permission.ADMINISTER,
        handle=pause,
        answer=JobDetail,
        success={200: "The job is paused."},
        error_statuses=(404, 409),
        example=JOB,
        has_etag=True,
    ),
    ApiRoute(
        path="/v1/schedule",
        name="list_planned_fires",
        handle=coming,
        answer=Page[PlannedFire],
        query=PlannedFiresQuery,
        example={"items": [FIRE], "next": None},
        **LIST_DEFAULTS,
    ),
    ApiRoute(
        path="/v1/ticks",
        name="list_ticks",
        handle=list_ticks,
        answer=Page[LedgerTick],
        query=TicksQuery,
        error_statuses=(404,),
        example={"items": [TICK], "next": None},
        **LIST_DEFAULTS,
    ),
)
