"""Jobs: register, look, change, trigger, pause, delete."""

import asyncio
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from gnomon.api.examples import APPLIED, DEFINITION, FIRE, JOB, JOB_LINE, STARTED, TICK
from gnomon.api.requests import instant, page, place, said_in
from gnomon.api.route import (
    KEY,
    LISTS,
    LOOKS,
    Body,
    Call,
    Cursor,
    Header,
    Instant,
    Limit,
    Name,
    Permission,
    Reply,
    Route,
)
from gnomon.core import responses
from gnomon.core.jobs.fields import Said, printable
from gnomon.core.jobs.inputs import SECRET_BEGINS
from gnomon.core.jobs.job import JOB_FIELDS, Job, blamed, read_job
from gnomon.core.jobs.json_schema import job_schema
from gnomon.core.jobs.steps import LONGEST_TAG
from gnomon.core.ledger.edits import Choice, Missed
from gnomon.core.ledger.forecast import MOST_WALKED
from gnomon.core.model import DAY_MS, MINUTE_MS, Schedule, TickKind, TickStatus
from gnomon.core.responses import JobApplied, JobDetail, JobResumed, JobsPlanned, Page
from gnomon.errors import CronError, FieldError, Forbidden, NameTaken, NotFound, Stale
from gnomon.services.operations import presenters
from gnomon.services.operations.job_changes import Change, Plan, Prune
from gnomon.services.operations.jobs import Applied, OnlyIf, TicksAsked
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
    return f'"{presenters.etag(schedule)}"'


async def register(call: Call) -> Reply:
    """Register a job. Registering the same again changes nothing; another job of that name is refused."""

    def only_if(plan: Plan) -> None:
        if plan.standing is not None and plan.change is not Change.UNCHANGED:
            raise NameTaken("job", plan.schedule.schedule_id)

    done, tag = await _applied(call, call.body, only_if)
    return Reply(
        body=presenters.job_applied(done), status=201 if done.change is Change.CREATED else 200, headers={"ETag": tag}
    )


async def update(call: Call) -> Reply:
    """Change a job to what is said. A pause goes on; `If-Match` guards against changes in the meantime."""
    name = call.path["name"]
    if call.body.get("name", name) != name:
        raise FieldError("name", call.body["name"], f"is another than in the address: {name}")

    def only_if(plan: Plan) -> None:
        if plan.standing is None:
            raise NotFound("job", name)
        _refuse_stale(call, plan.standing)

    done, tag = await _applied(call, {**call.body, "name": name}, only_if)
    return Reply(body=presenters.job_applied(done), headers={"ETag": tag})


def _refuse_stale(call: Call, standing: Schedule) -> None:
    """Stale, if the caller has named the job as it stood and it stands otherwise."""
    wanted = call.headers.get("if-match")
    if wanted is not None and not {"*", etag(standing)} & {one.strip() for one in wanted.split(",")}:
        raise Stale("job", standing.schedule_id)


async def _applied(call: Call, said: dict[str, Any], only_if: OnlyIf) -> tuple[Applied, str]:
    """What became of the job, and its ETag."""
    job = read_job(said, call.desk.defaults, now=call.desk.clock.now())
    tags: list[str] = []

    def looked_at(plan: Plan) -> None:
        only_if(plan)
        tags.append(etag(plan.schedule))

    [done] = await call.desk.jobs.apply([job], actor=call.actor, tenant=call.tenant, only_if=looked_at)
    call.desk.changed()
    return done, tags[-1]


async def list_jobs(call: Call) -> Reply:
    """List jobs by name, each with when it runs next."""
    asked: JobsAsked = call.query
    after = place(call, str) or ""
    found = await call.desk.search.jobs(tag=asked.tag, after=after, limit=asked.limit, tenant=call.tenant)
    return Reply(body=page(call, [presenters.job_summary(view) for view in found.items], found.after))


async def show(call: Call) -> Reply:
    """Show all there is to know about a job. Its ETag names it as it stands."""
    asked: JobAsked = call.query
    return await _shown(call, asked)


async def _shown(call: Call, asked: JobAsked) -> Reply:
    view = await call.desk.jobs.get(call.path["name"], tenant=call.tenant, coming=asked.coming, last=asked.last)
    return Reply(body=presenters.job_detail(view), headers={"ETag": etag(view.schedule)})


async def delete(call: Call) -> Reply:
    """Delete a job. Its history stays, and what runs goes on; `If-Match` guards as it does for a change."""
    await call.desk.jobs.delete(
        call.path["name"], actor=call.actor, tenant=call.tenant, only_if=lambda standing: _refuse_stale(call, standing)
    )
    call.desk.changed()
    return Reply(status=204)


