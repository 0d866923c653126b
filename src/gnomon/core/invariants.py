"""The invariants of the store, and the diagnosis of stuck runs.

The invariants must hold at all times; if one does not, something is broken that no other check would notice.

A stuck run waits for something that will never happen. The transaction that ends a task also creates its successors,
so there should be no stuck runs. But rows may be lost, restored from a backup or written by other programs, and then
no other service would look at such a run again.
"""

from collections.abc import Collection, Sequence
from enum import StrEnum

from msgspec import Struct

from gnomon.core.ledger.ticks import Ticks
from gnomon.core.model import Run, Schedule, ScheduleUid, Task, TaskId
from gnomon.core.runs.advance import rollback_of
from gnomon.core.runs.dag import graph_progress, step_state
from gnomon.core.runs.launch import sub_run_id
from gnomon.core.runs.rollback import is_compensation
from gnomon.core.runs.states import TERMINAL, TaskState
from gnomon.core.runs.workflow import Workflow


class Invariant(StrEnum):
    """An invariant of the store."""

    #: A schedule that is neither paused nor finished has a next fire.
    NEXT_FIRE = "next_fire"
    #: Every open attempt has a live worker.
    OWNERS = "owners"
    #: Due ticks are decided: the marks move.
    MARKS = "marks"
    #: The run counts of a schedule are those of its runs.
    COUNTS = "counts"


class RunCountCheck(Struct, frozen=True, kw_only=True):
    """The open runs of a schedule: as its row counts them, and as they are."""

    uid: ScheduleUid
    schedule_id: str
    active_runs: int
    queued_runs: int
    active: int
    queued: int

    @property
    def mismatched(self) -> bool:
        """Whether the counts differ."""
        return (self.active_runs, self.queued_runs) != (self.active, self.queued)


class OrphanedAttempt(Struct, frozen=True, kw_only=True):
    """An open attempt whose lease ended long ago."""

    task_id: TaskId
    worker: str
    lease_until: int


class OverdueSchedule(Struct, frozen=True, kw_only=True):
    """The schedule that has been due for longest."""

    uid: ScheduleUid
    schedule_id: str
    next_fire_at: int
    #: Whether a node holds the lease of its shard.
    led: bool


def missing_next_fire(schedule: Schedule) -> int | None:
    """The fire time that a schedule should have as next fire but lacks; None if the schedule is correct."""
    if schedule.next_fire_at is not None or schedule.paused_at is not None:
        return None
    return Ticks(schedule.schedule_id, schedule.spec).next_fire_at(schedule.mark_at)


def is_overdue(overdue: OverdueSchedule | None, *, now: int, late_ms: int) -> bool:
    """Whether a tick has been due for longer than `late_ms`."""
    return overdue is not None and now - overdue.next_fire_at > late_ms


# ---- stuck runs ----------------------------------------------------------------------------------


class StuckReason(StrEnum):
    """Why a run is stuck."""

    #: All of its tasks are over, but it is not.
    NOT_ENDED = "not_ended"
    #: A step that can start has no task, or one that is held back without need.
    NO_NEXT_TASK = "no_next_task"
    #: A step waits for items, or for a run, that are over.
    STEP_NOT_ENDED = "step_not_ended"
    #: It has no open task, and its definition is missing.
    NO_DEFINITION = "no_definition"


class StuckRun(Struct, frozen=True):
    """Why a run is stuck, and the tasks of the affected steps."""

    reason: StuckReason
    steps: tuple[Task, ...] = ()


def diagnose_run(run: Run, workflow: Workflow | None, steps: Sequence[Task], over: Collection[str]) -> StuckRun | None:
    """Why a run is stuck; None if it is not.

    `steps` are its tasks without items; `over` are the ended ones of the runs that they wait for.
    """
    if run.over or run.queued:
        return None
    if workflow is None:
        # Its open tasks fail by themselves when the dispatcher does not find the definition.
        return None if any(task.state not in TERMINAL for task in steps) else StuckRun(StuckReason.NO_DEFINITION)
    waiting = tuple(task for task in steps if _waits_for_ended_run(task, workflow, over))
    if waiting:
        return StuckRun(StuckReason.STEP_NOT_ENDED, waiting)
    states = {task.step: step_state(task) for task in steps}
    after = graph_progress(workflow, states, cancelled=run.cancel_requested_at is not None, rollback=rollback_of(run))
    if after.status is not None:
        return StuckRun(StuckReason.NOT_ENDED)
    missing = after.ready or after.not_run or after.released
    return StuckRun(StuckReason.NO_NEXT_TASK) if missing else None


def waits_for_run(task: Task, workflow: Workflow) -> bool:
    """Whether the task waits for the end of a run that it started."""
    step = workflow.step(task.step)
    waits = step is not None and step.workflow is not None and not step.foreach and not is_compensation(step.name)
    return task.state is TaskState.RUNNING and waits


def _waits_for_ended_run(task: Task, workflow: Workflow, over: Collection[str]) -> bool:
    step = workflow.step(task.step)
    if task.state is not TaskState.RUNNING or step is None:
        return False
    if step.foreach:
        return not task.open_items
    return waits_for_run(task, workflow) and sub_run_id(task) in over
