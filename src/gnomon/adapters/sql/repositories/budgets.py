"""The part of the SQL store about budgets of the policy."""

from collections.abc import Sequence

from gnomon.adapters.sql import budgets
from gnomon.adapters.sql.transactions import Transactions
from gnomon.core.policy.budgets import NamedWindow


class SqlBudgetWindows:
    """Implements BudgetWindows."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def page(self, *, now: int, after: str = "", limit: int) -> Sequence[NamedWindow]:
        """See BudgetWindows.page."""
        return await self._transactions.read(lambda conn: budgets.page(conn, now, after, limit))

    async def used(self, *, now: int) -> frozenset[tuple[str, int]]:
        """See BudgetWindows.used."""
        return await self._transactions.read(lambda conn: budgets.used(conn, now))
