"""Single ticks of a job: what becomes of those that a pause swallowed, and exceptions for those to come."""

from typing import Any

from gnomon.api.examples import JOB
from gnomon.api.jobs import etag
from gnomon.api.reading import said_in
from gnomon.api.routes import Body, Call, Permission, Reply, Route
from gnomon.core.jobs.fields import Said
from gnomon.core.ledger.edits import Choice, Missed
from gnomon.core.responses import JobDetail, JobResumed
from gnomon.services.operations.presenters import job_detail, job_resumed

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
    return await _shown(call)


async def unskip(call: Call) -> Reply:
    """Let a planned time that was skipped or moved fire when it was planned, after all."""
    at = _needed(said_in(call.body, "at"), "at")
    await call.desk.jobs.undo_skip(call.path["name"], at, actor=call.actor, tenant=call.tenant)
    return await _shown(call)


def _needed(said: Said, field: str) -> int:
    said.required(field)
    at = said.instant(field)
    if at is None:
        raise said.refused(field, "is missing")
    return at


async def _shown(call: Call) -> Reply:
    call.desk.changed()
    view = await call.desk.jobs.get(call.path["name"], tenant=call.tenant)
    return Reply(body=job_detail(view), headers={"ETag": etag(view.schedule)})


_RESUMED = {
    **JOB,
    "swallowed": {"count": 2, "first_at": "2026-02-26T14:00:00Z", "last_at": "2026-02-27T14:00:00Z"},
    "runs": 1,
}
ROUTES = (
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
