"""The parts of the SQL store about schedules: ledger, shards, definitions and their history."""

from collections.abc import Collection, Mapping, Sequence
from functools import partial

import sqlalchemy as sa

from gnomon.adapters.sql import (
    audit,
    history,
    leases,
    ledger,
    marks,
    schedules,
    workflows,
)
from gnomon.adapters.sql.transactions import Transactions
from gnomon.adapters.sql.unreadable import UnreadableSchedules
from gnomon.core.audit import (
    changed_entry,
    deleted_entry,
    deployed_entry,
    registered_entry,
)
from gnomon.core.model import (
    Run,
    Schedule,
    ScheduleUid,
    Task,
    Tick,
    TickKind,
    TickVerdict,
)
from gnomon.core.runs.workflow import Workflow
from gnomon.ports.ledger import ShardRenewal, Terms
from gnomon.ports.schedules import (
    DeletedSchedule,
    JobChangeset,
    Pause,
    RecentHistory,
    Revision,
    ScheduleOrder,
    SchedulePosition,
    TenantTickQuery,
    TickMark,
    TickPosition,
    schedule_position,
)

#: How many schedules are read in one go: the rows of PostgreSQL become objects on the event loop.
_READ_AT_ONCE = 250
#: The same for schedules whose newest ticks are read, of which each may have twenty.
_TICKS_OF_AT_ONCE = 50
#: How many ticks, and how many runs, of many schedules are read in one go.
_ROWS_AT_ONCE = 1000


class SqlLedger:
    """Implements Ledger."""

    def __init__(self, transactions: Transactions, unreadable: UnreadableSchedules) -> None:
        self._transactions = transactions
        self._unreadable = unreadable

    async def due(self, now: int, *, shards: frozenset[int], limit: int) -> Sequence[Schedule]:
        """See Ledger.due."""
        return await self._transactions.read(lambda conn: ledger.due(conn, now, shards, limit, self._unreadable))

    async def next_due_at(self, *, shards: frozenset[int]) -> int | None:
        """See Ledger.next_due_at."""
        return await self._transactions.read(lambda conn: ledger.next_due_at(conn, shards, self._unreadable))

    async def decide(self, verdicts: Sequence[TickVerdict], *, now: int, terms: Terms) -> frozenset[ScheduleUid]:
        """See Ledger.decide."""
        store_now = self._transactions.now
        return await self._transactions.write(lambda conn: ledger.decide(conn, verdicts, now, terms, store_now))

    async def set_back_marks(self, *, terms: Terms, limit: int) -> Sequence[Schedule]:
        """See Ledger.set_back_marks."""
        engine, unreadable = self._transactions, self._unreadable
        return await engine.write(lambda conn: marks.set_back(conn, terms, engine.now(conn), limit, unreadable))


