"""Queries of runs, their payloads and logs. Every query reads an index range."""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from gnomon.adapters.sql import bulk, schema
from gnomon.adapters.sql.payloads import cipher_of, unsealed
from gnomon.adapters.sql.rows import LAST_CHARACTER, RUN, column_list, run_of
from gnomon.core.model import LogLine, Overlap, Run, RunId, TaskId
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.ports.runs import RunQuery

_run, _task, _payload, _log = schema.run.c, schema.task.c, schema.payload.c, schema.task_log.c
_FIND = sa.select(*RUN).where(_run.run_id == sa.bindparam("name"))
_BY_PREFIX = (
    sa.select(*RUN)
    .where(
        _run.run_id >= sa.bindparam("first"),
        _run.run_id < sa.bindparam("beyond"),
        _run.tenant == sa.bindparam("owner"),
    )
    .order_by(_run.run_id)
    .limit(sa.bindparam("limit"))
)
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
_EXCLUDING = bulk.statement(
    f"SELECT {column_list(RUN)} FROM run JOIN schedule ON schedule.uid = run.schedule_uid"  # noqa: S608 - our own names
    f" WHERE run.{schema.NOT_OVER} AND NOT run.queued AND schedule.overlap = '{Overlap.SKIP}'"
    " AND schedule.deleted_at IS NULL ORDER BY run.schedule_uid, run.created_at, run.run_id LIMIT ?"
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


def find_by_prefix(conn: sa.Connection, tenant: str, prefix: str, limit: int) -> Sequence[Run]:
    """See Executions.find_by_prefix."""
    wanted = {"owner": tenant, "first": prefix, "beyond": prefix + LAST_CHARACTER, "limit": limit}
    return [run_of(row) for row in conn.execute(_BY_PREFIX, wanted).all()]


def list_runs(conn: sa.Connection, query: RunQuery) -> Sequence[Run]:
    """See Executions.list_runs."""
    statement = _narrowed(_LIST, query)
    if query.status is not None:
        statement = statement.where(_run.status == query.status.value)
    if query.source is not None:
        statement = statement.where(_run.source == query.source.value)
    if query.unfinished:
        statement = statement.where(_run.completed_at.is_(None))
    if query.wait_reason is not None:
        statement = statement.where(_waits_for(query.wait_reason))
    if query.down_to is not None:
        statement = statement.where(sa.tuple_(_run.created_at, _run.run_id) >= sa.tuple_(*query.down_to))
    return [run_of(row) for row in conn.execute(statement, {"owner": query.tenant, "limit": query.limit}).all()]


def _waits_for(reason: WaitReason) -> sa.ColumnElement[bool]:
    """Whether a run is queued, or a task of it waits for the reason."""
    if reason is WaitReason.QUEUE:
        return _run.queued
    waits = (_task.run_id == _run.run_id, _task.state == TaskState.PENDING.value, _task.wait_reason == reason.value)
    return sa.and_(_run.completed_at.is_(None), sa.exists().where(*waits))


def excluding_runs(conn: sa.Connection, limit: int) -> Sequence[Run]:
    """See Executions.excluding_runs."""
    return [run_of(row) for row in bulk.fetch_rows(conn, _EXCLUDING, limit)]


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
    return unsealed(conn, owner_id, kind, found)


def payloads(conn: sa.Connection, owner_ids: Sequence[str], kind: str) -> Mapping[str, bytes]:
    """See PayloadReader.payloads."""
    found = bulk.fetch_rows(conn, _PAYLOADS, list(owner_ids), kind)
    if cipher_of(conn) is None:
        return {owner_id: body for owner_id, body in found}  # noqa: C416 - rows are no tuples
    return {owner_id: unsealed(conn, owner_id, kind, body) or b"" for owner_id, body in found}


def log_lengths(conn: sa.Connection, tasks: Sequence[TaskId]) -> Mapping[TaskId, int]:
    """The number of log lines of each of these tasks that has any."""
    names: list[str] = list(tasks)
    return {task_id: last for task_id, last in bulk.fetch_rows(conn, _LOG_LENGTHS, names)}  # noqa: C416 - rows are no tuples


def log_lines(conn: sa.Connection, task_id: TaskId, after: int, limit: int) -> Sequence[LogLine]:
    """See Executions.log_lines."""
    return [LogLine(*row) for row in conn.execute(_LOG, {"task": task_id, "after": after, "limit": limit}).all()]
