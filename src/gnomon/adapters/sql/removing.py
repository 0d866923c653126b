"""Letting go of what was archived."""

from collections.abc import Sequence

import sqlalchemy as sa

from gnomon.adapters.sql import bulk
from gnomon.ports.maintenance import Kind, Lot

_OVER = bulk.statement("SELECT run_id FROM run WHERE run_id IN KEYS AND completed_at IS NOT NULL")
_TASKS = bulk.statement("SELECT task_id FROM task WHERE run_id IN KEYS LIMIT ?")
_OF_TASKS = [
    bulk.statement(f"DELETE FROM {table} WHERE {key} IN KEYS")  # noqa: S608 - our own names, here and below
    for table, key in (("task_log", "task_id"), ("attempt", "task_id"), ("payload", "owner_id"), ("task", "task_id"))
]
_OF_RUNS = [
    bulk.statement(f"DELETE FROM {table} WHERE {key} IN KEYS")  # noqa: S608
    for table, key in (("payload", "owner_id"), ("run", "run_id"))
]
_OTHERS = {
    kind: [bulk.statement(f"DELETE FROM {table} WHERE {key} IN KEYS") for table in tables]  # noqa: S608
    for kind, key, tables in (
        (Kind.EVENTS, "event_id", ("event_entry", "event")),
        (Kind.DEAD_LETTERS, "dead_letter_id", ("dead_letter",)),
        (Kind.SCHEDULES, "uid", ("schedule_revision", "pause", "schedule")),
    )
}
_TICKS = bulk.Statement(
    "DELETE FROM tick WHERE uid = ? AND planned_at = ?",
    "DELETE FROM tick USING unnest($1::text[], $2::bigint[]) AS v (uid, planned_at)"
    " WHERE tick.uid = v.uid AND tick.planned_at = v.planned_at",
)


def remove(conn: sa.Connection, lot: Lot, limit: int) -> bool:
    """See Keeping.remove."""
    if lot.kind is Kind.RUNS:
        return _remove_runs(conn, lot.names, limit)
    if lot.kind is Kind.TICKS:
        bulk.many(conn, _TICKS, [(lot.uid, at) for at in lot.names])
        return True
    for statement in _OTHERS[lot.kind]:
        bulk.run(conn, statement, list(lot.names))
    return True


def _remove_runs(conn: sa.Connection, names: Sequence[str], limit: int) -> bool:
    """The rows that belong to tasks go first, and a run once nothing of it is left: so it is found again until then."""
    over = [name for (name,) in bulk.rows(conn, _OVER, list(names))]
    tasks = [name for (name,) in bulk.rows(conn, _TASKS, over, limit)]
    for statement in _OF_TASKS:
        bulk.run(conn, statement, tasks)
    if len(tasks) == limit:
        return False
    for statement in _OF_RUNS:
        bulk.run(conn, statement, over)
    return True
