"""The contract of lease stores."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from gnomon.core.leases import LONGEST_KEY, LONGEST_MS, SHORTEST_MS
from gnomon.errors import FieldError
from gnomon.ports.coordination import Leases

TTL = SHORTEST_MS
LetPass = Callable[[int], Awaitable[None]]
STRANGE_KEYS = [
    "a b",
    "*",
    ">",
    "a.*.b",
    "..",
    "$KV",
    "ä/\\",
    "=41",
    "{a}",
    "'; DROP TABLE turn; --",
    "x" * LONGEST_KEY,
    "🕐",
]


async def taken(leases: Leases, key: str, owner: str, *, ttl_ms: int = TTL) -> int:
    token = await leases.acquire(key, owner, ttl_ms=ttl_ms)
    assert token is not None
    return token


@pytest.mark.req("C-11", "R-15")
class LeaseContract:
    """Subclasses provide `leases`, and `let_pass`, which returns once so much time has passed at the lease store."""

    async def test_one_at_a_time_has_it(self, leases: Leases) -> None:
        await taken(leases, "k", "a")

        assert await leases.acquire("k", "b", ttl_ms=TTL) is None
        assert await leases.acquire("k", "a", ttl_ms=TTL) is None
        await taken(leases, "another", "b")

    async def test_of_twenty_who_fight_for_it_one_at_a_time_is_inside_and_each_gets_in(self, leases: Leases) -> None:
        inside, most, tokens = 0, 0, []

        async def fight(owner: str) -> None:
            nonlocal inside, most
            while (token := await leases.acquire("k", owner, ttl_ms=10_000)) is None:  # noqa: ASYNC110 - there is no event
                await asyncio.sleep(0.001)  # nobody tells when it is free
            inside += 1
            most = max(most, inside)
            tokens.append(token)
            await asyncio.sleep(0)
            inside -= 1
            assert await leases.release("k", token)

        async with asyncio.timeout(30):
            await asyncio.gather(*(fight(f"owner-{number}") for number in range(20)))

        assert (most, len(set(tokens))) == (1, 20)
        if leases.ordered:
            assert tokens == sorted(tokens)

    async def test_one_that_has_ended_can_be_taken_and_its_last_holder_cannot_renew_it(
        self, leases: Leases, let_pass: LetPass
    ) -> None:
        first = await taken(leases, "k", "a")
        await let_pass(TTL)

        second = await taken(leases, "k", "b")

        assert first < second or not leases.ordered
        assert await leases.renew("k", first, ttl_ms=TTL) is None
        assert not await leases.release("k", first)
        assert await leases.acquire("k", "c", ttl_ms=TTL) is None

    async def test_a_renewal_that_comes_too_late_is_refused_though_nobody_took_it(
        self, leases: Leases, let_pass: LetPass
    ) -> None:
        token = await taken(leases, "k", "a")
        await let_pass(TTL)

        assert await leases.renew("k", token, ttl_ms=TTL) is None
        await taken(leases, "k", "b")

    async def test_one_that_is_renewed_lasts_on(self, leases: Leases, let_pass: LetPass) -> None:
        token = await taken(leases, "k", "a")
        renewed = await leases.renew("k", token, ttl_ms=20 * TTL)
        await let_pass(2 * TTL)

        assert renewed is not None
        assert await leases.acquire("k", "b", ttl_ms=TTL) is None
        assert await leases.release("k", renewed)

    async def test_one_that_is_released_is_free_at_once(self, leases: Leases) -> None:
        first = await taken(leases, "k", "a", ttl_ms=LONGEST_MS)
        assert await leases.release("k", first)

        second = await taken(leases, "k", "b")

        assert first < second or not leases.ordered
        assert await leases.renew("k", first, ttl_ms=TTL) is None

    async def test_a_release_or_renewal_by_another_owner_changes_nothing(self, leases: Leases) -> None:
        token = await taken(leases, "k", "a")
        for stranger in (0, 1 << 62, token + 1, token - 1):
            assert not await leases.release("k", stranger)
            assert await leases.renew("k", stranger, ttl_ms=TTL) is None
        assert not await leases.release("nobody's", token)

        assert await leases.acquire("k", "b", ttl_ms=TTL) is None
        assert await leases.renew("k", token, ttl_ms=TTL) is not None

    async def test_a_second_release_changes_nothing(self, leases: Leases) -> None:
        token = await taken(leases, "k", "a")

        assert [await leases.release("k", token), await leases.release("k", token)] == [True, False]

    @pytest.mark.parametrize("ttl_ms", [0, -1, SHORTEST_MS - 1, LONGEST_MS + 1, True, 1500.5, "1000"])
    async def test_an_invalid_time_to_live_is_refused(self, leases: Leases, ttl_ms: int) -> None:
        with pytest.raises(FieldError, match="ttl_ms"):
            await leases.acquire("k", "a", ttl_ms=ttl_ms)
        token = await taken(leases, "k", "a")
        with pytest.raises(FieldError, match="ttl_ms"):
            await leases.renew("k", token, ttl_ms=ttl_ms)

    async def test_the_longest_and_odd_times_are_taken(self, leases: Leases) -> None:
        await taken(leases, "k", "a", ttl_ms=LONGEST_MS)
        await taken(leases, "another", "a", ttl_ms=1999)

    async def test_an_odd_time_is_not_cut(self, leases: Leases, let_pass: LetPass) -> None:
        token = await taken(leases, "k", "a", ttl_ms=1999)
        await let_pass(1300)

        assert await leases.acquire("k", "b", ttl_ms=TTL) is None
        assert await leases.renew("k", token, ttl_ms=TTL) is not None

    async def test_strange_keys_are_keys_like_others(self, leases: Leases) -> None:
        tokens = {key: await taken(leases, key, key) for key in STRANGE_KEYS}

        for key, token in tokens.items():
            assert await leases.acquire(key, "b", ttl_ms=TTL) is None
            assert await leases.release(key, token)
        assert await leases.acquire("A", "b", ttl_ms=TTL) is not None

    @pytest.mark.parametrize("key", ["", "\x00", "a\nb", "x" * (LONGEST_KEY + 1), None, 7])
    async def test_an_invalid_key_or_owner_is_refused(self, leases: Leases, key: str) -> None:
        with pytest.raises(FieldError, match="key"):
            await leases.acquire(key, "a", ttl_ms=TTL)
        with pytest.raises(FieldError, match="key"):
            await leases.renew(key, 1, ttl_ms=TTL)
        with pytest.raises(FieldError, match="key"):
            await leases.release(key, 1)
        with pytest.raises(FieldError, match="owner"):
            await leases.acquire("k", key, ttl_ms=TTL)
