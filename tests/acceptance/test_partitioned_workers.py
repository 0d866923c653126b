"""Workers that stand still, or that nobody hears: they stop by themselves what others may be given."""

import asyncio
import re
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gnomon.adapters.sql.store import SqlStore
from gnomon.core.model import Result, RunStatus
from support.effort import thorough
from support.fault_proxy import FaultProxy
from support.fleet_processes import all_runs, launch, wait_until, wait_until_all_over
from support.fleet_topologies import RunningTopology, Topology, running_topology
from support.gnomon_processes import GnomonProcess
from support.witness import read_witness

JOBS = """
jobs:
  - {name: again, function: witness/first-waits, overlap: allow}
  - {name: once, function: witness/first-waits, overlap: allow, delivery: at_most_once}
  - {name: quick, function: witness/coroutine, overlap: allow}
"""
#: A lease long enough that a busy machine does not end it, and no statement that outlasts it.
PATIENCE = {"GNOMON_WORKER__LEASE_MS": "4000", "GNOMON_DATABASE__PATIENCE_MS": "1500"}
pytestmark = [pytest.mark.timeout(120), pytest.mark.req("R-18")]


@pytest.fixture
def jobs(tmp_path: Path) -> str:
    file = tmp_path / "jobs.yaml"
    file.write_text(JOBS)
    return str(file)


@contextmanager
def behind_a_wire(there: RunningTopology) -> Iterator[tuple[GnomonProcess, FaultProxy]]:
    """A worker that reaches all that it reaches through a wire that can be cut."""
    address = there.url if there.nats is None else there.nats.url
    port = int(re.findall(r":(\d+)", address)[-1])
    with FaultProxy(port) as wire:
        through = address.replace(f":{port}", f":{wire.port}")
        said = ("--database", through) if there.nats is None else ("--nats", through)
        with there.worker(*said) as running:
            yield running, wire


async def both_began(store: SqlStore, witness: Path) -> None:
    """A worker is at both jobs."""
    for job in ("again", "once"):
        await launch(store, job, 1)

    async def began() -> bool:
        return {job for _, job, *_ in read_witness(witness)} == {"again", "once"}

    await wait_until(began)


def has_stopped(witness: Path) -> Callable[[], Awaitable[bool]]:
    async def stopped() -> bool:
        return sorted(job for what, job, *_ in read_witness(witness) if what == "stop") == ["again", "once"]

    return stopped


async def judged(store: SqlStore, witness: Path) -> None:
    """Tasks that may run again did, once; at-most-once tasks did not start twice. A task that was sent to the
    worker that is cut off, because it still had a question open, never started: that costs time."""
    found = {}
    for run in await all_runs(store):
        tasks = [task.task_id for task in await store.history.tasks([run])]
        results = [one.result for one in await store.executions.attempts(tasks)]
        found[run.schedule_id] = run.status, [one for one in results if one is not Result.NEVER_STARTED]
    assert found["again"] == (RunStatus.COMPLETED, [Result.LOST, Result.SUCCEEDED])
    assert found["once"] == (RunStatus.FAILED, [Result.LOST])
    starts = [(job, fence) for what, job, _, fence, *_ in read_witness(witness) if what == "start" and job != "quick"]
    assert sorted(job for job, _ in starts) == ["again", "again", "once"]
    assert len(set(starts)) == len(starts)


@pytest.mark.guarantee("C4", "S7", "S9")
@pytest.mark.parametrize("shape", [thorough(Topology()), Topology(nats=True)], ids=str)
async def test_a_worker_frozen_past_its_lease_stops_its_tasks_when_it_continues(
    shape: Topology, url: str, store: SqlStore, witness: Path, jobs: str
) -> None:
    with running_topology(shape, url, **PATIENCE) as there, there.server("--jobs", jobs), there.worker() as frozen:
        await both_began(store, witness)
        frozen.signal(signal.SIGSTOP)
        with there.worker() as other:
            await asyncio.wait_for(wait_until_all_over(store), 60)
            assert other.terminate() == 0
        frozen.signal(signal.SIGCONT)
        await asyncio.wait_for(wait_until(has_stopped(witness)), 30)
        await launch(store, "quick", 3)
        await asyncio.wait_for(wait_until_all_over(store), 30)
        assert frozen.terminate() == 0

    await judged(store, witness)
    assert {pid for _, job, *_, pid in read_witness(witness) if job == "quick"} == {frozen.pid}


@pytest.mark.guarantee("C4", "S9")
@pytest.mark.parametrize("shape", [Topology(), thorough(Topology(nats=True))], ids=str)
async def test_a_worker_that_nobody_hears_stops_before_anybody_else_begins(
    shape: Topology, url: str, store: SqlStore, witness: Path, jobs: str
) -> None:
    with (
        running_topology(shape, url, **PATIENCE) as there,
        there.server("--jobs", jobs),
        behind_a_wire(there) as (deaf, wire),
    ):
        await both_began(store, witness)
        with there.worker() as other:
            wire.black_hole()
            await asyncio.wait_for(wait_until_all_over(store), 60)
            assert other.terminate() == 0
        wire.restore()
        await launch(store, "quick", 3)
        await asyncio.wait_for(wait_until_all_over(store), 60)
        assert deaf.terminate() == 0

    await judged(store, witness)
    order = [(what, fence) for what, job, _, fence, *_ in read_witness(witness) if job == "again"]
    again = order[-1][1]
    assert again > 1
    assert order == [("start", 1), ("stop", 1), ("start", again), ("end", again)]
    assert ("stop", "once") in {(what, job) for what, job, *_ in read_witness(witness)}
    assert {pid for _, job, *_, pid in read_witness(witness) if job == "quick"} == {deaf.pid}
