"""Queries of the tasks and logs of runs. The database selects and counts: a run may have a hundred thousand items."""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from gnomon.adapters.sql import bulk, schema
from gnomon.adapters.sql.item_lots import has_lots
from gnomon.adapters.sql.rows import TASK, task_of
from gnomon.core.model import LogLine, RunId, Task
from gnomon.core.runs.states import ASSIGNED, TERMINAL, TaskState
from gnomon.ports.runs import ItemQuery, LogQuery, StepLogLine

_task, _log, _kept = schema.task.c, schema.task_log.c, schema.agent_log.c
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
_LOG = (
    sa.select(_log.at, _log.level, _log.text, _log.seq, _log.task_id, _task.step, _task.item)
    .join(schema.task, _task.task_id == _log.task_id)
    .where(_task.run_id == _RUN)
    .limit(_LIMIT)
)
_LINES_BEFORE = sa.select(sa.func.coalesce(sa.func.max(_log.seq), 0)).where(_log.task_id == _task.task_id)
#: The number that a line of a running attempt will have in the log of its task.
_NUMBER = (_kept.place + 1 + _LINES_BEFORE.scalar_subquery()).label("seq")
_KEPT_LOG = (
    sa.select(_kept.at, _kept.level, _kept.text, _NUMBER, _kept.task_id, _task.step, _task.item)
    .join(schema.task, sa.and_(_task.task_id == _kept.task_id, _task.fence == _kept.number))
    .where(_task.run_id == _RUN, _task.state.in_(sorted(ASSIGNED)))
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
    # In this order: an attempt that ends in between is in both answers, and in the second one with its own lines.
    kept = _lines(conn, query, _KEPT_LOG, (_kept.at, _kept.task_id, _NUMBER), _kept.text)
    stored = _lines(conn, query, _LOG, (_log.at, _log.task_id, _log.seq), _log.text)
    if not kept:
        return stored
    found = {(one.task, one.number): one for one in (*kept, *stored)}
    return sorted(found.values(), key=lambda one: one.place, reverse=query.newest_first)[: query.limit]


def _lines(
    conn: sa.Connection,
    query: LogQuery,
    found: sa.Select[Any],
    place: Sequence[sa.ColumnElement[Any]],
    text: sa.ColumnElement[str],
) -> list[StepLogLine]:
    """The lines that one of the two statements finds. Its columns `place` are their position."""
    if query.since is not None:
        found = found.where(place[0] >= query.since)
    if query.step is not None:
        found = found.where(_task.step == query.step)
    if query.after_line:
        found = found.where(place[2] > query.after_line)
    if query.find is not None:
        found = found.where(_has_text(conn, text, query.find))
    if query.after is not None:
        values = sa.tuple_(*(sa.literal(value, one.type) for value, one in zip(query.after, place, strict=True)))
        found = found.where(sa.tuple_(*place) < values if query.newest_first else sa.tuple_(*place) > values)
    found = found.order_by(*(one.desc() if query.newest_first else one for one in place))
    return [
        StepLogLine(step, LogLine(at, level, text), number, task, item)
        for at, level, text, number, task, step, item in conn.execute(
            found, {"run": query.run_id, "limit": query.limit}
        )
    ]


def _has_text(conn: sa.Connection, text: sa.ColumnElement[str], find: str) -> sa.ColumnElement[bool]:
    if not find.isascii():
        return text.contains(find, autoescape=True) if conn.dialect.name != "sqlite" else sa.func.instr(text, find) > 0
    # SQLite knows the small letters of ASCII only, and so does this collation.
    same = text if conn.dialect.name == "sqlite" else sa.collate(text, "C")
    return sa.func.lower(same).contains(find.lower(), autoescape=True)
