"""Hints in memory, by PostgreSQL and by NATS: heard by others soon, and nothing is worse off without them."""

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Iterator

import pytest

from gnomon.adapters.memory.coordination import Board, MemoryHints
from gnomon.adapters.nats.connection import connect
from gnomon.adapters.nats.hints import SUBJECT, NatsHints
from gnomon.adapters.sql.postgres_notify import CHANNEL, PostgresHints
from gnomon.config import sections
from gnomon.ports.coordination import Hints, Topic
from gnomon.testing.clock import Recorder
from support.bus_servers import Nats
from support.servers import Postgres, postgres

PATIENCE = 20


class Ear:
    """What was heard, counted."""

    def __init__(self) -> None:
        self.heard: Counter[Topic] = Counter()
        self._more = asyncio.Event()

    def __call__(self, topic: Topic) -> None:
        self.heard[topic] += 1
        self._more.set()

    async def until(self, *topics: Topic) -> None:
        """Return when all of these were heard."""
        async with asyncio.timeout(PATIENCE):
            while not all(self.heard[topic] for topic in topics):
                self._more.clear()
                await self._more.wait()


async def listening(hints: Hints) -> Ear:
    """An ear that hears already."""
    ear = Ear()
    await hints.listen(ear)
    await ear.until(*Topic)
    ear.heard.clear()
    return ear


async def told(hints: Hints, topic: Topic, ear: Ear) -> None:
    """Tell it until it was heard: one may be lost, above all the first."""
    async with asyncio.timeout(PATIENCE):
        while not ear.heard[topic]:
            hints.tell(topic)
            await asyncio.sleep(0.01)


class HintContract(ABC):
    @abstractmethod
    def voice(self) -> Hints:
        """Another one of those who can hear each other."""

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

    async def test_whoever_begins_to_listen_is_told_to_look_at_everything(self, one: Hints) -> None:
        ear = Ear()
        await one.listen(ear)

        await ear.until(*Topic)

    @pytest.mark.parametrize("topic", Topic)
    async def test_what_one_tells_the_others_hear(self, one: Hints, other: Hints, topic: Topic) -> None:
        ear = await listening(other)

        await told(one, topic, ear)

        assert set(ear.heard) == {topic}

    async def test_nobody_hears_their_own_voice(self, one: Hints, other: Hints) -> None:
        own, others = await listening(one), await listening(other)
        await told(one, Topic.WORK, others)
        await told(other, Topic.READY, own)

        assert set(own.heard) == {Topic.READY}

    async def test_what_is_told_often_is_heard_at_least_once_and_no_oftener_than_told(
        self, one: Hints, other: Hints
    ) -> None:
        ear = await listening(other)
        for _ in range(1000):
            one.tell(Topic.WORK)
        await told(one, Topic.READY, ear)
        await told(one, Topic.WORK, ear)

        assert 1 <= ear.heard[Topic.WORK] <= 1000

    async def test_what_was_told_last_is_on_its_way_once_it_is_closed(self, one: Hints, other: Hints) -> None:
        ear = await listening(other)
        await told(one, Topic.WORK, ear)
        one.tell(Topic.CHANGES)
        await one.close()

        await ear.until(Topic.CHANGES)

    async def test_after_the_end_nothing_is_told_and_nothing_heard(self, one: Hints, other: Hints) -> None:
        gone, ear = await listening(other), await listening(one)
        await other.close()
        other.tell(Topic.WORK)
        one.tell(Topic.READY)
        third = self.voice()
        await told(third, Topic.SHARDS, ear)
        await third.close()

        assert (set(gone.heard), set(ear.heard)) == (set(), {Topic.SHARDS})

    async def test_telling_nobody_does_no_harm(self, one: Hints) -> None:
        one.tell(Topic.WORK)
        await one.close()
        await one.close()


class TestMemoryHints(HintContract):
    @pytest.fixture(autouse=True)
    def _board(self) -> None:
        self.board = Board()

    def voice(self) -> Hints:
        return MemoryHints(self.board)


