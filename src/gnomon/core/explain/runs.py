"""How a run went, in a sentence, and which runs stood in the way of a tick."""

from gnomon.core.durations import span_text
from gnomon.core.explain.evidence import JobEvidence, RunEvidence
from gnomon.core.explain.phrases import TimeFormatter, one_line
from gnomon.core.model import ENGINE, Run, RunStatus, Tick

_FOREVER = 1 << 62


def explain_run(run: Run, ran: RunEvidence, clocks: TimeFormatter, *, now: int) -> str:
    """What became of a run, or where it stands."""
    match run.status:
        case RunStatus.COMPLETED:
            how = f"completed{_ended(run, clocks)}{_tries(ran)}"
        case RunStatus.FAILED:
            how = f"failed{_ended(run, clocks)}{_tries(ran)}{_because(run)}"
        case RunStatus.CANCELLED:
            how = f"{'ended' if run.error else 'was cancelled'}{_ended(run, clocks)}{_because(run)}"
        case RunStatus.RUNNING:
            since = "" if run.started_at is None else f" since {clocks(run.started_at)}"
            how = f"has been running{since}{_asked_to_stop(run, clocks)}"
        case RunStatus.PENDING:
            how = _not_begun(run, clocks, now)
    return f"Its run {run.run_id} {how}."


def _not_begun(run: Run, clocks: TimeFormatter, now: int) -> str:
    if run.queued:
        return "waits in the queue"
    if run.fire_at > now:
        return f"is to start at {clocks(run.fire_at)}, in {span_text(run.fire_at - now)}"
    return f"has not started{_asked_to_stop(run, clocks)}"


def _ended(run: Run, clocks: TimeFormatter) -> str:
    if run.completed_at is None:
        return ""
    lasted = "" if run.started_at is None else f", after {span_text(max(0, run.completed_at - run.started_at))}"
    return f" at {clocks(run.completed_at)}{lasted}"


def _tries(ran: RunEvidence) -> str:
    """How often its only step was tried; of several steps that would say nothing."""
    numbers = [one.number for one in ran.attempts if one.worker != ENGINE]
    return f", on attempt {max(numbers)}" if len(ran.tasks) == 1 and max(numbers, default=1) > 1 else ""


def _because(run: Run) -> str:
    return f": {one_line(run.error)}" if run.error else ""


def _asked_to_stop(run: Run, clocks: TimeFormatter) -> str:
    if run.cancel_requested_at is None:
        return ""
    return f", and was asked to stop at {clocks(run.cancel_requested_at)}{_because(run)}"


def blocking_run(evidence: JobEvidence, entry: Tick) -> Run | None:
    """A run that was under way when the tick was decided; of several, the one that went on longest."""
    found = (run for run in evidence.runs if run.run_id != entry.run_id and _under_way(run, entry.decided_at))
    return max(
        found,
        key=lambda run: (not run.queued, _FOREVER if run.completed_at is None else run.completed_at),
        default=None,
    )


def _under_way(run: Run, at: int) -> bool:
    return run.created_at <= at and (run.completed_at is None or run.completed_at >= at)


def previous_queued_run(evidence: JobEvidence, run: Run) -> Run | None:
    """The run for whose end a queued run waits."""
    found = [one for one in evidence.runs if not one.over and one.run_id != run.run_id]
    under_way = [one for one in found if not one.queued]
    earlier = [one for one in found if one.queued and (one.planned_at, one.run_id) < (run.planned_at, run.run_id)]
    return max(under_way or earlier, key=lambda one: (one.planned_at, one.run_id), default=None)
