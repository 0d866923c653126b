"""Workers with credentials of their own: what NATS, the servers and the store let them do, until they are revoked."""

import asyncio
import os
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from msgspec import Struct
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import TimeoutError as NatsTimeoutError

import gnomon
from gnomon.adapters.host import SystemClock
from gnomon.adapters.nats.connection import NatsUnavailable, connect
from gnomon.adapters.nats.queue import NatsServerBus
from gnomon.app.enrolment import enroll_worker, enrolled_workers, revoke_worker
from gnomon.app.remote_worker import RemoteWorkerOptions, run_remote_worker
from gnomon.config.sections import NatsSettings
from gnomon.config.settings import load
from gnomon.core import subjects
from gnomon.core.ids import task_id
from gnomon.core.messages import EndedReport, WorkerReport, decode_worker_report, encode_worker_report
from gnomon.core.model import Result, RunId
from gnomon.core.runs.workflow import ONLY_STEP
from gnomon.errors import FieldError, FileError, NotFound
from gnomon.ports.messaging import HeartbeatReply, HeartbeatRequest, StartRequest
from gnomon.ports.tasks import WorkerInfo
from gnomon.runners.registry import Functions
from gnomon.testing.clock import Recorder
from support.fleet_processes import remote_worker, server
from support.gnomon_processes import GnomonProcess
from support.nats_redis_servers import Nats

#: Another start of the enrolled worker `gpu1` of the pool `gpu`.
STRANGE_START = "field_gpu.gpu1.1"
OTHER, OTHER_TOKEN = "field_default.home1.1", "field_default~home1"


class Fleet(Struct):
    """A server and a worker in each of two pools, all with credentials of their own."""

    nats: Nats
    keys: Path
    client: gnomon.Client
    server: GnomonProcess

    def settings(self, name: str) -> NatsSettings:
        return NatsSettings(url=self.nats.url, creds_file=str(self.keys / f"{name}.creds"), timeout_ms=1_000)


def environment(keys: Path, name: str, folder: Path) -> dict[str, str]:
    return {
        "GNOMON_NATS__USER": "",
        "GNOMON_NATS__PASSWORD": "",
        "GNOMON_NATS__CREDS_FILE": str(keys / f"{name}.creds"),
        "GNOMON_METRICS__ENABLED": "false",
        "GNOMON_WITNESS": str(folder / "witness"),
    }


def as_included(file: Path) -> str:
    """The path as NATS reads it: relative to the folder of its configuration, which is among the temporary ones."""
    return os.path.relpath(file, Path(tempfile.gettempdir()) / "bus")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("enrolled")
    keys = folder / "keys"
    shipped = (Path(__file__).parents[2] / "deploy" / "nats" / "nats-enrolled.conf").read_text()
    for name, pool in (("gpu1", "gpu"), ("home1", "default"), ("leaver", "gpu")):
        enroll_worker(keys, name, pool=pool)
    with (
        Nats(shipped[shipped.index("ping_interval") :].replace("auth.conf", as_included(keys / "auth.conf"))) as nats,
        server(str(folder / "gnomon.db"), nats, **environment(keys, "server", folder)) as serving,
        gnomon.Client(serving.line_with("answering on ").split()[-1]) as client,
        remote_worker(nats, "--pool", "gpu", "--label", "disk=ssd", **environment(keys, "gpu1", folder)),
        remote_worker(nats, **environment(keys, "home1", folder)),
    ):
        while len(client.workers()) < 2:
            time.sleep(0.02)
        yield Fleet(nats, keys, client, serving)


@asynccontextmanager
async def connected(fleet: Fleet, name: str) -> AsyncIterator[tuple[Client, Recorder]]:
    events = Recorder()
    client = await connect(fleet.settings(name), events, name=name)
    try:
        yield client, events
    finally:
        await client.close()


async def violation(events: Recorder) -> None:
    """Wait until NATS has refused something."""
    while not any("permissions violation" in str(facts.get("error")) for _, facts in events.seen):  # noqa: ASYNC110
        await asyncio.sleep(0.01)