@pytest.mark.parametrize("version", [16, 18], scope="class")
class TestPostgresHints(HintContract):
    @pytest.fixture(autouse=True)
    async def _database(self, version: int) -> AsyncIterator[None]:
        async with postgres(version).database() as self.url:
            yield

    def voice(self) -> Hints:
        return PostgresHints(self.url, Recorder())

    async def test_what_other_programs_say_on_the_channel_means_nothing(
        self, one: Hints, other: Hints, version: int
    ) -> None:
        ear = await listening(other)
        for said in ("", "work", "nonsense 1", "work " + "x" * 7000, "\t"):
            await postgres(version).run(f"SELECT pg_notify('{CHANNEL}', '{said}')", url=self.url)
        await told(one, Topic.READY, ear)

        assert Topic.SHARDS not in ear.heard

    @pytest.mark.guarantee("C13")
    async def test_whoever_is_behind_a_pooler_tells_and_does_not_listen(self, other: Hints) -> None:
        ear = await listening(other)
        pooled = PostgresHints(self.url, Recorder(), listens=False)
        await pooled.listen(Ear())

        await told(pooled, Topic.WORK, ear)
        await pooled.close()


@pytest.fixture(scope="module")
def nats_server() -> Iterator[Nats]:
    with Nats() as server:
        yield server


class TestNatsHints(HintContract):
    @pytest.fixture(autouse=True)
    def _server(self, nats_server: Nats) -> None:
        self.settings = sections.Nats(url=nats_server.url)

    def voice(self) -> Hints:
        return NatsHints(self.settings, Recorder())

    async def test_what_other_programs_say_on_the_subject_means_nothing(self, one: Hints, other: Hints) -> None:
        ear = await listening(other)
        stranger = await connect(self.settings, Recorder(), name="stranger")
        await stranger.publish(f"{SUBJECT}.nonsense", b"1")
        await stranger.flush()
        await told(one, Topic.READY, ear)
        await stranger.close()

        assert set(ear.heard) == {Topic.READY}


# ---- when what carries them fails ----------------------------------------------------------------


@pytest.fixture(params=["postgresql", "nats"])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[Postgres | Nats]:
    """One that may be killed."""
    with Postgres(18) if request.param == "postgresql" else Nats() as server:
        if isinstance(server, Postgres):
            await server.empty("hints")
        yield server


def voice_on(server: Postgres | Nats, events: Recorder) -> Hints:
    if isinstance(server, Postgres):
        return PostgresHints(server.url("hints"), events)
    return NatsHints(sections.Nats(url=server.url, timeout_ms=3000), events)


@pytest.mark.guarantee("C5")
async def test_after_an_outage_everything_is_looked_at_and_hints_are_heard_again(server: Postgres | Nats) -> None:
    events = Recorder()
    one, other = voice_on(server, events), voice_on(server, Recorder())
    ear = await listening(other)
    await told(one, Topic.WORK, ear)
    ear.heard.clear()
    server.kill()
    one.tell(Topic.READY)
    async with asyncio.timeout(PATIENCE):
        while "hints_lost" not in events.names():
            one.tell(Topic.READY)
            await asyncio.sleep(0.01)
    assert not ear.heard
    server.start()

    await ear.until(*Topic)
    ear.heard.clear()
    await told(one, Topic.SHARDS, ear)
    await one.close()
    await other.close()


@pytest.mark.guarantee("C5")
async def test_whoever_cannot_listen_now_does_as_soon_as_they_can(server: Postgres | Nats) -> None:
    one, other = voice_on(server, Recorder()), voice_on(server, Recorder())
    server.kill()
    ear = Ear()
    await other.listen(ear)
    one.tell(Topic.WORK)
    await asyncio.sleep(0.05)  # long enough to be refused
    assert not ear.heard
    server.start()

    await ear.until(*Topic)
    await one.close()
    await other.close()


async def test_an_end_is_not_held_up_by_a_server_that_is_away(server: Postgres | Nats) -> None:
    hints = voice_on(server, Recorder())
    await hints.listen(Ear())
    with server.frozen():
        hints.tell(Topic.WORK)
        async with asyncio.timeout(10):
            await hints.close()
