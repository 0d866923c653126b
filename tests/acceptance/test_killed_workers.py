"""Real processes killed in the middle of real work: nothing is lost, and nothing repeated without a reason."""

import asyncio
import random
import sqlite3
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gnomon.adapters.host import RandomIds
from gnomon.adapters.sql.connect import open_sqlite
from gnomon.adapters.sql.store import SqlStore
from gnomon.core.model import Result, RunStatus, TickKind
from support.effort import EFFORT
from support.fleet_processes import all_runs, launch, wait_until, wait_until_all_over
from support.gnomon_processes import up
from support.witness import read_witness

JOBS = """
jobs:
  - {name: every-second, function: witness/coroutine, schedule: "* * * * * *", overlap: allow, catchup: all}
  - {name: in-turn, function: witness/thread, schedule: "* * * * * *", overlap: queue, catchup: all}
  - name: once-at-most
    function: witness/thread
    schedule: "* * * * * *"
    overlap: allow
    catchup: all
    delivery: at_most_once
  - {name: by-hand, function: witness/coroutine, overlap: allow}
  - {name: by-hand-slow, function: witness/thread, overlap: allow, input: {seconds: 0.05}}
  - {name: by-hand-once, function: witness/thread, overlap: allow, delivery: at_most_once, dead_letter: true}
"""
BY_HAND = ("by-hand", "by-hand-slow", "by-hand-once")
FOREVER = 1 << 62


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "gnomon.db"


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    file = tmp_path / "jobs.yaml"
    file.write_text(JOBS)
    return file


@pytest.fixture
async def store(database: Path) -> AsyncIterator[SqlStore]:
    store = await open_sqlite(str(database))
    yield store
    await store.close()


@pytest.mark.guarantee("S1", "S2", "S4", "S5", "S9", "S17", "E2")
@pytest.mark.timeout(180)
async def test_kill_9_at_any_moment_loses_nothing_and_repeats_nothing_without_a_reason(
    database: Path, jobs: Path, witness: Path, store: SqlStore
) -> None:
    rng = random.Random("killed workers")
    with up(database, "--jobs", str(jobs)) as first:
        first.kill()
    for name in BY_HAND:
        await launch(store, name, 700)
    for _ in range(4 * EFFORT):
        with up(database, "--jobs", str(jobs)) as victim:
            await asyncio.sleep(rng.uniform(0.02, 1.0))  # the moment of death must be any
            victim.kill()
            await launch(store, rng.choice(BY_HAND), 100)

    with up(database, "--jobs", str(jobs)) as last:
        for name in ("every-second", "in-turn", "once-at-most"):
            await pause(store, name)
        await wait_until_all_over(store)
        assert last.terminate() == 0

    await assert_every_tick_was_decided_once(store)
    await assert_every_start_had_a_reason(store, witness)
    with sqlite3.connect(database) as file:
        assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def pause(store: SqlStore, name: str) -> None:
    from gnomon.adapters.host import SystemClock
    from gnomon.services.operations.schedules import ScheduleService

    await ScheduleService(store.schedules, store.history, SystemClock(), RandomIds()).pause(name, actor="test")


async def assert_every_tick_was_decided_once(store: SqlStore) -> None:
    for schedule in await store.schedules.page("default", after="", limit=100):
        if schedule.schedule_id in BY_HAND:
            continue
        ticks = await store.history.ticks(schedule.uid, before=FOREVER, limit=100_000)
        first = (schedule.created_at // 1000 + 1) * 1000
        assert sorted(t.decision.planned_at for t in ticks) == list(range(first, schedule.mark_at + 1, 1000))
        assert {t.decision.kind for t in ticks} <= {TickKind.FIRED, TickKind.QUEUED}


async def assert_every_start_had_a_reason(store: SqlStore, witness: Path) -> None:
    runs = await all_runs(store)
    tasks = {task.run_id: task for task in await store.history.tasks(runs)}
    attempts = defaultdict(list)
    for attempt in await store.executions.attempts([task.task_id for task in tasks.values()]):
        attempts[attempt.task_id].append(attempt)
    starts: dict[str, list[int]] = defaultdict(list)
    for what, _, name, fence, _, _ in read_witness(witness):
        if what == "start":
            starts[name].append(fence)
    results = Counter(one.result for several in attempts.values() for one in several)

    assert results[Result.LOST] > 0, "some must have been killed in the middle of it"
    assert len(runs) > 2100
    for run in runs:
        tried = attempts[tasks[run.run_id].task_id]
        fences = starts[run.run_id]
        # Each start has an attempt of its own, and every attempt but the last was lost.
        assert fences == sorted(set(fences))
        assert set(fences) <= {one.number for one in tried}
        assert all(one.result is Result.LOST for one in tried[:-1])
        if run.schedule_id in ("once-at-most", "by-hand-once"):
            assert len(tried) == 1
        elif run.status is RunStatus.COMPLETED:
            assert fences
        else:
            # Three workers died with it in hand.
            assert [one.result for one in tried] == [Result.LOST] * 3


@pytest.mark.guarantee("E1")
async def test_of_two_processes_on_one_file_one_stands_by_and_takes_over(
    database: Path, jobs: Path, witness: Path
) -> None:
    with up(database, "--jobs", str(jobs)) as first, up(database, "--jobs", str(jobs)) as second:
        second.line_with("standing by")
        await wait_until(lambda: some_work(witness))
        assert {pid for *_, pid in read_witness(witness)} == {first.pid}
        first.kill()
        second.line_with("scheduling on")
        await wait_until(lambda: work_of(witness, second.pid))
        assert second.terminate() == 0


async def some_work(witness: Path) -> bool:
    return bool(read_witness(witness))


async def work_of(witness: Path, pid: int) -> bool:
    return any(worker == pid for *_, worker in read_witness(witness))
