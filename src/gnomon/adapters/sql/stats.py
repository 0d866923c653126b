"""Statistics of a store. Every number comes from an index that exists for another purpose."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import sqlalchemy as sa

from gnomon.adapters.sql import bulk, marks, schema
from gnomon.adapters.sql.migrator import schema_numbers
from gnomon.adapters.sql.rows import load_workflow
from gnomon.adapters.sql.transactions import Transactions
from gnomon.core.model import Overlap, RunId, ScheduleUid
from gnomon.core.named_breakers import BreakerKey
from gnomon.core.runs.states import TaskState
from gnomon.core.runs.workflow import ONLY_STEP
from gnomon.ports.maintenance import (
    MAX_COUNTED_APPROVALS,
    MAX_COUNTED_TASKS,
    MAX_NAMED_BREAKERS,
    NEWEST_RUNS,
    HeldTasks,
    JobStats,
    MarksAhead,
    StoreStats,
    shown_breaker,
)

_schedule, _shard = schema.schedule.c, schema.shard.c
_JOBS = sa.select(sa.func.count()).select_from(schema.schedule).where(_schedule.deleted_at.is_(None))
_DUE = sa.select(sa.func.count(), sa.func.min(_schedule.next_fire_at)).where(
    _schedule.next_fire_at.is_not(None), _schedule.next_fire_at <= sa.bindparam("now")
)
_READY = sa.select(schema.task.c.available_at).where(sa.text(schema.SCHEDULED)).order_by("available_at").limit(1)
_DUE_TASK = (
    sa.select(schema.task.c.available_at, schema.task.c.created_at)
    .where(sa.text(schema.WAITS), schema.task.c.available_at <= sa.bindparam("now"))
    .order_by("available_at", schema.task.c.task_id)
    .limit(1)
)
_UNROUTABLE = (
    sa.select(schema.task.c.unroutable_since, schema.task.c.note)
    .where(sa.text(schema.UNROUTABLE))
    .order_by("unroutable_since", schema.task.c.task_id)
    .limit(1)
)


_TO_ANNOUNCE = sa.select(sa.literal(1)).where(sa.text(schema.TO_ANNOUNCE)).select_from(schema.announcement).limit(1)


def _count_rows(table: sa.Table, condition: str, most: int = MAX_COUNTED_TASKS) -> sa.Select[int]:
    some = sa.select(sa.literal(1)).select_from(table).where(sa.text(condition)).limit(most)
    return sa.select(sa.func.count()).select_from(some.subquery())


_COUNT_SCHEDULED, _COUNT_UNROUTABLE = (
    _count_rows(schema.task, condition) for condition in (schema.SCHEDULED, schema.UNROUTABLE)
)
_COUNT_TO_APPROVE, _COUNT_PUT_OFF, _COUNT_BY_BREAKERS = (
    _count_rows(schema.task, condition)
    for condition in (
        schema.TO_APPROVE,
        f"{schema.WAITS} AND wait_reason = 'policy'",
        f"{schema.WAITS} AND wait_reason = 'breaker'",
    )
)
_PUT_OFF = (
    sa.select(schema.task.c.note)
    .where(sa.text(f"{schema.WAITS} AND wait_reason = 'policy'"))
    .order_by("available_at", schema.task.c.task_id)
    .limit(1)
)
_NOT_CLOSED = (
    sa.select(schema.breaker.c.tenant, schema.breaker.c.name)
    .where(schema.breaker.c.open_until.is_not(None))
    .order_by(schema.breaker.c.tenant, schema.breaker.c.name)
    .limit(MAX_NAMED_BREAKERS)
)
#: The states in which a task can be stale.
_STALE_STATES = (TaskState.PENDING, TaskState.SCHEDULED, TaskState.DISPATCHED, TaskState.RUNNING)
_COUNT_READY_SINCE, _COUNT_SCHEDULED_SINCE = (
    _count_rows(schema.task, f"{condition} AND available_at <= :before")
    for condition in (f"{schema.WAITS} AND wait_reason = 'ready'", schema.SCHEDULED)
)
_COUNT_LAPSED = (
    sa.select(schema.task.c.state, sa.func.count())
    .join_from(schema.attempt, schema.task, schema.task.c.task_id == schema.attempt.c.task_id)
    .where(sa.text(f"attempt.{schema.OPEN}"), schema.attempt.c.lease_until <= sa.bindparam("now"))
    .group_by(schema.task.c.state)
)
_COUNT_ROLLING_BACK = _count_rows(schema.run, schema.ROLLING_BACK)
_COUNT_TO_ANNOUNCE = _count_rows(schema.announcement, schema.TO_ANNOUNCE)
_COUNT_AWAITED = _count_rows(schema.approval, schema.AWAITED, MAX_COUNTED_APPROVALS)
_WORKERS = sa.select(sa.func.count()).where(schema.worker.c.seen_until > sa.bindparam("now"))
_SHARDS = sa.select(sa.func.count(), sa.func.count(_shard.holder.distinct())).where(
    _shard.holder.is_not(None), _shard.lease_until > sa.bindparam("now")
)
_UNRESOLVED = (
    sa.select(sa.func.count()).select_from(schema.dead_letter).where(schema.dead_letter.c.resolved_at.is_(None))
)
_JOB_STATS = (
    sa.select(
        _schedule.uid,
        _schedule.tenant,
        _schedule.schedule_id,
        _schedule.next_fire_at,
        _schedule.active_runs,
        _schedule.overlap,
        _schedule.workflow_id,
        _schedule.workflow_version,
    )
    .where(_schedule.deleted_at.is_(None))
    .order_by(_schedule.tenant, _schedule.schedule_id)
    .limit(sa.bindparam("limit"))
)
_STEPS = bulk.statement("SELECT run_id, step, state FROM task WHERE run_id IN KEYS AND parent IS NULL")
_LAST_SUCCESS = f"""
SELECT schedules.uid, (SELECT max(completed_at) FROM (
    SELECT status, completed_at FROM run WHERE schedule_uid = schedules.uid
    ORDER BY planned_at DESC, run_id DESC LIMIT {NEWEST_RUNS}
) AS newest WHERE status = 'completed') FROM {{schedules}}
"""  # noqa: S608 - our own names
_LAST_SUCCESSES = bulk.Statement(
    _LAST_SUCCESS.format(schedules="(SELECT value AS uid FROM json_each(?)) AS schedules"),
    _LAST_SUCCESS.format(schedules="unnest($1::text[]) AS schedules (uid)"),
)
#: A statement has a limited number of parameters.
_RUNS_AT_ONCE = 1000


class SqlStoreStats:
    """Implements StoreStatsReader. Each page of a read is one transaction."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def read(self, now: int, *, overdue_before: int, max_jobs: int, stale_before: int = 0) -> StoreStats:
        """See StoreStatsReader.read."""
        engine = self._transactions
        return await engine.read(
            lambda conn: read_stats(conn, now, engine.now(conn), overdue_before, max_jobs, stale_before)
        )

    async def marks_ahead(self) -> MarksAhead:
        """See StoreStatsReader.marks_ahead."""
        engine = self._transactions
        return await engine.read(lambda conn: marks.marks_ahead(conn, engine.now(conn)))

    async def held_tasks(self) -> HeldTasks:
        """See StoreStatsReader.held_tasks."""
        return await self._transactions.read(_held_tasks)

    async def steps(self, runs: Sequence[RunId]) -> Mapping[RunId, Sequence[tuple[str, str]]]:
        """See StoreStatsReader.steps."""
        found: dict[RunId, list[tuple[str, str]]] = {}
        for start in range(0, len(runs), _RUNS_AT_ONCE):
            page = runs[start : start + _RUNS_AT_ONCE]
            for run, step, state in await self._transactions.read(partial(_steps, page)):
                found.setdefault(run, []).append((step, state))
        return {run: steps for run, steps in found.items() if [name for name, _ in steps] != [ONLY_STEP]}

    async def last_successes(self, uids: Sequence[ScheduleUid]) -> Mapping[ScheduleUid, int]:
        """See StoreStatsReader.last_successes."""
        rows = await self._transactions.read(lambda conn: bulk.fetch_rows(conn, _LAST_SUCCESSES, list(uids)))
        return {uid: at for uid, at in rows if at is not None}


