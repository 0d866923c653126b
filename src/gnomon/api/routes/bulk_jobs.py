"""Many jobs at once: apply them together, or plan what applying them would change."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import msgspec

from gnomon.api.examples import APPLIED, DEFINITION
from gnomon.api.requests import LONGEST_VALUE, body_fields
from gnomon.api.route import ApiCall, ApiRoute, Permission, Reply, RequestBody
from gnomon.api.routes.jobs import JOB_SCHEMA, read_sent_job
from gnomon.core.cron import known_zone
from gnomon.core.jobs.fields import FieldReader, printable
from gnomon.core.jobs.job import JOB_FIELDS, Job, schedule_field_error
from gnomon.core.jobs.steps import LONGEST_TAG
from gnomon.core.ledger.forecast import MOST_WALKED
from gnomon.core.model import DAY_MS
from gnomon.core.responses.base import Page
from gnomon.core.responses.jobs import JobApplied
from gnomon.core.responses.plans import JobsPlanned, SimulationResult
from gnomon.errors import CronError, FieldError
from gnomon.services.loop import compute_limit
from gnomon.services.operations.job_changes import JobChangePlan, Prune
from gnomon.services.operations.job_plan import JobsPlan
from gnomon.services.operations.plan_digest import PLANNED_FIELDS, check_plan_digest, plan_digest
from gnomon.services.operations.presenters.jobs import job_applied
from gnomon.services.operations.presenters.plans import jobs_planned
from gnomon.services.operations.presenters.policy import job_policy

#: The maximum number of jobs in one request.
MOST_JOBS = 20_000
#: The maximum processor time of one request. The largest files of usual jobs take less than a third of it.
MOST_COMPUTE_SECONDS = 20
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
    "properties": {
        **_JOBS,
        "plan": {
            "type": ["string", "null"],
            "maxLength": LONGEST_VALUE,
            "description": "The digest of the plan of this request; if anything has changed since, nothing is applied.",
        },
    },
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
    fields = body_fields(call.body, *PLANNED_FIELDS, "plan")
    prune, digest = _prune(fields), call.body.get("plan")
    if digest is not None and not isinstance(digest, str):
        raise FieldError("plan", digest, "must be a text")

    async def as_planned(plans: Sequence[JobChangePlan]) -> None:
        if digest is not None:
            # In a thread, as the plan was made.
            await call.services.compute.run_in_thread(partial(check_plan_digest, digest, call.body, plans))

    # Only reading is limited: nothing may fail once the jobs are written.
    with _limited(call):
        jobs = await _read(call, fields)
    done = await call.services.jobs.apply(
        jobs, actor=call.actor, tenant=call.tenant, prune=prune, only_if_all=as_planned
    )
    call.services.changed()
    return Reply(body=Page(items=await call.services.compute.map(job_applied, done)))


async def plan(call: ApiCall) -> Reply:
    """Show which fields and fires applying these jobs would change, without changing anything."""
    fields = body_fields(call.body, "jobs", "prune", "prune_tag", "days", "fires")
    days = fields.whole("days", 14, low=1, high=366)
    limit = fields.whole("fires", MOST_WALKED, low=0, high=MOST_WALKED)
    prune = _prune(fields)
    with _limited(call):
        jobs = await _read(call, fields)
        planned = await call.services.planner.plan(jobs, ahead_ms=days * DAY_MS, prune=prune, tenant=call.tenant)
        # In a thread: a large plan takes too long to build on the event loop, which the ticker shares.
        return Reply(body=await call.services.compute.run_in_thread(partial(_presented, call.body, planned, limit)))


def _presented(request: dict[str, Any], planned: JobsPlan, limit: int) -> JobsPlanned:
    return jobs_planned(planned, limit=limit, digest=plan_digest(request, planned.changes))


def _limited(call: ApiCall) -> AbstractContextManager[None]:
    """Refuse jobs that cost too much together: callers share the time that this process has for computations."""
    reason = f"cost more than {MOST_COMPUTE_SECONDS} s of processor time: send them in several requests"
    return compute_limit(MOST_COMPUTE_SECONDS, FieldError("jobs", call.body.get("jobs"), reason))


async def simulate(call: ApiCall) -> Reply:
    """Simulate jobs from now on: how often each would run, wait or be skipped, and which start together."""
    fields = body_fields(call.body, "jobs", "days", "timezone", "lasts")
    days = fields.whole("days", 7, low=1, high=MOST_SIMULATED_DAYS)
    zone = fields.text("timezone", "UTC")
    known_zone(zone)
    lasts_ms = fields.duration("lasts", 0, high=DAY_MS)
    written = [entry for _, entry in fields.entries("jobs", most=MOST_SIMULATED_JOBS)]
    jobs = await _read(call, fields)
    defaults, now = call.services.defaults, call.services.clock.now()
    request = {
        "jobs": written,
        "from_at": now,
        "days": days,
        "timezone": zone,
        "lasts_ms": lasts_ms,
        "overlap": defaults.overlap,
        "catchup": defaults.catchup,
        "jitter_ms": defaults.jitter_ms,
        "lookahead_ms": defaults.lookahead_ms,
        "catchup_cap": defaults.catchup_cap,
    }
    report = await call.services.dry_runner.run(msgspec.json.encode(request))
    result = msgspec.json.decode(report, type=SimulationResult)
    held = await call.services.planner.outlooks(jobs, tenant=call.tenant)
    return Reply(body=msgspec.structs.replace(result, policy=[job_policy(*one) for one in held]))


def _prune(fields: FieldReader) -> Prune | None:
    everything = fields.flag("prune", default=False)
    if "prune_tag" in fields and fields["prune_tag"] is not None:
        return Prune(printable("prune_tag", fields["prune_tag"], longest=LONGEST_TAG))
    return Prune() if everything else None


async def _read(call: ApiCall, fields: FieldReader) -> list[Job]:
    """Parse the jobs; an error names the position of the first invalid job."""
    fields.required("jobs")
    found, now = list[Job](), call.services.clock.now()
    for path, entry in fields.entries("jobs", most=MOST_JOBS):
        if not isinstance(entry, dict):
            raise FieldError(path, entry, "must be a mapping")
        try:
            found.append(await read_sent_job(call, entry, now))
        except CronError as error:
            raise schedule_field_error(FieldReader(entry, JOB_FIELDS, path=path), "schedule", error) from None
        except FieldError as error:
            raise FieldError(f"{path}.{error.field}", error.value, error.reason) from None
    return found


#: The bounds of a simulation.
MOST_SIMULATED_JOBS, MOST_SIMULATED_DAYS = 500, 92
SIMULATE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["jobs"],
    "properties": {
        "jobs": {**_JOBS["jobs"], "maxItems": MOST_SIMULATED_JOBS},
        "days": {
            "type": "integer",
            "minimum": 1,
            "maximum": MOST_SIMULATED_DAYS,
            "description": "Days to simulate; 7 by default.",
        },
        "timezone": {"type": "string", "maxLength": 1000, "description": "The time zone of the report."},
        "lasts": {"type": "string", "maxLength": 30, "description": "How long each run lasts, such as 5m; 0s if not."},
    },
}
_BULK_EXAMPLE = {"jobs": [DEFINITION], "prune": False}
_PLANNED: dict[str, Any] = {
    "from": "2026-03-02T14:00:00Z",
    "until": "2026-03-16T14:00:00Z",
    "jobs": {"created": 1, "changed": 0, "unchanged": 0, "removed": 0},
    "fires": {"added": 10, "removed": 0, "moved": 0, "same": 0},
    "plan": [],
    "digest": "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae.fcde2b2e",
}
_SIMULATED: dict[str, Any] = {
    "from": "2026-03-02T14:00:00Z",
    "until": "2026-03-09T14:00:00Z",
    "timezone": "UTC",
    "runs": 7,
    "not_enabled": [],
    "jobs": [
        {
            "job": "report",
            "ticks": 7,
            "runs": 7,
            "decisions": [{"kind": "fired", "reason": "planned", "count": 7}],
            "runs_beside_another": 0,
            "runs_replaced": 0,
            "most_waiting": 0,
        }
    ],
    "colliding_minutes": 0,
    "collisions": [],
}
ROUTES = (
    ApiRoute(
        method="POST",
        path="/v1/apply",
        name="apply_jobs",
        permission=Permission.ADMINISTER,
        handle=apply,
        answer=Page[JobApplied],
        success={200: "All jobs are created or updated."},
        error_statuses=(409, 412),
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
    ApiRoute(
        method="POST",
        path="/v1/simulate",
        name="simulate_jobs",
        permission=Permission.READ,
        handle=simulate,
        answer=SimulationResult,
        success={200: "The result of the simulation."},
        example=_SIMULATED,
        body=RequestBody(schema=SIMULATE_SCHEMA, example={"jobs": [DEFINITION], "days": 7, "lasts": "5m"}, alone=True),
    ),
)
