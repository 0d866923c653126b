"""A breaker of one process: shared over the store, cheap while closed, and alone while the store is away."""

from collections.abc import Sequence

import pytest

from contracts.store import NOON
from gnomon.adapters.memory import MemoryStore
from gnomon.core.breakers import BreakerLimits, BreakerState
from gnomon.core.named_breakers import (
    NO_TENANT,
    BreakerKey,
    BreakerUse,
    NamedBreaker,
    NamedPermission,
    RequestOutcome,
)
from gnomon.errors import Unavailable
from gnomon.ports.breakers import Breakers
from gnomon.services.execution.shared_breaker import SharedBreaker
from gnomon.testing.clock import Recorder, VirtualClock

pytestmark = pytest.mark.req("R-12")

KEY = BreakerKey(NO_TENANT, "safety_kernel")
FAILED, SUCCEEDED = RequestOutcome.FAILED, RequestOutcome.SUCCEEDED


class WatchedBreakers(Breakers):
    """The breakers of a store: it counts calls, and may be away."""

    def __init__(self, breakers: Breakers) -> None:
        self._breakers = breakers
        self.calls = 0
        self.away = False

    def _count(self) -> None:
        self.calls += 1
        if self.away:
            raise Unavailable("the store is away")

    async def find(self, key: BreakerKey) -> NamedBreaker | None:
        self._count()
        return await self._breakers.find(key)

    async def request(self, use: BreakerUse, *, now: int) -> NamedPermission:
        self._count()
        return await self._breakers.request(use, now=now)

    async def record(self, use: BreakerUse, outcome: RequestOutcome, *, now: int) -> NamedBreaker:
        self._count()
        return await self._breakers.record(use, outcome, now=now)

    async def page(self, tenant: str, *, after: str = "", limit: int) -> Sequence[NamedBreaker]:
        return await self._breakers.page(tenant, after=after, limit=limit)

    async def reset(self, key: BreakerKey, *, actor: str, now: int) -> NamedBreaker | None:
        return await self._breakers.reset(key, actor=actor, now=now)


class Replicas:
    """Two processes that share a breaker over one store."""

    def __init__(self) -> None:
        self.clock, self.events = VirtualClock(NOON), Recorder()
        self.store = MemoryStore(self.clock.now)
        self.watched = WatchedBreakers(self.store.breakers)
        self.one, self.other = (
            SharedBreaker(self.watched, KEY, BreakerLimits(), self.clock, self.events) for _ in range(2)
        )

    async def fail(self, breaker: SharedBreaker, times: int = 3) -> None:
        for number in range(times):
            assert await breaker.request(f"r{number}") is None
            await breaker.record(f"r{number}", FAILED)


@pytest.fixture
def replicas() -> Replicas:
    return Replicas()


async def test_failures_of_one_process_open_it_for_the_other(replicas: Replicas) -> None:
    assert await replicas.other.request("before") is None
    await replicas.fail(replicas.one)

    replicas.clock.advance(500)

    assert await replicas.other.request("after") == NOON + 30_000


async def test_failures_of_both_processes_count_together(replicas: Replicas) -> None:
    await replicas.fail(replicas.one, 2)
    await replicas.fail(replicas.other, 1)

    assert await replicas.other.request("next") == NOON + 30_000


async def test_while_it_is_closed_requests_cost_no_transaction(replicas: Replicas) -> None:
    for number in range(1000):
        assert await replicas.one.request(f"r{number}") is None
        await replicas.one.record(f"r{number}", SUCCEEDED)

    assert replicas.watched.calls == 1


async def test_while_it_is_open_requests_are_answered_from_memory(replicas: Replicas) -> None:
    await replicas.fail(replicas.one)
    before = replicas.watched.calls
    for number in range(100):
        assert await replicas.one.request(f"r{number}") is not None

    assert replicas.watched.calls == before


async def test_both_processes_together_send_no_more_probes_than_the_limit(replicas: Replicas) -> None:
    await replicas.fail(replicas.one)
    replicas.clock.advance(30_000)

    granted = [
        await process.request(f"{name}-{number}") is None
        for number in range(3)
        for name, process in (("one", replicas.one), ("other", replicas.other))
    ]

    assert granted == [True, True, True, False, False, False]


async def test_probes_that_succeed_close_it_for_both(replicas: Replicas) -> None:
    await replicas.fail(replicas.one)
    replicas.clock.advance(30_000)
    for number in range(2):
        assert await replicas.other.request(f"p{number}") is None
        await replicas.other.record(f"p{number}", SUCCEEDED)

    replicas.clock.advance(500)

    assert await replicas.one.request("next") is None
    assert replicas.one.known.state(replicas.clock.now()) is BreakerState.CLOSED


async def test_without_the_store_each_process_counts_alone(replicas: Replicas) -> None:
    replicas.watched.away = True
    await replicas.fail(replicas.one)

    assert await replicas.one.request("next") == NOON + 30_000
    assert await replicas.other.request("next") is None
    assert not replicas.one.is_shared
    assert replicas.events.names().count("breaker_local") == 2


async def test_without_the_store_a_process_sends_no_more_probes_than_the_limit(replicas: Replicas) -> None:
    replicas.watched.away = True
    await replicas.fail(replicas.one)
    replicas.clock.advance(30_000)

    assert [await replicas.one.request(f"p{number}") is None for number in range(4)] == [True, True, True, False]


async def test_failures_before_the_store_went_away_count_in_the_process_that_saw_them(replicas: Replicas) -> None:
    await replicas.fail(replicas.one, 2)
    replicas.watched.away = True

    await replicas.fail(replicas.one, 1)

    assert await replicas.one.request("next") == NOON + 30_000


async def test_when_the_store_is_back_the_shared_state_counts_again(replicas: Replicas) -> None:
    replicas.watched.away = True
    await replicas.fail(replicas.one)
    replicas.watched.away = False

    replicas.clock.advance(500)

    assert await replicas.one.request("next") is None
    assert replicas.one.is_shared
    assert replicas.events.names()[-1] == "breaker_shared"


async def test_an_operator_who_resets_it_is_heard_in_time(replicas: Replicas) -> None:
    await replicas.fail(replicas.one)
    await replicas.store.breakers.reset(KEY, actor="ada", now=replicas.clock.now())

    replicas.clock.advance(500)

    assert await replicas.one.request("next") is None
