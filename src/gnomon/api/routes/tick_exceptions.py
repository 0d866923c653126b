"""Exceptions from the planned times of a job: resume it after a pause, skip one time, or move it."""

from typing import Any

from gnomon.api.examples import JOB
from gnomon.api.requests import body_fields
from gnomon.api.route import ApiCall, ApiRoute, Permission, Reply, RequestBody
from gnomon.api.routes.jobs import etag
from gnomon.core.jobs.fields import FieldReader
from gnomon.core.ledger.edits import ResumeChoice, ResumePolicy
from gnomon.core.responses.jobs import JobDetail, JobResumed
from gnomon.services.operations.presenters.jobs import job_detail, job_resumed

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
    name, missed = call.path["name"], read_resume_choice(body_fields(call.body, "missed", "since", "over"))
    done = await call.services.jobs.resume(name, actor=call.actor, missed=missed, tenant=call.tenant)
    call.services.changed()
    view = await call.services.jobs.get(name, tenant=call.tenant)
    return Reply(body=job_resumed(view, done), headers={"ETag": etag(view.schedule)})


def read_resume_choice(fields: FieldReader) -> ResumeChoice:
    """The choice for the runs that were missed during a pause."""
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
ROUTES = (
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
