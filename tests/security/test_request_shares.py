"""Callers and tenants have shares of the API: one that takes all of its own share leaves the others theirs."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from urllib.parse import urlsplit

import msgspec
import pytest

from gnomon.api.fair_queue import FairSlots
from gnomon.config.sections import ServerSettings
from gnomon.ports.auth import Caller
from support.api_fixture import ApiFixture
from support.api_server import serve_api_fixture
from support.virtual_loop import in_virtual_time

ADA, BOB, EVE = (Caller(name, frozenset(), tenant) for name, tenant in (("ada", "a"), ("bob", "b"), ("eve", "b")))


# ---- bodies --------------------------------------------------------------------------------------


@contextmanager
def request(address: str, token: str, path: str, body: bytes, *, length: int | None = None) -> Iterator[socket.socket]:
    """A connection on which a request was sent; with `length`, a part of its body is held back."""
    parts = urlsplit(address)
    head = f"POST {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {length or len(body)}\r\n\r\n"
    with closing(socket.create_connection((parts.hostname or "", parts.port or 0), timeout=20)) as connection:
        connection.sendall(head.encode() + body)
        yield connection


def status_of(connection: socket.socket) -> int:
    return int(connection.recv(12).split()[1])


def posted(address: str, token: str, path: str, body: object) -> int:
    with request(address, token, path, msgspec.json.encode(body)) as connection:
        return status_of(connection)


def plan(size: int) -> dict[str, object]:
    return {"jobs": [{"name": "j", "function": "f", "schedule": "@daily", "description": "x" * size}]}


@pytest.fixture
def small() -> ApiFixture:
    """An API with a small limit on bodies, so that the test sends little."""
    return ApiFixture(server=ServerSettings(max_body=65_536, max_jobs_body=65_536))


def test_bodies_held_back_by_one_caller_stop_no_other_caller(small: ApiFixture) -> None:
    with serve_api_fixture(small) as address, ExitStack() as held:
        for _ in range(4):
            held.enter_context(request(address, "viewer", "/v1/plan", b" " * 65_000, length=65_536))
        most = 40_000
        answers = {token: posted(address, token, "/v1/plan", plan(900)) for token in ("viewer", "operator", "viewer/b")}
        large = {token: _large(address, token, most) for token in ("viewer", "operator", "viewer/b")}

    assert answers == {"viewer": 200, "operator": 200, "viewer/b": 200}
    assert large == {"viewer": 429, "operator": 422, "viewer/b": 422}


def _large(address: str, token: str, size: int) -> int:
    """The status of a request with a large body: 422 if it was read, since the description is too long."""
    return posted(address, token, "/v1/plan", plan(size))


def test_callers_of_one_tenant_leave_half_of_the_memory_to_others(small: ApiFixture) -> None:
    with serve_api_fixture(small) as address, ExitStack() as held:
        for token in ("viewer", "operator"):
            held.enter_context(request(address, token, "/v1/plan", b" " * 65_000, length=65_536))
        answers = {token: _large(address, token, 40_000) for token in ("admin", "viewer/b", "admin/b")}
        small_one = posted(address, "admin", "/v1/plan", plan(900))

    assert answers == {"admin": 429, "viewer/b": 422, "admin/b": 422}
    assert small_one == 200


def test_bytes_are_free_again_when_their_request_has_ended(small: ApiFixture) -> None:
    with serve_api_fixture(small) as address:
        assert [_large(address, "viewer", 60_000) for _ in range(6)] == [422] * 6


def test_a_body_without_a_valid_token_is_not_read(small: ApiFixture) -> None:
    with (
        serve_api_fixture(small) as address,
        request(address, "nobody", "/v1/plan", b"{", length=65_536) as connection,
    ):
        assert status_of(connection) == 401


# ---- time ----------------------------------------------------------------------------------------


class Work:
    """Requests that need a slot for a while on a clock of their own."""

    def __init__(self, slots: FairSlots) -> None:
        self.slots = slots
        self.done: list[str] = []

    async def do(self, caller: Caller, seconds: float) -> None:
        async with self.slots.slot(caller):
            await asyncio.sleep(seconds)
            self.done.append(caller.subject)


@in_virtual_time
async def test_a_caller_with_many_requests_delays_another_by_one_of_them() -> None:
    work = Work(FairSlots(1))
    flood = [asyncio.ensure_future(work.do(ADA, 0.001)) for _ in range(50)]
    await asyncio.sleep(0)
    await work.do(BOB, 0.001)

    assert work.done.index("bob") <= 1
    await asyncio.gather(*flood)


@in_virtual_time
async def test_time_counts_and_not_the_number_of_requests() -> None:
    work = Work(FairSlots(1))
    expensive = [asyncio.ensure_future(work.do(ADA, 0.02)) for _ in range(5)]
    cheap = [asyncio.ensure_future(work.do(BOB, 0.001)) for _ in range(20)]
    await asyncio.gather(*expensive, *cheap)

    # After the first expensive request, the other caller has as much time: all its requests together.
    assert work.done.index("ada", 2) > 10


@in_virtual_time
async def test_callers_of_one_tenant_share_its_time() -> None:
    work = Work(FairSlots(1))
    flood = [asyncio.ensure_future(work.do(EVE, 0.001)) for _ in range(50)]
    await asyncio.sleep(0)
    others = [asyncio.ensure_future(work.do(caller, 0.001)) for caller in (BOB, ADA)]
    await asyncio.gather(*others)

    assert len(work.done) <= 5
    await asyncio.gather(*flood)


@in_virtual_time
async def test_a_caller_that_was_idle_has_saved_up_nothing() -> None:
    work = Work(FairSlots(1))
    first = [asyncio.ensure_future(work.do(ADA, 0.002)) for _ in range(20)]
    await asyncio.gather(*first)
    work.done.clear()
    both = [asyncio.ensure_future(work.do(caller, 0.002)) for caller in (ADA, BOB) for _ in range(10)]
    await asyncio.gather(*both)

    assert 3 <= work.done[:10].count("ada") <= 7


@in_virtual_time
async def test_slots_that_are_never_released_admit_others_one_at_a_time() -> None:
    work, hang = Work(FairSlots(2, max_wait=0.02)), asyncio.Event()

    async def hanging() -> None:
        async with work.slots.slot(ADA):
            await hang.wait()

    hanging_ones = [asyncio.ensure_future(hanging()) for _ in range(40)]
    await asyncio.sleep(0)
    await asyncio.wait_for(work.do(BOB, 0), 1)
    hang.set()
    await asyncio.gather(*hanging_ones)


@in_virtual_time
async def test_a_caller_that_gives_up_waiting_keeps_no_slot() -> None:
    work = Work(FairSlots(1))
    held = asyncio.ensure_future(work.do(ADA, 0.005))
    await asyncio.sleep(0)
    waiting = [asyncio.ensure_future(work.do(BOB, 0)) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await held
    waiting[1].cancel()
    await asyncio.wait_for(waiting[2], 1)
    await asyncio.wait_for(work.do(EVE, 0), 1)

    assert work.done == ["ada", "bob", "eve"]


@in_virtual_time
async def test_a_caller_with_all_of_its_slots_leaves_the_others_free() -> None:
    work = Work(FairSlots(4, of_caller=1, of_tenant=2))
    long = [asyncio.ensure_future(work.do(caller, 100)) for caller in (EVE, EVE, BOB, Caller("dan", frozenset(), "b"))]
    await asyncio.sleep(1)
    await asyncio.wait_for(work.do(ADA, 1), 2)

    assert work.done == ["ada"]
    await asyncio.gather(*long)
    # The first two have their slots at once; after them the others of the tenant, one for each caller at a time.
    assert sorted(work.done[1:3]) == ["bob", "eve"]
    assert sorted(work.done[3:]) == ["dan", "eve"]


@in_virtual_time
async def test_a_caller_that_waits_for_its_own_request_does_not_hold_up_the_next() -> None:
    work = Work(FairSlots(2, of_caller=1))
    first, second = (asyncio.ensure_future(work.do(ADA, 10)) for _ in range(2))
    await asyncio.sleep(0)
    await asyncio.wait_for(work.do(BOB, 1), 2)
    second.cancel()
    await first
    await asyncio.wait_for(work.do(ADA, 1), 2)

    assert work.done == ["bob", "ada", "ada"]


#: A job whose input schema costs nearly as much time as one may.
def costly(number: int) -> dict[str, object]:
    return {"name": f"j{number}", "function": "f", "input_schema": {"pattern": r"\S" * 84 + str(number)}}


async def test_a_plan_of_many_costly_jobs_holds_up_no_other_caller() -> None:
    """Neither one of the same tenant nor one of another, whether their plans are small or large."""
    api = ApiFixture()
    async with api.caller("viewer") as hog, api.caller("admin") as same, api.caller("viewer/b") as other:
        long = asyncio.ensure_future(hog.post("/v1/plan", {"jobs": [costly(number) for number in range(300)]}))
        await asyncio.sleep(0.05)
        small, jobs = (
            plan(10),
            {"jobs": [{"name": f"k{n}", "function": "f", "input": {"x": "y" * 60_000}} for n in range(20)]},
        )
        answers = [await same.post("/v1/plan", small), await other.post("/v1/plan", small)]
        answers += [await other.post("/v1/plan", jobs)]

        assert not long.done(), "it was over before the others asked"
        assert [one.status_code for one in answers] == [200, 200, 200]
        assert (await long).status_code == 200
