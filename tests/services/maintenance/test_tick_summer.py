"""The tick summer goes through all schedules, in small steps, and makes way for urgent writes."""

from pathlib import Path

import sqlalchemy as sa

from contracts.store import HOUR, NOON, ManualClock, minutely
from gnomon.adapters.sql import SqlStore
from gnomon.core.ids import SHARDS
from gnomon.core.ledger.plan import CatchupLimit, plan
from gnomon.core.model import Catchup, Overlap
from gnomon.services.coordination import AlwaysHeldSingleton
from gnomon.services.maintenance.tick_summer import TickSummer
from gnomon.services.observed_events import NullEvents
from support.sqlite_files import open_new_sqlite


class NotOurs(AlwaysHeldSingleton):
    retry_seconds = 2.5

    async def ours(self) -> bool:
        return False


async def summed(store: SqlStore) -> int:
    """How many schedules have days with sums."""
    query = sa.text("SELECT count(DISTINCT uid) FROM tick_day")
    return int(await store.transactions.read(lambda conn: conn.scalar(query)) or 0)


async def test_all_schedules_are_summed_up_in_steps_and_then_the_summer_waits(tmp_path: Path) -> None:
    store = await open_new_sqlite(tmp_path / "gnomon.db", now=lambda: ManualClock().now)
    schedules = [
        minutely(f"job{number:02}", overlap=Overlap.SKIP, catchup=Catchup.ALL, catchup_window_ms=100 * HOUR)
        for number in range(25)
    ]
    await store.schedules.add(schedules, actor="ada", tzdata="")
    terms = await store.shards.claim("node", ttl_ms=10_000, limit=SHARDS, by_force=True)
    now = NOON + 2 * HOUR
    await store.ledger.decide(
        [plan(one, now=now, limit=CatchupLimit(ticks=200)) for one in schedules], now=now, terms=terms
    )
    busy = True
    summer = TickSummer(store.calendar, NullEvents(), lease=AlwaysHeldSingleton(), busy=lambda: busy)
    other = TickSummer(store.calendar, NullEvents(), lease=NotOurs(), busy=lambda: False)

    assert await other.step() == 2.5
    # Of two steps one makes way.
    assert [await summer.step() for _ in range(4)] == [0.5, 0.05, 0.5, 0.05]
    assert await summed(store) == 0
    busy = False
    steps = 1
    while await summer.step() < 1:
        steps += 1

    assert await summed(store) == 25
    assert 6 <= steps <= 30
    steps = 1
    while await summer.step() < 1:
        steps += 1
    # Open quarters are looked at again in the next pass: those of the executions that have not ended.
    assert steps <= 15
    await store.close()
