"""The sentence about a run, and the search for the run that blocks a tick or another run."""

from collections.abc import Sequence

from gnomon.core.durations import span_text
from gnomon.core.explain.evidence import JobEvidence, RunEvidence
from gnomon.core.explain.phrases import TimeFormatter, one_line
from gnomon.core.instants import FOREVER
from gnomon.core.model import ENGINE, Run, RunStatus, Tick
from gnomon.core.output_policy.late import late_reason
from gnomon.core.runs.advance import undoable_steps
from gnomon.core.runs.rollback import CAUSE_TEXTS, RollbackStatus, is_compensation, undone_step
from gnomon.core.runs.states import TERMINAL

#: How many steps a sentence names.
_MOST_NAMES = 10


def explain_run(run: Run, details: RunEvidence, clocks: TimeFormatter, *, now: int) -> str:
    """The sentence about the outcome or the current state of a run."""
    match run.status:
        case RunStatus.COMPLETED:
            how = f"completed{_ended(run, clocks)}{_tries(details)}"
        case RunStatus.FAILED:
            how = f"failed{_ended(run, clocks)}{_tries(details)}{_because(run)}"
        case RunStatus.CANCELLED:
            how = f"{'ended' if run.error else 'was cancelled'}{_ended(run, clocks)}{_because(run)}"
        case RunStatus.RUNNING:
            since = "" if run.started_at is None else f" since {clocks(run.started_at)}"
            waits = ", and has only to be announced" if _awaits_announcement(details) else ""
            how = f"has been running{since}{waits}{_asked_to_stop(run, clocks)}"
        case RunStatus.PENDING:
            how = _not_begun(run, clocks, now)
    return f"Its run {run.run_id} {how}.{_rolled_back(run, details)}{_taken_away(details)}"


def _taken_away(details: RunEvidence) -> str:
    """The sentences about outputs that were taken away after they were stored."""
    found = [(task.step, reason) for task in details.tasks if (reason := late_reason(task)) is not None]
    shown = [f" The output of {step} was taken away after it was stored: {why}." for step, why in found[:_MOST_NAMES]]
    more = len(found) - _MOST_NAMES
    return "".join(shown) + (f" So were {more} more." if more > 0 else "")


def _rolled_back(run: Run, details: RunEvidence) -> str:
    """The sentence about the rollback of a run."""
    if run.rollback is None or run.rollback_cause is None or details.workflow is None:
        return ""
    because = f"because {CAUSE_TEXTS[run.rollback_cause]}"
    undoable, undone = undoable_steps(details.workflow, details.tasks)
    left = [name for name in undoable if name not in undone]
    counted = f"{len(undone)} of {len(undoable)} steps that can be undone are undone{_names(undone)}"
    if run.rollback is RollbackStatus.RUNNING:
        return f" It is being rolled back, {because}: {counted}."
    if not left:
        return f" It was rolled back, {because}: {counted}."
    return f" Its rollback, {because}, is incomplete: {counted}. {_not_undone(left, details)}"


def _names(steps: Sequence[str]) -> str:
    more = len(steps) - _MOST_NAMES
    return f": {', '.join(steps[:_MOST_NAMES])}{f' and {more} more' if more > 0 else ''}" if steps else ""


def _not_undone(steps: Sequence[str], details: RunEvidence) -> str:
    """The sentence about the steps that could not be undone, with the error of the last try of each."""
    errors = {
        undone_step(task.step): task.note
        for task in sorted(details.tasks, key=lambda one: one.created_at)
        if task.parent is None and is_compensation(task.step)
    }
    shown = [f"{name} ({one_line(error)})" if (error := errors.get(name)) else name for name in steps]
    return f"Not undone{_names(shown)}."


def _awaits_announcement(details: RunEvidence) -> bool:
    """Whether all steps are over, and the run goes on until that is announced."""
    rules = () if details.workflow is None else details.workflow.announce
    return (
        any(not rule.best_effort for rule in rules)
        and bool(details.tasks)
        and all(task.state in TERMINAL for task in details.tasks)
    )


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


def _tries(details: RunEvidence) -> str:
    """The number of the last attempt of a run with one step; with several steps it would be meaningless."""
    numbers = [attempt.number for attempt in details.attempts if attempt.worker != ENGINE]
    return f", on attempt {max(numbers)}" if len(details.tasks) == 1 and max(numbers, default=1) > 1 else ""


def _because(run: Run) -> str:
    return f": {one_line(run.error)}" if run.error else ""


def _asked_to_stop(run: Run, clocks: TimeFormatter) -> str:
    if run.cancel_requested_at is None:
        return ""
    return f", and was asked to stop at {clocks(run.cancel_requested_at)}{_because(run)}"


def blocking_run(evidence: JobEvidence, entry: Tick) -> Run | None:
    """A run that was open when the tick was decided; of several, the one that ended last."""
    found = (run for run in evidence.runs if run.run_id != entry.run_id and _under_way(run, entry.decided_at))
    return max(
        found,
        key=lambda run: (not run.queued, FOREVER if run.completed_at is None else run.completed_at),
        default=None,
    )


def _under_way(run: Run, at: int) -> bool:
    return run.created_at <= at and (run.completed_at is None or run.completed_at >= at)


def previous_queued_run(evidence: JobEvidence, run: Run) -> Run | None:
    """The run for whose end a queued run waits."""
    others = [other for other in evidence.runs if not other.over and other.run_id != run.run_id]
    active = [other for other in others if not other.queued]
    earlier = [other for other in others if other.queued and _order(other) < _order(run)]
    return max(active or earlier, key=_order, default=None)


def _order(run: Run) -> tuple[int, str]:
    return run.planned_at, run.run_id
