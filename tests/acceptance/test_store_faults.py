"""The real ticker on a real file that is full, read-only or locked by another: it costs time, never a tick."""

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from contracts.store import MINUTE, NOON, minutely
from gnomon.adapters.sql import sqlite
from gnomon.adapters.sql.connect import open_sqlite
from gnomon.adapters.sql.store import SqlStore
from gnomon.config.sections import LeaderSettings, TickerSettings
from gnomon.core.model import Catchup, Overlap
from gnomon.services.scheduling.elector import Elector
from gnomon.services.scheduling.ticker import Ticker, TickerHealth
from gnomon.testing.clock import Recorder, VirtualClock
from support.sqlite_files import new_sqlite_file

pytestmark = pytest.mark.guarantee("E4", "S1", "S2")

SCHEDULES = [minutely(f"job-{i}", overlap=Overlap.ALLOW, catchup=Catchup.ALL) for i in range(200)]


class TickerOnFile:
    """A ticker on a file."""

    def __init__(self, store: SqlStore, clock: VirtualClock) -> None:
        self.store, self.clock, self.events = store, clock, Recorder()
        elector = Elector(store.shards, clock, self.events, LeaderSettings(), holder="node")
        self.ticker = Ticker(store.ledger, elector, clock, self.events, TickerSettings(), on_runs_created=lambda: None)

    async def pass_minutes(self, minutes: int) -> None:
        """Let time pass, stepping every second."""
        for _ in range(minutes * 60):
            self.clock.advance(1000)
            while not await self.ticker.step():
                pass

    async def planned(self) -> set[tuple[int, ...]]:
        """The minutes after noon that were decided, for each schedule."""
        found = set()
        for schedule in SCHEDULES:
            ticks = await self.store.history.ticks(schedule.uid, before=1 << 60, limit=1000)
            runs = await self.store.history.runs(schedule.uid, before=1 << 60, limit=1000)
            assert [tick.run_id for tick in ticks] == [run.run_id for run in runs]
            found.add(tuple((tick.decision.planned_at - NOON) // MINUTE for tick in reversed(ticks)))
        return found


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[TickerOnFile]:
    clock = VirtualClock(NOON)
    store = await open_sqlite(str(new_sqlite_file(tmp_path / "gnomon.db")), now=clock.now)
    await store.schedules.add(SCHEDULES, actor="ada", tzdata="")
    yield TickerOnFile(store, clock)
    await store.close()


async def hurt(store: SqlStore, monkeypatch: pytest.MonkeyPatch, pragma: str, value: str) -> None:
    """Tell the writer's connection, and every one that it may open after a failure."""

    def tell(conn: sa.Connection) -> None:
        conn.exec_driver_sql(f"PRAGMA {pragma} = {value}")

    monkeypatch.setitem(sqlite.PRAGMAS, pragma, value)
    await store.transactions.write(tell)


async def test_a_full_disk_stops_nothing_but_time(world: TickerOnFile, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.pass_minutes(2)
    await hurt(world.store, monkeypatch, "max_page_count", "1")  # no more pages than there are

    await world.pass_minutes(3)
    during = world.ticker.health
    decided = await world.planned()
    monkeypatch.undo()
    await world.pass_minutes(1)

    assert during == TickerHealth.ERROR
    assert max(map(len, decided)) < 5
    assert world.ticker.health == TickerHealth.OK
    assert await world.planned() == {(1, 2, 3, 4, 5, 6)}


async def test_a_file_that_cannot_be_written_stops_nothing_but_time(
    world: TickerOnFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.pass_minutes(1)
    await hurt(world.store, monkeypatch, "query_only", "1")

    await world.pass_minutes(2)
    during = world.ticker.health
    monkeypatch.undo()
    await world.pass_minutes(1)

    assert during == TickerHealth.ERROR
    assert await world.planned() == {(1, 2, 3, 4)}


async def test_a_writer_that_holds_the_file_stops_nothing_but_time(
    world: TickerOnFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.pass_minutes(1)
    await hurt(world.store, monkeypatch, "busy_timeout", "20")
    rival = sqlite3.connect(tmp_path / "gnomon.db", isolation_level=None)
    rival.execute("BEGIN IMMEDIATE")

    world.clock.advance(MINUTE)
    wait = await world.ticker.step()
    during = world.ticker.health
    rival.execute("ROLLBACK")
    rival.close()
    await world.pass_minutes(1)

    assert (during, wait > 0) == (TickerHealth.ERROR, True)
    assert await world.planned() == {(1, 2, 3)}
