"""Deadlines of runs and tasks: when they are, and the end of a task that has passed its own.

A deadline is counted from the creation of a run or task, and no retry restarts it. A task that is created with its run
ahead of the planned time is counted from that time. Of several deadlines the earliest counts: that of the step, that of
the run, and that of the task which waits for the run.
"""

from collections.abc import Mapping

from msgspec import Struct

from gnomon.core.announcements.model import AnnounceRule
from gnomon.core.instants import instant_of
from gnomon.core.model import Attempt, Run, RunId, ScheduleUid, Task, TaskId
from gnomon.core.runs.states import TaskState
from gnomon.core.runs.workflow import RunDeadlines, Workflow

#: The reason of the dead letter of every task that passes its deadline.
DEADLINE_EXCEEDED = "deadline_exceeded"
#: By step: how long its task may take. Most runs have none.
NO_DEADLINES: Mapping[str, int] = {}


class OverdueTask(Struct, frozen=True, kw_only=True):
    """A task that has passed its deadline, with its open attempt if it has one."""

    task: Task
    run: Run
    attempt: Attempt | None = None


class OverdueEnd(Struct, frozen=True, kw_only=True):
    """The end of a task that has passed its deadline while it had no open attempt."""

    task_id: TaskId
    run_id: RunId
    schedule_uid: ScheduleUid | None
    #: Its last attempt when it was read: a task that was attempted since then is left alone.
    fence: int
    note: str
    state: TaskState = TaskState.TIMEOUT
    dead_letter: str = DEADLINE_EXCEEDED
    #: The workflow with which its run continues; None if the run has no other task.
    graph: Workflow | None = None
    #: The rules by which the end of its run is announced, if that has no other task.
    announce: tuple[AnnounceRule, ...] = ()


def earliest(*instants: int | None) -> int | None:
    """The earliest of the instants that there are."""
    return min((one for one in instants if one is not None), default=None)


def run_deadline(span_ms: int | None, *, created_at: int, planned_at: int, inherited: int | None = None) -> int | None:
    """The deadline of a new run that may take so long, and that ends with the task that waits for it."""
    own = None if span_ms is None else max(created_at, planned_at) + span_ms
    return earliest(own, inherited)


def planned_run_deadline(deadlines: RunDeadlines | None, *, created_at: int, planned_at: int) -> int | None:
    """The deadline of a new run of a schedule with these deadlines."""
    if deadlines is None:
        return None
    return run_deadline(deadlines.run_ms, created_at=created_at, planned_at=planned_at)


def first_spans(deadlines: RunDeadlines | None) -> Mapping[str, int]:
    """How long the first tasks of a run may take, by step."""
    return NO_DEADLINES if deadlines is None else deadlines.steps_ms


def task_deadline(run: Run, span_ms: int | None, *, created_at: int) -> int | None:
    """The deadline of a new task of the run that may take so long."""
    if span_ms is None:
        return run.deadline_at
    return earliest(run.deadline_at, max(created_at, run.planned_at) + span_ms)


def deadline_text(deadline_at: int) -> str:
    """The reason of the end, as people read it."""
    return f"its deadline passed at {instant_of(deadline_at).isoformat(timespec='milliseconds')}"


def has_passed(deadline_at: int | None, now: int) -> bool:
    """Whether the deadline is now or has been."""
    return deadline_at is not None and deadline_at <= now


def overdue_end(found: OverdueTask, workflow: Workflow | None) -> OverdueEnd:
    """The end of a task without an open attempt that has passed its deadline."""
    task, run = found.task, found.run
    waited = f" while it waited ({task.note})" if task.note else ""
    return OverdueEnd(
        task_id=task.task_id,
        run_id=task.run_id,
        schedule_uid=run.schedule_uid,
        fence=task.fence,
        note=deadline_text(task.deadline_at or 0) + waited,
        graph=None if workflow is None or workflow.is_single_step else workflow,
        announce=() if workflow is None else workflow.announce,
    )
