"""Jobs: register, apply, plan, show, trigger, pause, resume, skip and delete; coming fires and past ticks."""

import asyncio
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from gnomon.api.examples import APPLIED, DEFINITION, FIRE, JOB, JOB_LINE, STARTED, TICK
from gnomon.api.requests import body_fields, make_page, parse_instant, read_cursor
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
from gnomon.core import responses
from gnomon.core.jobs.fields import FieldReader, printable
from gnomon.core.jobs.job import JOB_FIELDS, Job, read_job, schedule_field_error
from gnomon.core.jobs.json_schema import job_schema
from gnomon.core.jobs.steps import LONGEST_TAG
from gnomon.core.ledger.edits import ResumeChoice, ResumePolicy
from gnomon.core.ledger.forecast import MOST_WALKED
from gnomon.core.model import DAY_MS, MINUTE_MS, Schedule, TickKind, TickStatus
from gnomon.core.responses import JobApplied, JobDetail, JobResumed, JobsPlanned, Page
from gnomon.core.runs.expressions import SECRET_BEGINS
from gnomon.errors import CronError, FieldError, Forbidden, NameTaken, NotFound, Stale
from gnomon.services.operations import presenters
from gnomon.services.operations.job_changes import JobChange, JobChangePlan, Prune
from gnomon.services.operations.jobs import ApplyResult, PlanGuard, TickQuery
from gnomon.services.operations.presenters import job_applied, job_detail, job_resumed, jobs_planned

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
    },
}


class JobsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The query of the list of jobs."""

    tag: Annotated[Name | None, Meta(description="Only jobs with this tag.")] = None
    limit: Limit = 100
    cursor: Cursor | None = None


class JobQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The query of a job."""

    coming: Annotated[int, Meta(ge=0, le=1000, description="Number of coming planned times.")] = 5
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
    status: Annotated[TickStatus | None, Meta(description="Only ticks with this status.")] = None
    since: Instant | None = None
    until: Instant | None = None
    limit: Limit = 100
    cursor: Cursor | None = None


def etag(schedule: Schedule) -> str:
    """The ETag header of the current revision of a job."""
    return f'"{presenters.job_etag(schedule)}"'


