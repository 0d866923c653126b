"""Pulling from a consumer that somebody deletes: what another one of its name gives out may be with others already."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from nats.aio.client import Client
from nats.js.api import ConsumerConfig, RetentionPolicy, StreamConfig

from gnomon.adapters.nats import consumer
from gnomon.adapters.nats.connection import connect
from gnomon.adapters.nats.consumer import PullConsumer
from gnomon.config.sections import NatsSettings as Settings
from gnomon.errors import Unavailable
from gnomon.ports.messaging import InboundMessage
from gnomon.testing.clock import Recorder
from support.nats_redis_servers import Nats

pytestmark = pytest.mark.guarantee("C5", "S9")


@pytest.fixture(scope="module")
def nats() -> Iterator[Nats]:
    with Nats() as running:
        yield running


@pytest.fixture
async def client(nats: Nats) -> AsyncIterator[Client]:
    client = await connect(Settings(url=nats.url), Recorder(), name="test")
    js = client.jetstream()
    await js.add_stream(StreamConfig(name="S", subjects=["s.>"], retention=RetentionPolicy.WORK_QUEUE))
    await js.add_consumer("S", ConsumerConfig(durable_name="C"))
    yield client
    await js.delete_stream("S")
    await client.close()


async def made_again(client: Client) -> None:
    await client.jetstream().delete_consumer("S", "C")
    await client.jetstream().add_consumer("S", ConsumerConfig(durable_name="C"))


async def sent(client: Client, count: int) -> None:
    for number in range(count):
        await client.jetstream().publish("s.one", str(number).encode())


async def one_from(puller: PullConsumer) -> InboundMessage:
    """The next one, however often it has to be asked for."""
    while True:
        try:
            if pulled := await puller.pull(limit=1, wait_ms=1000):
                return pulled[0]
        except Unavailable:
            continue


@pytest.fixture
def clocks_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer, "_DOUBT_MS", 0.0)


@pytest.mark.usefixtures("clocks_agree")
async def test_a_normal_delivery_is_trusted(client: Client) -> None:
    puller = PullConsumer(client, "S", "C")
    await sent(client, 3)

    assert [(await one_from(puller)).doubtful for _ in range(3)] == [False] * 3


async def test_messages_from_before_a_lost_connection_are_doubtful(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer, "_DOUBT_MS", 0.0)
    puller = PullConsumer(client, "S", "C")
    await sent(client, 2)
    async with asyncio.timeout(60):
        assert not (await puller.pull(limit=1, wait_ms=5_000))[0].doubtful
        await puller._request(1)  # noqa: SLF001 - as a pull with more room does
        while not puller._received:  # noqa: ASYNC110, SLF001 - it comes by itself
            await asyncio.sleep(0.01)
    monkeypatch.setitem(client.stats, "reconnects", client.stats["reconnects"] + 1)

    assert (await puller.pull(limit=1, wait_ms=0))[0].doubtful


async def test_received_messages_are_returned_though_no_request_can_be_sent(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    puller = PullConsumer(client, "S", "C")
    puller.offer(InboundMessage(b"for us alone", 1, None))
    monkeypatch.setattr(Client, "is_connected", property(lambda _: False))

    assert [one.body for one in await puller.pull(limit=2, wait_ms=0)] == [b"for us alone"]
    monkeypatch.undo()


async def test_a_recreated_consumer_is_detected_by_its_delivery_numbers(client: Client) -> None:
    puller = PullConsumer(client, "S", "C")
    await sent(client, 1)
    await one_from(puller)
    before = puller.delivery_gaps
    assert await puller.pull(limit=1, wait_ms=1) == []
    await client.flush()
    await made_again(client)
    await one_from(puller)

    assert puller.delivery_gaps > before


@pytest.mark.usefixtures("clocks_agree")
async def test_a_redelivered_message_is_doubtful(client: Client) -> None:
    puller = PullConsumer(client, "S", "C")
    await client.jetstream().publish("s.one", b"", headers={consumer.REDELIVERY_HEADER: "1"})

    assert (await one_from(puller)).doubtful


async def test_messages_that_arrive_during_a_request_are_returned_at_once(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    puller = PullConsumer(client, "S", "C")
    assert await puller.pull(limit=1, wait_ms=1) == []
    publish = client.publish

    async def slow(*words: Any, **named: Any) -> None:  # noqa: ANN401 - as it is called
        await publish(*words, **named)
        puller.offer(InboundMessage(b"for us alone", 1, None))

    puller._requests.clear()  # noqa: SLF001 - as if their time was over
    with monkeypatch.context() as patched:
        patched.setattr(client, "publish", slow)
        async with asyncio.timeout(30):
            assert await puller.pull(limit=1, wait_ms=60_000)


async def test_messages_after_a_deleted_consumer_are_doubtful(client: Client) -> None:
    waiting = PullConsumer(client, "S", "C")
    assert await waiting.pull(limit=1, wait_ms=1) == []
    await client.flush()
    await made_again(client)
    await sent(client, 1)

    assert (await one_from(waiting)).doubtful


@pytest.mark.usefixtures("clocks_agree")
@pytest.mark.parametrize("count", [1, 2])
async def test_an_unnoticed_recreation_is_detected_by_the_next_message(client: Client, count: int) -> None:
    busy = PullConsumer(client, "S", "C")
    await sent(client, count)
    assert [(await one_from(busy)).doubtful for _ in range(count)] == [False] * count
    await made_again(client)

    assert (await one_from(busy)).doubtful


async def test_messages_come_to_changing_inboxes_so_that_nats_can_forget_earlier_requests(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer, "_REQUESTS_PER_INBOX", 1)
    puller = PullConsumer(client, "S", "C")
    bodies = []
    for number in range(5):
        # The request for this message is still open when the next one names another inbox.
        await puller.pull(limit=number + 1, wait_ms=1)
        await client.jetstream().publish("s.one", str(number).encode())
        bodies.append((await one_from(puller)).body)
    assert bodies == [b"0", b"1", b"2", b"3", b"4"]

    earlier = [one for one, _ in puller._retired]  # noqa: SLF001 - NATS does not list them
    assert earlier
    puller._retired = deque((one, 0.0) for one in earlier)  # noqa: SLF001 - as if their time was over
    await puller._change_inbox()  # noqa: SLF001 - as the next pull but one does
    assert not {one._id for one in earlier} & client._subs.keys()  # noqa: SLF001
