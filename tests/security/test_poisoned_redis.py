"""A Redis in which somebody else writes costs time, and neither a result nor a run.

Every kind of poison is there before the report that it is about. A fleet of processes shows the two that once lost
results: marks of processed reports, and leases that are never given back.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import gnomon
from contracts.store import NOON
from gnomon.adapters.memory import MemoryStore
from gnomon.adapters.redis.connection import create_client
from gnomon.adapters.redis.coordination import RedisDeduplicator, RedisLeases
from gnomon.config.sections import RedisSettings
from gnomon.core.model import Result, RunStatus
from gnomon.core.runs.workflow import Delivery
from gnomon.core.subjects import SCHEDULERS
from gnomon.services.coordination import FallbackDeduplicator, LeasedSingletons
from gnomon.testing.clock import Recorder, VirtualClock
from support.fleet_harness import FleetHarness
from support.fleet_processes import remote_worker, server
from support.nats_redis_servers import Redis
from support.nats_users import nats_with_users
from support.postgres_server import postgres
from support.task_steps import workflow

if TYPE_CHECKING:
    from redis.asyncio import Redis as Client

    Poison = Callable[[Client, str], Awaitable[object]]

HUGE = 8 * 2**20
SECOND = 1_000
PREFIX = "gnomon:"
#: The first word of the name of a report's key; see RedisDeduplicator.
SEEN = f"{PREFIX}seen:{len(SCHEDULERS)}:{SCHEDULERS}:"
SINGLETONS = ("reconciler", "mender", "warden", "cleaner", "gatherer", "backfiller", "sealer", "announcer")


@pytest.fixture(scope="module")
def redis() -> Iterator[Redis]:
    with Redis() as running:
        yield running


@pytest.fixture
async def client(redis: Redis) -> "AsyncIterator[Client]":
    client = create_client(RedisSettings(url=redis.url, timeout_ms=10_000))
    yield client
    await client.flushall()
    await client.aclose()


POISONS: "dict[str, Poison]" = {
    "processed": lambda client, key: client.set(key, "processed"),
    "in flight for ever": lambda client, key: client.set(key, "in_flight"),
    "another word": lambda client, key: client.set(key, "nonsense"),
    "nothing": lambda client, key: client.set(key, ""),
    "bytes": lambda client, key: client.set(key, b"\xff\xfe"),
    "a huge value": lambda client, key: client.set(key, b"x" * HUGE),
    "a list": lambda client, key: client.rpush(key, "processed"),
    "a hash": lambda client, key: client.hset(key, "processed", "1"),
    "a stream": lambda client, key: client.xadd(key, {"processed": "1"}),
}


@pytest.mark.guarantee("C6")
@pytest.mark.parametrize("delivery", Delivery)
@pytest.mark.parametrize("poison", POISONS.values(), ids=list(POISONS))
async def test_a_poisoned_mark_loses_no_result_and_doubles_no_run(
    client: "Client", poison: "Poison", delivery: Delivery
) -> None:
    fleet = FleetHarness()
    shared = RedisDeduplicator(client, PREFIX)
    fleet.deduplicator = FallbackDeduplicator(shared, fleet.deduplicator, fleet.clock, fleet.events)
    fleet.publisher, fleet.consumer = fleet.new_server()
    await fleet.open()
    for number in range(1, 5):
        await poison(client, f"{SEEN}{fleet.remote_worker.worker}:{number}")
    run = await fleet.run(await fleet.job(workflow(delivery=delivery)))

    await fleet.run_cycle()
    starts = len(fleet.remote_runner.started)
    fleet.remote_runner.end_all(output=b'"honest"')
    await fleet.remote_worker.step()
    for _ in range(12):
        await fleet.collect_reports()
        fleet.clock.advance(SECOND)
        await fleet.remote_worker.heartbeat.send()
        await fleet.reconciler.step()

    [attempt] = await fleet.attempts_of(run)
    assert (starts, attempt.result, (await fleet.now(run)).status) == (1, Result.SUCCEEDED, RunStatus.COMPLETED)
    assert not fleet.bus.reports.messages


@pytest.mark.guarantee("C6")
@pytest.mark.parametrize("poison", POISONS.values(), ids=list(POISONS))
async def test_a_poisoned_lease_stops_no_service_for_good(client: "Client", poison: "Poison") -> None:
    clock, events = VirtualClock(NOON), Recorder()
    store = MemoryStore(clock.now)
    one, other = (LeasedSingletons(RedisLeases(client, PREFIX), store.singletons, clock, events) for _ in range(2))
    await poison(client, f"{PREFIX}lease:turn.reconciler")

    for _ in range(20):
        ours = await one.acquire_singleton("reconciler", "a", ttl_ms=8 * SECOND)
        assert not await other.acquire_singleton("reconciler", "b", ttl_ms=8 * SECOND)
        clock.advance(2 * SECOND)

    assert ours


@pytest.mark.thorough
def test_a_fleet_with_a_poisoned_redis_executes_every_run_once(redis: Redis, tmp_path: Path) -> None:
    asyncio.run(_fleet_with_poisoned_redis(redis, tmp_path / "witness"))


async def _fleet_with_poisoned_redis(redis: Redis, witness: Path) -> None:
    environment = {
        "GNOMON_METRICS__ENABLED": "false", "GNOMON_REDIS__URL": redis.url, "GNOMON_WITNESS": str(witness),
    }  # fmt: skip
    client = create_client(RedisSettings(url=redis.url))
    for name in SINGLETONS:
        await client.set(f"{PREFIX}lease:turn.{name}", "7 somebody")
    async with postgres(18).database() as url:
        with ExitStack() as stack:
            nats = stack.enter_context(nats_with_users())
            serving = await asyncio.to_thread(stack.enter_context, server(url, nats, **environment))
            api = stack.enter_context(gnomon.Client(serving.line_with("answering on ").split()[-1]))
            doomed = await asyncio.to_thread(stack.enter_context, remote_worker(nats, **environment))
            await _register(api)
            [card] = api.workers()
            for number in range(1, 200):
                await client.set(f"{SEEN}{card.worker}:{number}", "processed")

            # The store, not Redis, knows that these have not ended.
            once = [api.trigger("once").execution_id for _ in range(5)]
            assert {(await asyncio.to_thread(api.finished, run, timeout=30)).status for run in once} == {"completed"}

            # The reconciler works although its lease in Redis belongs to nobody and never ends.
            lost = api.trigger("long").execution_id
            while f"start long {lost} " not in read_text(witness):  # noqa: ASYNC110 - in another process
                await asyncio.sleep(0.02)
            doomed.kill()
            await asyncio.to_thread(stack.enter_context, remote_worker(nats, **environment))
            done = await asyncio.to_thread(api.finished, lost, timeout=40)
            assert [one.result for one in done.steps[0].attempts] == ["lost", "succeeded"]
    await client.flushall()
    await client.aclose()
    starts = [line.split()[2] for line in read_text(witness).splitlines() if line.startswith("start once ")]
    assert sorted(starts) == sorted(once)


def read_text(witness: Path) -> str:
    return witness.read_text()


async def _register(api: gnomon.Client) -> None:
    while not api.workers():  # noqa: ASYNC110 - in another process
        await asyncio.sleep(0.02)
    once = {"function": "witness/coroutine", "overlap": "allow", "delivery": "at_most_once"}
    api.register({"name": "once", **once})
    api.register({"name": "long", "function": "witness/thread", "input": {"seconds": 0.5}})
