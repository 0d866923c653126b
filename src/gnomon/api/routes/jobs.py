"""Jobs: register, look, change, trigger, pause, delete."""

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
from gnomon.core.jobs.inputs import SECRET_BEGINS
from gnomon.core.jobs.job import JOB_FIELDS, Job, read_job, schedule_field_error
from gnomon.core.jobs.json_schema import job_schema
from gnomon.core.jobs.steps import LONGEST_TAG
from gnomon.core.ledger.edits import ResumeChoice, ResumePolicy
from gnomon.core.ledger.forecast import MOST_WALKED
from gnomon.core.model import DAY_MS, MINUTE_MS, Schedule, TickKind, TickStatus
from gnomon.core.responses import JobApplied, JobDetail, JobResumed, JobsPlanned, Page
from gnomon.errors import CronError, FieldError, Forbidden, NameTaken, NotFound, Stale
from gnomon.services.operations import presenters
from gnomon.services.operations.job_changes import JobChange, JobChangePlan, Prune
from gnomon.services.operations.jobs import ApplyResult, PlanGuard, TickQuery
from gnomon.services.operations.presenters import job_applied, job_detail, job_resumed, jobs_planned

_IF_MATCH = Header(
    name="If-Match", about="The ETag of the job as the caller saw it; refused if it has changed.", example='"sch_1.1"'
)
TRIGGER_SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "input": {"type": "object", "description": "What the execution is given instead of the job's own input."},
        "force": {"type": "boolean", "description": "Start it beside others, whatever the overlap policy says."},
    },
}


class JobsAsked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs to list."""

    tag: Annotated[Name | None, Meta(description="Only those with this tag.")] = None
    limit: Limit = 100
    cursor: Cursor | None = None


class JobAsked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much to show of a job."""

    coming: Annotated[int, Meta(ge=0, le=1000, description="How many planned times to come.")] = 5
    last: Annotated[int, Meta(ge=0, le=1000, description="How many decisions.")] = 10


class ScheduleAsked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far to look ahead."""

    hours: Annotated[int, Meta(ge=1, le=24 * 366, description="How many hours to look ahead.")] = 24
    since: Annotated[Instant | None, Meta(description="Look from then on instead of from now on.")] = None
    limit: Annotated[int, Meta(ge=1, le=10_001, description="How many at most.")] = 1000
    cursor: Cursor | None = None


class TicksQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which decisions to list."""

    job: Annotated[Name | None, Meta(description="The job whose ledger is read; all of them if not said.")] = None
    kind: Annotated[TickKind | None, Meta(description="Only those of which this became.")] = None
    status: Annotated[TickStatus | None, Meta(description="Only those in this status.")] = None
    since: Instant | None = None
    until: Instant | None = None
    limit: Limit = 100
    cursor: Cursor | None = None


def etag(schedule: Schedule) -> str:
    """What names a job as it stands, as a header has it."""
    return f'"{presenters.job_etag(schedule)}"'


async def register(call: ApiCall) -> Reply:
    """Register a job. Registering the same again changes nothing; another job of that name is refused."""

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
    """Change a job to what is said. A pause goes on; `If-Match` guards against changes in the meantime."""
    name = call.path["name"]
    if call.body.get("name", name) != name:
        raise FieldError("name", call.body["name"], f"is another than in the address: {name}")

    def only_if(plan: JobChangePlan) -> None:
        if plan.standing is None:
            raise NotFound("job", name)
        _refuse_stale(call, plan.standing)

    done, tag = await _applied(call, {**call.body, "name": name}, only_if)
    return Reply(body=presenters.job_applied(done), headers={"ETag": tag})


def _refuse_stale(call: ApiCall, standing: Schedule) -> None:
    """Stale, if the caller has named the job as it stood and it stands otherwise."""
    wanted = call.headers.get("if-match")
    if wanted is not None and not {"*", etag(standing)} & {one.strip() for one in wanted.split(",")}:
        raise Stale("job", standing.schedule_id)


