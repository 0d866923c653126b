"""Attempts that should have ended: which of them have, though nobody said so."""

from msgspec import Struct

from gnomon.core.model import ENGINE, Attempt, Result, Run, Task
from gnomon.core.runs.outcomes import AttemptOutcome
from gnomon.core.runs.workflow import Workflow


class OpenAttempt(Struct, frozen=True, kw_only=True):
    """An attempt that has not ended, with what it is an attempt of."""

    task: Task
    run: Run
    attempt: Attempt


class ReconcileTimeouts(Struct, frozen=True, kw_only=True):
    """How long to wait for those who should speak."""

    #: From being handed out to the start.
    dispatch_ms: int = 60_000
    #: From the start to the end, of a task that has no timeout of its own.
    running_ms: int = 24 * 60 * 60_000
    #: A worker ends by itself what exceeds a timeout; after so much more, someone else does.
    grace_ms: int = 30_000
    #: For a step that has no timeout of its own.
    default_timeout_ms: int = 300_000


def overdue_outcome(
    found: OpenAttempt, workflow: Workflow | None, *, now: int, patience: ReconcileTimeouts
) -> AttemptOutcome | None:
    """How the attempt is to be taken to have ended; None while it may go on. `now` is the store's clock."""
    attempt = found.attempt
    if attempt.worker == ENGINE:
        # It ends with what it waits for.
        return None
    if attempt.lease_until <= now:
        if attempt.started_at is None:
            text = f"{attempt.worker} was lost before it started"
            return AttemptOutcome(result=Result.NEVER_STARTED, error=text, lease_until=attempt.lease_until)
        text = f"worker_lost: {attempt.worker} has not been heard of"
        return AttemptOutcome(result=Result.LOST, error=text, lease_until=attempt.lease_until)
    if attempt.started_at is None:
        late = now - attempt.dispatched_at > patience.dispatch_ms
        return AttemptOutcome(result=Result.NEVER_STARTED, error="dispatch_failed: never started") if late else None
    longest = _longest(found, workflow, patience)
    if now - attempt.started_at > longest:
        return AttemptOutcome(result=Result.TIMED_OUT, error=f"ran for more than {longest / 1000:g} s and did not stop")
    return None


def _longest(found: OpenAttempt, workflow: Workflow | None, patience: ReconcileTimeouts) -> int:
    """How long it may run: as long as its step says, and a little more for its worker to end it."""
    step = workflow.step(found.task.step) if workflow else None
    if step is not None and step.timeout_ms is not None:
        return step.timeout_ms + patience.grace_ms
    return min(patience.running_ms, patience.default_timeout_ms + patience.grace_ms)
