"""The same jobs in every shape of a fleet: two servers, two workers, equal decisions and equal results."""

import asyncio
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gnomon.adapters.host import RandomIds, SystemClock
from gnomon.adapters.sql import bulk
from gnomon.adapters.sql.store import SqlStore
from gnomon.core.ids import compensation_key
from gnomon.core.model import Result, Run, RunStatus
from gnomon.core.runs.rollback import is_compensation
from gnomon.services.operations.schedules import ScheduleService
from gnomon.testing.checker import check
from support.effort import thorough
from support.fleet_checker import history_of
from support.fleet_processes import all_runs, launch, start_together, wait_until, wait_until_all_over
from support.fleet_topologies import TOPOLOGIES, Topology, running_topology
from support.witness import read_witness

JOBS = """
jobs:
  - {name: tick, function: witness/coroutine, schedule: "* * * * * *", overlap: allow, catchup: all}
  - name: graph
    dag:
      - {step: list, function: witness/step, input: {name: list}}
      - {step: each, function: witness/step, depends_on: [list], foreach: [1, 2, 3], input: {name: "each${item}"}}
      - {step: load, function: witness/step, depends_on: [each], pool: gpu, input: {name: load}}
  - name: trip
    dag:
      - {step: flight, function: witness/step, input: {name: flight}, compensate: {function: witness/undo, input: {}}}
      - step: hotel
        function: witness/step
        depends_on: [flight]
        foreach: [1, 2]
        input: {name: "hotel${item}"}
        compensate: {function: witness/undo, pool: gpu}
      - {step: pay, function: witness/gives-up, depends_on: [hotel], input: {name: pay}}
  - {name: flaky, function: witness/flaky, retry: {max_attempts: 3, initial_delay: 100ms}}
  - {name: broken, function: witness/flaky, input: {failures: 9}, retry: {max_attempts: 2, initial_delay: 100ms}}
  - name: guarded
    function: witness/flaky
    retry: {max_attempts: 3, initial_delay: 10ms}
    breaker: {name: shop, failures: 1, open: 700ms}
  - {name: metered, function: witness/metered, input: {mails: 4}}
  - {name: boxed, function: witness/limits, retry: {max_attempts: 3}}
  - {name: hurried, function: witness/patient, retry: {max_attempts: 3, initial_delay: 10ms}}
  - {name: once, function: witness/coroutine, delivery: at_most_once}
  - {name: once-broken, function: witness/flaky, delivery: at_most_once}
  - {name: to-cancel, function: witness/patient}
  - {name: too-long, function: witness/patient, timeout: 500ms}
  - {name: limited, function: witness/patient, deadline: 4s, retry: {max_attempts: 5, initial_delay: 10ms}}
  - {name: nowhere, function: witness/coroutine, pool: nowhere, deadline: 1s}
  - {name: shell, command: "echo done"}
  - {name: on-gpu, function: witness/coroutine, pool: gpu, priority: critical}
  - {name: in-europe, function: witness/coroutine, labels: {node.zone: eu}}
  - {name: capable, function: witness/coroutine, pool: gpu, requires: [cuda]}
"""
POLICY = """
default_decision: allow
rules:
  - id: boxed
    match: {jobs: [boxed, hurried]}
    decision: allow_with_constraints
    constraints: {max_runtime: 500ms, max_attempts: 1, max_output_bytes: 256, max_concurrent: 1}
budgets:
  - {id: mails, match: {jobs: [metered]}, limit: 10, per: 366d, meter: mails, reserve: 6}
"""
ONE = [Result.SUCCEEDED]
FAILED = Result.FAILED
SPENT = bulk.statement("SELECT spent, reserved FROM budget_window")
#: The result of each: the state of the run, the results of the attempts of each task, and how often a body began.
EXPECTED = {
    # The fan-out itself is nobody's work, and so has an attempt that no worker made.
    "graph": (RunStatus.COMPLETED, [ONE, ONE, ONE, ONE, ONE, ONE], 5),
    "trip": (RunStatus.FAILED, [[Result.GAVE_UP], *[ONE] * 8], 7),
    "flaky": (RunStatus.COMPLETED, [[FAILED, FAILED, Result.SUCCEEDED]], 3),
    "broken": (RunStatus.FAILED, [[FAILED, FAILED]], 2),
    "guarded": (RunStatus.COMPLETED, [[FAILED, FAILED, Result.SUCCEEDED]], 3),
    "metered": (RunStatus.COMPLETED, [ONE], 1),
    "boxed": (RunStatus.COMPLETED, [ONE], 1),
    "hurried": (RunStatus.FAILED, [[Result.TIMED_OUT]], 1),
    "once": (RunStatus.COMPLETED, [ONE], 1),
    "once-broken": (RunStatus.FAILED, [[FAILED]], 1),
    "to-cancel": (RunStatus.CANCELLED, [[Result.CANCELLED]], 1),
    "too-long": (RunStatus.FAILED, [[Result.TIMED_OUT]], 1),
    # Its worker ends it at the deadline of its run, and it is not tried again.
    "limited": (RunStatus.FAILED, [[Result.TIMED_OUT]], 1),
    "nowhere": (RunStatus.FAILED, [[]], 0),
    "shell": (RunStatus.COMPLETED, [ONE], 0),
    "on-gpu": (RunStatus.COMPLETED, [ONE], 1),
    "in-europe": (RunStatus.COMPLETED, [ONE], 1),
    "capable": (RunStatus.COMPLETED, [ONE], 1),
}


