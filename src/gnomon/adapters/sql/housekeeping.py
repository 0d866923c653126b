"""The ports of a store by which it is kept in order, on SQL. Each method is one transaction."""

from collections.abc import Collection, Sequence

import sqlalchemy as sa

from gnomon.adapters.sql import ageing, mending, removing
from gnomon.adapters.sql.transactions import Transactions
from gnomon.core.model import RunId, ScheduleUid
from gnomon.core.retention import Horizons, Past
from gnomon.ports.keeping import Lot, Place
from gnomon.ports.mending import Ailing, OpenPlace


class SqlHousekeeping:
    """Keeping, Turns and Mending."""

    transactions: Transactions

    async def take_turn(self, name: str, holder: str, *, ttl_ms: int) -> bool:
        """See Turns.take_turn."""
        engine = self.transactions

        def take(conn: sa.Connection) -> bool:
            now = engine.now(conn)
            return removing.take_turn(conn, name, holder, now + ttl_ms, now)

        return await engine.write(take)

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
