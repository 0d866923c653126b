"""Deduplication in memory and in Redis keeps one contract; and continues locally while Redis is unavailable."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest

from gnomon.adapters.memory.deduplicator import MemoryDeduplicator
from gnomon.adapters.redis.connection import create_client
from gnomon.adapters.redis.coordination import RedisDeduplicator
from gnomon.config import sections
from gnomon.core.leases import LONGEST_KEY, SHORTEST_MS
from gnomon.errors import FieldError, Unavailable
from gnomon.ports.coordination import IN_FLIGHT_MS, PROCESSED_MS, Deduplicator, DedupState
from gnomon.services.coordination import FallbackDeduplicator
from gnomon.testing.clock import Recorder, VirtualClock
from support.nats_redis_servers import Redis

TTL = SHORTEST_MS
NOON = 1_800_000_000_000
Pass = Callable[[int], Awaitable[None]]


@pytest.mark.req("R-17")
class DeduplicatorContract(ABC):
    @pytest.fixture
    @abstractmethod
    def guard(self) -> Deduplicator: ...

    async def test_a_message_is_new_once_then_in_flight_then_processed(self, guard: Deduplicator) -> None:
        assert await guard.begin("results", "1") is DedupState.NEW
        assert await guard.begin("results", "1") is DedupState.IN_FLIGHT
        await guard.mark_processed("results", "1")
        assert await guard.begin("results", "1") is DedupState.PROCESSED

    async def test_consumers_deduplicate_independently(self, guard: Deduplicator) -> None:
        await guard.begin("results", "1")
        await guard.mark_processed("results", "1")

        assert await guard.begin("audit", "1") is DedupState.NEW
        assert await guard.begin("results:1", "1") is DedupState.NEW
        assert await guard.begin("results", "1:1") is DedupState.NEW

    async def test_of_twenty_concurrent_receivers_one_processes_a_message(self, guard: Deduplicator) -> None:
        found = await asyncio.gather(*(guard.begin("results", "1") for _ in range(20)))

        assert found.count(DedupState.NEW) == 1
        assert found.count(DedupState.IN_FLIGHT) == 19

    async def test_an_abandoned_message_is_new_again_but_a_processed_one_is_not(self, guard: Deduplicator) -> None:
        await guard.begin("results", "1")
        await guard.give_up("results", "1")
        assert await guard.begin("results", "1") is DedupState.NEW
        await guard.mark_processed("results", "1")
        await guard.give_up("results", "1")
        assert await guard.begin("results", "1") is DedupState.PROCESSED
        await guard.give_up("results", "unheard of")

    async def test_a_message_in_progress_is_reserved_for_a_while(self, guard: Deduplicator, let_pass: Pass) -> None:
        await guard.begin("results", "1", ttl_ms=TTL)
        await let_pass(TTL)

        assert await guard.begin("results", "1") is DedupState.NEW

    async def test_a_processed_message_is_remembered_as_long_as_it_may_be_redelivered(
        self, guard: Deduplicator, let_pass: Pass
    ) -> None:
        await guard.begin("results", "1", ttl_ms=TTL)
        await guard.mark_processed("results", "1", ttl_ms=3 * TTL)
        await let_pass(TTL)
        assert await guard.begin("results", "1") is DedupState.PROCESSED
        await let_pass(2 * TTL)
        assert await guard.begin("results", "1") is DedupState.NEW

    def test_the_times_are_those_of_the_seed(self) -> None:
        assert (PROCESSED_MS, IN_FLIGHT_MS) == (600_000, 120_000)

    @pytest.mark.parametrize("name", ["", "a\nb", "x" * (LONGEST_KEY + 1), None])
    async def test_an_invalid_name_is_refused(self, guard: Deduplicator, name: str) -> None:
        with pytest.raises(FieldError, match="consumer"):
            await guard.begin(name, "1")
        with pytest.raises(FieldError, match="message"):
            await guard.mark_processed("results", name)
        with pytest.raises(FieldError, match="message"):
            await guard.give_up("results", name)


# ---- adapters ------------------------------------------------------------------------------------


class TestInMemory(DeduplicatorContract):
    @pytest.fixture
    def clock(self) -> VirtualClock:
        return VirtualClock(NOON)

    @pytest.fixture
    def guard(self, clock: VirtualClock) -> Deduplicator:
        return MemoryDeduplicator(clock.now)

    @pytest.fixture
    def let_pass(self, clock: VirtualClock) -> Pass:
        async def let_pass(ms: int) -> None:
            clock.advance(ms)

        return let_pass

    async def test_of_too_many_the_oldest_are_forgotten(self, clock: VirtualClock) -> None:
        guard = MemoryDeduplicator(clock.now, most=3)
        for message in "abcd":
            await guard.mark_processed("results", message)

        assert await guard.begin("results", "d") is DedupState.PROCESSED
        assert await guard.begin("results", "a") is DedupState.NEW


@pytest.fixture(scope="module")
def server() -> Iterator[Redis]:
    with Redis() as server:
        yield server


class TestInRedis(DeduplicatorContract):
    @pytest.fixture
    async def guard(self, server: Redis) -> AsyncIterator[Deduplicator]:
        client = create_client(sections.RedisSettings(url=server.url))
        yield RedisDeduplicator(client, "test:")
        await client.flushall()
        await client.aclose()

    @pytest.fixture
    def let_pass(self) -> Pass:
        async def let_pass(ms: int) -> None:
            # The server's own clock has to move.
            await asyncio.sleep((ms + 20) / 1000)

        return let_pass

    async def test_a_foreign_value_is_no_answer(self, guard: Deduplicator, server: Redis) -> None:
        client = create_client(sections.RedisSettings(url=server.url))
        await client.set("test:seen:7:results:1", "nonsense")
        await client.aclose()

        with pytest.raises(Unavailable, match="not ours"):
            await guard.begin("results", "1")


# ---- while Redis is unavailable ------------------------------------------------------------------


class RedisClientProcess:
    """One of several processes with a deduplicator in a Redis that may die."""

    def __init__(self, server: Redis, *, timeout_ms: int = 5000) -> None:
        self.clock, self.events = VirtualClock(NOON), Recorder()
        self.client = create_client(sections.RedisSettings(url=server.url, timeout_ms=timeout_ms))
        own, shared = MemoryDeduplicator(self.clock.now), RedisDeduplicator(self.client, "test:")
        self.guard = FallbackDeduplicator(shared, own, self.clock, self.events)


@pytest.fixture
async def setup() -> AsyncIterator[tuple[RedisClientProcess, RedisClientProcess, Redis]]:
    with Redis() as server:
        one, other = RedisClientProcess(server), RedisClientProcess(server)
        yield one, other, server
        await one.client.aclose()
        await other.client.aclose()


@pytest.mark.req("R-17")
@pytest.mark.guarantee("C6")
async def test_without_redis_messages_are_processed_at_least_once_and_that_is_reported_once(
    setup: tuple[RedisClientProcess, RedisClientProcess, Redis],
) -> None:
    one, other, server = setup
    assert await one.guard.begin("results", "1") is DedupState.NEW
    assert await other.guard.begin("results", "1") is DedupState.IN_FLIGHT
    server.kill()

    assert await one.guard.begin("results", "1") is DedupState.IN_FLIGHT
    assert await other.guard.begin("results", "1") is DedupState.NEW
    assert await one.guard.begin("results", "2") is DedupState.NEW
    await one.guard.mark_processed("results", "2")
    assert await one.guard.begin("results", "2") is DedupState.PROCESSED
    await one.guard.give_up("results", "1")
    assert await one.guard.begin("results", "1") is DedupState.NEW
    assert one.events.names() == ["degraded"]

    server.start()
    one.clock.advance(10_000)
    assert await one.guard.begin("results", "3") is DedupState.NEW
    assert await other.guard.begin("results", "4") is DedupState.NEW
    assert one.events.names() == ["degraded", "degraded_no_more"]


@pytest.mark.guarantee("C6")
async def test_a_redis_that_was_emptied_does_not_make_a_process_forget(
    setup: tuple[RedisClientProcess, RedisClientProcess, Redis],
) -> None:
    one, other, _ = setup
    await one.guard.begin("results", "1")
    await one.guard.mark_processed("results", "1")
    await one.client.flushall()

    assert await one.guard.begin("results", "1") is DedupState.PROCESSED
    assert await other.guard.begin("results", "1") is DedupState.NEW


async def test_an_unresponsive_redis_costs_one_timeout_and_not_one_for_every_message(
    setup: tuple[RedisClientProcess, RedisClientProcess, Redis],
) -> None:
    _, _, server = setup
    impatient = RedisClientProcess(server, timeout_ms=300)
    loop = asyncio.get_running_loop()
    with server.frozen():
        await impatient.guard.begin("results", "0")
        began = loop.time()
        for number in range(1, 100):
            await impatient.guard.begin("results", str(number))
        assert loop.time() - began < 3
    await impatient.client.aclose()
