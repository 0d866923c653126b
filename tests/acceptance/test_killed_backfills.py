"""A backfill whose process is killed again and again: every planned time has its one run, and none has two."""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from gnomon.adapters.host import RandomIds, SystemClock
from gnomon.adapters.sql.connect import open_sqlite
from gnomon.adapters.sql.store import SqlStore
from gnomon.core.model import MINUTE_MS, Run, RunSource, RunStatus
from gnomon.ports.runs import RunQuery
from gnomon.services.operations.backfills import BackfillService
from support.gnomon_processes import up
from support.witness import read_witness

#: Paused, so that only what is filled in runs.
JOBS = """
jobs:
  - {name: minutely, function: witness/thread, schedule: "* * * * *", enabled: false, input: {seconds: 0.03}}
"""
PLANNED = 80


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that another process will do, so there is nothing to await."""
    while not condition():  # noqa: ASYNC110 - what others do sets no event of ours
        await asyncio.sleep(0.02)


async def ended(store: SqlStore, backfill_id: str) -> None:
    """Wait for the end of a backfill."""
    while True:
        found = await store.backfills.find("default", backfill_id)
        if found is not None and found.backfill.ended_at is not None:
            return
        await asyncio.sleep(0.05)


def started(witness: Path) -> int:
    return sum(one[0] == "start" for one in read_witness(witness))


@pytest.mark.guarantee("S1")
@pytest.mark.timeout(120)
async def test_a_killed_backfill_continues_and_doubles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database, jobs, witness = tmp_path / "gnomon.db", tmp_path / "jobs.yaml", tmp_path / "witness"
    jobs.write_text(JOBS)
    monkeypatch.setenv("GNOMON_WITNESS", str(witness))
    # One that is in hand at every kill would pass for the cause of them.
    monkeypatch.setenv("GNOMON_EXECUTION__MAX_LOSSES", "10")
    with up(database, "--jobs", str(jobs)) as process:
        store = await open_sqlite(str(database))
        clock = SystemClock()
        last = clock.now() // MINUTE_MS * MINUTE_MS - 10 * MINUTE_MS
        first = last - (PLANNED - 1) * MINUTE_MS
        backfill_service = BackfillService(store.backfills, store.schedules, clock, RandomIds())
        asked = (await backfill_service.start("minutely", first, last, actor="ada", max_parallel=3)).backfill
        await until(lambda: started(witness) >= 10)
        process.kill()
    for enough in (25, 45):
        with up(database) as process:
            await until(lambda: started(witness) >= enough)  # noqa: B023 - it is over before the next
            process.kill()

    with up(database):
        await ended(store, asked.backfill_id)

    runs: list[Run] = list(await store.executions.list_runs(RunQuery(limit=1000)))
    reported = await backfill_service.get(asked.backfill_id)
    await store.close()
    assert Counter(run.planned_at for run in runs) == dict.fromkeys(range(first, last + 1, MINUTE_MS), 1)
    assert {(run.source, run.status) for run in runs} == {(RunSource.BACKFILL, RunStatus.COMPLETED)}
    assert (reported.fired, reported.skipped, reported.under_way, reported.failed) == (PLANNED, 0, 0, 0)
    # A body runs again only if it was cut off by a kill, and only so many were under way at each.
    assert {one[2] for one in read_witness(witness) if one[0] == "end"} == {run.run_id for run in runs}
    assert started(witness) <= PLANNED + 3 * 3
