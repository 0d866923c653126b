"""Queries of runs, their payloads and logs. Every query reads an index range."""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from gnomon.adapters.sql import bulk, schema
from gnomon.adapters.sql.rows import RUN, run_of
from gnomon.core.model import LogLine, Run, RunId, TaskId
from gnomon.ports.runs import RunQuery

_run, _payload, _log = schema.run.c, schema.payload.c, schema.task_log.c
_FIND = sa.select(*RUN).where(_run.run_id == sa.bindparam("name"))
_LIST = (
    sa.select(*RUN)
    .where(_run.tenant == sa.bindparam("owner"))
    .order_by(_run.created_at.desc(), _run.run_id.desc())
    .limit(sa.bindparam("limit"))
)
_POSITION = (
    sa.select(_run.created_at, _run.run_id)
    .where(_run.tenant == sa.bindparam("owner"))
    .order_by(_run.created_at.desc(), _run.run_id.desc())
    .limit(1)
)
_PAYLOAD = sa.select(_payload.body).where(
    _payload.owner_id == sa.bindparam("owner"), _payload.kind == sa.bindparam("of")
)
_PAYLOADS = bulk.statement("SELECT owner_id, body FROM payload WHERE owner_id IN KEYS AND kind = ?")
_LOG = (
    sa.select(_log.at, _log.level, _log.text)
    .where(_log.task_id == sa.bindparam("task"), _log.seq > sa.bindparam("after"))
    .order_by(_log.seq)
    .limit(sa.bindparam("limit"))
)
# Lines are numbered from 1, so the number of the last one is their count.
_LOG_LENGTHS = bulk.statement("SELECT task_id, max(seq) FROM task_log WHERE task_id IN KEYS GROUP BY task_id")


def find_run(conn: sa.Connection, run_id: RunId) -> Run | None:
    """See Executions.find_run."""
    row = conn.execute(_FIND, {"name": run_id}).one_or_none()
    return None if row is None else run_of(row)


def list_runs(conn: sa.Connection, query: RunQuery) -> Sequence[Run]:
    """See Executions.list_runs."""
    statement = _narrowed(_LIST, query)
    if query.status is not None:
        statement = statement.where(_run.status == query.status.value)
    if query.source is not None:
        statement = statement.where(_run.source == query.source.value)
    if query.down_to is not None:
        statement = statement.where(sa.tuple_(_run.created_at, _run.run_id) >= sa.tuple_(*query.down_to))
    return [run_of(row) for row in conn.execute(statement, {"owner": query.tenant, "limit": query.limit}).all()]


def run_position(conn: sa.Connection, query: RunQuery, number: int) -> tuple[int, str] | None:
    """See Executions.run_position. It is read off the index alone."""
    row = conn.execute(_narrowed(_POSITION, query).offset(number - 1), {"owner": query.tenant}).one_or_none()
    return None if row is None else (row.created_at, row.run_id)


def _narrowed(statement: sa.Select[Any], query: RunQuery) -> sa.Select[Any]:
    """The statement with the conditions that the indexes of the listing support."""
    if query.schedule_id is not None:
        statement = statement.where(_run.schedule_id == query.schedule_id)
    if query.since is not None:
        statement = statement.where(_run.created_at >= query.since)
    if query.until is not None:
        statement = statement.where(_run.created_at < query.until)
    if query.after is not None:
        statement = statement.where(sa.tuple_(_run.created_at, _run.run_id) < sa.tuple_(*query.after))
    return statement


def payload(conn: sa.Connection, owner_id: str, kind: str) -> bytes | None:
    """See Executions.payload."""
    found: bytes | None = conn.scalar(_PAYLOAD, {"owner": owner_id, "of": kind})
    return found


def payloads(conn: sa.Connection, owner_ids: Sequence[str], kind: str) -> Mapping[str, bytes]:
    """See Payloads.payloads."""
    return {owner_id: body for owner_id, body in bulk.fetch_rows(conn, _PAYLOADS, list(owner_ids), kind)}  # noqa: C416


def log_lengths(conn: sa.Connection, tasks: Sequence[TaskId]) -> Mapping[TaskId, int]:
    """See Executions.log_lengths."""
    names: list[str] = list(tasks)
    return {task_id: last for task_id, last in bulk.fetch_rows(conn, _LOG_LENGTHS, names)}  # noqa: C416 - rows are no tuples


def log_lines(conn: sa.Connection, task_id: TaskId, after: int, limit: int) -> Sequence[LogLine]:
    """See Executions.log_lines."""
    return [LogLine(*row) for row in conn.execute(_LOG, {"task": task_id, "after": after, "limit": limit}).all()]
