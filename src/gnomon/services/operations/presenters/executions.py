"""Presents executions, their steps and their logs."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from msgspec.structs import asdict, replace

from gnomon.core.agents.rules import MICROS
from gnomon.core.agents.usage import AgentUsageTotal
from gnomon.core.announcements.model import Announcement
from gnomon.core.ids import tick_key
from gnomon.core.instants import instant_of
from gnomon.core.model import Attempt, ExecutionStatus, Run, RunSource, Tick
from gnomon.core.responses.executions import (
    AttemptDetail,
    Execution,
    ExecutionDetail,
    ItemDetail,
    LogEntry,
    Started,
    StepDetail,
)
from gnomon.core.runs.secret_text import shown_data
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.ports.runs import StepLogLine
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
from gnomon.services.operations.launcher import LaunchResult
from gnomon.services.operations.presenters.announcements import announced_state, announcement_summary
from gnomon.services.operations.presenters.common import decoded, optional_instant

#: The reasons to wait that have a known end.
_TIMED = (WaitReason.DELAY, WaitReason.RETRY, WaitReason.ROUTE, WaitReason.POLICY, WaitReason.BREAKER)


def run_duration_ms(run: Run) -> int | None:
    """The duration of a completed run; None otherwise."""
    if run.started_at is None or run.completed_at is None:
        return None
    return max(0, run.completed_at - run.started_at)


def listed_execution(listed: ListedRun, used: Mapping[str, AgentUsageTotal]) -> Execution:
    """An execution in a list; `used` is the usage of runs with agents."""
    shown = execution_summary(listed.run, attempt=listed.attempt, announcements=listed.announcements)
    return with_usage(shown, used)


_Shown = TypeVar("_Shown", bound=Execution)


def with_usage(shown: _Shown, used: Mapping[str, AgentUsageTotal]) -> _Shown:
    """The execution with the tokens and the cost of its agents, if it had any."""
    total = used.get(shown.execution_id)
    if total is None:
        return shown
    return replace(shown, tokens=total.spent.tokens, cost=total.spent.cost_micros / MICROS)


def execution_summary(run: Run, *, attempt: int, announcements: Sequence[Announcement] = ()) -> Execution:
    """An execution, whose last attempt has that number, with its announcements."""
    changes = (run.created_at, run.started_at, run.cancel_requested_at, run.completed_at)
    return Execution(
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


def skipped_execution(tick: Tick) -> Execution:
    """A skipped tick in a list of executions."""
    key = tick.key.hex()
    return Execution(
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


def execution_detail(view: ExecutionView) -> ExecutionDetail:
    """An execution with its steps and attempts."""
    own = view.workflow.input if view.workflow else None
    return ExecutionDetail(
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


def _step_details(view: ExecutionView) -> list[StepDetail]:
    if view.workflow is None:
        return [StepDetail(step=one.task.step, **_task_fields(one)) for one in view.steps]
    return [_step_detail(one) for one in step_progress(view, view.workflow)]


def _step_detail(progress: StepProgress) -> StepDetail:
    items = [item_detail(one) for one in progress.items]
    many = progress.step.foreach is not None
    return StepDetail(
        step=progress.step.name,
        depends_on=list(progress.step.depends_on),
        when=progress.step.when.value,
        condition=progress.step.condition,
        execution_id=sub_run_of(progress),
        items=items if many else None,
        item_counts={state.value: count for state, count in progress.item_counts.items()} if many else None,
        **({"state": NO_TASK_YET} if progress.view is None else _task_fields(progress.view)),
    )


def item_detail(one: StepView) -> ItemDetail:
    """An item of a `foreach` step."""
    return ItemDetail(item=one.task.item, **_task_fields(one))


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


def attempt_details(attempts: Sequence[Attempt]) -> list[AttemptDetail]:
    """The attempts of a task."""
    return [AttemptDetail(attempt=one.number, **attempt_fields(one)) for one in attempts]


def attempt_fields(attempt: Attempt) -> dict[str, Any]:
    """The fields that all responses about an attempt have."""
    return {
        "worker": attempt.worker,
        "dispatched_at": instant_of(attempt.dispatched_at),
        "started_at": optional_instant(attempt.started_at),
        "ended_at": optional_instant(attempt.ended_at),
        "result": None if attempt.result is None else attempt.result.value,
        "error": attempt.error,
    }


def log_entry(entry: StepLogLine) -> LogEntry:
    """A log line of a step."""
    line = entry.line
    return LogEntry(
        at=instant_of(line.at), level=line.level, step=entry.step, item=entry.item, line=entry.number, text=line.text
    )


def launch_response(done: LaunchResult) -> Started:
    """The result of a request to start an execution."""
    return Started(execution_id=done.run_id, became=done.became.value)
