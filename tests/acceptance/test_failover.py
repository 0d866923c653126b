"""Real processes on PostgreSQL: how soon others decide for one that was killed, or that stopped."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from gnomon.adapters.host import RandomIds, SystemClock
from gnomon.adapters.sql.connect import open_store
from gnomon.adapters.sql.schema import shard
from gnomon.adapters.sql.store import SqlStore
from gnomon.app.node import Node
from gnomon.app.settings import schedule_defaults
from gnomon.config.settings import load
from gnomon.core.ids import SHARDS
from gnomon.core.jobs.job import read_job
from gnomon.core.model import RunStatus
from gnomon.ports.runs import RunQuery
from gnomon.runners.registry import Functions
from gnomon.services.operations.jobs import JobService
from gnomon.testing.clock import Recorder
from support.postgres_server import postgres

pytestmark = [pytest.mark.req("H-16", "C-11"), pytest.mark.guarantee("C1"), pytest.mark.timeout(120)]

PROGRAM = Path(__file__).parents[1] / "support" / "node_process.py"
TTL_MS = 3000


class NodeProcesses:
    """Nodes in processes of their own, and the rows that say who holds what."""

    def __init__(self, url: str, store: SqlStore) -> None:
        self.ttl_ms = TTL_MS
        self.url = url
        self.store = store
        self.processes: list[subprocess.Popen[str]] = []

    async def start(self) -> "subprocess.Popen[str]":
        """One more, which has its share."""
        before = set((await self.holders()).values())
        process = subprocess.Popen(  # noqa: ASYNC220 - nobody else needs the loop meanwhile
            [sys.executable, PROGRAM, self.url, str(self.ttl_ms)], stdout=subprocess.PIPE, text=True
        )
        self.processes.append(process)

        async def shared() -> bool:
            holders = await self.holders()
            shares = [sum(one == name for one in holders.values()) for name in set(holders.values())]
            return len(holders) == SHARDS and len(shares) == len(before) + 1 and max(shares) - min(shares) <= SHARDS % 2

        await self.until(shared)
        return process

    async def holders(self) -> dict[int, str]:
        """The holder of each shard that is held."""
        engine = self.store.transactions

        def held(conn: object) -> dict[int, str]:
            rows = conn.execute(shard.select().where(shard.c.lease_until > engine.now(conn)))  # type: ignore[attr-defined,arg-type]
            return {row.shard: row.holder for row in rows}

        return await engine.read(held)

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> float:
        """How many seconds it took: they are other processes, so there is nothing to await."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while not await condition():  # noqa: ASYNC110 - what others do sets no event of ours
            await asyncio.sleep(0.01)
        return loop.time() - began

    async def until_one_has_all(self) -> float:
        async def one_has_all() -> bool:
            holders = await self.holders()
            return len(holders) == SHARDS and len(set(holders.values())) == 1

        return await self.until(one_has_all)


@pytest.fixture
async def fleet() -> AsyncIterator[NodeProcesses]:
    async with postgres(18).database() as url:
        store = await open_store(url)
        fleet = NodeProcesses(url, store)
        yield fleet
        for process in fleet.processes:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
        await store.close()


async def test_one_that_is_killed_is_succeeded_within_its_leases_and_half_a_second(fleet: NodeProcesses) -> None:
    await fleet.start()
    victim = await fleet.start()
    victim.kill()

    assert await fleet.until_one_has_all() < TTL_MS / 1000 + 0.5


async def test_one_that_stops_is_succeeded_in_less_than_a_second(fleet: NodeProcesses) -> None:
    # They renew every four seconds, and would find out then.
    fleet.ttl_ms = 16_000
    await fleet.start()
    leaving = await fleet.start()
    leaving.terminate()

    assert await fleet.until_one_has_all() < 1
    assert await asyncio.to_thread(leaving.wait, 20) == 0


async def test_one_that_stops_gives_its_shards_up_before_what_it_executes_has_ended(fleet: NodeProcesses) -> None:
    functions, begun, may_end = Functions(), threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        may_end.wait()

    functions.function("wait")(wait)
    settings = load(flags={"database.url": fleet.url, "worker.drain_ms": 60_000})
    node, stop = await Node.open(settings, events=Recorder(), functions=functions), asyncio.Event()
    running = asyncio.create_task(node.run(stop))
    job_service = JobService(node.store.jobs, node.store.schedules, node.store.history, SystemClock(), RandomIds())
    job = read_job({"name": "wait", "function": "wait"}, schedule_defaults(settings), now=SystemClock().now())
    await job_service.apply([job], actor="ada")
    await node.launcher.trigger("wait", actor="ada")
    await asyncio.to_thread(begun.wait)
    await fleet.until_one_has_all()
    stop.set()

    async def free() -> bool:
        return not await fleet.holders()

    # Sooner than its leases would end.
    assert await fleet.until(free) < 5
    assert not running.done()
    may_end.set()
    await running
    await node.close()
    [run] = await fleet.store.executions.list_runs(RunQuery())
    assert run.status is RunStatus.COMPLETED
