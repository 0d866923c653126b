"""Concurrent requests share one read, get no response older than their request, and wait briefly."""

import asyncio

import pytest

from gnomon.api.fair_queue import FairSlots, RequestCoalescer, RequestPacer
from gnomon.api.route import Reply
from gnomon.api.routes import ROUTES
from gnomon.errors import Refused
from gnomon.ports.auth import Caller
from support.api_fixture import ApiCaller, ApiFixture

ADA = Caller("ada", frozenset())


class CountedResource:
    """A page that counts its reads and can be held open."""

    def __init__(self) -> None:
        self.readings = 0
        self.opened, self.let_go = asyncio.Event(), asyncio.Event()

    async def read(self) -> Reply:
        self.readings += 1
        self.opened.set()
        await self.let_go.wait()
        return Reply(body={"reading": self.readings})

    async def refuse(self) -> Reply:
        raise Refused("not today")


@pytest.fixture
def resource() -> CountedResource:
    return CountedResource()


def said(reply: Reply) -> str:
    return bytes(reply.body).decode()


async def settled() -> None:
    """Let the event loop run everything that is ready."""
    for _ in range(20):
        await asyncio.sleep(0)


# ---- shared answers ------------------------------------------------------------------------------


async def test_identical_concurrent_requests_share_one_read(resource: CountedResource) -> None:
    crowd = RequestCoalescer(lambda: False)
    resource.let_go.set()

    replies = await asyncio.gather(*(crowd.coalesced("jobs", resource.read, ADA) for _ in range(32)))

    assert (resource.readings, {said(one) for one in replies}) == (1, {'{"reading":1}'})


async def test_different_requests_do_not_share_a_read(resource: CountedResource) -> None:
    crowd = RequestCoalescer(lambda: False)
    resource.let_go.set()

    await asyncio.gather(crowd.coalesced("jobs", resource.read, ADA), crowd.coalesced("executions", resource.read, ADA))

    assert resource.readings == 2


async def test_requests_during_a_read_share_the_next_one(
    resource: CountedResource,
) -> None:
    crowd = RequestCoalescer(lambda: False)
    first = asyncio.ensure_future(crowd.coalesced("jobs", resource.read, ADA))
    await resource.opened.wait()
    later = [asyncio.ensure_future(crowd.coalesced("jobs", resource.read, ADA)) for _ in range(5)]
    await settled()
    assert resource.readings == 1
    resource.let_go.set()

    assert said(await first) == '{"reading":1}'
    assert {said(await one) for one in later} == {'{"reading":2}'}


async def test_a_refusal_reaches_all_who_share_it_and_nobody_who_comes_later(resource: CountedResource) -> None:
    crowd = RequestCoalescer(lambda: False)
    refused = await asyncio.gather(
        *(crowd.coalesced("jobs", resource.refuse, ADA) for _ in range(3)), return_exceptions=True
    )
    resource.let_go.set()

    assert [str(one) for one in refused] == ["not today"] * 3
    assert said(await crowd.coalesced("jobs", resource.read, ADA)) == '{"reading":1}'


async def test_one_who_leaves_takes_the_answer_from_nobody(resource: CountedResource) -> None:
    crowd = RequestCoalescer(lambda: False)
    leaves, stays = (asyncio.ensure_future(crowd.coalesced("jobs", resource.read, ADA)) for _ in range(2))
    await resource.opened.wait()
    leaves.cancel()
    resource.let_go.set()

    assert said(await stays) == '{"reading":1}'


async def test_while_the_scheduler_is_busy_it_gets_three_times_what_the_last_reading_took() -> None:
    crowd, loop = RequestCoalescer(lambda: True), asyncio.get_running_loop()
    began, ended = list[float](), list[float]()

    async def read() -> Reply:
        began.append(loop.time())
        await asyncio.sleep(0.02)
        ended.append(loop.time())
        return Reply()

    await asyncio.gather(crowd.coalesced("jobs", read, ADA), crowd.coalesced("executions", read, ADA))

    assert began[1] - ended[0] >= 3 * (ended[0] - began[0])


def test_only_what_is_looked_at_is_shared() -> None:
    assert {route.method for route in ROUTES if route.shared} == {"GET"}


