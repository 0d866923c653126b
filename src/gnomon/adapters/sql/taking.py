"""Taking tasks on PostgreSQL: whoever waits for a task waits for two answers, and not for five."""

from collections.abc import Mapping, Sequence

import sqlalchemy as sa

from gnomon.adapters.sql import bulk
from gnomon.adapters.sql.endings import show_begun
from gnomon.adapters.sql.tally import note
from gnomon.adapters.sql.work import ready_for, taken
from gnomon.core.model import TaskId
from gnomon.core.runs.admission import Request, Waiting
from gnomon.core.runs.states import TaskState
from gnomon.ports.tasks import Reach

#: A lease counts from now, by the clock of the server.
_HAND_OUT = """
WITH gone AS (UPDATE task SET state = $1, fence = fence + 1, note = NULL WHERE task_id = ANY ($2::text[])),
begun AS (UPDATE run SET status = 'running', started_at = $7 WHERE run_id = ANY ($8::text[]) AND started_at IS NULL)
INSERT INTO attempt (task_id, number, worker, lease_until, dispatched_at, started_at)
SELECT v.task_id, v.number, $4::text, (extract(epoch FROM clock_timestamp()) * 1000)::bigint + $5::bigint,
    $6::bigint, $7::bigint FROM unnest($2::text[], $3::bigint[]) AS v (task_id, number)
"""


def take(  # noqa: PLR0913 - as the port has them
    conn: sa.Connection,
    worker: str,
    limit: int,
    lease_ms: int,
    now: int,
    *,
    begin: bool,
    known: Mapping[TaskId, Request],
    reach: Reach,
) -> Sequence[Waiting]:
    """See Work.take."""
    ready = ready_for(conn, worker, limit, known, reach)
    if not ready:
        return ready
    state, started_at = (TaskState.RUNNING, now) if begin else (TaskState.DISPATCHED, None)
    names, fences = [one.task.task_id for one in ready], [one.task.fence + 1 for one in ready]
    runs = sorted({one.run.run_id for one in ready if begin and one.run.started_at is None})
    bulk.run(conn, bulk.Statement("", _HAND_OUT), state.value, names, fences, worker, lease_ms, now, started_at, runs)
    note(conn, lambda tally: tally.taken(ready, now))
    if begin:
        show_begun(conn, [one.run for one in ready], now)
    return [taken(one, state, started_at) for one in ready]
