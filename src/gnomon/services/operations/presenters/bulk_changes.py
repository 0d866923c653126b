"""Presents the outcomes of changes of many objects."""

from gnomon.core.responses.bulk_changes import ExecutionCancelled, JobChanged
from gnomon.services.operations.bulk_changes import JobOutcome, RunOutcome
from gnomon.services.operations.presenters.jobs import ticks_swallowed


def job_changed(one: JobOutcome) -> JobChanged:
    """The outcome of a change of one of many jobs."""
    return JobChanged(
        job=one.job,
        became=one.became,
        refused=one.refused,
        execution_id=one.run_id,
        swallowed=None if one.swallowed is None else ticks_swallowed(one.swallowed),
        runs=one.runs,
    )


def execution_cancelled(one: RunOutcome) -> ExecutionCancelled:
    """The outcome of the cancellation of one of many runs."""
    return ExecutionCancelled(execution_id=one.run_id, job=one.job, became=one.became, refused=one.refused)
