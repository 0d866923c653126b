"""Runs that wait in vain: nothing of them is left to end, or what should come next is not there.

Whoever ends a task makes what follows from it in the same transaction, so that there should be none. But rows may be
lost, restored or written by others, and then nobody else would ever look at them again.
"""

from collections.abc import Collection, Sequence
from enum import StrEnum

from msgspec import Struct

from gnomon.core.ledger.ticks import Ticks
from gnomon.core.model import Run, Schedule, ScheduleUid, Task, TaskId
from gnomon.core.runs.dag import graph_progress, step_state
from gnomon.core.runs.launch import sub_run_id
from gnomon.core.runs.states import TERMINAL, TaskState
from gnomon.core.runs.workflow import Workflow


class StuckReason(StrEnum):
    """What a run suffers from."""

    #: All of its tasks are over, but it is not.
    NOT_ENDED = "not_ended"
    #: A step whose turn has come has no task, or one that waits for room that there is.
    NO_NEXT_TASK = "no_next_task"
    #: A step waits for items, or for a run, that are all over.
    STEP_NOT_ENDED = "step_not_ended"
    #: Nothing is left to do but by a definition that is gone.
    NO_DEFINITION = "no_definition"


class StuckRun(Struct, frozen=True):
    """What is wrong with a run, and with which of its steps, if it is those."""

    ailment: StuckReason
    steps: tuple[Task, ...] = ()


def diagnose_run(run: Run, workflow: Workflow | None, steps: Sequence[Task], over: Collection[str]) -> StuckRun | None:
    """What a run that is not over waits for in vain; None if it goes on.

    `steps` are its tasks but for items; `over` are those of the runs that they wait for which are over.
    """
    if run.over or run.queued:
        return None
    if workflow is None:
        # What is left of it fails by itself, where its definition is looked for in vain.
        return None if any(task.state not in TERMINAL for task in steps) else StuckRun(StuckReason.NO_DEFINITION)
    waiting = tuple(task for task in steps if _waits_for_ended_run(task, workflow, over))
    if waiting:
        return StuckRun(StuckReason.STEP_NOT_ENDED, waiting)
    states = {task.step: step_state(task) for task in steps}
    after = graph_progress(workflow, states, cancelled=run.cancel_requested_at is not None)
    if after.status is not None:
        return StuckRun(StuckReason.NOT_ENDED)
    missing = after.ready or after.not_run or after.released
    return StuckRun(StuckReason.NO_NEXT_TASK) if missing else None


def waits_for_run(task: Task, workflow: Workflow) -> bool:
    """Whether a run was started for the task, which ends with it."""
    step = workflow.step(task.step)
    return task.state is TaskState.RUNNING and step is not None and step.workflow is not None and not step.foreach


def _waits_for_ended_run(task: Task, workflow: Workflow, over: Collection[str]) -> bool:
    step = workflow.step(task.step)
    if task.state is not TaskState.RUNNING or step is None:
        return False
    if step.foreach:
        return not task.open_items
    return waits_for_run(task, workflow) and sub_run_id(task) in over


class Invariant(StrEnum):
    """What must hold."""

    #: A schedule that is neither paused nor finished has a next fire.
    NEXT_FIRE = "next_fire"
    #: What is in hand is in the hands of someone alive.
    OWNERS = "owners"
    #: What is due is decided: the marks move.
    MARKS = "marks"
    #: As many runs are counted as there are.
    COUNTS = "counts"


class RunCountCheck(Struct, frozen=True, kw_only=True):
    """A schedule's runs that are not over: as they are counted, and as they are."""

    uid: ScheduleUid
    schedule_id: str
    active_runs: int
    queued_runs: int
    active: int
    queued: int

    @property
    def mismatched(self) -> bool:
        """Whether that is not the same."""
        return (self.active_runs, self.queued_runs) != (self.active, self.queued)


class OrphanedAttempt(Struct, frozen=True, kw_only=True):
    """An attempt whose lease ended long ago, and that nobody has ended."""

    task_id: TaskId
    worker: str
    lease_until: int


class OverdueSchedule(Struct, frozen=True, kw_only=True):
    """The schedule that has been due for longest."""

    uid: ScheduleUid
    schedule_id: str
    next_fire_at: int
    #: Whether someone has the shard that it is in.
    led: bool


def missing_next_fire(schedule: Schedule) -> int | None:
    """When the next tick of a schedule without a next fire is to fire; None if it is right that it has none."""
    if schedule.next_fire_at is not None or schedule.paused_at is not None:
        return None
    return Ticks(schedule.schedule_id, schedule.spec).next_fire_at(schedule.mark_at)


def is_overdue(overdue: OverdueSchedule | None, *, now: int, late_ms: int) -> bool:
    """Whether a tick has been due for longer than deciding it can take."""
    return overdue is not None and now - overdue.next_fire_at > late_ms