async def _applied(call: ApiCall, said: dict[str, Any], only_if: PlanGuard) -> tuple[ApplyResult, str]:
    """What became of the job, and its ETag."""
    job = read_job(said, call.services.defaults, now=call.services.clock.now())
    tags: list[str] = []

    def looked_at(plan: JobChangePlan) -> None:
        only_if(plan)
        tags.append(etag(plan.schedule))

    [done] = await call.services.jobs.apply([job], actor=call.actor, tenant=call.tenant, only_if=looked_at)
    call.services.changed()
    return done, tags[-1]


async def list_jobs(call: ApiCall) -> Reply:
    """List jobs by name, each with when it runs next."""
    asked: JobsAsked = call.query
    after = read_cursor(call, str) or ""
    found = await call.services.search.jobs(tag=asked.tag, after=after, limit=asked.limit, tenant=call.tenant)
    return Reply(body=make_page(call, [presenters.job_summary(view) for view in found.items], found.after))


async def show(call: ApiCall) -> Reply:
    """Show all there is to know about a job. Its ETag names it as it stands."""
    asked: JobAsked = call.query
    return await _shown(call, asked)


async def _shown(call: ApiCall, asked: JobAsked) -> Reply:
    view = await call.services.jobs.get(call.path["name"], tenant=call.tenant, coming=asked.coming, last=asked.last)
    return Reply(body=presenters.job_detail(view), headers={"ETag": etag(view.schedule)})


async def delete(call: ApiCall) -> Reply:
    """Delete a job. Its history stays, and what runs goes on; `If-Match` guards as it does for a change."""
    await call.services.jobs.delete(
        call.path["name"], actor=call.actor, tenant=call.tenant, only_if=lambda standing: _refuse_stale(call, standing)
    )
    call.services.changed()
    return Reply(status=204)


async def trigger(call: ApiCall) -> Reply:
    """Start an execution of a job now, paused or not."""
    said = body_fields(call.body, "input", "force")
    _refuse_secrets(call)
    done = await call.services.launcher.trigger(
        call.path["name"],
        actor=call.actor,
        input=call.body.get("input"),
        force=said.flag("force", default=False),
        key=call.key,
        source=call.source,
        tenant=call.tenant,
    )
    call.services.changed()
    return Reply(body=presenters.launch_response(done), status=202)


def _refuse_secrets(call: ApiCall) -> None:
    """Forbidden, if who may not write jobs names a secret: they could have it sent wherever the job sends things."""
    given = msgspec.json.encode(call.body.get("input")).decode()
    if not call.caller.roles & Permission.ADMINISTER.value and SECRET_BEGINS.search(given):
        roles = ", ".join(sorted(Permission.ADMINISTER.value))
        raise Forbidden(f"input names a secret: that needs one of the roles {roles}")


async def pause(call: ApiCall) -> Reply:
    """Let no planned time of a job start anything until it is resumed."""
    await call.services.jobs.pause(call.path["name"], actor=call.actor, tenant=call.tenant)
    call.services.changed()
    return await _shown(call, JobAsked())


async def coming(call: ApiCall) -> Reply:
    """List the planned times of all jobs in the next hours, the earliest first."""
    asked: ScheduleAsked = call.query
    since = parse_instant("since", asked.since)
    now = call.services.clock.now() if since is None else since
    # How many fires of the last instant that was shown were shown, and the end as it was for the first page.
    after, seen, until = read_cursor(call, tuple[int, int, int]) or (now, 0, now + asked.hours * 60 * MINUTE_MS)
    end = seen + asked.limit
    fires = await call.services.jobs.upcoming(after=after, until=until, limit=end + 1, tenant=call.tenant)
    last = fires[:end][-1].planned_at if len(fires) > end else None
    more = None if last is None else (last - 1, sum(fire.planned_at == last for fire in fires[:end]), until)
    return Reply(body=make_page(call, [presenters.planned_fire(fire) for fire in fires[seen:end]], more))


