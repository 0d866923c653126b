"""What the books show, as answers for those who ask."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import asdict

from gnomon.core import responses
from gnomon.core.instants import in_zone, instant_of
from gnomon.core.jobs.export import job_as_data
from gnomon.core.jobs.job import Job
from gnomon.core.model import Attempt, DeadLetter, Run, Schedule, Spec, Tick, TickException
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.core.runs.workflow import Workflow
from gnomon.ports.tasks import WorkerCard
from gnomon.services.dead_letters import DeadLetterView, Replayed
from gnomon.services.executions import ExecutionView, Said, StepView
from gnomon.services.job_views import Fire, JobView, Lock
from gnomon.services.jobs import Applied
from gnomon.services.launcher import Triggered
from gnomon.services.listening import Emitted
from gnomon.services.registrar import View
from gnomon.services.run_steps import WAITING, Drawn, run_of, steps_of
from gnomon.services.wording import as_cron, in_words

#: How many items of a step are shown beside everything else.
_MOST_ITEMS = 100
#: What a task waits for until a time that is known.
_TIMED = (WaitReason.DELAY, WaitReason.RETRY, WaitReason.ROUTE, WaitReason.POLICY)


def at(instant: int | None) -> datetime | None:
    """An instant as it is said; None for none."""
    return None if instant is None else instant_of(instant)


def zone_of(spec: Spec) -> str:
    """The zone whose clocks a schedule goes by."""
    return spec.timezone


def state_of(schedule: Schedule) -> str:
    """What goes on with a job, in one word."""
    if schedule.active_runs + schedule.queued_runs:
        return "running" if schedule.paused_at is None else "running, paused"
    return "active" if schedule.paused_at is None else "paused"


def etag(schedule: Schedule) -> str:
    """What names a job as it stands."""
    return f"{schedule.uid}.{schedule.revision}"


def decoded(payload: bytes | None) -> Any:  # noqa: ANN401 - as varied as JSON is
    """What was given or returned, as data."""
    return None if payload is None else msgspec.json.decode(payload)


def functions_of(workflow: Workflow | None) -> list[str]:
    """What the steps call, each once."""
    return list(dict.fromkeys(step.function for step in workflow.steps if step.function)) if workflow else []


def next_run_at(view: JobView | View) -> int | None:
    """When a job runs next; None if it is paused, or nothing is planned."""
    return None if view.schedule.paused_at is not None else next(iter(view.next_runs), None)


# ---- jobs ----------------------------------------------------------------------------------------


def job_summary(view: JobView) -> responses.JobSummary:
    """The job as it is listed."""
    schedule, workflow = view.schedule, view.workflow
    return responses.JobSummary(
        job=schedule.schedule_id,
        state=state_of(schedule),
        schedule=in_words(schedule.spec),
        timezone=zone_of(schedule.spec),
        next_run_at=at(next_run_at(view)),
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
        etag=etag(view.schedule),
        next_runs=[instant_of(one) for one in view.next_runs],
        definition=_definition(view.schedule, view.workflow),
        last_ticks=ticks(view.last_ticks),
        executions=[run.run_id for run in view.under_way],
        exceptions=[
            responses.TickMoved(planned_at=instant_of(one.planned_at), moved_to=at(one.moved_to))
            for one in exceptions_of(view.schedule)
        ],
        lock=None if view.lock is None else _lock(view.lock),
    )


def exceptions_of(schedule: Schedule) -> list[TickException]:
    """Those that are not over."""
    mark = schedule.mark_at
    return [one for one in schedule.spec.exceptions if max(one.planned_at, one.moved_to or 0) > mark]


def _definition(schedule: Schedule, workflow: Workflow | None) -> dict[str, Any] | None:
    if workflow is None:
        return None
    enabled = schedule.paused_at is None
    return job_as_data(Job(name=schedule.schedule_id, spec=schedule.spec, workflow=workflow, enabled=enabled))


def _lock(lock: Lock) -> responses.JobLock:
    acquired = instant_of(lock.acquired_at)
    return responses.JobLock(key=lock.key, execution_id=lock.execution_id, acquired_at=acquired, ttl_ms=lock.ttl_ms)


def job_applied(one: Applied) -> responses.JobApplied:
    """What became of a job that was registered."""
    return responses.JobApplied(
        job=one.name,
        change=one.change.value,
        revision=one.revision,
        version=one.version,
        next_run_at=at(one.next_run_at),
        schedule=in_words(one.spec),
        cron=as_cron(one.spec),
    )


def ticks(found: Iterable[Tick]) -> list[responses.LedgerTick]:
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


def planned_fire(fire: Fire) -> responses.PlannedFire:
    """A planned time to come."""
    instant, zone = instant_of(fire.planned_at), zone_of(fire.schedule.spec)
    return responses.PlannedFire(
        job=fire.schedule.schedule_id,
        utc=instant,
        local=in_zone(instant, zone).isoformat(),
        timezone=zone,
        schedule=in_words(fire.schedule.spec),
    )


# ---- executions ----------------------------------------------------------------------------------


def took(run: Run) -> int | None:
    """How long a run that is over went on."""
    if run.started_at is None or run.completed_at is None:
        return None
    return max(0, run.completed_at - run.started_at)


def execution(run: Run) -> responses.Execution:
    """The execution as it is listed."""
    return responses.Execution(
        execution_id=run.run_id,
        job=run.schedule_id or run.workflow_id,
        version=run.workflow_version,
        trigger=run.source.value,
        status=run.status.value,
        queued=run.queued,
        planned_at=instant_of(run.planned_at),
        started_at=at(run.started_at),
        completed_at=at(run.completed_at),
        duration_ms=took(run),
        user_id=run.user_id,
        error=run.error,
        key=run.idempotency_key,
        replay_of=run.replay_of,
    )


def execution_detail(view: ExecutionView) -> responses.ExecutionDetail:
    """All there is to know about the execution."""
    own = view.workflow.input if view.workflow else None
    return responses.ExecutionDetail(
        **asdict(execution(view.run)),
        input=own if view.input is None else decoded(view.input),
        parent_task=view.run.parent_task,
        cancel_requested_at=at(view.run.cancel_requested_at),
        steps=_steps(view),
    )


def _steps(view: ExecutionView) -> list[responses.StepDetail]:
    if view.workflow is None:
        return [responses.StepDetail(step=one.task.step, **_work(one)) for one in view.steps]
    return [_step(one) for one in steps_of(view, view.workflow)]


def _step(drawn: Drawn) -> responses.StepDetail:
    items = [item_detail(one) for one in drawn.items[:_MOST_ITEMS]]
    counts = Counter(one.task.state.value for one in drawn.items)
    many = drawn.step.foreach is not None
    return responses.StepDetail(
        step=drawn.step.name,
        depends_on=list(drawn.step.depends_on),
        when=drawn.step.when.value,
        condition=drawn.step.condition,
        execution_id=run_of(drawn),
        items=items if many else None,
        item_counts=dict(counts) if many else None,
        **({"state": WAITING} if drawn.view is None else _work(drawn.view)),
    )


def item_detail(one: StepView) -> responses.ItemDetail:
    """One item of a step that is done for each of several."""
    return responses.ItemDetail(item=one.task.item, **_work(one))


def _work(step: StepView) -> dict[str, Any]:
    task = step.task
    timed = task.state is TaskState.PENDING and task.wait_reason in _TIMED
    return {
        "state": task.state.value,
        "waits_for": task.wait_reason.value if task.state is TaskState.PENDING else None,
        "waits_until": at(task.available_at) if timed else None,
        "skipped": task.skipped,
        "upstream_failed": task.upstream_failed,
        "note": task.note,
        "started_at": at(step.started_at),
        "ended_at": at(step.ended_at),
        "output": decoded(step.output),
        "attempts": attempts(step.attempts),
    }


def attempts(tried: Sequence[Attempt]) -> list[responses.AttemptDetail]:
    """All that was tried."""
    return [
        responses.AttemptDetail(
            attempt=one.number,
            worker=one.worker,
            dispatched_at=instant_of(one.dispatched_at),
            started_at=at(one.started_at),
            ended_at=at(one.ended_at),
            result=None if one.result is None else one.result.value,
            error=one.error,
        )
        for one in tried
    ]


def log_entry(said: Said) -> responses.LogEntry:
    """A line that a step has said."""
    line = said.line
    when = instant_of(line.at)
    return responses.LogEntry(
        at=when, level=line.level, step=said.step, item=said.item, line=said.number, text=line.text
    )


def started(done: Triggered) -> responses.Started:
    """What a wish for an execution came to."""
    return responses.Started(execution_id=done.run_id, became=done.became.value)


# ---- dead letters --------------------------------------------------------------------------------


def dead_letter(letter: DeadLetter) -> responses.DeadLetterSummary:
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
        resolved_at=at(letter.resolved_at),
        resolved_by=letter.resolved_by,
        replayed_by=letter.replayed_by,
    )


def dead_letter_detail(view: DeadLetterView) -> responses.DeadLetterDetail:
    """The dead letter and all that was tried."""
    kept = view.run is not None
    return responses.DeadLetterDetail(
        **asdict(dead_letter(view.letter)), attempt_history=attempts(view.attempts), kept=kept
    )


def replay(one: Replayed) -> responses.Replay:
    """What became of one of many replays."""
    return responses.Replay(
        dead_letter_id=one.dead_letter_id,
        job=one.job,
        execution_id=one.run_id,
        became=None if one.became is None else one.became.value,
        refused=one.refused,
    )


# ---- events, workers -----------------------------------------------------------------------------


def event_detail(emitted: Emitted) -> responses.EventDetail:
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


def worker_detail(card: WorkerCard) -> responses.WorkerDetail:
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
