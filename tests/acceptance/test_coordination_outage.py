"""Faults of Redis and NATS change no decision: every second is decided once, by the holder of its shard."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from msgspec.structs import replace

from gnomon.adapters.host import RandomIds, SystemClock
from gnomon.adapters.nats.connection import connect
from gnomon.adapters.nats.leases import BUCKET
from gnomon.adapters.redis.connection import create_client
from gnomon.adapters.sql.connect import open_store
from gnomon.adapters.sql.store import SqlStore
from gnomon.app import coordination
from gnomon.app.node import Node
from gnomon.config.settings import Settings, load
from gnomon.core.model import Schedule, TickKind
from gnomon.services.operations.schedules import ScheduleService
from gnomon.testing.clock import Recorder
from support.effort import thorough
from support.nats_redis_servers import Nats, Redis
from support.postgres_server import postgres

pytestmark = [pytest.mark.guarantee("S1", "S2", "C1", "C5", "C6"), pytest.mark.req("R-15"), pytest.mark.timeout(120)]
SCHEDULES = 20
FOREVER = 1 << 62


class CoordinatedNodes:
    """Two nodes on one database, which share what Redis or NATS keeps."""

    def __init__(self, server: Nats | Redis, settings: Settings, store: SqlStore) -> None:
        self.server = server
        self.settings = settings
        self.store = store
        self.events = Recorder()

    async def wiped(self) -> None:
        """Everything that was kept is gone."""
        if isinstance(self.server, Redis):
            client = create_client(replace(self.settings.redis, timeout_ms=10_000))
            await client.flushall()
            await client.aclose()
        else:
            nats = await connect(replace(self.settings.nats, timeout_ms=10_000), Recorder(), name="operator")
            await nats.jetstream().delete_key_value(BUCKET)
            await nats.close()

    async def heard(self, event: str) -> None:
        while not any(name == event for name, _ in self.events.seen):  # noqa: ASYNC110 - a recorder tells nobody
            await asyncio.sleep(0.02)

    async def decided_for(self, seconds: int) -> None:
        """So many seconds from now are decided."""
        moment = SystemClock().now() + seconds * 1000
        while min(one.mark_at for one in await self.schedules()) < moment:  # noqa: ASYNC110 - others decide
            await asyncio.sleep(0.05)

    async def schedules(self) -> list[Schedule]:
        return list(await self.store.schedules.page("default", after="", limit=SCHEDULES))


@asynccontextmanager
async def running(settings: Settings, events: Recorder) -> AsyncIterator[Node]:
    node, stop = await Node.open(settings, events=events, dispatches=True), asyncio.Event()
    task = asyncio.create_task(node.run(stop))
    try:
        yield node
    finally:
        stop.set()
        await task
        await node.close()


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[Nats | Redis]:
    with request.param() as server:
        yield server


@pytest.fixture
async def fleet(server: Nats | Redis, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[CoordinatedNodes]:
    # Asked for four times a second, so that every loss is met.
    monkeypatch.setattr(coordination, "_SHORT_LEASE_MS", 1000)
    where = "redis" if isinstance(server, Redis) else "nats"
    async with postgres(18).database() as url, AsyncExitStack() as nodes:
        flags = {"database.url": url, f"{where}.url": server.url, f"{where}.timeout_ms": 500, "leader.ttl_ms": 3000}
        settings = load(flags=flags | {"leader.renew_interval_ms": 700})
        store = await open_store(url)
        schedules = ScheduleService(store.schedules, store.history, SystemClock(), RandomIds())
        spec = {"schedule": "* * * * * *", "workflow_id": "work", "overlap": "allow", "catchup": "all"}
        names = [f"job-{number}" for number in range(SCHEDULES)]
        await schedules.upsert_all([spec | {"schedule_id": name} for name in names], actor="test")
        fleet = CoordinatedNodes(server, settings, store)
        for _ in range(2):
            await nodes.enter_async_context(running(settings, fleet.events))
        yield fleet
        await nodes.aclose()
        await store.close()


async def assert_every_second_was_decided_once(fleet: CoordinatedNodes) -> None:
    for schedule in await fleet.schedules():
        ticks = await fleet.store.history.ticks(schedule.uid, before=FOREVER, limit=10_000)
        first = (schedule.created_at // 1000 + 1) * 1000
        # They go on deciding meanwhile.
        decided = sorted(tick.decision.planned_at for tick in ticks if tick.decision.planned_at <= schedule.mark_at)
        assert decided == list(range(first, schedule.mark_at + 1, 1000))
        assert {tick.decision.kind for tick in ticks} == {TickKind.FIRED}


async def wiped(fleet: CoordinatedNodes) -> None:
    await fleet.wiped()


async def killed(fleet: CoordinatedNodes) -> None:
    fleet.server.kill()
    await fleet.heard("degraded")
    await fleet.decided_for(2)
    fleet.server.start()
    await fleet.heard("degraded_no_more")


async def frozen(fleet: CoordinatedNodes) -> None:
    with fleet.server.frozen():
        await fleet.heard("degraded")
        await fleet.decided_for(2)
    await fleet.heard("degraded_no_more")


@pytest.mark.parametrize(
    ("server", "fault"),
    [
        (Nats, killed),
        (Redis, frozen),
        thorough(Redis, wiped),
        thorough(Nats, frozen),
        thorough(Nats, wiped),
        thorough(Redis, killed),
    ],
    indirect=["server"],
    ids=lambda one: str(one.__name__).lower(),
)
async def test_a_fault_of_coordination_changes_no_decision(
    fleet: CoordinatedNodes, fault: Callable[[CoordinatedNodes], Awaitable[None]]
) -> None:
    await fleet.decided_for(1)

    await fault(fleet)

    await fleet.decided_for(2)
    await assert_every_second_was_decided_once(fleet)
    assert "step_failed" not in fleet.events.names()
