"""Counts for a first page. Every one reads a range of an index, and stops at its limit."""

from collections.abc import Mapping, Sequence

import sqlalchemy as sa

from gnomon.adapters.sql import bulk, schema
from gnomon.adapters.sql.rows import SCHEDULE
from gnomon.adapters.sql.transactions import Transactions
from gnomon.adapters.sql.unreadable import UnreadableSchedules
from gnomon.core.model import Reason, RunStatus, Schedule
from gnomon.core.runs.states import WaitReason
from gnomon.ports.overview import BoundedTotal, TenantTotals, TickTotal

#: A task waits for each item of a step: so many of them are looked at for one number of runs.
_TASKS_FOR_A_RUN = 10

_schedule = schema.schedule.c
_COMING = (
    sa.select(*SCHEDULE)
    .where(_schedule.next_fire_at > sa.bindparam("at"), _schedule.tenant == sa.bindparam("tenant"))
    .order_by(_schedule.next_fire_at, _schedule.uid)
    .limit(sa.bindparam("limit"))
)
_OVERDUE = (
    sa.select(*SCHEDULE)
    .where(_schedule.next_fire_at < sa.bindparam("at"), _schedule.tenant == sa.bindparam("tenant"))
    .order_by(_schedule.next_fire_at, _schedule.uid)
    .limit(sa.bindparam("limit"))
)
#: The reasons that the index has.
_REASONS = tuple(reason for reason in Reason if reason is not Reason.ON_TIME)
_TICKS = bulk.statement(
    " UNION ALL ".join(
        f"SELECT '{reason}', count(*), sum(count), max(last_at) FROM (SELECT count, last_at FROM tick"  # noqa: S608 - our own names
        f" WHERE {schema.NOT_ON_TIME} AND tenant = ? AND reason = '{reason}' AND last_at >= ? AND planned_at < ?"
        " ORDER BY last_at DESC LIMIT ?) AS found"
        for reason in _REASONS
    )
)
_FAILED = bulk.statement(
    f"SELECT count(*) FROM (SELECT 1 FROM run WHERE {schema.WITH_ERROR} AND tenant = ?"  # noqa: S608 - our own names
    " AND created_at >= ? AND created_at < ? AND status = 'failed' LIMIT ?) AS found"
)
# An expression instead of the tenant: an index by tenant would have all runs that are over.
_OPEN = bulk.statement(
    " UNION ALL ".join(
        f"SELECT '{status}', count(*) FROM (SELECT 1 FROM run WHERE {schema.NOT_OVER} AND tenant || '' = ?"  # noqa: S608
        f" AND status = '{status}' LIMIT ?) AS found"
        for status in (RunStatus.RUNNING, RunStatus.PENDING)
    )
)
_QUEUED = bulk.statement("SELECT count(*) FROM (SELECT 1 FROM run WHERE queued AND tenant || '' = ? LIMIT ?) AS found")
_WAITING = bulk.statement(
    "SELECT wait_reason, count(DISTINCT run_id), count(*) FROM"  # noqa: S608 - our own names
    f" (SELECT wait_reason, run_id FROM task WHERE {schema.WAITS} AND tenant = ? LIMIT ?) AS found GROUP BY wait_reason"
)
_TOTALS = bulk.statement(
    " UNION ALL ".join(
        f"SELECT '{table}', count(*) FROM (SELECT 1 FROM {table} WHERE {condition} AND tenant = ? LIMIT ?) AS found"  # noqa: S608
        for table, condition in (
            ("schedule", "deleted_at IS NULL"),
            ("dead_letter", "resolved_at IS NULL"),
            ("approval", schema.AWAITED),
        )
    )
)


