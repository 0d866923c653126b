"""A node on a server goes by the clock of the server, whatever its own says."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gnomon.adapters.host import SystemClock
from gnomon.adapters.sql.connect import open_sqlite
from gnomon.app.node import Node
from gnomon.app.operations import Operations
from gnomon.app.stores import ConnectedStore
from gnomon.config.settings import load
from gnomon.core.jobs.job import read_job
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.model import Run
from gnomon.ports.runs import RunQuery
from gnomon.runners.registry import Functions
from gnomon.services.operations.tasks import TaskService
from gnomon.testing.clock import Recorder
from support.fleet_processes import wait_until

#: Far more than anybody minds, and less than what keeps a node from leading.
OFF_MS = 20_000
pytestmark = pytest.mark.guarantee("C10", "S16")


def _nothing() -> None:
    """Is all that there is to do."""


@asynccontextmanager
async def running(tmp_path: Path, ahead_ms: int) -> AsyncIterator[tuple[Node, Recorder]]:
    """A node that executes, on a store that others may share, and whose clock is so far ahead."""
    path = str(tmp_path / "gnomon.db")
    store = await open_sqlite(path, now=lambda: SystemClock().now() + ahead_ms)
    functions, events, stop = Functions(), Recorder(), asyncio.Event()
    functions.add(_nothing, "nothing")
    settings = load(flags={"database.url": f"sqlite:///{path}"})
    node = Node(ConnectedStore(store=store), settings, lock=None, events=events, functions=functions)
    await node.set_clock()
    work = asyncio.create_task(node.run(stop))
    try:
        yield node, events
    finally:
        stop.set()
        await work
        await node.close()


async def first_run(node: Node) -> Run:
    """The first run that is over, once there is one."""

    async def some() -> bool:
        return any(run.over for run in await node.store.executions.list_runs(RunQuery()))

    async with asyncio.timeout(60):
        await wait_until(some)
    return next(run for run in reversed(await node.store.executions.list_runs(RunQuery())) if run.over)


@pytest.mark.parametrize("ahead_ms", [OFF_MS, -OFF_MS])
async def test_what_is_asked_for_starts_at_once_and_is_written_down_by_the_clock_of_the_store(
    tmp_path: Path, ahead_ms: int
) -> None:
    async with running(tmp_path, ahead_ms) as (node, events):
        began = node.clock.elapsed()
        await TaskService(node.store.jobs, node.launcher, node.clock).submit({"function": "nothing"}, actor="ada")
        run = await first_run(node)
        took = node.clock.elapsed() - began
        [attempt] = await node.store.executions.attempts([one.task_id for one in await node.store.history.tasks([run])])

    assert attempt.started_at == pytest.approx(SystemClock().now() + ahead_ms, abs=OFF_MS // 2)
    assert took < OFF_MS / 2000
    assert events.names().count("clock_corrected") == 1


async def test_nothing_fires_before_its_time_by_the_clock_of_the_store(tmp_path: Path) -> None:
    async with running(tmp_path, -OFF_MS) as (node, _):
        said = {"name": "often", "schedule": "every second", "function": "nothing"}
        office = Operations(node.store, node.settings, clock=node.clock)
        await office.jobs.apply([read_job(said, Defaults(), now=node.clock.now())], actor="ada")
        node.check_soon()
        run = await first_run(node)
        now = await node.store.now()

    assert run.planned_at <= now
