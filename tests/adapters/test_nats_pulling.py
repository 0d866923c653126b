"""Pulling from a consumer that somebody deletes: what another one of its name gives out may be with others already."""

from collections.abc import AsyncIterator, Iterator

import pytest
from nats.aio.client import Client
from nats.js.api import ConsumerConfig, RetentionPolicy, StreamConfig

from gnomon.adapters.nats.connection import connect
from gnomon.adapters.nats.pulling import Puller
from gnomon.errors import Unavailable
from gnomon.ports.queue import Delivered
from gnomon.sections import Nats as Settings
from gnomon.testing.clock import Recorder
from support.bus_servers import Nats

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


async def one_from(puller: Puller) -> Delivered:
    """The next one, however often it has to be asked for."""
    while True:
        try:
            if pulled := await puller.pull(limit=1, wait_ms=1000):
                return pulled[0]
        except Unavailable:
            continue


async def test_what_is_given_out_in_the_usual_way_is_believed(client: Client) -> None:
    await sent(client, 3)
    puller = Puller(client, "S", "C")

    assert [(await one_from(puller)).doubtful for _ in range(3)] == [False] * 3


async def test_whoever_waited_while_the_consumer_was_deleted_is_in_doubt(client: Client) -> None:
    waiting = Puller(client, "S", "C")
    assert await waiting.pull(limit=1, wait_ms=1) == []
    await client.flush()
    await made_again(client)
    await sent(client, 1)

    assert (await one_from(waiting)).doubtful


async def test_whoever_did_not_notice_finds_out_by_what_it_is_given(client: Client) -> None:
    await sent(client, 2)
    busy = Puller(client, "S", "C")
    assert [(await one_from(busy)).doubtful for _ in range(2)] == [False, False]
    await made_again(client)

    assert (await one_from(busy)).doubtful
