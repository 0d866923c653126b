"""The progress of a run through its graph: which steps can start, which never will, and whether the run is over.

The task of a step is created when the steps it depends on are over. A step that will not run gets a task that is
over at once, so that every step of a run can be seen.
"""

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache

import msgspec
from msgspec import Struct

from gnomon.core.model import Result, Run, RunStatus, Task
from gnomon.core.runs.launch import SkippedStep
from gnomon.core.runs.outcomes import AttemptOutcome
from gnomon.core.runs.rollback import (
    Rollback,
    RollbackCause,
    RollbackStatus,
    UndoState,
    compensation_name,
    is_compensation,
    rollback_cause,
    rollback_progress,
    undo_order,
)
from gnomon.core.runs.states import TERMINAL, TaskState, WaitReason
from gnomon.core.runs.workflow import Step, When, Workflow

#: The largest size of the outputs of all items together, in bytes.
LARGEST_OUTPUT = 1 << 20


class StepResult(StrEnum):
    """How a step ended, as the steps after it see it."""

    OPEN = "open"
    SUCCEEDED = "succeeded"
    #: It failed, or could not run because a step before it failed.
    FAILED = "failed"
    #: Its condition or rule excluded it.
    SKIPPED = "skipped"
    CANCELLED = "cancelled"


class StepState(Struct, frozen=True, kw_only=True):
    """The state of a step of a run."""

    state: TaskState
    #: It could start, but the run is at `max_parallel`.
    held: bool = False
    skipped: bool = False
    #: It never ran, because a step before it did not succeed.
    upstream_failed: bool = False
    error: str | None = None
    #: When it ended, if it has.
    ended_at: int = 0

    @property
    def end(self) -> StepResult:
        """How the step ended; OPEN if it has not."""
        if self.state not in TERMINAL:
            return StepResult.OPEN
        if self.state is TaskState.SUCCEEDED:
            return StepResult.SUCCEEDED
        if self.skipped:
            return StepResult.SKIPPED
        if self.state is TaskState.CANCELLED and not self.upstream_failed:
            return StepResult.CANCELLED
        return StepResult.FAILED


class GraphProgress(Struct, frozen=True, kw_only=True):
    """The next changes of a run."""

    #: Steps whose tasks are created now: those that can start, and those held back by `max_parallel`.
    ready: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    not_run: tuple[SkippedStep, ...] = ()
    #: Steps that were held back and can start now.
    released: tuple[str, ...] = ()
    #: The status with which the run ends, if it does.
    status: RunStatus | None = None
    error: str | None = None
    #: The cause of a rollback that begins now, or the status of one that ends now.
    rollback_cause: RollbackCause | None = None
    rollback_status: RollbackStatus | None = None


def graph_progress(
    workflow: Workflow,
    states: Mapping[str, StepState],
    *,
    cancelled: bool,
    gave_up: bool = False,
    rollback: Rollback | None = None,
    without_effect: Collection[str] = (),
) -> GraphProgress:
    """The changes that follow from the states of the steps and compensations of a run.

    `cancelled`: no step starts any more. `gave_up`: a function of one of the steps gave up for good.
    `rollback`: the run is being rolled back. `without_effect`: the steps that are known to have nothing to undo.
    """
    if not workflow.may_be_undone:
        return _forward_progress(workflow, states, None, cancelled=cancelled)
    forward = {name: state for name, state in states.items() if not is_compensation(name)}
    if rollback is not None or len(forward) < len(states):
        begun = rollback or Rollback(cause=RollbackCause.GAVE_UP)
        return _backward_progress(workflow, states, forward, begun, without_effect)
    cause = rollback_cause(workflow, _undo_states(states), gave_up=gave_up, cancelled=cancelled)
    after = _forward_progress(workflow, states, cause, cancelled=cancelled)
    if cause is None or after.status is None:
        return after
    back = rollback_progress(workflow, _undo_states(states), _places(workflow), without_effect=without_effect)
    if back.undo is None:
        return after
    return GraphProgress(not_run=after.not_run, ready=(compensation_name(back.undo),), rollback_cause=cause)


def undo_order_of(workflow: Workflow, states: Mapping[str, StepState]) -> list[str]:
    """All steps that may be undone, in their order."""
    return undo_order(workflow, _undo_states(states), _places(workflow))