async def register(call: ApiCall) -> Reply:
    """Register a job. The same definition again changes nothing; another definition of that name is refused."""

    def only_if(plan: JobChangePlan) -> None:
        if plan.standing is not None and plan.change is not JobChange.UNCHANGED:
            raise NameTaken("job", plan.schedule.schedule_id)

    done, tag = await _applied(call, call.body, only_if)
    return Reply(
        body=presenters.job_applied(done),
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
    return Reply(body=presenters.job_applied(done), headers={"ETag": tag})


def _refuse_stale(call: ApiCall, standing: Schedule) -> None:
    """Raise Stale if the caller's If-Match does not name the current revision of the job."""
    if_match = call.headers.get("if-match")
    if if_match is not None and not {"*", etag(standing)} & {one.strip() for one in if_match.split(",")}:
        raise Stale("job", standing.schedule_id)


async def _applied(call: ApiCall, fields: dict[str, Any], only_if: PlanGuard) -> tuple[ApplyResult, str]:
    """Apply the definition; return the result and the new ETag."""
    job = read_job(fields, call.services.defaults, now=call.services.clock.now())
    tags: list[str] = []

    def checked(plan: JobChangePlan) -> None:
        only_if(plan)
        tags.append(etag(plan.schedule))

    [done] = await call.services.jobs.apply([job], actor=call.actor, tenant=call.tenant, only_if=checked)
    call.services.changed()
    return done, tags[-1]


async def list_jobs(call: ApiCall) -> Reply:
    """List jobs by name with their next run."""
    query: JobsQuery = call.query
    after = read_cursor(call, str) or ""
    found = await call.services.search.jobs(tag=query.tag, after=after, limit=query.limit, tenant=call.tenant)
    return Reply(body=make_page(call, [presenters.job_summary(view) for view in found.items], found.after))


async def show(call: ApiCall) -> Reply:
    """Show a job with its definition, next planned times and last ticks. The ETag names its current revision."""
    query: JobQuery = call.query
    return await _shown(call, query)


async def _shown(call: ApiCall, query: JobQuery) -> Reply:
    view = await call.services.jobs.get(call.path["name"], tenant=call.tenant, coming=query.coming, last=query.last)
    return Reply(body=presenters.job_detail(view), headers={"ETag": etag(view.schedule)})


async def delete(call: ApiCall) -> Reply:
    """Delete a job. Its history is kept, active executions continue; `If-Match` guards against concurrent changes."""
    await call.services.jobs.delete(
        call.path["name"], actor=call.actor, tenant=call.tenant, only_if=lambda standing: _refuse_stale(call, standing)
    )
    call.services.changed()
    return Reply(status=204)


async def trigger(call: ApiCall) -> Reply:
    """Start an execution of a job now, even if the job is paused."""
    fields = body_fields(call.body, "input", "force")
    _refuse_secrets(call)
    done = await call.services.launcher.trigger(
        call.path["name"],
        actor=call.actor,
        input=call.body.get("input"),
        force=fields.flag("force", default=False),
        key=call.key,
        source=call.source,
        tenant=call.tenant,
    )
    call.services.changed()
    return Reply(body=presenters.launch_response(done), status=202)


def _refuse_secrets(call: ApiCall) -> None:
    """Raise Forbidden if a caller who may not write jobs names a secret: the job might send it anywhere."""
    given = msgspec.json.encode(call.body.get("input")).decode()
    if not call.caller.roles & Permission.ADMINISTER.value and SECRET_BEGINS.search(given):
        roles = ", ".join(sorted(Permission.ADMINISTER.value))
        raise Forbidden(f"input names a secret: that needs one of the roles {roles}")


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
    # The cursor holds the last instant, the number of its fires already returned, and the end of the first page.
    after, seen, until = read_cursor(call, tuple[int, int, int]) or (now, 0, now + query.hours * 60 * MINUTE_MS)
    end = seen + query.limit
    fires = await call.services.jobs.upcoming(after=after, until=until, limit=end + 1, tenant=call.tenant)
    last = fires[:end][-1].planned_at if len(fires) > end else None
    more = None if last is None else (last - 1, sum(fire.planned_at == last for fire in fires[:end]), until)
    return Reply(body=make_page(call, [presenters.planned_fire(fire) for fire in fires[seen:end]], more))


async def list_ticks(call: ApiCall) -> Reply:
    """List ticks, newest first: planned times and the decision on each, of one job, or job by job."""
    query: TicksQuery = call.query
    on = read_cursor(call, tuple[str, int])
    since, until = parse_instant("since", query.since), parse_instant("until", query.until)
    bounds = {"since": since, "before": until if query.job is None or on is None else on[1]}
    filters = TickQuery(
        kind=query.kind,
        status=query.status,
        limit=query.limit,
        **{field: at for field, at in bounds.items() if at is not None},
    )
    if query.job is None:
        several = await call.services.search.ticks(filters, after=on, tenant=call.tenant)
        return Reply(body=make_page(call, presenters.ledger_ticks(several.items), several.after))
    found = await call.services.jobs.ledger(query.job, filters, tenant=call.tenant)
    after = None if found.before is None else (query.job, found.before)
    return Reply(body=make_page(call, presenters.ledger_ticks(found.ticks), after))


#: The JSON Schema of a job: built once, used in several request bodies.
JOB_SCHEMA = job_schema()


def _job_body(*, named: bool) -> RequestBody:
    schema = JOB_SCHEMA
    example = {field: value for field, value in DEFINITION.items() if named or field != "name"}
    return RequestBody(schema=schema if named else {**schema, "required": []}, example=example)


JOB_ROUTES = (
    ApiRoute(
        method="POST",
        path="/v1/jobs",
        name="register_job",
        permission=Permission.ADMINISTER,
        handle=register,
        answer=responses.JobApplied,
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
        answer=responses.Page[responses.JobSummary],
        query=JobsQuery,
        example={"items": [JOB_LINE], "next": None},
        **LIST_DEFAULTS,
    ),
    ApiRoute(
        path="/v1/jobs/{name}",
        name="show_job",
        handle=show,
        answer=responses.JobDetail,
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
        answer=responses.JobApplied,
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
        answer=responses.Started,
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
        answer=responses.JobDetail,
        success={200: "The job is paused."},
        error_statuses=(404, 409),
        example=JOB,
        has_etag=True,
    ),
    ApiRoute(
        path="/v1/schedule",
        name="list_planned_fires",
        handle=coming,
        answer=responses.Page[responses.PlannedFire],
        query=PlannedFiresQuery,
        example={"items": [FIRE], "next": None},
        **LIST_DEFAULTS,
    ),
    ApiRoute(
        path="/v1/ticks",
        name="list_ticks",
        handle=list_ticks,
        answer=responses.Page[responses.LedgerTick],
        query=TicksQuery,
        error_statuses=(404,),
        example={"items": [TICK], "next": None},
        **LIST_DEFAULTS,
    ),
)


#: The maximum number of jobs in one request.
MOST_JOBS = 20_000
#: The number of jobs that are parsed before the event loop may run other work, such as the ticker.
_BATCH = 50
_JOBS: dict[str, Any] = {
    "jobs": {
        "type": "array",
        "maxItems": MOST_JOBS,
        "items": JOB_SCHEMA,
        "description": "Jobs, in the format of a jobs file.",
    },
    "prune": {"type": "boolean", "description": "Delete every job that is not in the list."},
    "prune_tag": {
        "type": ["string", "null"],
        "maxLength": LONGEST_TAG,
        "description": "Like `prune`, but only for jobs with this tag.",
    },
}
APPLY_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["jobs"],
    "properties": _JOBS,
}
PLAN_SCHEMA: dict[str, Any] = {
    **APPLY_SCHEMA,
    "properties": {
        **_JOBS,
        "days": {"type": "integer", "minimum": 1, "maximum": 366, "description": "Days to look ahead; 14 by default."},
        "fires": {
            "type": "integer",
            "minimum": 0,
            "maximum": MOST_WALKED,
            "description": "Maximum number of fires per job.",
        },
    },
}


