"""A node keeps its house: what is planted in its file is mended, what is old is gone, and others hear that it lives."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from contracts.store import minutely
from gnomon.adapters.host import SystemClock
from gnomon.app.node import Node
from gnomon.config.settings import load
from gnomon.core.model import DAY_MS, RunId, Source
from gnomon.core.pings import Moment, Ping
from gnomon.core.runs.launch import Launch, wanted_run
from gnomon.core.triggers import OnDemand
from gnomon.ports.schedules import Application
from gnomon.runners.registry import Functions
from gnomon.testing.clock import Recorder
from support.labour import workflow
from support.listener import Listener, listener
from support.planting import planting

#: Everyone looks often, so that nobody has to wait.
SOON = {"cleaner.poll": "20ms", "reconciler.poll": "20ms", "reconciler.settled": "0s", "alive.poll": "20ms"}


class Announced(Recorder):
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


class House:
    """A node at work."""

    def __init__(self, node: Node, events: Announced, heard: Listener) -> None:
        self.node, self.store, self.events, self.heard = node, node.store, events, heard
        self.plant = planting(node.store)
        self.now = SystemClock().now()

    async def job(self, name: str, **changes: object) -> None:
        made = minutely(name, trigger=OnDemand(), mark=self.now)
        made = replace(made, next_fire_at=None)
        wish = Application(workflows=[workflow("report", **changes)], added=[made])
        assert await self.store.apply(wish, now=self.now, actor="ada", tzdata="")

    async def run(self, name: str, *, now: int) -> None:
        job = await self.store.find("default", "report")
        assert job is not None
        run = wanted_run(RunId(name), job, source=Source.MANUAL, now=now)
        await self.store.launch([Launch(run=run, first_steps=("main",))], now=now)


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with listener() as heard:
        functions = Functions()
        functions.function("reports.make")(lambda: "made")
        place = {"database.url": f"sqlite:///{tmp_path / 'gnomon.db'}"}
        alive = {"alive.ping_url": heard.url("/alive"), "alive.ping_every": "100ms"}
        settings, events = load(flags={**SOON, **place, **alive}), Announced()
        node = await Node.open(settings, events=events, functions=functions)
        stop = asyncio.Event()
        running = asyncio.create_task(node.run(stop))
        yield House(node, events, heard)
        stop.set()
        await running
        await node.close()


async def test_a_node_tells_others_that_it_lives_and_how_its_runs_end(house: House) -> None:
    await house.heard.until(2)
    assert set(house.heard.calls) == {"/alive"}
    await house.job("report", ping=Ping(url=house.heard.url("/report"), on=tuple(Moment)))
    await house.run("run_a", now=house.now)
    house.node.look()

    async with house.heard.called:
        await house.heard.called.wait_for(lambda: {"/report/start", "/report"} <= set(house.heard.calls))


async def test_a_node_mends_what_was_planted(house: House) -> None:
    await house.job("report")
    await house.plant("schedule", "schedule_id", "report", "active_runs", 3)

    facts = await house.events.until("vital_repaired")

    assert (facts["schedule"], facts["counted"], facts["found"]) == ("report", (3, 0), (0, 0))


@pytest.mark.req("R-07")
async def test_a_node_ends_a_run_whose_tasks_are_all_over(house: House) -> None:
    await house.job("report")
    later = house.now + DAY_MS
    run = wanted_run(
        RunId("run_a"), (await house.store.find("default", "report")) or minutely(), source=Source.API, now=later
    )
    await house.store.launch([Launch(run=run, first_steps=("main",))], now=house.now)
    await house.plant("task", "run_id", "run_a", "state", "SUCCEEDED")
    await house.plant("run", "run_id", "run_a", "created_at", house.now - DAY_MS)

    assert (await house.events.until("run_mended"))["run"] == "run_a"


@pytest.mark.req("H-11")
async def test_a_node_lets_old_history_go(house: House, tmp_path: Path) -> None:
    await house.job("report", retention_days=1)
    await house.run("run_old", now=house.now - 30 * DAY_MS)
    house.node.look()
    await house.events.until("task_succeeded")
    for column in ("completed_at", "planned_at"):
        await house.plant("run", "run_id", "run_old", column, house.now - 29 * DAY_MS)

    assert await house.events.until("history_cleaned") == {"runs": 1}
    assert await house.store.find_run(RunId("run_old")) is None
    assert (tmp_path / "gnomon.db.archive").is_dir()
