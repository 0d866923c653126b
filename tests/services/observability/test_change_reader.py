"""The followers of a server are told what other processes commit, whatever the order of the commits."""

import asyncio
from collections.abc import Collection, Sequence

import pytest

from gnomon.core.instants import instant_of
from gnomon.errors import StoreUnavailable
from gnomon.ports.auth import Caller
from gnomon.ports.change_log import Change, LoggedChanges
from gnomon.services.observability.change_reader import ChangeReader
from gnomon.services.observability.change_stream import ChangeStream, Subscriber
from gnomon.testing.clock import VirtualClock


class LogInMemory:
    """A log into which a test writes entries in any order."""

    def __init__(self) -> None:
        self.entries: dict[int, LoggedChanges] = {}
        self.followers: set[str] = set()
        self.away = False

    def add(self, number: int, job: str, *, origin: str = "other") -> None:
        change = Change("tick", "default", instant_of(0), {"job": job})
        self.entries[number] = LoggedChanges(number, origin, [change])

    async def follow(self, server: str, *, ttl_ms: int) -> int:
        assert ttl_ms > 5000
        if self.away:
            raise StoreUnavailable("away")
        self.followers.add(server)
        return max(self.entries, default=0)

    async def unfollow(self, server: str) -> None:
        self.followers.discard(server)

    async def read(self, after: int, *, late: Collection[int], limit: int) -> Sequence[LoggedChanges]:
        if self.away:
            raise StoreUnavailable("away")
        found = [self.entries[number] for number in sorted(self.entries) if number > after or number in late]
        return found[:limit]

    async def forget(self, *, older_than_ms: int) -> None:
        assert older_than_ms >= 60_000


class ReaderFixture:
    """A reader with one follower."""

    def __init__(self) -> None:
        self.log, self.stream, self.clock = LogInMemory(), ChangeStream(reads_log=True), VirtualClock(0)
        self.reader = ChangeReader(self.log, self.stream, self.clock, server="me")
        self.subscriber: Subscriber = self.stream.subscribe(Caller("ada", frozenset()))

    async def step(self) -> None:
        self.clock.advance(round(1000 * min(await self.reader.step(), 1.0)))

    async def reported(self) -> list[str]:
        """The jobs of the changes that the follower was told of since the last call."""
        found = []
        async for change in self.subscriber.changes(lambda: 0):
            if change is None:
                break
            found.append(str(change.facts["job"]))
        return found


@pytest.fixture
async def setup() -> ReaderFixture:
    return ReaderFixture()


async def test_changes_of_other_processes_are_published_once_and_own_ones_are_not(setup: ReaderFixture) -> None:
    setup.log.add(1, "before")
    await setup.step()
    setup.log.add(2, "a")
    setup.log.add(3, "own", origin="me")
    setup.log.add(4, "b")

    for _ in range(3):
        await setup.step()

    assert await setup.reported() == ["a", "b"]


async def test_an_entry_that_appears_after_later_ones_is_published(setup: ReaderFixture) -> None:
    await setup.step()
    setup.log.add(1, "a")
    setup.log.add(4, "d")
    await setup.step()
    setup.log.add(3, "c")
    await setup.step()
    setup.log.add(2, "b")
    setup.log.add(5, "e")
    await setup.step()

    assert await setup.reported() == ["a", "d", "c", "b", "e"]


async def test_more_entries_than_one_read_returns_are_published_in_one_step(setup: ReaderFixture) -> None:
    await setup.step()
    for number in range(1, 1203):
        setup.log.add(number, f"job-{number}")

    await setup.step()

    assert len(await setup.reported()) == 1202


async def test_an_outage_of_the_store_delays_changes(setup: ReaderFixture) -> None:
    await setup.step()
    setup.log.away = True
    await setup.step()
    setup.log.add(1, "a")
    setup.log.away = False
    await setup.step()

    assert await setup.reported() == ["a"]


async def test_the_log_is_asked_for_only_while_somebody_follows(setup: ReaderFixture) -> None:
    await setup.step()
    followed = set(setup.log.followers)
    setup.stream.unsubscribe(setup.subscriber)
    await setup.step()

    assert (followed, setup.log.followers) == ({"me"}, set())


async def test_a_subscription_is_confirmed_once_every_process_has_noticed_it(setup: ReaderFixture) -> None:
    await setup.step()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(setup.stream.complete(), 0.01)
    setup.clock.advance(1000)
    await setup.step()

    await asyncio.wait_for(setup.stream.complete(), 30)