def _backward_progress(
    workflow: Workflow,
    states: Mapping[str, StepState],
    forward: Mapping[str, StepState],
    rollback: Rollback,
    without_effect: Collection[str],
) -> GraphProgress:
    """The next change of a run that is being rolled back."""
    undo_states, places = _undo_states(states), _places(workflow)
    back = rollback_progress(workflow, undo_states, places, number=rollback.number, without_effect=without_effect)
    if back.undo is not None:
        return GraphProgress(ready=(compensation_name(back.undo, rollback.number),))
    if back.status is None:
        return GraphProgress()
    status = RunStatus.CANCELLED if rollback.cause is RollbackCause.CANCELLED else RunStatus.FAILED
    return GraphProgress(status=status, error=_error(workflow, forward), rollback_status=back.status)


def _undo_states(states: Mapping[str, StepState]) -> dict[str, UndoState]:
    return {
        name: UndoState(state=one.state, ended_at=one.ended_at, not_run=one.skipped or one.upstream_failed)
        for name, one in states.items()
    }


def _places(workflow: Workflow) -> dict[str, int]:
    return {step.name: place for place, step in enumerate(topological_order(workflow))}


def _forward_progress(
    workflow: Workflow, states: Mapping[str, StepState], cause: RollbackCause | None, *, cancelled: bool
) -> GraphProgress:
    """The next changes of a run that goes on. With a cause for a rollback, only steps that handle failures start."""
    known = {name: state.end for name, state in states.items()}
    made: list[str] = []
    not_run: list[SkippedStep] = []
    for step in () if cancelled else topological_order(workflow):
        if step.name in known or any(known.get(name, StepResult.OPEN) is StepResult.OPEN for name in step.depends_on):
            continue
        why = _why_not(step, known)
        if why is None and cause is not None and step.when is When.ALL_SUCCESS:
            why = SkippedStep(step.name, "the run is rolled back", upstream_failed=True)
        if why is None:
            made.append(step.name)
            known[step.name] = StepResult.OPEN
        else:
            not_run.append(why)
            known[step.name] = StepResult.FAILED if why.upstream_failed else StepResult.SKIPPED
    over = all(end is not StepResult.OPEN for end in known.values()) and (
        cancelled or len(known) == len(workflow.steps)
    )
    status = _status(known, cancelled=cancelled) if over else None
    waiting = [name for name, state in states.items() if state.held]
    free = _free_slots(workflow, states)
    left = max(0, free - len(waiting))
    return GraphProgress(
        released=tuple(waiting[:free]),
        ready=tuple(made[:left]),
        held=tuple(made[left:]),
        not_run=tuple(not_run),
        status=status,
        error=_error(workflow, states) if status is RunStatus.FAILED else None,
    )


def _free_slots(workflow: Workflow, states: Mapping[str, StepState]) -> int:
    """How many more steps may run."""
    if workflow.max_parallel is None:
        return len(workflow.steps)
    running = sum(state.end is StepResult.OPEN and not state.held for state in states.values())
    return max(0, workflow.max_parallel - running)


def _why_not(step: Step, known: Mapping[str, StepResult]) -> SkippedStep | None:
    ends = {name: known[name] for name in step.depends_on}
    failed = [name for name, end in ends.items() if end in (StepResult.FAILED, StepResult.CANCELLED)]
    skipped = [name for name, end in ends.items() if end is StepResult.SKIPPED]
    match step.when:
        case When.ALL_DONE:
            return None
        case When.ANY_FAILED:
            return None if failed else SkippedStep(step.name, "nothing before it failed")
        case When.ALL_SUCCESS:
            if failed:
                return SkippedStep(step.name, f"{failed[0]} did not succeed", upstream_failed=True)
            return SkippedStep(step.name, f"{skipped[0]} was skipped") if skipped else None


def _status(ends: Mapping[str, StepResult], *, cancelled: bool) -> RunStatus:
    if cancelled:
        return RunStatus.CANCELLED
    if any(end is StepResult.FAILED for end in ends.values()):
        return RunStatus.FAILED
    return RunStatus.CANCELLED if any(end is StepResult.CANCELLED for end in ends.values()) else RunStatus.COMPLETED


def _error(workflow: Workflow, states: Mapping[str, StepState]) -> str | None:
    for step in workflow.steps:
        found = states.get(step.name)
        if found is not None and found.end is StepResult.FAILED and not found.upstream_failed:
            return f"step {step.name}: {found.error}" if found.error else f"step {step.name} failed"
    return None


