"""The locks of jobs in NATS and Redis, read as other programs read them: through another client, by their keys."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress

import msgspec
import pytest
from msgspec.structs import replace
from nats.js.errors import KeyNotFoundError, NotFoundError

from gnomon.adapters.nats.connection import connect
from gnomon.adapters.nats.leases import BUCKET, LazyNatsLeases
from gnomon.adapters.redis.connection import create_client
from gnomon.adapters.redis.coordination import RedisJobLocks
from gnomon.config import sections
from gnomon.core.model import RunId
from gnomon.core.runs.job_lock import RunLock
from gnomon.errors import Unavailable
from gnomon.ports.coordination import PublishedLocks
from gnomon.testing.clock import Recorder
from support.nats_redis_servers import Nats, Redis

pytestmark = pytest.mark.req("H-06")
NOON = 1_800_000_000_000
PREFIX = "gnomon:"
LOCK = RunLock(tenant="default", job="report", execution_id=RunId("run_1"), acquired_at=NOON, ttl_ms=90_000)
#: Names with every character that a subject, a wildcard or a key of another tenant could be made of.
HOSTILE = ("a.b", "*", ">", "a b", "scheduler.lock.report", "é\u2028x", "=41", "a/b:c", "$KV", "x" * 200)


class LockServer(ABC):
    """A server that keeps published locks, and another program that reads them."""

    server: Nats | Redis
    locks: PublishedLocks

    @abstractmethod
    async def read(self, key: str) -> bytes | None:
        """The value of the key; None if there is none."""

    @abstractmethod
    async def wipe(self) -> None:
        """Remove everything, as an operator may."""

    @abstractmethod
    async def close(self) -> None:
        """Close the connections."""

    async def reads(self, key: str) -> object:
        value = await self.read(key)
        return None if value is None else msgspec.json.decode(value)


class NatsLockServer(LockServer):
    def __init__(self, server: Nats) -> None:
        self.server = server
        self.settings = sections.NatsSettings(url=server.url, timeout_ms=1_000)
        self.locks = self._leases = LazyNatsLeases(self.settings, Recorder())

    async def read(self, key: str) -> bytes | None:
        client = await connect(replace(self.settings, timeout_ms=10_000), Recorder(), name="reader")
        try:
            bucket = await client.jetstream().key_value(BUCKET)
            # The mark of an expired key has no value.
            return (await bucket.get(key)).value or None
        except (KeyNotFoundError, NotFoundError):
            return None
        finally:
            await client.close()

    async def wipe(self) -> None:
        client = await connect(self.settings, Recorder(), name="operator")
        await client.jetstream().delete_key_value(BUCKET)
        await client.close()

    async def close(self) -> None:
        with suppress(NotFoundError, Unavailable):
            await self.wipe()
        await self._leases.close()


class RedisLockServer(LockServer):
    def __init__(self, server: Redis) -> None:
        self.server = server
        self._client = create_client(sections.RedisSettings(url=server.url, timeout_ms=1_000))
        self._reader = create_client(sections.RedisSettings(url=server.url, timeout_ms=10_000))
        self.locks = RedisJobLocks(self._client, PREFIX)

    async def read(self, key: str) -> bytes | None:
        value = await self._reader.get(PREFIX + key)
        return None if value is None else str(value).encode()

    async def wipe(self) -> None:
        await self._reader.flushall()

    async def close(self) -> None:
        await self.wipe()
        for client in (self._client, self._reader):
            await client.aclose()


@pytest.fixture(scope="module")
def nats_server() -> Iterator[Nats]:
    with Nats() as server:
        yield server


@pytest.fixture(scope="module")
def redis_server() -> Iterator[Redis]:
    with Redis() as server:
        yield server


@pytest.fixture(params=["nats", "redis"])
async def lock_server(request: pytest.FixtureRequest) -> AsyncIterator[LockServer]:
    server = request.getfixturevalue(f"{request.param}_server")
    lock_server = NatsLockServer(server) if isinstance(server, Nats) else RedisLockServer(server)
    yield lock_server
    await lock_server.close()


async def until_gone(lock_server: LockServer, key: str) -> None:
    async with asyncio.timeout(30):
        while await lock_server.read(key) is not None:  # noqa: ASYNC110 - see below
            await asyncio.sleep(0.1)  # a server tells nobody that a key has expired


async def test_a_lock_is_read_by_its_key_until_it_is_withdrawn(lock_server: LockServer) -> None:
    await lock_server.locks.publish(LOCK)

    assert await lock_server.reads("scheduler.lock.report") == {
        "execution_id": "run_1",
        "acquired_at": "2027-01-15T08:00:00Z",
        "ttl": 90,
    }
    await lock_server.locks.publish(LOCK)
    await lock_server.locks.withdraw(LOCK)
    assert await lock_server.read("scheduler.lock.report") is None
    await lock_server.locks.withdraw(LOCK)


async def test_a_lock_that_nobody_renews_expires_and_one_that_is_renewed_stays(lock_server: LockServer) -> None:
    lost, renewed = replace(LOCK, job="lost", ttl_ms=1_000), replace(LOCK, job="renewed", ttl_ms=1_000)
    await lock_server.locks.publish(lost)
    await lock_server.locks.publish(renewed)
    await lock_server.locks.publish(replace(renewed, ttl_ms=60_000))

    await until_gone(lock_server, "scheduler.lock.lost")

    assert await lock_server.read("scheduler.lock.renewed") is not None


async def test_the_lock_of_a_later_execution_is_not_withdrawn(lock_server: LockServer) -> None:
    later = replace(LOCK, execution_id=RunId("run_2"))
    await lock_server.locks.publish(LOCK)
    await lock_server.locks.publish(later)

    await lock_server.locks.withdraw(LOCK)

    found = await lock_server.reads("scheduler.lock.report")
    assert isinstance(found, dict)
    assert found["execution_id"] == "run_2"


async def test_every_name_of_a_job_has_a_key_of_its_own(lock_server: LockServer) -> None:
    locks = [replace(LOCK, job=name, execution_id=RunId(f"run_{n}")) for n, name in enumerate(HOSTILE)]
    locks += [
        replace(LOCK, tenant="a", job="b", execution_id=RunId("run_of_a")),
        replace(LOCK, tenant="other", job="report", execution_id=RunId("run_of_other")),
    ]
    for lock in locks:
        await lock_server.locks.publish(lock)

    for lock in locks:
        found = await lock_server.reads(lock.published_key)
        assert isinstance(found, dict)
        assert found["execution_id"] == lock.execution_id
    assert await lock_server.read("scheduler.lock.report") is None


async def test_a_killed_lock_server_is_unavailable_and_written_again_when_it_is_back(
    lock_server: LockServer,
) -> None:
    await lock_server.locks.publish(LOCK)
    lock_server.server.kill()
    with pytest.raises(Unavailable):
        await lock_server.locks.publish(LOCK)
    with pytest.raises(Unavailable):
        await lock_server.locks.withdraw(LOCK)
    lock_server.server.start()

    async with asyncio.timeout(30):
        while True:
            try:
                await lock_server.locks.publish(LOCK)
                break
            except Unavailable:
                await asyncio.sleep(0.05)  # a server that is coming back says so to nobody

    assert await lock_server.read("scheduler.lock.report") is not None


async def test_a_lock_server_that_lost_its_data_is_written_again(lock_server: LockServer) -> None:
    await lock_server.locks.publish(LOCK)
    await lock_server.wipe()

    await lock_server.locks.withdraw(replace(LOCK, job="another"))
    await lock_server.locks.publish(LOCK)

    assert await lock_server.read("scheduler.lock.report") is not None
