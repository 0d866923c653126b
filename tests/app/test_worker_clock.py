"""A worker on a store goes by the clock of the store."""

import asyncio
from pathlib import Path

import pytest

from gnomon.adapters.host import SystemClock
from gnomon.adapters.sql.connect import open_sqlite
from gnomon.adapters.sql.store import SqlStore
from gnomon.app.stores import ConnectedStore
from gnomon.app.worker import WorkerOptions, WorkerProcess
from gnomon.config.settings import load
from gnomon.runners.registry import Functions
from gnomon.testing.clock import Recorder
from support.fleet_processes import wait_until

HOUR = 3_600_000


async def _anybody(store: SqlStore) -> bool:
    return bool(await store.workers.alive())


@pytest.mark.guarantee("C10", "S16")
@pytest.mark.parametrize("ahead", [HOUR, -HOUR, 0])
async def test_it_says_once_how_wrong_its_own_is(tmp_path: Path, ahead: int) -> None:
    path = str(tmp_path / "gnomon.db")
    store = await open_sqlite(path, now=lambda: SystemClock().now() + ahead)
    events, stop = Recorder(), asyncio.Event()
    settings = load(flags={"database.url": f"sqlite:///{path}"})
    shop = WorkerProcess(
        ConnectedStore(store=store, outbox=store.metrics_outbox),
        WorkerOptions(settings=settings, functions=Functions(), events=events),
    )
    work = asyncio.create_task(shop.run(stop))
    await wait_until(lambda: _anybody(store))
    stop.set()
    await work
    await shop.close()

    wrong = [facts["wrong_ms"] for name, facts in events.seen if name == "clock_corrected"]
    assert wrong == ([pytest.approx(-ahead, abs=5_000)] if ahead else [])
