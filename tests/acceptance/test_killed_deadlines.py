"""Schedulers that are killed before a deadline: the next one keeps it."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from gnomon.adapters.host import RandomIds, SystemClock
from gnomon.adapters.sql.connect import open_store
from gnomon.adapters.sql.store import SqlStore
from gnomon.core.model import RunId, RunStatus
from gnomon.core.runs.states import TaskState
from gnomon.services.operations.launcher import Launcher
from support.fleet_processes import wait_until
from support.gnomon_processes import up
from support.postgres_server import postgres
from support.sqlite_files import new_sqlite_file

pytestmark = [pytest.mark.req("R-07"), pytest.mark.timeout(120)]

JOBS = """
jobs:
  - {name: held, function: witness/patient}
  - {name: homeless, function: witness/coroutine, pool: nowhere}
"""
DEADLINE_MS = 6_000


@pytest.fixture(params=["sqlite", "postgresql"])
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    if request.param == "sqlite":
        file = tmp_path / "gnomon.db"
        new_sqlite_file(file)
        yield f"sqlite:///{file}"
    else:
        async with postgres(18).database() as address:
            yield address


@pytest.fixture
async def store(url: str) -> AsyncIterator[SqlStore]:
    opened = await open_store(url)
    yield opened
    await opened.close()


async def test_a_deadline_that_passes_while_no_scheduler_lives_is_kept_by_the_next_one(
    url: str, store: SqlStore, witness: Path, tmp_path: Path
) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(JOBS)
    clock = SystemClock()
    launcher = Launcher(store.runs, store.executions, store.jobs, store.schedules, clock, RandomIds())
    quick = {"GNOMON_RECONCILER__GRACE_MS": "0"}

    async def over(run_id: RunId) -> bool:
        run = await store.executions.find_run(run_id)
        return run is not None and run.over

    with up(url, "--jobs", str(file), environment=quick) as first:
        runs = [
            (await launcher.trigger(job, actor="test", deadline_ms=DEADLINE_MS)).run_id for job in ("held", "homeless")
        ]
        await wait_until(lambda: asyncio.to_thread(lambda: witness.exists() and "held" in witness.read_text()))
        first.kill()
    killed_at = clock.now()
    found = [await store.executions.find_run(run_id) for run_id in runs]
    deadline = max(run.deadline_at or 0 for run in found if run)
    assert not any(run.over for run in found if run), f"killed {deadline - killed_at} ms before the deadline"
    await clock.sleep(max(0, deadline - clock.now()) / 1000)

    with up(url, "--jobs", str(file), environment=quick):
        for run_id in runs:
            await wait_until(partial(over, run_id))

    ended = [run for run_id in runs if (run := await store.executions.find_run(run_id)) is not None]
    tasks = await store.history.tasks(ended)
    letters = await store.dead_letters.page("default")
    assert {run.status for run in ended} == {RunStatus.FAILED}
    assert {task.state for task in tasks} == {TaskState.TIMEOUT}
    assert {(letter.run_id, letter.reason) for letter in letters} == {(one, "deadline_exceeded") for one in runs}
