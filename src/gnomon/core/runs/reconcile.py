"""The reconciler's rule: which open attempts are lost or overdue, though no worker has reported their end."""

from msgspec import Struct

from gnomon.core.model import ENGINE, Attempt, Result, Run, Task
from gnomon.core.runs.deadlines import OverdueTask, deadline_text
from gnomon.core.runs.outcomes import AttemptOutcome
from gnomon.core.runs.workflow import Workflow


class OpenAttempt(Struct, frozen=True, kw_only=True):
    """An attempt that has not ended, with its task and run."""

    task: Task
    run: Run
    attempt: Attempt


class ReconcileTimeouts(Struct, frozen=True, kw_only=True):
    """How long the reconciler waits for reports of workers."""

    #: From dispatch to the start.
    dispatch_ms: int = 60_000
    #: From the start to the end, for a task without a timeout of its own.
    running_ms: int = 24 * 60 * 60_000
    #: A worker itself ends an attempt that exceeds its timeout; the reconciler does after this much more.
    grace_ms: int = 30_000
    #: The timeout of a step that has none of its own.
    default_timeout_ms: int = 300_000


def overdue_outcome(
    found: OpenAttempt, workflow: Workflow | None, *, now: int, timeouts: ReconcileTimeouts
) -> AttemptOutcome | None:
    """The outcome of an attempt that counts as ended; None while it may go on. `now` is the store's clock."""
    attempt = found.attempt
    if attempt.worker == ENGINE:
        # No worker runs it: it ends with the items or the run that it waits for.
        return None
    if attempt.lease_until <= now:
        if attempt.started_at is None:
            text = f"{attempt.worker} was lost before it started"
            return AttemptOutcome(result=Result.NEVER_STARTED, error=text, lease_until=attempt.lease_until)
        text = f"worker_lost: {attempt.worker} has not been heard of"
        return AttemptOutcome(result=Result.LOST, error=text, lease_until=attempt.lease_until)
    if attempt.started_at is None:
        late = now - attempt.dispatched_at > timeouts.dispatch_ms
        return AttemptOutcome(result=Result.NEVER_STARTED, error="dispatch_failed: never started") if late else None
    longest = _longest(found, workflow, timeouts)
    if now - attempt.started_at > longest:
        return AttemptOutcome(result=Result.TIMED_OUT, error=f"ran for more than {longest / 1000:g} s and did not stop")
    return None


def overdue_attempt_outcome(found: OverdueTask) -> AttemptOutcome:
    """The outcome of the attempt of a task whose worker did not end it by its deadline, nor in the time after it."""
    deadline_at = found.task.deadline_at or 0
    error = f"{deadline_text(deadline_at)}, and its worker did not end it"
    return AttemptOutcome(result=Result.TIMED_OUT, error=error, past_deadline=True)


def _longest(found: OpenAttempt, workflow: Workflow | None, timeouts: ReconcileTimeouts) -> int:
    """How long the attempt may run: the timeout of its step, and a grace period in which its worker should end it."""
    step = workflow.step(found.task.step) if workflow else None
    if step is not None and step.timeout_ms is not None:
        return step.timeout_ms + timeouts.grace_ms
    return min(timeouts.running_ms, timeouts.default_timeout_ms + timeouts.grace_ms)
