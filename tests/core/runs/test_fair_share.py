"""Fair shares of slots between tenants."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from gnomon.core.runs.fair_share import TenantQueue, TenantShares, take_in_turns

TENANTS = "abcdef"
counts = st.dictionaries(st.sampled_from(TENANTS), st.integers(0, 30))


def shares_with(in_hand: dict[str, int]) -> TenantShares:
    shares = TenantShares()
    shares.recount(in_hand)
    return shares


def taken(shares: TenantShares, limit: int, waiting: dict[str, int]) -> Counter[str]:
    """How many tasks each tenant gets, of so many that wait."""
    tasks = {tenant: [tenant] * count for tenant, count in waiting.items()}
    return Counter(
        take_in_turns(
            shares,
            limit,
            sorted(tasks),
            lambda wanted: {tenant: tasks[tenant][:most] for tenant, most in wanted.items()},
        )
    )


@given(waiting=counts, in_hand=counts, limit=st.integers(0, 60))
def test_no_slot_stays_free_and_no_tenant_has_more_than_another_that_waits(
    waiting: dict[str, int], in_hand: dict[str, int], limit: int
) -> None:
    got = taken(shares_with(in_hand), limit, waiting)

    assert got.total() == min(limit, sum(waiting.values()))
    after = {tenant: in_hand.get(tenant, 0) + got[tenant] for tenant in TENANTS}
    for tenant, count in waiting.items():
        assert got[tenant] <= count
        if got[tenant] < count:
            assert all(after[other] <= after[tenant] + 1 for other in TENANTS if got[other])


@given(waiting=counts, slots=st.integers(1, 8))
def test_a_tenant_waits_for_one_task_of_each_other_at_most(waiting: dict[str, int], slots: int) -> None:
    queue = TenantQueue[str]()
    for tenant, count in waiting.items():
        for _ in range(count):
            queue.add(tenant, tenant)
    busy = [queue.pop()[0] for _ in range(slots) if queue]
    queue.add("new", "new")
    started = list[str]()
    while queue and "new" not in started:
        if busy:
            queue.ended(busy.pop(0))
        started.append(queue.pop()[0])
        busy.append(started[-1])

    assert len(set(started)) == len(started)


def test_tenants_with_short_and_long_tasks_have_equally_many_slots() -> None:
    queue = TenantQueue[str]()
    for tenant in ("long", "short"):
        for _ in range(100):
            queue.add(tenant, tenant)
    held = [queue.pop()[0] for _ in range(10)]
    for _ in range(50):
        held.remove("short")
        queue.ended("short")
        held.append(queue.pop()[0])

    assert Counter(held) == {"long": 5, "short": 5}


def test_the_order_of_one_tenant_is_kept() -> None:
    queue = TenantQueue[int]()
    for number in range(5):
        queue.add("a", number)

    assert [queue.pop()[1] for _ in range(5)] == list(range(5))
