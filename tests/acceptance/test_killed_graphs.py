"""Real processes killed in the middle of real graphs: they go on from the last step that was done."""

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gnomon.adapters.sql.connect import open_sqlite
from gnomon.adapters.sql.store import SqlStore
from gnomon.core.model import Result, RunStatus
from support.effort import EFFORT
from support.fleet_processes import all_runs, launch, wait_until_all_over
from support.gnomon_processes import up
from support.sqlite_files import new_sqlite_file
from support.witness import read_witness

JOBS = """
jobs:
  - name: diamond
    overlap: allow
    dag:
      - {step: extract, function: witness/step, input: {name: extract}}
      - {step: left, function: witness/step, depends_on: [extract], input: {name: left}}
      - {step: right, function: witness/step, depends_on: [extract], input: {name: right}}
      - {step: each, function: witness/step, depends_on: [left], foreach: [1, 2, 3], input: {name: "each${item}"}}
      - {step: load, function: witness/step, depends_on: [right, each], input: {name: load}}
"""
ORDER = {"left": ["extract"], "right": ["extract"], "load": ["right", "each1", "each2", "each3"]} | {
    f"each{n}": ["left"] for n in (1, 2, 3)
}


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    store = await open_sqlite(str(new_sqlite_file(tmp_path / "gnomon.db")))
    yield store
    await store.close()


@pytest.mark.req("H-07")
@pytest.mark.guarantee("S13", "E2")
@pytest.mark.timeout(180)
async def test_kill_9_in_the_middle_of_graphs_repeats_no_finished_step(
    tmp_path: Path, store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, witness, file = tmp_path / "gnomon.db", tmp_path / "witness", tmp_path / "jobs.yaml"
    file.write_text(JOBS)
    monkeypatch.setenv("GNOMON_WITNESS", str(witness))
    # However often what a killed process had in hand is lost with it, it is tried again.
    monkeypatch.setenv("GNOMON_EXECUTION__MAX_LOSSES", "100")
    rng = random.Random("killed graphs")
    with up(database, "--jobs", str(file)) as first:
        first.kill()
    await launch(store, "diamond", 150)
    for _ in range(3 * EFFORT):
        with up(database, "--jobs", str(file)) as victim:
            await asyncio.sleep(rng.uniform(0.05, 0.6))  # the moment of death must be any
            victim.kill()
    with up(database, "--jobs", str(file)) as last:
        await wait_until_all_over(store)
        assert last.terminate() == 0

    runs = await all_runs(store)
    tasks = await store.history.tasks(runs)
    attempts = defaultdict(list)
    for attempt in await store.executions.attempts([task.task_id for task in tasks]):
        attempts[attempt.task_id].append(attempt.result)
    assert {run.status for run in runs} == {RunStatus.COMPLETED}
    assert all(results.count(Result.SUCCEEDED) <= 1 for results in attempts.values())
    assert sum(results.count(Result.LOST) for results in attempts.values()) > 0
    ends: dict[str, dict[str, int]] = defaultdict(dict)
    for number, (what, name, run, *_) in enumerate(read_witness(witness)):
        if what == "end":
            ends[run].setdefault(name, number)
        else:
            for needed in ORDER.get(name, []):
                assert needed in ends[run], f"{name} of {run} began before {needed} had ended"
