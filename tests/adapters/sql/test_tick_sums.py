"""Sums of ticks: a calendar that is read from them has the same numbers as one that counts tick by tick."""

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from contracts.store import HOUR, MINUTE, NOON, ManualClock, minutely
from gnomon.adapters.sql import SqlStore, open_postgres
from gnomon.core.cron import Cron
from gnomon.core.ids import SHARDS
from gnomon.core.instants import FOREVER
from gnomon.core.ledger.calendar import CellKind, ColumnSpan, cell_kind
from gnomon.core.ledger.plan import CatchupLimit, plan
from gnomon.core.ledger.ticks import Ticks
from gnomon.core.model import Catchup, Overlap, Result, Schedule, TickKind
from gnomon.ports.maintenance import RetentionBatch, RetentionKind
from gnomon.services.loop import ComputeQueue
from gnomon.services.operations.calendar import CalendarQuery, CalendarService
from gnomon.testing.clock import VirtualClock
from support.postgres_server import postgres
from support.sqlite_files import open_new_sqlite
from support.task_steps import finish_run, runs_of

MANY = CatchupLimit(ticks=10_000)
ALL: dict[str, Any] = {"catchup": Catchup.ALL, "catchup_window_ms": 90 * 24 * HOUR}


@pytest.fixture(params=["sqlite", 18], ids=str)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SqlStore]:
    if request.param == "sqlite":
        store = await open_new_sqlite(tmp_path / "gnomon.db", now=lambda: ManualClock().now)
        yield store
        await store.close()
        return
    async with postgres(request.param).database() as url:
        store = await open_postgres(url)
        yield store
        await store.close()


async def decide(store: SqlStore, schedule: Schedule, now: int) -> None:
    """Decide every due tick of the schedule."""
    terms = await store.shards.claim("node", ttl_ms=10_000, limit=SHARDS, by_force=True)
    current = await store.schedules.find("default", schedule.schedule_id)
    assert current is not None
    assert await store.ledger.decide([plan(current, now=now, limit=MANY)], now=now, terms=terms)


async def sum_up(store: SqlStore) -> int:
    """Sum up everything that can be; return how many ticks were counted."""
    counted, again, after = 0, True, ""
    while again or after:
        done = await store.calendar.sum_up(after=after)
        again = (done.counted > 0) or (again and bool(after))
        after, counted = done.after or "", counted + done.counted
        if done.counted == 0 and not after:
            break
    position = await store.calendar.sum_ended(after=("", 0))
    while position is not None:
        position = await store.calendar.sum_ended(after=position)
    return counted


async def check(store: SqlStore, schedules: list[Schedule], now: int) -> set[CellKind]:
    """Compare calendars in several zones with all ticks, one by one; return the kinds that there were."""
    service = CalendarService(
        store.schedules, store.history, store.calendar, store.jobs, VirtualClock(now), compute=ComputeQueue()
    )
    seen = set[CellKind]()
    for zone, by in (("UTC", ColumnSpan.HOUR), ("Asia/Kathmandu", ColumnSpan.HOUR), ("Europe/Berlin", ColumnSpan.DAY)):
        query = CalendarQuery(tenant="default", timezone=zone, by=by, from_at=NOON - HOUR, until_at=NOON + 60 * HOUR)
        view = await service.read(query)
        assert len(view.rows) == len(schedules)
        for row in view.rows:
            every = await each_tick(store, row.schedule)
            cells = Counter[tuple[int, CellKind]]()
            for (at, kind), count in every.items():
                for number, column in enumerate(view.columns):
                    if column.from_at <= at < column.until_at:
                        cells[number, kind] += count
            shown = {
                (number, kind): count
                for number, cell in row.cells.items()
                for kind, count in cell.items()
                if kind not in (CellKind.COMING, CellKind.HELD)
            }
            assert shown == dict(cells), (row.schedule.schedule_id, zone)
            seen |= {kind for _, kind in shown}
    return seen


async def each_tick(store: SqlStore, schedule: Schedule) -> Counter[tuple[int, CellKind]]:
    """Every decided tick with its kind."""
    found = Counter[tuple[int, CellKind]]()
    ticks = Ticks(schedule.schedule_id, schedule.spec)
    for tick in await store.history.ticks(schedule.uid, before=FOREVER, limit=100_000):
        made, at = tick.decision, tick.decision.planned_at
        for number in range(made.count):
            if number:
                at = ticks.after(at) or 0
            found[at, cell_kind(made.kind, made.reason, tick.status)] += 1
    return found


async def days(store: SqlStore) -> int:
    """How many days have sums."""
    found = await store.transactions.read(lambda conn: conn.scalar(sa.text("SELECT count(*) FROM tick_day")))
    return int(found or 0)


