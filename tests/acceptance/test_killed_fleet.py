"""Servers, workers and NATS as real processes, killed in the middle of real work: it costs time, and nothing else."""

import asyncio
import signal
from collections import Counter
from pathlib import Path

import pytest
from nats.aio.client import Client
from nats.js.errors import NotFoundError

from gnomon.adapters.nats.connection import connect
from gnomon.adapters.sql.store import SqlStore
from gnomon.config.sections import NatsSettings as Settings
from gnomon.core import subjects
from gnomon.core.model import Result, RunStatus
from gnomon.testing.clock import Recorder
from support.effort import thorough
from support.fleet_processes import (
    all_runs,
    check_runs,
    launch,
    remote_worker,
    server,
    start_together,
    wait_for_witness_lines,
    wait_until,
    wait_until_all_over,
    wait_until_begun,
)
from support.nats_redis_servers import Nats
from support.nats_users import PASSWORDS, NatsCluster
from support.witness import read_witness, release_file

JOBS = """
jobs:
  - {name: every-second, function: witness/coroutine, schedule: "* * * * * *", overlap: allow, catchup: all}
  - {name: quick, function: witness/coroutine, overlap: allow}
  - {name: slow, function: witness/thread, overlap: allow, input: {seconds: 0.05}}
  - {name: longer-than-a-lease, function: witness/thread, overlap: allow, input: {seconds: 9}}
  - {name: long, function: witness/thread, overlap: allow, input: {seconds: 30}}
  - {name: until-released, function: witness/until-released, overlap: allow}
  - {name: once, function: witness/thread, overlap: allow, delivery: at_most_once, dead_letter: true}
"""
ONCE = frozenset({"once"})
#: Each starts several processes, which takes its time on a busy machine.
pytestmark = pytest.mark.timeout(150)


@pytest.fixture
def jobs(tmp_path: Path) -> str:
    file = tmp_path / "jobs.yaml"
    file.write_text(JOBS)
    return str(file)


async def stop_ticking(store: SqlStore) -> None:
    from gnomon.adapters.host import RandomIds, SystemClock
    from gnomon.services.operations.schedules import ScheduleService

    await ScheduleService(store.schedules, store.history, SystemClock(), RandomIds()).pause(
        "every-second", actor="test"
    )


@pytest.mark.req("H-13", "H-21")
@pytest.mark.guarantee("S1", "S4", "S26")
async def test_a_worker_without_a_database_does_the_work_of_a_server(
    url: str, nats: Nats, jobs: str, witness: Path, store: SqlStore
) -> None:
    # Nobody dies here, and on a busy machine nobody passes for dead.
    lease = {"GNOMON_WORKER__LEASE_MS": "20000"}
    with server(url, nats, "--jobs", jobs, **lease), remote_worker(nats, **lease) as worker:
        for name in ("quick", "slow", "once"):
            await launch(store, name, 30)
        await stop_ticking(store)
        await wait_until_all_over(store)
        assert worker.terminate() == 0

    attempts = await check_runs(store, witness, once=ONCE)
    assert all(run.status is RunStatus.COMPLETED for run in await all_runs(store))
    assert {len(tried) for tried in attempts.values()} == {1}, [t for t in attempts.values() if len(t) > 1]
    assert all(one.worker.startswith("field_") for tried in attempts.values() for one in tried)


@pytest.mark.guarantee("C5", "S4", "S5", "S9", "S17")
async def test_kill_9_of_nats_under_load_loses_nothing_and_doubles_nothing(
    url: str, nats: Nats, jobs: str, witness: Path, store: SqlStore
) -> None:
    with start_together(server(url, nats, "--jobs", jobs), remote_worker(nats), remote_worker(nats)) as (
        _,
        worker,
        other,
    ):
        for turn in range(2):
            for name in ("quick", "slow", "once"):
                await launch(store, name, 60)
            await wait_for_witness_lines(witness, 60 * (turn + 1))
            nats.kill()
            await asyncio.sleep(0.3)  # the moment at which it comes back must be any
            nats.start()
        await stop_ticking(store)
        await wait_until_all_over(store)
        assert (worker.terminate(), other.terminate()) == (0, 0)

    await check_runs(store, witness, once=ONCE)


