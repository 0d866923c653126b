"""HTTP calls in real processes: under `gnomon up`, on a worker with the database, and on a worker over NATS."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import gnomon
from support.effort import thorough
from support.fleet_topologies import Topology, running_topology
from support.gnomon_processes import up
from support.scripted_server import ScriptedReply, ScriptedServer, json_reply, scripted_server

pytestmark = pytest.mark.timeout(180)
ALLOWED = {"GNOMON_SECURITY__ALLOWED_HOSTS": "127.0.0.1", "GNOMON_SECRETS__ALLOW": "TOKEN", "TOKEN": "hunter22"}
RETRY = {"max_attempts": 3, "initial_delay": "10ms"}


@pytest.fixture
async def called() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as server:
        yield server


def orders(called: ScriptedServer) -> dict[str, Any]:
    """A job that looks something up, and changes it."""
    find = {"step": "find", "http": {"url": called.url("/orders?city=${input.city}")}}
    pay = {
        "step": "pay",
        "http": {
            "url": called.url("/orders/${steps.find.output.json.id}/pay"),
            "headers": {"Authorization": "Bearer ${secret:TOKEN}"},
            "json": {"amount": "${steps.find.output.json.amount}", "at": "${run.planned_at}"},
            "expect": 201,
        },
        "retry": RETRY,
        "depends_on": ["find"],
    }
    return {"name": "orders", "input": {"city": "Zürich & Bern"}, "dag": [find, pay]}


def check_requests(called: ScriptedServer) -> None:
    """The order was found once and paid in three attempts under one key."""
    find, *pay = called.requests
    assert find.target == "/orders?city=Z%C3%BCrich%20%26%20Bern"
    assert {one.target for one in pay} == {"/orders/a%2Fb/pay"}
    assert [one.json["amount"] for one in pay] == [7.5] * 3
    assert {one.headers["Authorization"] for one in pay} == {"Bearer hunter22"}
    assert len({one.headers["Idempotency-Key"] for one in pay}) == 1
    assert find.headers["Idempotency-Key"] != pay[0].headers["Idempotency-Key"]


def script(called: ScriptedServer) -> None:
    called.replies = [
        json_reply({"id": "a/b", "amount": 7.5}),
        ScriptedReply(429, b"slow down", {"Retry-After": "1"}),
        ScriptedReply(503, b"hunter22 is no use"),
        json_reply({"paid": True}, 201),
    ]


async def test_calls_need_nothing_but_a_file(tmp_path: Path, called: ScriptedServer) -> None:
    script(called)
    jobs = tmp_path / "jobs.yaml"
    jobs.write_text(json.dumps({"jobs": [orders(called)]}))
    database = tmp_path / "gnomon.db"

    def work() -> Any:  # noqa: ANN401 - the response of the API
        with up(database, "--jobs", str(jobs), "--port", "0", imports=(), environment=ALLOWED) as running:
            address = running.line_with("http://").split("http://")[1].split()[0].rstrip(",;.")
            token = (tmp_path / "gnomon.db.token").read_text().strip()
            with gnomon.Client(f"http://{address}", token=token) as client:
                return client.finished(client.trigger("orders").execution_id)

    done = await asyncio.to_thread(work)

    assert done.status == "completed", done
    check_requests(called)


@pytest.mark.parametrize("shape", [thorough(Topology()), Topology(nats=True)], ids=str)
async def test_calls_are_made_by_the_workers_of_a_fleet(url: str, called: ScriptedServer, shape: Topology) -> None:
    script(called)

    def work() -> Any:  # noqa: ANN401 - the response of the API
        with (
            running_topology(shape, url, **ALLOWED) as there,
            there.server() as running,
            there.worker(),
            gnomon.Client(running.line_with("answering on ").split()[-1]) as client,
        ):
            client.register(orders(called))
            return client.finished(client.trigger("orders").execution_id)

    done = await asyncio.to_thread(work)

    assert done.status == "completed", done
    check_requests(called)
    [pay] = [step for step in done.steps if step.step == "pay"]
    assert [attempt.result for attempt in pay.attempts] == ["failed", "failed", "succeeded"]
    failed, unavailable, _ = pay.attempts
    # Retry-After was heeded, although the delay of the retry is shorter.
    assert (unavailable.started_at - failed.ended_at).total_seconds() >= 0.9
    assert unavailable.error == "answered 503 Service Unavailable: [secret TOKEN] is no use"