async def list_ticks(call: ApiCall) -> Reply:
    """List what became of planned times, the newest first: the ledger of a job, or of one job after the other."""
    asked: TicksQuery = call.query
    on = read_cursor(call, tuple[str, int])
    since, until = parse_instant("since", asked.since), parse_instant("until", asked.until)
    bounds = {"since": since, "before": until if asked.job is None or on is None else on[1]}
    wanted = TickQuery(
        kind=asked.kind,
        status=asked.status,
        limit=asked.limit,
        **{field: at for field, at in bounds.items() if at is not None},
    )
    if asked.job is None:
        several = await call.services.search.ticks(wanted, after=on, tenant=call.tenant)
        return Reply(body=make_page(call, presenters.ledger_ticks(several.items), several.after))
    found = await call.services.jobs.ledger(asked.job, wanted, tenant=call.tenant)
    after = None if found.before is None else (asked.job, found.before)
    return Reply(body=make_page(call, presenters.ledger_ticks(found.ticks), after))


#: What a job is, as JSON Schema: made once, and found in several places.
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
        success={201: "It is registered.", 200: "It was registered before."},
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
        query=JobsAsked,
        example={"items": [JOB_LINE], "next": None},
        **LIST_DEFAULTS,
    ),
    ApiRoute(
        path="/v1/jobs/{name}",
        name="show_job",
        handle=show,
        answer=responses.JobDetail,
        error_statuses=(404,),
        query=JobAsked,
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
        success={200: "It stands as said."},
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
        success={204: "It is gone."},
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
        success={202: "It is started, or waits for its turn."},
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
        success={200: "It is paused."},
        error_statuses=(404, 409),
        example=JOB,
        has_etag=True,
    ),
    ApiRoute(
        path="/v1/schedule",
        name="list_planned_fires",
        handle=coming,
        answer=responses.Page[responses.PlannedFire],
        query=ScheduleAsked,
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


#: How many jobs one request may hold.
MOST_JOBS = 20_000
#: How many are read without a break: between two lots others have a turn, such as whoever keeps the clock.
_BATCH = 50
_JOBS: dict[str, Any] = {
    "jobs": {"type": "array", "maxItems": MOST_JOBS, "items": JOB_SCHEMA, "description": "As in a jobs file."},
    "prune": {"type": "boolean", "description": "Remove every job that is not among them."},
    "prune_tag": {
        "type": ["string", "null"],
        "maxLength": LONGEST_TAG,
        "description": "The same, but only with this tag.",
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
        "days": {"type": "integer", "minimum": 1, "maximum": 366, "description": "How far to look ahead; 14."},
        "fires": {"type": "integer", "minimum": 0, "maximum": MOST_WALKED, "description": "Of each job at most."},
    },
}


async def apply(call: ApiCall) -> Reply:
    """Make jobs stand as they are written, all of them or none. Doing it again changes nothing."""
    said = body_fields(call.body, "jobs", "prune", "prune_tag")
    prune = _prune(said)
    jobs = await _read(call, said)
    done = await call.services.jobs.apply(jobs, actor=call.actor, tenant=call.tenant, prune=prune)
    call.services.changed()
    return Reply(body=Page(items=[job_applied(one) for one in done]))


async def plan(call: ApiCall) -> Reply:
    """Tell what applying jobs would do, in fields and in fires, and do nothing."""
    said = body_fields(call.body, "jobs", "prune", "prune_tag", "days", "fires")
    days = said.whole("days", 14, low=1, high=366)
    limit = said.whole("fires", MOST_WALKED, low=0, high=MOST_WALKED)
    prune = _prune(said)
    jobs = await _read(call, said)
    planned = await call.services.planner.plan(jobs, ahead_ms=days * DAY_MS, prune=prune, tenant=call.tenant)
    # What takes long to write must not keep the clock waiting.
    return Reply(body=await asyncio.to_thread(jobs_planned, planned, limit=limit))


def _prune(said: FieldReader) -> Prune | None:
    everything = said.flag("prune", default=False)
    if "prune_tag" in said and said["prune_tag"] is not None:
        return Prune(printable("prune_tag", said["prune_tag"], longest=LONGEST_TAG))
    return Prune() if everything else None


async def _read(call: ApiCall, said: FieldReader) -> list[Job]:
    """The jobs; the first that is wrong is named by its place."""
    said.required("jobs")
    found, now = list[Job](), call.services.clock.now()
    for number, (path, entry) in enumerate(said.entries("jobs", most=MOST_JOBS)):
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
        success={200: "All of them stand as said."},
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
        success={200: "It is as told."},
        example=_PLANNED,
        body=RequestBody(schema=PLAN_SCHEMA, example={**_BULK_EXAMPLE, "days": 14}, many=True),
    ),
)


