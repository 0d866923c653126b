"""Log lines are read while their attempt goes on, and a killed worker does not take them along."""

import time
from pathlib import Path

import pytest

import gnomon
from support.fleet_topologies import Topology, running_topology
from support.gnomon_processes import GnomonProcess, up
from support.witness import release_file

pytestmark = pytest.mark.timeout(180)
#: Callers need no token.
OPEN = {"GNOMON_AUTH__VERIFY_TOKENS": "false", "GNOMON_AUTH__ACCEPT_UNVERIFIED": "true"}
JOB = {"name": "talks", "function": "witness/talks", "retry": {"max_attempts": 3, "initial_delay": "10ms"}}


def lines_of(client: gnomon.Client, execution: str) -> list[tuple[int, str]]:
    return [(line.line, line.text) for line in client.logs(execution)]


def wait_for_lines(client: gnomon.Client, execution: str, count: int) -> list[tuple[int, str]]:
    """The log, once it has so many lines. Another process writes them, so there is nothing to wait on."""
    while len(found := lines_of(client, execution)) < count:
        time.sleep(0.05)
    return found


def client_of(running: GnomonProcess) -> gnomon.Client:
    return gnomon.Client(running.line_with("answering on ").split()[-1])


@pytest.mark.req("H-26")
@pytest.mark.parametrize("shape", [Topology(), Topology(nats=True)], ids=str)
def test_a_killed_worker_of_a_fleet_leaves_the_lines_that_were_read(shape: Topology, url: str, witness: Path) -> None:
    with (
        running_topology(shape, url) as there,
        there.server() as running,
        there.worker() as worker,
        client_of(running) as client,
    ):
        client.register(JOB)
        with client.changes() as changes:
            execution = client.trigger("talks").execution_id
            told = next(one for one in changes if one.kind == "log")
        assert (told.execution_id, told.job) == (execution, "talks")
        assert (told.facts["step"], told.facts["attempt"], told.facts["lines"]) == ("main", 1, 1)
        assert wait_for_lines(client, execution, 1) == [(1, "attempt 1 begins")]
        assert client.execution(execution).status == "running"
        worker.kill()
        with there.worker():
            assert wait_for_lines(client, execution, 2) == [(1, "attempt 1 begins"), (2, "attempt 2 begins")]
            release_file(witness).touch()
            done = client.finished(execution, timeout=120)
            assert lines_of(client, execution) == [
                (1, "attempt 1 begins"),
                (2, "attempt 2 begins"),
                (3, "attempt 2 ends"),
            ]
    assert [attempt.result for attempt in done.steps[0].attempts] == ["lost", "succeeded"]


@pytest.mark.req("H-26")
def test_a_killed_node_leaves_the_lines_that_were_read(tmp_path: Path, witness: Path) -> None:
    file = tmp_path / "gnomon.db"
    with up(file, "--port", "0", environment=OPEN) as running, client_of(running) as client:
        client.register(JOB)
        execution = client.trigger("talks").execution_id
        assert wait_for_lines(client, execution, 1) == [(1, "attempt 1 begins")]
        assert [one.text for one in client.logs(execution, order="desc", find="BEGINS")] == ["attempt 1 begins"]
        running.kill()
    with up(file, "--port", "0", environment=OPEN) as running, client_of(running) as client:
        assert wait_for_lines(client, execution, 2) == [(1, "attempt 1 begins"), (2, "attempt 2 begins")]
        release_file(witness).touch()
        client.finished(execution, timeout=120)
        assert [number for number, _ in lines_of(client, execution)] == [1, 2, 3]