async def apply(call: ApiCall) -> Reply:
    """Create or update jobs, atomically. Idempotent."""
    fields = body_fields(call.body, "jobs", "prune", "prune_tag")
    prune = _prune(fields)
    jobs = await _read(call, fields)
    done = await call.services.jobs.apply(jobs, actor=call.actor, tenant=call.tenant, prune=prune)
    call.services.changed()
    return Reply(body=Page(items=[job_applied(one) for one in done]))


async def plan(call: ApiCall) -> Reply:
    """Show which fields and fires applying these jobs would change, without changing anything."""
    fields = body_fields(call.body, "jobs", "prune", "prune_tag", "days", "fires")
    days = fields.whole("days", 14, low=1, high=366)
    limit = fields.whole("fires", MOST_WALKED, low=0, high=MOST_WALKED)
    prune = _prune(fields)
    jobs = await _read(call, fields)
    planned = await call.services.planner.plan(jobs, ahead_ms=days * DAY_MS, prune=prune, tenant=call.tenant)
    # In a thread: a large plan takes too long to build on the event loop, which the ticker shares.
    return Reply(body=await asyncio.to_thread(jobs_planned, planned, limit=limit))


def _prune(fields: FieldReader) -> Prune | None:
    everything = fields.flag("prune", default=False)
    if "prune_tag" in fields and fields["prune_tag"] is not None:
        return Prune(printable("prune_tag", fields["prune_tag"], longest=LONGEST_TAG))
    return Prune() if everything else None


async def _read(call: ApiCall, fields: FieldReader) -> list[Job]:
    """Parse the jobs; an error names the position of the first invalid job."""
    fields.required("jobs")
    found, now = list[Job](), call.services.clock.now()
    for number, (path, entry) in enumerate(fields.entries("jobs", most=MOST_JOBS)):
        if number % _BATCH == 0:
            await asyncio.sleep(0)
        if not isinstance(entry, dict):
            raise FieldError(path, entry, "must be a mapping")
        try:
            found.append(read_job(entry, call.services.defaults, now=now))
        except CronError as error:
            raise schedule_field_error(FieldReader(entry, JOB_FIELDS, path=path), "schedule", error) from None
        except FieldError as error:
            raise FieldError(f"{path}.{error.field}", error.value, error.reason) from None
    return found


_BULK_EXAMPLE = {"jobs": [DEFINITION], "prune": False}
_PLANNED: dict[str, Any] = {
    "from": "2026-03-02T14:00:00Z",
    "until": "2026-03-16T14:00:00Z",
    "jobs": {"created": 1, "changed": 0, "unchanged": 0, "removed": 0},
    "fires": {"added": 10, "removed": 0, "moved": 0, "same": 0},
    "plan": [],
}
BULK_ROUTES = (
    ApiRoute(
        method="POST",
        path="/v1/apply",
        name="apply_jobs",
        permission=Permission.ADMINISTER,
        handle=apply,
        answer=Page[JobApplied],
        success={200: "All jobs are created or updated."},
        error_statuses=(409,),
        body=RequestBody(schema=APPLY_SCHEMA, example=_BULK_EXAMPLE, many=True),
        example={"items": [APPLIED], "next": None},
    ),
    ApiRoute(
        method="POST",
        path="/v1/plan",
        name="plan_jobs",
        permission=Permission.READ,
        handle=plan,
        answer=JobsPlanned,
        success={200: "The plan."},
        example=_PLANNED,
        body=RequestBody(schema=PLAN_SCHEMA, example={**_BULK_EXAMPLE, "days": 14}, many=True),
    ),
)