@pytest.mark.guarantee("C5", "S4", "S9", "S17")
async def test_a_deleted_stream_is_created_again_and_work_continues(
    url: str, nats: Nats, jobs: str, witness: Path, store: SqlStore
) -> None:
    settings = Settings(url=nats.url, user="admin", password=PASSWORDS["admin"])
    admin = await connect(settings, Recorder(), name="admin")
    with server(url, nats, "--jobs", jobs), remote_worker(nats):
        for stream in (subjects.WORK, subjects.REPORTS):
            await launch(store, "slow", 100)
            await wait_for_witness_lines(witness, len(read_witness(witness)) + 50)
            await admin.jetstream().delete_stream(stream)
            await wait_until(lambda stream=stream: is_there(admin, stream))  # type: ignore[misc]
        await launch(store, "quick", 50)
        await stop_ticking(store)
        await wait_until_all_over(store)
    await admin.close()

    await check_runs(store, witness)


@pytest.mark.guarantee("S4", "S5", "S9", "S18")
async def test_tasks_of_a_killed_worker_go_to_another_after_its_lease(
    url: str, nats: Nats, jobs: str, witness: Path, store: SqlStore
) -> None:
    slots = {"GNOMON_WORKER__SLOTS": "20"}
    with server(url, nats, "--jobs", jobs), remote_worker(nats, **slots):
        with remote_worker(nats, **slots) as victim:
            # More than the other worker can hold, and no body ends before its worker is killed.
            await launch(store, "until-released", 30)
            for name in ("slow", "once"):
                await launch(store, name, 60)
            await wait_until(lambda: holds_work(witness, victim.pid))
            victim.kill()
            release_file(witness).touch()
        await stop_ticking(store)
        await wait_until_all_over(store)

    attempts = await check_runs(store, witness, once=ONCE)
    assert any(one.result is Result.LOST for tried in attempts.values() for one in tried)


async def is_there(admin: Client, stream: str) -> bool:
    try:
        await admin.jetstream().stream_info(stream)
    except NotFoundError:
        return False
    return True


async def holds_work(witness: Path, pid: int) -> bool:
    return any(
        (what, job, worker) == ("start", "until-released", pid) for what, job, *_, worker in read_witness(witness)
    )


async def work_of(witness: Path, pid: int) -> bool:
    return any(worker == pid for *_, worker in read_witness(witness))


@pytest.mark.guarantee("C1", "C2", "S4", "S5", "S9")
async def test_a_killed_server_is_followed_by_another_and_finished_work_is_not_done_again(
    url: str, nats: Nats, jobs: str, witness: Path, store: SqlStore
) -> None:
    with remote_worker(nats) as worker:
        # The second victim has taken over itself.
        for _ in range(2):
            with server(url, nats, "--jobs", jobs) as victim:
                for name in ("quick", "slow", "once"):
                    await launch(store, name, 60)
                before = len(read_witness(witness))
                await wait_for_witness_lines(witness, before + 50)
                victim.kill()
        with server(url, nats, "--jobs", jobs):
            await stop_ticking(store)
            await wait_until_all_over(store)
            assert worker.terminate() == 0

    await check_runs(store, witness, once=ONCE)


@pytest.mark.thorough  # tests/acceptance/test_partitioned_workers.py freezes one in every run
@pytest.mark.guarantee("C4", "S7", "S9")
async def test_a_worker_that_was_frozen_past_its_lease_changes_nothing_when_it_wakes(
    url: str, nats: Nats, jobs: str, witness: Path, store: SqlStore
) -> None:
    with server(url, nats, "--jobs", jobs) as running, remote_worker(nats) as frozen:
        await stop_ticking(store)
        await launch(store, "slow", 30)
        await wait_until(lambda: work_of(witness, frozen.pid))
        frozen.signal(signal.SIGSTOP)
        with remote_worker(nats):
            await wait_until_all_over(store)
            frozen.signal(signal.SIGCONT)
            assert frozen.terminate() == 0
            running.signal(signal.SIGTERM)
            assert running.ended() == 0

    await check_runs(store, witness)