def finished(fleet: Fleet, name: str, **said: object) -> list[str]:
    """The workers that executed a new job."""
    fleet.client.register({"name": name, "function": "witness/coroutine", **said})
    ended = fleet.client.finished(fleet.client.trigger(name).execution_id, timeout=30)
    assert ended.status == "completed"
    return [attempt.worker for step in ended.steps for attempt in step.attempts]


def test_enrolled_workers_execute_the_tasks_of_their_pools(fleet: Fleet) -> None:
    [by_home] = finished(fleet, "at-home")
    [by_gpu] = finished(fleet, "on-gpu", pool="gpu")
    [directed] = finished(fleet, "on-ssd", pool="gpu", labels={"disk": "ssd"})

    assert by_home.startswith("field_default.home1.")
    assert by_gpu.startswith("field_gpu.gpu1.")
    assert directed == by_gpu


@pytest.mark.parametrize(
    "subject",
    [
        subjects.report_subject(OTHER),
        subjects.heartbeat_subject(OTHER),
        subjects.grant_subject(OTHER),
        subjects.report_subject("field_1"),
        subjects.direct_subject(OTHER),
        subjects.work_subject("at-home"),
        subjects.dead_subject(subjects.WORK),
        "mq.scheduler.hint.changes",
        f"_INBOX_worker.{OTHER_TOKEN}.x",
        "_INBOX_scheduler.x",
        "$KV.gnomon_leases.turn",
        f"$JS.API.CONSUMER.MSG.NEXT.{subjects.WORK}.{subjects.consumer_name()}",
        f"$JS.API.CONSUMER.MSG.NEXT.{subjects.REPORTS}.{subjects.SCHEDULERS}",
        f"$JS.API.CONSUMER.CREATE.{subjects.WORK}.mine",
        f"$JS.API.STREAM.MSG.GET.{subjects.WORK}",
        f"$JS.API.STREAM.DELETE.{subjects.WORK}",
        f"$JS.ACK.{subjects.WORK}.{subjects.consumer_name()}.1.1.1.1.0",
    ],
)
async def test_an_enrolled_worker_publishes_on_its_own_subjects_only(fleet: Fleet, subject: str) -> None:
    async with connected(fleet, "gpu1") as (client, events):
        await client.publish(subject, b"{}")
        await violation(events)


@pytest.mark.parametrize(
    "subject",
    [
        f"_INBOX_worker.{OTHER_TOKEN}.>",
        "_INBOX_worker.>",
        "_INBOX_scheduler.>",
        subjects.direct_subject(OTHER),
        "mq.scheduler.direct.>",
        "mq.scheduler.complete.>",
        "mq.scheduled.>",
        ">",
    ],
)
async def test_an_enrolled_worker_hears_its_own_subjects_only(fleet: Fleet, subject: str) -> None:
    async with connected(fleet, "gpu1") as (client, events):
        await client.subscribe(subject)
        await violation(events)


async def test_an_enrolled_worker_registers_for_its_own_pool_only(fleet: Fleet) -> None:
    card = WorkerInfo(worker=STRANGE_START, functions=(), slots=0, pool="default", started_at=0, draining=True)
    async with connected(fleet, "gpu1") as (client, _):

        async def beat(card: WorkerInfo, *, seconds: float) -> HeartbeatReply:
            body = msgspec.json.encode(HeartbeatRequest(card=card))
            answer = await client.request(subjects.heartbeat_subject(STRANGE_START), body, timeout=seconds)
            return msgspec.json.decode(answer.data, type=HeartbeatReply)

        for wrong in (
            card,
            msgspec.structs.replace(card, worker="field_1"),
            msgspec.structs.replace(card, worker=OTHER),
        ):
            with pytest.raises(NatsTimeoutError):
                await beat(wrong, seconds=1)
        assert (await beat(msgspec.structs.replace(card, pool="gpu"), seconds=60)).lease_ms > 0