def _held_tasks(conn: sa.Connection) -> HeldTasks:
    return HeldTasks(
        to_approve=conn.scalar(_COUNT_TO_APPROVE) or 0,
        put_off=conn.scalar(_COUNT_PUT_OFF) or 0,
        by_breakers=conn.scalar(_COUNT_BY_BREAKERS) or 0,
        reason=conn.scalar(_PUT_OFF) or "",
        breakers=tuple(shown_breaker(BreakerKey(*row)) for row in conn.execute(_NOT_CLOSED)),
    )


def _steps(runs: Sequence[str], conn: sa.Connection) -> Sequence[Sequence[Any]]:
    return bulk.fetch_rows(conn, _STEPS, list(runs))


def read_stats(
    conn: sa.Connection, now: int, store_at: int, overdue_before: int, max_jobs: int, stale_before: int = 0
) -> StoreStats:
    """See StoreStatsReader.read."""
    due, oldest_due_at = conn.execute(_DUE, {"now": now}).one()
    shards, holders = conn.execute(_SHARDS, {"now": store_at}).one()
    scheduled_at, due_task = conn.scalar(_READY), conn.execute(_DUE_TASK, {"now": now}).one_or_none()
    unroutable_since, reason = conn.execute(_UNROUTABLE).one_or_none() or (None, None)
    waits = scheduled_at, unroutable_since, None if due_task is None else max(due_task)
    return StoreStats(
        store_at=store_at,
        schema=schema_numbers(conn)[0],
        jobs=conn.scalar(_JOBS) or 0,
        due=due,
        oldest_due_at=oldest_due_at,
        overdue=conn.execute(_DUE, {"now": overdue_before}).one()[0] if due else 0,
        ready_since_at=min((at for at in waits if at is not None), default=None),
        scheduled=0 if scheduled_at is None else conn.scalar(_COUNT_SCHEDULED) or 0,
        unroutable=0 if unroutable_since is None else conn.scalar(_COUNT_UNROUTABLE) or 0,
        unroutable_since_at=unroutable_since,
        unroutable_reason=reason or "",
        stale=_stale_tasks(conn, store_at, stale_before, scheduled_at=scheduled_at),
        workers=conn.scalar(_WORKERS, {"now": store_at}) or 0,
        shards=shards,
        holders=holders,
        unresolved=conn.scalar(_UNRESOLVED) or 0,
        rolling_back=conn.scalar(_COUNT_ROLLING_BACK) or 0,
        unannounced=0 if conn.scalar(_TO_ANNOUNCE) is None else conn.scalar(_COUNT_TO_ANNOUNCE) or 0,
        approvals_waiting=conn.scalar(_COUNT_AWAITED) or 0,
        job_stats=tuple(_job_stats(conn, row) for row in conn.execute(_JOB_STATS, {"limit": max_jobs}))
        if max_jobs
        else (),
    )


def _stale_tasks(
    conn: sa.Connection, store_at: int, stale_before: int, *, scheduled_at: int | None
) -> Mapping[TaskState, int]:
    """The stale tasks by state. `scheduled_at` is the time of the oldest SCHEDULED one."""
    found = dict.fromkeys(_STALE_STATES, 0)
    found[TaskState.PENDING] = conn.scalar(_COUNT_READY_SINCE, {"before": stale_before}) or 0
    if scheduled_at is not None and scheduled_at <= stale_before:
        found[TaskState.SCHEDULED] = conn.scalar(_COUNT_SCHEDULED_SINCE, {"before": stale_before}) or 0
    for state, count in conn.execute(_COUNT_LAPSED, {"now": store_at}):
        if state in found:
            found[TaskState(state)] = count
    return found


def _job_stats(conn: sa.Connection, row: sa.Row[*tuple[Any, ...]]) -> JobStats:
    uid, tenant, job, next_fire_at, active, overlap, workflow, version = row
    locked = False
    if active and overlap == Overlap.SKIP:
        found = load_workflow(conn, tenant, workflow, version)
        locked = found is not None and found.lock
    return JobStats(uid=uid, job=job, next_fire_at=next_fire_at, locked=locked)
