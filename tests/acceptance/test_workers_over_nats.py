"""`gnomon worker` without a database: found, told apart, refused, and stopped, over a NATS server with scoped users."""

import json
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

import gnomon
from gnomon.adapters.sql.store import SqlStore
from support.command_line import run_command
from support.fleet_processes import all_runs, postpone_task, remote_worker, server
from support.gnomon_processes import GnomonProcess, worker
from support.nats_redis_servers import Nats
from support.server_process import free_port
from support.witness import read_witness, release_file

pytestmark = pytest.mark.timeout(120)
BUSY_IS_FINE = {"GNOMON_ROUTING__OVERLOAD_PERCENT": "100000"}


@pytest.fixture(autouse=True)
def _without_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNOMON_METRICS__ENABLED", "false")


def client_of(running: GnomonProcess) -> gnomon.Client:
    return gnomon.Client(running.line_with("answering on ").split()[-1])


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that another process will do, so there is nothing to wait on."""
    while not condition():
        time.sleep(0.02)


@pytest.mark.req("R-18", "H-16")
async def test_a_worker_over_nats_is_known_with_all_that_it_says_of_itself(url: str, nats: Nats, witness: Path) -> None:
    said = ("--pool", "gpu", "--label", "node.zone=eu", "--label", "disk=ssd", "--capability", "CUDA", "--slots", "7")
    lease = {"GNOMON_WORKER__LEASE_MS": "3000"}
    with server(url, nats, **lease) as running, client_of(running) as client, remote_worker(nats, *said) as working:
        # With its load, which is measured between two heartbeats.
        until(lambda: [card.cpu is not None for card in client.workers()] == [True])
        [card] = client.workers()
        assert (card.pool, card.labels, card.capabilities) == ("gpu", {"node.zone": "eu", "disk": "ssd"}, ["cuda"])
        assert (card.slots, card.in_hand, card.draining, card.worker[:6]) == (7, 0, False, "field_")
        client.register({"name": "slow", "function": "witness/thread", "input": {"seconds": 2.5}, "pool": "gpu"})
        client.trigger("slow")
        until(lambda: [one.in_hand for one in client.workers()] == [1])
        assert card.seen_at < client.workers()[0].seen_at <= datetime.now(UTC)

        working.signal(signal.SIGTERM)
        until(lambda: [one.draining for one in client.workers()] == [True])
        assert working.ended() == 0
        assert client.workers() == []
    assert [what for what, *_ in read_witness(witness)] == ["start", "end"]


@pytest.mark.req("R-10")
async def test_pools_and_labels_say_who_executes_over_nats(
    url: str, store: SqlStore, nats: Nats, witness: Path
) -> None:
    with (
        server(url, nats, **BUSY_IS_FINE) as running,
        client_of(running) as client,
        remote_worker(nats) as usual,
        remote_worker(nats, "--pool", "gpu") as gpu,
        remote_worker(nats, "--label", "node.zone=eu") as european,
    ):
        until(lambda: len(client.workers()) == 3)
        cases: dict[str, tuple[dict[str, object], set[int]]] = {
            "anywhere": ({}, {usual.pid, european.pid}),
            "in-pool": ({"pool": "gpu"}, {gpu.pid}),
            "in-europe": ({"labels": {"node.zone": "eu"}}, {european.pid}),
        }
        for name, (request, _) in cases.items():
            client.register({"name": name, "function": "witness/coroutine", "overlap": "allow", **request})
        asked = [client.trigger(name).execution_id for _ in range(5) for name in cases]
        assert {client.finished(run, timeout=60).status for run in asked} == {"completed"}

    for name, (_, expected) in cases.items():
        assert {pid for _, job, *_, pid in read_witness(witness) if job == name} <= expected
    tasks = await store.history.tasks(await all_runs(store))
    # Each of them found its worker as good as at once.
    assert max(task.routings for task in tasks) <= 1


@pytest.mark.req("R-04")
async def test_a_worker_that_comes_over_nats_begins_at_once_what_nobody_could_take(
    url: str, store: SqlStore, nats: Nats, witness: Path
) -> None:
    del witness
    with server(url, nats) as running, client_of(running) as client:
        client.register({"name": "late", "function": "witness/coroutine", "pool": "gpu"})
        asked = client.trigger("late").execution_id
        await postpone_task(store)
        with remote_worker(nats, "--pool", "gpu"):
            assert client.finished(asked, timeout=60).status == "completed"


@pytest.mark.req("R-10", "R-11")
async def test_a_table_of_pools_counts_over_nats_and_counts_anew_when_it_changes(
    url: str, nats: Nats, witness: Path, tmp_path: Path
) -> None:
    table = tmp_path / "pools.yaml"
    table.write_text("topics: {mail: default}")
    with (
        server(url, nats, **BUSY_IS_FINE, GNOMON_ROUTING__POOLS_FILE=str(table)) as running,
        client_of(running) as client,
        remote_worker(nats),
        remote_worker(nats, "--pool", "gpu", "--capability", "cuda") as gpu,
    ):
        until(lambda: len(client.workers()) == 2)
        client.register({"name": "encode", "function": "witness/coroutine", "topic": "video"})
        run = client.trigger("encode").execution_id
        running.line_with("no_pool_mapping: no pool is named for the topic 'video'")
        table.write_text("topics: {video: gpu}\npools: {gpu: {requires: [cuda]}}")

        assert client.finished(run, timeout=60).status == "completed"
    assert {pid for *_, pid in read_witness(witness)} == {gpu.pid}


@pytest.mark.req("R-10")
async def test_a_tenant_has_no_more_on_its_way_over_nats_than_it_may(url: str, nats: Nats, witness: Path) -> None:
    limits = {"GNOMON_ROUTING__TENANT_LIMITS": "default=2"}
    with server(url, nats, **BUSY_IS_FINE, **limits) as running, client_of(running) as client, remote_worker(nats):
        until(lambda: len(client.workers()) == 1)
        client.register({"name": "held", "function": "witness/until-released", "overlap": "allow"})
        asked = [client.trigger("held").execution_id for _ in range(8)]
        until(lambda: len(read_witness(witness)) == 2)
        release_file(witness).touch()
        assert {client.finished(run, timeout=60).status for run in asked} == {"completed"}

    at_once = list(accumulate({"start": 1, "end": -1}[what] for what, *_ in read_witness(witness)))
    assert (max(at_once), len(at_once)) == (2, 16)


@pytest.mark.req("H-14")
def test_it_serves_metrics_of_its_own_process_and_is_ready_while_a_server_answers_it(
    url: str, nats: Nats, witness: Path
) -> None:
    del witness
    port = free_port()
    lease = {"GNOMON_WORKER__LEASE_MS": "3000"}

    def condition() -> tuple[bool, str]:
        ready = json.loads(shown(port, "/readyz"))
        return ready["ready"], ready["components"]["servers"]

    with remote_worker(nats, "--metrics-port", str(port), GNOMON_METRICS__ENABLED="true", **lease):
        assert condition() == (False, "error")
        with server(url, nats, **lease):
            until(lambda: condition() == (True, "ok"))
            families = [one for one in text_string_to_metric_families(shown(port, "/metrics")) if one.samples]
        until(lambda: condition() == (False, "error"))
        assert json.loads(shown(port, "/livez")) == {"alive": True}

    names = {family.name.removeprefix("hanzo_scheduler_") for family in families}
    assert names == {"active_coroutines", "component_healthy", "events"}


def shown(port: int, path: str) -> str:
    """The page of the worker, whatever its status."""
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return str(answer.read().decode())
    except HTTPError as error:
        with error:
            return error.read().decode()


async def test_where_both_are_named_the_database_counts_and_the_worker_says_so(
    url: str, nats: Nats, witness: Path
) -> None:
    del witness
    with worker(url, environment={"NATS_URL": nats.url}) as working:
        line = working.line_with("not over NATS")
    assert line.endswith("the database (flag), not over NATS (environment NATS_URL): --nats URL changes that\n")


@pytest.mark.parametrize(
    ("arguments", "environment", "said"),
    [
        (("--nats", "nats://127.0.0.1:1", "--database", "x.db"), {}, "error: --database and --nats: a worker takes"),
        (("--nats", "nats://ada:secret@127.0.0.1:1"), {}, "error: cannot reach NATS at nats://127.0.0.1:1: "),
        ((), {"NATS_URL": "nats://127.0.0.1:1"}, "error: cannot reach NATS at nats://127.0.0.1:1: "),
        (("--nats", "nats://127.0.0.1:1", "--import", "no.such"), {}, "error: cannot import no.such"),
        (("--nats", ""), {}, "error: a worker without a database needs nats.url"),
    ],
)
def test_nonsense_is_refused_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: tuple[str, ...], environment: dict[str, str], said: str
) -> None:
    for name, value in {"GNOMON_NATS__TIMEOUT_MS": "200", **environment}.items():
        monkeypatch.setenv(name, value)

    refused = run_command("worker", *arguments, folder=tmp_path)

    assert (refused.returncode != 0, refused.stderr.count("\n")) == (True, 1), refused.stderr
    assert refused.stderr.startswith(said)
    assert list(tmp_path.iterdir()) == []
