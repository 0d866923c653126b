"""The next tasks of a run whose graph has moved on: the decision of the graph as rows to be written."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from gnomon.core.model import Run, RunStatus, Task, TaskId
from gnomon.core.runs.dag import GraphProgress, graph_progress, step_state, topological_order, undo_order_of
from gnomon.core.runs.launch import SkippedStep, next_tasks, skipped_task
from gnomon.core.runs.rollback import (
    COMPENSATION_UNREADABLE,
    UNDOABLE,
    Rollback,
    RollbackCause,
    RollbackStatus,
    UndoFact,
    compensation_name,
    is_compensation,
    undone_step,
)
from gnomon.core.runs.states import TERMINAL, TaskState
from gnomon.core.runs.workflow import Step, Workflow

#: Of runs with fewer tasks all are looked at whenever one ends.
_MANY_STEPS = 50
_NOT_THE_RECORDED_ONE = f"{COMPENSATION_UNREADABLE}: it is not the compensation that the success of the step recorded"


class RunAdvance(Struct, frozen=True, kw_only=True):
    """The changes of a run after the end of one of its steps."""

    #: New tasks: of steps and compensations that can start or wait, and of those that will not run.
    made: tuple[Task, ...]
    #: Those of the new ones that are compensations which will not run.
    unreadable: tuple[Task, ...] = ()
    #: The tasks that waited for other steps and no longer do.
    released: tuple[TaskId, ...] = ()
    #: Whether any task can start.
    starts: bool = False
    #: The status with which the run ends, if it does.
    status: RunStatus | None = None
    error: str | None = None
    #: The new status of its rollback, if that changes.
    rollback: RollbackStatus | None = None
    rollback_cause: RollbackCause | None = None
    rollback_number: int = 0
    #: How long the rollback has taken that ends now.
    rollback_ms: int | None = None
    #: If a rollback of many steps begins: all of them in their order, so that each end need not look at all others.
    undo_order: tuple[str, ...] = ()
    #: The step about which a fact is missing: the decision has to be made again with it. Nothing else is decided.
    asks: str | None = None


def rollback_of(run: Run) -> Rollback | None:
    """The rollback of the run; None if it is not rolled back."""
    if run.rollback_cause is None:
        return None
    return Rollback(cause=run.rollback_cause, number=max(1, run.rollback_number))


def rolled_back(run: Run, *, reason: str, parent: TaskId | None = None) -> Run:
    """The run that has ended, as it is when its rollback begins on request.

    `parent` is the compensation that waits for it, if the run above it is rolled back.
    """
    return replace(
        run,
        status=RunStatus.RUNNING,
        completed_at=None,
        error=run.error or f"rolled back: {reason}",
        cancel_requested_at=None,
        parent_task=parent or run.parent_task,
        rollback=RollbackStatus.RUNNING,
        rollback_cause=RollbackCause.REQUESTED if parent is None else RollbackCause.PARENT,
        rollback_number=run.rollback_number + 1,
    )


def released(run: Run, task: Task, *, held_at: int) -> Run | None:
    """The run that goes on after the output of one of its tasks was released; None if it stays as it is.

    A run that ended because of it is open again. One that was cancelled or rolled back is not, nor one that had ended
    before the output was held back, nor one for whose end another run has waited; and no step is that counted an item
    as failed.
    """
    if task.parent is not None or run.rollback_cause is not None or run.cancel_requested_at is not None:
        return None
    if not run.over:
        return run
    if run.status is not RunStatus.FAILED or run.parent_task is not None or held_at > (run.completed_at or 0):
        return None
    return replace(run, status=RunStatus.RUNNING, completed_at=None, error=None)


def never_run(tasks: Iterable[Task]) -> list[TaskId]:
    """The tasks of steps that did not run because a step before them had not succeeded."""
    return [task.task_id for task in tasks if task.state is TaskState.CANCELLED and task.upstream_failed]


def undoable_steps(workflow: Workflow, tasks: Sequence[Task]) -> tuple[list[str], list[str]]:
    """The steps that have an effect and a compensation, and those of them that are undone, in this order."""
    states = {task.step: task.state for task in tasks if task.parent is None}
    tried = {undone_step(name) for name in states if is_compensation(name)}
    found = [step.name for step in workflow.steps if step.name in tried or _is_left(step, states)]
    done = [
        undone_step(task.step)
        for task in sorted(tasks, key=lambda one: (one.available_at, one.created_at))
        if task.parent is None and is_compensation(task.step) and task.state is TaskState.SUCCEEDED
    ]
    return found, done


def _is_left(step: Step, states: Mapping[str, TaskState]) -> bool:
    """Whether the step has an effect and a compensation, as far as the state of its task says."""
    return step.compensate is not None and states.get(step.name) in UNDOABLE


def may_roll_back(run: Run, tasks: Sequence[Task]) -> bool:
    """Whether the run is or may now be rolled back."""
    if run.rollback_cause is not None or run.cancel_requested_at is not None:
        return True
    return any(task.state in TERMINAL and task.state is not TaskState.SUCCEEDED for task in tasks)


def advance_run(
    run: Run, workflow: Workflow, tasks: Sequence[Task], *, gave_up: bool, facts: Mapping[str, UndoFact], now: int
) -> RunAdvance:
    """The changes of a run. `tasks` are those of its steps and compensations, without items.

    `gave_up`: a function of one of the steps gave up for good. `facts`: what is known about the undoing of steps.
    """
    order = {step.name: number for number, step in enumerate(topological_order(workflow))}
    by_step = {task.step: task for task in sorted(tasks, key=lambda one: (one.created_at, order.get(one.step, 0)))}
    unreadable = list[Task]()
    while True:
        after = _progress(run, workflow, [*by_step.values(), *unreadable], facts, gave_up=gave_up)
        name = next(filter(is_compensation, after.ready), None)
        if name is None:
            break
        fact = facts.get(undone_step(name))
        if fact is None:
            return RunAdvance(made=(), asks=undone_step(name))
        if fact is not UndoFact.CHANGED:
            break
        note = SkippedStep(name, _NOT_THE_RECORDED_ONE, upstream_failed=True)
        unreadable.append(skipped_task(run, note, now=now))
    cause = after.rollback_cause or run.rollback_cause
    number = run.rollback_number or int(cause is not None)
    return RunAdvance(
        made=(
            *unreadable,
            *next_tasks(run, after.ready, workflow, held=False, now=now),
            *next_tasks(run, after.held, workflow, held=True, now=now),
            *(skipped_task(run, one, now=now) for one in after.not_run),
        ),
        unreadable=tuple(unreadable),
        released=tuple(by_step[name].task_id for name in after.released),
        starts=bool(after.ready or after.released),
        status=after.status,
        error=after.error,
        rollback=after.rollback_status or (RollbackStatus.RUNNING if after.rollback_cause is not None else None),
        rollback_cause=cause,
        rollback_number=number,
        rollback_ms=None if after.rollback_status is None else _rollback_ms(tasks, number, now),
        undo_order=_undo_order(workflow, tasks, after.ready, number),
    )


def _undo_order(workflow: Workflow, tasks: Sequence[Task], ready: Sequence[str], number: int) -> tuple[str, ...]:
    """The order of a rollback with many steps whose first compensation is ready."""
    if len(tasks) < _MANY_STEPS or not any(map(is_compensation, ready)) or _has_begun(tasks, number):
        return ()
    undone = {
        undone_step(task.step) for task in tasks if is_compensation(task.step) and task.state is TaskState.SUCCEEDED
    }
    steps = undo_order_of(workflow, {task.step: step_state(task) for task in tasks})
    return tuple(name for name in steps if name not in undone)


def _has_begun(tasks: Sequence[Task], number: int) -> bool:
    return any(
        is_compensation(task.step) and task.step == compensation_name(undone_step(task.step), number) for task in tasks
    )


def next_undone(run: Run, workflow: Workflow, order: Sequence[str], ended: str) -> Step | None:
    """The step whose compensation follows that of `ended` in the order of the rollback; None: look at all tasks.

    Items and runs are undone only after a look at what is left of them, and so is the end of a rollback.
    """
    place = order.index(ended) + 1 if ended in order else len(order)
    step = workflow.step(order[place]) if place < len(order) else None
    plain = step is not None and step.compensate is not None and step.foreach is None and step.workflow is None
    return step if plain and run.rollback is RollbackStatus.RUNNING else None


def next_compensation(run: Run, workflow: Workflow, step: Step, now: int) -> RunAdvance:
    """The advance of a run that is being rolled back whose next compensation is that of this step."""
    name = compensation_name(step.name, run.rollback_number)
    return RunAdvance(
        made=next_tasks(run, [name], workflow, held=False, now=now),
        starts=True,
        rollback_cause=run.rollback_cause,
        rollback_number=run.rollback_number,
    )


def _rollback_ms(tasks: Sequence[Task], number: int, now: int) -> int:
    """How long the rollback of that number has taken, by the creation of its first compensation."""
    created = [
        task.created_at
        for task in tasks
        if is_compensation(task.step) and task.step == compensation_name(undone_step(task.step), number)
    ]
    return max(0, now - min(created, default=now))


def _progress(
    run: Run, workflow: Workflow, tasks: Sequence[Task], facts: Mapping[str, UndoFact], *, gave_up: bool
) -> GraphProgress:
    return graph_progress(
        workflow,
        {task.step: step_state(task) for task in tasks},
        cancelled=run.cancel_requested_at is not None,
        gave_up=gave_up,
        rollback=rollback_of(run),
        without_effect=[name for name, fact in facts.items() if fact is UndoFact.NOTHING],
    )
