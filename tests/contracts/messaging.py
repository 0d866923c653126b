"""The contract of the message bus: one suite, inherited by the tests of each adapter."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import pytest
from msgspec.structs import replace

from gnomon.errors import BusUnavailable, Unavailable
from gnomon.ports.messaging import InboundMessage, OutboundTask, ServerBus, WorkerBus

ACK_WAIT_MS = 1_000
MAX_DELIVER = 3
#: Lets time pass on the bus.
LetPass = Callable[[int], Awaitable[None]]
#: How many dead letters there are.
DeadMessages = Callable[[], Awaitable[Sequence[bytes]]]


def outbound_task(name: str, *, job: str = "report", pool: str = "default", to: str | None = None) -> OutboundTask:
    return OutboundTask(name=name, job=job, pool=pool, body=name.encode(), to=to)


async def answered(ask: Callable[[bytes], Awaitable[bytes]], body: bytes) -> bytes:
    """The answer; asks again until the bus knows that servers answer, as workers do."""
    async with asyncio.timeout(20):
        while True:
            with suppress(Unavailable):
                return await ask(body)
            await asyncio.sleep(0.02)


def bodies(delivered: Sequence[InboundMessage]) -> list[str]:
    return [one.body.decode() for one in delivered]


class MessagingContract:
    """Tests for any bus. `server` and `worker` are its two sides, `other` is a worker of the pool gpu."""

    @pytest.fixture(autouse=True)
    async def prepared(self, server: ServerBus) -> None:
        await server.prepare(["default", "gpu"])

    async def pulled(self, worker: WorkerBus, count: int) -> list[InboundMessage]:
        """Pull until so many messages have come."""
        found: list[InboundMessage] = []
        while len(found) < count:
            found += await worker.pull(limit=count - len(found), wait_ms=2_000)
        return found

    async def collected(self, server: ServerBus, count: int) -> list[InboundMessage]:
        found: list[InboundMessage] = []
        while len(found) < count:
            found += await server.collect(limit=count - len(found), wait_ms=2_000)
        return found

    # ---- to workers --------------------------------------------------------------------------

    @pytest.mark.req("H-13")
    async def test_messages_are_pulled_in_the_order_in_which_they_were_published(
        self, server: ServerBus, worker: WorkerBus
    ) -> None:
        names = [f"task_{number}:1" for number in range(20)]

        assert await server.publish([outbound_task(name) for name in names]) == frozenset(names)
        found = await self.pulled(worker, 20)

        assert (bodies(found), {one.tries for one in found}) == (names, {1})
        assert [one.name for one in found] == names

    async def test_a_pull_returns_no_more_than_its_limit(self, server: ServerBus, worker: WorkerBus) -> None:
        await server.publish([outbound_task(str(number)) for number in range(5)])

        assert len(await self.pulled(worker, 2)) == 2
        assert bodies(await self.pulled(worker, 3)) == ["2", "3", "4"]

    async def test_a_name_with_dots_is_sent_like_any_other(self, server: ServerBus, worker: WorkerBus) -> None:
        await server.publish([outbound_task("a", job="every.day.report"), outbound_task("b", job="x.pool.gpu")])

        assert bodies(await self.pulled(worker, 2)) == ["a", "b"]

    @pytest.mark.req("R-17")
    async def test_sent_twice_under_one_name_it_is_there_once(self, server: ServerBus, worker: WorkerBus) -> None:
        await server.publish([outbound_task("task_a:1")])
        assert await server.publish([outbound_task("task_a:1")]) == {"task_a:1"}

        assert await server.under_way("default") == 1
        [found] = await self.pulled(worker, 1)
        await worker.acknowledge([found])
        assert not await worker.pull(limit=1, wait_ms=50)

    async def test_each_pool_gets_its_own(self, server: ServerBus, worker: WorkerBus, other: WorkerBus) -> None:
        await server.publish([outbound_task("for all"), outbound_task("for gpu", pool="gpu")])

        assert bodies(await self.pulled(other, 1)) == ["for gpu"]
        assert bodies(await self.pulled(worker, 1)) == ["for all"]

    @pytest.mark.req("H-13")
    async def test_a_directed_message_reaches_its_worker_and_no_other(
        self, server: ServerBus, worker: WorkerBus, other: WorkerBus
    ) -> None:
        assert not await worker.pull(limit=1, wait_ms=50)
        assert not await other.pull(limit=1, wait_ms=50)

        assert await server.publish([outbound_task("for all"), outbound_task("for one", to="worker_1")]) == {
            "for all",
            "for one",
        }
        found = await self.pulled(worker, 2)

        assert sorted(bodies(found)) == ["for all", "for one"]
        assert not await other.pull(limit=1, wait_ms=50)
        await worker.extend(found)
        await worker.acknowledge(found)

    async def test_a_directed_message_to_an_absent_worker_has_not_arrived(self, server: ServerBus) -> None:
        assert await server.publish([outbound_task("for nobody", to="worker_9")]) == frozenset()
        assert await server.under_way("default") == 0

    async def test_pending_directed_messages_are_returned_when_pulling_stops(
        self, server: ServerBus, worker: WorkerBus
    ) -> None:
        assert not await worker.pull(limit=1, wait_ms=50)
        await server.publish([outbound_task("for one", to="worker_1")])

        assert bodies(await worker.stop_pulling()) == ["for one"]

    async def test_messages_in_flight_are_counted_until_they_are_acknowledged(
        self, server: ServerBus, worker: WorkerBus
    ) -> None:
        await server.publish([outbound_task("a"), outbound_task("b")])
        first, second = await self.pulled(worker, 2)
        assert await server.under_way("default") == 2

        await worker.acknowledge([first])
        await worker.terminate([second])

        await self.until(server, 0)

    async def until(self, server: ServerBus, under_way: int) -> None:
        while await server.under_way("default") != under_way:  # noqa: ASYNC110 - nobody says when an ack has arrived
            await asyncio.sleep(0.01)

    async def test_an_unacknowledged_message_is_redelivered(
        self, server: ServerBus, worker: WorkerBus, passing: LetPass
    ) -> None:
        await server.publish([outbound_task("a")])
        await self.pulled(worker, 1)
        await passing(ACK_WAIT_MS + 200)

        [again] = await self.pulled(worker, 1)
        assert (again.body, again.tries) == (b"a", 2)

    async def test_a_message_in_progress_is_not_redelivered(
        self, server: ServerBus, worker: WorkerBus, passing: LetPass
    ) -> None:
        await server.publish([outbound_task("a")])
        found = await self.pulled(worker, 1)
        for _ in range(3):
            await passing(ACK_WAIT_MS // 2)
            await worker.extend(found)

        assert not await worker.pull(limit=1, wait_ms=50)

    @pytest.mark.req("R-17")
    async def test_a_message_at_its_maximum_of_deliveries_is_dead_lettered(
        self, server: ServerBus, worker: WorkerBus, passing: LetPass, dead: DeadMessages
    ) -> None:
        await server.publish([outbound_task("poison")])
        for _ in range(MAX_DELIVER):
            await self.pulled(worker, 1)
            await passing(ACK_WAIT_MS + 200)

        assert not await worker.pull(limit=1, wait_ms=200)
        while not (kept := await dead()):  # noqa: ASYNC110 - the bus says so to the server, and nobody tells us
            await asyncio.sleep(0.01)
        assert list(kept) == [b"poison"]
        await self.until(server, 0)

    @pytest.mark.guarantee("C5", "S9")
    async def test_a_message_that_may_have_arrived_before_is_marked_doubtful(
        self, server: ServerBus, worker: WorkerBus
    ) -> None:
        await server.publish([replace(outbound_task("a"), again=True)])
        [came] = await self.pulled(worker, 1)

        assert (came.tries, came.doubtful) == (1, True)

    async def test_after_the_last_pull_nothing_more_comes(self, server: ServerBus, worker: WorkerBus) -> None:
        await server.publish([outbound_task("a")])
        await self.pulled(worker, 1)
        assert not await worker.stop_pulling()
        await server.publish([outbound_task("b")])

        assert await server.under_way("default") == 2

    # ---- to servers --------------------------------------------------------------------------

    async def test_reports_come_in_the_order_in_which_a_worker_made_them(
        self, server: ServerBus, worker: WorkerBus
    ) -> None:
        for number in range(10):
            await worker.report(f"w1:{number}", str(number).encode())

        assert bodies(await self.collected(server, 10)) == [str(number) for number in range(10)]

    async def test_a_message_published_twice_under_one_id_is_stored_once(
        self, server: ServerBus, worker: WorkerBus
    ) -> None:
        await worker.report("w1:1", b"a")
        await worker.report("w1:1", b"a")
        await server.acknowledge(await self.collected(server, 1))

        assert not await server.collect(limit=1, wait_ms=50)

    @pytest.mark.req("R-17")
    async def test_a_report_that_is_put_off_comes_again(
        self, server: ServerBus, worker: WorkerBus, passing: LetPass
    ) -> None:
        await worker.report("w1:1", b"a")
        await server.redeliver_later(await self.collected(server, 1), after_ms=300)
        assert not await server.collect(limit=1, wait_ms=50)
        await passing(400)

        [again] = await self.collected(server, 1)
        assert (again.body, again.tries) == (b"a", 2)

    async def test_a_server_knows_when_all_reports_are_processed(self, server: ServerBus, worker: WorkerBus) -> None:
        await server.wait_caught_up()
        await worker.report("w1:1", b"a")
        found = await self.collected(server, 1)
        with pytest.raises(Unavailable):
            await server.wait_caught_up()
        await server.acknowledge(found)

        await server.wait_caught_up()

    @pytest.mark.req("R-17")
    async def test_an_unreadable_message_is_dead_lettered_and_not_redelivered(
        self, server: ServerBus, worker: WorkerBus, passing: LetPass, dead: DeadMessages
    ) -> None:
        await worker.report("w1:1", b"\xff")
        [found] = await self.collected(server, 1)
        await server.dead_letter_message(found, reason="cannot be read: \r\nNats-Msg-Id: 1")
        await passing(ACK_WAIT_MS + 200)

        assert await dead() == [b"\xff"]
        assert not await server.collect(limit=1, wait_ms=50)

    async def test_requests_are_answered_and_both_kinds_are_kept_apart(
        self, server: ServerBus, worker: WorkerBus
    ) -> None:
        async def heard(sender: str, body: bytes) -> bytes:
            return f"heard {sender} ".encode() + body

        async def granted(sender: str, body: bytes) -> bytes:
            return f"granted {sender} ".encode() + body

        await server.answer(heartbeats=heard, grants=granted)

        assert await answered(worker.heartbeat, b"a") == b"heard worker_1 a"
        assert await answered(worker.ask, b"b") == b"granted worker_1 b"

    async def test_a_question_that_is_too_large_for_the_bus_reaches_nobody(
        self, server: ServerBus, worker: WorkerBus
    ) -> None:
        heard: list[bytes] = []

        async def hear(_: str, body: bytes) -> bytes:
            heard.append(body)
            return b""

        await server.answer(heartbeats=hear, grants=hear)

        with pytest.raises(BusUnavailable):
            await worker.heartbeat(b"a" * (2**20 + 1))
        assert heard == []