_INSTANT_SCHEMA = {"type": ["string", "integer"], "description": "An ISO 8601 instant, or milliseconds since 1970."}
RESUME_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "missed": {
            "enum": [one.value for one in ResumePolicy],
            "description": "Which of the runs missed during the pause are started; `skip` by default.",
        },
        "since": {**_INSTANT_SCHEMA, "description": "For `since`: start the runs planned at or after this instant."},
        "over": {
            "type": "string",
            "maxLength": 100,
            "description": "For `spread`: the period over which the runs are spread, such as 10m.",
        },
    },
}
SKIP_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["at"],
    "properties": {
        "at": {**_INSTANT_SCHEMA, "description": "The coming planned time."},
        "move_to": {**_INSTANT_SCHEMA, "description": "Move the run to this time instead of skipping it."},
    },
}
UNSKIP_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["at"],
    "properties": {"at": {**_INSTANT_SCHEMA, "description": "The planned time that was skipped or moved."}},
}


async def resume(call: ApiCall) -> Reply:
    """Resume a job. Runs missed during the pause are recorded as skipped unless `missed` selects them."""
    name, missed = call.path["name"], _resume_choice(body_fields(call.body, "missed", "since", "over"))
    done = await call.services.jobs.resume(name, actor=call.actor, missed=missed, tenant=call.tenant)
    call.services.changed()
    view = await call.services.jobs.get(name, tenant=call.tenant)
    return Reply(body=job_resumed(view, done), headers={"ETag": etag(view.schedule)})


def _resume_choice(fields: FieldReader) -> ResumeChoice:
    which = fields.choice("missed", ResumePolicy, ResumePolicy.SKIP)
    for field, of in (("since", ResumePolicy.SINCE), ("over", ResumePolicy.SPREAD)):
        if (field in fields) != (which is of):
            raise fields.refused(field, f"is required with missed: {of}, and only there")
    since = _required_field(fields, "since") if which is ResumePolicy.SINCE else None
    return ResumeChoice(
        which, since_at=since, over_ms=fields.duration("over", 0) if which is ResumePolicy.SPREAD else None
    )


async def skip(call: ApiCall) -> Reply:
    """Skip one coming planned time of a job, or move it to another time."""
    fields = body_fields(call.body, "at", "move_to")
    at, moved_to = _required_field(fields, "at"), fields.instant("move_to")
    await call.services.jobs.skip(call.path["name"], at, actor=call.actor, move_to=moved_to, tenant=call.tenant)
    return await _job_reply(call)


async def unskip(call: ApiCall) -> Reply:
    """Undo the skip or move of a planned time."""
    at = _required_field(body_fields(call.body, "at"), "at")
    await call.services.jobs.undo_skip(call.path["name"], at, actor=call.actor, tenant=call.tenant)
    return await _job_reply(call)


def _required_field(fields: FieldReader, field: str) -> int:
    fields.required(field)
    at = fields.instant(field)
    if at is None:
        raise fields.refused(field, "is missing")
    return at


async def _job_reply(call: ApiCall) -> Reply:
    call.services.changed()
    view = await call.services.jobs.get(call.path["name"], tenant=call.tenant)
    return Reply(body=job_detail(view), headers={"ETag": etag(view.schedule)})


_RESUMED = {
    **JOB,
    "swallowed": {"count": 2, "first_at": "2026-02-26T14:00:00Z", "last_at": "2026-02-27T14:00:00Z"},
    "runs": 1,
}
TICK_ROUTES = (
    ApiRoute(
        method="POST",
        path="/v1/jobs/{name}/resume",
        name="resume_job",
        permission=Permission.ADMINISTER,
        handle=resume,
        answer=JobResumed,
        success={200: "The job is resumed."},
        error_statuses=(404, 409),
        example=_RESUMED,
        body=RequestBody(schema=RESUME_SCHEMA, example={"missed": "latest"}, required=False),
        has_etag=True,
    ),
    ApiRoute(
        method="POST",
        path="/v1/jobs/{name}/skip",
        name="skip_tick",
        permission=Permission.ADMINISTER,
        handle=skip,
        answer=JobDetail,
        success={200: "The planned time is skipped or moved."},
        error_statuses=(404, 409),
        example=JOB,
        body=RequestBody(schema=SKIP_SCHEMA, example={"at": "2026-03-03T14:00:00Z"}),
        has_etag=True,
    ),
    ApiRoute(
        method="POST",
        path="/v1/jobs/{name}/unskip",
        name="unskip_tick",
        permission=Permission.ADMINISTER,
        handle=unskip,
        answer=JobDetail,
        success={200: "The planned time fires as planned."},
        error_statuses=(404, 409),
        example=JOB,
        body=RequestBody(schema=UNSKIP_SCHEMA, example={"at": "2026-03-03T14:00:00Z"}),
        has_etag=True,
    ),
)