@lru_cache(maxsize=1024)
def _ordered(steps: tuple[tuple[str, tuple[str, ...]], ...]) -> tuple[str, ...]:
    left = dict(steps)
    done: dict[str, None] = {}
    while left:
        for name in [name for name, needs in left.items() if all(needed in done for needed in needs)]:
            done[name] = None
            del left[name]
    return tuple(done)


def topological_order(workflow: Workflow) -> tuple[Step, ...]:
    """The steps, each after all steps that it depends on."""
    steps = {step.name: step for step in workflow.steps}
    return tuple(steps[name] for name in _ordered(tuple((step.name, step.depends_on) for step in workflow.steps)))


def upstream(workflow: Workflow, name: str) -> frozenset[str]:
    """Every step that a step depends on, directly or not."""
    found: set[str] = set()
    ahead = [name]
    steps = {step.name: step for step in workflow.steps}
    while ahead:
        for needed in steps[ahead.pop()].depends_on:
            if needed not in found:
                found.add(needed)
                ahead.append(needed)
    return frozenset(found)


def step_state(task: Task) -> StepState:
    """The state of the step that a task belongs to."""
    return StepState(
        state=task.state,
        held=task.state is TaskState.PENDING and task.wait_reason is WaitReason.DEPS,
        skipped=task.skipped,
        upstream_failed=task.upstream_failed,
        error=task.note,
        ended_at=task.available_at if task.state in TERMINAL else 0,
    )


class ItemTotals(Struct, frozen=True, kw_only=True):
    """The totals of a step's items, all of which are over."""

    count: int
    failed: int
    #: The size of their outputs in bytes.
    size: int

    @property
    def joined(self) -> bool:
        """Whether the outputs of all items, joined in memory, are the output of the step."""
        return not self.failed and self.size <= LARGEST_OUTPUT


def items_outcome(items: ItemTotals, outputs: Sequence[bytes | None], *, cancelled: bool) -> AttemptOutcome:
    """The outcome of a step whose items are over. `outputs` are needed only if they are joined."""
    if cancelled:
        return AttemptOutcome(result=Result.CANCELLED)
    if items.failed:
        # Each item has had all its attempts, so the step is not retried.
        return AttemptOutcome(result=Result.GAVE_UP, error=f"{items.failed} of {items.count} items did not succeed")
    if not items.joined:
        return AttemptOutcome(result=Result.SUCCEEDED, output=_too_large(items.size))
    joined = b"[" + b",".join(output or b"null" for output in outputs) + b"]"
    return AttemptOutcome(result=Result.SUCCEEDED, output=_bounded(joined))


def run_outcome(run: Run, workflow: Workflow | None, outputs: Mapping[str, bytes | None]) -> AttemptOutcome:
    """The outcome of a step that waited for a run: its output is that of the run's last step, or of each last step."""
    if run.status is not RunStatus.COMPLETED:
        result = Result.CANCELLED if run.status is RunStatus.CANCELLED else Result.FAILED
        return AttemptOutcome(result=result, error=f"{run.run_id}: {run.error or run.status}")
    needed = {name for step in workflow.steps for name in step.depends_on} if workflow else set()
    last = [name for name in outputs if name not in needed]
    if len(last) == 1:
        return AttemptOutcome(result=Result.SUCCEEDED, output=outputs[last[0]])
    parts = (msgspec.json.encode(name) + b":" + (outputs[name] or b"null") for name in last)
    return AttemptOutcome(result=Result.SUCCEEDED, output=_bounded(b"{" + b",".join(parts) + b"}"))


def undone_runs_outcome(runs: Sequence[Run]) -> AttemptOutcome:
    """The outcome of a compensation that waited for the rollbacks of these runs, all of which are over."""
    left = [run.run_id for run in runs if run.rollback is RollbackStatus.INCOMPLETE]
    if left:
        error = f"the rollback of {', '.join(left)} is incomplete"
        return AttemptOutcome(result=Result.GAVE_UP, error=error)
    return AttemptOutcome(result=Result.SUCCEEDED)


def _bounded(output: bytes) -> bytes:
    return output if len(output) <= LARGEST_OUTPUT else _too_large(len(output))


def _too_large(size: int) -> bytes:
    return msgspec.json.encode({"truncated": True, "bytes": size})
