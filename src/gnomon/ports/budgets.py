"""The windows of budgets of the policy, as they are read. The transactions that admit and end tasks write them."""

from collections.abc import Sequence
from typing import Protocol

from gnomon.core.policy.budgets import NamedWindow


class BudgetWindows(Protocol):
    """How much of each budget is spent and reserved."""

    async def page(self, *, now: int, after: str = "", limit: int) -> Sequence[NamedWindow]:
        """The windows that have not ended and whose names come after `after`, in the order of their names."""
        ...

    async def used(self, *, now: int) -> frozenset[tuple[str, int]]:
        """Budget and beginning of each window that has not ended."""
        ...
