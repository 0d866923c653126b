"""The windows of budgets of the policy in memory."""

from collections.abc import Sequence

from gnomon.adapters.memory.state import MemoryTables
from gnomon.core.policy.budgets import NamedWindow, named_window


class MemoryBudgetWindows:
    """Implements BudgetWindows."""

    def __init__(self, state: MemoryTables) -> None:
        self._state = state

    async def page(self, *, now: int, after: str = "", limit: int) -> Sequence[NamedWindow]:
        """See BudgetWindows.page."""
        return [one for one in self._current(now) if one.window_id > after][:limit]

    async def used(self, *, now: int) -> frozenset[tuple[str, int]]:
        """See BudgetWindows.used."""
        return frozenset((one.budget, one.starts_at) for one in self._current(now))

    def _current(self, now: int) -> list[NamedWindow]:
        state = self._state
        return [
            named_window(name, state.budget_ends[name], window)
            for name, window in sorted(state.budget_windows.items())
            if state.budget_ends[name] > now
        ]
