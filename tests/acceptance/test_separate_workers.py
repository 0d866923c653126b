"""Workers as processes of their own, beside servers that only schedule: killed, stopped, found and told apart."""

import asyncio
import itertools
import json
import signal
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import gnomon
from gnomon.adapters.sql.connect import open_store
from gnomon.adapters.sql.store import SqlStore
from gnomon.core.metrics import METRICS, MetricScope
from gnomon.core.model import Result, RunStatus
from gnomon.ports.runs import RunQuery
from support.command_line import run_command
from support.fleet_processes import postpone_task
from support.gnomon_processes import GnomonProcess, server, worker
from support.server_process import free_port
from support.witness import read_witness

pytestmark = pytest.mark.timeout(120)
KEYS = itertools.count()
#: Lost attempts are found soon, also on a busy machine.
QUICK = {
    "GNOMON_WORKER__LEASE_MS": "1500",
    "GNOMON_RECONCILER__POLL_MS": "300",
    "GNOMON_ROUTING__OVERLOAD_PERCENT": "100000",
}


@pytest.fixture(autouse=True)
def _without_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNOMON_METRICS__ENABLED", "false")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in QUICK.items():
        monkeypatch.setenv(name, value)


def client_of(running: GnomonProcess) -> gnomon.Client:
    return gnomon.Client(running.line_with("answering on ").split()[-1])