async def test_two_tenants_who_ask_at_once_share_nothing(api_setup: ApiFixture, admin: ApiCaller) -> None:
    await admin.registered()
    async with api_setup.caller("admin/other") as other:
        mine, theirs = await asyncio.gather(admin.get("/v1/jobs"), other.get("/v1/jobs"))

    assert ([one["job"] for one in mine.json()["items"]], theirs.json()["items"]) == (["report"], [])


# ---- pace ----------------------------------------------------------------------------------------


class WaitingRequests:
    """Many requests, and other work that is ready in every cycle of the loop."""

    def __init__(self) -> None:
        self.pace = RequestPacer(lambda: False)
        self.passed: list[int] = []
        #: The number of admitted requests at each cycle.
        self.seen: list[int] = []

    async def passes(self, number: int) -> None:
        await self.pace()
        self.passed.append(number)

    async def looks_on(self) -> None:
        while len(self.passed) < 10:
            self.seen.append(len(self.passed))
            await asyncio.sleep(0)


async def test_a_few_pass_at_a_time_in_their_order_and_others_have_their_turn_in_between() -> None:
    row = WaitingRequests()

    await asyncio.gather(*(row.passes(number) for number in range(10)), row.looks_on())

    assert row.passed == list(range(10))
    assert {4, 8} <= set(row.seen)


async def test_one_who_leaves_the_queue_keeps_nobody_from_passing() -> None:
    row = WaitingRequests()
    everybody = [asyncio.ensure_future(row.passes(number)) for number in range(6)]
    await asyncio.sleep(0)
    everybody.pop(4).cancel()

    await asyncio.gather(*everybody)

    assert row.passed == [0, 1, 2, 3, 5]


@pytest.mark.parametrize("busy", [False, True])
async def test_one_who_comes_alone_does_not_wait(*, busy: bool) -> None:
    row = WaitingRequests()
    row.pace = RequestPacer(lambda: busy)

    for number in range(4):
        with pytest.raises(StopIteration):
            row.passes(number).send(None)

    assert row.passed == [0, 1, 2, 3]


async def test_later_requests_are_served_too() -> None:
    row = WaitingRequests()
    await row.passes(1)

    await asyncio.wait_for(row.passes(2), 10)

    assert row.passed == [1, 2]


async def test_waiting_requests_are_served_also_while_the_scheduler_is_busy() -> None:
    row = WaitingRequests()
    row.pace = RequestPacer(lambda: True)

    await asyncio.wait_for(asyncio.gather(*(row.passes(number) for number in range(10))), 10)

    assert row.passed == list(range(10))


# ---- slots ---------------------------------------------------------------------------------------


class ActiveRequests:
    """The holders of slots, and the event that releases them."""

    def __init__(self) -> None:
        self.slots = FairSlots(1, max_wait=0.05)
        self.inside: list[int] = []
        self.leave, self.full = asyncio.Event(), asyncio.Event()

    async def stay(self, number: int) -> None:
        async with self.slots.slot(ADA):
            self.inside.append(number)
            if len(self.inside) == 3:
                self.full.set()
            await self.leave.wait()


async def test_one_reads_at_a_time_and_the_others_follow_in_their_order() -> None:
    room = ActiveRequests()
    everybody = [asyncio.ensure_future(room.stay(number)) for number in range(5)]
    await settled()
    first = list(room.inside)
    room.leave.set()
    await asyncio.gather(*everybody)

    assert (first, room.inside) == ([0], list(range(5)))


async def test_nobody_waits_for_long_behind_those_who_wait_themselves() -> None:
    room = ActiveRequests()
    everybody = [asyncio.ensure_future(room.stay(number)) for number in range(3)]
    await asyncio.wait_for(room.full.wait(), 10)
    room.leave.set()

    await asyncio.gather(*everybody)


async def test_one_who_leaves_while_waiting_keeps_nobody_out() -> None:
    room = ActiveRequests()
    everybody = [asyncio.ensure_future(room.stay(number)) for number in range(4)]
    await settled()
    everybody.pop(1).cancel()
    room.leave.set()

    await asyncio.gather(*everybody)
    assert room.inside == [0, 2, 3]
