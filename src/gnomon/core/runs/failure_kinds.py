"""The kinds of failure: one table of what each does to retries, rollbacks and dead letters, and what counts it.

The code asks this table whether a failure leaves a dead letter. `docs/dead-letters.md` shows it, and tests compare both
with what happens to a task of each kind.
"""

from enum import StrEnum

from msgspec import Struct

from gnomon.core.runs.rollback import STATE_CAUSES, RollbackCause
from gnomon.core.runs.states import TaskState


class FailureReason(StrEnum):
    """The reasons of dead letters. They are stored and filtered, so they never change."""

    ATTEMPTS_EXHAUSTED = "attempts_exhausted"
    GAVE_UP = "gave_up"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    WORKER_LOST = "worker_lost"
    INTERRUPTED = "interrupted"
    BAD_INPUT = "bad_input"
    NO_WORKERS = "no_workers"
    NO_POOL_MAPPING = "no_pool_mapping"
    POOL_OVERLOADED = "pool_overloaded"
    DISPATCH_FAILED = "dispatch_failed"
    LAUNCH_FAILED = "launch_failed"
    SAFETY_DENIED = "safety_denied"
    SAFETY_UNKNOWN = "safety_unknown"
    APPROVAL_REJECTED = "approval_rejected"
    APPROVAL_EXPIRED = "approval_expired"
    OUTPUT_QUARANTINED = "output_quarantined"
    SAGA_COMPENSATION_FAILED = "saga_compensation_failed"
    SAGA_UNMARSHAL_FAILED = "saga_unmarshal_failed"


class FailureKind(Struct, frozen=True, kw_only=True):
    """The consequences of a failure for good."""

    reason: FailureReason
    meaning: str
    #: The states in which the task ends.
    states: tuple[TaskState, ...]
    #: How often the task was tried before.
    retried: str
    #: Whether it leaves a dead letter whatever `dead_letter` of the job says.
    always: bool = True
    #: Whether the run is rolled back without `rollback_on`.
    rolls_back: bool = False
    #: The metric that counts it, besides dead_letters_total.
    metric: str

    @property
    def rollback_causes(self) -> tuple[RollbackCause, ...]:
        """The words of `rollback_on` that roll the run back."""
        return tuple(dict.fromkeys(STATE_CAUSES[state] for state in self.states if state in STATE_CAUSES))


