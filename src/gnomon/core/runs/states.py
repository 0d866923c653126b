"""The life of a task, as a table. Everything else about states is derived from it.

A signal is what happens, a state is what is then true. The picture in docs/states.md is drawn from this table.
"""

from collections.abc import Mapping
from enum import StrEnum

from gnomon.errors import IllegalTransition


class TaskState(StrEnum):
    """Where a task stands. A lost worker ends an attempt, not the task: it goes back to PENDING."""

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
    """What a PENDING task waits for."""

    READY = "ready"
    DEPS = "deps"
    RETRY = "retry"
    DELAY = "delay"
    QUEUE = "queue"
    ROUTE = "route"
    POLICY = "policy"


class Signal(StrEnum):
    """What can happen to a task."""

    ALLOW = "allow"
    ASK = "ask"
    APPROVE = "approve"
    DENY = "deny"
    DISPATCH = "dispatch"
    RECALL = "recall"
    START = "start"
    SUCCEED = "succeed"
    RETRY = "retry"
    FAIL = "fail"
    EXPIRE = "expire"
    CANCEL = "cancel"
    QUARANTINE = "quarantine"


_ENDS = {Signal.FAIL: TaskState.FAILED, Signal.EXPIRE: TaskState.TIMEOUT, Signal.CANCEL: TaskState.CANCELLED}

TRANSITIONS: Mapping[TaskState, Mapping[Signal, TaskState]] = {
    TaskState.PENDING: {
        Signal.ALLOW: TaskState.SCHEDULED,
        Signal.ASK: TaskState.APPROVAL_REQUIRED,
        Signal.DENY: TaskState.DENIED,
        **_ENDS,
    },
    TaskState.APPROVAL_REQUIRED: {
        Signal.APPROVE: TaskState.PENDING,
        Signal.DENY: TaskState.DENIED,
        **_ENDS,
    },
    TaskState.SCHEDULED: {
        Signal.DISPATCH: TaskState.DISPATCHED,
        Signal.RECALL: TaskState.PENDING,
        Signal.DENY: TaskState.DENIED,
        **_ENDS,
    },
    TaskState.DISPATCHED: {
        Signal.START: TaskState.RUNNING,
        Signal.RETRY: TaskState.PENDING,
        **_ENDS,
    },
    TaskState.RUNNING: {
        Signal.SUCCEED: TaskState.SUCCEEDED,
        Signal.QUARANTINE: TaskState.OUTPUT_QUARANTINED,
        Signal.RETRY: TaskState.PENDING,
        **_ENDS,
    },
    TaskState.SUCCEEDED: {Signal.QUARANTINE: TaskState.OUTPUT_QUARANTINED},
    TaskState.FAILED: {},
    TaskState.TIMEOUT: {},
    TaskState.CANCELLED: {},
    TaskState.DENIED: {},
    TaskState.OUTPUT_QUARANTINED: {},
}

#: The work is over. Only a late look at the output may still change what is made of it.
TERMINAL = frozenset(state for state, exits in TRANSITIONS.items() if exits.keys() <= {Signal.QUARANTINE})


def advance(state: TaskState, signal: Signal) -> TaskState:
    """The state that follows, or IllegalTransition."""
    try:
        return TRANSITIONS[state][signal]
    except KeyError:
        raise IllegalTransition(state, signal) from None
