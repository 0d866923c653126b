"""Rulings of the policy, written in the transactions that act on them.

The statement that admits a task also writes its permission: a plain one costs no statement of its own.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import sqlalchemy as sa

from gnomon.adapters.sql import approvals, bulk, schema
from gnomon.adapters.sql.after_commit import is_observed, notify_runs
from gnomon.adapters.sql.rows import (
    RULING,
    RUN,
    TASK,
    Row,
    column_list,
    constraints_text,
    ruling_of,
    ruling_row,
    task_and_run_of,
)
from gnomon.core.model import RunId, TaskId
from gnomon.core.policy.past_tasks import PastTask
from gnomon.core.policy.ruling import (
    PolicyDecision,
    Ruling,
    StoredRuling,
    TaskRulings,
    plain_permission,
    rule_of,
    stored_ruling,
    with_permission,
)
from gnomon.core.runs.admission import ReadyTask
from gnomon.ports.commit_observer import TaskRuling

_LAST = bulk.statement(
    f"SELECT {column_list(RULING)} FROM ruling WHERE task_id IN KEYS"  # noqa: S608 - our own names, here and below
    " AND number = (SELECT max(number) FROM ruling AS other WHERE other.task_id = ruling.task_id)"
)
_OF_TASKS = bulk.statement(
    f"SELECT {column_list(RULING)} FROM ruling WHERE task_id IN KEYS ORDER BY task_id, number"  # noqa: S608
)
#: The permission that the task itself keeps was given when it was dispatched last.
_TASKS = bulk.statement(
    "SELECT task_id, step, item, policy_rule, request_digest, coalesce((SELECT max(dispatched_at) FROM attempt"
    " WHERE attempt.task_id = task.task_id), available_at) FROM task WHERE run_id = ? AND task_id > ? AND (policy_rule"
    " IS NOT NULL OR EXISTS (SELECT 1 FROM ruling WHERE ruling.task_id = task.task_id)) ORDER BY task_id LIMIT ?"
)
_PAST = bulk.statement(
    f"SELECT {column_list(TASK)}, {column_list(RUN)}, task.has_input, run.actor IS NOT NULL,"  # noqa: S608
    " run.actor_groups IS NOT NULL, task.policy_rule,"
    " (SELECT max(dispatched_at) FROM attempt WHERE attempt.task_id = task.task_id)"
    " FROM (SELECT * FROM task WHERE task_id > ? ORDER BY task_id LIMIT ?) AS task"
    " JOIN run ON run.run_id = task.run_id ORDER BY task.task_id"
)
#: The number of columns after those of task and run.
_PAST_COLUMNS = 5
_RULED_RUNS = bulk.statement(
    "SELECT DISTINCT run_id FROM task WHERE run_id IN KEYS AND (policy_rule IS NOT NULL"
    " OR EXISTS (SELECT 1 FROM ruling WHERE ruling.task_id = task.task_id))"
)
#: The columns of a task that keep a permission.
PERMISSION_COLUMNS = ("policy_rule", "request_digest", "constraints")
_IN_FLIGHT = bulk.statement(
    f"SELECT policy_rule, count(*) FROM task WHERE {schema.CONSTRAINED} GROUP BY policy_rule"  # noqa: S608
)
_OWNERS = bulk.statement("SELECT run_id, tenant, coalesce(schedule_id, workflow_id) FROM run WHERE run_id IN KEYS")
_AGAIN = bulk.update_statement(schema.ruling, ("last_at", "count"), by=("task_id", "number"))


def in_flight_by_rule(conn: sa.Connection) -> Mapping[str, int]:
    """The number of constrained tasks that each rule has let run, in whatever version, and that have not ended."""
    counted = Counter[str]()
    for rule_text, count in bulk.fetch_rows(conn, _IN_FLIGHT):
        counted[rule_of(rule_text)] += count
    return counted


def permission_values(ruling: Ruling) -> tuple[str, bytes, str | None]:
    """The values of the columns of a task that keep this permission."""
    return ruling.rule_text, ruling.digest, constraints_text(ruling.limits)


def write_rulings(conn: sa.Connection, rulings: Iterable[tuple[TaskId, RunId, Ruling]], now: int) -> None:
    """Write down rulings, each with its task and run. Plain permissions have no row, only columns of their tasks."""
    rows = [one for one in rulings if not one[2].plain]
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
    if new and is_observed(conn):
        _notify(conn, new)


def _notify(conn: sa.Connection, made: Sequence[StoredRuling]) -> None:
    runs: list[str] = sorted({one.run_id for one in made})
    owners = {run_id: (tenant, job) for run_id, tenant, job in bulk.fetch_rows(conn, _OWNERS, runs)}
    ruled = [TaskRuling(*owners[one.run_id], one) for one in made]
    notify_runs(conn, lambda observer: observer.ruled(ruled))


def ruled_runs(conn: sa.Connection, runs: Sequence[RunId]) -> Collection[RunId]:
    """See Rulings.ruled_runs."""
    names: list[str] = list(runs)
    return {row[0] for row in bulk.fetch_rows(conn, _RULED_RUNS, names)} if names else set()


def of_tasks(conn: sa.Connection, run_id: RunId, after: str, limit: int) -> Sequence[TaskRulings]:
    """See Rulings.of_tasks."""
    tasks = bulk.fetch_rows(conn, _TASKS, run_id, after, limit)
    names: list[str] = [row[0] for row in tasks]
    rows: dict[str, list[StoredRuling]] = {name: [] for name in names}
    for one in map(ruling_of, bulk.fetch_rows(conn, _OF_TASKS, names)):
        rows[one.task_id].append(one)
    asking = [name for name in names if any(one.decision is PolicyDecision.REQUIRE_APPROVAL for one in rows[name])]
    asked = approvals.of_tasks(conn, asking) if asking else {}
    found: list[TaskRulings] = []
    for task_id, step, item, rule, digest, at in tasks:
        made = rows[task_id]
        own = None if rule is None else plain_permission(task_id, run_id, rule, bytes(digest), made, at=at)
        rulings = with_permission(made, own)
        own_approvals = tuple(asked.get(task_id, ()))
        found.append(TaskRulings(task_id=task_id, step=step, item=item, rulings=rulings, approvals=own_approvals))
    return found


def past_tasks(conn: sa.Connection, after: str, limit: int) -> Sequence[PastTask]:
    """See Rulings.past_tasks."""
    rows = bulk.fetch_rows(conn, _PAST, after, limit)
    names: list[str] = [row[0] for row in rows]
    last = {one.task_id: one for one in map(ruling_of, bulk.fetch_rows(conn, _LAST, names))}
    return [_past_task(row, last.get(row[0])) for row in rows]


def _past_task(row: Row, ruling: StoredRuling | None) -> PastTask:
    task, run = task_and_run_of(row)
    has_input, has_actor, has_groups, permission, dispatched_at = row[-_PAST_COLUMNS:]
    return PastTask(
        ready=ReadyTask(task=task, run=run),
        has_input=bool(has_input),
        has_actor=bool(has_actor),
        has_groups=bool(has_groups),
        dispatched_at=dispatched_at,
        permission=permission,
        ruling=ruling,
    )
