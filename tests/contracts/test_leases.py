"""Leases in memory, in NATS and in Redis keep one contract; and survive or lose leases with their server."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress

import pytest
from msgspec.structs import replace
from nats.js.errors import NotFoundError

from contracts.leases import TTL, LeaseContract, LetPass, taken
from gnomon.adapters.nats.connection import connect
from gnomon.adapters.nats.leases import BUCKET, NatsLeases
from gnomon.adapters.redis.connection import create_client
from gnomon.adapters.redis.coordination import RedisLeases
from gnomon.config import sections
from gnomon.errors import Unavailable, UsageError
from gnomon.ports.coordination import Leases
from gnomon.testing.clock import Recorder, VirtualClock
from support.memory_leases import MemoryLeases
from support.nats_redis_servers import Nats, Redis

NOON = 1_800_000_000_000
PATIENCE = 20


class VirtualClockContract(LeaseContract):
    @pytest.fixture
    def clock(self) -> VirtualClock:
        return VirtualClock(NOON)

    @pytest.fixture
    def let_pass(self, clock: VirtualClock) -> LetPass:
        async def let_pass(ms: int) -> None:
            clock.advance(ms)

        return let_pass


class TestMemoryLeases(VirtualClockContract):
    @pytest.fixture
    def leases(self, clock: VirtualClock) -> MemoryLeases:
        return MemoryLeases(clock.now)


class RealServerContract(LeaseContract):
    """The contract in real time."""

    @pytest.fixture
    def let_pass(self) -> LetPass:
        async def let_pass(ms: int) -> None:
            # The server's own clock has to move, and its timers may be late by a little.
            await asyncio.sleep((ms + 250) / 1000)

        return let_pass


@pytest.fixture(scope="module")
def nats_server() -> Iterator[Nats]:
    with Nats() as server:
        yield server


@pytest.fixture(scope="module")
def redis_server() -> Iterator[Redis]:
    with Redis() as server:
        yield server


@pytest.fixture
async def nats_leases(nats_server: Nats) -> AsyncIterator[NatsLeases]:
    settings = sections.NatsSettings(url=nats_server.url, storage="memory")
    client = await connect(settings, Recorder(), name="test")
    yield NatsLeases(client, settings)
    with suppress(NotFoundError):
        await client.jetstream().delete_key_value(BUCKET)
    await client.close()


@pytest.fixture
async def redis_leases(redis_server: Redis) -> AsyncIterator[RedisLeases]:
    client = create_client(sections.RedisSettings(url=redis_server.url))
    yield RedisLeases(client, "test:")
    await client.flushall()
    await client.aclose()


class TestNatsLeases(RealServerContract):
    @pytest.fixture
    def leases(self, nats_leases: NatsLeases) -> NatsLeases:
        return nats_leases


class TestRedisLeases(RealServerContract):
    @pytest.fixture
    def leases(self, redis_leases: RedisLeases) -> RedisLeases:
        return redis_leases


# ---- when the server fails -----------------------------------------------------------------------


async def renewed(leases: Leases, token: int) -> bool:
    """Whether the lease is still held, once the server answers."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return await leases.renew("k", token, ttl_ms=60_000) is not None
            except Unavailable:
                await asyncio.sleep(0.02)  # a server that is coming back says so to nobody


async def survives_a_kill(server: Nats | Redis, leases: Leases) -> None:
    """Check that a lease can neither be acquired nor renewed while the server is down, and is held afterwards."""
    token = await taken(leases, "k", "a", ttl_ms=60_000)
    server.kill()
    with pytest.raises(Unavailable):
        await leases.renew("k", token, ttl_ms=TTL)
    with pytest.raises(Unavailable):
        await leases.acquire("k", "b", ttl_ms=TTL)
    with pytest.raises(Unavailable):
        await leases.release("k", token)
    server.start()

    assert await renewed(leases, token)
    assert await leases.acquire("k", "b", ttl_ms=TTL) is None


async def nobody_holds(leases: Leases, token: int) -> None:
    """Check that the holder has lost the lease, notices that, and others can acquire it."""
    assert await leases.renew("k", token, ttl_ms=TTL) is None
    assert not await leases.release("k", token)
    await taken(leases, "k", "b")


@pytest.mark.guarantee("C5")
async def test_nats_may_be_killed_and_what_it_kept_is_still_held() -> None:
    with Nats() as server:
        settings = sections.NatsSettings(url=server.url, timeout_ms=3000)
        client = await connect(settings, Recorder(), name="test")
        leases = NatsLeases(client, settings)
        await survives_a_kill(server, leases)
        await client.close()


@pytest.mark.guarantee("C5")
async def test_a_bucket_that_is_deleted_takes_the_leases_along_and_is_made_again(nats_leases: NatsLeases) -> None:
    token = await taken(nats_leases, "k", "a")
    await nats_leases._stream.delete_key_value(BUCKET)  # noqa: SLF001 - as an operator would, by another way
    await nobody_holds(nats_leases, token)


@pytest.mark.req("R-20")
@pytest.mark.parametrize("service", ["nats", "redis"])
async def test_an_unresponsive_lease_service_is_awaited_no_longer_than_its_timeout(service: str) -> None:
    with Nats() if service == "nats" else Redis() as server:
        if service == "nats":
            patient = sections.NatsSettings(url=server.url, timeout_ms=60_000)
            nats = await connect(patient, Recorder(), name="test")
            leases: Leases = NatsLeases(nats, patient)
            impatient: Leases = NatsLeases(nats, replace(patient, timeout_ms=200))
            clients = [nats.close]
        else:
            redis = [create_client(sections.RedisSettings(url=server.url, timeout_ms=ms)) for ms in (60_000, 200)]
            leases, impatient = (RedisLeases(client, "test:") for client in redis)
            clients = [client.aclose for client in redis]
        token = await taken(leases, "k", "a", ttl_ms=60_000)
        with server.frozen():
            waits = asyncio.ensure_future(leases.acquire("third", "a", ttl_ms=60_000))
            with pytest.raises(Unavailable):
                await impatient.acquire("another", "a", ttl_ms=TTL)
            assert not waits.done()
        assert await waits is not None
        assert await renewed(leases, token)
        for close in clients:
            await close()


@pytest.mark.guarantee("C6")
async def test_redis_may_be_killed_and_what_it_kept_is_still_held() -> None:
    with Redis() as server:
        client = create_client(sections.RedisSettings(url=server.url, timeout_ms=3000))
        leases = RedisLeases(client, "test:")
        # The server has lost all data, scripts included.
        await survives_a_kill(server, leases)
        await client.aclose()


@pytest.mark.guarantee("C6")
async def test_flushall_frees_every_lease_and_breaks_nothing(redis_leases: RedisLeases) -> None:
    token = await taken(redis_leases, "k", "a")
    await redis_leases._client.flushall()  # noqa: SLF001 - as an operator would, by another way
    await nobody_holds(redis_leases, token)


@pytest.mark.guarantee("C6")
async def test_an_error_of_redis_is_unavailable(redis_leases: RedisLeases) -> None:
    await redis_leases._client.hset("test:lease:k", "not", "ours")  # noqa: SLF001 - another program's key

    assert await redis_leases.acquire("k", "a", ttl_ms=TTL) is None
    with pytest.raises(Unavailable, match="WRONGTYPE"):
        await redis_leases.renew("k", 1, ttl_ms=TTL)


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match=r"redis\.url"):
        create_client(sections.RedisSettings(url="localhost:6379"))
