"""Rolling back a run that has ended, on request."""

import sqlalchemy as sa

from gnomon.adapters.sql import bulk
from gnomon.adapters.sql.advances import begun_rollback
from gnomon.adapters.sql.graph import begin_rollback, cascade_run_ends, lock_counters
from gnomon.adapters.sql.rows import RUN, column_list, run_of
from gnomon.core.model import RunId
from gnomon.core.runs.advance import rolled_back
from gnomon.core.runs.rollback import RollbackOutcome

_OWNER = bulk.statement("SELECT schedule_uid FROM run WHERE run_id = ?")
_RUN = bulk.statement(f"SELECT {column_list(RUN)} FROM run WHERE run_id IN KEYS ORDER BY run_id FOR UPDATE")  # noqa: S608 - our own


def roll_back(conn: sa.Connection, run_id: RunId, reason: str, now: int) -> RollbackOutcome:
    """See Runs.roll_back."""
    owner = bulk.fetch_rows(conn, _OWNER, run_id)
    if not owner:
        return RollbackOutcome.UNKNOWN
    counters = lock_counters(conn, [(run_id, owner[0][0])])
    [run] = map(run_of, bulk.fetch_rows(conn, _RUN, [run_id]))
    if not run.over:
        return RollbackOutcome.UNDER_WAY
    found = begun_rollback(conn, rolled_back(run, reason=reason), now)
    if found is None:
        return RollbackOutcome.NOTHING
    ended = begin_rollback(conn, *found)
    counts = counters.counts(run.schedule_uid)
    if counts is not None and run.schedule_uid is not None:
        counts.add_run(queued=False, replaces=False)
        counters.write([run.schedule_uid])
    cascade_run_ends(conn, ended, counters)
    return RollbackOutcome.STARTED
