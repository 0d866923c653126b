"""The message bus over a real NATS server keeps the contract, with the users of the shipped configuration."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress

import pytest
from msgspec.structs import replace
from nats.aio.client import Client
from nats.js.errors import NotFoundError

from contracts.messaging import (
    ACK_WAIT_MS,
    MAX_DELIVER,
    DeadMessages,
    LetPass,
    MessagingContract,
    bodies,
    outbound_task,
)
from gnomon.adapters.nats import queue
from gnomon.adapters.nats.connection import connect
from gnomon.adapters.nats.hints import NatsHints
from gnomon.adapters.nats.leases import LazyNatsLeases
from gnomon.adapters.nats.queue import NatsServerBus, NatsWorkerBus
from gnomon.config.sections import NatsSettings as Settings
from gnomon.core import subjects
from gnomon.errors import FieldError, Unavailable
from gnomon.ports.coordination import HintTopic
from gnomon.ports.messaging import InboundMessage
from gnomon.testing.clock import Recorder
from support.nats_redis_servers import Nats
from support.nats_users import PASSWORDS, nats_with_users


@pytest.fixture(scope="module")
def nats() -> Iterator[Nats]:
    with nats_with_users() as running:
        yield running


def settings_of(nats: Nats, user: str, **more: object) -> Settings:
    return Settings(url=nats.url, user=user, password=PASSWORDS[user], timeout_ms=5_000, **more)  # type: ignore[arg-type]


@asynccontextmanager
async def connected(nats: Nats, user: str) -> AsyncIterator[Client]:
    client = await connect(settings_of(nats, user), Recorder(), name=user)
    try:
        yield client
    finally:
        await client.close()


async def emptied(client: Client) -> None:
    """Delete all streams, so that each test creates its own."""
    for name in (subjects.WORK, subjects.REPORTS, subjects.DEAD):
        try:
            await client.jetstream().delete_stream(name)
        except NotFoundError:
            continue


@pytest.fixture
async def admin(nats: Nats) -> AsyncIterator[Client]:
    async with connected(nats, "admin") as client:
        await emptied(client)
        yield client


@pytest.fixture
async def server(nats: Nats, admin: Client, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[NatsServerBus]:
    del admin
    monkeypatch.setattr(queue, "MAX_DELIVER", MAX_DELIVER)
    async with connected(nats, "scheduler") as client:
        side = NatsServerBus(client, settings_of(nats, "scheduler"), Recorder(), ack_wait_ms=ACK_WAIT_MS)
        yield side
        await side.close()


@pytest.fixture
async def worker(nats: Nats, admin: Client) -> AsyncIterator[NatsWorkerBus]:
    del admin
    async with connected(nats, "worker") as client:
        yield NatsWorkerBus(client, settings_of(nats, "worker"), worker="worker_1")


class TestNatsQueue(MessagingContract):
    @pytest.fixture
    async def other(self, nats: Nats, admin: Client) -> AsyncIterator[NatsWorkerBus]:
        del admin
        async with connected(nats, "worker") as client:
            yield NatsWorkerBus(client, settings_of(nats, "worker"), worker="worker_2", pool="gpu")

    @pytest.fixture
    def passing(self) -> LetPass:
        async def passing(ms: int) -> None:
            await asyncio.sleep(ms / 1000)

        return passing

    @pytest.fixture
    def dead(self, admin: Client) -> DeadMessages:
        async def dead() -> Sequence[bytes]:
            js = admin.jetstream()
            count = (await js.stream_info(subjects.DEAD)).state.messages
            return [(await js.get_msg(subjects.DEAD, number + 1)).data or b"" for number in range(count)]

        return dead


# ---- streams -------------------------------------------------------------------------------------


@pytest.mark.req("H-13")
async def test_streams_are_made_as_the_settings_say(admin: Client, server: NatsServerBus) -> None:
    await server.prepare(["default"])
    await server.prepare(["default"])

    work = (await admin.jetstream().stream_info(subjects.WORK)).config
    assert (work.storage, work.num_replicas, work.retention) == ("file", 1, "workqueue")
    consumer = (await admin.jetstream().consumer_info(subjects.WORK, "job-executors")).config
    assert (consumer.ack_wait, consumer.ack_policy) == (ACK_WAIT_MS / 1000, "explicit")


async def test_a_stream_that_differs_is_brought_into_line(admin: Client, server: NatsServerBus) -> None:
    await server.prepare(["default"])
    changed = (await admin.jetstream().stream_info(subjects.REPORTS)).config
    changed.max_age = 60.0
    changed.duplicate_window = 10.0
    await admin.jetstream().update_stream(changed)

    await server.prepare(["default"])

    found = (await admin.jetstream().stream_info(subjects.REPORTS)).config
    assert (found.max_age, found.duplicate_window) == (7 * 24 * 3600.0, 120.0)


async def test_a_stream_that_cannot_be_changed_is_refused_by_name(nats: Nats, server: NatsServerBus) -> None:
    await server.prepare(["default"])
    in_memory = settings_of(nats, "scheduler", storage="memory")
    async with connected(nats, "scheduler") as client:
        side = NatsServerBus(client, in_memory, Recorder(), ack_wait_ms=ACK_WAIT_MS)
        with pytest.raises(FieldError, match=r"nats.storage.*memory.*GNOMON_WORK has 'file'"):
            await side.prepare(["default"])


@pytest.mark.guarantee("C5")
async def test_a_deleted_stream_is_created_again_and_pulling_continues(
    admin: Client, server: NatsServerBus, worker: NatsWorkerBus
) -> None:
    await server.prepare(["default"])
    await server.publish([outbound_task("a")])
    await worker.acknowledge(await worker.pull(limit=5, wait_ms=1_000))
    await admin.jetstream().delete_stream(subjects.WORK)
    with pytest.raises(Unavailable):
        await server.under_way("default")

    await server.prepare(["default"])
    await server.publish([outbound_task("b")])

    found: list[str] = []
    while not found:
        found = bodies(await worker.pull(limit=5, wait_ms=1_000))
    assert found == ["b"]


@pytest.mark.guarantee("S18")
async def test_an_oversized_message_blocks_no_other(server: NatsServerBus) -> None:
    await server.prepare(["default"])
    large = replace(outbound_task("large"), body=b"x" * (2**20 + 1))

    assert await server.publish([large, outbound_task("small")]) == {"small"}


# ---- the server dies -----------------------------------------------------------------------------


async def published(server: NatsServerBus, name: str) -> bool:
    try:
        return bool(await server.publish([outbound_task(name)]))
    except Unavailable:
        return False


@pytest.mark.guarantee("C5")
@pytest.mark.req("R-17")
async def test_a_killed_server_loses_nothing_and_pulling_continues_when_it_is_back() -> None:
    with nats_with_users() as nats:
        async with connected(nats, "scheduler") as one, connected(nats, "worker") as other:
            server = NatsServerBus(one, settings_of(nats, "scheduler"), Recorder(), ack_wait_ms=60_000)
            worker = NatsWorkerBus(other, settings_of(nats, "worker"), worker="worker_1")
            await server.prepare(["default"])
            await server.publish([outbound_task("before")])
            assert bodies(await worker.pull(limit=10, wait_ms=1_000)) == ["before"]

            nats.kill()
            while await published(server, "during"):  # noqa: ASYNC110 - until the client has noticed
                await asyncio.sleep(0.05)
            nats.start()
            while not await published(server, "after"):  # noqa: ASYNC110 - until it is back
                await asyncio.sleep(0.05)

            # Earlier messages may have been delivered to others, and a killed server may not know.
            assert (await pulled_again(worker)).doubtful
            await server.close()


async def pulled_again(worker: NatsWorkerBus) -> InboundMessage:
    while True:
        try:
            for one in await worker.pull(limit=10, wait_ms=500):
                if one.body == b"after":
                    return one
        except Unavailable:
            await asyncio.sleep(0.05)


# ---- permissions ---------------------------------------------------------------------------------


@pytest.mark.req("H-21")
@pytest.mark.parametrize(
    "subject",
    [
        "mq.scheduled.report",
        "mq.scheduler.dead.GNOMON_WORK",
        "$JS.API.STREAM.DELETE.GNOMON_WORK",
        "$JS.API.STREAM.PURGE.GNOMON_WORK",
        "$JS.API.STREAM.MSG.GET.GNOMON_REPORTS",
        "$JS.API.CONSUMER.CREATE.GNOMON_WORK",
        "$JS.API.CONSUMER.MSG.NEXT.GNOMON_REPORTS.schedulers",
        "$JS.ACK.GNOMON_REPORTS.schedulers.1.1.1.1.1",
        "_INBOX_scheduler.x",
    ],
)
async def test_a_worker_can_pull_acknowledge_and_report_and_nothing_else(
    nats: Nats, server: NatsServerBus, subject: str
) -> None:
    await server.prepare(["default"])
    refused = Recorder()
    client = await connect(settings_of(nats, "worker"), refused, name="worker")
    await client.publish(subject, b"{}")
    await client.flush()
    while "nats_error" not in refused.names():  # noqa: ASYNC110 - the server says so when it likes
        await asyncio.sleep(0.01)
    await client.close()

    [(_, facts)] = [one for one in refused.seen if one[0] == "nats_error"]
    assert "permissions violation" in str(facts["error"]).lower()


@pytest.mark.req("H-21")
@pytest.mark.parametrize("user", ["worker", "scheduler"])
@pytest.mark.parametrize("subject", [">", "mq.scheduled.>", "_INBOX.>", "$SYS.>"])
async def test_nobody_listens_to_what_is_not_theirs(nats: Nats, user: str, subject: str) -> None:
    refused = Recorder()
    client = await connect(settings_of(nats, user), refused, name=user)
    await client.subscribe(subject)
    await client.flush()
    while "nats_error" not in refused.names():  # noqa: ASYNC110 - the server says so when it likes
        await asyncio.sleep(0.01)
    await client.close()


@pytest.mark.req("H-21")
@pytest.mark.parametrize("subject", ["mq.inference.x", "$JS.API.STREAM.DELETE.GNOMON_WORK", "$JS.API.STREAM.CREATE.X"])
async def test_the_scheduler_may_use_no_other_subjects(nats: Nats, subject: str) -> None:
    refused = Recorder()
    client = await connect(settings_of(nats, "scheduler"), refused, name="scheduler")
    await client.publish(subject, b"{}")
    await client.flush()
    while "nats_error" not in refused.names():  # noqa: ASYNC110 - the server says so when it likes
        await asyncio.sleep(0.01)
    await client.close()


@pytest.mark.req("H-21")
async def test_the_scheduler_can_keep_leases_and_hear_hints(nats: Nats) -> None:
    refused = Recorder()
    client = await connect(settings_of(nats, "scheduler"), refused, name="scheduler")
    js = client.jetstream(timeout=20)
    await js.create_key_value(bucket="gnomon_leases", history=1, limit_marker_ttl=1.0)
    put = await js.publish("$KV.gnomon_leases.leader", b"me", msg_ttl=2)
    assert (await js.get_msg("KV_gnomon_leases", subject="$KV.gnomon_leases.leader")).seq == put.seq
    hints = await client.subscribe("mq.scheduler.hint.*")
    await client.publish("mq.scheduler.hint.tasks", b"")
    assert (await hints.next_msg(timeout=20)).subject == "mq.scheduler.hint.tasks"
    await client.close()

    assert "nats_error" not in refused.names()


@pytest.mark.req("H-21")
async def test_an_answer_goes_to_an_inbox_and_nowhere_else(nats: Nats, admin: Client) -> None:
    events, answered = Recorder(), asyncio.Event()

    async def heard(_: str, body: bytes) -> bytes:
        return b"heard " + body

    async def asked(_: str, body: bytes) -> bytes:
        answered.set()
        return body

    async with connected(nats, "scheduler") as one, connected(nats, "worker") as other:
        side = NatsServerBus(one, settings_of(nats, "scheduler"), events, ack_wait_ms=ACK_WAIT_MS)
        await side.prepare(["default"])
        await side.answer(heartbeats=heard, grants=asked)
        await one.flush()
        await other.publish(subjects.heartbeat_subject("w"), b"wicked", reply="mq.scheduled.report")
        await other.request(subjects.grant_subject("w"), b"", timeout=20)
        await answered.wait()
        await side.close()

    assert "request_refused" in events.names()
    assert (await admin.jetstream().stream_info(subjects.WORK)).state.messages == 0


async def test_a_worker_that_floods_the_stream_of_reports_is_refused_and_others_are_not(
    nats: Nats, admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    del admin
    async with connected(nats, "scheduler") as one, connected(nats, "worker") as other:
        side = NatsServerBus(one, settings_of(nats, "scheduler"), Recorder(), ack_wait_ms=ACK_WAIT_MS)
        await side.prepare(["default"])
        # A stream that exists is brought up to date.
        monkeypatch.setattr(queue, "MAX_PENDING_REPORTS", 3)
        await side.prepare(["default"])
        flood, honest = (NatsWorkerBus(other, settings_of(nats, "worker"), worker=name) for name in ("w1", "w2"))
        for number in range(3):
            await flood.report(f"w1:{number}", b"a")
        with pytest.raises(Unavailable, match="cannot report"):
            await flood.report("w1:3", b"a")
        await honest.report("w2:1", b"b")

        # The stream has room again as soon as servers have processed what it holds.
        await side.acknowledge(await side.collect(limit=10, wait_ms=2_000))
        await one.flush()
        await _reported(flood, "w1:3")
        await side.close()


async def _reported(worker: NatsWorkerBus, message_id: str) -> None:
    """Report until there is room: the stream removes what was acknowledged a moment later."""
    async with asyncio.timeout(20):
        while True:
            with suppress(Unavailable):
                return await worker.report(message_id, b"a")
            await asyncio.sleep(0.02)


async def test_a_worker_that_floods_a_server_with_requests_delays_only_itself(nats: Nats, admin: Client) -> None:
    del admin
    events, stuck, answered = Recorder(), asyncio.Event(), list[str]()

    async def beat(sender: str, body: bytes) -> bytes:
        answered.append(sender)
        if sender == "field_flood":
            await stuck.wait()
        return body

    async with connected(nats, "scheduler") as one, connected(nats, "worker") as other:
        side = NatsServerBus(one, settings_of(nats, "scheduler"), events, ack_wait_ms=ACK_WAIT_MS)
        await side.answer(heartbeats=beat, grants=beat)
        for _ in range(1_000):
            await other.publish(subjects.heartbeat_subject("field_flood"), b"", reply=other.new_inbox())
        await other.request(subjects.heartbeat_subject("field_1"), b"", timeout=60)
        assert (answered.count("field_flood"), answered.count("field_1")) == (8, 1)
        assert events.names().count("request_refused") == 1

        stuck.set()
        await other.request(subjects.heartbeat_subject("field_flood"), b"", timeout=60)
        await side.close()


@pytest.mark.req("H-21", "C-11")
async def test_the_scheduler_may_take_leases_and_hear_hints(nats: Nats) -> None:
    events = Recorder()
    leases = LazyNatsLeases(settings_of(nats, "scheduler"), events)
    hints = [NatsHints(settings_of(nats, "scheduler"), events) for _ in range(2)]
    heard = asyncio.Event()
    await hints[0].listen(lambda _: heard.set())

    token = await leases.acquire("reconciler", "node_1", ttl_ms=5_000)
    assert token is not None
    assert await leases.acquire("reconciler", "node_2", ttl_ms=5_000) is None
    while not heard.is_set():
        # It listens once it is connected; earlier hints are missed.
        hints[1].send(HintTopic.WORK)
        await asyncio.sleep(0.02)

    await leases.close()
    for one in hints:
        await one.close()
    assert "nats_error" not in events.names()
