"""Hints over PostgreSQL and NATS: other processes receive them soon, and lost ones do no harm."""

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Iterator

import pytest

from gnomon.adapters.nats.connection import connect
from gnomon.adapters.nats.hints import SUBJECT, NatsHints
from gnomon.adapters.sql.postgres_notify import CHANNEL, PostgresHints
from gnomon.config import sections
from gnomon.ports.coordination import Hints, HintTopic
from gnomon.testing.clock import Recorder
from support.nats_redis_servers import Nats
from support.postgres_server import Postgres, postgres

PATIENCE = 20


class HintListener:
    """Counts the hints received."""

    def __init__(self) -> None:
        self.heard: Counter[HintTopic] = Counter()
        self._more = asyncio.Event()

    def __call__(self, topic: HintTopic) -> None:
        self.heard[topic] += 1
        self._more.set()

    async def until(self, *topics: HintTopic) -> None:
        """Wait until all of these topics were received."""
        async with asyncio.timeout(PATIENCE):
            while not all(self.heard[topic] for topic in topics):
                self._more.clear()
                await self._more.wait()


async def listening(hints: Hints) -> HintListener:
    """A listener that receives already."""
    ear = HintListener()
    await hints.listen(ear)
    await ear.until(*HintTopic)
    ear.heard.clear()
    return ear


async def send_until_received(hints: Hints, topic: HintTopic, ear: HintListener) -> None:
    """Send the hint until it is received: one may be lost, above all the first."""
    async with asyncio.timeout(PATIENCE):
        while not ear.heard[topic]:
            hints.send(topic)
            await asyncio.sleep(0.01)


class HintContract(ABC):
    @abstractmethod
    def voice(self) -> Hints:
        """Another connected Hints object."""

    @pytest.fixture
    async def one(self) -> AsyncIterator[Hints]:
        hints = self.voice()
        yield hints
        await hints.close()

    @pytest.fixture
    async def other(self) -> AsyncIterator[Hints]:
        hints = self.voice()
        yield hints
        await hints.close()

    async def test_a_new_listener_is_called_for_every_topic(self, one: Hints) -> None:
        ear = HintListener()
        await one.listen(ear)

        await ear.until(*HintTopic)

    @pytest.mark.parametrize("topic", HintTopic)
    async def test_a_hint_reaches_all_other_listeners(self, one: Hints, other: Hints, topic: HintTopic) -> None:
        ear = await listening(other)

        await send_until_received(one, topic, ear)

        assert set(ear.heard) == {topic}

    async def test_nobody_hears_their_own_voice(self, one: Hints, other: Hints) -> None:
        own, others = await listening(one), await listening(other)
        await send_until_received(one, HintTopic.WORK, others)
        await send_until_received(other, HintTopic.READY, own)

        assert set(own.heard) == {HintTopic.READY}

    async def test_repeated_hints_arrive_at_least_once_and_no_oftener_than_sent(self, one: Hints, other: Hints) -> None:
        ear = await listening(other)
        for _ in range(1000):
            one.send(HintTopic.WORK)
        await send_until_received(one, HintTopic.READY, ear)
        await send_until_received(one, HintTopic.WORK, ear)

        assert 1 <= ear.heard[HintTopic.WORK] <= 1000

    async def test_closing_sends_the_pending_hints(self, one: Hints, other: Hints) -> None:
        ear = await listening(other)
        await send_until_received(one, HintTopic.WORK, ear)
        one.send(HintTopic.CHANGES)
        await one.close()

        await ear.until(HintTopic.CHANGES)

    async def test_after_closing_no_hint_is_sent_or_received(self, one: Hints, other: Hints) -> None:
        gone, ear = await listening(other), await listening(one)
        await other.close()
        other.send(HintTopic.WORK)
        one.send(HintTopic.READY)
        third = self.voice()
        await send_until_received(third, HintTopic.SHARDS, ear)
        await third.close()

        assert (set(gone.heard), set(ear.heard)) == (set(), {HintTopic.SHARDS})

    async def test_telling_nobody_does_no_harm(self, one: Hints) -> None:
        one.send(HintTopic.WORK)
        await one.close()
        await one.close()


