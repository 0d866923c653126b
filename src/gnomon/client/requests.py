"""One function per API operation; each builds the request and names the type of its response.

`Client` and `AsyncClient` have a method for each function, with the same parameters; the command line sends the
requests themselves.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypeVar

import msgspec

from gnomon.client.transport import LONG_TIMEOUT_SECONDS, ApiRequest, api_path
from gnomon.core.responses.agents import AgentUsageReport, SessionCleared, SessionListed, SessionTurnShown
from gnomon.core.responses.announcements import AnnouncementSummary
from gnomon.core.responses.approvals import ApprovalDetail, ApprovalSummary
from gnomon.core.responses.audit import AuditRecord
from gnomon.core.responses.backfills import BackfillDetail, BackfillPreview
from gnomon.core.responses.base import Page
from gnomon.core.responses.breakers import BreakerDetail
from gnomon.core.responses.bulk_changes import ExecutionCancelled, JobChanged
from gnomon.core.responses.calendar import Calendar
from gnomon.core.responses.dead_letters import (
    DeadLetterDetail,
    DeadLetterGroup,
    DeadLetterResolved,
    DeadLetterSummary,
    Replay,
)
from gnomon.core.responses.events import EventDetail
from gnomon.core.responses.executions import (
    Ended,
    Execution,
    ExecutionDetail,
    ItemDetail,
    Launched,
    LogEntry,
    RollbackStarted,
    Started,
)
from gnomon.core.responses.jobs import (
    JobApplied,
    JobDetail,
    JobResumed,
    JobSummary,
    LedgerTick,
    PlannedFire,
)
from gnomon.core.responses.overview import Overview
from gnomon.core.responses.plans import JobsPlanned, SimulationResult
from gnomon.core.responses.policy import (
    BudgetDetail,
    JobPolicy,
    PolicyApplied,
    PolicyDetail,
    PolicyDifference,
    PolicyVersionDetail,
    TaskDecisions,
)
from gnomon.core.responses.policy_replay import PolicyReplayed
from gnomon.core.responses.policy_shadow import PolicyShadowDetail, PolicyShadowReport
from gnomon.core.responses.quarantine import HeldOutputDetail, HeldOutputSummary
from gnomon.core.responses.revisions import JobRevision
from gnomon.core.responses.schedules import (
    ScheduleDetail,
    ScheduleExplained,
    ScheduleRegistered,
    WorkflowDeployed,
    WorkflowSummary,
)
from gnomon.core.responses.system import CallerIdentity, DashboardCode, HealthReport, SecurityStatus, WorkerDetail
from gnomon.core.responses.tokens import TokenDetail, TokensRevoked
from gnomon.core.responses.why import WhyAnswer

T = TypeVar("T")


def _get(path: str, answer: type[T], query: Mapping[str, object] | None = None) -> ApiRequest[T]:
    return ApiRequest(method="GET", path=path, answer=answer, query=query or {})


def _post(
    path: str,
    answer: type[T],
    body: Mapping[str, Any] | None = None,
    *,
    query: Mapping[str, object] | None = None,
    key: str | None = None,
) -> ApiRequest[T]:
    headers = {} if key is None else {"Idempotency-Key": key}
    return ApiRequest(method="POST", path=path, answer=answer, query=query or {}, body=body, headers=headers)


def _post_many(
    path: str,
    answer: type[T],
    body: Mapping[str, Any] | None = None,
    *,
    query: Mapping[str, object] | None = None,
    key: str | None = None,
) -> ApiRequest[T]:
    """A request about many objects, for which the server may take long."""
    return msgspec.structs.replace(_post(path, answer, body, query=query, key=key), timeout=LONG_TIMEOUT_SECONDS)


def _if_match(etag: str | None) -> Mapping[str, str]:
    return {} if etag is None else {"If-Match": f'"{etag}"'}


def _set_fields(**fields: object) -> dict[str, Any]:
    """The fields without those that are None or False."""
    return {name: value for name, value in fields.items() if value is not None and value is not False}


def _iso(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


def health() -> ApiRequest[HealthReport]:
    """The health of the scheduler and of each component."""
    return _get("/v1/health", HealthReport)


def whoami() -> ApiRequest[CallerIdentity]:
    """The subject, tenant, roles and groups of the caller, and when its token expires."""
    return _get(api_path("whoami"), CallerIdentity)


def overview(*, hours: int | None = None) -> ApiRequest[Overview]:
    """The overview: what needs attention, with counts of the last hours."""
    return _get(api_path("overview"), Overview, _set_fields(hours=hours))


def calendar(  # noqa: PLR0913 - the filters of the route
    *,
    since: datetime | str | None = None,
    until: datetime | str | None = None,
    by: str | None = None,
    timezone: str | None = None,
    job: str | None = None,
    tag: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> ApiRequest[Calendar]:
    """The ticks of jobs by `hour` or `day` of a time zone: decided up to now, and planned from now on."""
    query = {"from": since, "to": until, "by": by, "tz": timezone, "job": job, "tag": tag, "limit": limit}
    return _get(api_path("calendar"), Calendar, {**query, "cursor": cursor})


# ---- jobs ----------------------------------------------------------------------------------------


def register(job: Mapping[str, Any]) -> ApiRequest[JobApplied]:
    """Register a job, given in the format of a jobs file; a job of that name with another definition is refused."""
    return _post(api_path("jobs"), JobApplied, job)


def update(name: str, job: Mapping[str, Any], *, etag: str | None = None) -> ApiRequest[JobApplied]:
    """Replace the definition of a job; with `etag`, fail if the job has changed since that ETag was read."""
    path = api_path("jobs", name)
    return ApiRequest(method="PUT", path=path, answer=JobApplied, body=job, headers=_if_match(etag))


def apply(
    jobs: Sequence[Mapping[str, Any]],
    *,
    prune: bool = False,
    prune_tag: str | None = None,
    plan: str | None = None,
) -> ApiRequest[Page[JobApplied]]:
    """Create or update jobs, atomically; `prune` deletes all other jobs, `prune_tag` all others with that tag.

    With `plan`, the digest of a plan of the same jobs and options, fail if any of these jobs has changed since.
    """
    body = {"jobs": list(jobs), **_set_fields(prune=prune, prune_tag=prune_tag, plan=plan)}
    return _post_many(api_path("apply"), Page[JobApplied], body)


def plan(
    jobs: Sequence[Mapping[str, Any]],
    *,
    days: int = 14,
    prune: bool = False,
    prune_tag: str | None = None,
    fires: int | None = None,
) -> ApiRequest[JobsPlanned]:
    """The fields and fires that applying these jobs would change."""
    body = {"jobs": list(jobs), "days": days, "prune": prune, "prune_tag": prune_tag}
    body |= {} if fires is None else {"fires": fires}
    return _post_many(api_path("plan"), JobsPlanned, body)


def simulate(
    jobs: Sequence[Mapping[str, Any]], *, days: int = 7, timezone: str = "UTC", lasts: str = "0s"
) -> ApiRequest[SimulationResult]:
    """Simulate these jobs from now on, as if each run lasted so long."""
    body = {"jobs": list(jobs), "days": days, "timezone": timezone, "lasts": lasts}
    return _post_many(api_path("simulate"), SimulationResult, body)


def jobs(
    *,
    q: str | None = None,
    tag: str | None = None,
    state: str | None = None,
    order: str | None = None,
    include: str | None = None,
    page: int = 100,
) -> ApiRequest[Page[JobSummary]]:
    """All jobs by name, or those with the text `q` in their name, description or a tag.

    `state` is a state as it is shown, or `failing`; `order` is `name`, `next` or `last`; with `include="ticks"` each
    has its last twenty ticks, and with `include="why"` also the newest in a sentence.
    `page` is the number of jobs per request.
    """
    query = {"q": q, "tag": tag, "state": state, "order": order, "include": include, "limit": page}
    return _get(api_path("jobs"), Page[JobSummary], query)


def job(name: str, *, coming: int = 5, last: int = 10) -> ApiRequest[JobDetail]:
    """A job with its definition, its next `coming` planned times and its `last` ticks."""
    return _get(api_path("jobs", name), JobDetail, {"coming": coming, "last": last})


def delete(name: str, *, etag: str | None = None) -> ApiRequest[None]:
    """Delete a job and keep its history; with `etag`, fail if the job has changed since that ETag was read."""
    return ApiRequest(method="DELETE", path=api_path("jobs", name), answer=None, headers=_if_match(etag))


def trigger(
    name: str,
    input: Mapping[str, Any] | None = None,  # noqa: A002 - named as in jobs files
    *,
    key: str | None = None,
    force: bool = False,
    deadline: str | float | None = None,
) -> ApiRequest[Started]:
    """Start an execution of a job; a repeated request with the same `key` starts no second one.

    It ends after `deadline`, a number of seconds or a duration such as 10m, whatever it does.
    """
    body = _set_fields(input=input, force=force, deadline=deadline)
    return _post(api_path("jobs", name, "trigger"), Started, body, key=key)


def pause(name: str) -> ApiRequest[JobDetail]:
    """Pause a job: no planned time starts a run until the job is resumed."""
    return _post(api_path("jobs", name, "pause"), JobDetail)


def resume(
    name: str, *, missed: str = "skip", since: datetime | None = None, over: str | None = None
) -> ApiRequest[JobResumed]:
    """Resume a paused job; `missed` selects which of the runs missed during the pause are started.

    It is `skip`, `latest`, `all`, `since` (with the instant `since`) or `spread` (with the duration `over`, such as
    10m).
    """
    body = _set_fields(missed=missed, since=_iso(since), over=over)
    return _post(api_path("jobs", name, "resume"), JobResumed, body)


def pause_jobs(
    *,
    names: Sequence[str] | None = None,
    all: bool = False,  # noqa: A002 - named as in the API
    preview: bool = False,
    **filters: object,
) -> ApiRequest[Page[JobChanged]]:
    """Pause these jobs, those that match the filters q, tag and state, or `all`; with the outcome of each."""
    body = _set_fields(names=None if names is None else list(names), all=all, preview=preview)
    return _post_many(api_path("bulk", "jobs", "pause"), Page[JobChanged], body, query=filters)


def resume_jobs(
    *,
    names: Sequence[str] | None = None,
    all: bool = False,  # noqa: A002 - named as in the API
    missed: str = "skip",
    since: datetime | None = None,
    over: str | None = None,
    preview: bool = False,
    **filters: object,
) -> ApiRequest[Page[JobChanged]]:
    """Resume jobs, selected as by `pause_jobs`; `missed` as for `resume`."""
    named = None if names is None else list(names)
    body = _set_fields(names=named, all=all, preview=preview, missed=missed, since=_iso(since), over=over)
    return _post_many(api_path("bulk", "jobs", "resume"), Page[JobChanged], body, query=filters)


def trigger_jobs(
    *,
    names: Sequence[str] | None = None,
    all: bool = False,  # noqa: A002 - named as in the API
    input: Mapping[str, Any] | None = None,  # noqa: A002 - named as in jobs files
    key: str | None = None,
    preview: bool = False,
    **filters: object,
) -> ApiRequest[Page[JobChanged]]:
    """Start an execution of jobs, selected as by `pause_jobs`; of each once per `key`."""
    body = _set_fields(names=None if names is None else list(names), all=all, preview=preview, input=input)
    return _post_many(api_path("bulk", "jobs", "trigger"), Page[JobChanged], body, query=filters, key=key)


def cancel_executions(
    *,
    ids: Sequence[str] | None = None,
    all: bool = False,  # noqa: A002 - named as in the API
    preview: bool = False,
    **filters: object,
) -> ApiRequest[Page[ExecutionCancelled]]:
    """Cancel these executions, those that match the filters of the list and have not ended, or `all` of these."""
    body = _set_fields(ids=None if ids is None else list(ids), all=all, preview=preview)
    return _post_many(api_path("bulk", "executions", "cancel"), Page[ExecutionCancelled], body, query=filters)


def skip(name: str, at: datetime, *, move_to: datetime | None = None) -> ApiRequest[JobDetail]:
    """Skip one coming planned time of a job, or move it to another time."""
    return _post(api_path("jobs", name, "skip"), JobDetail, _set_fields(at=_iso(at), move_to=_iso(move_to)))


def unskip(name: str, at: datetime) -> ApiRequest[JobDetail]:
    """Undo the skip or move of a planned time."""
    return _post(api_path("jobs", name, "unskip"), JobDetail, {"at": _iso(at)})


def planned(*, hours: int = 24, since: datetime | None = None, page: int = 1000) -> ApiRequest[Page[PlannedFire]]:
    """The planned times of all jobs in the next hours, earliest first."""
    query = {"hours": hours, "since": since, "limit": page}
    return _get(api_path("schedule"), Page[PlannedFire], query)


def ticks(
    job: str | None = None,
    *,
    kind: str | None = None,
    reason: str | None = None,
    status: str | None = None,
    since: datetime | str | None = None,
    until: datetime | str | None = None,
    page: int = 100,
) -> ApiRequest[Page[LedgerTick]]:
    """The ticks of one job or of all jobs, newest first: planned times and the decision on each."""
    bounds = {"since": since, "until": until, "limit": page}
    query = {"job": job, "kind": kind, "reason": reason, "status": status, **bounds}
    return _get(api_path("ticks"), Page[LedgerTick], query)


def revisions(name: str, *, page: int = 20) -> ApiRequest[Page[JobRevision]]:
    """The revisions of a job, newest first, each with its definition and how it differs from the one before."""
    return _get(api_path("jobs", name, "revisions"), Page[JobRevision], {"limit": page})


def why(name: str, *, at: str | None = None, last: int | None = None) -> ApiRequest[WhyAnswer]:
    """Why a job ran or did not run at a time, or at its last ticks, and when it runs next."""
    return _get(api_path("jobs", name, "why"), WhyAnswer, {"at": at, "last": last})


def explain(schedule: str, *, timezone: str | None = None, coming: int = 5) -> ApiRequest[ScheduleExplained]:
    """A schedule in words and as cron, and its next fires."""
    query = {"schedule": schedule, "timezone": timezone, "coming": coming}
    return _get(api_path("explain"), ScheduleExplained, query)


# ---- backfills -----------------------------------------------------------------------------------


def backfill(
    name: str,
    first: datetime,
    last: datetime,
    *,
    max_parallel: int = 1,
    again: bool = False,
    key: str | None = None,
) -> ApiRequest[BackfillDetail]:
    """Run the past planned times from `first` to `last` that had no run; with `again`, all of them.

    A repeated request with the same `key` returns the same backfill.
    """
    body = {"from": _iso(first), "to": _iso(last), "max_parallel": max_parallel, "again": again}
    return _post(api_path("jobs", name, "backfill"), BackfillDetail, body, key=key)


def preview_backfill(name: str, first: datetime, last: datetime, *, again: bool = False) -> ApiRequest[BackfillPreview]:
    """The planned times that a backfill would run."""
    body = {"from": _iso(first), "to": _iso(last), "again": again}
    return _post(api_path("jobs", name, "backfill", "preview"), BackfillPreview, body)


def backfills(*, job: str | None = None, page: int = 100) -> ApiRequest[Page[BackfillDetail]]:
    """Backfills and their progress, newest first."""
    return _get(api_path("backfills"), Page[BackfillDetail], {"job": job, "limit": page})


def backfill_state(backfill_id: str) -> ApiRequest[BackfillDetail]:
    """A backfill and its progress."""
    return _get(api_path("backfills", backfill_id), BackfillDetail)


def cancel_backfill(backfill_id: str) -> ApiRequest[BackfillDetail]:
    """Cancel a backfill: no more runs start, active runs continue."""
    return _post(api_path("backfills", backfill_id, "cancel"), BackfillDetail)


# ---- executions ----------------------------------------------------------------------------------


def executions(*, page: int = 100, **filters: object) -> ApiRequest[Page[Execution]]:
    """Executions, newest first; filters are job, status, trigger, waiting, tag, since and until.

    Or alone the prefix of an id. With the status `skipped`, the ticks that had no execution.
    """
    return _get(api_path("executions"), Page[Execution], {"limit": page, **filters})


def execution(execution_id: str) -> ApiRequest[ExecutionDetail]:
    """An execution with its steps and attempts; of a `foreach` step, the first hundred items."""
    return _get(api_path("executions", execution_id), ExecutionDetail)


def items(execution_id: str, step: str, *, state: str | None = None, page: int = 100) -> ApiRequest[Page[ItemDetail]]:
    """The items of a `foreach` step, in order."""
    path = api_path("executions", execution_id, "steps", step, "items")
    return _get(path, Page[ItemDetail], {"state": state, "limit": page})


def cancel(execution_id: str) -> ApiRequest[Ended]:
    """Cancel an execution: pending steps at once, running steps as soon as they stop."""
    return _post(api_path("executions", execution_id, "cancel"), Ended)


def roll_back(execution_id: str, *, reason: str) -> ApiRequest[RollbackStarted]:
    """Undo the steps of an execution that has ended: those that succeeded, the last one first."""
    return _post(api_path("executions", execution_id, "rollback"), RollbackStarted, {"reason": reason})


def logs(
    execution_id: str,
    *,
    since: datetime | None = None,
    order: Literal["asc", "desc"] = "asc",
    step: str | None = None,
    after: int | None = None,
    find: str | None = None,
    page: int = 1000,
) -> ApiRequest[Page[LogEntry]]:
    """The log lines of an execution in order of time, also those of attempts that go on; `desc`: the last ones first.

    `after` is the number of a line: each step, and each item, counts its own from 1. `find` is a text in the lines.
    """
    query = {"since": since, "order": order, "step": step, "after": after, "find": find, "limit": page}
    return _get(api_path("executions", execution_id, "logs"), Page[LogEntry], query)


def submit(
    function: str,
    input: Mapping[str, Any] | None = None,  # noqa: A002 - named as in jobs files
    *,
    key: str | None = None,
    **terms: object,
) -> ApiRequest[Started]:
    """Run a function once, without a job; `terms` are fields of a job, such as timeout and retry."""
    body = {"function": function, **terms, **_set_fields(input=input)}
    return _post(api_path("tasks"), Started, body, key=key)


# ---- agents --------------------------------------------------------------------------------------


def agent_usage(*, days: int = 7) -> ApiRequest[AgentUsageReport]:
    """The usage of agents by day and model."""
    return _get(api_path("agents", "usage"), AgentUsageReport, {"days": days})


def sessions(*, page: int = 1000) -> ApiRequest[Page[SessionListed]]:
    """The sessions of agents with history."""
    return _get(api_path("sessions"), Page[SessionListed], {"limit": page})


def session(name: str, *, page: int = 20) -> ApiRequest[Page[SessionTurnShown]]:
    """The newest turns of a session, newest first."""
    return _get(api_path("sessions", name), Page[SessionTurnShown], {"limit": page})


def clear_session(name: str) -> ApiRequest[SessionCleared]:
    """Forget the history of a session."""
    return _post(api_path("sessions", name, "clear"), SessionCleared)


# ---- announcements -------------------------------------------------------------------------------


def announcements(
    *, job: str | None = None, state: str | None = None, page: int = 100
) -> ApiRequest[Page[AnnouncementSummary]]:
    """Announcements, newest first."""
    query = {"job": job, "state": state, "limit": page}
    return _get(api_path("announcements"), Page[AnnouncementSummary], query)


def announcements_by_prefix(prefix: str, *, page: int = 100) -> ApiRequest[Page[AnnouncementSummary]]:
    """Announcements whose ids begin so, by id."""
    query = {"prefix": prefix, "limit": page}
    return _get(api_path("announcements"), Page[AnnouncementSummary], query)


def announcement(announcement_id: str) -> ApiRequest[AnnouncementSummary]:
    """An announcement."""
    return _get(api_path("announcements", announcement_id), AnnouncementSummary)


def retry_announcement(announcement_id: str) -> ApiRequest[AnnouncementSummary]:
    """Try an announcement again that was given up."""
    return _post(api_path("announcements", announcement_id, "retry"), AnnouncementSummary)


# ---- breakers ------------------------------------------------------------------------------------


def breakers(*, page: int = 100) -> ApiRequest[Page[BreakerDetail]]:
    """The circuit breakers that tasks have used, by name."""
    return _get(api_path("breakers"), Page[BreakerDetail], {"limit": page})


def breaker(name: str) -> ApiRequest[BreakerDetail]:
    """A circuit breaker."""
    return _get(api_path("breakers", name), BreakerDetail)


def reset_breaker(name: str) -> ApiRequest[BreakerDetail]:
    """Close a circuit breaker: the tasks that wait for it start now."""
    return _post(api_path("breakers", name, "reset"), BreakerDetail)


# ---- approvals -----------------------------------------------------------------------------------


def approvals(
    *, status: str | None = None, kind: str | None = None, job: str | None = None, page: int = 100
) -> ApiRequest[Page[ApprovalSummary]]:
    """Approvals, newest first."""
    query = {"status": status, "kind": kind, "job": job, "limit": page}
    return _get(api_path("approvals"), Page[ApprovalSummary], query)


def approval(approval_id: str) -> ApiRequest[ApprovalDetail]:
    """An approval, with the input of its task, or with its commands."""
    return _get(api_path("approvals", approval_id), ApprovalDetail)


def ask_for_approval(job: str, *, reason: str | None = None) -> ApiRequest[ApprovalDetail]:
    """Ask for an approval of the commands of a job as they are now; the answer is that which there is then."""
    return _post(api_path("approvals"), ApprovalDetail, _set_fields(job=job, reason=reason))


def approve(approval_id: str, *, digest: str, reason: str | None = None) -> ApiRequest[ApprovalDetail]:
    """Vote for a task or for commands that wait; `digest` is that of the approval as the voter saw it."""
    return _vote(approval_id, "approve", digest, reason)


def reject(approval_id: str, *, digest: str, reason: str | None = None) -> ApiRequest[ApprovalDetail]:
    """Vote against a task or commands that wait; a task ends."""
    return _vote(approval_id, "reject", digest, reason)


def override_approval(approval_id: str, *, digest: str, reason: str) -> ApiRequest[ApprovalDetail]:
    """Let a task run without its approval, as a member of a group in `policy.break_glass`."""
    return _vote(approval_id, "override", digest, reason)


def revoke_approval(approval_id: str) -> ApiRequest[ApprovalDetail]:
    """Revoke an approval of commands: they do not run any more."""
    return _post(api_path("approvals", approval_id, "revoke"), ApprovalDetail)


def _vote(approval_id: str, vote: str, digest: str, reason: str | None) -> ApiRequest[ApprovalDetail]:
    body = _set_fields(digest=digest, reason=reason)
    return _post(api_path("approvals", approval_id, vote), ApprovalDetail, body)


# ---- outputs that are held back --------------------------------------------------------------------


def held_outputs(*, status: str | None = None, page: int = 100) -> ApiRequest[Page[HeldOutputSummary]]:
    """Outputs that are or were held back, newest first, without their contents."""
    return _get(api_path("quarantine"), Page[HeldOutputSummary], {"status": status, "limit": page})


def held_output(task_id: str) -> ApiRequest[HeldOutputDetail]:
    """An output that is held back, with its content; the audit trail records the look."""
    return _get(api_path("quarantine", task_id), HeldOutputDetail)


def release_held_output(task_id: str, *, reason: str) -> ApiRequest[HeldOutputDetail]:
    """Store an output as that of its task, and let the execution go on."""
    return _post(api_path("quarantine", task_id, "release"), HeldOutputDetail, {"reason": reason})


def discard_held_output(task_id: str, *, reason: str | None = None) -> ApiRequest[HeldOutputDetail]:
    """Delete an output that is held back."""
    body = {} if reason is None else {"reason": reason}
    return _post(api_path("quarantine", task_id, "discard"), HeldOutputDetail, body)


# ---- dead letters --------------------------------------------------------------------------------


def dead_letters(*, resolved: bool = False, page: int = 100, **filters: object) -> ApiRequest[Page[DeadLetterSummary]]:
    """Unresolved dead letters; with `resolved`, all of them.

    Filters are job, step, reason, error (its beginning), error_line (its first line), since and until.
    """
    query = {"resolved": resolved, "limit": page, **filters}
    return _get(api_path("dead-letters"), Page[DeadLetterSummary], query)


def dead_letter_groups(**filters: object) -> ApiRequest[Page[DeadLetterGroup]]:
    """Groups of unresolved dead letters by job, step and first line of the error; filters as for the list.

    If there are thousands of dead letters, a group may come several times, with a part of them each time.
    """
    return _get(api_path("dead-letters", "groups"), Page[DeadLetterGroup], filters)


def dead_letters_by_prefix(prefix: str, *, page: int = 100) -> ApiRequest[Page[DeadLetterSummary]]:
    """Dead letters whose ids begin so, resolved or not, by id."""
    return _get(api_path("dead-letters"), Page[DeadLetterSummary], {"prefix": prefix, "limit": page})


def dead_letter(dead_letter_id: str) -> ApiRequest[DeadLetterDetail]:
    """A dead letter and its attempts."""
    return _get(api_path("dead-letters", dead_letter_id), DeadLetterDetail)


def replay(dead_letter_id: str, *, key: str | None = None) -> ApiRequest[Started]:
    """Run the failed task of a dead letter again, as a new execution."""
    return _post(api_path("dead-letters", dead_letter_id, "replay"), Started, key=key)


def replay_all(
    *, ids: Sequence[str] | None = None, key: str | None = None, **filters: object
) -> ApiRequest[Page[Replay]]:
    """Replay every unresolved dead letter that matches the filters of the list, or these; with the result of each.

    A repeated request with the same `key` does not replay the replays of the first one that have failed meanwhile.
    """
    body = None if ids is None else {"ids": list(ids)}
    return _post_many(api_path("dead-letters", "replay-all"), Page[Replay], body, query=filters, key=key)


def resolve_all(*, ids: Sequence[str] | None = None, **filters: object) -> ApiRequest[Page[DeadLetterResolved]]:
    """Mark every unresolved dead letter that matches the filters of the list, or these, as resolved."""
    body = None if ids is None else {"ids": list(ids)}
    return _post_many(api_path("dead-letters", "resolve-all"), Page[DeadLetterResolved], body, query=filters)


def resolve(dead_letter_id: str) -> ApiRequest[DeadLetterDetail]:
    """Mark a dead letter as resolved."""
    path = api_path("dead-letters", dead_letter_id)
    return ApiRequest(method="PATCH", path=path, answer=DeadLetterDetail, body={"resolved": True})


# ---- events, workflows, schedules ----------------------------------------------------------------


def emit(name: str, body: object = None, *, key: str | None = None) -> ApiRequest[EventDetail]:
    """Emit an event and start the jobs that listen to it; a repeated `key` has no effect."""
    return _post(api_path("events"), EventDetail, {"name": name, "body": body}, key=key)


def events(*, name: str | None = None, page: int = 100) -> ApiRequest[Page[EventDetail]]:
    """Events and their effects, newest first."""
    return _get(api_path("events"), Page[EventDetail], {"name": name, "limit": page})


def event(event_id: str) -> ApiRequest[EventDetail]:
    """An event and its effect on every job that listens to it."""
    return _get(api_path("events", event_id), EventDetail)


def deploy(definition: Mapping[str, Any]) -> ApiRequest[WorkflowDeployed]:
    """Store a workflow definition as a new version and register its triggers. Idempotent."""
    return _post(api_path("workflows"), WorkflowDeployed, definition)


def workflows(*, page: int = 100) -> ApiRequest[Page[WorkflowSummary]]:
    """The newest version of every workflow, by name."""
    return _get(api_path("workflows"), Page[WorkflowSummary], {"limit": page})


def workflow(workflow_id: str, *, version: int | None = None) -> ApiRequest[dict[str, Any]]:
    """The definition of a workflow, as it can be deployed; the newest version by default."""
    return _get(api_path("workflows", workflow_id), dict[str, Any], {"version": version})


def upsert_schedule(definition: Mapping[str, Any]) -> ApiRequest[ScheduleRegistered]:
    """Create or update a schedule of a workflow. Idempotent."""
    return _post(api_path("schedules", "upsert"), ScheduleRegistered, definition)


def pause_schedule(schedule_id: str, *, paused: bool = True) -> ApiRequest[ScheduleDetail]:
    """Pause a schedule, or resume it with `paused=False`."""
    body = {"schedule_id": schedule_id, "paused": paused}
    return _post(api_path("schedules", "pause"), ScheduleDetail, body)


def schedule(schedule_id: str, *, coming: int = 5, last: int = 10) -> ApiRequest[ScheduleDetail]:
    """A schedule with its next `coming` planned times and its `last` ticks."""
    return _get(api_path("schedules", schedule_id), ScheduleDetail, {"coming": coming, "last": last})


def delete_schedule(schedule_id: str) -> ApiRequest[None]:
    """Delete a schedule and keep its history."""
    return ApiRequest(method="DELETE", path=api_path("schedules", schedule_id), answer=None)


def start(
    workflow_id: str, version: int, scheduled_for: datetime, key: str, *, user_id: str | None = None
) -> ApiRequest[Launched]:
    """Start a run of a workflow version, once per key; `started` is false if there is no such workflow."""
    body = {
        "workflow_id": workflow_id,
        "version": version,
        "scheduled_for": scheduled_for.isoformat(),
        "idempotency_key": key,
        **_set_fields(user_id=user_id),
    }
    return _post(api_path("run-launcher", "start"), Launched, body, key=key)


# ---- workers, audit ------------------------------------------------------------------------------


def security() -> ApiRequest[SecurityStatus]:
    """Whether changes are refused, and how many guarded commands may still start within the hour."""
    return _get(api_path("security"), SecurityStatus)


def workers() -> ApiRequest[Page[WorkerDetail]]:
    """The live workers."""
    return _get(api_path("workers"), Page[WorkerDetail])


def tokens(*, page: int = 100) -> ApiRequest[Page[TokenDetail]]:
    """The tokens that were issued or revoked here, newest first."""
    return _get(api_path("tokens"), Page[TokenDetail], {"limit": page})


def sign_in_code() -> ApiRequest[DashboardCode]:
    """A code that signs a browser in to the dashboard as the caller: once, within a minute."""
    return _post(api_path("sign-in-codes"), DashboardCode)


def revoke_token(token_id: str) -> ApiRequest[TokensRevoked]:
    """Revoke a token of any issuer by its id; `revoked` is false if it was revoked before."""
    return _post(api_path("tokens", "revoke"), TokensRevoked, {"token_id": token_id})


def revoke_all_tokens() -> ApiRequest[TokensRevoked]:
    """Revoke all tokens of the tenant that were issued until now, also the one of this request."""
    return _post(api_path("tokens", "revoke"), TokensRevoked, {"all": True})


# ---- the policy of tasks -------------------------------------------------------------------------


def policy(version: int | None = None) -> ApiRequest[PolicyDetail]:
    """The policy in force, or another version, with its file."""
    return _get(api_path("policy"), PolicyDetail, _set_fields(version=version))


def policy_versions(*, page: int = 100) -> ApiRequest[Page[PolicyVersionDetail]]:
    """The versions of the policy, newest first."""
    return _get(api_path("policy", "versions"), Page[PolicyVersionDetail], {"limit": page})


def budgets(*, page: int = 100) -> ApiRequest[Page[BudgetDetail]]:
    """How much is left of the budgets of the policy in their current windows: the used ones first."""
    return _get(api_path("policy", "budgets"), Page[BudgetDetail], {"limit": page})


def apply_policy(body: str, *, expected: int | None = None) -> ApiRequest[PolicyApplied]:
    """Put the text of a policy file in force; with `expected`, only if that version is in force, 0 for none."""
    fields = {"body": body} if expected is None else {"body": body, "expected": expected}
    return _post_many(api_path("policy"), PolicyApplied, fields)


def diff_policy(body: str) -> ApiRequest[PolicyDifference]:
    """The changes that the text of a policy file would make."""
    return _post_many(api_path("policy", "diff"), PolicyDifference, {"body": body})


def decisions(execution_id: str, *, page: int = 100) -> ApiRequest[Page[TaskDecisions]]:
    """The decisions of the policy about the tasks of an execution, task by task."""
    return _get(api_path("executions", execution_id, "decisions"), Page[TaskDecisions], {"limit": page})


def explain_policy(
    job: str,
    *,
    input: Mapping[str, Any] | None = None,  # noqa: A002 - named as in jobs files
    body: str | None = None,
) -> ApiRequest[JobPolicy]:
    """The decisions about the steps of a job if it started now, by the policy in force or the text of a file."""
    return _post_many(api_path("jobs", job, "policy"), JobPolicy, _set_fields(input=input, body=body))


def replay_policy(
    body: str, *, since: int | str, after: str | None = None, limit: int = 5000
) -> ApiRequest[PolicyReplayed]:
    """Judge a part of the history by the text of a policy file: the next `limit` tasks.

    `since` is an instant, or milliseconds since 1970; `after` is that of the part before.
    """
    fields = _set_fields(body=body, since=since, after=after, limit=limit)
    return _post_many(api_path("policy", "replay"), PolicyReplayed, fields)


def start_policy_shadow(body: str) -> ApiRequest[PolicyShadowDetail]:
    """Judge by the text of a policy file beside the policy in force, from now on."""
    return _post_many(api_path("policy", "shadow"), PolicyShadowDetail, {"body": body})


def policy_shadow(*, limit: int = 100) -> ApiRequest[PolicyShadowReport]:
    """The shadow of the policy, and the most frequent ways in which its rulings differ."""
    return _get(api_path("policy", "shadow"), PolicyShadowReport, {"limit": limit})


def stop_policy_shadow() -> ApiRequest[PolicyShadowDetail]:
    """End the shadow of the policy."""
    return _post_many(api_path("policy", "shadow", "stop"), PolicyShadowDetail, {})


def promote_policy_shadow(*, expected: int | None = None) -> ApiRequest[PolicyApplied]:
    """End the shadow and put its file in force; with `expected`, only if that version is in force, 0 for none."""
    fields = {} if expected is None else {"expected": expected}
    return _post_many(api_path("policy", "shadow", "promote"), PolicyApplied, fields)


def audit(*, page: int = 100, **filters: object) -> ApiRequest[Page[AuditRecord]]:
    """Audit entries, newest first; filters are actor, action, kind, name, since and until."""
    return _get(api_path("audit"), Page[AuditRecord], {"limit": page, **filters})
