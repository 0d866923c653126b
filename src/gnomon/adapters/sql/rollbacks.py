"""Rolling back a run that has ended, on request."""

import sqlalchemy as sa

from gnomon.adapters.sql import bulk, schema
from gnomon.adapters.sql.after_commit import notify_runs
from gnomon.adapters.sql.graph import STEPS, AdvancingRun, advance_of, cascade_run_ends, lock_counters, write_advances
from gnomon.adapters.sql.rows import RUN, column_list, load_workflow, run_of, task_of
from gnomon.core.model import Run, RunId
from gnomon.core.runs.advance import rolled_back
from gnomon.core.runs.rollback import RollbackOutcome

_OWNER = bulk.statement("SELECT schedule_uid FROM run WHERE run_id = ?")
_RUN = bulk.statement(f"SELECT {column_list(RUN)} FROM run WHERE run_id IN KEYS ORDER BY run_id FOR UPDATE")  # noqa: S608 - our own
_REOPEN = bulk.update_statement(
    schema.run,
    (
        "status", "completed_at", "error", "cancel_requested_at", "rollback", "rollback_cause", "rollback_number",
    ),
    by=("run_id",),
)  # fmt: skip


def roll_back(conn: sa.Connection, run_id: RunId, reason: str, now: int) -> RollbackOutcome:
    """See Runs.roll_back."""
    owner = bulk.fetch_rows(conn, _OWNER, run_id)
    if not owner:
        return RollbackOutcome.UNKNOWN
    counters = lock_counters(conn, [(run_id, owner[0][0])])
    [run] = map(run_of, bulk.fetch_rows(conn, _RUN, [run_id]))
    if not run.over:
        return RollbackOutcome.UNDER_WAY
    workflow = load_workflow(conn, run.tenant, run.workflow_id, run.workflow_version)
    if workflow is None or not workflow.has_compensations:
        return RollbackOutcome.NOTHING
    begun = AdvancingRun(rolled_back(run, reason=reason), workflow, now)
    after = advance_of(conn, begun, list(map(task_of, bulk.fetch_rows(conn, STEPS, [run_id]))), gave_up=False)
    if not after.made:
        return RollbackOutcome.NOTHING
    bulk.execute_many(conn, _REOPEN, [_reopened_row(begun.run)])
    counts = counters.counts(run.schedule_uid)
    if counts is not None and run.schedule_uid is not None:
        counts.add_run(queued=False, replaces=False)
        counters.write([run.schedule_uid])
    notify_runs(conn, lambda observer: observer.rolled_back(1, 0))
    cascade_run_ends(conn, write_advances(conn, [(begun, after)]), counters)
    return RollbackOutcome.STARTED


def _reopened_row(run: Run) -> tuple[object, ...]:
    return (
        run.status.value,
        run.completed_at,
        run.error,
        run.cancel_requested_at,
        run.rollback,
        run.rollback_cause,
        run.rollback_number,
        run.run_id,
    )
