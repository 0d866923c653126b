"""Whole files of jobs: applied all or none, or only planned."""

import asyncio
from typing import Any

from gnomon.api.examples import APPLIED, DEFINITION
from gnomon.api.jobs import JOB_SCHEMA
from gnomon.api.reading import said_in
from gnomon.api.routes import Body, Call, Permission, Reply, Route
from gnomon.core.jobs.fields import Said, printable
from gnomon.core.jobs.job import JOB_FIELDS, Job, blamed, read_job
from gnomon.core.jobs.steps import LONGEST_TAG
from gnomon.core.ledger.forecast import MOST_WALKED
from gnomon.core.model import DAY_MS
from gnomon.core.responses import JobApplied, JobsPlanned, Page
from gnomon.errors import CronError, FieldError
from gnomon.services.operations.job_changes import Prune
from gnomon.services.operations.presenters import job_applied, jobs_planned

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
ROUTES = (
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
