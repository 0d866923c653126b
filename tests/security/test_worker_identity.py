"""A worker on NATS speaks for itself only, whatever it writes into its messages.

A server and an honest worker run as processes. An intruder has a NATS user of its own, which may publish on the
subjects of the worker `field_w2` only, and knows all ids.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from itertools import count

import msgspec
import nats as nats_client
import pytest
from msgspec import Struct
from msgspec.structs import replace
from nats.aio.client import Client

import gnomon
from gnomon.adapters.host import SystemClock
from gnomon.core.ids import task_id
from gnomon.core.messages import EndedReport, StartedReport, WorkerReport, encode_worker_report
from gnomon.core.model import Result, RunId, TaskId
from gnomon.core.responses.executions import AttemptDetail
from gnomon.core.runs.workflow import ONLY_STEP
from gnomon.core.subjects import DEAD, REPORTS, SCHEDULERS, grant_subject, heartbeat_subject, report_subject
from gnomon.ports.messaging import HeartbeatRequest, StartRequest
from gnomon.ports.tasks import WorkerInfo
from support.effort import thorough
from support.fleet_processes import remote_worker, server
from support.gnomon_processes import GnomonProcess
from support.nats_redis_servers import Nats
from support.nats_users import PASSWORDS, nats_with_users
from support.postgres_server import postgres

INTRUDER, PASSWORD = "field_w2", "s3cret-w2"
ALLOWED = f'publish: "mq.scheduler.complete.*.{INTRUDER}", subscribe: "_INBOX_worker.w2.>"'
USER = f"{{ user: {INTRUDER}, password: {PASSWORD}, permissions: {{ {ALLOWED} }} }}"
FORGED = msgspec.Raw(b'{"forged": "by w2"}')
_NUMBERS = count(1)


class Fleet(Struct):
    """A running server and its honest worker."""

    nats: Nats
    client: gnomon.Client
    server: GnomonProcess
    honest: str


@pytest.fixture(scope="module", params=["sqlite", thorough("postgresql")])
def fleet(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("identity")
    on_file = request.param == "sqlite"
    database = str(folder / "gnomon.db") if on_file else asyncio.run(postgres(18).fresh())
    environment = {"GNOMON_METRICS__ENABLED": "false", "GNOMON_WITNESS": str(folder / "witness")}
    with nats_with_users("", USER) as nats, server(database, nats, **environment) as serving:
        client = gnomon.Client(serving.line_with("answering on ").split()[-1])
        with client, remote_worker(nats, **environment):
            while not client.workers():
                time.sleep(0.02)
            [card] = client.workers()
            client.register({"name": "slow", "function": "witness/thread", "input": {"seconds": 1}, "overlap": "allow"})
            client.register({"name": "quick", "function": "witness/coroutine", "overlap": "allow"})
            yield Fleet(nats, client, serving, card.worker)


@pytest.fixture
async def intruder(fleet: Fleet) -> AsyncIterator[Client]:
    prefix = "_INBOX_worker.w2"
    client = await nats_client.connect(fleet.nats.url, user=INTRUDER, password=PASSWORD, inbox_prefix=prefix)
    yield client
    await client.close()


async def running_task(fleet: Fleet) -> tuple[RunId, TaskId]:
    """A task that the honest worker executes."""
    run = RunId(fleet.client.trigger("slow").execution_id)
    while [one.worker for one in attempts_of(fleet, run)] != [fleet.honest]:  # noqa: ASYNC110 - in other processes
        await asyncio.sleep(0.02)
    return run, task_id(run, ONLY_STEP)


def attempts_of(fleet: Fleet, run: RunId) -> list[AttemptDetail]:
    [step] = fleet.client.execution(run).steps
    return step.attempts


async def publish(client: Client, reports: WorkerReport, *, message_id: str = "", header: str = "") -> None:
    """Publish reports on the subject of the intruder, whatever worker they name."""
    name = message_id or f"{reports.worker}:forged-{next(_NUMBERS)}"
    body = encode_worker_report(reports, message_id=name, now=SystemClock().now())
    headers = {"Nats-Msg-Id": header} if header else None
    await client.publish(report_subject(INTRUDER), body, headers=headers)
    await client.flush()


async def all_processed(fleet: Fleet) -> int:
    """Wait until the server has processed all reports; return the number of dead letters."""
    client = await nats_client.connect(fleet.nats.url, user="admin", password=PASSWORDS["admin"])
    try:
        stream = client.jetstream()
        while True:
            found = await stream.consumer_info(REPORTS, SCHEDULERS)
            if not found.num_pending and not found.num_ack_pending:
                return (await stream.stream_info(DEAD)).state.messages
            await asyncio.sleep(0.02)
    finally:
        await client.close()


async def assert_the_honest_worker_ends_it(fleet: Fleet, run: RunId) -> None:
    ended = await asyncio.to_thread(fleet.client.finished, run, timeout=30)
    [attempt] = attempts_of(fleet, run)
    assert (ended.status, ended.steps[0].output) == ("completed", None)
    assert (attempt.result, attempt.worker) == ("succeeded", fleet.honest)


async def test_the_outcome_of_a_worker_that_does_not_hold_the_task_is_refused(fleet: Fleet, intruder: Client) -> None:
    run, task = await running_task(fleet)
    forged = EndedReport(task_id=task, fence=1, result=Result.SUCCEEDED, output=FORGED)

    await publish(intruder, WorkerReport(worker=INTRUDER, started=(StartedReport(task, 1),), ended=(forged,)))
    await publish(intruder, WorkerReport(worker=INTRUDER, ended=(replace(forged, result=Result.FAILED),)))

    assert INTRUDER in fleet.server.line_with("does not hold")
    await assert_the_honest_worker_ends_it(fleet, run)


async def test_a_report_that_names_another_worker_than_its_subject_is_refused(fleet: Fleet, intruder: Client) -> None:
    before = await all_processed(fleet)
    run, task = await running_task(fleet)
    sabotage = EndedReport(task_id=task, fence=1, result=Result.GAVE_UP, error="sabotage")

    await publish(intruder, WorkerReport(worker=fleet.honest, ended=(sabotage,)))

    assert await all_processed(fleet) == before + 1
    await assert_the_honest_worker_ends_it(fleet, run)


async def test_forged_message_ids_do_not_make_servers_or_streams_deaf_to_a_worker(
    fleet: Fleet, intruder: Client
) -> None:
    for number in range(200):
        name = f"{fleet.honest}:{number}"
        await publish(intruder, WorkerReport(worker=INTRUDER), message_id=name, header=name)
    await all_processed(fleet)

    for _ in range(3):
        run = RunId(fleet.client.trigger("quick").execution_id)
        await assert_the_honest_worker_ends_it(fleet, run)


async def test_a_request_that_names_another_worker_than_its_subject_gets_no_answer(
    fleet: Fleet, intruder: Client
) -> None:
    run, task = await running_task(fleet)
    card = WorkerInfo(worker=fleet.honest, functions=(), slots=0, started_at=0)
    requests = [
        (heartbeat_subject(INTRUDER), HeartbeatRequest(card=card, leaves=True)),
        (heartbeat_subject(INTRUDER), HeartbeatRequest(card=card, held=((task, 1),))),
        (grant_subject(INTRUDER), StartRequest(worker=fleet.honest, held=((task, 1),))),
    ]
    for subject, request in requests:
        with pytest.raises(nats_client.errors.TimeoutError):
            await intruder.request(subject, msgspec.json.encode(request), timeout=0.3)

    [known] = fleet.client.workers()
    assert (known.worker, known.slots > 0) == (fleet.honest, True)
    await assert_the_honest_worker_ends_it(fleet, run)


async def test_a_worker_gets_neither_grant_nor_lease_of_a_task_that_another_holds(
    fleet: Fleet, intruder: Client
) -> None:
    run, task = await running_task(fleet)
    wanted = msgspec.json.encode(StartRequest(worker=INTRUDER, held=((task, 1),)))

    granted = await intruder.request(grant_subject(INTRUDER), wanted, timeout=60)

    assert msgspec.json.decode(granted.data) == {"held": []}
    await assert_the_honest_worker_ends_it(fleet, run)