async def all_over(store: SqlStore, witness: Path) -> list[Run]:
    """All runs, once every job has had its run, some ticks have been, and the one that never ends was cancelled."""
    await wait_until(lambda: _begun(store, witness, 4))
    [cancelled] = await launch(store, "to-cancel")
    for job in EXPECTED.keys() - {"to-cancel"}:
        await launch(store, job)
    await wait_until(lambda: _work_of(witness, "to-cancel"))
    await store.runs.cancel(cancelled, reason="enough", now=SystemClock().now())
    await ScheduleService(store.schedules, store.history, SystemClock(), RandomIds()).pause("tick", actor="test")
    await wait_until_all_over(store)
    return await all_runs(store)


async def _begun(store: SqlStore, witness: Path, count: int) -> bool:
    return len(await store.workers.alive()) == 2 and len(read_witness(witness)) >= count


async def _work_of(witness: Path, job: str) -> bool:
    return any(name == job for _, name, *_ in read_witness(witness))


async def what_became(store: SqlStore, runs: list[Run], witness: Path) -> dict[str, object]:
    """The same as in EXPECTED."""
    tasks = await store.history.tasks(runs)
    attempts = defaultdict(list)
    for attempt in await store.executions.attempts([task.task_id for task in tasks]):
        attempts[attempt.task_id].append(attempt.result)
    starts = Counter(run for what, _, run, *_ in read_witness(witness) if what == "start")
    return {
        str(run.schedule_id): (
            run.status,
            sorted(
                (attempts[one.task_id] for one in tasks if one.run_id == run.run_id), key=lambda one: (len(one), one)
            ),
            starts[run.run_id],
        )
        for run in runs
        if run.schedule_id != "tick"
    }


async def output_of(store: SqlStore, runs: list[Run], job: str) -> Any:  # noqa: ANN401 - any JSON
    [task] = await store.history.tasks([run for run in runs if run.schedule_id == job])
    body = await store.executions.payload(task.task_id, "output")
    return None if body is None else msgspec.json.decode(body)


