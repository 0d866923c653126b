"""The store on SQL: every port of the ledger, on SQLite and on PostgreSQL with the same statements."""

from collections.abc import Collection, Sequence

from gnomon.adapters.sql import book, history, leases, ledger
from gnomon.adapters.sql.runs import finish
from gnomon.adapters.sql.transactions import Transactions
from gnomon.adapters.sql.unreadable import Unreadable
from gnomon.core.model import Run, RunId, RunStatus, Schedule, ScheduleUid, Task, Tick, Verdict
from gnomon.ports.ledger import Terms
from gnomon.ports.schedules import Pause, Revision
from gnomon.ports.shards import Attendance


class SqlStore:
    """Each method is one transaction of the engine it was given."""

    def __init__(self, transactions: Transactions) -> None:
        self.transactions = transactions
        self._unreadable = Unreadable()

    async def close(self) -> None:
        """Let go of every connection, once what was asked for is done."""
        await self.transactions.close()

    # ---- ledger ------------------------------------------------------------------------------

    async def due(self, now: int, *, shards: frozenset[int], limit: int) -> Sequence[Schedule]:
        """See Ledger.due."""
        return await self.transactions.read(lambda conn: ledger.due(conn, now, shards, limit, self._unreadable))

    async def next_due_at(self, *, shards: frozenset[int]) -> int | None:
        """See Ledger.next_due_at."""
        return await self.transactions.read(lambda conn: ledger.next_due_at(conn, shards, self._unreadable))

    async def decide(self, verdicts: Sequence[Verdict], *, now: int, terms: Terms) -> frozenset[ScheduleUid]:
        """See Ledger.decide."""
        return await self.transactions.write(lambda conn: ledger.decide(conn, verdicts, now, terms))

    # ---- runs --------------------------------------------------------------------------------

    async def finish(self, run_id: RunId, status: RunStatus, *, now: int) -> bool:
        """See Runs.finish."""
        return await self.transactions.write(lambda conn: finish(conn, run_id, status, now))

    # ---- schedules ---------------------------------------------------------------------------

    async def find(self, tenant: str, schedule_id: str) -> Schedule | None:
        """See Schedules.find."""
        return await self.transactions.read(lambda conn: book.find(conn, tenant, schedule_id))

    async def page(self, tenant: str, *, after: str, limit: int) -> Sequence[Schedule]:
        """See Schedules.page."""
        return await self.transactions.read(lambda conn: book.page(conn, tenant, after, limit, self._unreadable))

    async def add(self, schedules: Sequence[Schedule], *, actor: str, tzdata: str) -> frozenset[str]:
        """See Schedules.add."""
        return await self.transactions.write(lambda conn: book.add(conn, schedules, actor, tzdata))

    async def change(self, verdict: Verdict, changed: Schedule, *, now: int, actor: str, tzdata: str) -> bool:
        """See Schedules.change."""
        return await self.transactions.write(lambda conn: book.change(conn, verdict, changed, now, actor, tzdata))

    async def delete(self, verdict: Verdict, *, now: int, actor: str) -> bool:
        """See Schedules.delete."""
        return await self.transactions.write(lambda conn: book.delete(conn, verdict, now, actor))

    # ---- history -----------------------------------------------------------------------------

    async def ticks(self, uid: ScheduleUid, *, before: int, limit: int) -> Sequence[Tick]:
        """See History.ticks."""
        return await self.transactions.read(lambda conn: history.ticks(conn, uid, before, limit))

    async def runs(self, uid: ScheduleUid, *, before: int, limit: int) -> Sequence[Run]:
        """See History.runs."""
        return await self.transactions.read(lambda conn: history.runs(conn, uid, before, limit))

    async def tasks(self, runs: Sequence[Run]) -> Sequence[Task]:
        """See History.tasks."""
        return await self.transactions.read(lambda conn: history.tasks(conn, runs))

    async def revisions(self, uid: ScheduleUid) -> Sequence[Revision]:
        """See History.revisions."""
        return await self.transactions.read(lambda conn: history.revisions(conn, uid))

    async def pauses(self, uid: ScheduleUid) -> Sequence[Pause]:
        """See History.pauses."""
        return await self.transactions.read(lambda conn: history.pauses(conn, uid))

    # ---- shards ------------------------------------------------------------------------------

    async def attend(self, holder: str, *, ttl_ms: int) -> Attendance:
        """See Shards.attend."""
        engine = self.transactions
        return await engine.write(lambda conn: leases.attend(conn, holder, ttl_ms, engine.now(conn)))

    async def claim(self, holder: str, *, ttl_ms: int, limit: int, by_force: bool = False) -> Terms:
        """See Shards.claim."""
        engine = self.transactions
        return await engine.write(
            lambda conn: leases.claim(conn, holder, ttl_ms, limit, engine.now(conn), by_force=by_force)
        )

    async def leave(self, holder: str) -> None:
        """See Shards.leave."""
        await self.transactions.write(lambda conn: leases.leave(conn, holder))

    async def release(self, holder: str, shards: Collection[int]) -> None:
        """See Shards.release."""
        await self.transactions.write(lambda conn: leases.release(conn, holder, shards))