@pytest.mark.req("H-25")
async def test_a_calendar_from_sums_has_the_numbers_of_the_ledger_whatever_happens(store: SqlStore) -> None:
    dense = minutely("dense", overlap=Overlap.SKIP, **ALL)
    latest = minutely("latest", catchup=Catchup.LATEST, overlap=Overlap.ALLOW)
    several = minutely("several", trigger=Cron("*/5 * * * *"), overlap=Overlap.ALLOW, **ALL)
    hourly = minutely("hourly", trigger=Cron("20 * * * *"), overlap=Overlap.ALLOW, **ALL)
    bursts = minutely("bursts", trigger=Cron("5,50,51 * * * *"), overlap=Overlap.ALLOW, **ALL)
    schedules = [bursts, dense, hourly, latest, several]
    await store.schedules.add(schedules, actor="ada", tzdata="")
    assert await sum_up(store) == 5
    for after in (21 * MINUTE, 7 * HOUR + 5 * MINUTE, 7 * HOUR + 6 * MINUTE, 7 * HOUR + 23 * MINUTE, 31 * HOUR):
        for one in schedules:
            await decide(store, one, NOON + after)
        await check(store, schedules, NOON + after)
        await sum_up(store)
        await check(store, schedules, NOON + after)
    assert await days(store) >= 4
    assert await sum_up(store) == 0

    # Executions end in quarters that are summed up: their sums were open until then.
    runs = sorted(await runs_of(store, several), key=lambda run: run.planned_at)
    for number, run in enumerate(runs[:12]):
        await finish_run(store, run, result=Result.FAILED if number % 3 else Result.SUCCEEDED, now=NOON + 32 * HOUR)
    for run in runs[12:15]:
        await store.runs.cancel(run.run_id, reason="not needed", now=NOON + 32 * HOUR)
    await check(store, schedules, NOON + 32 * HOUR)
    await sum_up(store)
    seen = await check(store, schedules, NOON + 32 * HOUR)
    assert seen >= {CellKind.FAILED, CellKind.LATE, CellKind.SKIPPED, CellKind.COALESCED}

    # Retention removes some ticks, and then all of some hours.
    kept = [tick.decision.planned_at for tick in await store.history.ticks(dense.uid, before=FOREVER, limit=100_000)]
    for gone in (sorted(kept)[5:40], sorted(kept)[40:1000]):
        batch = RetentionBatch(kind=RetentionKind.TICKS, uid=dense.uid, names=tuple(gone), records=[], after=None)
        assert await store.retention.remove(batch, limit=100_000)
        await check(store, schedules, NOON + 32 * HOUR)
        await sum_up(store)
        await check(store, schedules, NOON + 32 * HOUR)
    batch = RetentionBatch(kind=RetentionKind.SCHEDULES, names=tuple(one.uid for one in schedules), records=[])
    assert await store.retention.remove(batch, limit=100_000)
    assert await days(store) == 0


async def test_ticks_that_are_summed_up_are_not_counted_again(store: SqlStore) -> None:
    dense = minutely("dense", overlap=Overlap.SKIP, **ALL)
    await store.schedules.add([dense], actor="ada", tzdata="")
    await decide(store, dense, NOON + 20 * HOUR + MINUTE)
    await finish_run(store, (await runs_of(store, dense))[0], now=NOON + 20 * HOUR)
    await sum_up(store)
    # Numbers that are not those of the ledger show where a calendar has them from.
    change = sa.text("UPDATE tick SET kind = 'missed' WHERE planned_at < :until")
    until = NOON + 20 * HOUR
    await store.transactions.write(lambda conn: conn.execute(change, {"until": until}).rowcount)

    service = CalendarService(
        store.schedules, store.history, store.calendar, store.jobs, VirtualClock(until), compute=ComputeQueue()
    )
    view = await service.read(
        CalendarQuery(tenant="default", from_at=NOON + HOUR, until_at=NOON + 20 * HOUR, timezone="Asia/Kathmandu")
    )

    whole = [cell for number, cell in view.rows[0].cells.items() if view.columns[number].until_at <= until]
    assert whole
    assert all(cell == {CellKind.SKIPPED: 60} for cell in whole)


async def test_a_mark_that_is_set_back_takes_the_sums_of_its_ticks_along(tmp_path: Path) -> None:
    clock = ManualClock()
    clock.now = NOON + 9 * HOUR
    store = await open_new_sqlite(tmp_path / "gnomon.db", now=lambda: clock.now)
    dense = minutely("dense", overlap=Overlap.SKIP, **ALL)
    await store.schedules.add([dense], actor="ada", tzdata="")
    await decide(store, dense, NOON + 9 * HOUR)
    await sum_up(store)

    clock.advance(-4 * HOUR)
    terms = await store.shards.claim("node", ttl_ms=10_000, limit=SHARDS, by_force=True)
    [corrected] = await store.ledger.set_back_marks(terms=terms, limit=10)

    assert corrected.mark_at == NOON + 5 * HOUR
    await check(store, [dense], clock.now)
    await sum_up(store)
    await check(store, [dense], clock.now)
    clock.advance(6 * HOUR)
    # The next tick fires now, which it did not at first.
    await finish_run(store, (await runs_of(store, dense))[0], now=clock.now)
    await decide(store, dense, clock.now)
    await sum_up(store)
    assert await check(store, [dense], clock.now)
    found = await store.history.ticks(dense.uid, before=FOREVER, limit=100_000)
    assert {tick.decision.kind for tick in found} == {TickKind.FIRED, TickKind.SKIPPED}
    await store.close()
