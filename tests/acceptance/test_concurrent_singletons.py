"""Loops of which one is enough do no harm when several run at once: turns save work, the store keeps order."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from contracts.store import minutely
from gnomon.adapters.archive import FolderArchive, read_archive
from gnomon.adapters.host import RandomIds, SystemClock
from gnomon.adapters.sql import SqlStore, open_postgres
from gnomon.config.settings import load
from gnomon.core.cron import Cron
from gnomon.core.model import DAY_MS, RunStatus
from gnomon.ports.runs import RunQuery
from gnomon.services.coordination import AlwaysHeldSingleton
from gnomon.services.execution.reconciler import Reconciler
from gnomon.services.execution.workflow_cache import WorkflowCache
from gnomon.services.maintenance.backfiller import Backfiller
from gnomon.services.maintenance.cleaner import Cleaner
from gnomon.services.maintenance.invariant_checker import InvariantChecker
from gnomon.services.maintenance.run_repairer import RunRepairer
from gnomon.services.operations.backfills import BackfillService
from gnomon.testing.clock import Recorder, VirtualClock
from support.execution import ExecutionHarness
from support.postgres_server import postgres
from support.row_editing import sql_row_editor
from support.task_steps import finish_run

pytestmark = [pytest.mark.req("R-15", "R-07"), pytest.mark.timeout(120)]
NODES = 4
RUNS = 30
HOUR = 3_600_000


class ConcurrentNodes:
    """Several nodes on one database, each of which believes that every turn is its own."""

    def __init__(self, stores: list[SqlStore]) -> None:
        self.stores = stores
        self.store = stores[0]
        self.clock = VirtualClock(SystemClock().now())
        self.events = Recorder()
        self.harness = ExecutionHarness(store=self.store, clock=self.clock)
        self.plant = sql_row_editor(self.store)

    async def runs(self, count: int = RUNS) -> list[str]:
        job = await self.harness.job()
        return [(await self.harness.run(job, str(number))).run_id for number in range(count)]

    async def now(self) -> int:
        return self.clock.now()

    async def counted(self) -> tuple[int, int]:
        found = await self.store.schedules.find("default", "report")
        assert found is not None
        return found.active_runs, found.queued_runs


@pytest.fixture
async def fleet() -> AsyncIterator[ConcurrentNodes]:
    async with postgres(18).database() as url:
        stores = [await open_postgres(url, pool_size=3) for _ in range(NODES)]
        yield ConcurrentNodes(stores)
        for store in stores:
            await store.close()


@pytest.mark.guarantee("S13")
async def test_reconcilers_at_once_end_every_lost_attempt_once(fleet: ConcurrentNodes) -> None:
    await fleet.runs()
    await fleet.harness.run_until_idle()
    held = list(fleet.harness.runner.started)
    for task_id, _ in held:
        await fleet.plant("attempt", "task_id", task_id, "lease_until", 0)
    settings = load(flags={"reconciler.batch": 7})
    reconcilers = [
        Reconciler(
            one,
            WorkflowCache(one.jobs),
            fleet.clock,
            fleet.events,
            settings,
            lease=AlwaysHeldSingleton(),
            on_ready=lambda: None,
        )
        for one in fleet.stores
    ]

    await asyncio.gather(*(one.step() for one in reconcilers))

    attempts = await fleet.store.executions.attempts([task_id for task_id, _ in held])
    assert (len(held), len(attempts), {one.result for one in attempts}) == (RUNS, RUNS, {"lost"})
    assert fleet.events.names().count("attempt_ended_by_reconciler") == RUNS
    runs = await fleet.store.executions.list_runs(RunQuery(limit=1000))
    assert {task.losses for task in await fleet.store.history.tasks(runs)} == {1}


async def test_concurrent_repairers_end_every_stuck_run_once(fleet: ConcurrentNodes) -> None:
    for run in await fleet.runs():
        await fleet.plant("task", "run_id", run, "state", "SUCCEEDED")
    fleet.clock.advance(120_000)
    settings = load(flags={"reconciler.batch": 7}).reconciler
    repairers = [
        RunRepairer(
            one.invariants, fleet.clock, fleet.events, settings, lease=AlwaysHeldSingleton(), on_ready=lambda: None
        )
        for one in fleet.stores
    ]

    await asyncio.gather(*(one.step() for one in repairers))

    runs = await fleet.store.executions.list_runs(RunQuery(limit=1000))
    assert (len(runs), {run.status for run in runs}) == (RUNS, {RunStatus.COMPLETED})
    assert await fleet.counted() == (0, 0)
    assert sum(sum(one.repaired.values()) for one in repairers) == RUNS


async def test_concurrent_invariant_checkers_find_the_same_counts(fleet: ConcurrentNodes) -> None:
    await fleet.runs(3)
    await fleet.plant("schedule", "schedule_id", "report", "active_runs", 17)
    settings = load().alive
    checkers = [
        InvariantChecker(one.invariants, fleet.clock, fleet.events, settings, lease=AlwaysHeldSingleton())
        for one in fleet.stores
    ]

    await asyncio.gather(*(one.step() for one in checkers))

    assert await fleet.counted() == (3, 0)


async def test_cleaners_at_once_archive_everything_and_remove_it_once(fleet: ConcurrentNodes, tmp_path: Path) -> None:
    job = await fleet.harness.job()
    runs = [await fleet.harness.run(job, str(number)) for number in range(RUNS)]
    for run in runs:
        await finish_run(fleet.store, run, now=fleet.clock.now())
    fleet.clock.advance(100 * DAY_MS)
    settings = load(flags={"cleaner.batch": 7, "cleaner.portion": 5})
    cleaners = [
        Cleaner(
            one.retention,
            one.jobs,
            FolderArchive(tmp_path),
            fleet.clock,
            fleet.events,
            settings=settings,
            lease=AlwaysHeldSingleton(),
            store_now=fleet.now,
        )
        for one in fleet.stores
    ]

    await asyncio.gather(*(one.clean() for one in cleaners))

    assert await fleet.store.executions.list_runs(RunQuery(limit=1000)) == []
    archived = [row["run_id"] for row in read_archive(tmp_path) if row["table"] == "run"]
    assert sorted(set(archived)) == sorted(run.run_id for run in runs)
    assert await fleet.counted() == (0, 0)


@pytest.mark.guarantee("S2")
async def test_backfillers_at_once_start_every_planned_time_once_and_no_more_at_once_than_was_said(
    fleet: ConcurrentNodes,
) -> None:
    now = fleet.clock.now()
    schedule = minutely(trigger=Cron("0 * * * *"))
    schedule = replace(schedule, created_at=now - 40 * HOUR, mark_at=now)
    await fleet.store.schedules.add([schedule], actor="ada", tzdata="")
    backfill_service = BackfillService(fleet.store.backfills, fleet.store.schedules, fleet.clock, RandomIds())
    await backfill_service.start("report", now - 21 * HOUR, now - HOUR, actor="ada", max_parallel=3)
    backfillers = [
        Backfiller(
            one.backfills, one.history, fleet.clock, fleet.events, lease=AlwaysHeldSingleton(), on_ready=lambda: None
        )
        for one in fleet.stores
    ]
    ran: list[int] = []
    while True:
        await asyncio.gather(*(one.step() for one in backfillers))
        under_way = [run for run in await fleet.store.executions.list_runs(RunQuery(limit=1000)) if not run.over]
        assert len(under_way) <= 3
        if not under_way and not any(one.busy for one in backfillers):
            break
        ran += [run.planned_at for run in under_way]
        for run in under_way:
            await finish_run(fleet.store, run, now=now)

    assert (len(ran), len(set(ran))) == (20, 20)
