"""The part of the SQL store about circuit breakers."""

from collections.abc import Sequence

from gnomon.adapters.sql import breakers
from gnomon.adapters.sql.transactions import Transactions
from gnomon.core.named_breakers import BreakerKey, BreakerUse, NamedBreaker, NamedPermission, RequestOutcome


class SqlBreakers:
    """Implements Breakers."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def find(self, key: BreakerKey) -> NamedBreaker | None:
        """See Breakers.find."""
        return await self._transactions.read(lambda conn: breakers.find(conn, key))

    async def request(self, use: BreakerUse, *, now: int) -> NamedPermission:
        """See Breakers.request."""
        return await self._transactions.write(lambda conn: breakers.request(conn, use, now))

    async def record(self, use: BreakerUse, outcome: RequestOutcome, *, now: int) -> NamedBreaker:
        """See Breakers.record."""
        return await self._transactions.write(lambda conn: breakers.record(conn, use, outcome, now))

    async def page(self, tenant: str, *, after: str = "", limit: int) -> Sequence[NamedBreaker]:
        """See Breakers.page."""
        return await self._transactions.read(lambda conn: breakers.page(conn, tenant, after, limit))

    async def reset(self, key: BreakerKey, *, actor: str, now: int) -> NamedBreaker | None:
        """See Breakers.reset."""
        return await self._transactions.write(lambda conn: breakers.reset(conn, key, actor, now))
