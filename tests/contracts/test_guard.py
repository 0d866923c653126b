"""What was seen before, in memory and in Redis: one contract; and doing without what is shared while it is away."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest

from gnomon.adapters.memory.coordination import MemoryCounters, MemoryGuard
from gnomon.adapters.redis.connection import client_of
from gnomon.adapters.redis.coordination import RedisCounters, RedisGuard
from gnomon.config import sections
from gnomon.core.leases import LONGEST_KEY, SHORTEST_MS
from gnomon.errors import FieldError, Unavailable
from gnomon.ports.coordination import IN_FLIGHT_MS, PROCESSED_MS, Counters, Guard, Standing
from gnomon.services.coordination import TolerantCounters, TolerantGuard
from gnomon.testing.clock import Recorder, VirtualClock
from support.bus_servers import Redis

TTL = SHORTEST_MS
NOON = 1_800_000_000_000
Pass = Callable[[int], Awaitable[None]]


@pytest.mark.req("R-17")
class GuardContract(ABC):
    @pytest.fixture
    @abstractmethod
    def guard(self) -> Guard: ...

    async def test_a_message_is_new_once_then_in_flight_then_processed(self, guard: Guard) -> None:
        assert await guard.begin("results", "1") is Standing.NEW
        assert await guard.begin("results", "1") is Standing.IN_FLIGHT
        await guard.processed("results", "1")
        assert await guard.begin("results", "1") is Standing.PROCESSED

    async def test_what_one_consumer_has_dealt_with_another_has_not(self, guard: Guard) -> None:
        await guard.begin("results", "1")
        await guard.processed("results", "1")

        assert await guard.begin("audit", "1") is Standing.NEW
        assert await guard.begin("results:1", "1") is Standing.NEW
        assert await guard.begin("results", "1:1") is Standing.NEW

    async def test_of_twenty_who_get_it_at_once_one_deals_with_it(self, guard: Guard) -> None:
        found = await asyncio.gather(*(guard.begin("results", "1") for _ in range(20)))

        assert found.count(Standing.NEW) == 1
        assert found.count(Standing.IN_FLIGHT) == 19

    async def test_what_is_given_up_is_new_again_but_not_what_was_processed(self, guard: Guard) -> None:
        await guard.begin("results", "1")
        await guard.give_up("results", "1")
        assert await guard.begin("results", "1") is Standing.NEW
        await guard.processed("results", "1")
        await guard.give_up("results", "1")
        assert await guard.begin("results", "1") is Standing.PROCESSED
        await guard.give_up("results", "unheard of")

    async def test_whoever_deals_with_it_is_believed_to_live_for_a_while(self, guard: Guard, let_pass: Pass) -> None:
        await guard.begin("results", "1", ttl_ms=TTL)
        await let_pass(TTL)

        assert await guard.begin("results", "1") is Standing.NEW

    async def test_what_was_processed_is_known_for_as_long_as_it_may_come_again(
        self, guard: Guard, let_pass: Pass
    ) -> None:
        await guard.begin("results", "1", ttl_ms=TTL)
        await guard.processed("results", "1", ttl_ms=3 * TTL)
        await let_pass(TTL)
        assert await guard.begin("results", "1") is Standing.PROCESSED
        await let_pass(2 * TTL)
        assert await guard.begin("results", "1") is Standing.NEW

    def test_the_times_are_those_of_the_seed(self) -> None:
        assert (PROCESSED_MS, IN_FLIGHT_MS) == (600_000, 120_000)

    @pytest.mark.parametrize("name", ["", "a\nb", "x" * (LONGEST_KEY + 1), None])
    async def test_what_is_no_name_is_refused(self, guard: Guard, name: str) -> None:
        with pytest.raises(FieldError, match="consumer"):
            await guard.begin(name, "1")
        with pytest.raises(FieldError, match="message"):
            await guard.processed("results", name)
        with pytest.raises(FieldError, match="message"):
            await guard.give_up("results", name)


@pytest.mark.req("R-12")
class CounterContract(ABC):
    @pytest.fixture
    @abstractmethod
    def counters(self) -> Counters: ...

    async def test_everyone_counts_together(self, counters: Counters) -> None:
        counts = await asyncio.gather(*(counters.count("kernel", ttl_ms=TTL) for _ in range(20)))

        assert sorted(counts) == list(range(1, 21))
        assert list(await counters.counted(["kernel", "output"])) == [20, 0]
        assert list(await counters.counted([])) == []

    async def test_it_begins_anew_so_long_after_the_first(self, counters: Counters, let_pass: Pass) -> None:
        await counters.count("kernel", ttl_ms=2 * TTL)
        await let_pass(TTL)
        assert await counters.count("kernel", ttl_ms=60 * TTL) == 2
        await let_pass(TTL)

        assert list(await counters.counted(["kernel"])) == [0]
        assert await counters.count("kernel", ttl_ms=TTL) == 1

    async def test_what_is_forgotten_is_none(self, counters: Counters) -> None:
        for name in ("kernel", "output", "other"):
            await counters.count(name, ttl_ms=60 * TTL)
        await counters.forget(["kernel", "output", "unheard of"])
        await counters.forget([])

        assert list(await counters.counted(["kernel", "output", "other"])) == [0, 0, 1]

    async def test_what_is_no_name_of_a_counter_is_refused(self, counters: Counters) -> None:
        with pytest.raises(FieldError, match="name"):
            await counters.count("", ttl_ms=TTL)
        with pytest.raises(FieldError, match="name"):
            await counters.counted(["a", "b\n"])


# ---- those who keep it ---------------------------------------------------------------------------


class TestInMemory(GuardContract, CounterContract):
    @pytest.fixture
    def clock(self) -> VirtualClock:
        return VirtualClock(NOON)

    @pytest.fixture
    def guard(self, clock: VirtualClock) -> Guard:
        return MemoryGuard(clock.now)

    @pytest.fixture
    def counters(self, clock: VirtualClock) -> Counters:
        return MemoryCounters(clock.now)

    @pytest.fixture
    def let_pass(self, clock: VirtualClock) -> Pass:
        async def let_pass(ms: int) -> None:
            clock.advance(ms)

        return let_pass

    async def test_of_too_many_the_oldest_are_forgotten(self, clock: VirtualClock) -> None:
        guard = MemoryGuard(clock.now, most=3)
        for message in "abcd":
            await guard.processed("results", message)

        assert await guard.begin("results", "d") is Standing.PROCESSED
        assert await guard.begin("results", "a") is Standing.NEW


@pytest.fixture(scope="module")
def server() -> Iterator[Redis]:
    with Redis() as server:
        yield server


class TestInRedis(GuardContract, CounterContract):
    @pytest.fixture
    async def guard(self, server: Redis) -> AsyncIterator[Guard]:
        client = client_of(sections.Redis(url=server.url))
        yield RedisGuard(client, "test:")
        await client.flushall()
        await client.aclose()

    @pytest.fixture
    async def counters(self, server: Redis) -> AsyncIterator[Counters]:
        client = client_of(sections.Redis(url=server.url))
        yield RedisCounters(client, "test:")
        await client.flushall()
        await client.aclose()

    @pytest.fixture
    def let_pass(self) -> Pass:
        async def let_pass(ms: int) -> None:
            # The server's own clock has to move.
            await asyncio.sleep((ms + 20) / 1000)

        return let_pass

    async def test_what_is_not_ours_is_no_answer(self, guard: Guard, server: Redis) -> None:
        client = client_of(sections.Redis(url=server.url))
        await client.set("test:seen:7:results:1", "nonsense")
        await client.aclose()

        with pytest.raises(Unavailable, match="not ours"):
            await guard.begin("results", "1")


# ---- while what is shared is away ----------------------------------------------------------------


class House:
    """One of several processes with a guard and counters in a Redis that may die."""

    def __init__(self, server: Redis, *, timeout_ms: int = 5000) -> None:
        self.clock, self.events = VirtualClock(NOON), Recorder()
        self.client = client_of(sections.Redis(url=server.url, timeout_ms=timeout_ms))
        own, shared = MemoryGuard(self.clock.now), RedisGuard(self.client, "test:")
        self.guard = TolerantGuard(shared, own, self.clock, self.events)
        counts, counters = MemoryCounters(self.clock.now), RedisCounters(self.client, "test:")
        self.counters = TolerantCounters(counters, counts, self.clock, self.events)


@pytest.fixture
async def house() -> AsyncIterator[tuple[House, House, Redis]]:
    with Redis() as server:
        one, other = House(server), House(server)
        yield one, other, server
        await one.client.aclose()
        await other.client.aclose()


@pytest.mark.req("R-17")
@pytest.mark.guarantee("C6")
async def test_without_redis_messages_are_dealt_with_at_least_once_and_that_is_said_once(
    house: tuple[House, House, Redis],
) -> None:
    one, other, server = house
    assert await one.guard.begin("results", "1") is Standing.NEW
    assert await other.guard.begin("results", "1") is Standing.IN_FLIGHT
    server.kill()

    assert await one.guard.begin("results", "1") is Standing.IN_FLIGHT
    assert await other.guard.begin("results", "1") is Standing.NEW
    assert await one.guard.begin("results", "2") is Standing.NEW
    await one.guard.processed("results", "2")
    assert await one.guard.begin("results", "2") is Standing.PROCESSED
    await one.guard.give_up("results", "1")
    assert await one.guard.begin("results", "1") is Standing.NEW
    assert one.events.names() == ["degraded"]

    server.start()
    one.clock.advance(10_000)
    assert await one.guard.begin("results", "3") is Standing.NEW
    assert await other.guard.begin("results", "4") is Standing.NEW
    assert one.events.names() == ["degraded", "degraded_no_more"]


@pytest.mark.guarantee("C6")
async def test_a_redis_that_was_emptied_does_not_make_a_process_forget(house: tuple[House, House, Redis]) -> None:
    one, other, _ = house
    await one.guard.begin("results", "1")
    await one.guard.processed("results", "1")
    await one.client.flushall()

    assert await one.guard.begin("results", "1") is Standing.PROCESSED
    assert await other.guard.begin("results", "1") is Standing.NEW


async def test_a_redis_that_does_not_answer_costs_its_patience_once_and_not_for_every_message(
    house: tuple[House, House, Redis],
) -> None:
    _, _, server = house
    impatient = House(server, timeout_ms=300)
    loop = asyncio.get_running_loop()
    with server.frozen():
        await impatient.guard.begin("results", "0")
        began = loop.time()
        for number in range(1, 100):
            await impatient.guard.begin("results", str(number))
        assert loop.time() - began < 3
    await impatient.client.aclose()


@pytest.mark.req("R-12")
@pytest.mark.guarantee("C6")
async def test_without_redis_each_process_counts_for_itself(house: tuple[House, House, Redis]) -> None:
    one, other, server = house
    assert [await one.counters.count("kernel", ttl_ms=30_000), await other.counters.count("kernel", ttl_ms=30_000)] == [
        1,
        2,
    ]
    server.kill()

    # In the strict direction: what it counted itself before is not forgotten.
    assert await one.counters.count("kernel", ttl_ms=30_000) == 2
    assert list(await other.counters.counted(["kernel"])) == [1]
    await one.counters.forget(["kernel"])
    assert list(await one.counters.counted(["kernel"])) == [0]
    assert "degraded" in one.events.names()
