"""The list of budgets: what is left in the current windows, and the budgets that nobody has used."""

from collections.abc import Sequence

import pytest

from contracts.budgets import TWO, admit, launched
from contracts.store import HOUR, NOON
from gnomon.adapters.memory import MemoryStore
from gnomon.core.policy.budgets import BudgetKey
from gnomon.core.policy.document import Budget
from gnomon.services.operations.budgets import BudgetReader, BudgetState
from gnomon.testing.clock import VirtualClock

BUDGETS = [
    Budget(budget_id="two-an-hour", limit=2, per_ms=HOUR, by=(BudgetKey.JOB,)),
    Budget(budget_id="all", limit=9, per_ms=HOUR),
    Budget(budget_id="zebra", limit=3, per_ms=24 * HOUR),
]


@pytest.fixture
async def reader() -> BudgetReader:
    clock = VirtualClock(NOON)
    store = MemoryStore(clock.now)
    await admit(store, await launched(store, 2), TWO)
    return BudgetReader(store.budget_windows, clock)


async def all_states(reader: BudgetReader, budgets: Sequence[Budget], limit: int) -> list[BudgetState]:
    found: list[BudgetState] = []
    after: str | None = ""
    while after is not None:
        page = await reader.page(budgets, after=after, limit=limit)
        assert len(page.states) <= limit
        found, after = [*found, *page.states], page.after
    return found


@pytest.mark.req("R-02")
@pytest.mark.parametrize("limit", [1, 2, 3, 100])
async def test_used_windows_come_first_and_then_the_unused_budgets(reader: BudgetReader, limit: int) -> None:
    states = await all_states(reader, BUDGETS, limit)

    shown = [(one.named.budget, one.named.scope, one.named.window.reserved, one.named.ends_at) for one in states]
    assert shown == [
        ("two-an-hour", "job pay", 2, NOON + HOUR),
        ("all", "", 0, NOON + HOUR),
        ("zebra", "", 0, NOON + 12 * HOUR),
    ]


async def test_windows_of_an_earlier_policy_are_left_out(reader: BudgetReader) -> None:
    other_length = [Budget(budget_id="two-an-hour", limit=2, per_ms=24 * HOUR)]

    assert await all_states(reader, [], 10) == []
    assert [one.named.window.reserved for one in await all_states(reader, other_length, 10)] == [0]
