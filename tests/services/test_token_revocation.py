"""Revoked tokens: refused within two seconds, without a query for each request."""

import asyncio

import pytest

from gnomon.adapters.memory import MemoryStore
from gnomon.adapters.memory.tokens import MemoryTokens
from gnomon.core.tokens import EVERY_TENANT, TokenRecord
from gnomon.errors import RefusalReason, TokenRefused, Unavailable
from gnomon.ports.auth import Caller, Role
from gnomon.services.token_revocation import RevocationList
from gnomon.testing.clock import VirtualClock

NOW = 1_772_452_800_000
ADA = Caller("ada", frozenset({Role.ADMIN}), "acme", token_id="tok_1", issued_at=NOW)  # noqa: S106 - an id


class CountedTokens(MemoryTokens):
    """Counts the readings of the store, which may be unavailable."""

    readings = 0
    available = True

    async def stamp(self) -> tuple[int, ...]:
        self.readings += 1
        await asyncio.sleep(0)
        if not self.available:
            raise Unavailable("the store is gone")
        return await super().stamp()


class Setup:
    def __init__(self) -> None:
        self.clock = VirtualClock(NOW)
        self.tokens = CountedTokens(MemoryStore(self.clock.now).state)
        self.list = RevocationList(self.tokens, self.clock)

    async def refuses(self, caller: Caller = ADA) -> bool:
        try:
            await self.list.check(caller)
        except TokenRefused as error:
            return error.cause is RefusalReason.REVOKED
        return False

    async def revoke(self, tenant: str = "acme") -> None:
        record = TokenRecord(tenant=tenant, token_id="tok_1", expires_at=NOW * 2, revoked_by="eve")  # noqa: S106 - an id
        await self.tokens.revoke(record, now=self.clock.now())


@pytest.fixture
def at() -> Setup:
    return Setup()


async def test_a_revoked_token_is_refused_within_two_seconds(at: Setup) -> None:
    assert not await at.refuses()

    await at.revoke()
    at.clock.advance(2_000)

    assert await at.refuses()


@pytest.mark.parametrize("tenant", ["acme", EVERY_TENANT])
async def test_all_tokens_that_were_issued_before_are_refused_and_later_ones_are_not(at: Setup, tenant: str) -> None:
    await at.tokens.revoke_all(tenant, issued_before=NOW + 1, actor="eve", now=NOW)

    assert await at.refuses()
    assert not await at.refuses(Caller("ada", frozenset(), "acme", token_id="tok_2", issued_at=NOW + 1))  # noqa: S106


async def test_a_revocation_in_one_tenant_does_not_reach_another(at: Setup) -> None:
    await at.revoke("evil")
    await at.tokens.revoke_all("evil", issued_before=NOW * 2, actor="eve", now=NOW)

    assert not await at.refuses()


async def test_the_store_is_not_asked_for_each_request(at: Setup) -> None:
    await asyncio.gather(*(at.refuses() for _ in range(100)))
    for _ in range(100):
        await at.refuses()

    assert at.tokens.readings == 1
    at.clock.advance(2_000)
    await asyncio.gather(*(at.refuses() for _ in range(100)))
    assert at.tokens.readings == 2


async def test_a_request_that_goes_away_does_not_stop_the_reading_for_others(at: Setup) -> None:
    first, second = asyncio.create_task(at.refuses()), asyncio.create_task(at.refuses())
    await asyncio.sleep(0)
    first.cancel()

    assert not await second
    assert at.tokens.readings == 1


async def test_while_the_store_is_gone_the_list_counts_for_a_minute_and_no_longer(at: Setup) -> None:
    await at.revoke()
    assert await at.refuses()
    at.tokens.available = False
    at.clock.advance(59_000)
    assert await at.refuses()

    at.clock.advance(1_000)

    with pytest.raises(Unavailable):
        await at.list.check(ADA)
    at.tokens.available = True
    at.clock.advance(2_000)
    assert await at.refuses()


async def test_before_the_list_could_be_read_no_token_is_accepted(at: Setup) -> None:
    at.tokens.available = False

    with pytest.raises(Unavailable):
        await at.list.check(ADA)


async def test_a_caller_without_a_token_is_not_looked_up(at: Setup) -> None:
    await at.tokens.revoke_all(EVERY_TENANT, issued_before=NOW * 2, actor="eve", now=NOW)

    assert not await at.refuses(Caller("billing", frozenset()))
    assert at.tokens.readings == 0
