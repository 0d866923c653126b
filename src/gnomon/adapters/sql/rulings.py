"""Rulings of the policy, written in the transactions that act on them."""

from collections.abc import Iterable, Sequence

import sqlalchemy as sa

from gnomon.adapters.sql import bulk, schema
from gnomon.adapters.sql.rows import RULING, column_list, constraints_text, ruling_of, ruling_row
from gnomon.core.model import RunId, TaskId
from gnomon.core.policy.ruling import Ruling, StoredRuling, plain_permission, ruling_order, stored_ruling

_LAST = bulk.statement(
    f"SELECT {column_list(RULING)} FROM ruling WHERE task_id IN KEYS"  # noqa: S608 - our own names, here and below
    " AND number = (SELECT max(number) FROM ruling AS other WHERE other.task_id = ruling.task_id)"
)
_OF_TASKS = bulk.statement(
    f"SELECT {column_list(RULING)} FROM ruling WHERE task_id IN KEYS ORDER BY task_id, number"  # noqa: S608
)
#: The permission that the task itself keeps was given when it was dispatched last.
_OWN = bulk.statement(
    "SELECT task_id, policy_rule, request_digest, coalesce((SELECT max(dispatched_at) FROM attempt"
    " WHERE attempt.task_id = task.task_id), available_at) FROM task"
    " WHERE run_id = ? AND policy_rule IS NOT NULL ORDER BY task_id"
)
_TASKS = bulk.statement("SELECT task_id FROM task WHERE run_id = ?")
_MARK = bulk.update_statement(schema.task, ("policy_rule", "request_digest", "constraints"), by=("task_id",))
_AGAIN = bulk.update_statement(schema.ruling, ("last_at", "count"), by=("task_id", "number"))


def write_rulings(conn: sa.Connection, rulings: Iterable[tuple[TaskId, RunId, Ruling]], now: int) -> None:
    """Write down rulings, each with its task and run. A plain permission needs only columns of its task."""
    ruled = list(rulings)
    if not ruled:
        return
    marks = [
        (one.rule_text, one.digest, constraints_text(one.constraints), task_id)
        for task_id, _, one in ruled
        if one.allows
    ]
    bulk.execute_many(conn, _MARK, marks)
    rows = [one for one in ruled if not one[2].plain]
    if not rows:
        return
    names: list[str] = [task_id for task_id, *_ in rows]
    last = {one.task_id: one for one in map(ruling_of, bulk.fetch_rows(conn, _LAST, names))}
    new: list[StoredRuling] = []
    again: list[tuple[int, int, str, int]] = []
    for task_id, run_id, ruling in rows:
        made = stored_ruling(ruling, task_id, run_id, last.get(task_id), now=now)
        if made.count > 1:
            again.append((made.last_at, made.count, made.task_id, made.number))
        else:
            new.append(made)
    bulk.insert_rows(conn, schema.ruling, [ruling_row(one) for one in new])
    bulk.execute_many(conn, _AGAIN, again)


def of_run(conn: sa.Connection, run_id: RunId) -> Sequence[StoredRuling]:
    """See Rulings.of_run."""
    names: list[str] = [name for (name,) in bulk.fetch_rows(conn, _TASKS, run_id)]
    rows: dict[str, list[StoredRuling]] = {name: [] for name in names}
    for one in map(ruling_of, bulk.fetch_rows(conn, _OF_TASKS, names)):
        rows[one.task_id].append(one)
    for task_id, rule, digest, at in bulk.fetch_rows(conn, _OWN, run_id):
        own = plain_permission(task_id, run_id, rule, bytes(digest), rows[task_id], at=at)
        rows[task_id] += [] if own is None else [own]
    return sorted((one for some in rows.values() for one in some), key=ruling_order)
