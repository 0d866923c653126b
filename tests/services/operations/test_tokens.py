"""Tokens that are issued and revoked: what is refused, and what the owner may do."""

import pytest

from gnomon.adapters.memory import MemoryStore
from gnomon.core.model import DAY_MS
from gnomon.core.tokens import EVERY_TENANT, TokenRecord
from gnomon.errors import FieldError, Refused
from gnomon.services.operations.tokens import TokenService
from gnomon.testing.clock import VirtualClock

NOW = 1_772_452_800_000


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(lambda: NOW)


@pytest.fixture
def service(store: MemoryStore) -> TokenService:
    return TokenService(store.tokens, VirtualClock(NOW), max_lifetime_ms=DAY_MS)


@pytest.mark.parametrize("token_id", ["", "a\nb", "x" * 256])
async def test_a_malformed_id_is_refused(service: TokenService, token_id: str) -> None:
    with pytest.raises(FieldError, match="token_id"):
        await service.revoke(token_id, actor="ada")


@pytest.mark.parametrize("tenant", ["", "A", "a b", "**"])
async def test_a_malformed_tenant_is_refused(service: TokenService, tenant: str) -> None:
    with pytest.raises(FieldError, match="tenant"):
        await service.revoke_all(actor="ada", tenant=tenant)


async def test_a_revocation_is_kept_for_as_long_as_any_token_lasts(service: TokenService, store: MemoryStore) -> None:
    await service.revoke("jti-1", actor="ada", tenant=EVERY_TENANT)

    [kept] = store.state.tokens.values()
    assert (kept.expires_at, kept.revoked_by) == (NOW + DAY_MS, "ada")


async def test_all_means_also_a_token_of_this_millisecond(service: TokenService, store: MemoryStore) -> None:
    since = await service.revoke_all(actor="ada")

    revoked = await store.tokens.revoked()
    assert [revoked.revokes("default", "x", at) for at in (NOW, since)] == [True, False]


async def test_a_tenant_cannot_fill_the_memory_of_the_servers(service: TokenService, store: MemoryStore) -> None:
    for number in range(10_000):
        token_id = f"jti-{number}"
        store.state.tokens["acme", token_id] = TokenRecord(
            tenant="acme", token_id=token_id, expires_at=NOW + 1, revoked_at=NOW
        )

    with pytest.raises(Refused, match="revoke all of them instead"):
        await service.revoke("one-more", actor="eve", tenant="acme")
    assert await service.revoke("one-more", actor="ada", tenant="other")