async def undone_with(store: SqlStore, runs: list[Run], job: str) -> tuple[list[str], bool]:
    """The compensations of the job in their order, and whether each had the idempotency key that the store implies."""
    [run] = [run for run in runs if run.schedule_id == job]
    workflow = await store.jobs.workflow(run.tenant, run.workflow_id, run.workflow_version)
    assert workflow is not None
    tasks = [one for one in await store.history.tasks([run]) if is_compensation(one.step) and not one.open_items]
    keys = []
    for task in tasks:
        step, body = workflow.step(task.step), await store.executions.payload(task.task_id, "output")
        if step is not None and not (step.foreach and task.item is None):
            keys.append(body == msgspec.json.encode(compensation_key(run, task, step)))
    ran = sorted((one for one in tasks), key=lambda one: one.available_at)
    names = [one.step if one.item is None else f"{one.step}[{one.item}]" for one in ran]
    return names, all(keys) and len(keys) == 3


async def pauses_between_attempts(store: SqlStore, runs: list[Run], job: str) -> list[int]:
    """The milliseconds between the end of each attempt of the job and the next attempt."""
    tasks = await store.history.tasks([run for run in runs if run.schedule_id == job])
    attempts = await store.executions.attempts([task.task_id for task in tasks])
    ordered = sorted(attempts, key=lambda one: one.number)
    return [after.dispatched_at - (before.ended_at or 0) for before, after in pairwise(ordered)]


@pytest.mark.req("H-06", "H-16", "R-09", "R-10", "C-12")
@pytest.mark.guarantee("S1", "S2", "S4", "S5", "S9")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("shape", [*map(thorough, TOPOLOGIES[:-1]), TOPOLOGIES[-1]], ids=str)
async def test_every_shape_decides_alike(
    shape: Topology, url: str, store: SqlStore, witness: Path, tmp_path: Path
) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(JOBS)
    await store.policies.add(POLICY, author="ada", now=SystemClock().now())
    # Nobody dies here, and on a busy machine nobody passes for dead.
    with (
        running_topology(shape, url, GNOMON_WORKER__LEASE_MS="20000") as there,
        start_together(
            *(there.server("--jobs", str(file)) for _ in range(2)),
            there.worker("--label", "node.zone=eu"),
            there.worker("--pool", "gpu", "--capability", "CUDA"),
        ) as (*_, european, gpu),
    ):
        runs = await asyncio.wait_for(all_over(store, witness), 100)
        stopped = [worker.terminate() for worker in (european, gpu)]

    assert check(await history_of(store, "tick", runs)) == []
    assert await what_became(store, runs, witness) == EXPECTED
    assert min(await pauses_between_attempts(store, runs, "guarded")) >= 700, "the breaker was open"
    assert await output_of(store, runs, "boxed") == {
        "max_runtime_ms": 500,
        "max_attempts": 1,
        "max_output_bytes": 256,
        "max_concurrent": 1,
    }
    undone, keyed = await undone_with(store, runs, "trip")
    assert [name for name in undone if name != "compensate:hotel"] == [
        "compensate:hotel[1]",
        "compensate:hotel[0]",
        "compensate:flight",
    ]
    assert keyed
    [(spent, reserved)] = await store.transactions.read(lambda conn: bulk.fetch_rows(conn, SPENT))
    assert (spent, reserved) == (4, 0)
    assert stopped == [0, 0]
    ticks = sorted(run.planned_at for run in runs if run.schedule_id == "tick")
    assert ticks == list(range(ticks[0], ticks[-1] + 1, 1000)), "every second has one tick"
    assert {run.status for run in runs if run.schedule_id == "tick"} == {RunStatus.COMPLETED}
    at = {
        name: {pid for what, job, *_, pid in read_witness(witness) if job == name}
        for name in ("on-gpu", "load", "in-europe")
    }
    assert at == {"on-gpu": {gpu.pid}, "load": {gpu.pid}, "in-europe": {european.pid}}
    fences = [(run, name, fence) for what, name, run, fence, *_ in read_witness(witness) if what == "start"]
    assert len(fences) == len(set(fences)), "an attempt was begun twice"
