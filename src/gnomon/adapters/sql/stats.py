"""Statistics of a store. Every number comes from an index that exists for another purpose."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import sqlalchemy as sa

from gnomon.adapters.sql import bulk, schema
from gnomon.adapters.sql.migrator import schema_numbers
from gnomon.adapters.sql.rows import load_workflow
from gnomon.adapters.sql.transactions import Transactions
from gnomon.core.model import Overlap, RunId
from gnomon.core.runs.workflow import ONLY_STEP
from gnomon.ports.maintenance import JobStats, StoreStats

_schedule, _shard = schema.schedule.c, schema.shard.c
_JOBS = sa.select(sa.func.count()).select_from(schema.schedule).where(_schedule.deleted_at.is_(None))
_DUE = sa.select(sa.func.count(), sa.func.min(_schedule.next_fire_at)).where(
    _schedule.next_fire_at.is_not(None), _schedule.next_fire_at <= sa.bindparam("now")
)
_READY = sa.select(schema.task.c.available_at).where(sa.text(schema.SCHEDULED)).order_by("available_at").limit(1)
_WORKERS = sa.select(sa.func.count()).where(schema.worker.c.seen_until > sa.bindparam("now"))
_SHARDS = sa.select(sa.func.count(), sa.func.count(_shard.holder.distinct())).where(
    _shard.holder.is_not(None), _shard.lease_until > sa.bindparam("now")
)
_UNRESOLVED = (
    sa.select(sa.func.count()).select_from(schema.dead_letter).where(schema.dead_letter.c.resolved_at.is_(None))
)
_CARDS = (
    sa.select(
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
#: A statement has a limited number of parameters.
_RUNS_AT_ONCE = 1000


class SqlStoreStats:
    """Implements StoreStatsReader. Each page of a read is one transaction."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def read(self, now: int, *, overdue_before: int, cards: int) -> StoreStats:
        """See StoreStatsReader.read."""
        engine = self._transactions
        return await engine.read(lambda conn: read_stats(conn, now, engine.now(conn), overdue_before, cards))

    async def steps(self, runs: Sequence[RunId]) -> Mapping[RunId, Sequence[tuple[str, str]]]:
        """See StoreStatsReader.steps."""
        found: dict[RunId, list[tuple[str, str]]] = {}
        for start in range(0, len(runs), _RUNS_AT_ONCE):
            page = runs[start : start + _RUNS_AT_ONCE]
            for run, step, state in await self._transactions.read(partial(_steps, page)):
                found.setdefault(run, []).append((step, state))
        return {run: steps for run, steps in found.items() if [name for name, _ in steps] != [ONLY_STEP]}


def _steps(runs: Sequence[str], conn: sa.Connection) -> Sequence[Sequence[Any]]:
    return bulk.fetch_rows(conn, _STEPS, list(runs))


def read_stats(conn: sa.Connection, now: int, store_at: int, overdue_before: int, cards: int) -> StoreStats:
    """See StoreStatsReader.read."""
    due, oldest_due_at = conn.execute(_DUE, {"now": now}).one()
    shards, holders = conn.execute(_SHARDS, {"now": store_at}).one()
    return StoreStats(
        store_at=store_at,
        schema=schema_numbers(conn)[0],
        jobs=conn.scalar(_JOBS) or 0,
        due=due,
        oldest_due_at=oldest_due_at,
        overdue=conn.execute(_DUE, {"now": overdue_before}).one()[0] if due else 0,
        ready_since_at=conn.scalar(_READY),
        workers=conn.scalar(_WORKERS, {"now": store_at}) or 0,
        shards=shards,
        holders=holders,
        unresolved=conn.scalar(_UNRESOLVED) or 0,
        cards=tuple(_job_stats(conn, row) for row in conn.execute(_CARDS, {"limit": cards})) if cards else (),
    )


def _job_stats(conn: sa.Connection, row: sa.Row[*tuple[Any, ...]]) -> JobStats:
    tenant, job, next_fire_at, active, overlap, workflow, version = row
    locked = False
    if active and overlap == Overlap.SKIP:
        found = load_workflow(conn, tenant, workflow, version)
        locked = found is not None and found.lock
    return JobStats(job=job, next_fire_at=next_fire_at, locked=locked)
