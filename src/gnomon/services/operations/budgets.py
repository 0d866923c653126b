"""The budgets of the policy for operators: how much of each is left."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from gnomon.core.jobs.fields import page_limit
from gnomon.core.policy.budgets import UNUSED_WINDOW, NamedWindow, window_start
from gnomon.ports.budgets import BudgetWindows
from gnomon.ports.runtime import Clock

if TYPE_CHECKING:
    from gnomon.core.policy.document import Budget

#: The beginning of the position behind the used windows: no budget has it in its id.
_UNUSED = "~"


class BudgetState(Struct, frozen=True):
    """A budget in its current window, for all of its tasks or for those of one scope."""

    budget: "Budget"
    named: NamedWindow


class BudgetPage(Struct, frozen=True):
    """A part of the list of budgets, and the position behind it; None at its end."""

    states: Sequence[BudgetState]
    after: str | None


class BudgetReader:
    """Lists the current windows of budgets: first those that tasks have used, then the unused budgets."""

    def __init__(self, windows: BudgetWindows, clock: Clock) -> None:
        self._windows, self._clock = windows, clock

    async def page(self, budgets: "Sequence[Budget]", *, after: str = "", limit: int) -> BudgetPage:
        """The next windows of these budgets."""
        now, limit = self._clock.now(), page_limit(limit)
        by_id = {one.budget_id: one for one in budgets}
        states: list[BudgetState] = []
        if not after.startswith(_UNUSED):
            found = await self._windows.page(now=now, after=after, limit=limit)
            for one in found:
                budget = by_id.get(one.budget)
                # A window of an earlier policy may have another length.
                if budget is not None and one.starts_at == window_start(now, budget.per_ms):
                    states.append(BudgetState(budget, one))
            if len(found) == limit:
                return BudgetPage(states, found[-1].window_id)
            after = _UNUSED
        used = await self._windows.used(now=now)
        rest = [one for name, one in sorted(by_id.items()) if f"{_UNUSED}{name}" > after]
        unused = [one for one in (_unused(budget, now) for budget in rest) if _key(one) not in used]
        free = limit - len(states)
        last = unused[free - 1].named.budget if 0 < free < len(unused) else ""
        more = f"{_UNUSED}{last}" if len(unused) > free else None
        return BudgetPage([*states, *unused[:free]], more)


def _unused(budget: "Budget", now: int) -> BudgetState:
    starts_at = window_start(now, budget.per_ms)
    return BudgetState(budget, NamedWindow(budget.budget_id, starts_at, "", starts_at + budget.per_ms, UNUSED_WINDOW))


def _key(one: BudgetState) -> tuple[str, int]:
    return one.named.budget, one.named.starts_at