@pytest.mark.parametrize("version", [16, 18], scope="class")
class TestPostgresHints(HintContract):
    @pytest.fixture(autouse=True)
    async def _database(self, version: int) -> AsyncIterator[None]:
        async with postgres(version).database() as self.url:
            yield

    def voice(self) -> Hints:
        return PostgresHints(self.url, Recorder())

    async def test_foreign_messages_on_the_channel_are_ignored(self, one: Hints, other: Hints, version: int) -> None:
        ear = await listening(other)
        for said in ("", "work", "nonsense 1", "work " + "x" * 7000, "\t"):
            await postgres(version).run(f"SELECT pg_notify('{CHANNEL}', '{said}')", url=self.url)
        await send_until_received(one, HintTopic.READY, ear)

        assert HintTopic.SHARDS not in ear.heard

    @pytest.mark.guarantee("C13")
    async def test_a_process_behind_a_pooler_sends_hints_and_receives_none(self, other: Hints) -> None:
        ear = await listening(other)
        pooled = PostgresHints(self.url, Recorder(), listens=False)
        await pooled.listen(HintListener())

        await send_until_received(pooled, HintTopic.WORK, ear)
        await pooled.close()


@pytest.fixture(scope="module")
def nats_server() -> Iterator[Nats]:
    with Nats() as server:
        yield server


class TestNatsHints(HintContract):
    @pytest.fixture(autouse=True)
    def _server(self, nats_server: Nats) -> None:
        self.settings = sections.NatsSettings(url=nats_server.url)

    def voice(self) -> Hints:
        return NatsHints(self.settings, Recorder())

    async def test_foreign_messages_on_the_subject_are_ignored(self, one: Hints, other: Hints) -> None:
        ear = await listening(other)
        stranger = await connect(self.settings, Recorder(), name="stranger")
        await stranger.publish(f"{SUBJECT}.nonsense", b"1")
        await stranger.flush()
        await send_until_received(one, HintTopic.READY, ear)
        await stranger.close()

        assert set(ear.heard) == {HintTopic.READY}


# ---- when the server fails -----------------------------------------------------------------------


@pytest.fixture(params=["postgresql", "nats"])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[Postgres | Nats]:
    """A server that the test may kill."""
    with Postgres(18) if request.param == "postgresql" else Nats() as server:
        if isinstance(server, Postgres):
            await server.empty("hints")
        yield server


def hints_on(server: Postgres | Nats, events: Recorder) -> Hints:
    if isinstance(server, Postgres):
        return PostgresHints(server.url("hints"), events)
    return NatsHints(sections.NatsSettings(url=server.url, timeout_ms=3000), events)


@pytest.mark.guarantee("C5")
async def test_after_an_outage_everything_is_looked_at_and_hints_are_heard_again(server: Postgres | Nats) -> None:
    events = Recorder()
    one, other = hints_on(server, events), hints_on(server, Recorder())
    ear = await listening(other)
    await send_until_received(one, HintTopic.WORK, ear)
    ear.heard.clear()
    server.kill()
    one.send(HintTopic.READY)
    async with asyncio.timeout(PATIENCE):
        while "hints_lost" not in events.names():
            one.send(HintTopic.READY)
            await asyncio.sleep(0.01)
    # Hints that were published before the outage may arrive late, and twice.
    assert HintTopic.READY not in ear.heard
    ear.heard.clear()
    server.start()

    await ear.until(*HintTopic)
    ear.heard.clear()
    await send_until_received(one, HintTopic.SHARDS, ear)
    await one.close()
    await other.close()


@pytest.mark.guarantee("C5")
async def test_a_listener_that_cannot_connect_retries(server: Postgres | Nats) -> None:
    one, other = hints_on(server, Recorder()), hints_on(server, Recorder())
    server.kill()
    ear = HintListener()
    await other.listen(ear)
    one.send(HintTopic.WORK)
    await asyncio.sleep(0.05)  # long enough to be refused
    assert not ear.heard
    server.start()

    await ear.until(*HintTopic)
    await one.close()
    await other.close()


async def test_an_end_is_not_held_up_by_a_server_that_is_away(server: Postgres | Nats) -> None:
    hints = hints_on(server, Recorder())
    await hints.listen(HintListener())
    with server.frozen():
        hints.send(HintTopic.WORK)
        async with asyncio.timeout(60):
            await hints.close()
