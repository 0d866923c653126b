"""The maintenance of a node: damage in its file is repaired, old history is removed, and pings are sent."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from contracts.store import minutely
from gnomon.adapters.host import SystemClock
from gnomon.app.node import Node
from gnomon.config.settings import load
from gnomon.core.model import DAY_MS, RunId, RunSource
from gnomon.core.pings import Ping, PingMoment
from gnomon.core.runs.launch import LaunchRequest, new_requested_run
from gnomon.core.triggers import OnDemand
from gnomon.ports.schedules import JobChangeset
from gnomon.runners.registry import Functions
from gnomon.testing.clock import Recorder
from support.http_listener import HttpListener, listener
from support.row_editing import sql_row_editor
from support.task_steps import workflow

#: Everyone looks often, so that nobody has to wait.
SOON = {"cleaner.poll": "20ms", "reconciler.poll": "20ms", "reconciler.settled": "0s", "alive.poll": "20ms"}


class AwaitableRecorder(Recorder):
    """Events that can be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = asyncio.Event()

    def emit(self, name: str, **facts: object) -> None:
        super().emit(name, **facts)
        self._changed.set()

    async def until(self, name: str) -> dict[str, object]:
        while name not in self.names():
            self._changed.clear()
            await self._changed.wait()
        return next(facts for seen, facts in self.seen if seen == name)


class RunningNode:
    """A node at work."""

    def __init__(self, node: Node, events: AwaitableRecorder, heard: HttpListener) -> None:
        self.node, self.store, self.events, self.heard = node, node.store, events, heard
        self.plant = sql_row_editor(node.store)
        self.now = SystemClock().now()

    async def job(self, name: str, **changes: object) -> None:
        made = minutely(name, trigger=OnDemand(), mark=self.now)
        made = replace(made, next_fire_at=None)
        request = JobChangeset(workflows=[workflow("report", **changes)], added=[made])
        assert await self.store.jobs.apply(request, now=self.now, actor="ada", tzdata="")

    async def run(self, name: str, *, now: int) -> None:
        job = await self.store.schedules.find("default", "report")
        assert job is not None
        run = new_requested_run(RunId(name), job, source=RunSource.MANUAL, now=now)
        await self.store.runs.launch([LaunchRequest(run=run, first_steps=("main",))], now=now)


@pytest.fixture
async def setup(tmp_path: Path) -> AsyncIterator[RunningNode]:
    async with listener() as heard:
        functions = Functions()
        functions.function("reports.make")(lambda: "made")
        place = {"database.url": f"sqlite:///{tmp_path / 'gnomon.db'}"}
        alive = {
            "alive.ping_url": heard.url("/alive"),
            "alive.ping_every": "100ms",
            "security.allowed_hosts": "127.0.0.1",
        }
        settings, events = load(flags={**SOON, **place, **alive}), AwaitableRecorder()
        node = await Node.open(settings, events=events, functions=functions)
        stop = asyncio.Event()
        running = asyncio.create_task(node.run(stop))
        yield RunningNode(node, events, heard)
        stop.set()
        await running
        await node.close()


async def test_a_node_pings_while_it_lives_and_when_its_runs_end(setup: RunningNode) -> None:
    await setup.heard.until(2)
    assert set(setup.heard.calls) == {"/alive"}
    await setup.job("report", ping=Ping(url=setup.heard.url("/report"), on=tuple(PingMoment)))
    await setup.run("run_a", now=setup.now)
    setup.node.check_soon()

    async with setup.heard.called:
        await setup.heard.called.wait_for(lambda: {"/report/start", "/report"} <= set(setup.heard.calls))


async def test_a_node_mends_what_was_planted(setup: RunningNode) -> None:
    await setup.job("report")
    await setup.plant("schedule", "schedule_id", "report", "active_runs", 3)

    facts = await setup.events.until("vital_repaired")

    assert (facts["schedule"], facts["counted"], facts["found"]) == ("report", (3, 0), (0, 0))


@pytest.mark.req("R-07")
async def test_a_node_ends_a_run_whose_tasks_are_all_over(setup: RunningNode) -> None:
    await setup.job("report")
    later = setup.now + DAY_MS
    run = new_requested_run(
        RunId("run_a"),
        (await setup.store.schedules.find("default", "report")) or minutely(),
        source=RunSource.API,
        now=later,
    )
    await setup.store.runs.launch([LaunchRequest(run=run, first_steps=("main",))], now=setup.now)
    await setup.plant("task", "run_id", "run_a", "state", "SUCCEEDED")
    await setup.plant("run", "run_id", "run_a", "created_at", setup.now - DAY_MS)

    assert (await setup.events.until("run_mended"))["run"] == "run_a"


@pytest.mark.req("H-11")
async def test_a_node_lets_old_history_go(setup: RunningNode, tmp_path: Path) -> None:
    await setup.job("report", retention_days=1)
    await setup.run("run_old", now=setup.now - 30 * DAY_MS)
    setup.node.check_soon()
    await setup.events.until("task_succeeded")
    for column in ("completed_at", "planned_at"):
        await setup.plant("run", "run_id", "run_old", column, setup.now - 29 * DAY_MS)

    assert await setup.events.until("history_cleaned") == {"runs": 1}
    assert await setup.store.executions.find_run(RunId("run_old")) is None
    assert (tmp_path / "gnomon.db.archive").is_dir()
