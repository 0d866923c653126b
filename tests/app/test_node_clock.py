"""A node on a server goes by the clock of the server, whatever its own says."""

import asyncio
import time
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
from gnomon.core.instants import ms_of
from gnomon.core.jobs.job import read_job
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.model import Run
from gnomon.ports.runs import RunQuery
from gnomon.runners.context import Context
from gnomon.runners.registry import Functions
from gnomon.services.operations.tasks import TaskService
from gnomon.testing.clock import Recorder
from support.fleet_processes import wait_until
from support.postgres_server import postgres

#: Far more than anybody minds, and less than what keeps a node from leading.
OFF_MS = 20_000
pytestmark = pytest.mark.guarantee("C10", "S16")


def _nothing() -> None:
    """Is all that there is to do."""


class MachineClock:
    """The wall clock of this machine, as the program reads it. A test sets it; the database server keeps its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead_ms = 0
        monkeypatch.setattr(SystemClock, "now", lambda _: true_now() + self.ahead_ms)
        monkeypatch.setattr(SystemClock, "until", lambda _, at: (at - self.ahead_ms) / 1000 - time.time())


def true_now() -> int:
    """The time, whatever the clock of the program shows."""
    return time.time_ns() // 1_000_000


@asynccontextmanager
async def running(tmp_path: Path, ahead_ms: int) -> AsyncIterator[tuple[Node, Recorder]]:
    """A node that executes, on a store that others may share, and whose clock is so far ahead."""
    path = str(tmp_path / "gnomon.db")
    store = await open_sqlite(path, now=lambda: SystemClock().now() + ahead_ms)
    functions, events, stop = Functions(), Recorder(), asyncio.Event()
    functions.add(_nothing, "nothing")
    settings = load(flags={"database.url": f"sqlite:///{path}"})
    node = Node(
        ConnectedStore(store=store, outbox=store.metrics_outbox),
        settings,
        lock=None,
        events=events,
        functions=functions,
    )
    await node.clock_sync.step()
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
async def test_a_triggered_run_starts_at_once_and_is_dated_by_the_clock_of_the_store(
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
        operations = Operations(node.store, node.settings, clock=node.clock)
        await operations.jobs.apply([read_job(said, Defaults(), now=node.clock.now())], actor="ada")
        node.check_soon()
        run = await first_run(node)
        now = await node.store.now()

    assert run.planned_at <= now


@pytest.mark.guarantee("C10", "S1", "S2", "S3", "S16")
async def test_a_clock_that_is_set_for_some_seconds_on_one_server_makes_no_body_early_and_no_schedule_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, stop, functions = MachineClock(monkeypatch), asyncio.Event(), Functions()
    early, events = list[int](), Recorder()

    async def body(context: Context) -> None:
        early.append(ms_of(context.planned_at) - true_now())

    functions.add(body, "body")
    jobs = [
        {"name": f"{catchup}", "schedule": "every second", "function": "body", "catchup": catchup, "overlap": "allow"}
        for catchup in ("none", "latest", "all", "spread")
    ]
    async with postgres(18).database() as url:
        settings = load(flags={"database.url": url, "ticker.lookahead": "1s"})
        node = await Node.open(settings, events=events, functions=functions)
        operations = Operations(node.store, node.settings, clock=node.clock)
        await operations.jobs.apply([read_job(one, Defaults(), now=node.clock.now()) for one in jobs], actor="ada")
        work = asyncio.create_task(node.run(stop))
        async with asyncio.timeout(120):
            await _longer(early, by=8)
            clock.ahead_ms = 3_600_000
            # Only until it is noticed: a node whose clock stays wrong gives up its shards.
            await _emitted(events, "clock_corrected")
            clock.ahead_ms = 0
            await _longer(early, by=8)
        stop.set()
        await work
        schedules = [await node.store.schedules.find("default", one["name"]) for one in jobs]
        ticks = [await node.store.history.ticks(one.uid, before=1 << 60, limit=1000) for one in schedules if one]
        ended_at = true_now()
        await node.close()

    assert max(early) <= 0
    assert all(one is not None and one.mark_at <= ended_at for one in schedules)
    for decided in ticks:
        covered = [at for tick in decided for at in range(tick.decision.planned_at, tick.decision.last_at + 1, 1000)]
        assert sorted(covered) == list(range(min(covered), max(covered) + 1, 1000))


async def _emitted(events: Recorder, name: str) -> None:
    """Return once there was such an event."""

    async def there() -> bool:
        return name in events.names()

    await wait_until(there)


async def _longer(entries: list[int], *, by: int) -> None:
    """Return once the list has so many more entries."""
    wanted = len(entries) + by

    async def long_enough() -> bool:
        return len(entries) >= wanted

    await wait_until(long_enough)
