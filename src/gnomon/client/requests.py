"""Everything that can be asked for, as requests: what `Client` and `AsyncClient` offer, and what the command line asks.

The parameters of each are those of the method of the same name.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from gnomon.client.transport import ApiRequest, api_path
from gnomon.core import responses
from gnomon.core.responses import (
    AuditRecord,
    BackfillDetail,
    BackfillPreview,
    HealthReport,
    JobDetail,
    JobResumed,
    JobsPlanned,
    Launched,
    Page,
    ScheduleDetail,
    ScheduleRegistered,
    WhyAnswer,
)


def _idempotency_header(key: str | None) -> Mapping[str, str]:
    return {} if key is None else {"Idempotency-Key": key}


def _if_match_header(etag: str | None) -> Mapping[str, str]:
    return {} if etag is None else {"If-Match": f'"{etag}"'}


def _request_body(**fields: object) -> dict[str, Any]:
    """What was said, as a body: what was not is left out."""
    return {name: value for name, value in fields.items() if value is not None and value is not False}


def health() -> ApiRequest[HealthReport]:
    """How the scheduler is, part by part."""
    return ApiRequest(method="GET", path="/v1/health", answer=HealthReport)


# ---- jobs ----------------------------------------------------------------------------------------


def register(job: Mapping[str, Any]) -> ApiRequest[responses.JobApplied]:
    """Register a job, in the words of a jobs file. The same again changes nothing."""
    return ApiRequest(method="POST", path=api_path("jobs"), answer=responses.JobApplied, body=job)


def update(name: str, job: Mapping[str, Any], *, etag: str | None = None) -> ApiRequest[responses.JobApplied]:
    """Change a job to what is said; `etag` refuses if it has changed since that was seen."""
    where = api_path("jobs", name)
    return ApiRequest(method="PUT", path=where, answer=responses.JobApplied, body=job, headers=_if_match_header(etag))


def apply(
    jobs: Sequence[Mapping[str, Any]], *, prune: bool = False, prune_tag: str | None = None
) -> ApiRequest[Page[responses.JobApplied]]:
    """Make jobs stand as they are written, all of them or none; `prune` removes those that are not among them."""
    body = {"jobs": list(jobs), **_request_body(prune=prune, prune_tag=prune_tag)}
    return ApiRequest(method="POST", path=api_path("apply"), answer=Page[responses.JobApplied], body=body)


def jobs(*, tag: str | None = None, page: int = 100) -> ApiRequest[Page[responses.JobSummary]]:
    """Every job by name, read page by page as it is asked for."""
    return ApiRequest(
        method="GET", path=api_path("jobs"), answer=Page[responses.JobSummary], query={"tag": tag, "limit": page}
    )


def job(name: str, *, coming: int = 5, last: int = 10) -> ApiRequest[responses.JobDetail]:
    """All there is to know about a job, with some planned times to come and some of the last decisions."""
    query = {"coming": coming, "last": last}
    return ApiRequest(method="GET", path=api_path("jobs", name), answer=responses.JobDetail, query=query)


def delete(name: str, *, etag: str | None = None) -> ApiRequest[None]:
    """End a job. Its history stays; `etag` refuses if it has changed since that was seen."""
    return ApiRequest(method="DELETE", path=api_path("jobs", name), answer=None, headers=_if_match_header(etag))


def trigger(
    name: str,
    input: Mapping[str, Any] | None = None,  # noqa: A002 - the word that job files have for it
    *,
    key: str | None = None,
    force: bool = False,
) -> ApiRequest[responses.Started]:
    """Start an execution of a job; the same key starts one, however often it is asked for."""
    body, where = _request_body(input=input, force=force), api_path("jobs", name, "trigger")
    return ApiRequest(method="POST", path=where, answer=responses.Started, body=body, headers=_idempotency_header(key))


def pause(name: str) -> ApiRequest[responses.JobDetail]:
    """Let no planned time of a job start anything until it is resumed."""
    return ApiRequest(method="POST", path=api_path("jobs", name, "pause"), answer=responses.JobDetail)


def planned(
    *, hours: int = 24, since: datetime | None = None, page: int = 1000
) -> ApiRequest[Page[responses.PlannedFire]]:
    """The planned times of all jobs in the next hours, the earliest first."""
    query = {"hours": hours, "since": since, "limit": page}
    return ApiRequest(method="GET", path=api_path("schedule"), answer=Page[responses.PlannedFire], query=query)


def ticks(
    job: str | None = None,
    *,
    kind: str | None = None,
    status: str | None = None,
    since: datetime | str | None = None,
    until: datetime | str | None = None,
    page: int = 100,
) -> ApiRequest[Page[responses.LedgerTick]]:
    """What became of planned times, of one job or of all, the newest first."""
    query = {"job": job, "kind": kind, "status": status, "since": since, "until": until, "limit": page}
    return ApiRequest(method="GET", path=api_path("ticks"), answer=Page[responses.LedgerTick], query=query)


def why(name: str, *, at: str | None = None, last: int | None = None) -> ApiRequest[WhyAnswer]:
    """Why a job did what it did at a moment, or the last few times, and what it will do next."""
    return ApiRequest(
        method="GET", path=api_path("jobs", name, "why"), answer=WhyAnswer, query={"at": at, "last": last}
    )


# ---- executions ----------------------------------------------------------------------------------


def executions(*, page: int = 100, **asked: object) -> ApiRequest[Page[responses.Execution]]:
    """Executions, the newest first, by job, status, trigger, tag, since and until."""
    query = {"limit": page, **asked}
    return ApiRequest(method="GET", path=api_path("executions"), answer=Page[responses.Execution], query=query)


def execution(execution_id: str) -> ApiRequest[responses.ExecutionDetail]:
    """All there is to know about an execution; of a step that is done for each of many, the first hundred."""
    return ApiRequest(method="GET", path=api_path("executions", execution_id), answer=responses.ExecutionDetail)


def items(
    execution_id: str, step: str, *, state: str | None = None, page: int = 100
) -> ApiRequest[Page[responses.ItemDetail]]:
    """The items of a step that is done for each of many, in their order."""
    query = {"state": state, "limit": page}
    where = api_path("executions", execution_id, "steps", step, "items")
    return ApiRequest(method="GET", path=where, answer=Page[responses.ItemDetail], query=query)


def cancel(execution_id: str) -> ApiRequest[responses.Ended]:
    """End an execution: what waits at once, what runs as soon as it stops."""
    return ApiRequest(method="POST", path=api_path("executions", execution_id, "cancel"), answer=responses.Ended)


def logs(execution_id: str, *, since: datetime | None = None, page: int = 1000) -> ApiRequest[Page[responses.LogEntry]]:
    """What the steps of an execution have said, in the order of time."""
    query = {"since": since, "limit": page}
    return ApiRequest(
        method="GET", path=api_path("executions", execution_id, "logs"), answer=Page[responses.LogEntry], query=query
    )


def submit(
    function: str,
    input: Mapping[str, Any] | None = None,  # noqa: A002 - the word that job files have for it
    *,
    key: str | None = None,
    **terms: object,
) -> ApiRequest[responses.Started]:
    """Run a function once, without a job; `terms` are fields of a job, such as timeout and retry."""
    body = {"function": function, **terms, **_request_body(input=input)}
    return ApiRequest(
        method="POST", path=api_path("tasks"), answer=responses.Started, body=body, headers=_idempotency_header(key)
    )


# ---- dead letters --------------------------------------------------------------------------------


def dead_letters(
    *, job: str | None = None, resolved: bool = False, page: int = 100
) -> ApiRequest[Page[responses.DeadLetterSummary]]:
    """Dead letters that nobody has dealt with; all of them if `resolved`."""
    query = {"job": job, "resolved": resolved, "limit": page}
    return ApiRequest(
        method="GET", path=api_path("dead-letters"), answer=Page[responses.DeadLetterSummary], query=query
    )


def dead_letter(dead_letter_id: str) -> ApiRequest[responses.DeadLetterDetail]:
    """A dead letter with every attempt."""
    return ApiRequest(method="GET", path=api_path("dead-letters", dead_letter_id), answer=responses.DeadLetterDetail)


def replay(dead_letter_id: str, *, key: str | None = None) -> ApiRequest[responses.Started]:
    """Run again what has failed, as a new execution."""
    where = api_path("dead-letters", dead_letter_id, "replay")
    return ApiRequest(method="POST", path=where, answer=responses.Started, headers=_idempotency_header(key))


def replay_all(*, job: str | None = None) -> ApiRequest[Page[responses.Replay]]:
    """Replay every dead letter that nobody has dealt with; what became of each comes back."""
    where = api_path("dead-letters", "replay-all")
    return ApiRequest(method="POST", path=where, answer=Page[responses.Replay], query={"job": job})


def resolve(dead_letter_id: str) -> ApiRequest[responses.DeadLetterDetail]:
    """Mark a dead letter as dealt with."""
    where = api_path("dead-letters", dead_letter_id)
    return ApiRequest(method="PATCH", path=where, answer=responses.DeadLetterDetail, body={"resolved": True})


# ---- events, workflows, workers ------------------------------------------------------------------


def emit(name: str, body: object = None, *, key: str | None = None) -> ApiRequest[responses.EventDetail]:
    """Say that something happened, and start the jobs that listen to it."""
    said = {"name": name, "body": body}
    return ApiRequest(
        method="POST",
        path=api_path("events"),
        answer=responses.EventDetail,
        body=said,
        headers=_idempotency_header(key),
    )


def events(*, name: str | None = None, page: int = 100) -> ApiRequest[Page[responses.EventDetail]]:
    """Events, the newest first, each with what became of it."""
    return ApiRequest(
        method="GET", path=api_path("events"), answer=Page[responses.EventDetail], query={"name": name, "limit": page}
    )


def event(event_id: str) -> ApiRequest[responses.EventDetail]:
    """An event, and what became of it for every job that listens."""
    return ApiRequest(method="GET", path=api_path("events", event_id), answer=responses.EventDetail)


def deploy(definition: Mapping[str, Any]) -> ApiRequest[responses.WorkflowDeployed]:
    """Keep a workflow as a new version, and let its triggers stand."""
    return ApiRequest(method="POST", path=api_path("workflows"), answer=responses.WorkflowDeployed, body=definition)


def workflows(*, page: int = 100) -> ApiRequest[Page[responses.WorkflowSummary]]:
    """Every workflow by name, in its newest version."""
    return ApiRequest(
        method="GET", path=api_path("workflows"), answer=Page[responses.WorkflowSummary], query={"limit": page}
    )


def workflow(workflow_id: str, *, version: int | None = None) -> ApiRequest[dict[str, Any]]:
    """A version of a workflow, as it is deployed; the newest if none is named."""
    return ApiRequest(
        method="GET", path=api_path("workflows", workflow_id), answer=dict[str, Any], query={"version": version}
    )


def workers() -> ApiRequest[Page[responses.WorkerDetail]]:
    """The workers that are alive."""
    return ApiRequest(method="GET", path=api_path("workers"), answer=Page[responses.WorkerDetail])


def _iso(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


def plan(
    jobs: Sequence[Mapping[str, Any]],
    *,
    days: int = 14,
    prune: bool = False,
    prune_tag: str | None = None,
    fires: int | None = None,
) -> ApiRequest[JobsPlanned]:
    """What applying jobs would do, in fields and in fires."""
    body = {"jobs": list(jobs), "days": days, "prune": prune, "prune_tag": prune_tag}
    body |= {} if fires is None else {"fires": fires}
    return ApiRequest(method="POST", path=api_path("plan"), answer=JobsPlanned, body=body)


def resume(
    name: str, *, missed: str = "skip", since: datetime | None = None, over: str | None = None
) -> ApiRequest[JobResumed]:
    """Let a job go on from now; `missed` says which of the runs that its pause swallowed take place.

    That is `skip`, `latest`, `all`, `since` a time, or `spread` over some time, such as 10m.
    """
    body = {"missed": missed, "since": _iso(since), "over": over}
    said = {field: value for field, value in body.items() if value is not None}
    return ApiRequest(method="POST", path=api_path("jobs", name, "resume"), answer=JobResumed, body=said)


def skip(name: str, at: datetime, *, move_to: datetime | None = None) -> ApiRequest[JobDetail]:
    """Let one coming planned time of a job start nothing, or start it at another time."""
    body = {"at": _iso(at)} | ({} if move_to is None else {"move_to": _iso(move_to)})
    return ApiRequest(method="POST", path=api_path("jobs", name, "skip"), answer=JobDetail, body=body)


def unskip(name: str, at: datetime) -> ApiRequest[JobDetail]:
    """Let a planned time that was skipped or moved fire when it was planned, after all."""
    return ApiRequest(method="POST", path=api_path("jobs", name, "unskip"), answer=JobDetail, body={"at": _iso(at)})


def backfill(
    name: str,
    first: datetime,
    last: datetime,
    *,
    max_parallel: int = 1,
    again: bool = False,
    key: str | None = None,
) -> ApiRequest[BackfillDetail]:
    """Run the planned times of the past from the first to the last that had no run; `again` also those that had.

    The same key is the same backfill, however often it is asked for.
    """
    body = {"from": _iso(first), "to": _iso(last), "max_parallel": max_parallel, "again": again}
    where, headers = api_path("jobs", name, "backfill"), {} if key is None else {"Idempotency-Key": key}
    return ApiRequest(method="POST", path=where, answer=BackfillDetail, body=body, headers=headers)


def preview_backfill(name: str, first: datetime, last: datetime, *, again: bool = False) -> ApiRequest[BackfillPreview]:
    """What a backfill would run."""
    body, where = {"from": _iso(first), "to": _iso(last), "again": again}, api_path("jobs", name, "backfill", "preview")
    return ApiRequest(method="POST", path=where, answer=BackfillPreview, body=body)


def backfills(*, job: str | None = None, page: int = 100) -> ApiRequest[Page[BackfillDetail]]:
    """Backfills and how far they have come, the newest first, read page by page as it is asked for."""
    query = {"job": job, "limit": page}
    return ApiRequest(method="GET", path=api_path("backfills"), answer=Page[BackfillDetail], query=query)


def backfill_state(backfill_id: str) -> ApiRequest[BackfillDetail]:
    """A backfill and how far it has come."""
    return ApiRequest(method="GET", path=api_path("backfills", backfill_id), answer=BackfillDetail)


def cancel_backfill(backfill_id: str) -> ApiRequest[BackfillDetail]:
    """Start nothing more of a backfill; what is under way goes on."""
    return ApiRequest(method="POST", path=api_path("backfills", backfill_id, "cancel"), answer=BackfillDetail)


def audit(*, page: int = 100, **asked: object) -> ApiRequest[Page[AuditRecord]]:
    """Who changed what, the newest first, by actor, action, kind, name, since and until."""
    return ApiRequest(method="GET", path=api_path("audit"), answer=Page[AuditRecord], query={"limit": page, **asked})


def upsert_schedule(said: Mapping[str, Any]) -> ApiRequest[ScheduleRegistered]:
    """Make a schedule of a workflow say what is said. Saying it again changes nothing."""
    return ApiRequest(method="POST", path=api_path("schedules", "upsert"), answer=ScheduleRegistered, body=said)


def pause_schedule(schedule_id: str, *, paused: bool = True) -> ApiRequest[ScheduleDetail]:
    """Pause a schedule, or let it go on."""
    body = {"schedule_id": schedule_id, "paused": paused}
    return ApiRequest(method="POST", path=api_path("schedules", "pause"), answer=ScheduleDetail, body=body)


def schedule(schedule_id: str, *, coming: int = 5, last: int = 10) -> ApiRequest[ScheduleDetail]:
    """A schedule with its next planned times and its last decisions."""
    query = {"coming": coming, "last": last}
    return ApiRequest(method="GET", path=api_path("schedules", schedule_id), answer=ScheduleDetail, query=query)


def delete_schedule(schedule_id: str) -> ApiRequest[None]:
    """End a schedule. Its history stays."""
    return ApiRequest(method="DELETE", path=api_path("schedules", schedule_id), answer=None)


def start(
    workflow_id: str, version: int, scheduled_for: datetime, key: str, *, user_id: str | None = None
) -> ApiRequest[Launched]:
    """Start a run of a version of a workflow, once for each key; `started` is false if there is no such workflow."""
    body = {"workflow_id": workflow_id, "version": version, "scheduled_for": scheduled_for.isoformat()}
    said = {**body, "idempotency_key": key} | ({} if user_id is None else {"user_id": user_id})
    headers = {"Idempotency-Key": key}
    return ApiRequest(
        method="POST", path=api_path("run-launcher", "start"), answer=Launched, body=said, headers=headers
    )
