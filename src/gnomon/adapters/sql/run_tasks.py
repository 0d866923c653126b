"""Queries of the tasks and logs of runs. The database selects and counts: a run may have a hundred thousand items."""

from collections.abc import Mapping, Sequence

import sqlalchemy as sa

from gnomon.adapters.sql import bulk, schema
from gnomon.adapters.sql.item_lots import has_lots
from gnomon.adapters.sql.rows import TASK, task_of
from gnomon.core.model import LogLine, RunId, Task
from gnomon.core.runs.states import TERMINAL, TaskState
from gnomon.ports.runs import ItemQuery, LogQuery, StepLogLine

_task, _log = schema.task.c, schema.task_log.c
_RUN = sa.bindparam("run", type_=schema.NameType)
_LIMIT = sa.bindparam("limit", type_=sa.Integer)
_STEPS = (
    sa.select(*TASK)
    .where(
        _task.run_id.in_(sa.bindparam("runs", expanding=True)),
        sa.or_(_task.parent.is_(None), _task.item < sa.bindparam("items")),
    )
    .order_by(_task.run_id, _task.step, _task.task_id)
)
_ITEMS = (
    sa.select(*TASK)
    .where(_task.run_id == _RUN, _task.parent.is_not(None), _task.item > sa.bindparam("after"))
    .order_by(_task.item, _task.task_id)
    .limit(_LIMIT)
)
_COUNTS = (
    sa.select(_task.step, _task.state, sa.func.count())
    .where(_task.run_id == _RUN, _task.parent.is_not(None))
    .group_by(_task.step, _task.state)
)
#: The steps that get more items later: only there do the rows of items not say how many are open.
_OPEN_ITEMS = sa.select(_task.step, _task.open_items).where(
    _task.run_id == _RUN, _task.parent.is_(None), _task.open_items > 0, has_lots(_task.task_id)
)
_ATTEMPTS = bulk.statement(
    "SELECT run_id, max(fence) FROM task WHERE run_id IN KEYS AND parent IS NULL GROUP BY run_id"
)
_PLACE = (_log.at, _log.task_id, _log.seq)
_LOG = (
    sa.select(_log.at, _log.level, _log.text, _log.seq, _log.task_id, _task.step, _task.item)
    .join(schema.task, _task.task_id == _log.task_id)
    .where(_task.run_id == _RUN)
    .order_by(*_PLACE)
    .limit(_LIMIT)
)
#: A statement has a limited number of parameters.
_RUNS_AT_ONCE = 1000


def steps(conn: sa.Connection, runs: Sequence[RunId], items: int) -> Sequence[Task]:
    """See RunTasks.steps."""
    wanted = sorted(set(runs))
    pages = [wanted[start : start + _RUNS_AT_ONCE] for start in range(0, len(wanted), _RUNS_AT_ONCE)]
    return [task_of(row) for page in pages for row in conn.execute(_STEPS, {"runs": page, "items": items})]


def items(conn: sa.Connection, query: ItemQuery) -> Sequence[Task]:
    """See RunTasks.items."""
    found = _ITEMS
    if query.step is not None:
        found = found.where(_task.step == query.step)
    if query.states is not None:
        found = found.where(_task.state.in_(sorted(query.states)))
    return [
        task_of(row) for row in conn.execute(found, {"run": query.run_id, "after": query.after, "limit": query.limit})
    ]


def item_counts(conn: sa.Connection, run_id: RunId) -> Mapping[str, Mapping[TaskState, int]]:
    """See RunTasks.item_counts."""
    found: dict[str, dict[TaskState, int]] = {}
    for step, state, count in conn.execute(_COUNTS, {"run": run_id}):
        found.setdefault(step, {})[TaskState(state)] = count
    for step, count in conn.execute(_OPEN_ITEMS, {"run": run_id}):
        counts = found.setdefault(step, {})
        later = count - sum(number for state, number in counts.items() if state not in TERMINAL)
        if later > 0:
            counts[TaskState.PENDING] = counts.get(TaskState.PENDING, 0) + later
    return found


def attempt_numbers(conn: sa.Connection, runs: Sequence[RunId]) -> Mapping[RunId, int]:
    """See RunTasks.attempt_numbers."""
    names: list[str] = sorted(set(runs))
    return {RunId(run_id): number for run_id, number in bulk.fetch_rows(conn, _ATTEMPTS, names)}


def log(conn: sa.Connection, query: LogQuery) -> Sequence[StepLogLine]:
    """See RunTasks.log."""
    found = _LOG
    if query.since is not None:
        found = found.where(_log.at >= query.since)
    if query.after is not None:
        values = [sa.literal(value, column.type) for value, column in zip(query.after, _PLACE, strict=True)]
        found = found.where(sa.tuple_(*_PLACE) > sa.tuple_(*values))
    return [
        StepLogLine(step, LogLine(at, level, text), number, task, item)
        for at, level, text, number, task, step, item in conn.execute(
            found, {"run": query.run_id, "limit": query.limit}
        )
    ]