async def trigger(call: Call) -> Reply:
    """Start an execution of a job now, paused or not."""
    said = said_in(call.body, "input", "force")
    _refuse_secrets(call)
    done = await call.desk.launcher.trigger(
        call.path["name"],
        actor=call.actor,
        input=call.body.get("input"),
        force=said.flag("force", default=False),
        key=call.key,
        source=call.source,
        tenant=call.tenant,
    )
    call.desk.changed()
    return Reply(body=presenters.started(done), status=202)


def _refuse_secrets(call: Call) -> None:
    """Forbidden, if who may not write jobs names a secret: they could have it sent wherever the job sends things."""
    given = msgspec.json.encode(call.body.get("input")).decode()
    if not call.caller.roles & Permission.ADMINISTER.value and SECRET_BEGINS.search(given):
        roles = ", ".join(sorted(Permission.ADMINISTER.value))
        raise Forbidden(f"input names a secret: that needs one of the roles {roles}")


async def pause(call: Call) -> Reply:
    """Let no planned time of a job start anything until it is resumed."""
    await call.desk.jobs.pause(call.path["name"], actor=call.actor, tenant=call.tenant)
    call.desk.changed()
    return await _shown(call, JobAsked())


async def coming(call: Call) -> Reply:
    """List the planned times of all jobs in the next hours, the earliest first."""
    asked: ScheduleAsked = call.query
    since = instant("since", asked.since)
    now = call.desk.clock.now() if since is None else since
    # How many fires of the last instant that was shown were shown, and the end as it was for the first page.
    after, seen, until = place(call, tuple[int, int, int]) or (now, 0, now + asked.hours * 60 * MINUTE_MS)
    end = seen + asked.limit
    fires = await call.desk.jobs.upcoming(after=after, until=until, limit=end + 1, tenant=call.tenant)
    last = fires[:end][-1].planned_at if len(fires) > end else None
    more = None if last is None else (last - 1, sum(fire.planned_at == last for fire in fires[:end]), until)
    return Reply(body=page(call, [presenters.planned_fire(fire) for fire in fires[seen:end]], more))


async def list_ticks(call: Call) -> Reply:
    """List what became of planned times, the newest first: the ledger of a job, or of one job after the other."""
    asked: TicksQuery = call.query
    on = place(call, tuple[str, int])
    since, until = instant("since", asked.since), instant("until", asked.until)
    bounds = {"since": since, "before": until if asked.job is None or on is None else on[1]}
    wanted = TicksAsked(
        kind=asked.kind,
        status=asked.status,
        limit=asked.limit,
        **{field: at for field, at in bounds.items() if at is not None},
    )
    if asked.job is None:
        several = await call.desk.search.ticks(wanted, after=on, tenant=call.tenant)
        return Reply(body=page(call, presenters.ticks(several.items), several.after))
    found = await call.desk.jobs.ledger(asked.job, wanted, tenant=call.tenant)
    after = None if found.before is None else (asked.job, found.before)
    return Reply(body=page(call, presenters.ticks(found.ticks), after))


#: What a job is, as JSON Schema: made once, and found in several places.
JOB_SCHEMA = job_schema()


def _job_body(*, named: bool) -> Body:
    schema = JOB_SCHEMA
    example = {field: value for field, value in DEFINITION.items() if named or field != "name"}
    return Body(schema=schema if named else {**schema, "required": []}, example=example)


