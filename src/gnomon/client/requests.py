"""One function per API operation; each builds the request and names the type of its response.

`Client` and `AsyncClient` have a method for each function, with the same parameters; the command line sends the
requests themselves.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from gnomon.client.transport import LONG_TIMEOUT_SECONDS, ApiRequest, api_path
from gnomon.core import responses
from gnomon.core.responses import Page

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
    path: str, answer: type[T], body: Mapping[str, Any] | None = None, *, query: Mapping[str, object] | None = None
) -> ApiRequest[T]:
    """A request about many objects, for which the server may take long."""
    return ApiRequest(
        method="POST", path=path, answer=answer, query=query or {}, body=body, timeout=LONG_TIMEOUT_SECONDS
    )


def _if_match(etag: str | None) -> Mapping[str, str]:
    return {} if etag is None else {"If-Match": f'"{etag}"'}


def _set_fields(**fields: object) -> dict[str, Any]:
    """The fields without those that are None or False."""
    return {name: value for name, value in fields.items() if value is not None and value is not False}


def _iso(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


def health() -> ApiRequest[responses.HealthReport]:
    """The health of the scheduler and of each component."""
    return _get("/v1/health", responses.HealthReport)


# ---- jobs ----------------------------------------------------------------------------------------


def register(job: Mapping[str, Any]) -> ApiRequest[responses.JobApplied]:
    """Register a job, given in the format of a jobs file; a job of that name with another definition is refused."""
    return _post(api_path("jobs"), responses.JobApplied, job)


def update(name: str, job: Mapping[str, Any], *, etag: str | None = None) -> ApiRequest[responses.JobApplied]:
    """Replace the definition of a job; with `etag`, fail if the job has changed since that ETag was read."""
    path = api_path("jobs", name)
    return ApiRequest(method="PUT", path=path, answer=responses.JobApplied, body=job, headers=_if_match(etag))


def apply(
    jobs: Sequence[Mapping[str, Any]], *, prune: bool = False, prune_tag: str | None = None
) -> ApiRequest[Page[responses.JobApplied]]:
    """Create or update jobs, atomically; `prune` deletes all other jobs, `prune_tag` all others with that tag."""
    body = {"jobs": list(jobs), **_set_fields(prune=prune, prune_tag=prune_tag)}
    return _post_many(api_path("apply"), Page[responses.JobApplied], body)


def plan(
    jobs: Sequence[Mapping[str, Any]],
    *,
    days: int = 14,
    prune: bool = False,
    prune_tag: str | None = None,
    fires: int | None = None,
) -> ApiRequest[responses.JobsPlanned]:
    """The fields and fires that applying these jobs would change."""
    body = {"jobs": list(jobs), "days": days, "prune": prune, "prune_tag": prune_tag}
    body |= {} if fires is None else {"fires": fires}
    return _post_many(api_path("plan"), responses.JobsPlanned, body)


def simulate(
    jobs: Sequence[Mapping[str, Any]], *, days: int = 7, timezone: str = "UTC", lasts: str = "0s"
) -> ApiRequest[responses.SimulationResult]:
    """Simulate these jobs from now on, as if each run lasted so long."""
    body = {"jobs": list(jobs), "days": days, "timezone": timezone, "lasts": lasts}
    return _post_many(api_path("simulate"), responses.SimulationResult, body)


def jobs(*, tag: str | None = None, page: int = 100) -> ApiRequest[Page[responses.JobSummary]]:
    """All jobs by name; `page` is the number of jobs per request."""
    return _get(api_path("jobs"), Page[responses.JobSummary], {"tag": tag, "limit": page})


def job(name: str, *, coming: int = 5, last: int = 10) -> ApiRequest[responses.JobDetail]:
    """A job with its definition, its next `coming` planned times and its `last` ticks."""
    return _get(api_path("jobs", name), responses.JobDetail, {"coming": coming, "last": last})


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
) -> ApiRequest[responses.Started]:
    """Start an execution of a job; a repeated request with the same `key` starts no second one.

    It ends after `deadline`, a number of seconds or a duration such as 10m, whatever it does.
    """
    body = _set_fields(input=input, force=force, deadline=deadline)
    return _post(api_path("jobs", name, "trigger"), responses.Started, body, key=key)


def pause(name: str) -> ApiRequest[responses.JobDetail]:
    """Pause a job: no planned time starts a run until the job is resumed."""
    return _post(api_path("jobs", name, "pause"), responses.JobDetail)


def approve(
    name: str, *, reason: str | None = None, digest: str | None = None, revoke: bool = False
) -> ApiRequest[responses.JobApprovalState]:
    """Approve the commands of a job as they are now, or as `digest` says; with `revoke`, revoke its approvals."""
    body = _set_fields(reason=reason, digest=digest, revoke=revoke)
    return _post(api_path("jobs", name, "approve"), responses.JobApprovalState, body)


def resume(
    name: str, *, missed: str = "skip", since: datetime | None = None, over: str | None = None
) -> ApiRequest[responses.JobResumed]:
    """Resume a paused job; `missed` selects which of the runs missed during the pause are started.

    It is `skip`, `latest`, `all`, `since` (with the instant `since`) or `spread` (with the duration `over`, such as
    10m).
    """
    body = _set_fields(missed=missed, since=_iso(since), over=over)
    return _post(api_path("jobs", name, "resume"), responses.JobResumed, body)


def skip(name: str, at: datetime, *, move_to: datetime | None = None) -> ApiRequest[responses.JobDetail]:
    """Skip one coming planned time of a job, or move it to another time."""
    return _post(api_path("jobs", name, "skip"), responses.JobDetail, _set_fields(at=_iso(at), move_to=_iso(move_to)))


def unskip(name: str, at: datetime) -> ApiRequest[responses.JobDetail]:
    """Undo the skip or move of a planned time."""
    return _post(api_path("jobs", name, "unskip"), responses.JobDetail, {"at": _iso(at)})


def planned(
    *, hours: int = 24, since: datetime | None = None, page: int = 1000
) -> ApiRequest[Page[responses.PlannedFire]]:
    """The planned times of all jobs in the next hours, earliest first."""
    query = {"hours": hours, "since": since, "limit": page}
    return _get(api_path("schedule"), Page[responses.PlannedFire], query)


def ticks(
    job: str | None = None,
    *,
    kind: str | None = None,
    status: str | None = None,
    since: datetime | str | None = None,
    until: datetime | str | None = None,
    page: int = 100,
) -> ApiRequest[Page[responses.LedgerTick]]:
    """The ticks of one job or of all jobs, newest first: planned times and the decision on each."""
    query = {"job": job, "kind": kind, "status": status, "since": since, "until": until, "limit": page}
    return _get(api_path("ticks"), Page[responses.LedgerTick], query)


def why(name: str, *, at: str | None = None, last: int | None = None) -> ApiRequest[responses.WhyAnswer]:
    """Why a job ran or did not run at a time, or at its last ticks, and when it runs next."""
    return _get(api_path("jobs", name, "why"), responses.WhyAnswer, {"at": at, "last": last})


def explain(schedule: str, *, timezone: str | None = None, coming: int = 5) -> ApiRequest[responses.ScheduleExplained]:
    """A schedule in words and as cron, and its next fires."""
    query = {"schedule": schedule, "timezone": timezone, "coming": coming}
    return _get(api_path("explain"), responses.ScheduleExplained, query)


# ---- backfills -----------------------------------------------------------------------------------


def backfill(
    name: str,
    first: datetime,
    last: datetime,
    *,
    max_parallel: int = 1,
    again: bool = False,
    key: str | None = None,
) -> ApiRequest[responses.BackfillDetail]:
    """Run the past planned times from `first` to `last` that had no run; with `again`, all of them.

    A repeated request with the same `key` returns the same backfill.
    """
    body = {"from": _iso(first), "to": _iso(last), "max_parallel": max_parallel, "again": again}
    return _post(api_path("jobs", name, "backfill"), responses.BackfillDetail, body, key=key)


def preview_backfill(
    name: str, first: datetime, last: datetime, *, again: bool = False
) -> ApiRequest[responses.BackfillPreview]:
    """The planned times that a backfill would run."""
    body = {"from": _iso(first), "to": _iso(last), "again": again}
    return _post(api_path("jobs", name, "backfill", "preview"), responses.BackfillPreview, body)


def backfills(*, job: str | None = None, page: int = 100) -> ApiRequest[Page[responses.BackfillDetail]]:
    """Backfills and their progress, newest first."""
    return _get(api_path("backfills"), Page[responses.BackfillDetail], {"job": job, "limit": page})


def backfill_state(backfill_id: str) -> ApiRequest[responses.BackfillDetail]:
    """A backfill and its progress."""
    return _get(api_path("backfills", backfill_id), responses.BackfillDetail)


def cancel_backfill(backfill_id: str) -> ApiRequest[responses.BackfillDetail]:
    """Cancel a backfill: no more runs start, active runs continue."""
    return _post(api_path("backfills", backfill_id, "cancel"), responses.BackfillDetail)


# ---- executions ----------------------------------------------------------------------------------


def executions(*, page: int = 100, **filters: object) -> ApiRequest[Page[responses.Execution]]:
    """Executions, newest first; filters are job, status, trigger, tag, since and until, or the prefix of an id.

    With the status `skipped`, the ticks that had no execution.
    """
    return _get(api_path("executions"), Page[responses.Execution], {"limit": page, **filters})


def execution(execution_id: str) -> ApiRequest[responses.ExecutionDetail]:
    """An execution with its steps and attempts; of a `foreach` step, the first hundred items."""
    return _get(api_path("executions", execution_id), responses.ExecutionDetail)


def items(
    execution_id: str, step: str, *, state: str | None = None, page: int = 100
) -> ApiRequest[Page[responses.ItemDetail]]:
    """The items of a `foreach` step, in order."""
    path = api_path("executions", execution_id, "steps", step, "items")
    return _get(path, Page[responses.ItemDetail], {"state": state, "limit": page})


def cancel(execution_id: str) -> ApiRequest[responses.Ended]:
    """Cancel an execution: pending steps at once, running steps as soon as they stop."""
    return _post(api_path("executions", execution_id, "cancel"), responses.Ended)


def roll_back(execution_id: str, *, reason: str) -> ApiRequest[responses.RollbackStarted]:
    """Undo the steps of an execution that has ended: those that succeeded, the last one first."""
    return _post(api_path("executions", execution_id, "rollback"), responses.RollbackStarted, {"reason": reason})


def logs(execution_id: str, *, since: datetime | None = None, page: int = 1000) -> ApiRequest[Page[responses.LogEntry]]:
    """The log lines of an execution, in order of time."""
    return _get(api_path("executions", execution_id, "logs"), Page[responses.LogEntry], {"since": since, "limit": page})


def submit(
    function: str,
    input: Mapping[str, Any] | None = None,  # noqa: A002 - named as in jobs files
    *,
    key: str | None = None,
    **terms: object,
) -> ApiRequest[responses.Started]:
    """Run a function once, without a job; `terms` are fields of a job, such as timeout and retry."""
    body = {"function": function, **terms, **_set_fields(input=input)}
    return _post(api_path("tasks"), responses.Started, body, key=key)


# ---- agents --------------------------------------------------------------------------------------


def agent_usage(*, days: int = 7) -> ApiRequest[responses.AgentUsageReport]:
    """The usage of agents by day and model."""
    return _get(api_path("agents", "usage"), responses.AgentUsageReport, {"days": days})


def sessions(*, page: int = 1000) -> ApiRequest[Page[responses.SessionListed]]:
    """The sessions of agents with history."""
    return _get(api_path("sessions"), Page[responses.SessionListed], {"limit": page})


def session(name: str, *, page: int = 20) -> ApiRequest[Page[responses.SessionTurnShown]]:
    """The newest turns of a session, newest first."""
    return _get(api_path("sessions", name), Page[responses.SessionTurnShown], {"limit": page})


def clear_session(name: str) -> ApiRequest[responses.SessionCleared]:
    """Forget the history of a session."""
    return _post(api_path("sessions", name, "clear"), responses.SessionCleared)


# ---- announcements -------------------------------------------------------------------------------


def announcements(
    *, job: str | None = None, state: str | None = None, page: int = 100
) -> ApiRequest[Page[responses.AnnouncementSummary]]:
    """Announcements, newest first."""
    query = {"job": job, "state": state, "limit": page}
    return _get(api_path("announcements"), Page[responses.AnnouncementSummary], query)


def announcements_by_prefix(prefix: str, *, page: int = 100) -> ApiRequest[Page[responses.AnnouncementSummary]]:
    """Announcements whose ids begin so, by id."""
    query = {"prefix": prefix, "limit": page}
    return _get(api_path("announcements"), Page[responses.AnnouncementSummary], query)


def announcement(announcement_id: str) -> ApiRequest[responses.AnnouncementSummary]:
    """An announcement."""
    return _get(api_path("announcements", announcement_id), responses.AnnouncementSummary)


def retry_announcement(announcement_id: str) -> ApiRequest[responses.AnnouncementSummary]:
    """Try an announcement again that was given up."""
    return _post(api_path("announcements", announcement_id, "retry"), responses.AnnouncementSummary)


# ---- breakers ------------------------------------------------------------------------------------


def breakers(*, page: int = 100) -> ApiRequest[Page[responses.BreakerDetail]]:
    """The circuit breakers that tasks have used, by name."""
    return _get(api_path("breakers"), Page[responses.BreakerDetail], {"limit": page})


def breaker(name: str) -> ApiRequest[responses.BreakerDetail]:
    """A circuit breaker."""
    return _get(api_path("breakers", name), responses.BreakerDetail)


def reset_breaker(name: str) -> ApiRequest[responses.BreakerDetail]:
    """Close a circuit breaker: the tasks that wait for it start now."""
    return _post(api_path("breakers", name, "reset"), responses.BreakerDetail)


# ---- approvals -----------------------------------------------------------------------------------


def approvals(
    *, status: str | None = None, kind: str | None = None, job: str | None = None, page: int = 100
) -> ApiRequest[Page[responses.ApprovalSummary]]:
    """Approvals, newest first."""
    query = {"status": status, "kind": kind, "job": job, "limit": page}
    return _get(api_path("approvals"), Page[responses.ApprovalSummary], query)


def approval(approval_id: str) -> ApiRequest[responses.ApprovalDetail]:
    """An approval, with the input of its task."""
    return _get(api_path("approvals", approval_id), responses.ApprovalDetail)


def approve_task(approval_id: str, *, digest: str, reason: str | None = None) -> ApiRequest[responses.ApprovalDetail]:
    """Vote for a task that waits for an approval; `digest` is that of the approval as the voter saw it."""
    return _vote(approval_id, "approve", digest, reason)


def reject_task(approval_id: str, *, digest: str, reason: str | None = None) -> ApiRequest[responses.ApprovalDetail]:
    """Vote against a task that waits for an approval: it ends."""
    return _vote(approval_id, "reject", digest, reason)


def override_approval(approval_id: str, *, digest: str, reason: str) -> ApiRequest[responses.ApprovalDetail]:
    """Let a task run without its approval, as a member of a group in `policy.break_glass`."""
    return _vote(approval_id, "override", digest, reason)


def _vote(approval_id: str, vote: str, digest: str, reason: str | None) -> ApiRequest[responses.ApprovalDetail]:
    body = _set_fields(digest=digest, reason=reason)
    return _post(api_path("approvals", approval_id, vote), responses.ApprovalDetail, body)


# ---- dead letters --------------------------------------------------------------------------------


def dead_letters(
    *, job: str | None = None, resolved: bool = False, page: int = 100
) -> ApiRequest[Page[responses.DeadLetterSummary]]:
    """Unresolved dead letters; with `resolved`, all of them."""
    query = {"job": job, "resolved": resolved, "limit": page}
    return _get(api_path("dead-letters"), Page[responses.DeadLetterSummary], query)


def dead_letters_by_prefix(prefix: str, *, page: int = 100) -> ApiRequest[Page[responses.DeadLetterSummary]]:
    """Dead letters whose ids begin so, resolved or not, by id."""
    return _get(api_path("dead-letters"), Page[responses.DeadLetterSummary], {"prefix": prefix, "limit": page})


def dead_letter(dead_letter_id: str) -> ApiRequest[responses.DeadLetterDetail]:
    """A dead letter and its attempts."""
    return _get(api_path("dead-letters", dead_letter_id), responses.DeadLetterDetail)


def replay(dead_letter_id: str, *, key: str | None = None) -> ApiRequest[responses.Started]:
    """Run the failed task of a dead letter again, as a new execution."""
    return _post(api_path("dead-letters", dead_letter_id, "replay"), responses.Started, key=key)


def replay_all(*, job: str | None = None) -> ApiRequest[Page[responses.Replay]]:
    """Replay every unresolved dead letter; the response has the result of each."""
    return _post_many(api_path("dead-letters", "replay-all"), Page[responses.Replay], query={"job": job})


def resolve(dead_letter_id: str) -> ApiRequest[responses.DeadLetterDetail]:
    """Mark a dead letter as resolved."""
    path = api_path("dead-letters", dead_letter_id)
    return ApiRequest(method="PATCH", path=path, answer=responses.DeadLetterDetail, body={"resolved": True})


# ---- events, workflows, schedules ----------------------------------------------------------------


def emit(name: str, body: object = None, *, key: str | None = None) -> ApiRequest[responses.EventDetail]:
    """Emit an event and start the jobs that listen to it; a repeated `key` has no effect."""
    return _post(api_path("events"), responses.EventDetail, {"name": name, "body": body}, key=key)


def events(*, name: str | None = None, page: int = 100) -> ApiRequest[Page[responses.EventDetail]]:
    """Events and their effects, newest first."""
    return _get(api_path("events"), Page[responses.EventDetail], {"name": name, "limit": page})


def event(event_id: str) -> ApiRequest[responses.EventDetail]:
    """An event and its effect on every job that listens to it."""
    return _get(api_path("events", event_id), responses.EventDetail)


def deploy(definition: Mapping[str, Any]) -> ApiRequest[responses.WorkflowDeployed]:
    """Store a workflow definition as a new version and register its triggers. Idempotent."""
    return _post(api_path("workflows"), responses.WorkflowDeployed, definition)


def workflows(*, page: int = 100) -> ApiRequest[Page[responses.WorkflowSummary]]:
    """The newest version of every workflow, by name."""
    return _get(api_path("workflows"), Page[responses.WorkflowSummary], {"limit": page})


def workflow(workflow_id: str, *, version: int | None = None) -> ApiRequest[dict[str, Any]]:
    """The definition of a workflow, as it can be deployed; the newest version by default."""
    return _get(api_path("workflows", workflow_id), dict[str, Any], {"version": version})


def upsert_schedule(definition: Mapping[str, Any]) -> ApiRequest[responses.ScheduleRegistered]:
    """Create or update a schedule of a workflow. Idempotent."""
    return _post(api_path("schedules", "upsert"), responses.ScheduleRegistered, definition)


def pause_schedule(schedule_id: str, *, paused: bool = True) -> ApiRequest[responses.ScheduleDetail]:
    """Pause a schedule, or resume it with `paused=False`."""
    body = {"schedule_id": schedule_id, "paused": paused}
    return _post(api_path("schedules", "pause"), responses.ScheduleDetail, body)


def schedule(schedule_id: str, *, coming: int = 5, last: int = 10) -> ApiRequest[responses.ScheduleDetail]:
    """A schedule with its next `coming` planned times and its `last` ticks."""
    return _get(api_path("schedules", schedule_id), responses.ScheduleDetail, {"coming": coming, "last": last})


def delete_schedule(schedule_id: str) -> ApiRequest[None]:
    """Delete a schedule and keep its history."""
    return ApiRequest(method="DELETE", path=api_path("schedules", schedule_id), answer=None)


def start(
    workflow_id: str, version: int, scheduled_for: datetime, key: str, *, user_id: str | None = None
) -> ApiRequest[responses.Launched]:
    """Start a run of a workflow version, once per key; `started` is false if there is no such workflow."""
    body = {
        "workflow_id": workflow_id,
        "version": version,
        "scheduled_for": scheduled_for.isoformat(),
        "idempotency_key": key,
        **_set_fields(user_id=user_id),
    }
    return _post(api_path("run-launcher", "start"), responses.Launched, body, key=key)


# ---- workers, audit ------------------------------------------------------------------------------


def security() -> ApiRequest[responses.SecurityStatus]:
    """Whether changes are refused, and how many guarded commands may still start within the hour."""
    return _get(api_path("security"), responses.SecurityStatus)


def workers() -> ApiRequest[Page[responses.WorkerDetail]]:
    """The live workers."""
    return _get(api_path("workers"), Page[responses.WorkerDetail])


def tokens(*, page: int = 100) -> ApiRequest[Page[responses.TokenDetail]]:
    """The tokens that were issued or revoked here, newest first."""
    return _get(api_path("tokens"), Page[responses.TokenDetail], {"limit": page})


def revoke_token(token_id: str) -> ApiRequest[responses.TokensRevoked]:
    """Revoke a token of any issuer by its id; `revoked` is false if it was revoked before."""
    return _post(api_path("tokens", "revoke"), responses.TokensRevoked, {"token_id": token_id})


def revoke_all_tokens() -> ApiRequest[responses.TokensRevoked]:
    """Revoke all tokens of the tenant that were issued until now, also the one of this request."""
    return _post(api_path("tokens", "revoke"), responses.TokensRevoked, {"all": True})


# ---- the policy of tasks -------------------------------------------------------------------------


def policy(version: int | None = None) -> ApiRequest[responses.PolicyDetail]:
    """The policy in force, or another version, with its file."""
    return _get(api_path("policy"), responses.PolicyDetail, _set_fields(version=version))


def policy_versions(*, page: int = 100) -> ApiRequest[Page[responses.PolicyVersionDetail]]:
    """The versions of the policy, newest first."""
    return _get(api_path("policy", "versions"), Page[responses.PolicyVersionDetail], {"limit": page})


def apply_policy(body: str, *, expected: int | None = None) -> ApiRequest[responses.PolicyApplied]:
    """Put the text of a policy file in force; with `expected`, only if that version is in force, 0 for none."""
    fields = {"body": body} if expected is None else {"body": body, "expected": expected}
    return _post_many(api_path("policy"), responses.PolicyApplied, fields)


def diff_policy(body: str) -> ApiRequest[responses.PolicyDifference]:
    """The changes that the text of a policy file would make."""
    return _post_many(api_path("policy", "diff"), responses.PolicyDifference, {"body": body})


def decisions(execution_id: str, *, page: int = 100) -> ApiRequest[Page[responses.TaskDecisions]]:
    """The decisions of the policy about the tasks of an execution, task by task."""
    return _get(api_path("executions", execution_id, "decisions"), Page[responses.TaskDecisions], {"limit": page})


def explain_policy(
    job: str,
    *,
    input: Mapping[str, Any] | None = None,  # noqa: A002 - named as in jobs files
    body: str | None = None,
) -> ApiRequest[responses.JobPolicy]:
    """The decisions about the steps of a job if it started now, by the policy in force or the text of a file."""
    return _post_many(api_path("jobs", job, "policy"), responses.JobPolicy, _set_fields(input=input, body=body))


def replay_policy(
    body: str, *, since: int | str, after: str | None = None, limit: int = 5000
) -> ApiRequest[responses.PolicyReplayed]:
    """Judge a part of the history by the text of a policy file: the next `limit` tasks.

    `since` is an instant, or milliseconds since 1970; `after` is that of the part before.
    """
    fields = _set_fields(body=body, since=since, after=after, limit=limit)
    return _post_many(api_path("policy", "replay"), responses.PolicyReplayed, fields)


def start_policy_shadow(body: str) -> ApiRequest[responses.PolicyShadowDetail]:
    """Judge by the text of a policy file beside the policy in force, from now on."""
    return _post_many(api_path("policy", "shadow"), responses.PolicyShadowDetail, {"body": body})


def policy_shadow(*, limit: int = 100) -> ApiRequest[responses.PolicyShadowReport]:
    """The shadow of the policy, and the most frequent ways in which its rulings differ."""
    return _get(api_path("policy", "shadow"), responses.PolicyShadowReport, {"limit": limit})


def stop_policy_shadow() -> ApiRequest[responses.PolicyShadowDetail]:
    """End the shadow of the policy."""
    return _post_many(api_path("policy", "shadow", "stop"), responses.PolicyShadowDetail, {})


def promote_policy_shadow(*, expected: int | None = None) -> ApiRequest[responses.PolicyApplied]:
    """End the shadow and put its file in force; with `expected`, only if that version is in force, 0 for none."""
    fields = {} if expected is None else {"expected": expected}
    return _post_many(api_path("policy", "shadow", "promote"), responses.PolicyApplied, fields)


def audit(*, page: int = 100, **filters: object) -> ApiRequest[Page[responses.AuditRecord]]:
    """Audit entries, newest first; filters are actor, action, kind, name, since and until."""
    return _get(api_path("audit"), Page[responses.AuditRecord], {"limit": page, **filters})