@pytest.mark.guarantee("C4")
async def test_a_worker_that_is_cut_off_stops_what_it_does(
    url: str, nats: Nats, jobs: str, witness: Path, store: SqlStore
) -> None:
    def recorded() -> list[str]:
        return [what for what, job, *_ in read_witness(witness) if job == "until-released"]

    def stops() -> int:
        return recorded().count("stop")

    async def running() -> bool:
        return recorded()[-1:] == ["start"]

    with server(url, nats, "--jobs", jobs), remote_worker(nats):
        await stop_ticking(store)
        await launch(store, "until-released", 1)
        await wait_until(running)
        before = stops()
        nats.kill()

        async def stopped() -> bool:
            return stops() > before

        # The body itself records that it was cancelled, while its worker can reach no server.
        await wait_until(stopped)
        release_file(witness).touch()
        nats.start()
        await wait_until_all_over(store)

    await check_runs(store, witness)


@pytest.mark.guarantee("S11")
async def test_a_cancel_reaches_a_remote_worker(
    url: str, nats: Nats, jobs: str, witness: Path, store: SqlStore
) -> None:
    with server(url, nats, "--jobs", jobs), remote_worker(nats, GNOMON_WORKER__KILL_GRACE_MS="100"):
        await stop_ticking(store)
        await launch(store, "long", 1)
        await wait_until_begun(witness, "long")
        [run] = [run for run in await all_runs(store) if run.schedule_id == "long"]
        await store.runs.cancel(run.run_id, reason="enough", now=0)
        await wait_until_all_over(store)

    assert [one.status for one in await all_runs(store) if one.schedule_id == "long"] == [RunStatus.CANCELLED]


@pytest.mark.guarantee("S4", "S9", "C1")
async def test_two_servers_and_two_workers_share_the_work_and_nothing_is_done_twice(
    url: str, nats: Nats, jobs: str, witness: Path, store: SqlStore
) -> None:
    with start_together(
        server(url, nats, "--jobs", jobs),
        server(url, nats, "--jobs", jobs),
        remote_worker(nats, GNOMON_WORKER__SLOTS="20"),
        remote_worker(nats, GNOMON_WORKER__SLOTS="20"),
    ) as (_, _, one, other):
        for name in ("quick", "slow", "once"):
            await launch(store, name, 80)
        await stop_ticking(store)
        await wait_until_all_over(store)

    await check_runs(store, witness, once=ONCE)
    assert {pid for *_, pid in read_witness(witness)} == {one.pid, other.pid}


@pytest.mark.guarantee("C1", "S4", "S5", "S9")
@pytest.mark.parametrize("victim", [0, thorough(2)])
async def test_a_cluster_of_nats_loses_a_server_and_no_run_is_lost_or_doubled(
    url: str, jobs: str, witness: Path, store: SqlStore, victim: int
) -> None:
    with (
        NatsCluster() as nats,
        start_together(server(url, nats, "--jobs", jobs), remote_worker(nats), remote_worker(nats)),
    ):
        for name in ("quick", "slow", "once"):
            await launch(store, name, 60)
        await wait_for_witness_lines(witness, 60)
        nats.nodes[victim].kill()
        for name in ("quick", "slow", "once"):
            await launch(store, name, 30)
        await stop_ticking(store)
        await wait_until_all_over(store)

    await check_runs(store, witness, once=ONCE)


@pytest.mark.guarantee("S2", "S9")
@pytest.mark.req("R-17")
async def test_a_task_longer_than_the_ack_timeout_of_the_bus_runs_once(
    url: str, nats: Nats, jobs: str, witness: Path, store: SqlStore
) -> None:
    lease = {"GNOMON_WORKER__LEASE_MS": "4000"}
    with start_together(server(url, nats, "--jobs", jobs, **lease), *(remote_worker(nats, **lease) for _ in range(2))):
        await stop_ticking(store)
        await launch(store, "longer-than-a-lease", 3)
        await wait_until_all_over(store)

    await check_runs(store, witness)
    starts = Counter(
        run for what, job, run, *_ in read_witness(witness) if (what, job) == ("start", "longer-than-a-lease")
    )
    assert list(starts.values()) == [1, 1, 1]