class SqlShards:
    """Implements Shards."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def renew(self, holder: str, *, ttl_ms: int) -> ShardRenewal:
        """See Shards.renew."""
        engine = self._transactions
        return await engine.write(lambda conn: leases.renew_shards(conn, holder, ttl_ms, engine.now(conn)))

    async def claim(self, holder: str, *, ttl_ms: int, limit: int, by_force: bool = False) -> Terms:
        """See Shards.claim."""
        engine = self._transactions
        return await engine.write(
            lambda conn: leases.claim(conn, holder, ttl_ms, limit, engine.now(conn), by_force=by_force)
        )

    async def leave(self, holder: str) -> None:
        """See Shards.leave."""
        await self._transactions.write(lambda conn: leases.leave(conn, holder))

    async def release(self, holder: str, shards: Collection[int]) -> None:
        """See Shards.release."""
        await self._transactions.write(lambda conn: leases.release(conn, holder, shards))


class SqlSchedules:
    """Implements Schedules."""

    def __init__(self, transactions: Transactions, unreadable: UnreadableSchedules) -> None:
        self._transactions = transactions
        self._unreadable = unreadable

    async def find(self, tenant: str, schedule_id: str) -> Schedule | None:
        """See Schedules.find."""
        return await self._transactions.read(lambda conn: schedules.find(conn, tenant, schedule_id))

    async def page(self, tenant: str, *, after: str, limit: int) -> Sequence[Schedule]:
        """See Schedules.page."""
        found: list[Schedule] = []
        while (missing := limit - len(found)) > 0:
            size = min(missing, _READ_AT_ONCE)
            read = partial(schedules.page, tenant=tenant, after=after, limit=size, unreadable=self._unreadable)
            part = await self._transactions.read(read)
            found += part
            if len(part) < size:
                break
            after = part[-1].schedule_id
        return found

    async def in_order(
        self, tenant: str, order: ScheduleOrder, *, after: SchedulePosition | None, limit: int
    ) -> Sequence[Schedule]:
        """See Schedules.in_order."""
        found: list[Schedule] = []
        while (missing := limit - len(found)) > 0:
            size = min(missing, _READ_AT_ONCE)
            part = await self._transactions.read(
                partial(
                    schedules.in_order,
                    tenant=tenant,
                    order=order,
                    after=after,
                    limit=size,
                    unreadable=self._unreadable,
                )
            )
            found += part
            if len(part) < size:
                break
            after = schedule_position(part[-1], order)
        return found

    async def names_from(self, tenant: str, origins: Collection[str]) -> frozenset[str]:
        """See Schedules.names_from."""
        return await self._transactions.read(lambda conn: schedules.names_from(conn, tenant, origins))

    async def orphans(self, tenant: str, *, limit: int) -> Sequence[Schedule]:
        """See Schedules.orphans."""
        return await self._transactions.read(lambda conn: schedules.orphans(conn, tenant, limit, self._unreadable))

    async def add(self, added: Sequence[Schedule], *, actor: str, tzdata: str) -> frozenset[str]:
        """See Schedules.add."""

        def add(conn: sa.Connection) -> frozenset[str]:
            ledger.refuse_early_edit(conn, max((one.created_at for one in added), default=0))
            taken = schedules.add(conn, added, actor, tzdata)
            audit.write(conn, (registered_entry(one, actor) for one in added if one.schedule_id not in taken))
            return taken

        return await self._transactions.write(add)

    async def change(self, verdict: TickVerdict, changed: Schedule, *, now: int, actor: str, tzdata: str) -> bool:
        """See Schedules.change."""

        def change(conn: sa.Connection) -> bool:
            ledger.refuse_early_edit(conn, now)
            done = schedules.change(conn, verdict, changed, now, actor, tzdata)
            if done:
                audit.write(conn, [changed_entry(verdict.schedule, changed, actor, now)])
            return done

        return await self._transactions.write(change)

    async def delete(self, verdict: TickVerdict, *, now: int, actor: str) -> bool:
        """See Schedules.delete."""

        def delete(conn: sa.Connection) -> bool:
            ledger.refuse_early_edit(conn, now)
            done = schedules.delete(conn, verdict, now, actor)
            if done:
                audit.write(conn, [deleted_entry(verdict.schedule, actor, now)])
            return done

        return await self._transactions.write(delete)


class SqlScheduleHistory:
    """Implements ScheduleHistory."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def ticks(self, uid: ScheduleUid, *, before: int, limit: int) -> Sequence[Tick]:
        """See ScheduleHistory.ticks."""
        return await self._transactions.read(lambda conn: history.ticks(conn, uid, before, limit))

    async def runs(self, uid: ScheduleUid, *, before: int, limit: int) -> Sequence[Run]:
        """See ScheduleHistory.runs."""
        return await self._transactions.read(lambda conn: history.runs(conn, uid, before, limit))

    async def running(self, uids: Sequence[ScheduleUid]) -> Mapping[ScheduleUid, int]:
        """See ScheduleHistory.running."""
        return await self._transactions.read(lambda conn: history.running(conn, uids))

    async def last_tick_kinds(self, uids: Sequence[ScheduleUid]) -> Mapping[ScheduleUid, TickKind]:
        """See ScheduleHistory.last_tick_kinds."""
        return await self._transactions.read(lambda conn: history.last_tick_kinds(conn, uids))

    async def tasks(self, runs: Sequence[Run]) -> Sequence[Task]:
        """See ScheduleHistory.tasks."""
        return await self._transactions.read(lambda conn: history.tasks(conn, runs))

    async def revisions(
        self, uid: ScheduleUid, *, before: int | None = None, newest: int | None = None
    ) -> Sequence[Revision]:
        """See ScheduleHistory.revisions."""
        return await self._transactions.read(lambda conn: history.revisions(conn, uid, before=before, newest=newest))

    async def pauses(self, uid: ScheduleUid) -> Sequence[Pause]:
        """See ScheduleHistory.pauses."""
        return await self._transactions.read(lambda conn: history.pauses(conn, uid))

    async def deleted(self, tenant: str, schedule_id: str, *, limit: int) -> Sequence[DeletedSchedule]:
        """See ScheduleHistory.deleted."""
        return await self._transactions.read(lambda conn: history.deleted(conn, tenant, schedule_id, limit))


