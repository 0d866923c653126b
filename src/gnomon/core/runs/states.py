"""The states of a task: one table of transitions, from which everything else about states is derived.

A store writes a state only along an edge of `TRANSITIONS`, and creates a task only in a state of `INITIAL`. The memory
store checks every write of its task table (`TaskTable` in `adapters/memory/state`). The SQL stores build every
statement that sets a state in one module (`adapters/sql/transitions`), which checks the edge and puts the state that
the task must be in into the WHERE clause. Without this rule a late report, a second worker or a repair could bring a
finished task back to life, and the work would be done twice.

`docs/states.md` shows the table. A test compares the two.
"""

from collections.abc import Mapping
from enum import StrEnum

from gnomon.errors import IllegalTransition


class TaskState(StrEnum):
    """The state of a task. A lost worker ends an attempt, not the task: the task goes back to PENDING."""

    PENDING = "PENDING"
    APPROVAL_REQUIRED = "APPROVAL_REQUIRED"
    SCHEDULED = "SCHEDULED"
    DISPATCHED = "DISPATCHED"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"
    CANCELLED = "CANCELLED"
    DENIED = "DENIED"
    OUTPUT_QUARANTINED = "OUTPUT_QUARANTINED"


class WaitReason(StrEnum):
    """The reason why a PENDING task waits."""

    READY = "ready"
    DEPS = "deps"
    RETRY = "retry"
    DELAY = "delay"
    QUEUE = "queue"
    ROUTE = "route"
    POLICY = "policy"
    BREAKER = "breaker"


#: The states in which a task can be created, each with the case in which it is.
INITIAL: Mapping[TaskState, str] = {
    TaskState.PENDING: "a run starts, or a step becomes ready",
    TaskState.SCHEDULED: "the transaction that creates the task also admits it",
    TaskState.DISPATCHED: "the transaction that creates the task also admits it and assigns it to a worker",
    TaskState.CANCELLED: "the step will not run; the task only records why",
}

#: For each state the states that may follow, each with the event that leads there.
TRANSITIONS: Mapping[TaskState, Mapping[TaskState, str]] = {
    TaskState.PENDING: {
        TaskState.PENDING: "postponed by the gate, the router or a delay",
        TaskState.APPROVAL_REQUIRED: "the gate asks for an approval",
        TaskState.SCHEDULED: "admitted",
        # Fan-outs and sub-workflows have no worker. Their items and sub-runs pass the gate one by one.
        TaskState.RUNNING: "started by the engine itself",
        TaskState.FAILED: "no definition, no input or no worker",
        TaskState.TIMEOUT: "deadline passed",
        TaskState.CANCELLED: "cancelled, superseded or skipped",
        TaskState.DENIED: "denied by the gate",
    },
    TaskState.APPROVAL_REQUIRED: {
        TaskState.PENDING: "approved",
        TaskState.FAILED: "no definition",
        TaskState.TIMEOUT: "deadline passed",
        TaskState.CANCELLED: "cancelled",
        TaskState.DENIED: "rejected, or the approval expired",
    },
    TaskState.SCHEDULED: {
        TaskState.PENDING: "recalled: its worker is gone",
        TaskState.DISPATCHED: "assigned to a worker",
        # One commit assigns the task to a local worker and starts it, so that no reader can observe DISPATCHED between
        # the two. A second UPDATE of the row would double the writes of the most frequent path.
        TaskState.RUNNING: "assigned to a local worker and started, in one commit",
        TaskState.FAILED: "no definition",
        TaskState.TIMEOUT: "deadline passed",
        TaskState.CANCELLED: "cancelled",
        TaskState.DENIED: "denied by a newer policy",
    },
    TaskState.DISPATCHED: {
        TaskState.PENDING: "redispatched: lost or never started",
        TaskState.RUNNING: "the worker reports the start",
        # Reports are delivered in any order: the result may come before the start, or without it.
        TaskState.SUCCEEDED: "succeeded, reported before the start",
        TaskState.FAILED: "failed, or lost for the last time",
        TaskState.TIMEOUT: "deadline passed",
        TaskState.CANCELLED: "retracted",
        TaskState.DENIED: "refused by the worker before the start",
        TaskState.OUTPUT_QUARANTINED: "output held back, reported before the start",
    },
    TaskState.RUNNING: {
        TaskState.PENDING: "retried, snoozed, lost or interrupted",
        TaskState.SUCCEEDED: "succeeded",
        TaskState.FAILED: "failed for good",
        TaskState.TIMEOUT: "timed out",
        TaskState.CANCELLED: "cancelled",
        # A local worker takes and starts a task in one commit, before it can look at the command.
        TaskState.DENIED: "refused by the worker before the program exists",
        TaskState.OUTPUT_QUARANTINED: "output held back",
    },
    TaskState.SUCCEEDED: {TaskState.OUTPUT_QUARANTINED: "output held back by a late scan"},
    TaskState.FAILED: {},
    TaskState.TIMEOUT: {},
    TaskState.CANCELLED: {},
    TaskState.DENIED: {},
    TaskState.OUTPUT_QUARANTINED: {TaskState.SUCCEEDED: "an operator has released the output"},
}

_OF_OUTPUTS = {TaskState.SUCCEEDED, TaskState.OUTPUT_QUARANTINED}
#: The work is over. Only a late scan of the output, or its release, may still change the state.
TERMINAL = frozenset(state for state, exits in TRANSITIONS.items() if exits.keys() <= _OF_OUTPUTS)
#: The task has an open attempt: a worker or the engine holds it, and may report its success.
ASSIGNED = frozenset(state for state, exits in TRANSITIONS.items() if TaskState.SUCCEEDED in exits) - TERMINAL
#: The task has no open attempt: a cancellation ends it at once.
WAITING = frozenset(TaskState) - ASSIGNED - TERMINAL


def check_transition(task: str, before: TaskState, after: TaskState) -> None:
    """Raise IllegalTransition unless the table has the edge."""
    if after not in TRANSITIONS[before]:
        raise IllegalTransition(task, before, after)


def check_initial(task: str, state: TaskState) -> None:
    """Raise IllegalTransition unless a task can be created in the state."""
    if state not in INITIAL:
        raise IllegalTransition(task, None, state)