_INSTANT_SCHEMA = {"type": ["string", "integer"], "description": "An ISO instant, or milliseconds since 1970."}
RESUME_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "missed": {
            "enum": [one.value for one in ResumePolicy],
            "description": "Which of the swallowed runs take place.",
        },
        "since": {**_INSTANT_SCHEMA, "description": "Of `since`: those that were planned from then on."},
        "over": {"type": "string", "maxLength": 100, "description": "Of `spread`: over how long, such as 10m."},
    },
}
SKIP_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["at"],
    "properties": {
        "at": {**_INSTANT_SCHEMA, "description": "The coming planned time that is meant."},
        "move_to": {**_INSTANT_SCHEMA, "description": "Run at this time instead."},
    },
}
UNSKIP_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["at"],
    "properties": {"at": {**_INSTANT_SCHEMA, "description": "The planned time that was skipped or moved."}},
}


async def resume(call: ApiCall) -> Reply:
    """Let a job go on from now; what the pause swallowed is written down as skipped, unless it is chosen to run."""
    name, missed = call.path["name"], _resume_choice(body_fields(call.body, "missed", "since", "over"))
    done = await call.services.jobs.resume(name, actor=call.actor, missed=missed, tenant=call.tenant)
    call.services.changed()
    view = await call.services.jobs.get(name, tenant=call.tenant)
    return Reply(body=job_resumed(view, done), headers={"ETag": etag(view.schedule)})


def _resume_choice(said: FieldReader) -> ResumeChoice:
    which = said.choice("missed", ResumePolicy, ResumePolicy.SKIP)
    for field, of in (("since", ResumePolicy.SINCE), ("over", ResumePolicy.SPREAD)):
        if (field in said) != (which is of):
            raise said.refused(field, f"goes with missed: {of}, and is needed there")
    since = _required_field(said, "since") if which is ResumePolicy.SINCE else None
    return ResumeChoice(
        which, since_at=since, over_ms=said.duration("over", 0) if which is ResumePolicy.SPREAD else None
    )


async def skip(call: ApiCall) -> Reply:
    """Let one coming planned time of a job start nothing, or start it at another time."""
    said = body_fields(call.body, "at", "move_to")
    at, moved_to = _required_field(said, "at"), said.instant("move_to")
    await call.services.jobs.skip(call.path["name"], at, actor=call.actor, move_to=moved_to, tenant=call.tenant)
    return await _job_reply(call)


async def unskip(call: ApiCall) -> Reply:
    """Let a planned time that was skipped or moved fire when it was planned, after all."""
    at = _required_field(body_fields(call.body, "at"), "at")
    await call.services.jobs.undo_skip(call.path["name"], at, actor=call.actor, tenant=call.tenant)
    return await _job_reply(call)


def _required_field(said: FieldReader, field: str) -> int:
    said.required(field)
    at = said.instant(field)
    if at is None:
        raise said.refused(field, "is missing")
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
        success={200: "It goes on."},
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
        success={200: "It will not fire then."},
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
        success={200: "It fires when it was planned."},
        error_statuses=(404, 409),
        example=JOB,
        body=RequestBody(schema=UNSKIP_SCHEMA, example={"at": "2026-03-03T14:00:00Z"}),
        has_etag=True,
    ),
)
