"""The policy on PostgreSQL with a worker over NATS: what it denies never starts, what it limits is limited."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

import gnomon
from gnomon.adapters.sql.store import SqlStore
from support.fleet_processes import remote_worker, server
from support.gnomon_processes import GnomonProcess
from support.nats_redis_servers import Nats
from support.witness import read_witness

pytestmark = [pytest.mark.timeout(120), pytest.mark.req("R-02")]
RULES = """
default_decision: deny
rules:
  - {id: never, match: {jobs: [denied]}, decision: deny, reason: not here}
  - {id: later, match: {jobs: [put-off]}, decision: throttle}
  - id: boxed
    match: {jobs: [boxed]}
    decision: allow_with_constraints
    constraints: {max_runtime: 1s, max_attempts: 1}
  - {id: free, match: {jobs: [free]}, decision: allow}
"""


def client_of(running: GnomonProcess) -> gnomon.Client:
    return gnomon.Client(running.line_with("answering on ").split()[-1])


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that another process will do, so there is nothing to wait on."""
    while not condition():
        time.sleep(0.02)


def decisions(client: gnomon.Client, execution: str) -> list[tuple[str, str]]:
    return [(one.decision, one.rule) for task in client.decisions(execution) for one in task.decisions]


async def test_each_decision_holds_for_a_worker_over_nats(url: str, nats: Nats, witness: Path) -> None:
    with server(url, nats) as running, client_of(running) as client, remote_worker(nats):
        client.apply_policy(RULES)
        for name, seconds in (("denied", 0.01), ("put-off", 0.01), ("boxed", 30.0), ("free", 0.01), ("other", 0.01)):
            client.register(
                {
                    "name": name,
                    "function": "witness/thread",
                    "input": {"seconds": seconds},
                    "retry": {"max_attempts": 3},
                }
            )
        runs = {name: client.trigger(name).execution_id for name in ("denied", "put-off", "boxed", "free", "other")}

        done = {name: client.finished(runs[name], timeout=60) for name in ("denied", "boxed", "free", "other")}
        until(lambda: decisions(client, runs["put-off"]) != [])
        made = {name: decisions(client, run) for name, run in runs.items()}
        letters = {one.job: one.reason for one in client.dead_letters()}
        why = client.why("free").explanations[0].sentence

    assert {name: one.status for name, one in done.items()} == {
        "denied": "failed",
        "boxed": "failed",
        "free": "completed",
        "other": "failed",
    }
    assert made == {
        "denied": [("deny", "never")],
        "put-off": [("throttle", "later")],
        "boxed": [("allow_with_constraints", "boxed")],
        "free": [("allow", "free")],
        "other": [("deny", "default")],
    }
    assert {letters[name] for name in ("denied", "other")} == {"safety_denied"}
    assert {job for _, job, *_ in read_witness(witness)} == {"boxed", "free"}
    assert "Rule free of policy 1 allowed it" in why


async def test_a_server_killed_after_the_ruling_and_before_the_dispatch_loses_and_doubles_nothing(
    url: str, nats: Nats, witness: Path, store: SqlStore
) -> None:
    with server(url, nats) as victim, client_of(victim) as client:
        client.apply_policy(RULES)
        client.register({"name": "free", "function": "witness/coroutine", "overlap": "allow"})
        client.register({"name": "denied", "function": "witness/coroutine", "overlap": "allow"})
        with remote_worker(nats, "--slots", "1"):
            until(lambda: len(list(client.workers())) == 1)
            runs = [client.trigger("free").execution_id for _ in range(30)]
            refused = [client.trigger("denied").execution_id for _ in range(5)]
            victim.kill()
            with server(url, nats) as running, client_of(running) as again:
                ended = {again.finished(run, timeout=60).status for run in runs}
                denied = {again.finished(run, timeout=60).status for run in refused}
                made = [decisions(again, run) for run in (*runs, *refused)]

    starts = [name for what, name, *_ in read_witness(witness) if what == "start"]
    assert (ended, denied) == ({"completed"}, {"failed"})
    assert made == [[("allow", "free")]] * 30 + [[("deny", "never")]] * 5
    assert starts == ["free"] * 30
    assert len(await store.rulings.past_tasks(limit=100)) == 35