async def test_an_enrolled_worker_has_no_say_about_tasks_of_another_pool(fleet: Fleet) -> None:
    fleet.client.register({"name": "slow", "function": "witness/thread", "input": {"seconds": 1}})
    run = RunId(fleet.client.trigger("slow").execution_id)
    held = task_id(run, ONLY_STEP), 1
    ended = EndedReport(task_id=held[0], fence=1, result=Result.GAVE_UP, error="sabotage")
    report = WorkerReport(worker=STRANGE_START, ended=(ended,))
    async with connected(fleet, "gpu1") as (client, _):
        while not fleet.client.execution(run).steps[0].attempts:  # noqa: ASYNC110 - in another process
            await asyncio.sleep(0.02)
        # It may not have started yet, so that nobody holds it.
        body = encode_worker_report(report, message_id=f"{STRANGE_START}:1", now=SystemClock().now())
        await client.publish(subjects.report_subject(STRANGE_START), body)
        wanted = msgspec.json.encode(StartRequest(worker=STRANGE_START, held=(held,)))
        granted = await client.request(subjects.grant_subject(STRANGE_START), wanted, timeout=60)

    assert msgspec.json.decode(granted.data) == {"held": []}
    assert STRANGE_START in fleet.server.line_with("does not hold")
    done = await asyncio.to_thread(fleet.client.finished, run, timeout=30)
    [attempt] = done.steps[0].attempts
    assert (done.status, attempt.worker.rpartition(".")[0]) == ("completed", "field_default.home1")


STREAMS = (subjects.WORK, subjects.REPORTS, subjects.DEAD)


async def state_of_streams(client: Client) -> list[object]:
    found = [await client.jetstream().stream_info(name) for name in STREAMS]
    return [(one.created, one.state.consumer_count) for one in found] + [found[0].state.last_seq]


@pytest.mark.parametrize(
    "target",
    [
        *(f"$JS.API.STREAM.DELETE.{name}" for name in STREAMS),
        f"$JS.API.CONSUMER.DELETE.{subjects.REPORTS}.{subjects.SCHEDULERS}",
        subjects.work_subject("at-home"),
        subjects.report_subject(OTHER),
        "mq.scheduler.hint.changes",
        "_INBOX_scheduler.x",
    ],
)
async def test_an_enrolled_worker_cannot_make_nats_or_a_server_publish_for_it(fleet: Fleet, target: str) -> None:
    """Answers go to the reply subject of a request, whether its sender may publish there or not."""
    pull = f"$JS.API.CONSUMER.MSG.NEXT.{subjects.WORK}.{subjects.consumer_name('gpu')}"
    card = WorkerInfo(worker=STRANGE_START, functions=(), slots=0, pool="gpu", started_at=0, draining=True)
    beat = subjects.heartbeat_subject(STRANGE_START), msgspec.json.encode(HeartbeatRequest(card=card))
    at_once = msgspec.json.encode({"batch": 1, "no_wait": True})
    async with connected(fleet, "gpu1") as (worker, _), connected(fleet, "server") as (server, _):
        before, heard = await state_of_streams(server), list[bytes]()

        async def hear(message: Msg) -> None:
            heard.append(message.data)

        if target.startswith(("mq.scheduler.", "_INBOX")):
            await server.subscribe(target, cb=hear)
            await server.flush()
        for subject, body in ((pull, at_once), beat, (subjects.report_subject(STRANGE_START), b"{}")):
            await worker.publish(subject, body, reply=target)
            # The answer to a second request comes after that to the first.
            await worker.request(subject, body, timeout=60)
        await server.flush()

        assert (await state_of_streams(server), heard) == (before, [])


async def test_a_revoked_worker_is_disconnected_and_refused_and_the_others_go_on(fleet: Fleet) -> None:
    async with connected(fleet, "leaver") as (client, events):
        revoke_worker(fleet.keys, "leaver")
        os.kill(fleet.nats.pid, signal.SIGHUP)
        while "nats_disconnected" not in events.names():  # noqa: ASYNC110 - NATS ends the connection
            await asyncio.sleep(0.02)
        assert not client.is_connected

    with pytest.raises(NatsUnavailable, match="Authorization Violation"):
        await connect(fleet.settings("leaver"), Recorder(), name="leaver")
    [by_gpu] = await asyncio.to_thread(finished, fleet, "after-revocation", pool="gpu")
    assert by_gpu.startswith("field_gpu.gpu1.")


# ---- the folder of the keys ----------------------------------------------------------------------


