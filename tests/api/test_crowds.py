"""Many who ask at once: they share what is read for them, get nothing older than their question, and wait briefly."""

import asyncio

import pytest

from gnomon.api.fair_queue import Crowd, Pace, Turns
from gnomon.api.route import Reply
from gnomon.api.routes import ROUTES
from gnomon.errors import Refused
from support.faces import Face, Somebody


class Book:
    """Something to read, that says how often it was read and can be held open."""

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
def book() -> Book:
    return Book()


def said(reply: Reply) -> str:
    return bytes(reply.body).decode()


async def settled() -> None:
    """Whatever can happen without anybody's help has happened."""
    for _ in range(20):
        await asyncio.sleep(0)


# ---- shared answers ------------------------------------------------------------------------------


async def test_those_who_ask_the_same_at_once_share_one_reading(book: Book) -> None:
    crowd = Crowd(lambda: False)
    book.let_go.set()

    replies = await asyncio.gather(*(crowd.shared("jobs", book.read) for _ in range(32)))

    assert (book.readings, {said(one) for one in replies}) == (1, {'{"reading":1}'})


async def test_those_who_ask_something_else_get_something_else(book: Book) -> None:
    crowd = Crowd(lambda: False)
    book.let_go.set()

    await asyncio.gather(crowd.shared("jobs", book.read), crowd.shared("executions", book.read))

    assert book.readings == 2


async def test_whoever_asks_while_it_is_being_read_gets_the_next_reading_together_with_others(book: Book) -> None:
    crowd = Crowd(lambda: False)
    first = asyncio.ensure_future(crowd.shared("jobs", book.read))
    await book.opened.wait()
    later = [asyncio.ensure_future(crowd.shared("jobs", book.read)) for _ in range(5)]
    await settled()
    assert book.readings == 1
    book.let_go.set()

    assert said(await first) == '{"reading":1}'
    assert {said(await one) for one in later} == {'{"reading":2}'}


async def test_a_refusal_reaches_all_who_share_it_and_nobody_who_comes_later(book: Book) -> None:
    crowd = Crowd(lambda: False)
    refused = await asyncio.gather(*(crowd.shared("jobs", book.refuse) for _ in range(3)), return_exceptions=True)
    book.let_go.set()

    assert [str(one) for one in refused] == ["not today"] * 3
    assert said(await crowd.shared("jobs", book.read)) == '{"reading":1}'


async def test_one_who_leaves_takes_the_answer_from_nobody(book: Book) -> None:
    crowd = Crowd(lambda: False)
    leaves, stays = (asyncio.ensure_future(crowd.shared("jobs", book.read)) for _ in range(2))
    await book.opened.wait()
    leaves.cancel()
    book.let_go.set()

    assert said(await stays) == '{"reading":1}'


async def test_while_the_scheduler_is_busy_it_gets_three_times_what_the_last_reading_took() -> None:
    crowd, loop = Crowd(lambda: True), asyncio.get_running_loop()
    began, ended = list[float](), list[float]()

    async def read() -> Reply:
        began.append(loop.time())
        await asyncio.sleep(0.02)
        ended.append(loop.time())
        return Reply()

    await asyncio.gather(crowd.shared("jobs", read), crowd.shared("executions", read))

    assert began[1] - ended[0] >= 3 * (ended[0] - began[0])


def test_only_what_is_looked_at_is_shared() -> None:
    assert {route.method for route in ROUTES if route.shared} == {"GET"}


async def test_two_tenants_who_ask_at_once_share_nothing(face: Face, admin: Somebody) -> None:
    await admin.registered()
    async with face.caller("admin/other") as other:
        mine, theirs = await asyncio.gather(admin.get("/v1/jobs"), other.get("/v1/jobs"))

    assert ([one["job"] for one in mine.json()["items"]], theirs.json()["items"]) == (["report"], [])


# ---- pace ----------------------------------------------------------------------------------------


class Row:
    """Many who want to pass, and somebody else who has something to do in every turn of the loop."""

    def __init__(self) -> None:
        self.pace = Pace(lambda: False)
        self.passed: list[int] = []
        #: How many had passed at each turn.
        self.seen: list[int] = []

    async def passes(self, number: int) -> None:
        await self.pace()
        self.passed.append(number)

    async def looks_on(self) -> None:
        while len(self.passed) < 10:
            self.seen.append(len(self.passed))
            await asyncio.sleep(0)


async def test_a_few_pass_at_a_time_in_their_order_and_others_have_their_turn_in_between() -> None:
    row = Row()

    await asyncio.gather(*(row.passes(number) for number in range(10)), row.looks_on())

    assert row.passed == list(range(10))
    assert {4, 8} <= set(row.seen)


async def test_one_who_leaves_the_queue_keeps_nobody_from_passing() -> None:
    row = Row()
    everybody = [asyncio.ensure_future(row.passes(number)) for number in range(6)]
    await asyncio.sleep(0)
    everybody.pop(4).cancel()

    await asyncio.gather(*everybody)

    assert row.passed == [0, 1, 2, 3, 5]


@pytest.mark.parametrize("busy", [False, True])
async def test_one_who_comes_alone_does_not_wait(*, busy: bool) -> None:
    row = Row()
    row.pace = Pace(lambda: busy)

    for number in range(4):
        with pytest.raises(StopIteration):
            row.passes(number).send(None)

    assert row.passed == [0, 1, 2, 3]


async def test_whoever_comes_later_passes_too() -> None:
    row = Row()
    await row.passes(1)

    await asyncio.wait_for(row.passes(2), 10)

    assert row.passed == [1, 2]


async def test_those_who_wait_pass_also_while_the_scheduler_has_something_in_hand() -> None:
    row = Row()
    row.pace = Pace(lambda: True)

    await asyncio.wait_for(asyncio.gather(*(row.passes(number) for number in range(10))), 10)

    assert row.passed == list(range(10))


# ---- turns ---------------------------------------------------------------------------------------


class Room:
    """Those who are inside, and the door by which they leave."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.inside: list[int] = []
        self.leave, self.full = asyncio.Event(), asyncio.Event()

    async def stay(self, number: int) -> None:
        async with self.turns:
            self.inside.append(number)
            if len(self.inside) == 3:
                self.full.set()
            await self.leave.wait()


async def test_one_reads_at_a_time_and_the_others_follow_in_their_order() -> None:
    room = Room()
    everybody = [asyncio.ensure_future(room.stay(number)) for number in range(5)]
    await settled()
    first = list(room.inside)
    room.leave.set()
    await asyncio.gather(*everybody)

    assert (first, room.inside) == ([0], list(range(5)))


async def test_nobody_waits_for_long_behind_those_who_wait_themselves() -> None:
    room = Room()
    everybody = [asyncio.ensure_future(room.stay(number)) for number in range(3)]
    await asyncio.wait_for(room.full.wait(), 10)
    room.leave.set()

    await asyncio.gather(*everybody)


async def test_one_who_leaves_while_waiting_keeps_nobody_out() -> None:
    room = Room()
    everybody = [asyncio.ensure_future(room.stay(number)) for number in range(4)]
    await settled()
    everybody.pop(1).cancel()
    room.leave.set()

    await asyncio.gather(*everybody)
    assert room.inside == [0, 2, 3]
