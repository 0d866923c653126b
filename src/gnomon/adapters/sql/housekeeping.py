"""The ports of a store by which it is kept in order, on SQL. Each method is one transaction."""

from collections.abc import Collection, Sequence

import sqlalchemy as sa

from gnomon.adapters.sql import ageing, mending, removing, turns, vitals
from gnomon.adapters.sql.transactions import Transactions
from gnomon.adapters.sql.unreadable import Unreadable
from gnomon.core.invariants import Counted, Orphan, Overdue
from gnomon.core.model import RunId, Schedule, ScheduleUid
from gnomon.core.retention import Horizons, Past
from gnomon.ports.maintenance import Ailing, Lot, OpenPlace, Place


class SqlHousekeeping:
    """Keeping, Turns, Mending and Vitals."""

    transactions: Transactions
    _unreadable: Unreadable

    async def take_turn(self, name: str, holder: str, *, ttl_ms: int) -> bool:
        """See Turns.take_turn."""
        engine = self.transactions

        def take(conn: sa.Connection) -> bool:
            now = engine.now(conn)
            return turns.take_turn(conn, name, holder, now + ttl_ms, now)

        return await engine.write(take)

    async def give_turns_up(self, holder: str) -> None:
        """See Turns.give_turns_up."""
        await self.transactions.write(lambda conn: turns.give_turns_up(conn, holder))

    async def pasts(self, *, after: str, limit: int) -> Sequence[Past]:
        """See Keeping.pasts."""
        return await self.transactions.read(lambda conn: ageing.pasts(conn, after, limit))

    async def tenants(self) -> Sequence[str]:
        """See Keeping.tenants."""
        return await self.transactions.read(ageing.tenants)

    async def aged_runs(self, past: Past | None, kept: Horizons, *, after: Place, limit: int) -> Lot:
        """See Keeping.aged_runs."""
        return await self.transactions.read(lambda conn: ageing.aged_runs(conn, past, kept, after, limit))

    async def aged_ticks(self, past: Past, kept: Horizons, *, after: Place, limit: int) -> Lot:
        """See Keeping.aged_ticks."""
        return await self.transactions.read(lambda conn: ageing.aged_ticks(conn, past, kept, after, limit))

    async def aged_events(self, tenant: str, before_at: int, *, after: Place, limit: int) -> Lot:
        """See Keeping.aged_events."""
        return await self.transactions.read(lambda conn: ageing.aged_events(conn, tenant, before_at, after, limit))

    async def aged_letters(self, tenant: str, before_at: int, *, after: Place, limit: int) -> Lot:
        """See Keeping.aged_letters."""
        return await self.transactions.read(lambda conn: ageing.aged_letters(conn, tenant, before_at, after, limit))

    async def aged_schedule(self, uid: ScheduleUid) -> Lot:
        """See Keeping.aged_schedule."""
        return await self.transactions.read(lambda conn: ageing.aged_schedule(conn, uid))

    async def remove(self, lot: Lot, *, limit: int) -> bool:
        """See Keeping.remove."""
        return await self.transactions.write(lambda conn: removing.remove(conn, lot, limit))

    async def ailing(self, *, before_at: int, after: OpenPlace, limit: int) -> Ailing:
        """See Mending.ailing."""
        return await self.transactions.read(lambda conn: mending.ailing(conn, before_at, after, limit))

    async def mend(self, run_ids: Collection[RunId], *, now: int) -> Sequence[RunId]:
        """See Mending.mend."""
        return await self.transactions.write(lambda conn: mending.mend(conn, run_ids, now))

    async def idle_schedules(self, *, after: str, limit: int) -> Sequence[Schedule]:
        """See Vitals.idle_schedules."""
        return await self.transactions.read(lambda conn: vitals.idle_schedules(conn, after, limit, self._unreadable))

    async def give_next_fire(self, schedule: Schedule, next_fire_at: int) -> bool:
        """See Vitals.give_next_fire."""
        return await self.transactions.write(lambda conn: vitals.give_next_fire(conn, schedule, next_fire_at))

    async def orphans(self, *, grace_ms: int, limit: int) -> Sequence[Orphan]:
        """See Vitals.orphans."""
        engine = self.transactions
        return await engine.read(lambda conn: vitals.orphans(conn, engine.now(conn) - grace_ms, limit))

    async def oldest_due(self) -> Overdue | None:
        """See Vitals.oldest_due."""
        engine = self.transactions
        return await engine.read(lambda conn: vitals.oldest_due(conn, engine.now(conn)))

    async def counted(self, *, after: str, limit: int) -> Sequence[Counted]:
        """See Vitals.counted."""
        return await self.transactions.read(lambda conn: vitals.counted(conn, after, limit))

    async def recount(self, uids: Collection[ScheduleUid], *, now: int) -> Sequence[ScheduleUid]:
        """See Vitals.recount."""
        return await self.transactions.write(lambda conn: vitals.recount(conn, uids, now))