_FAILED, _TIMEOUT, _DENIED = TaskState.FAILED, TaskState.TIMEOUT, TaskState.DENIED
_NEVER, _PLACES = "no", "up to `execution.max_routings` times"
#: The kinds by their reasons.
FAILURE_KINDS = {
    one.reason: one
    for one in (
        FailureKind(
            reason=FailureReason.ATTEMPTS_EXHAUSTED,
            meaning="the task failed or timed out as often as `retry` allows",
            states=(_FAILED, _TIMEOUT),
            retried="up to `retry.max_attempts` times",
            always=False,
            metric='attempts_ended_total{result="failed"} or "timed_out"',
        ),
        FailureKind(
            reason=FailureReason.GAVE_UP,
            meaning="the function reported that a retry is useless, or the answer of a call says so",
            states=(_FAILED,),
            retried=_NEVER,
            always=False,
            rolls_back=True,
            metric='attempts_ended_total{result="gave_up"}',
        ),
        FailureKind(
            reason=FailureReason.DEADLINE_EXCEEDED,
            meaning="the [deadline](running.md#deadlines) of the task passed",
            states=(_TIMEOUT,),
            retried="until the deadline",
            metric='attempts_ended_total{result="timed_out"}, if it ran',
        ),
        FailureKind(
            reason=FailureReason.WORKER_LOST,
            meaning="its workers died, and the task may be the cause; with `delivery: at_most_once` its only worker",
            states=(_FAILED,),
            retried="up to `execution.max_losses` times",
            always=False,
            metric='attempts_ended_total{result="lost"}',
        ),
        FailureKind(
            reason=FailureReason.INTERRUPTED,
            meaning="its worker was stopped while it ran, and it may not run again",
            states=(_FAILED,),
            retried=_NEVER,
            always=False,
            metric='attempts_ended_total{result="interrupted"}',
        ),
        FailureKind(
            reason=FailureReason.BAD_INPUT,
            meaning="its input or condition cannot be resolved",
            states=(_FAILED,),
            retried=_NEVER,
            always=False,
            metric="",
        ),
        FailureKind(
            reason=FailureReason.NO_WORKERS,
            meaning="no worker could take it for a long time",
            states=(_FAILED,),
            retried=_PLACES,
            metric="",
        ),
        FailureKind(
            reason=FailureReason.NO_POOL_MAPPING,
            meaning="no pool is known for its topic: see [routing](routing.md)",
            states=(_FAILED,),
            retried=_PLACES,
            metric="",
        ),
        FailureKind(
            reason=FailureReason.POOL_OVERLOADED,
            meaning="all workers of its pools were overloaded for a long time",
            states=(_FAILED,),
            retried=_PLACES,
            metric="",
        ),
        FailureKind(
            reason=FailureReason.DISPATCH_FAILED,
            meaning="it was dispatched repeatedly and never started",
            states=(_FAILED,),
            retried=_PLACES,
            metric='attempts_ended_total{result="never_started"}',
        ),
        FailureKind(
            reason=FailureReason.LAUNCH_FAILED,
            meaning="the function or workflow that it should run is not registered",
            states=(_FAILED,),
            retried="up to `execution.max_launches` times",
            metric="",
        ),
        FailureKind(
            reason=FailureReason.SAFETY_DENIED,
            meaning="the [policy](policy.md), or that of [commands](commands.md#when-a-command-is-refused), refused it",
            states=(_DENIED,),
            retried=_NEVER,
            metric="safety_denied_total{topic} or commands_denied_total{rule}",
        ),
        FailureKind(
            reason=FailureReason.SAFETY_UNKNOWN,
            meaning="the policy gave no valid answer about it",
            states=(_DENIED,),
            retried=_NEVER,
            metric="safety_denied_total{topic}",
        ),
        FailureKind(
            reason=FailureReason.APPROVAL_REJECTED,
            meaning="a person [rejected](approvals.md#vote) it",
            states=(_DENIED,),
            retried=_NEVER,
            metric='approvals_total{outcome="rejected"}',
        ),
        FailureKind(
            reason=FailureReason.APPROVAL_EXPIRED,
            meaning="nobody approved it in time",
            states=(_DENIED,),
            retried=_NEVER,
            metric='approvals_total{outcome="expired"}',
        ),
        FailureKind(
            reason=FailureReason.OUTPUT_QUARANTINED,
            meaning="its output is [held back](output-policy.md)",
            states=(TaskState.OUTPUT_QUARANTINED,),
            retried=_NEVER,
            metric="output_policy_quarantined_total{topic}",
        ),
        FailureKind(
            reason=FailureReason.SAGA_COMPENSATION_FAILED,
            meaning="a [compensation](rollback.md) failed after all its attempts; the next one goes on",
            states=(_FAILED, _TIMEOUT),
            retried="as its `retry` says",
            metric="saga_compensation_failed_total",
        ),
        FailureKind(
            reason=FailureReason.SAGA_UNMARSHAL_FAILED,
            meaning="a compensation is not the recorded one, and did not run; the next one goes on",
            states=(TaskState.CANCELLED,),
            retried=_NEVER,
            metric="saga_unmarshal_error_total",
        ),
    )
}


def letter_of(reason: FailureReason, *, asked: bool) -> str | None:
    """The reason of the dead letter of a task that failed; None if it leaves none. `asked`: its job wants one."""
    return reason.value if asked or FAILURE_KINDS[reason].always else None
