"""Builds the responses of the API (`core.responses`) from the views of the services.

The HTTP API and the command line show the same responses.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec.structs import asdict, replace

from gnomon.core import responses
from gnomon.core.agents.rules import MICROS
from gnomon.core.agents.sessions import SessionSummary, StoredTurn
from gnomon.core.agents.usage import AgentUsageDay, AgentUsageTotal
from gnomon.core.announcements.model import Announcement, AnnouncementState
from gnomon.core.approvals.model import Approval
from gnomon.core.approvals.terms import ApprovalTerms, terms_text
from gnomon.core.audit import StoredAuditEntry
from gnomon.core.breakers import BreakerState
from gnomon.core.cron import Cron
from gnomon.core.durations import duration_text
from gnomon.core.explain.evidence import JobExplanation, SubjectExplanation
from gnomon.core.health import NodeHealth
from gnomon.core.ids import tick_key
from gnomon.core.instants import in_zone, instant_of
from gnomon.core.jobs.export import job_as_data, workflow_as_data
from gnomon.core.jobs.job import Job
from gnomon.core.jobs.steps import redacted_ping
from gnomon.core.ledger.forecast import ClockChangeDay, FireChange, FireChangeKind, FireDiff, is_on_clock_change_day
from gnomon.core.model import (
    ENGINE,
    Attempt,
    DeadLetter,
    ExecutionStatus,
    Run,
    RunSource,
    Schedule,
    Spec,
    Task,
    Tick,
    TickException,
    TickKind,
)
from gnomon.core.named_breakers import NamedBreaker
from gnomon.core.payloads import is_sealed
from gnomon.core.policy.past_tasks import PastDecision
from gnomon.core.policy.ruling import TaskRulings
from gnomon.core.policy.shadow import PolicyShadow
from gnomon.core.policy.version import PolicyVersion
from gnomon.core.runs.backfill import Backfill, BackfillProgress
from gnomon.core.runs.job_lock import RunLock
from gnomon.core.runs.secret_text import shown_data
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.core.runs.workflow import Workflow
from gnomon.core.tokens import TokenRecord
from gnomon.ports.runs import StepLogLine
from gnomon.ports.tasks import WorkerInfo
from gnomon.services.operations.approvals import ApprovalView
from gnomon.services.operations.backfills import Preview
from gnomon.services.operations.command_policy import ActionBudget, ApprovalState
from gnomon.services.operations.dead_letters import DeadLetterView, ReplayResult
from gnomon.services.operations.events import EmittedEvent
from gnomon.services.operations.executions import (
    NO_TASK_YET,
    ExecutionView,
    ListedRun,
    StepProgress,
    StepView,
    last_attempt,
    step_progress,
    sub_run_of,
)
from gnomon.services.operations.job_changes import PLANNED_CHANGES, JobChange
from gnomon.services.operations.job_plan import JobsPlan, PlannedJob
from gnomon.services.operations.jobs import ApplyResult, JobView, UpcomingFire
from gnomon.services.operations.launcher import LaunchResult
from gnomon.services.operations.policy import JobRulings, ReadVersion, ShadowReport
from gnomon.services.operations.policy_outlook import RunOutlook
from gnomon.services.operations.policy_replay import ReplayPart
from gnomon.services.operations.schedules import ResumeResult, ScheduleView
from gnomon.services.operations.workflows import DeployResult
from gnomon.version import __version__

if TYPE_CHECKING:
    from gnomon.core.policy.diff import RuleChange
    from gnomon.core.policy.explanation import StepExplanation


def health_report(report: NodeHealth, *, messages: bool) -> responses.HealthReport:
    """The health of a node. `messages` includes texts that only callers with a role may read."""
    return responses.HealthReport(
        status=report.condition.value,
        version=__version__,
        ready=report.ready,
        alive=report.alive,
        checked_at=instant_of(report.at),
        components=[
            responses.Component(
                component=one.name,
                status=one.condition.value,
                message=one.message if messages else "",
                since_at=instant_of(one.since_at),
            )
            for one in report.components
        ],
    )


#: A cache of sentences by expression, zone and dialect.
_SENTENCES: dict[tuple[str, str, str], str] = {}
_MOST_SENTENCES = 4096


def schedule_sentence(spec: Spec) -> str:
    """The schedule in one English sentence."""
    trigger = spec.trigger
    if not isinstance(trigger, Cron):
        return trigger.describe()
    key = trigger.expression, trigger.timezone, trigger.dialect
    found = _SENTENCES.get(key)
    if found is None:
        if len(_SENTENCES) >= _MOST_SENTENCES:
            _SENTENCES.clear()
        found = _SENTENCES[key] = trigger.describe()
    return found


def cron_expression(spec: Spec) -> str | None:
    """The cron expression of a schedule; None if it is not a cron schedule."""
    return spec.trigger.expression if isinstance(spec.trigger, Cron) else None


#: The reasons to wait that have a known end.
_TIMED = (WaitReason.DELAY, WaitReason.RETRY, WaitReason.ROUTE, WaitReason.POLICY, WaitReason.BREAKER)


def optional_instant(instant: int | None) -> datetime | None:
    """The instant as a datetime; None for None."""
    return None if instant is None else instant_of(instant)


def timezone_of(spec: Spec) -> str:
    """The time zone of a schedule."""
    return spec.timezone


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


def decoded(payload: bytes | None) -> Any:  # noqa: ANN401 - any JSON value
    """An input or output, decoded from JSON."""
    return None if payload is None else msgspec.json.decode(payload)


def functions_of(workflow: Workflow | None) -> list[str]:
    """The functions that the steps call, without duplicates."""
    return list(dict.fromkeys(step.function for step in workflow.all_steps if step.function)) if workflow else []


def next_run_at(view: JobView | ScheduleView) -> int | None:
    """The next planned time of a job; None if it is paused or nothing is planned."""
    return None if view.schedule.paused_at is not None else next(iter(view.next_runs), None)


# ---- jobs ----------------------------------------------------------------------------------------


def job_summary(view: JobView) -> responses.JobSummary:
    """A job in a list."""
    schedule, workflow = view.schedule, view.workflow
    return responses.JobSummary(
        job=schedule.schedule_id,
        state=state_of(schedule, running=view.running, last_kind=view.last_kind),
        schedule=schedule_sentence(schedule.spec),
        cron=cron_expression(schedule.spec),
        timezone=timezone_of(schedule.spec),
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
    )


def job_detail(view: JobView, agents: responses.JobAgentUsage | None = None) -> responses.JobDetail:
    """A job with its definition, next planned times and last ticks, and the usage of its agents."""
    return responses.JobDetail(
        **asdict(job_summary(view)),
        revision=view.schedule.revision,
        etag=job_etag(view.schedule),
        next_runs=[instant_of(one) for one in view.next_runs],
        definition=_job_definition(view.schedule, view.workflow),
        last_ticks=ledger_ticks(view.last_ticks),
        executions=[run.run_id for run in view.under_way],
        exceptions=[
            responses.TickMoved(planned_at=instant_of(one.planned_at), moved_to=optional_instant(one.moved_to))
            for one in pending_exceptions(view.schedule)
        ],
        lock=None if view.lock is None else _job_lock(view.lock),
        approval=None if view.approval is None else _job_approval(view.approval),
        agents=agents,
    )


def job_agent_usage(total: AgentUsageTotal, days: int) -> responses.JobAgentUsage:
    """The usage of the agents of a job within so many days."""
    spent = total.spent
    return responses.JobAgentUsage(
        days=days,
        attempts=total.attempts,
        requests=spent.requests,
        input_tokens=spent.input_tokens,
        output_tokens=spent.output_tokens,
        cost=spent.cost_micros / MICROS,
    )


def _job_approval(approval: Approval) -> responses.JobApproval:
    return responses.JobApproval(
        approved_by=approval.decided_by or "",
        approved_at=instant_of(approval.decided_at or 0),
        reason=approval.reason,
        digest=approval.digest,
    )


def approval_state(found: ApprovalState) -> responses.JobApprovalState:
    """Whether the commands of a job are approved."""
    return responses.JobApprovalState(
        job=found.subject,
        approved=found.approval is not None,
        digest=found.digest,
        approval=None if found.approval is None else _job_approval(found.approval),
    )


def security_status(budget: ActionBudget, *, read_only: bool) -> responses.SecurityStatus:
    """The state of the policy of commands."""
    return responses.SecurityStatus(
        read_only=read_only, actions_per_hour=budget.limit, actions_spent=budget.spent, actions_left=budget.left
    )


def pending_exceptions(schedule: Schedule) -> list[TickException]:
    """The skipped and moved ticks that are still to come."""
    mark = schedule.mark_at
    return [one for one in schedule.spec.exceptions if max(one.planned_at, one.moved_to or 0) > mark]


def _job_definition(schedule: Schedule, workflow: Workflow | None) -> dict[str, Any] | None:
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


def _job_lock(lock: RunLock) -> responses.JobLock:
    acquired = instant_of(lock.acquired_at)
    return responses.JobLock(key=lock.key, execution_id=lock.execution_id, acquired_at=acquired, ttl_ms=lock.ttl_ms)


def job_applied(one: ApplyResult) -> responses.JobApplied:
    """The result of applying one job."""
    return responses.JobApplied(
        job=one.name,
        change=one.change.value,
        revision=one.revision,
        version=one.version,
        next_run_at=optional_instant(one.next_run_at),
        schedule=schedule_sentence(one.spec),
        cron=cron_expression(one.spec),
        warnings=list(one.warnings),
    )


def ledger_ticks(found: Iterable[Tick]) -> list[responses.LedgerTick]:
    """Ticks as they are listed."""
    return [ledger_tick(tick) for tick in found]


def ledger_tick(tick: Tick) -> responses.LedgerTick:
    """A tick in a list."""
    return responses.LedgerTick(
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


def planned_fire(fire: UpcomingFire) -> responses.PlannedFire:
    """A coming planned time."""
    instant, zone = instant_of(fire.planned_at), timezone_of(fire.schedule.spec)
    return responses.PlannedFire(
        job=fire.schedule.schedule_id,
        utc=instant,
        local=in_zone(instant, zone).isoformat(),
        timezone=zone,
        schedule=schedule_sentence(fire.schedule.spec),
    )


# ---- executions ----------------------------------------------------------------------------------


def run_duration_ms(run: Run) -> int | None:
    """The duration of a completed run; None otherwise."""
    if run.started_at is None or run.completed_at is None:
        return None
    return max(0, run.completed_at - run.started_at)


def listed_execution(listed: ListedRun, used: Mapping[str, AgentUsageTotal]) -> responses.Execution:
    """An execution in a list; `used` is the usage of runs with agents."""
    shown = execution_summary(listed.run, attempt=listed.attempt, announcements=listed.announcements)
    return with_usage(shown, used)


_Shown = TypeVar("_Shown", bound=responses.Execution)


def with_usage(shown: _Shown, used: Mapping[str, AgentUsageTotal]) -> _Shown:
    """The execution with the tokens and the cost of its agents, if it had any."""
    total = used.get(shown.execution_id)
    if total is None:
        return shown
    return replace(shown, tokens=total.spent.tokens, cost=total.spent.cost_micros / MICROS)


def execution_summary(run: Run, *, attempt: int, announcements: Sequence[Announcement] = ()) -> responses.Execution:
    """An execution, whose last attempt has that number, with its announcements."""
    changes = (run.created_at, run.started_at, run.cancel_requested_at, run.completed_at)
    return responses.Execution(
        execution_id=run.run_id,
        job=run.schedule_id or run.workflow_id,
        version=run.workflow_version,
        trigger=run.source.value,
        status=run.status.value,
        queued=run.queued,
        attempt=attempt,
        planned_at=instant_of(run.planned_at),
        tick_key=_tick_key(run),
        created_at=instant_of(run.created_at),
        updated_at=instant_of(max(at for at in changes if at is not None)),
        started_at=optional_instant(run.started_at),
        completed_at=optional_instant(run.completed_at),
        duration_ms=run_duration_ms(run),
        user_id=run.user_id,
        actor=run.actor,
        error=run.error,
        key=run.idempotency_key,
        replay_of=run.replay_of,
        announced=announced_state(announcements),
    )


def _tick_key(run: Run) -> str | None:
    if run.source is not RunSource.CRON or run.schedule_id is None:
        return None
    return tick_key(run.schedule_id, run.planned_at).hex()


def skipped_execution(tick: Tick) -> responses.Execution:
    """A skipped tick in a list of executions."""
    key = tick.key.hex()
    return responses.Execution(
        execution_id=tick.run_id or key,
        job=tick.schedule_id,
        version=None,
        trigger=RunSource.CRON.value,
        status=ExecutionStatus.SKIPPED.value,
        reason=tick.decision.reason.value,
        count=tick.decision.count,
        queued=False,
        attempt=0,
        planned_at=instant_of(tick.decision.planned_at),
        tick_key=key,
        created_at=instant_of(tick.decided_at),
        updated_at=instant_of(tick.updated_at),
        started_at=None,
        completed_at=None,
        duration_ms=None,
        user_id="",
        actor="",
        error=None,
        key=None,
        replay_of=None,
    )


def execution_detail(view: ExecutionView) -> responses.ExecutionDetail:
    """An execution with its steps and attempts."""
    own = view.workflow.input if view.workflow else None
    return responses.ExecutionDetail(
        **asdict(
            execution_summary(
                view.run, attempt=last_attempt(one.task for one in view.steps), announcements=view.announcements
            )
        ),
        input=shown_data(own if view.input is None else decoded(view.input)),
        parent_task=view.run.parent_task,
        cancel_requested_at=optional_instant(view.run.cancel_requested_at),
        deadline_at=optional_instant(view.run.deadline_at),
        rollback=view.run.rollback,
        rollback_cause=view.run.rollback_cause,
        steps=_step_details(view),
        announcements=[announcement_summary(one) for one in view.announcements],
    )


def _step_details(view: ExecutionView) -> list[responses.StepDetail]:
    if view.workflow is None:
        return [responses.StepDetail(step=one.task.step, **_task_fields(one)) for one in view.steps]
    return [_step_detail(one) for one in step_progress(view, view.workflow)]


def _step_detail(progress: StepProgress) -> responses.StepDetail:
    items = [item_detail(one) for one in progress.items]
    many = progress.step.foreach is not None
    return responses.StepDetail(
        step=progress.step.name,
        depends_on=list(progress.step.depends_on),
        when=progress.step.when.value,
        condition=progress.step.condition,
        execution_id=sub_run_of(progress),
        items=items if many else None,
        item_counts={state.value: count for state, count in progress.item_counts.items()} if many else None,
        **({"state": NO_TASK_YET} if progress.view is None else _task_fields(progress.view)),
    )


def item_detail(one: StepView) -> responses.ItemDetail:
    """An item of a `foreach` step."""
    return responses.ItemDetail(item=one.task.item, **_task_fields(one))


def _task_fields(step: StepView) -> dict[str, Any]:
    task = step.task
    timed = task.state is TaskState.PENDING and task.wait_reason in _TIMED
    return {
        "state": task.state.value,
        "waits_for": task.wait_reason.value if task.state is TaskState.PENDING else None,
        "waits_until": optional_instant(task.available_at) if timed else None,
        "skipped": task.skipped,
        "upstream_failed": task.upstream_failed,
        "note": task.note,
        "started_at": optional_instant(step.started_at),
        "ended_at": optional_instant(step.ended_at),
        "deadline_at": optional_instant(task.deadline_at),
        "output": decoded(step.output),
        "attempts": attempt_details(step.attempts),
    }


def attempt_details(attempts: Sequence[Attempt]) -> list[responses.AttemptDetail]:
    """The attempts of a task."""
    return [responses.AttemptDetail(attempt=one.number, **_attempt_fields(one)) for one in attempts]


def _attempt_fields(attempt: Attempt) -> dict[str, Any]:
    return {
        "worker": attempt.worker,
        "dispatched_at": instant_of(attempt.dispatched_at),
        "started_at": optional_instant(attempt.started_at),
        "ended_at": optional_instant(attempt.ended_at),
        "result": None if attempt.result is None else attempt.result.value,
        "error": attempt.error,
    }


def log_entry(entry: StepLogLine) -> responses.LogEntry:
    """A log line of a step."""
    line = entry.line
    return responses.LogEntry(
        at=instant_of(line.at), level=line.level, step=entry.step, item=entry.item, line=entry.number, text=line.text
    )


def launch_response(done: LaunchResult) -> responses.Started:
    """The result of a request to start an execution."""
    return responses.Started(execution_id=done.run_id, became=done.became.value)


# ---- agents --------------------------------------------------------------------------------------


def agent_usage(days: Sequence[AgentUsageDay], *, today: int, daily_limit: int | None) -> responses.AgentUsageReport:
    """The usage of agents by day and model, and the limit of a day."""
    return responses.AgentUsageReport(
        days=[_agent_usage_of(one) for one in days],
        cost_today=sum(one.spent.cost_micros for one in days if one.day == today) / MICROS,
        max_cost_per_day=None if daily_limit is None else daily_limit / MICROS,
    )


def session_listed(one: SessionSummary) -> responses.SessionListed:
    """A session of agents."""
    return responses.SessionListed(
        session=one.session, turns=one.turns, tokens=one.tokens, updated_at=instant_of(one.updated_at)
    )


def session_turn_shown(one: StoredTurn) -> responses.SessionTurnShown:
    """The messages of one run in a session; none, if they are encrypted with a key that is not here."""
    return responses.SessionTurnShown(
        number=one.number,
        job=one.job,
        execution_id=one.run_id,
        ended_at=instant_of(one.at),
        tokens=one.tokens,
        messages=[] if is_sealed(one.messages) else msgspec.json.decode(one.messages),
    )


def _agent_usage_of(one: AgentUsageDay) -> responses.AgentUsage:
    spent = one.spent
    return responses.AgentUsage(
        day=instant_of(one.day).date(),
        model=one.model,
        attempts=one.attempts,
        requests=spent.requests,
        input_tokens=spent.input_tokens,
        output_tokens=spent.output_tokens,
        cost=spent.cost_micros / MICROS,
        tool_calls=spent.tool_calls,
        actions=spent.actions,
    )


# ---- breakers ------------------------------------------------------------------------------------


def breaker_detail(named: NamedBreaker, *, now: int) -> responses.BreakerDetail:
    """A circuit breaker."""
    state = named.state(now)
    return responses.BreakerDetail(
        name=named.name,
        state=state.value,
        failures=named.breaker.failures,
        open_until=optional_instant(named.breaker.open_until) if state is BreakerState.OPEN else None,
        opened_by=named.opened_by.partition("/")[0] or None,
        probes=sorted(name.partition("/")[0] for name in named.breaker.probes),
        changed_at=instant_of(named.changed_at) if named.changed_at else None,
        definitions=[
            responses.BreakerDefinition(
                user=user,
                failures=limits.failures,
                open=duration_text(limits.open_ms),
                probes=limits.probes,
                successes=limits.successes,
            )
            for user, limits in sorted(named.definitions.items())
        ],
    )


# ---- announcements -------------------------------------------------------------------------------

#: The worst first: an execution shows the worst state of its announcements.
_WORST_FIRST = (
    AnnouncementState.GIVEN_UP,
    AnnouncementState.PENDING,
    AnnouncementState.SENT,
    AnnouncementState.SILENT,
)


def announced_state(announcements: Sequence[Announcement]) -> str | None:
    """Whether all of these were announced, or what the worst of them is; None if there are none."""
    states = {one.state for one in announcements}
    return next((state.value for state in _WORST_FIRST if state in states), None)


def announcement_summary(one: Announcement) -> responses.AnnouncementSummary:
    """An announcement."""
    return responses.AnnouncementSummary(
        announcement_id=one.announcement_id,
        job=one.job,
        execution_id=one.run_id,
        planned_at=instant_of(one.planned_at),
        moment=one.moment.value,
        channel=one.channel,
        to=one.recipient,
        best_effort=one.best_effort,
        state=one.state.value,
        parts_sent=one.parts_sent,
        tries=one.tries,
        next_try_at=None if one.over else instant_of(one.next_at),
        created_at=instant_of(one.created_at),
        ended_at=optional_instant(one.ended_at),
        note=one.note,
    )


# ---- dead letters --------------------------------------------------------------------------------


def dead_letter_summary(letter: DeadLetter) -> responses.DeadLetterSummary:
    """A dead letter in a list."""
    return responses.DeadLetterSummary(
        dead_letter_id=letter.dead_letter_id,
        job=letter.job,
        execution_id=letter.run_id,
        step=letter.step,
        reason=letter.reason,
        attempts=letter.attempts,
        last_error=letter.last_error,
        input=shown_data(decoded(letter.input)),
        first_attempt_at=instant_of(letter.first_attempt_at),
        last_attempt_at=instant_of(letter.last_attempt_at),
        created_at=instant_of(letter.created_at),
        resolved=letter.resolved_at is not None,
        resolved_at=optional_instant(letter.resolved_at),
        resolved_by=letter.resolved_by,
        replayed_by=letter.replayed_by,
    )


def dead_letter_detail(view: DeadLetterView) -> responses.DeadLetterDetail:
    """A dead letter and its attempts."""
    kept = view.run is not None
    return responses.DeadLetterDetail(
        **asdict(dead_letter_summary(view.letter)), attempt_history=attempt_details(view.attempts), kept=kept
    )


def replay_response(one: ReplayResult) -> responses.Replay:
    """The result of one of many replays."""
    return responses.Replay(
        dead_letter_id=one.dead_letter_id,
        job=one.job,
        execution_id=one.run_id,
        became=None if one.became is None else one.became.value,
        refused=one.refused,
    )


# ---- events, workers -----------------------------------------------------------------------------


def event_detail(emitted: EmittedEvent) -> responses.EventDetail:
    """An event and its effect on every job that listens to it."""
    event = emitted.event
    return responses.EventDetail(
        event_id=event.event_id,
        name=event.name,
        key=event.key,
        emitted_at=instant_of(event.emitted_at),
        actor=event.actor,
        body=decoded(event.body),
        entries=[
            responses.EventEntry(
                job=entry.schedule_id,
                became=entry.kind.value,
                reason=entry.reason,
                execution_id=entry.run_id,
                decided_at=instant_of(entry.decided_at),
            )
            for entry in emitted.entries
        ],
    )


def worker_detail(worker: WorkerInfo) -> responses.WorkerDetail:
    """A live worker."""
    return responses.WorkerDetail(
        worker=worker.worker,
        pool=worker.pool,
        slots=worker.slots,
        in_hand=worker.in_hand,
        started_at=instant_of(worker.started_at),
        seen_at=instant_of(worker.seen_at),
        draining=worker.draining,
        cpu=worker.load.cpu,
        gpu=worker.load.gpu,
        labels=dict(worker.labels),
        capabilities=list(worker.capabilities),
        functions=list(worker.functions),
    )


def job_resumed(view: JobView, done: ResumeResult) -> responses.JobResumed:
    """A resumed job and the runs that its pause skipped."""
    missed = done.swallowed
    swallowed = responses.TicksSwallowed(
        count=missed.count, first_at=optional_instant(missed.first_at), last_at=optional_instant(missed.last_at)
    )
    return responses.JobResumed(**asdict(job_detail(view)), swallowed=swallowed, runs=done.runs)


# ---- backfills -----------------------------------------------------------------------------------


def backfill_detail(progress: BackfillProgress) -> responses.BackfillDetail:
    """A backfill and its progress."""
    backfill = progress.backfill
    return responses.BackfillDetail(
        backfill_id=backfill.backfill_id,
        job=backfill.schedule_id,
        from_at=instant_of(backfill.from_at),
        until_at=instant_of(backfill.until_at),
        state=_backfill_state(backfill),
        max_parallel=backfill.max_parallel,
        again=backfill.again,
        planned=backfill.planned,
        fired=progress.fired,
        skipped=progress.skipped,
        under_way=progress.under_way,
        failed=progress.failed,
        created_at=instant_of(backfill.created_at),
        actor=backfill.actor,
        ended_at=optional_instant(backfill.ended_at),
    )


def backfill_preview(job: str, found: Preview) -> responses.BackfillPreview:
    """The planned times that a backfill would run."""
    return responses.BackfillPreview(job=job, to_run=[instant_of(one) for one in found.to_run], had_a_run=found.had)


def _backfill_state(backfill: Backfill) -> str:
    return "cancelled" if backfill.cancelled else "under way" if backfill.ended_at is None else "done"


# ---- plans ---------------------------------------------------------------------------------------


def jobs_planned(planned: JobsPlan, *, limit: int) -> responses.JobsPlanned:
    """The plan of a change of jobs, with at most `limit` fires per job."""
    fires = {fate.value: planned.fires(fate) for fate in FireChangeKind}
    return responses.JobsPlanned(
        from_at=instant_of(planned.from_at),
        until_at=instant_of(planned.until_at),
        jobs={change.value: planned.count(change) for change in PLANNED_CHANGES},
        fires=fires | {"same": sum(one.forecast.fires.same for one in planned.jobs)},
        plan=[_job_plan(one, limit) for one in planned.jobs],
    )


def _job_plan(one: PlannedJob, limit: int) -> responses.JobPlan:
    expected = one.forecast
    days = [responses.PlannedOddDay(at=day.at, timezone=day.zone, what=day.what) for day in expected.odd_days]
    removed = one.standing if one.change is JobChange.REMOVED else None
    return responses.JobPlan(
        job=expected.name,
        change=one.change.value,
        stays_paused=expected.stays_paused,
        timezone=timezone_of(one.job.spec),
        under_way=removed.active_runs if removed else 0,
        queued=removed.queued_runs if removed else 0,
        fields=[responses.PlannedField(field=f.field, before=f.before, after=f.after) for f in expected.fields],
        fires=_planned_fires(expected.fires, expected.odd_days, limit),
        clock_changes=days,
        policy=[_step_ruling(step) for step in one.outlook.steps],
    )


def _planned_fires(diff: FireDiff, days: Sequence[ClockChangeDay], limit: int) -> responses.PlannedFires:
    return responses.PlannedFires(
        before=diff.before,
        after=diff.after,
        same=diff.same,
        added=diff.count(FireChangeKind.ADDED),
        removed=diff.count(FireChangeKind.REMOVED),
        moved=diff.count(FireChangeKind.MOVED),
        compared_until=instant_of(diff.compared_until),
        changes=[_planned_change(change, days) for change in _shown_changes(diff, days, limit)],
    )


def _shown_changes(diff: FireDiff, days: Sequence[ClockChangeDay], limit: int) -> list[FireChange]:
    """The first `limit` changes, and `limit` more on days of clock changes."""
    first = diff.changes[:limit]
    odd = [change for change in diff.changes[limit:] if any(is_on_clock_change_day(change, day) for day in days)][
        :limit
    ]
    return [*first, *odd]


def _planned_change(change: FireChange, days: Sequence[ClockChangeDay]) -> responses.PlannedChange:
    return responses.PlannedChange(
        fate=change.fate.value,
        before=optional_instant(change.before_at),
        after=optional_instant(change.after_at),
        clock_change=any(is_on_clock_change_day(change, day) for day in days),
    )


# ---- the audit trail -----------------------------------------------------------------------------


def token_detail(record: TokenRecord) -> responses.TokenDetail:
    """A token that was issued or revoked here."""
    return responses.TokenDetail(
        token_id=record.token_id,
        subject=record.subject,
        role=record.role,
        issued_at=optional_instant(record.issued_at),
        issued_by=record.issued_by,
        expires_at=instant_of(record.expires_at),
        revoked_at=optional_instant(record.revoked_at),
        revoked_by=record.revoked_by,
    )


def audit_record(stored: StoredAuditEntry, *, place: bool) -> responses.AuditRecord:
    """An audit entry; with `place`, also its number and its place in the chain, which counts all tenants."""
    entry = stored.entry
    return responses.AuditRecord(
        number=stored.number if place else None,
        at=instant_of(entry.at),
        actor=entry.actor,
        tenant=entry.tenant,
        action=entry.action,
        kind=entry.kind,
        name=entry.name,
        before=entry.before,
        after=entry.after,
        details=msgspec.json.decode(entry.details),
        seq=stored.seq if place else None,
        prev_hash=stored.prev_hash if place else None,
        hash=stored.hash,
    )


def schedule_detail(view: ScheduleView) -> responses.ScheduleDetail:
    """A schedule with its next planned times and its last ticks."""
    schedule, spec = view.schedule, view.schedule.spec
    return responses.ScheduleDetail(
        schedule_id=schedule.schedule_id,
        workflow_id=spec.workflow_id,
        version=spec.workflow_version,
        user_id=spec.user_id,
        schedule=schedule_sentence(spec),
        cron=cron_expression(spec),
        timezone=timezone_of(spec),
        start_at=optional_instant(spec.start_at),
        end_at=optional_instant(spec.end_at),
        next_run_at=optional_instant(next_run_at(view)),
        paused=schedule.paused_at is not None,
        jitter_ms=spec.jitter_ms,
        overlap=spec.overlap.value,
        catchup=spec.catchup.value,
        revision=schedule.revision,
        updated_at=instant_of(schedule.updated_at),
        next_runs=[instant_of(one) for one in view.next_runs],
        last_ticks=ledger_ticks(view.last_ticks),
    )


def workflow_deployed(done: DeployResult) -> responses.WorkflowDeployed:
    """The result of a deployment."""
    return responses.WorkflowDeployed(
        workflow_id=done.workflow_id,
        version=done.version,
        new=done.new,
        schedules=list(done.schedules),
        removed=list(done.removed),
        warnings=list(done.warnings),
    )


def workflow_summary(workflow: Workflow) -> responses.WorkflowSummary:
    """A workflow in a list."""
    return responses.WorkflowSummary(
        workflow_id=workflow.workflow_id,
        version=workflow.version,
        steps=[step.name for step in workflow.steps],
        tags=list(workflow.tags),
    )


def why_response(answer: JobExplanation) -> responses.WhyAnswer:
    """The explanation of one time or of the last ticks."""
    return responses.WhyAnswer(
        job=answer.job,
        schedule=answer.schedule,
        timezone=answer.timezone,
        explanations=[_why_moment(one) for one in answer.explanations],
        more=answer.more,
        forgotten_before=optional_instant(answer.forgotten_before),
        coming=None if answer.coming is None else _why_moment(answer.coming),
    )


def tried_attempts(one: SubjectExplanation) -> list[tuple[Task, Attempt]]:
    """The attempts of workers in order of time; those of the engine, which only waits for other runs, are left out."""
    tasks = {task.task_id: task for task in one.tasks}
    by_workers = sorted((one for one in one.attempts if one.worker != ENGINE), key=lambda one: one.dispatched_at)
    return [(tasks[attempt.task_id], attempt) for attempt in by_workers]


def _why_moment(one: SubjectExplanation) -> responses.WhyMoment:
    return responses.WhyMoment(
        at=instant_of(one.at),
        local=in_zone(instant_of(one.at), one.timezone).isoformat(),
        kind=one.kind.value,
        reason=one.reason,
        sentence=one.sentence,
        waits=list(one.waits),
        schedule=one.schedule,
        timezone=one.timezone,
        revision=one.revision,
        decision=_why_decision(one),
        previous_at=optional_instant(one.previous_at),
        next_at=optional_instant(one.next_at),
        execution=None if one.run is None else execution_summary(one.run, attempt=last_attempt(one.tasks)),
        attempts=[
            responses.WhyAttempt(step=task.step, item=task.item, fence=attempt.number, **_attempt_fields(attempt))
            for task, attempt in tried_attempts(one)
        ],
    )


def _why_decision(one: SubjectExplanation) -> responses.WhyDecision | None:
    decision = one.decision
    if decision is None:
        return None
    return responses.WhyDecision(
        kind=decision.kind.value,
        reason=decision.reason.value,
        first_at=instant_of(decision.planned_at),
        last_at=instant_of(decision.last_at),
        count=decision.count,
        fire_at=optional_instant(decision.fire_at),
        decided_at=optional_instant(one.decided_at),
    )


# ---- the policy of tasks -------------------------------------------------------------------------


def policy_version_detail(one: PolicyVersion, *, newest: int) -> responses.PolicyVersionDetail:
    """A version of the policy; `newest` is the number of the one in force."""
    return responses.PolicyVersionDetail(**_policy_version(one, newest))


def policy_detail(one: PolicyVersion, *, newest: int) -> responses.PolicyDetail:
    """A version of the policy, with its file."""
    return responses.PolicyDetail(**_policy_version(one, newest), body=one.body)


def policy_applied(made: ReadVersion) -> responses.PolicyApplied:
    """The version that a file became."""
    document = made.document
    return responses.PolicyApplied(
        **_policy_version(made.version, made.version.version),
        rules=len(document.rules),
        default_decision=document.default_decision,
    )


def _policy_version(one: PolicyVersion, newest: int) -> dict[str, Any]:
    return {
        "version": one.version,
        "digest": one.digest,
        "author": one.author,
        "applied_at": instant_of(one.created_at),
        "in_force": one.version == newest,
    }


def policy_difference(version: int, changes: "Sequence[RuleChange]") -> responses.PolicyDifference:
    """The changes that a policy file would make; `version` is the one in force, 0 if there is none."""
    return responses.PolicyDifference(
        version=version or None,
        changes=[
            responses.PolicyRuleChange(
                rule=one.rule,
                change=one.kind,
                before=one.before or None,
                after=one.after or None,
                fields=list(one.fields),
            )
            for one in changes
        ],
    )


def task_decisions(task: TaskRulings) -> responses.TaskDecisions:
    """The decisions of the policy about a task."""
    return responses.TaskDecisions(
        task_id=task.task_id,
        step=task.step,
        item=task.item,
        decisions=[
            responses.PolicyRuling(
                decision=one.decision,
                rule=one.rule,
                version=one.version,
                reason=one.reason,
                code=one.code or None,
                constraints=None if one.constraints is None else one.constraints.as_data(),
                ruled_by=one.ruled_by,
                digest=one.digest.hex(),
                at=instant_of(one.at),
                last_at=instant_of(one.last_at),
                count=one.count,
            )
            for one in task.rulings
        ],
    )


def job_policy(job: str, found: JobRulings) -> responses.JobPolicy:
    """The decisions that the policy would make about a job."""
    return responses.JobPolicy(job=job, version=found.version, steps=[_step_ruling(one) for one in found.steps])


def outlook_policy(job: str, found: RunOutlook) -> responses.JobPolicy:
    """The steps of a job that the policy in force would hold back."""
    return responses.JobPolicy(job=job, version=found.version, steps=[_step_ruling(one) for one in found.steps])


def _step_ruling(one: "StepExplanation") -> responses.StepRuling:
    ruling, rules = one.ruling, list(one.rules)
    if ruling is None:
        return responses.StepRuling(step=one.step, decision=None, rule=None, reason=None, constraints=None, rules=rules)
    return responses.StepRuling(
        step=one.step,
        decision=ruling.decision,
        rule=ruling.rule,
        reason=ruling.reason,
        constraints=None if ruling.constraints is None else ruling.constraints.as_data(),
        rules=rules,
    )


def policy_replayed(part: ReplayPart) -> responses.PolicyReplayed:
    """The decisions of a policy file about a part of the history."""
    tally = part.tally
    return responses.PolicyReplayed(
        tasks=tally.tasks,
        unchanged=tally.unchanged,
        changed=tally.changed,
        not_known=tally.unknown.total(),
        not_asked=tally.not_asked,
        changes=[
            responses.ReplayChange(
                tenant=one.tenant,
                job=one.job,
                before=_replay_decision(one.before),
                after=_replay_decision(one.after),
                tasks=one.tasks,
                execution_id=one.run_id,
                step=one.step,
            )
            for one in tally.changes.values()
        ],
        left_out=tally.left_out,
        rules=[responses.ReplayedRule(rule=rule, tasks=tasks) for rule, tasks in tally.rules.items()],
        unknown=[
            responses.ReplayUnknown(tenant=tenant, job=job, fact=fact, tasks=tasks)
            for (tenant, job, fact), tasks in tally.unknown.items()
        ],
        after=part.after,
    )


def _replay_decision(one: PastDecision) -> responses.ReplayDecision:
    return responses.ReplayDecision(
        decision=one.decision,
        rule=one.rule or None,
        constraints=None if one.constraints is None else one.constraints.as_data(),
    )


def policy_shadow_detail(one: PolicyShadow) -> responses.PolicyShadowDetail:
    """A shadow of the policy."""
    return responses.PolicyShadowDetail(**_policy_shadow(one))


def policy_shadow_report(report: ShadowReport) -> responses.PolicyShadowReport:
    """A shadow of the policy, with the ways in which its rulings differ."""
    return responses.PolicyShadowReport(
        **_policy_shadow(report.shadow),
        body=report.shadow.body,
        differences=[
            responses.ShadowChange(
                tenant=one.tenant,
                job=one.job,
                before=one.before,
                before_rule=one.before_rule or None,
                after=one.after,
                after_rule=one.after_rule,
                count=one.count,
                first_at=instant_of(one.first_at),
                last_at=instant_of(one.last_at),
                execution_id=one.run_id,
                step=one.step,
            )
            for one in report.differences
        ],
    )


def _policy_shadow(one: PolicyShadow) -> dict[str, Any]:
    return {
        "number": one.number,
        "digest": one.digest,
        "author": one.author,
        "started_at": instant_of(one.started_at),
        "ended_at": optional_instant(one.ended_at),
        "same": one.same,
        "different": one.different,
        "not_judged": one.not_judged,
        "left_out": one.left_out,
    }


# ---- approvals -----------------------------------------------------------------------------------


def approval_summary(one: Approval) -> responses.ApprovalSummary:
    """An approval in a list."""
    return responses.ApprovalSummary(**_approval(one))


def approval_detail(found: ApprovalView) -> responses.ApprovalDetail:
    """An approval with the data that its task is about to work on."""
    asked = found.approval.request
    limits = None if asked is None or asked.constraints is None else asked.constraints.as_data()
    return responses.ApprovalDetail(**_approval(found.approval), constraints=limits, input=found.input)


def _approval(one: Approval) -> dict[str, Any]:
    asked = one.request
    return {
        "approval_id": one.approval_id,
        "kind": one.kind.value,
        "status": one.status.value,
        "job": one.subject,
        "digest": one.digest,
        "reason": one.reason,
        "execution_id": None if asked is None else asked.run_id,
        "task_id": None if asked is None else asked.task_id,
        "step": None if asked is None else asked.step,
        "item": None if asked is None else asked.item,
        "items": None if asked is None else asked.items or None,
        "rule": None if asked is None else asked.rule,
        "version": None if asked is None else asked.version,
        "needs": None if asked is None else _approval_needs(asked.terms),
        "votes": [
            responses.ApprovalVote(voter=vote.voter, vote=vote.kind.value, at=instant_of(vote.at), reason=vote.reason)
            for vote in one.votes
        ],
        "asked_at": None if asked is None else instant_of(asked.asked_at),
        "expires_at": None if asked is None else instant_of(asked.expires_at),
        "decided_by": one.decided_by,
        "decided_at": optional_instant(one.decided_at),
        "overridden": one.overridden,
        "note": one.note or None,
    }


def _approval_needs(terms: ApprovalTerms) -> responses.ApprovalNeeds:
    return responses.ApprovalNeeds(
        roles=list(terms.voter_roles),
        groups=list(terms.groups),
        voters=list(terms.voters),
        quorum=terms.quorum,
        self_approval=terms.self_approval,
        text=terms_text(terms),
    )
