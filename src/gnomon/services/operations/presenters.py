"""How a node is, as an answer for those who ask."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import asdict

from gnomon.core import responses
from gnomon.core import responses as answers
from gnomon.core.audit import StoredAuditEntry
from gnomon.core.cron import Cron
from gnomon.core.explain.evidence import JobExplanation, SubjectExplanation
from gnomon.core.health import NodeHealth
from gnomon.core.instants import in_zone, instant_of
from gnomon.core.jobs.export import job_as_data
from gnomon.core.jobs.job import Job
from gnomon.core.ledger.forecast import ClockChangeDay, FireChange, FireChangeKind, FireDiff, is_on_clock_change_day
from gnomon.core.model import ENGINE, Attempt, DeadLetter, Run, Schedule, Spec, Task, Tick, TickException
from gnomon.core.responses import Component, HealthReport, WhyAnswer, WhyAttempt, WhyDecision, WhyMoment
from gnomon.core.runs.backfill import Backfill, BackfillProgress
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.core.runs.workflow import Workflow
from gnomon.ports.tasks import WorkerInfo
from gnomon.services.operations.backfills import Preview
from gnomon.services.operations.dead_letters import DeadLetterView, ReplayResult
from gnomon.services.operations.events import EmittedEvent
from gnomon.services.operations.executions import (
    NO_TASK_YET,
    ExecutionView,
    StepLogLine,
    StepProgress,
    StepView,
    step_progress,
    sub_run_of,
)
from gnomon.services.operations.job_changes import JobChange
from gnomon.services.operations.job_plan import JobsPlan, PlannedJob
from gnomon.services.operations.jobs import ApplyResult, JobLockView, JobView, UpcomingFire
from gnomon.services.operations.launcher import LaunchResult
from gnomon.services.operations.workflows import DeployResult
from gnomon.services.scheduling.registrar import ResumeResult, ScheduleView
from gnomon.version import __version__


def health_report(report: NodeHealth, *, messages: bool) -> HealthReport:
    """How a node is. Messages may say what is not for everybody."""
    return HealthReport(
        status=report.condition.value,
        version=__version__,
        ready=report.ready,
        alive=report.alive,
        checked_at=instant_of(report.at),
        components=[
            Component(
                component=one.name,
                status=one.condition.value,
                message=one.message if messages else "",
                since_at=instant_of(one.since_at),
            )
            for one in report.components
        ],
    )


#: Sentences by expression, zone and dialect.
_SENTENCES: dict[tuple[str, str, str], str] = {}
_MOST_SENTENCES = 4096


def schedule_sentence(spec: Spec) -> str:
    """When a schedule fires, in one sentence."""
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
    """When a schedule fires, as cron; None if it is nothing that cron can say."""
    return spec.trigger.expression if isinstance(spec.trigger, Cron) else None


#: How many items of a step are shown beside everything else.
_MOST_ITEMS = 100
#: What a task waits for until a time that is known.
_TIMED = (WaitReason.DELAY, WaitReason.RETRY, WaitReason.ROUTE, WaitReason.POLICY)


def optional_instant(instant: int | None) -> datetime | None:
    """An instant as it is said; None for none."""
    return None if instant is None else instant_of(instant)


def timezone_of(spec: Spec) -> str:
    """The zone whose clocks a schedule goes by."""
    return spec.timezone


def state_of(schedule: Schedule) -> str:
    """What goes on with a job, in one word."""
    if schedule.active_runs + schedule.queued_runs:
        return "running" if schedule.paused_at is None else "running, paused"
    return "active" if schedule.paused_at is None else "paused"


def job_etag(schedule: Schedule) -> str:
    """What names a job as it stands."""
    return f"{schedule.uid}.{schedule.revision}"


def decoded(payload: bytes | None) -> Any:  # noqa: ANN401 - as varied as JSON is
    """What was given or returned, as data."""
    return None if payload is None else msgspec.json.decode(payload)


def functions_of(workflow: Workflow | None) -> list[str]:
    """What the steps call, each once."""
    return list(dict.fromkeys(step.function for step in workflow.steps if step.function)) if workflow else []


def next_run_at(view: JobView | ScheduleView) -> int | None:
    """When a job runs next; None if it is paused, or nothing is planned."""
    return None if view.schedule.paused_at is not None else next(iter(view.next_runs), None)


# ---- jobs ----------------------------------------------------------------------------------------


def job_summary(view: JobView) -> responses.JobSummary:
    """The job as it is listed."""
    schedule, workflow = view.schedule, view.workflow
    return responses.JobSummary(
        job=schedule.schedule_id,
        state=state_of(schedule),
        schedule=schedule_sentence(schedule.spec),
        timezone=timezone_of(schedule.spec),
        next_run_at=optional_instant(next_run_at(view)),
        paused=schedule.paused_at is not None,
        under_way=schedule.active_runs,
        queued=schedule.queued_runs,
        version=schedule.spec.workflow_version,
        functions=functions_of(workflow),
        tags=[] if workflow is None else list(workflow.tags),
    )


def job_detail(view: JobView) -> responses.JobDetail:
    """All there is to know about the job."""
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
    )


def pending_exceptions(schedule: Schedule) -> list[TickException]:
    """Those that are not over."""
    mark = schedule.mark_at
    return [one for one in schedule.spec.exceptions if max(one.planned_at, one.moved_to or 0) > mark]


def _job_definition(schedule: Schedule, workflow: Workflow | None) -> dict[str, Any] | None:
    if workflow is None:
        return None
    enabled = schedule.paused_at is None
    return job_as_data(Job(name=schedule.schedule_id, spec=schedule.spec, workflow=workflow, enabled=enabled))


def _job_lock(lock: JobLockView) -> responses.JobLock:
    acquired = instant_of(lock.acquired_at)
    return responses.JobLock(key=lock.key, execution_id=lock.execution_id, acquired_at=acquired, ttl_ms=lock.ttl_ms)


def job_applied(one: ApplyResult) -> responses.JobApplied:
    """What became of a job that was registered."""
    return responses.JobApplied(
        job=one.name,
        change=one.change.value,
        revision=one.revision,
        version=one.version,
        next_run_at=optional_instant(one.next_run_at),
        schedule=schedule_sentence(one.spec),
        cron=cron_expression(one.spec),
    )


def ledger_ticks(found: Iterable[Tick]) -> list[responses.LedgerTick]:
    """What became of planned times."""
    return [
        responses.LedgerTick(
            job=tick.schedule_id,
            planned_at=instant_of(tick.decision.planned_at),
            last_at=instant_of(tick.decision.last_at),
            count=tick.decision.count,
            kind=tick.decision.kind.value,
            reason=tick.decision.reason.value,
            status=tick.status.value,
            execution_id=tick.run_id,
        )
        for tick in found
    ]


def planned_fire(fire: UpcomingFire) -> responses.PlannedFire:
    """A planned time to come."""
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
    """How long a run that is over went on."""
    if run.started_at is None or run.completed_at is None:
        return None
    return max(0, run.completed_at - run.started_at)


def execution_summary(run: Run) -> responses.Execution:
    """The execution as it is listed."""
    return responses.Execution(
        execution_id=run.run_id,
        job=run.schedule_id or run.workflow_id,
        version=run.workflow_version,
        trigger=run.source.value,
        status=run.status.value,
        queued=run.queued,
        planned_at=instant_of(run.planned_at),
        started_at=optional_instant(run.started_at),
        completed_at=optional_instant(run.completed_at),
        duration_ms=run_duration_ms(run),
        user_id=run.user_id,
        error=run.error,
        key=run.idempotency_key,
        replay_of=run.replay_of,
    )


def execution_detail(view: ExecutionView) -> responses.ExecutionDetail:
    """All there is to know about the execution."""
    own = view.workflow.input if view.workflow else None
    return responses.ExecutionDetail(
        **asdict(execution_summary(view.run)),
        input=own if view.input is None else decoded(view.input),
        parent_task=view.run.parent_task,
        cancel_requested_at=optional_instant(view.run.cancel_requested_at),
        steps=_step_details(view),
    )


def _step_details(view: ExecutionView) -> list[responses.StepDetail]:
    if view.workflow is None:
        return [responses.StepDetail(step=one.task.step, **_task_fields(one)) for one in view.steps]
    return [_step_detail(one) for one in step_progress(view, view.workflow)]


def _step_detail(drawn: StepProgress) -> responses.StepDetail:
    items = [item_detail(one) for one in drawn.items[:_MOST_ITEMS]]
    counts = Counter(one.task.state.value for one in drawn.items)
    many = drawn.step.foreach is not None
    return responses.StepDetail(
        step=drawn.step.name,
        depends_on=list(drawn.step.depends_on),
        when=drawn.step.when.value,
        condition=drawn.step.condition,
        execution_id=sub_run_of(drawn),
        items=items if many else None,
        item_counts=dict(counts) if many else None,
        **({"state": NO_TASK_YET} if drawn.view is None else _task_fields(drawn.view)),
    )


def item_detail(one: StepView) -> responses.ItemDetail:
    """One item of a step that is done for each of several."""
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
        "output": decoded(step.output),
        "attempts": attempt_details(step.attempts),
    }


def attempt_details(tried: Sequence[Attempt]) -> list[responses.AttemptDetail]:
    """All that was tried."""
    return [
        responses.AttemptDetail(
            attempt=one.number,
            worker=one.worker,
            dispatched_at=instant_of(one.dispatched_at),
            started_at=optional_instant(one.started_at),
            ended_at=optional_instant(one.ended_at),
            result=None if one.result is None else one.result.value,
            error=one.error,
        )
        for one in tried
    ]


def log_entry(said: StepLogLine) -> responses.LogEntry:
    """A line that a step has said."""
    line = said.line
    when = instant_of(line.at)
    return responses.LogEntry(
        at=when, level=line.level, step=said.step, item=said.item, line=said.number, text=line.text
    )


def launch_response(done: LaunchResult) -> responses.Started:
    """What a wish for an execution came to."""
    return responses.Started(execution_id=done.run_id, became=done.became.value)


# ---- dead letters --------------------------------------------------------------------------------


def dead_letter_summary(letter: DeadLetter) -> responses.DeadLetterSummary:
    """The dead letter as it is listed."""
    return responses.DeadLetterSummary(
        dead_letter_id=letter.dead_letter_id,
        job=letter.job,
        execution_id=letter.run_id,
        step=letter.step,
        reason=letter.reason,
        attempts=letter.attempts,
        last_error=letter.last_error,
        input=decoded(letter.input),
        first_attempt_at=instant_of(letter.first_attempt_at),
        last_attempt_at=instant_of(letter.last_attempt_at),
        created_at=instant_of(letter.created_at),
        resolved=letter.resolved_at is not None,
        resolved_at=optional_instant(letter.resolved_at),
        resolved_by=letter.resolved_by,
        replayed_by=letter.replayed_by,
    )


def dead_letter_detail(view: DeadLetterView) -> responses.DeadLetterDetail:
    """The dead letter and all that was tried."""
    kept = view.run is not None
    return responses.DeadLetterDetail(
        **asdict(dead_letter_summary(view.letter)), attempt_history=attempt_details(view.attempts), kept=kept
    )


def replay_response(one: ReplayResult) -> responses.Replay:
    """What became of one of many replays."""
    return responses.Replay(
        dead_letter_id=one.dead_letter_id,
        job=one.job,
        execution_id=one.run_id,
        became=None if one.became is None else one.became.value,
        refused=one.refused,
    )


# ---- events, workers -----------------------------------------------------------------------------


def event_detail(emitted: EmittedEvent) -> responses.EventDetail:
    """An event and what became of it for every job that listens."""
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


def worker_detail(card: WorkerInfo) -> responses.WorkerDetail:
    """A worker that is alive."""
    return responses.WorkerDetail(
        worker=card.worker,
        pool=card.pool,
        slots=card.slots,
        in_hand=card.in_hand,
        started_at=instant_of(card.started_at),
        seen_at=instant_of(card.seen_at),
        draining=card.draining,
        cpu=card.load.cpu,
        gpu=card.load.gpu,
        labels=dict(card.labels),
        capabilities=list(card.capabilities),
        functions=list(card.functions),
    )


def job_resumed(view: JobView, done: ResumeResult) -> answers.JobResumed:
    """A job that goes on, and what became of its pause."""
    gone = done.swallowed
    told = answers.TicksSwallowed(
        count=gone.count, first_at=optional_instant(gone.first_at), last_at=optional_instant(gone.last_at)
    )
    return answers.JobResumed(**asdict(job_detail(view)), swallowed=told, runs=done.runs)


# ---- backfills -----------------------------------------------------------------------------------


def backfill_detail(one: BackfillProgress) -> answers.BackfillDetail:
    """A backfill, and how far it has come."""
    asked = one.backfill
    return answers.BackfillDetail(
        backfill_id=asked.backfill_id,
        job=asked.schedule_id,
        from_at=instant_of(asked.from_at),
        until_at=instant_of(asked.until_at),
        state=_backfill_state(asked),
        max_parallel=asked.max_parallel,
        again=asked.again,
        planned=asked.planned,
        fired=one.fired,
        skipped=one.skipped,
        under_way=one.under_way,
        failed=one.failed,
        created_at=instant_of(asked.created_at),
        actor=asked.actor,
        ended_at=optional_instant(asked.ended_at),
    )


def backfill_preview(job: str, found: Preview) -> answers.BackfillPreview:
    """What a backfill would do."""
    return answers.BackfillPreview(job=job, to_run=[instant_of(one) for one in found.to_run], had_a_run=found.had)


def _backfill_state(asked: Backfill) -> str:
    return "cancelled" if asked.cancelled else "under way" if asked.ended_at is None else "done"


# ---- plans ---------------------------------------------------------------------------------------


def jobs_planned(planned: JobsPlan, *, limit: int) -> answers.JobsPlanned:
    """What would become of the jobs; of each, so many fires."""
    fires = {fate.value: planned.fires(fate) for fate in FireChangeKind}
    return answers.JobsPlanned(
        from_at=instant_of(planned.from_at),
        until_at=instant_of(planned.until_at),
        jobs={change.value: planned.count(change) for change in JobChange},
        fires=fires | {"same": sum(one.forecast.fires.same for one in planned.jobs)},
        plan=[_job_plan(one, limit) for one in planned.jobs],
    )


def _job_plan(one: PlannedJob, limit: int) -> answers.JobPlan:
    told, standing = one.forecast, one.standing
    days = [answers.PlannedOddDay(at=day.at, timezone=day.zone, what=day.what) for day in told.odd_days]
    going = standing if one.change is JobChange.REMOVED else None
    return answers.JobPlan(
        job=told.name,
        change=one.change.value,
        stays_paused=told.stays_paused,
        timezone=timezone_of(one.job.spec),
        under_way=going.active_runs if going else 0,
        queued=going.queued_runs if going else 0,
        fields=[answers.PlannedField(field=f.field, before=f.before, after=f.after) for f in told.fields],
        fires=_planned_fires(told.fires, told.odd_days, limit),
        clock_changes=days,
    )


def _planned_fires(diff: FireDiff, days: Sequence[ClockChangeDay], limit: int) -> answers.PlannedFires:
    return answers.PlannedFires(
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
    """The first few, and those on days when clocks are changed."""
    first = diff.changes[:limit]
    odd = [change for change in diff.changes[limit:] if any(is_on_clock_change_day(change, day) for day in days)][
        :limit
    ]
    return [*first, *odd]


def _planned_change(change: FireChange, days: Sequence[ClockChangeDay]) -> answers.PlannedChange:
    return answers.PlannedChange(
        fate=change.fate.value,
        before=optional_instant(change.before_at),
        after=optional_instant(change.after_at),
        clock_change=any(is_on_clock_change_day(change, day) for day in days),
    )


# ---- the audit trail -----------------------------------------------------------------------------


def audit_record(kept: StoredAuditEntry) -> answers.AuditRecord:
    """An entry, and its place in the chain."""
    entry = kept.entry
    return answers.AuditRecord(
        number=kept.number,
        at=instant_of(entry.at),
        actor=entry.actor,
        tenant=entry.tenant,
        action=entry.action,
        kind=entry.kind,
        name=entry.name,
        before=entry.before,
        after=entry.after,
        details=msgspec.json.decode(entry.details),
        seq=kept.seq,
        prev_hash=kept.prev_hash,
        hash=kept.hash,
    )


def schedule_detail(view: ScheduleView) -> responses.ScheduleDetail:
    """The schedule with its next planned times and its last decisions."""
    schedule, spec = view.schedule, view.schedule.spec
    return responses.ScheduleDetail(
        schedule_id=schedule.schedule_id,
        workflow_id=spec.workflow_id,
        version=spec.workflow_version,
        user_id=spec.user_id,
        schedule=schedule_sentence(spec),
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
    """What a deployment came to."""
    return responses.WorkflowDeployed(
        workflow_id=done.workflow_id,
        version=done.version,
        new=done.new,
        schedules=list(done.schedules),
        removed=list(done.removed),
    )


def workflow_summary(workflow: Workflow) -> responses.WorkflowSummary:
    """The workflow as it is listed."""
    return responses.WorkflowSummary(
        workflow_id=workflow.workflow_id,
        version=workflow.version,
        steps=[step.name for step in workflow.steps],
        tags=list(workflow.tags),
    )


def why_response(answer: JobExplanation) -> WhyAnswer:
    """Why, of one moment or of the last few."""
    return WhyAnswer(
        job=answer.job,
        schedule=answer.schedule,
        timezone=answer.timezone,
        explanations=[_why_moment(one) for one in answer.explanations],
        more=answer.more,
        forgotten_before=None if answer.forgotten_before is None else instant_of(answer.forgotten_before),
        coming=None if answer.coming is None else _why_moment(answer.coming),
    )


def tried_attempts(one: SubjectExplanation) -> list[tuple[Task, Attempt]]:
    """What workers have tried, as it happened; what only waited for others is no attempt to speak of."""
    tasks = {task.task_id: task for task in one.tasks}
    by_workers = sorted((one for one in one.attempts if one.worker != ENGINE), key=lambda one: one.dispatched_at)
    return [(tasks[attempt.task_id], attempt) for attempt in by_workers]


def _why_moment(one: SubjectExplanation) -> WhyMoment:
    return WhyMoment(
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
        execution=None if one.run is None else execution_summary(one.run),
        attempts=[_why_attempt(task, attempt) for task, attempt in tried_attempts(one)],
    )


def _why_decision(one: SubjectExplanation) -> WhyDecision | None:
    decision = one.decision
    if decision is None:
        return None
    return WhyDecision(
        kind=decision.kind.value,
        reason=decision.reason.value,
        first_at=instant_of(decision.planned_at),
        last_at=instant_of(decision.last_at),
        count=decision.count,
        fire_at=optional_instant(decision.fire_at),
        decided_at=optional_instant(one.decided_at),
    )


def _why_attempt(task: Task, attempt: Attempt) -> WhyAttempt:
    return WhyAttempt(
        step=task.step,
        item=task.item,
        fence=attempt.number,
        worker=attempt.worker,
        dispatched_at=instant_of(attempt.dispatched_at),
        started_at=optional_instant(attempt.started_at),
        ended_at=optional_instant(attempt.ended_at),
        result=None if attempt.result is None else attempt.result.value,
        error=attempt.error,
    )
