"""How a run goes on: which steps can start, which never will, and whether it is over.

Tasks are made when the steps they depend on are over; a step that will not run gets a task that is over at once, so
that whoever looks sees every step.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import lru_cache

import msgspec
from msgspec import Struct

from gnomon.core.model import Result, Run, RunStatus, Task
from gnomon.core.runs.launch import SkippedStep
from gnomon.core.runs.outcomes import AttemptOutcome
from gnomon.core.runs.states import TERMINAL, TaskState, WaitReason
from gnomon.core.runs.workflow import Step, When, Workflow

#: What the outputs of many items may come to together.
LARGEST_OUTPUT = 1 << 20


class StepResult(StrEnum):
    """How a step ended, as far as those behind it are concerned."""

    OPEN = "open"
    SUCCEEDED = "succeeded"
    #: It failed, or could not run because something before it did.
    FAILED = "failed"
    #: It was not to run.
    SKIPPED = "skipped"
    CANCELLED = "cancelled"


class StepState(Struct, frozen=True, kw_only=True):
    """Where a step of a run stands."""

    state: TaskState
    #: It could start, but as many as may are under way.
    held: bool = False
    skipped: bool = False
    #: It never ran, because a step before it did not succeed.
    upstream_failed: bool = False
    error: str | None = None

    @property
    def end(self) -> StepResult:
        """How it ended."""
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
    """What is to be done about a run."""

    #: Steps whose tasks are to be made now, and those of them that have to wait for others to end.
    ready: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    not_run: tuple[SkippedStep, ...] = ()
    #: Steps that had to wait and no longer do.
    released: tuple[str, ...] = ()
    #: How the run ends, if it does.
    status: RunStatus | None = None
    error: str | None = None


def graph_progress(workflow: Workflow, states: Mapping[str, StepState], *, cancelled: bool) -> GraphProgress:
    """What follows from where the steps stand. `cancelled`: nothing more is to start."""
    known = {name: state.end for name, state in states.items()}
    made: list[str] = []
    not_run: list[SkippedStep] = []
    for step in () if cancelled else topological_order(workflow):
        if step.name in known or any(known.get(name, StepResult.OPEN) is StepResult.OPEN for name in step.depends_on):
            continue
        why = _why_not(step, known)
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
    room = _free_slots(workflow, states)
    return GraphProgress(
        released=tuple(waiting[:room]),
        ready=tuple(made[: max(0, room - len(waiting))]),
        held=tuple(made[max(0, room - len(waiting)) :]),
        not_run=tuple(not_run),
        status=status,
        error=_error(workflow, states) if status is RunStatus.FAILED else None,
    )


def _free_slots(workflow: Workflow, states: Mapping[str, StepState]) -> int:
    """How many more steps may be under way."""
    if workflow.max_parallel is None:
        return len(workflow.steps)
    under_way = sum(state.end is StepResult.OPEN and not state.held for state in states.values())
    return max(0, workflow.max_parallel - under_way)


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
        for name in [name for name, needed in left.items() if all(one in done for one in needed)]:
            done[name] = None
            del left[name]
    return tuple(done)


def topological_order(workflow: Workflow) -> tuple[Step, ...]:
    """The steps, each after all that it depends on."""
    steps = {step.name: step for step in workflow.steps}
    return tuple(steps[name] for name in _ordered(tuple((step.name, step.depends_on) for step in workflow.steps)))


def upstream(workflow: Workflow, name: str) -> frozenset[str]:
    """Every step that comes before a step, however far."""
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
    """Where the step of a task stands."""
    return StepState(
        state=task.state,
        held=task.state is TaskState.PENDING and task.wait_reason is WaitReason.DEPS,
        skipped=task.skipped,
        upstream_failed=task.upstream_failed,
        error=task.note,
    )


class ItemTotals(Struct, frozen=True, kw_only=True):
    """The items of a step, all of them over."""

    count: int
    failed: int
    #: How many bytes they returned.
    size: int

    @property
    def joined(self) -> bool:
        """Whether what they returned, all of it in memory, is what their step returns."""
        return not self.failed and self.size <= LARGEST_OUTPUT


def items_outcome(items: ItemTotals, outputs: Sequence[bytes | None], *, cancelled: bool) -> AttemptOutcome:
    """How a step has ended with its items. `outputs` are needed only of those that are joined."""
    if cancelled:
        return AttemptOutcome(result=Result.CANCELLED)
    if items.failed:
        # Each item was tried as often as it may be.
        return AttemptOutcome(result=Result.GAVE_UP, error=f"{items.failed} of {items.count} items did not succeed")
    if not items.joined:
        return AttemptOutcome(result=Result.SUCCEEDED, output=_too_large(items.size))
    joined = b"[" + b",".join(one or b"null" for one in outputs) + b"]"
    return AttemptOutcome(result=Result.SUCCEEDED, output=_bounded(joined))


def run_outcome(run: Run, workflow: Workflow | None, outputs: Mapping[str, bytes | None]) -> AttemptOutcome:
    """How a step has ended that waited for a run: its output is that of the run's last step, or of each of them."""
    if run.status is not RunStatus.COMPLETED:
        result = Result.CANCELLED if run.status is RunStatus.CANCELLED else Result.FAILED
        return AttemptOutcome(result=result, error=f"{run.run_id}: {run.error or run.status}")
    needed = {name for step in workflow.steps for name in step.depends_on} if workflow else set()
    last = [name for name in outputs if name not in needed]
    if len(last) == 1:
        return AttemptOutcome(result=Result.SUCCEEDED, output=outputs[last[0]])
    parts = (msgspec.json.encode(name) + b":" + (outputs[name] or b"null") for name in last)
    return AttemptOutcome(result=Result.SUCCEEDED, output=_bounded(b"{" + b",".join(parts) + b"}"))


def _bounded(output: bytes) -> bytes:
    return output if len(output) <= LARGEST_OUTPUT else _too_large(len(output))


def _too_large(size: int) -> bytes:
    return msgspec.json.encode({"truncated": True, "bytes": size})