class SqlOverviewCounts:
    """Implements OverviewCounts."""

    def __init__(self, transactions: Transactions, unreadable: UnreadableSchedules) -> None:
        self._transactions = transactions
        self._unreadable = unreadable

    async def coming(self, tenant: str, *, after: int, limit: int) -> Sequence[Schedule]:
        """See OverviewCounts.coming."""
        return await self._schedules(_COMING, tenant, after, limit)

    async def overdue(self, tenant: str, *, before: int, limit: int) -> Sequence[Schedule]:
        """See OverviewCounts.overdue."""
        return await self._schedules(_OVERDUE, tenant, before, limit)

    async def _schedules(
        self, query: sa.Select[tuple[object, ...]], tenant: str, at: int, limit: int
    ) -> list[Schedule]:
        given = {"tenant": tenant, "at": at, "limit": limit}
        return await self._transactions.read(
            lambda conn: self._unreadable.readable(conn.execute(query, given).all()),
        )

    async def ticks(self, tenant: str, *, since: int, until: int, most: int) -> Mapping[Reason, TickTotal]:
        """See OverviewCounts.ticks."""
        return await self._transactions.read(lambda conn: ticks(conn, tenant, since, until, most))

    async def failed_runs(self, tenant: str, *, since: int, until: int, most: int) -> int:
        """See OverviewCounts.failed_runs."""
        return await self._transactions.read(lambda conn: failed_runs(conn, tenant, since, until, most))

    async def open_runs(self, tenant: str, *, most: int) -> Mapping[RunStatus, int]:
        """See OverviewCounts.open_runs."""
        return await self._transactions.read(lambda conn: open_runs(conn, tenant, most))

    async def waiting_runs(self, tenant: str, *, most: int) -> Mapping[WaitReason, BoundedTotal]:
        """See OverviewCounts.waiting_runs."""
        return await self._transactions.read(lambda conn: waiting_runs(conn, tenant, most))

    async def totals(self, tenant: str, *, most: int) -> TenantTotals:
        """See OverviewCounts.totals."""
        return await self._transactions.read(lambda conn: totals(conn, tenant, most))


def ticks(conn: sa.Connection, tenant: str, since: int, until: int, most: int) -> Mapping[Reason, TickTotal]:
    """See OverviewCounts.ticks."""
    rows = bulk.fetch_rows(conn, _TICKS, *(tenant, since, until, most) * len(_REASONS))
    return {Reason(reason): TickTotal(count, int(times), at) for reason, count, times, at in rows if count}


def failed_runs(conn: sa.Connection, tenant: str, since: int, until: int, most: int) -> int:
    """See OverviewCounts.failed_runs."""
    [[count]] = bulk.fetch_rows(conn, _FAILED, tenant, since, until, most)
    return int(count)


def open_runs(conn: sa.Connection, tenant: str, most: int) -> Mapping[RunStatus, int]:
    """See OverviewCounts.open_runs."""
    return {RunStatus(status): count for status, count in bulk.fetch_rows(conn, _OPEN, tenant, most, tenant, most)}


def totals(conn: sa.Connection, tenant: str, most: int) -> TenantTotals:
    """See OverviewCounts.totals."""
    rows = bulk.fetch_rows(conn, _TOTALS, *(tenant, most) * 3)
    counts = {table: count for table, count in rows}  # noqa: C416 - rows are no tuples to a type checker
    return TenantTotals(jobs=counts["schedule"], dead_letters=counts["dead_letter"], approvals=counts["approval"])


def waiting_runs(conn: sa.Connection, tenant: str, most: int) -> Mapping[WaitReason, BoundedTotal]:
    """See OverviewCounts.waiting_runs."""
    looked_at = most * _TASKS_FOR_A_RUN
    rows = bulk.fetch_rows(conn, _WAITING, tenant, looked_at)
    all_seen = sum(tasks for _, _, tasks in rows) < looked_at
    found = {
        WaitReason(reason): BoundedTotal(min(runs, most), more=runs > most or not all_seen) for reason, runs, _ in rows
    }
    [[queued]] = bulk.fetch_rows(conn, _QUEUED, tenant, most + 1)
    if queued:
        found[WaitReason.QUEUE] = BoundedTotal(min(queued, most), more=queued > most)
    return found