async def test_a_worker_of_another_pool_than_it_was_enrolled_for_does_not_start(tmp_path: Path) -> None:
    files = enroll_worker(tmp_path, "gpu1", pool="gpu")
    flags = {"nats.url": "nats://127.0.0.1:1", "nats.creds_file": str(files.worker), "worker.pool": "default"}

    with pytest.raises(FieldError, match="enrolled for 'gpu'"):
        await run_remote_worker(
            RemoteWorkerOptions(settings=load(flags=flags), functions=Functions(), events=Recorder()), asyncio.Event()
        )


def test_a_name_is_enrolled_once_until_it_is_revoked(tmp_path: Path) -> None:
    first = enroll_worker(tmp_path, "gpu1", pool="gpu").worker.read_text()
    with pytest.raises(FieldError, match="enrolled already"):
        enroll_worker(tmp_path, "gpu1", pool="default")
    revoke_worker(tmp_path, "gpu1")
    with pytest.raises(NotFound):
        revoke_worker(tmp_path, "gpu1")
    second = enroll_worker(tmp_path, "gpu1", pool="gpu").worker.read_text()

    assert first != second
    assert [(one.name, one.revoked_at is None) for one in enrolled_workers(tmp_path)] == [
        ("gpu1", False),
        ("gpu1", True),
    ]


@pytest.mark.parametrize("name", ["", "a.b", "a~b", "*", ">", "a b", "../a", "-a", "A", "server", "x" * 61, "ü"])
def test_a_name_that_is_no_token_of_a_subject_or_no_file_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(FieldError, match="name"):
        enroll_worker(tmp_path, name, pool="gpu")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("pool", ["", "*", "a.>", "a..b", "a.", "a~b", "a b", "_", "A"])
def test_a_pool_that_is_no_token_of_a_subject_is_refused(tmp_path: Path, pool: str) -> None:
    with pytest.raises(FieldError, match="pool"):
        enroll_worker(tmp_path, "gpu1", pool=pool)


@pytest.mark.parametrize(("name", "pool"), [("x" * 60, "y" * 60), ("7", "0"), ("gpu1", "rack.7.gpu")])
async def test_every_name_and_pool_that_is_enrolled_makes_an_id_that_servers_accept(
    tmp_path: Path, name: str, pool: str
) -> None:
    heard = asyncio.Event()

    async def beat(sender: str, body: bytes) -> bytes:
        worker = msgspec.json.decode(body, type=HeartbeatRequest).card.worker
        subjects.check_sender("card.worker", worker, sender)
        report = WorkerReport(worker=worker)
        decode_worker_report(encode_worker_report(report, message_id=f"{worker}:{10**9}", now=0), sender=sender)
        heard.set()
        return msgspec.json.encode(HeartbeatReply(lease_ms=30_000))

    files = enroll_worker(tmp_path / "keys", name, pool=pool)
    with Nats(f'include "{as_included(files.configuration)}"\n') as nats:
        url, stop, events = nats.url, asyncio.Event(), Recorder()
        client = await connect(NatsSettings(url=url, creds_file=str(files.server)), events, name="server")
        side = NatsServerBus(client, NatsSettings(), events, ack_wait_ms=30_000)
        await side.prepare([pool])
        await side.answer(heartbeats=beat, grants=beat)
        flags = {"nats.url": url, "nats.creds_file": str(files.worker), "worker.pool": pool}
        options = RemoteWorkerOptions(settings=load(flags=flags), functions=Functions(), events=Recorder())
        working = asyncio.create_task(run_remote_worker(options, stop))
        await heard.wait()
        stop.set()
        await working
        await side.close()
        await client.close()
    assert "nats_error" not in events.names()


def test_keys_and_credentials_are_for_their_owner_only(tmp_path: Path) -> None:
    files = enroll_worker(tmp_path / "keys", "gpu1", pool="gpu")

    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "keys").iterdir()}
    assert modes == {
        "keys.json": 0o600, "workers.json": 0o600, "server.creds": 0o600, "gpu1.creds": 0o600, "auth.conf": 0o644,
    }  # fmt: skip
    files.worker.chmod(0o644)
    with pytest.raises(FileError, match="everybody may read it"):
        asyncio.run(connect(NatsSettings(url="nats://127.0.0.1:1", creds_file=str(files.worker)), Recorder(), name="x"))
