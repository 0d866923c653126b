"""Real processes killed in the middle of rollbacks: they go on with the step that is to be undone next."""

import random
import signal
from collections import defaultdict
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from gnomon.adapters.sql.connect import open_sqlite
from gnomon.adapters.sql.store import SqlStore
from gnomon.core.model import Result, RunStatus
from gnomon.core.runs.rollback import RollbackStatus
from gnomon.testing.rollback_checker import check_rollbacks
from support.effort import EFFORT
from support.fleet_processes import all_runs, launch, wait_for_witness_lines, wait_until, wait_until_all_over
from support.fleet_shapes import SHAPES, running_shape
from support.gnomon_processes import up
from support.sqlite_files import new_sqlite_file
from support.witness import read_witness

JOBS = """
jobs:
  - name: trip
    overlap: allow
    dag:
      - step: flight
        function: witness/step
        input: {name: flight}
        compensate: {function: witness/step, input: {name: no-flight}}
      - step: hotel
        function: witness/step
        depends_on: [flight]
        input: {name: hotel}
        compensate: {function: witness/step, input: {name: no-hotel}}
      - step: car
        function: witness/step
        depends_on: [hotel]
        input: {name: car}
        compensate: {function: witness/step, input: {name: no-car}}
      - {step: pay, function: witness/gives-up, depends_on: [car], input: {name: pay}}
"""
ORDER = ["flight", "hotel", "car", "pay", "no-car", "no-hotel", "no-flight"]
RUNS, FEWER = 80, 20


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    store = await open_sqlite(str(new_sqlite_file(tmp_path / "gnomon.db")))
    yield store
    await store.close()


@pytest.mark.req("R-09")
@pytest.mark.guarantee("S13")
@pytest.mark.timeout(180)
async def test_kill_9_in_the_middle_of_rollbacks_undoes_every_step_once_and_in_order(
    tmp_path: Path, store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, witness, file = tmp_path / "gnomon.db", tmp_path / "witness", tmp_path / "jobs.yaml"
    file.write_text(JOBS)
    monkeypatch.setenv("GNOMON_WITNESS", str(witness))
    # However often what a killed process had in hand is lost with it, it is tried again.
    monkeypatch.setenv("GNOMON_EXECUTION__MAX_LOSSES", "100")
    rng = random.Random("killed rollbacks")
    with up(database, "--jobs", str(file)) as first:
        first.kill()
    await launch(store, "trip", RUNS)
    for _ in range(3 * EFFORT):
        with up(database, "--jobs", str(file)) as victim:
            await wait_for_witness_lines(witness, len(read_witness(witness)) + rng.randint(20, 200))
            victim.kill()
    with up(database, "--jobs", str(file)) as last:
        await wait_until_all_over(store)
        assert last.terminate() == 0

    runs = await all_runs(store)
    assert {(run.status, run.rollback) for run in runs} == {(RunStatus.FAILED, RollbackStatus.COMPLETE)}
    tasks = await store.history.tasks(runs)
    assert len(tasks) == RUNS * len(ORDER)
    attempts = defaultdict(list)
    found = defaultdict(list)
    for attempt in await store.executions.attempts([task.task_id for task in tasks]):
        attempts[attempt.task_id].append(attempt.result)
        found[attempt.task_id].append(attempt)
    workflow = await store.jobs.workflow("default", "trip", 1)
    assert workflow is not None
    assert check_rollbacks(runs, workflow, tasks, found) == []
    undone = [task for task in tasks if task.step.startswith("compensate:")]
    assert all(attempts[task.task_id].count(Result.SUCCEEDED) == 1 for task in undone)
    assert sum(results.count(Result.LOST) for results in attempts.values()) > 0
    begun: dict[str, list[str]] = defaultdict(list)
    for what, name, run, *_ in read_witness(witness):
        if what == "start" and name not in begun[run]:
            begun[run].append(name)
    assert all(names == ORDER for names in begun.values())


@pytest.mark.req("R-09")
@pytest.mark.guarantee("S13")
@pytest.mark.timeout(180)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("name", [one for one in SHAPES if one != "sqlite"])
async def test_a_scheduler_that_dies_or_freezes_among_rollbacks_of_other_processes_loses_and_doubles_nothing(
    name: str, number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    witness = tmp_path / "witness"
    monkeypatch.setenv("GNOMON_WITNESS", str(witness))
    async with running_shape(name, JOBS, tmp_path) as (fleet, store):
        with fleet.scheduler() as first:
            await wait_until(partial(_is_registered, store))
            await launch(store, "trip", FEWER)
            # Some rollbacks have begun, and none is over.
            await wait_for_witness_lines(witness, len(ORDER) * FEWER // 2)
            first.signal(number)
            if number is signal.SIGKILL:
                first.kill()
            with fleet.scheduler() as second:
                await wait_until_all_over(store)
                assert second.terminate() == 0
            if number is signal.SIGSTOP:
                first.signal(signal.SIGCONT)
                assert first.terminate() == 0
        runs = await all_runs(store)
        tasks = await store.history.tasks(runs)
        found = defaultdict(list)
        for attempt in await store.executions.attempts([task.task_id for task in tasks]):
            found[attempt.task_id].append(attempt)
        workflow = await store.jobs.workflow("default", "trip", 1)

    assert workflow is not None
    assert {(run.status, run.rollback) for run in runs} == {(RunStatus.FAILED, RollbackStatus.COMPLETE)}
    assert len(tasks) == FEWER * len(ORDER)
    assert check_rollbacks(runs, workflow, tasks, found) == []
    undone = [task for task in tasks if task.step.startswith("compensate:")]
    results = [[one.result for one in found[task.task_id]] for task in undone]
    assert all(one.count(Result.SUCCEEDED) == 1 for one in results)


async def _is_registered(store: SqlStore) -> bool:
    return await store.schedules.find("default", "trip") is not None
