"""The contract of circuit breakers that all processes share, for any store."""

import asyncio

import pytest

from contracts.store import NOON
from gnomon.core.breakers import CLOSED_BREAKER, BreakerLimits, BreakerState
from gnomon.core.model import SECOND_MS as SECOND
from gnomon.core.named_breakers import NO_TENANT, BreakerKey, BreakerUse, RequestOutcome
from gnomon.ports.audit import AuditQuery
from gnomon.ports.store import Store

KEY = BreakerKey("default", "stripe")
LIMITS = BreakerLimits(failures=2, open_ms=10 * SECOND, probes=2, successes=2, probe_ms=5 * SECOND)


def use(request: str, *, key: BreakerKey = KEY, limits: BreakerLimits = LIMITS, user: str = "pay") -> BreakerUse:
    return BreakerUse(key=key, limits=limits, user=user, request=request)


async def open_breaker(store: Store, *, now: int = NOON, key: BreakerKey = KEY) -> None:
    for number in range(2):
        await store.breakers.record(use(f"failing-{number}", key=key), RequestOutcome.FAILED, now=now)


class BreakerContract:
    """Tests for any store. `store` is a fresh one."""

    async def test_a_breaker_that_nobody_has_used_does_not_exist(self, store: Store) -> None:
        assert await store.breakers.find(KEY) is None
        assert list(await store.breakers.page("default", limit=10)) == []
        assert await store.breakers.reset(KEY, actor="ada", now=NOON) is None

    @pytest.mark.req("R-12")
    async def test_failures_of_different_users_open_it_for_all_of_them(self, store: Store) -> None:
        await store.breakers.record(use("a", user="pay"), RequestOutcome.FAILED, now=NOON)
        opened = await store.breakers.record(use("b", user="refund"), RequestOutcome.FAILED, now=NOON + SECOND)

        refused = await store.breakers.request(use("c", user="report"), now=NOON + 2 * SECOND)

        assert opened.state(NOON + SECOND) is BreakerState.OPEN
        assert (opened.opened_by, opened.changed_at) == ("b", NOON + SECOND)
        assert refused.ask_again_at == NOON + 11 * SECOND
        assert await store.breakers.find(KEY) == refused.named

    @pytest.mark.req("R-12")
    async def test_half_open_it_grants_no_more_probes_than_its_limit_however_many_ask_at_once(
        self, store: Store
    ) -> None:
        await open_breaker(store)

        asked = [store.breakers.request(use(f"probe-{number}"), now=NOON + 10 * SECOND) for number in range(6)]

        assert sum(one.granted for one in await asyncio.gather(*asked)) == 2

    @pytest.mark.req("R-12")
    async def test_successful_probes_close_it(self, store: Store) -> None:
        await open_breaker(store)
        for number in range(2):
            await store.breakers.request(use(f"probe-{number}"), now=NOON + 10 * SECOND)
            after = await store.breakers.record(
                use(f"probe-{number}"), RequestOutcome.SUCCEEDED, now=NOON + 11 * SECOND
            )

        assert after.breaker == CLOSED_BREAKER
        assert (after.opened_by, after.changed_at) == ("", NOON + 11 * SECOND)
        assert await store.breakers.find(KEY) == after

    @pytest.mark.req("R-12")
    async def test_a_cancelled_probe_leaves_its_slot_to_another(self, store: Store) -> None:
        await open_breaker(store)
        for name in ("a", "b"):
            await store.breakers.request(use(name), now=NOON + 10 * SECOND)

        await store.breakers.record(use("a"), RequestOutcome.NEITHER, now=NOON + 10 * SECOND)

        assert (await store.breakers.request(use("c"), now=NOON + 10 * SECOND)).granted

    async def test_failures_that_happen_at_once_are_all_counted(self, store: Store) -> None:
        strict = BreakerLimits(failures=6)
        failing = [
            store.breakers.record(use(f"r{number}", limits=strict), RequestOutcome.FAILED, now=NOON)
            for number in range(6)
        ]

        await asyncio.gather(*failing)

        found = await store.breakers.find(KEY)
        assert found is not None
        assert found.state(NOON) is BreakerState.OPEN

    async def test_the_strictest_of_different_definitions_applies(self, store: Store) -> None:
        lax = BreakerLimits(failures=5, open_ms=60 * SECOND)
        await store.breakers.request(use("a", limits=lax, user="report"), now=NOON)
        await open_breaker(store)

        found = await store.breakers.find(KEY)

        assert found is not None
        assert found.definitions == {"report": lax, "pay": LIMITS}
        assert found.breaker.open_until == NOON + 60 * SECOND

    async def test_breakers_of_the_same_name_in_different_tenants_are_different(self, store: Store) -> None:
        await open_breaker(store)

        assert (await store.breakers.request(use("a", key=BreakerKey("other", "stripe")), now=NOON)).granted
        assert (await store.breakers.request(use("a", key=BreakerKey(NO_TENANT, "stripe")), now=NOON)).granted

    async def test_they_are_listed_by_name_within_their_tenant(self, store: Store) -> None:
        for name in ("b", "c", "a"):
            await store.breakers.request(use("r", key=BreakerKey("default", name)), now=NOON)
        await store.breakers.request(use("r", key=BreakerKey("other", "d")), now=NOON)

        assert [one.name for one in await store.breakers.page("default", limit=2)] == ["a", "b"]
        assert [one.name for one in await store.breakers.page("default", after="b", limit=2)] == ["c"]

    async def test_an_operator_closes_it_and_the_audit_trail_says_so(self, store: Store) -> None:
        await open_breaker(store)

        closed = await store.breakers.reset(KEY, actor="ada", now=NOON + SECOND)

        assert closed is not None
        assert closed.breaker == CLOSED_BREAKER
        assert (await store.breakers.request(use("a"), now=NOON + SECOND)).granted
        [entry] = await store.audit.page(AuditQuery(tenant="default", kind="breaker"))
        assert (entry.entry.actor, entry.entry.action, entry.entry.name) == ("ada", "reset", "stripe")
        assert "open" in entry.entry.details
