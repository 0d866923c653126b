"""Presents jobs, their ticks and their coming fires."""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import asdict, replace

from gnomon.core.agents.rules import MICROS
from gnomon.core.agents.usage import AgentUsageTotal
from gnomon.core.approvals.model import Approval
from gnomon.core.explain.evidence import SubjectSentence
from gnomon.core.instants import in_zone, instant_of
from gnomon.core.jobs.export import job_as_data, workflow_as_data
from gnomon.core.jobs.job import Job
from gnomon.core.jobs.steps import redacted_ping
from gnomon.core.ledger.edits import MissedTicks, missed_ticks
from gnomon.core.model import Schedule, Tick, TickException, TickKind
from gnomon.core.responses.jobs import (
    JobAgentUsage,
    JobApplied,
    JobApproval,
    JobDetail,
    JobLock,
    JobResumed,
    JobSummary,
    JobTick,
    LedgerTick,
    NewestOutcome,
    PlannedFire,
    TickMoved,
    TicksSwallowed,
)
from gnomon.core.runs.job_lock import RunLock
from gnomon.core.runs.workflow import Workflow
from gnomon.ports.schedules import TickMark
from gnomon.services.operations.jobs import ApplyResult, JobView, UpcomingFire
from gnomon.services.operations.presenters.common import (
    cron_expression,
    next_run_at,
    optional_instant,
    schedule_sentence,
)
from gnomon.services.operations.schedules import ResumeResult


def state_of(schedule: Schedule, *, running: int, last_kind: TickKind | None = None) -> str:
    """The state of a job in one or two words, from its started runs and, if it is over, its last decision."""
    if schedule.active_runs + schedule.queued_runs:
        work = "running" if running else "waiting"
        return work if schedule.paused_at is None else f"{work}, paused"
    if schedule.paused_at is not None:
        return "paused"
    if last_kind is None:
        return "active"
    return "done" if last_kind in (TickKind.FIRED, TickKind.QUEUED) else "missed"


def job_etag(schedule: Schedule) -> str:
    """The ETag of the current revision of a job."""
    return f"{schedule.uid}.{schedule.revision}"


def functions_of(workflow: Workflow | None) -> list[str]:
    """The functions that the steps call, without duplicates."""
    return list(dict.fromkeys(step.function for step in workflow.all_steps if step.function)) if workflow else []


def job_summary(
    view: JobView, ticks: Sequence[TickMark] | None = None, newest: SubjectSentence | None = None
) -> JobSummary:
    """A job in a list, with its newest ticks and the newest in a sentence if they are given."""
    schedule, workflow = view.schedule, view.workflow
    return JobSummary(
        job=schedule.schedule_id,
        state=state_of(schedule, running=view.running, last_kind=view.last_kind),
        schedule=schedule_sentence(schedule.spec),
        cron=cron_expression(schedule.spec),
        timezone=schedule.spec.timezone,
        next_run_at=optional_instant(next_run_at(view)),
        paused=schedule.paused_at is not None,
        under_way=schedule.active_runs,
        queued=schedule.queued_runs,
        running=view.running,
        version=schedule.spec.workflow_version,
        functions=functions_of(workflow),
        tags=[] if workflow is None else list(workflow.tags),
        updated_at=instant_of(schedule.updated_at),
        origin=schedule.spec.origin,
        orphaned=schedule.spec.orphaned,
        approved=view.approval is not None,
        description="" if workflow is None else workflow.description,
        ticks=None if ticks is None else [_job_tick(mark) for mark in ticks],
        newest=None if newest is None else _newest_outcome(newest),
    )


def _newest_outcome(told: SubjectSentence) -> NewestOutcome:
    return NewestOutcome(at=instant_of(told.at), kind=told.kind.value, reason=told.reason, sentence=told.sentence)


def _job_tick(mark: TickMark) -> JobTick:
    return JobTick(
        planned_at=instant_of(mark.planned_at),
        count=mark.count,
        kind=mark.kind.value,
        reason=mark.reason.value,
        status=mark.status.value,
        execution_id=mark.run_id,
    )


def job_detail(view: JobView, agents: JobAgentUsage | None = None, *, now: int | None = None) -> JobDetail:
    """A job with its definition, next planned times and last ticks, and the usage of its agents.

    With the time it also has what its pause has suppressed.
    """
    missed = None if now is None or view.schedule.paused_at is None else missed_ticks(view.schedule, now=now)
    return JobDetail(
        **asdict(job_summary(view)),
        revision=view.schedule.revision,
        etag=job_etag(view.schedule),
        next_runs=[instant_of(one) for one in view.next_runs],
        definition=job_definition(view.schedule, view.workflow),
        last_ticks=ledger_ticks(view.last_ticks),
        executions=[run.run_id for run in view.under_way],
        exceptions=[
            TickMoved(planned_at=instant_of(one.planned_at), moved_to=optional_instant(one.moved_to))
            for one in pending_exceptions(view.schedule)
        ],
        lock=None if view.lock is None else _job_lock(view.lock),
        approval=None if view.approval is None else _job_approval(view.approval),
        agents=agents,
        swallowed=None if missed is None else ticks_swallowed(missed),
    )


