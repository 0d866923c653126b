"""A bucket of leases in which somebody else writes costs time only. test_poisoned_redis.py has the same for Redis."""

import pytest

from contracts.store import NOON
from gnomon.adapters.memory import MemoryStore
from gnomon.adapters.nats.connection import connect
from gnomon.adapters.nats.leases import BUCKET, NatsLeases
from gnomon.config.sections import NatsSettings
from gnomon.services.coordination import LeasedSingletons
from gnomon.testing.clock import Recorder, VirtualClock
from support.nats_redis_servers import Nats

TTL = 8_000


@pytest.mark.guarantee("C6")
@pytest.mark.parametrize(
    "body", [b"somebody", b"", b"\xff\xfe", b"x" * 500_000], ids=["name", "empty", "bytes", "huge"]
)
async def test_a_lease_that_never_ends_stops_no_service_for_good(body: bytes) -> None:
    clock, events = VirtualClock(NOON), Recorder()
    store = MemoryStore(clock.now)
    with Nats() as nats:
        settings = NatsSettings(url=nats.url, timeout_ms=5_000)
        client = await connect(settings, events, name="nodes")
        leases = NatsLeases(client, settings)
        token = await leases.acquire("turn.reconciler", "first", ttl_ms=TTL)
        assert token is not None
        await leases.release("turn.reconciler", token)
        await client.jetstream().publish(f"$KV.{BUCKET}.turn=2Ereconciler", body)
        one, other = (LeasedSingletons(leases, store.singletons, clock, events) for _ in range(2))

        for _ in range(20):
            ours = await one.acquire_singleton("reconciler", "a", ttl_ms=TTL)
            assert not await other.acquire_singleton("reconciler", "b", ttl_ms=TTL)
            clock.advance(TTL // 4)

        assert ours
        await client.close()