def triggered(client: gnomon.Client, job: str) -> str:
    """A run of the job; asked for under a key, so that it may be asked for again if the server hung up meanwhile."""
    return client.trigger(job, key=f"key {next(KEYS)}").execution_id


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that another process will do, so there is nothing to wait on."""
    while not condition():
        time.sleep(0.02)


def pids(witness: Path) -> set[int]:
    return {pid for *_, pid in read_witness(witness)}


# ---- coming --------------------------------------------------------------------------------------


@pytest.mark.req("R-04")
async def test_a_worker_that_comes_begins_at_once_what_nobody_could_take(
    url: str, store: SqlStore, witness: Path
) -> None:
    del witness
    with server(url) as running, client_of(running) as client:
        client.register({"name": "late", "function": "witness/coroutine", "pool": "gpu"})
        asked = client.trigger("late").execution_id
        await postpone_task(store)
        with worker(url, "--pool", "gpu"):
            assert client.finished(asked, timeout=60).status == "completed"


# ---- killed --------------------------------------------------------------------------------------


@pytest.mark.req("H-16", "C-12")
@pytest.mark.guarantee("S1", "S2", "S4", "S5", "C1")
async def test_tasks_of_a_killed_worker_go_to_another_and_none_is_lost_or_doubled(url: str, witness: Path) -> None:
    with server(url) as scheduling, client_of(scheduling) as client:
        slow = {"function": "witness/thread", "input": {"seconds": 0.3}, "overlap": "allow"}
        client.register({"name": "again", **slow})
        client.register({"name": "once", "delivery": "at_most_once", **slow})
        with worker(url, "--slots", "4") as victim, worker(url, "--slots", "4") as other:
            asked = [triggered(client, name) for _ in range(12) for name in ("again", "once")]
            until(lambda: {victim.pid, other.pid} <= pids(witness))
            victim.kill()
            ended = {one: client.finished(one, timeout=60) for one in asked}
            assert other.terminate() == 0

    await assert_every_start_had_a_reason(url, witness)
    assert {one.status for one in ended.values() if one.job == "again"} == {"completed"}


async def assert_every_start_had_a_reason(url: str, witness: Path) -> None:
    """Each start has an attempt of its own, each attempt but the last was lost, and what ended well had begun."""
    store = await open_store(url)
    runs = await store.executions.list_runs(RunQuery(limit=1000))
    tasks = {task.run_id: task for task in await store.history.tasks(runs)}
    attempts = defaultdict(list)
    for attempt in await store.executions.attempts([task.task_id for task in tasks.values()]):
        attempts[attempt.task_id].append(attempt)
    await store.close()
    starts: dict[str, list[int]] = defaultdict(list)
    for what, _, name, fence, *_ in read_witness(witness):
        if what == "start":
            starts[name].append(fence)
    lost = 0
    for run in runs:
        tried, fences = attempts[tasks[run.run_id].task_id], starts[run.run_id]
        lost += any(one.result is Result.LOST for one in tried)
        assert run.over
        assert fences == sorted(set(fences))
        assert set(fences) <= {one.number for one in tried}
        assert all(one.result in (Result.LOST, Result.NEVER_STARTED) for one in tried[:-1])
        assert run.status is not RunStatus.COMPLETED or fences
        if run.schedule_id == "once":
            assert len(fences) <= 1
            assert run.status is RunStatus.COMPLETED or tried[-1].result is Result.LOST
    assert lost > 0, "the worker must have been killed in the middle of something"


@pytest.mark.guarantee("C4")
async def test_a_frozen_worker_loses_its_tasks_and_continues_with_others(url: str, witness: Path) -> None:
    with server(url) as scheduling, client_of(scheduling) as client:
        client.register({"name": "again", "function": "witness/thread", "input": {"seconds": 0.5}, "overlap": "allow"})
        with worker(url) as frozen:
            first = triggered(client, "again")
            until(lambda: bool(read_witness(witness)))
            frozen.signal(signal.SIGSTOP)
            with worker(url) as other:
                assert client.finished(first, timeout=60).status == "completed"
                assert other.terminate() == 0
            frozen.signal(signal.SIGCONT)
            second = triggered(client, "again")
            assert client.finished(second, timeout=60).status == "completed"
            assert frozen.terminate() == 0
    starts = [(run, fence) for what, _, run, fence, *_ in read_witness(witness) if what == "start"]
    assert starts == [(first, 1), (first, 2), (second, 1)]


# ---- stopped -------------------------------------------------------------------------------------


async def test_a_worker_that_is_stopped_finishes_its_tasks_and_deregisters(url: str, witness: Path) -> None:
    with server(url) as scheduling, client_of(scheduling) as client, worker(url) as stopping:
        client.register({"name": "slow", "function": "witness/thread", "input": {"seconds": 1.0}})
        run = triggered(client, "slow")
        until(lambda: bool(read_witness(witness)))

        stopping.signal(signal.SIGTERM)
        stopping.line_with("running tasks may finish")
        until(lambda: [one.draining for one in client.workers()] in ([True], []))
        assert stopping.ended() == 0

        assert client.execution(run).status == "completed"
        assert client.workers() == []


async def test_a_second_signal_ends_it_at_once(url: str, witness: Path) -> None:
    with server(url) as scheduling, client_of(scheduling) as client, worker(url) as stopping:
        client.register({"name": "slow", "function": "witness/thread", "input": {"seconds": 60.0}})
        triggered(client, "slow")
        until(lambda: bool(read_witness(witness)))
        stopping.signal(signal.SIGTERM)
        stopping.line_with("running tasks may finish")
        stopping.signal(signal.SIGTERM)

        assert stopping.ended(within=30) == 128 + signal.SIGTERM


# ---- found ---------------------------------------------------------------------------------------


@pytest.mark.req("R-18")
async def test_a_server_that_starts_knows_all_workers_and_when_they_were_last_heard_of(
    url: str, witness: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del witness
    monkeypatch.setenv("GNOMON_WORKER__LEASE_MS", "6000")
    said = ("--pool", "gpu", "--label", "node.zone=eu", "--label", "disk=ssd", "--capability", "CUDA", "--slots", "7")
    with worker(url, *said):
        with server(url) as first, client_of(first) as client:
            # A worker that has just started has measured no load yet: its next heartbeat has one.
            until(lambda: any(one.cpu is not None for one in client.workers()))
            [before] = client.workers()
            first.kill()
        with server(url) as second, client_of(second) as client:
            [after] = client.workers()

    assert (after.pool, after.labels, after.capabilities) == ("gpu", {"node.zone": "eu", "disk": "ssd"}, ["cuda"])
    assert (after.slots, after.in_hand, after.draining) == (7, 0, False)
    assert after.cpu is not None
    assert before.seen_at <= after.seen_at < datetime.now(UTC)
    assert "witness/thread" in after.functions


# ---- told apart ----------------------------------------------------------------------------------


@pytest.mark.req("R-10")
async def test_pools_and_labels_say_who_executes(url: str, witness: Path) -> None:
    with (
        server(url) as scheduling,
        client_of(scheduling) as client,
        worker(url) as usual,
        worker(url, "--pool", "gpu") as gpu,
        worker(url, "--label", "node.zone=eu") as european,
    ):
        cases: dict[str, tuple[dict[str, object], set[int]]] = {
            "anywhere": ({}, {usual.pid, european.pid}),
            "in-pool": ({"pool": "gpu"}, {gpu.pid}),
            "in-europe": ({"labels": {"node.zone": "eu"}}, {european.pid}),
        }
        for name, (wanted, _) in cases.items():
            client.register({"name": name, "function": "witness/coroutine", "overlap": "allow", **wanted})
        for run in [triggered(client, name) for _ in range(5) for name in cases]:
            assert client.finished(run, timeout=60).status == "completed"

    for name, (_, expected) in cases.items():
        assert {pid for _, job, *_, pid in read_witness(witness) if job == name} <= expected


@pytest.mark.req("R-10", "R-11")
async def test_a_table_of_pools_counts_and_counts_anew_when_it_changes(url: str, witness: Path, tmp_path: Path) -> None:
    table = tmp_path / "pools.yaml"
    table.write_text("topics: {mail: default}")
    with (
        server(url, environment={"GNOMON_ROUTING__POOLS_FILE": str(table)}) as scheduling,
        client_of(scheduling) as client,
        worker(url, "--pool", "gpu") as gpu,
    ):
        client.register({"name": "encode", "function": "witness/coroutine", "topic": "video"})
        run = triggered(client, "encode")
        scheduling.line_with("no_pool_mapping: no pool is named for the topic 'video'")
        table.write_text("topics: {video: 5}")
        assert f"{table}: line 1, column 10: topics.video: must be 1 to 128" in scheduling.line_with("! /")
        table.write_text("topics: {video: gpu}\npools: {gpu: {requires: [cuda]}}")
        scheduling.line_with("1 topics go to 1 pools")

        assert client.finished(run, timeout=60).status == "completed"
    assert pids(witness) == {gpu.pid}


# ---- on a file -----------------------------------------------------------------------------------


def test_a_worker_beside_a_server_on_a_file(tmp_path: Path, witness: Path) -> None:
    database = tmp_path / "gnomon.db"
    with server(database) as scheduling, client_of(scheduling) as client, worker(database) as working:
        client.register({"name": "greet", "function": "witness/coroutine"})
        run = triggered(client, "greet")
        assert client.finished(run, timeout=60).status == "completed"
        assert working.terminate() == 0
    assert pids(witness) == {working.pid}


# ---- looked at -----------------------------------------------------------------------------------


async def test_a_worker_serves_metrics_if_it_has_a_port(
    url: str, witness: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del witness
    monkeypatch.setenv("GNOMON_METRICS__ENABLED", "true")
    port = free_port()
    with worker(url, "--metrics-port", str(port)):
        ready = await asyncio.to_thread(fetched, f"http://127.0.0.1:{port}/readyz")
        shown = await asyncio.to_thread(fetched, f"http://127.0.0.1:{port}/metrics")

    assert json.loads(ready)["components"]["worker"] == "ok"
    # Servers export all others: what its commits changed would be counted twice.
    own = {name for name, metric in METRICS.items() if metric.scope is MetricScope.ALL}
    families = {family.name for family in text_string_to_metric_families(shown.decode())}
    assert families == {f"hanzo_scheduler_{name}" for name in own}


def fetched(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=10) as answer:  # noqa: S310 - our own address
        body: bytes = answer.read()
    return body


# ---- refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--label", "zone"), "error: --label: 'zone' must be KEY=VALUE"),
        (("--label", "=eu"), "error: --label: '=eu' must be KEY=VALUE"),
        (("--label", "a=1", "--label", "a=2"), "error: --label: 'a=2' sets a a second time"),
        (("--pool", "Not a Pool"), "error: worker.pool: 'Not a Pool' must be 1 to 128 of"),
        (("--capability", " "), "error: worker.capabilities[0]: ' ' is empty"),
        (("--slots", "0"), "error: invalid value for '--slots'"),
        (("--slots", "10001"), "error: worker.slots: 10001 must be from 1 to 10000"),
        (("--import", "no.such.module"), "error: cannot import no.such.module"),
        ((), "error: there is no database"),
        (("--database", "postgresql://nobody@127.0.0.1:1/nothing"), "error: "),
    ],
)
def test_nonsense_is_refused_before_anything_starts(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    place = () if "--database" in arguments else ("--database", str(tmp_path / "none.db"))
    refused = run_command("worker", *place, *arguments, folder=tmp_path)

    assert (refused.returncode != 0, refused.stderr.count("\n")) == (True, 1)
    assert refused.stderr.startswith(said)
    assert list(tmp_path.iterdir()) == []