JOB_ROUTES = (
    Route(
        method="POST", path="/v1/jobs", name="register_job", needs=Permission.ADMINISTER, handle=register,
        answer=responses.JobApplied, success={201: "It is registered.", 200: "It was registered before."},
        body=_job_body(named=True), refuses=(409,), example=APPLIED,
        tagged=True,
    ),
    Route(
        path="/v1/jobs", name="list_jobs", handle=list_jobs, answer=responses.Page[responses.JobSummary],
        query=JobsAsked, example={"items": [JOB_LINE], "next": None}, **LISTS,
    ),
    Route(
        path="/v1/jobs/{name}", name="show_job", handle=show, answer=responses.JobDetail, refuses=(404,),
        query=JobAsked, example=JOB, **LOOKS,
        tagged=True,
    ),
    Route(
        method="PUT", path="/v1/jobs/{name}", name="update_job", needs=Permission.ADMINISTER, handle=update,
        answer=responses.JobApplied, success={200: "It stands as said."}, body=_job_body(named=False),
        headers=(_IF_MATCH,), refuses=(404, 409, 412), example=APPLIED,
        tagged=True,
    ),
    Route(
        method="DELETE", path="/v1/jobs/{name}", name="delete_job", needs=Permission.ADMINISTER, handle=delete,
        answer=None, success={204: "It is gone."}, headers=(_IF_MATCH,), refuses=(404, 409, 412),
    ),
    Route(
        method="POST", path="/v1/jobs/{name}/trigger", name="trigger_job", needs=Permission.OPERATE, handle=trigger,
        answer=responses.Started, success={202: "It is started, or waits for its turn."},
        body=Body(schema=TRIGGER_SCHEMA, example={"input": {"day": "yesterday"}}, required=False), headers=(KEY,),
        refuses=(404, 409), example=STARTED,
    ),
    Route(
        method="POST", path="/v1/jobs/{name}/pause", name="pause_job", needs=Permission.ADMINISTER, handle=pause,
        answer=responses.JobDetail, success={200: "It is paused."}, refuses=(404, 409), example=JOB,
        tagged=True,
    ),
    Route(
        path="/v1/schedule", name="list_planned_fires", handle=coming, answer=responses.Page[responses.PlannedFire],
        query=ScheduleAsked, example={"items": [FIRE], "next": None}, **LISTS,
    ),
    Route(
        path="/v1/ticks", name="list_ticks", handle=list_ticks, answer=responses.Page[responses.LedgerTick],
        query=TicksQuery, refuses=(404,), example={"items": [TICK], "next": None}, **LISTS,
    ),
)  # fmt: skip


#: How many jobs one request may hold.
MOST_JOBS = 20_000
#: How many are read without a break: between two lots others have a turn, such as whoever keeps the clock.
_LOT = 50
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


async def apply(call: Call) -> Reply:
    """Make jobs stand as they are written, all of them or none. Doing it again changes nothing."""
    said = said_in(call.body, "jobs", "prune", "prune_tag")
    prune = _prune(said)
    jobs = await _read(call, said)
    done = await call.desk.jobs.apply(jobs, actor=call.actor, tenant=call.tenant, prune=prune)
    call.desk.changed()
    return Reply(body=Page(items=[job_applied(one) for one in done]))


async def plan(call: Call) -> Reply:
    """Tell what applying jobs would do, in fields and in fires, and do nothing."""
    said = said_in(call.body, "jobs", "prune", "prune_tag", "days", "fires")
    days = said.whole("days", 14, low=1, high=366)
    limit = said.whole("fires", MOST_WALKED, low=0, high=MOST_WALKED)
    prune = _prune(said)
    jobs = await _read(call, said)
    planned = await call.desk.planner.plan(jobs, ahead_ms=days * DAY_MS, prune=prune, tenant=call.tenant)
    # What takes long to write must not keep the clock waiting.
    return Reply(body=await asyncio.to_thread(jobs_planned, planned, limit=limit))


def _prune(said: Said) -> Prune | None:
    everything = said.flag("prune", default=False)
    if "prune_tag" in said and said["prune_tag"] is not None:
        return Prune(printable("prune_tag", said["prune_tag"], longest=LONGEST_TAG))
    return Prune() if everything else None


async def _read(call: Call, said: Said) -> list[Job]:
    """The jobs; the first that is wrong is named by its place."""
    said.required("jobs")
    found, now = list[Job](), call.desk.clock.now()
    for number, (path, entry) in enumerate(said.entries("jobs", most=MOST_JOBS)):
        if number % _LOT == 0:
            await asyncio.sleep(0)
        if not isinstance(entry, dict):
            raise FieldError(path, entry, "must be a mapping")
        try:
            found.append(read_job(entry, call.desk.defaults, now=now))
        except CronError as error:
            raise blamed(Said(entry, JOB_FIELDS, path=path), "schedule", error) from None
        except FieldError as error:
            raise FieldError(f"{path}.{error.field}", error.value, error.reason) from None
    return found


_EXAMPLE = {"jobs": [DEFINITION], "prune": False}
_PLANNED: dict[str, Any] = {
    "from": "2026-03-02T14:00:00Z",
    "until": "2026-03-16T14:00:00Z",
    "jobs": {"created": 1, "changed": 0, "unchanged": 0, "removed": 0},
    "fires": {"added": 10, "removed": 0, "moved": 0, "same": 0},
    "plan": [],
}
BULK_ROUTES = (
    Route(
        method="POST", path="/v1/apply", name="apply_jobs", needs=Permission.ADMINISTER, handle=apply,
        answer=Page[JobApplied], success={200: "All of them stand as said."}, refuses=(409,),
        body=Body(schema=APPLY_SCHEMA, example=_EXAMPLE, many=True), example={"items": [APPLIED], "next": None},
    ),
    Route(
        method="POST", path="/v1/plan", name="plan_jobs", needs=Permission.LOOK, handle=plan,
        answer=JobsPlanned, success={200: "It is as told."}, example=_PLANNED,
        body=Body(schema=PLAN_SCHEMA, example={**_EXAMPLE, "days": 14}, many=True),
    ),
)  # fmt: skip