class SqlTickHistory:
    """Implements TickHistory."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def page(self, query: TenantTickQuery) -> Sequence[Tick]:
        """See TickHistory.page."""
        return await self._transactions.read(lambda conn: history.tenant_ticks(conn, query))

    async def position(self, query: TenantTickQuery, number: int) -> TickPosition | None:
        """See TickHistory.position."""
        return await self._transactions.read(lambda conn: history.tick_position(conn, query, number))

    async def recent(self, schedules: Sequence[Schedule], *, each: int) -> Mapping[ScheduleUid, RecentHistory]:
        """See TickHistory.recent."""
        found: dict[ScheduleUid, RecentHistory] = {}
        at_once = max(1, _ROWS_AT_ONCE // each)
        for start in range(0, len(schedules), at_once):
            some = schedules[start : start + at_once]
            found |= await self._transactions.read(partial(history.recent, schedules=some, each=each))
        return found

    async def newest(self, uids: Sequence[ScheduleUid], *, each: int) -> Mapping[ScheduleUid, Sequence[TickMark]]:
        """See TickHistory.newest."""
        found: dict[ScheduleUid, Sequence[TickMark]] = {}
        for start in range(0, len(uids), _TICKS_OF_AT_ONCE):
            some = uids[start : start + _TICKS_OF_AT_ONCE]
            found |= await self._transactions.read(partial(history.newest_ticks, uids=some, each=each))
        return found


class SqlJobs:
    """Implements Jobs."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def workflow(self, tenant: str, workflow_id: str, version: int | None = None) -> Workflow | None:
        """See Jobs.workflow."""
        return await self._transactions.read(lambda conn: workflows.workflow(conn, tenant, workflow_id, version))

    async def list_workflows(self, tenant: str, *, after: str, limit: int) -> Sequence[Workflow]:
        """See Jobs.list_workflows."""
        return await self._transactions.read(lambda conn: workflows.list_workflows(conn, tenant, after, limit))

    async def newest_workflows(self, tenant: str, workflow_ids: Sequence[str]) -> Sequence[Workflow]:
        """See Jobs.newest_workflows."""
        return await self._transactions.read(lambda conn: workflows.newest_workflows(conn, tenant, workflow_ids))

    async def apply(self, changes: JobChangeset, *, now: int, actor: str, tzdata: str) -> bool:
        """See Jobs.apply."""

        def apply(conn: sa.Connection) -> None:
            ledger.refuse_early_edit(conn, now)
            workflows.apply(conn, changes, now, actor, tzdata)
            audit.write(conn, (deployed_entry(one, actor, now) for one in changes.workflows))
            audit.write(conn, (registered_entry(one, actor) for one in changes.added))
            edits = changes.edits
            audit.write(conn, (changed_entry(one.verdict.schedule, one.changed, actor, now) for one in edits))
            audit.write(conn, (deleted_entry(one.schedule, actor, now) for one in changes.removed))

        try:
            await self._transactions.write(apply)
        except workflows.ChangesetConflict:
            return False
        return True