def job_agent_usage(total: AgentUsageTotal, days: int) -> JobAgentUsage:
    """The usage of the agents of a job within so many days."""
    spent = total.spent
    return JobAgentUsage(
        days=days,
        attempts=total.attempts,
        requests=spent.requests,
        input_tokens=spent.input_tokens,
        output_tokens=spent.output_tokens,
        cost=spent.cost_micros / MICROS,
    )


def _job_approval(approval: Approval) -> JobApproval:
    return JobApproval(
        approval_id=approval.approval_id,
        approved_by=approval.decided_by or "",
        approved_at=instant_of(approval.decided_at or 0),
        reason=approval.reason,
        digest=approval.digest,
    )


def pending_exceptions(schedule: Schedule) -> list[TickException]:
    """The skipped and moved ticks that are still to come."""
    mark = schedule.mark_at
    return [one for one in schedule.spec.exceptions if max(one.planned_at, one.moved_to or 0) > mark]


def job_definition(schedule: Schedule, workflow: Workflow | None) -> dict[str, Any] | None:
    """The fields that define a job, as they are shown; None without its workflow."""
    if workflow is None:
        return None
    shown, enabled = _with_redacted_ping(workflow), schedule.paused_at is None
    return job_as_data(Job(name=schedule.schedule_id, spec=schedule.spec, workflow=shown, enabled=enabled))


def _with_redacted_ping(workflow: Workflow) -> Workflow:
    """The workflow as it is shown: who has the URL of a ping can ping."""
    return workflow if workflow.ping is None else replace(workflow, ping=redacted_ping(workflow.ping))


def workflow_definition(workflow: Workflow) -> dict[str, Any]:
    """The definition of a workflow, as it is shown."""
    return workflow_as_data(_with_redacted_ping(workflow))


def _job_lock(lock: RunLock) -> JobLock:
    acquired = instant_of(lock.acquired_at)
    return JobLock(key=lock.key, execution_id=lock.execution_id, acquired_at=acquired, ttl_ms=lock.ttl_ms)


def job_applied(one: ApplyResult) -> JobApplied:
    """The result of applying one job."""
    return JobApplied(
        job=one.name,
        change=one.change.value,
        revision=one.revision,
        version=one.version,
        next_run_at=optional_instant(one.next_run_at),
        schedule=schedule_sentence(one.spec),
        cron=cron_expression(one.spec),
        warnings=list(one.warnings),
    )


def ledger_ticks(found: Iterable[Tick]) -> list[LedgerTick]:
    """Ticks as they are listed."""
    return [ledger_tick(tick) for tick in found]


def ledger_tick(tick: Tick) -> LedgerTick:
    """A tick in a list."""
    return LedgerTick(
        job=tick.schedule_id,
        planned_at=instant_of(tick.decision.planned_at),
        last_at=instant_of(tick.decision.last_at),
        count=tick.decision.count,
        kind=tick.decision.kind.value,
        reason=tick.decision.reason.value,
        status=tick.status.value,
        execution_id=tick.run_id,
        key=tick.key.hex(),
        decided_at=instant_of(tick.decided_at),
        created_at=instant_of(tick.decided_at),
        updated_at=instant_of(tick.updated_at),
    )


def planned_fire(fire: UpcomingFire) -> PlannedFire:
    """A coming planned time."""
    instant, zone = instant_of(fire.planned_at), fire.schedule.spec.timezone
    return PlannedFire(
        job=fire.schedule.schedule_id,
        utc=instant,
        local=in_zone(instant, zone).isoformat(),
        timezone=zone,
        schedule=schedule_sentence(fire.schedule.spec),
    )


def job_resumed(view: JobView, done: ResumeResult) -> JobResumed:
    """A resumed job and the runs that its pause skipped."""
    swallowed = ticks_swallowed(done.swallowed)
    return JobResumed(**{**asdict(job_detail(view)), "swallowed": swallowed}, runs=done.runs)


def ticks_swallowed(missed: MissedTicks) -> TicksSwallowed:
    """The planned times that a pause has suppressed."""
    return TicksSwallowed(
        count=missed.count, first_at=optional_instant(missed.first_at), last_at=optional_instant(missed.last_at)
    )
