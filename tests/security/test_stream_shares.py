"""Change streams: shares of callers and tenants, numbers that say nothing about others, and the end of a token."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
import pytest
from msgspec.structs import replace

from gnomon.api import event_stream
from gnomon.client import AsyncClient
from gnomon.core.instants import instant_of
from gnomon.errors import TooMany, Unauthenticated, Unavailable
from gnomon.ports.auth import Caller, Role
from gnomon.ports.change_log import Change
from gnomon.services.observability.change_stream import ChangeStream
from support.api_fixture import ApiFixture, RoleTokens
from support.api_server import serve_api_fixture


def caller(name: str, tenant: str = "default") -> Caller:
    return Caller(name, frozenset({Role.VIEWER}), tenant)


# ---- shares --------------------------------------------------------------------------------------


def test_one_caller_takes_a_quarter_of_the_places_and_one_tenant_half() -> None:
    stream = ChangeStream(most=8)
    taken = [stream.subscribe(caller("ada")) for _ in range(2)]
    with pytest.raises(TooMany, match="caller"):
        stream.subscribe(caller("ada"))
    taken += [stream.subscribe(caller("bob")) for _ in range(2)]
    with pytest.raises(TooMany, match="tenant"):
        stream.subscribe(caller("carol"))
    taken += [stream.subscribe(caller(name, "other")) for name in ("ada", "ada", "bob", "bob")]
    with pytest.raises(Unavailable):
        stream.subscribe(caller("ada", "third"))

    for one in taken:
        stream.unsubscribe(one)
    stream.subscribe(caller("ada"))


def test_the_places_of_one_caller_do_not_keep_others_out() -> None:
    stream = ChangeStream(most=100)
    for _ in range(25):
        stream.subscribe(caller("greedy"))
    with pytest.raises(TooMany):
        stream.subscribe(caller("greedy"))

    stream.subscribe(caller("ada"))
    stream.subscribe(caller("ada", "other"))


async def test_a_race_for_the_last_place_is_lost_with_a_status_and_without_a_traceback() -> None:
    api_setup = ApiFixture()
    with serve_api_fixture(api_setup) as address:
        url, headers = f"{address}/v1/stream", {"Authorization": "Bearer viewer"}
        async with aiohttp.ClientSession() as session, AsyncExitStack() as opened:
            asked = [session.get(url, headers=headers) for _ in range(10)]
            answers = await asyncio.gather(*(opened.enter_async_context(one) for one in asked))
            found = sorted(one.status for one in answers)
            refused = [one.headers["Retry-After"] for one in answers if one.status == 429]

    assert found == [200] + [429] * 9
    assert refused == ["5"] * 9
    assert api_setup.unhandled_errors == []


# ---- numbers -------------------------------------------------------------------------------------


async def test_numbers_count_the_changes_of_the_own_tenant_only() -> None:
    stream = ChangeStream()
    ours, theirs = stream.subscribe(caller("ada")), stream.subscribe(caller("eve", "other"))
    for number in range(30):
        stream.publish([Change("task", "other" if number % 10 else "default", instant_of(0), {"job": "a"})])
    stream.close()

    numbers = [[change.number async for change in one.changes(lambda: 0.01) if change] for one in (ours, theirs)]

    assert numbers == [[1, 2, 3], list(range(1, 28))]


# ---- the end of a token --------------------------------------------------------------------------


class ExpiringTokens(RoleTokens):
    """Tokens that are refused from a moment on."""

    def __init__(self, expires_at: int | None = None) -> None:
        self.expires_at = expires_at
        self.refused = False

    async def caller(self, token: str) -> Caller:
        if self.refused:
            raise Unauthenticated("the token was revoked")
        return replace(await super().caller(token), expires_at=self.expires_at)


@asynccontextmanager
async def following(api_setup: ApiFixture) -> AsyncIterator[AsyncClient]:
    with serve_api_fixture(api_setup) as address:
        async with AsyncClient(address, token="viewer") as client:  # noqa: S106 - the name of a role
            yield client


async def test_a_stream_ends_when_its_token_expires() -> None:
    api_setup = ApiFixture()
    tokens = ExpiringTokens(api_setup.clock.now() + 50)
    api_setup.put(replace(api_setup.services, tokens=tokens))
    async with following(api_setup) as client, client.changes() as changes:
        api_setup.clock.advance(50)
        with pytest.raises(Unauthenticated, match="expired"):
            _ = [one async for one in changes]


async def test_a_stream_ends_when_its_token_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "_KEEPALIVE_SECONDS", 0.02)
    api_setup = ApiFixture()
    tokens = ExpiringTokens()
    api_setup.put(replace(api_setup.services, tokens=tokens))
    async with following(api_setup) as client, client.changes() as changes:
        tokens.refused = True
        api_setup.clock.advance(1_000)
        with pytest.raises(Unauthenticated, match="revoked"):
            _ = [one async for one in changes]
