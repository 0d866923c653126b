"""Rollback: undoing the steps of a run that have succeeded, the last success first.

The compensation of a step is a step of its own that is in no graph. Its task is created only when the run is rolled
back, under the name `compensate:STEP`, and passes the gate, the router and the worker like every other task. The run
stays under way meanwhile: its next compensation is created in the transaction that ends the one before, so that a
crash anywhere continues where it was, and nothing is undone twice.

The order is that of the ends of the steps, backwards. The clocks of servers may differ, so that a step could seem to
have ended before one that it depends on: a step is undone only after all steps that depend on it.

A compensation that fails for good leaves a dead letter, and the next one goes on: what can be undone is undone. A
person may roll back the run again. The second round has tasks of its own, named `compensate:STEP#2`, and undoes what
no round before it has undone.

The compensation of a step with `foreach` has items itself: one for each item that succeeded, from the last to the
first, one at a time. A step that runs another workflow is undone by rolling back its runs: its compensation waits for
them. The states of the tasks do not say what such steps have left to undo: a decision that depends on it asks.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from hashlib import sha256
from heapq import heappop, heappush

import msgspec
from msgspec import Struct

from gnomon.core.runs.states import TERMINAL, TaskState
from gnomon.core.runs.workflow import COMPENSATION, Step, Workflow

#: The labels of every compensation. The first two are also variables of its command.
COMPENSATION_TERMS = ("saga_compensation", "saga_workflow_id", "is_compensation")
#: The reason codes of the dead letters of compensations: it failed for good, or is not what was recorded.
COMPENSATION_FAILED, COMPENSATION_UNREADABLE = "saga_compensation_failed", "saga_unmarshal_failed"
_CANONICAL = msgspec.json.Encoder(order="deterministic")
#: The states after which a step has an effect that can be undone.
UNDOABLE = (TaskState.SUCCEEDED, TaskState.OUTPUT_QUARANTINED)


class RollbackStatus(StrEnum):
    """How far the rollback of a run is."""

    RUNNING = "running"
    #: Every step that succeeded and has a compensation is undone.
    COMPLETE = "complete"
    INCOMPLETE = "incomplete"


class RollbackCause(StrEnum):
    """The reason why a run is rolled back."""

    #: A step gave up for good.
    GAVE_UP = "gave_up"
    FAILED = "failed"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    DENIED = "denied"
    #: A person requested it.
    REQUESTED = "requested"
    #: The run above it, of which it is a part, is rolled back.
    PARENT = "parent"


#: The causes that a workflow can name in `rollback_on`.
ROLLBACK_ON = (RollbackCause.FAILED, RollbackCause.TIMEOUT, RollbackCause.CANCELLED, RollbackCause.DENIED)
#: The reason in words.
CAUSE_TEXTS = {
    RollbackCause.GAVE_UP: "a step gave up for good",
    RollbackCause.FAILED: "a step failed",
    RollbackCause.TIMEOUT: "a step timed out",
    RollbackCause.CANCELLED: "it was cancelled",
    RollbackCause.DENIED: "a step was denied",
    RollbackCause.REQUESTED: "a person requested it",
    RollbackCause.PARENT: "the execution that it is a part of is rolled back",
}
#: The cause for which a run may be rolled back, by the state in which a step ended.
STATE_CAUSES = {
    TaskState.FAILED: RollbackCause.FAILED,
    TaskState.OUTPUT_QUARANTINED: RollbackCause.FAILED,
    TaskState.TIMEOUT: RollbackCause.TIMEOUT,
    TaskState.CANCELLED: RollbackCause.CANCELLED,
    TaskState.DENIED: RollbackCause.DENIED,
}


class RollbackOutcome(StrEnum):
    """The outcome of a request to roll a run back."""

    STARTED = "started"
    #: None of its steps can be undone, or all of them are.
    NOTHING = "nothing"
    #: It has not ended: only a run that is over is rolled back on request.
    UNDER_WAY = "under_way"
    UNKNOWN = "unknown"


class UndoFact(StrEnum):
    """The answer to the question what the undoing of a step finds."""

    #: Something to undo, by the compensation that was recorded.
    READY = "ready"
    #: Something to undo, but the compensation is not the recorded one.
    CHANGED = "changed"
    NOTHING = "nothing"


class Rollback(Struct, frozen=True, kw_only=True, gc=False):
    """The rollback of a run."""

    cause: RollbackCause
    #: Counts from 1. Each request to roll the run back begins another one.
    number: int = 1


class UndoState(Struct, frozen=True, kw_only=True):
    """The state of a step, or of a compensation, as the rollback sees it."""

    state: TaskState
    #: When it ended, if it has.
    ended_at: int
    #: It never ran.
    not_run: bool = False


class RollbackProgress(Struct, frozen=True, kw_only=True):
    """The next change of a rollback."""

    #: The step whose compensation is created now.
    undo: str | None = None
    #: How the rollback ends, if it does.
    status: RollbackStatus | None = None


def compensation_name(step: str, number: int = 1) -> str:
    """The name of the compensation of a step, in the rollback of that number."""
    return f"{COMPENSATION}{step}" if number == 1 else f"{COMPENSATION}{step}#{number}"


def is_compensation(step: str) -> bool:
    """Whether the name is that of a compensation."""
    return step.startswith(COMPENSATION)


def undone_step(compensation: str) -> str:
    """The name of the step that a compensation undoes."""
    return compensation.removeprefix(COMPENSATION).partition("#")[0]


def _number(compensation: str) -> int:
    return int(compensation.partition("#")[2] or 1)


def compensation_record(step: Step) -> bytes:
    """The record that the success of the step leaves: by it a compensation that was changed since is known."""
    return _CANONICAL.encode({"compensation": sha256(_CANONICAL.encode(step.compensate)).hexdigest()})


def undo_fact(step: Step, records: Sequence[bytes | None]) -> UndoFact:
    """The fact about a step that its compensation undoes. `records` are those of all of its tasks that succeeded."""
    if not records:
        return UndoFact.NOTHING
    wanted = compensation_record(step)
    return UndoFact.READY if all(record == wanted for record in records) else UndoFact.CHANGED


def items_to_undo(succeeded: Iterable[int], undone: Collection[int]) -> list[int]:
    """The numbers of the items that are to be undone, in this order."""
    return sorted(set(succeeded).difference(undone), reverse=True)


def rollback_cause(
    workflow: Workflow, states: Mapping[str, UndoState], *, gave_up: bool, cancelled: bool
) -> RollbackCause | None:
    """Why the run is to be rolled back; None if it is not. `gave_up`: a function of one of its steps has."""
    if gave_up:
        return RollbackCause.GAVE_UP
    found = {STATE_CAUSES.get(one.state) for one in states.values() if one.state in TERMINAL and not one.not_run}
    if cancelled:
        found.add(RollbackCause.CANCELLED)
    return next((cause for cause in ROLLBACK_ON if cause in found and cause.value in workflow.rollback_on), None)


def rollback_progress(
    workflow: Workflow,
    states: Mapping[str, UndoState],
    order: Mapping[str, int],
    *,
    number: int = 1,
    without_effect: Collection[str] = (),
) -> RollbackProgress:
    """The next change of the rollback of that number. `order` is the place of each step in the graph.

    `without_effect` are the steps that are known to have nothing to undo.
    """
    compensations = {name: one for name, one in states.items() if is_compensation(name)}
    if any(one.state not in TERMINAL for one in compensations.values()):
        return RollbackProgress()
    undone = {undone_step(name) for name, one in compensations.items() if one.state is TaskState.SUCCEEDED}
    tried = {undone_step(name) for name in compensations if _number(name) >= number}
    undoable = {
        step.name
        for step in workflow.steps
        if step.name in states and _may_be_undone(step, states[step.name]) and step.name not in without_effect
    }
    left = undoable - undone - tried
    if not left:
        complete = undoable <= undone
        return RollbackProgress(status=RollbackStatus.COMPLETE if complete else RollbackStatus.INCOMPLETE)
    free = left - _steps_before(workflow, left)
    return RollbackProgress(undo=max(free, key=lambda name: (states[name].ended_at, order[name])))


def undo_order(workflow: Workflow, states: Mapping[str, UndoState], order: Mapping[str, int]) -> list[str]:
    """All steps that may be undone, in the order in which `rollback_progress` takes them one by one."""
    undoable = {step.name for step in workflow.steps if step.name in states and _may_be_undone(step, states[step.name])}
    needs = {step.name: step.depends_on for step in workflow.steps}
    dependents = Counter(name for needed in needs.values() for name in needed)
    passed = [name for name in needs if not dependents[name]]
    free: list[tuple[int, int, str]] = []
    found: list[str] = []
    while passed or free:
        if passed:
            name = passed.pop()
            if name in undoable:
                heappush(free, (-states[name].ended_at, -order[name], name))
                continue
        else:
            name = heappop(free)[2]
            found.append(name)
        for needed in needs[name]:
            dependents[needed] -= 1
            if not dependents[needed]:
                passed.append(needed)
    return found


def _may_be_undone(step: Step, one: UndoState) -> bool:
    if step.workflow is None and step.foreach is None:
        return step.compensate is not None and one.state in UNDOABLE
    # However it ended: some of its items or of its runs may have left an effect.
    return step.undo is not None and one.state in TERMINAL and not one.not_run


def _steps_before(workflow: Workflow, steps: set[str]) -> set[str]:
    """All steps that any of these depends on, directly or not."""
    needs = {step.name: step.depends_on for step in workflow.steps}
    found = set[str]()
    ahead = [needed for name in steps for needed in needs[name]]
    while ahead:
        if (name := ahead.pop()) not in found:
            found.add(name)
            ahead += needs[name]
    return found