_INSTANT = {"type": ["string", "integer"], "description": "An ISO instant, or milliseconds since 1970."}
RESUME_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "missed": {"enum": [one.value for one in Missed], "description": "Which of the swallowed runs take place."},
        "since": {**_INSTANT, "description": "Of `since`: those that were planned from then on."},
        "over": {"type": "string", "maxLength": 100, "description": "Of `spread`: over how long, such as 10m."},
    },
}
SKIP_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["at"],
    "properties": {
        "at": {**_INSTANT, "description": "The coming planned time that is meant."},
        "move_to": {**_INSTANT, "description": "Run at this time instead."},
    },
}
UNSKIP_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["at"],
    "properties": {"at": {**_INSTANT, "description": "The planned time that was skipped or moved."}},
}


async def resume(call: Call) -> Reply:
    """Let a job go on from now; what the pause swallowed is written down as skipped, unless it is chosen to run."""
    name, missed = call.path["name"], _choice(said_in(call.body, "missed", "since", "over"))
    done = await call.desk.jobs.resume(name, actor=call.actor, missed=missed, tenant=call.tenant)
    call.desk.changed()
    view = await call.desk.jobs.get(name, tenant=call.tenant)
    return Reply(body=job_resumed(view, done), headers={"ETag": etag(view.schedule)})


def _choice(said: Said) -> Choice:
    which = said.choice("missed", Missed, Missed.SKIP)
    for field, of in (("since", Missed.SINCE), ("over", Missed.SPREAD)):
        if (field in said) != (which is of):
            raise said.refused(field, f"goes with missed: {of}, and is needed there")
    since = _needed(said, "since") if which is Missed.SINCE else None
    return Choice(which, since_at=since, over_ms=said.duration("over", 0) if which is Missed.SPREAD else None)


async def skip(call: Call) -> Reply:
    """Let one coming planned time of a job start nothing, or start it at another time."""
    said = said_in(call.body, "at", "move_to")
    at, moved_to = _needed(said, "at"), said.instant("move_to")
    await call.desk.jobs.skip(call.path["name"], at, actor=call.actor, move_to=moved_to, tenant=call.tenant)
    return await _shown_tick(call)


async def unskip(call: Call) -> Reply:
    """Let a planned time that was skipped or moved fire when it was planned, after all."""
    at = _needed(said_in(call.body, "at"), "at")
    await call.desk.jobs.undo_skip(call.path["name"], at, actor=call.actor, tenant=call.tenant)
    return await _shown_tick(call)


def _needed(said: Said, field: str) -> int:
    said.required(field)
    at = said.instant(field)
    if at is None:
        raise said.refused(field, "is missing")
    return at


async def _shown_tick(call: Call) -> Reply:
    call.desk.changed()
    view = await call.desk.jobs.get(call.path["name"], tenant=call.tenant)
    return Reply(body=job_detail(view), headers={"ETag": etag(view.schedule)})


_RESUMED = {
    **JOB,
    "swallowed": {"count": 2, "first_at": "2026-02-26T14:00:00Z", "last_at": "2026-02-27T14:00:00Z"},
    "runs": 1,
}
TICK_ROUTES = (
    Route(
        method="POST", path="/v1/jobs/{name}/resume", name="resume_job", needs=Permission.ADMINISTER, handle=resume,
        answer=JobResumed, success={200: "It goes on."}, refuses=(404, 409), example=_RESUMED,
        body=Body(schema=RESUME_SCHEMA, example={"missed": "latest"}, required=False),
        tagged=True,
    ),
    Route(
        method="POST", path="/v1/jobs/{name}/skip", name="skip_tick", needs=Permission.ADMINISTER, handle=skip,
        answer=JobDetail, success={200: "It will not fire then."}, refuses=(404, 409), example=JOB,
        body=Body(schema=SKIP_SCHEMA, example={"at": "2026-03-03T14:00:00Z"}),
        tagged=True,
    ),
    Route(
        method="POST", path="/v1/jobs/{name}/unskip", name="unskip_tick", needs=Permission.ADMINISTER, handle=unskip,
        answer=JobDetail, success={200: "It fires when it was planned."}, refuses=(404, 409), example=JOB,
        body=Body(schema=UNSKIP_SCHEMA, example={"at": "2026-03-03T14:00:00Z"}),
        tagged=True,
    ),
)  # fmt: skip
