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
