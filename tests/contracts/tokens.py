"""The contract of issued and revoked tokens, for any store."""

from msgspec.structs import replace

from contracts.store import HOUR, NOON
from gnomon.core.tokens import EVERY_TENANT, KEPT_AFTER_END_MS, LARGEST_CLOCK_ERROR_MS, TokenRecord
from gnomon.ports.audit import AuditQuery
from gnomon.ports.store import Store

LATER = NOON + HOUR


def issued(name: str = "tok_1", tenant: str = "default", **changes: object) -> TokenRecord:
    facts: dict[str, object] = {"subject": "ci", "role": "scheduler-viewer", "issued_at": NOON, "issued_by": "ada"}
    facts |= {"tenant": tenant, "token_id": name, "expires_at": NOON + 10 * HOUR} | changes
    return TokenRecord(**facts)  # type: ignore[arg-type]


def unknown(name: str, tenant: str = "default", by: str = "eve") -> TokenRecord:
    """A token to revoke, of which nothing but the id is known."""
    return TokenRecord(tenant=tenant, token_id=name, expires_at=NOON + 20 * HOUR, revoked_by=by)


class TokenContract:
    """Tests for any store. `store` is a fresh one."""

    async def audited(self, store: Store, tenant: str = "default") -> list[tuple[str, str, str]]:
        found = await store.audit.page(AuditQuery(tenant=tenant, kind="token"))
        return [(one.entry.actor, one.entry.action, one.entry.name) for one in reversed(found)]

    async def token_ids(
        self, store: Store, tenant: str = "default", before: str | None = None, now: int = NOON
    ) -> list[str]:
        return [one.token_id for one in await store.tokens.page(tenant, before=before, limit=2, now=now)]

    async def test_an_issued_token_is_listed_and_written_down_once(self, store: Store) -> None:
        assert [await store.tokens.add(issued(), now=NOON) for _ in range(2)] == [True, False]

        assert await store.tokens.page("default", before=None, limit=9, now=NOON) == [issued()]
        assert await self.audited(store) == [("ada", "issue", "tok_1")]
        assert (await store.tokens.revoked()).ids == frozenset()

    async def test_tokens_are_listed_newest_first_a_page_at_a_time(self, store: Store) -> None:
        for name in ("tok_1", "tok_2", "tok_3"):
            await store.tokens.add(issued(name), now=NOON)
        await store.tokens.add(issued("tok_9", "acme"), now=NOON)

        assert await self.token_ids(store) == ["tok_3", "tok_2"]
        assert await self.token_ids(store, before="tok_2") == ["tok_1"]
        assert await self.token_ids(store, EVERY_TENANT) == ["tok_9", "tok_3"]
        assert await self.token_ids(store, now=NOON + 10 * HOUR) == []

    async def test_a_token_is_revoked_once_and_keeps_what_is_known_of_it(self, store: Store) -> None:
        await store.tokens.add(issued(), now=NOON)

        done = [await store.tokens.revoke(unknown("tok_1"), now=LATER) for _ in range(2)]

        [kept] = await store.tokens.page("default", before=None, limit=9, now=LATER)
        assert (done, kept) == ([True, False], issued(revoked_at=LATER, revoked_by="eve"))
        assert (await store.tokens.revoked()).ids == {("default", "tok_1")}
        assert [await store.tokens.count_revoked(tenant) for tenant in ("default", "acme")] == [1, 0]
        assert await self.audited(store) == [("ada", "issue", "tok_1"), ("eve", "revoke", "tok_1")]

    async def test_a_token_of_another_issuer_can_be_revoked(self, store: Store) -> None:
        assert await store.tokens.revoke(unknown("urn:jti:7"), now=NOON)

        assert (await store.tokens.revoked()).revokes("default", "urn:jti:7", None)

    async def test_a_tenant_cannot_revoke_the_token_of_another(self, store: Store) -> None:
        await store.tokens.add(issued("tok_1", "acme"), now=NOON)

        await store.tokens.revoke(unknown("tok_1", "evil"), now=NOON)

        assert not (await store.tokens.revoked()).revokes("acme", "tok_1", NOON)

    async def test_the_owner_revokes_a_token_in_whatever_tenant_it_is(self, store: Store) -> None:
        await store.tokens.add(issued("tok_1", "acme"), now=NOON)

        await store.tokens.revoke(unknown("tok_1", EVERY_TENANT), now=NOON)
        await store.tokens.revoke(unknown("tok_x", EVERY_TENANT), now=NOON)

        assert (await store.tokens.revoked()).ids == {("acme", "tok_1"), (EVERY_TENANT, "tok_x")}
        assert await self.audited(store, "acme") == [("ada", "issue", "tok_1"), ("eve", "revoke", "tok_1")]

    async def test_all_tokens_of_a_tenant_or_of_all_are_revoked_by_when_they_were_issued(self, store: Store) -> None:
        await store.tokens.revoke_all("acme", issued_before=LATER, actor="eve", now=LATER)
        await store.tokens.revoke_all("acme", issued_before=NOON, actor="eve", now=LATER)
        await store.tokens.revoke_all(EVERY_TENANT, issued_before=NOON, actor="eve", now=NOON)

        revoked = await store.tokens.revoked()
        assert revoked.issued_before == {"acme": LATER, EVERY_TENANT: NOON}
        asked = [("acme", LATER - 1), ("acme", LATER), ("acme", None), ("default", NOON - 1), ("default", NOON)]
        assert [revoked.revokes(tenant, "x", at) for tenant, at in asked] == [True, False, True, True, False]
        assert await self.audited(store) == [("eve", "revoke", "all")]

    async def test_the_stamp_changes_with_every_revocation_and_with_nothing_else(self, store: Store) -> None:
        stamps = [await store.tokens.stamp()]
        await store.tokens.add(issued(), now=NOON)
        assert await store.tokens.stamp() == stamps[0]
        for change in (
            store.tokens.revoke(unknown("tok_1"), now=NOON),
            store.tokens.revoke(unknown("tok_2"), now=NOON),
            store.tokens.revoke_all("acme", issued_before=NOON, actor="eve", now=NOON),
            store.tokens.revoke_all("acme", issued_before=LATER, actor="eve", now=LATER),
            store.tokens.revoke_all("default", issued_before=NOON, actor="eve", now=LATER),
        ):
            await change
            stamps.append(await store.tokens.stamp())

        assert len(set(stamps)) == len(stamps)

    async def test_long_expired_revocations_are_removed(self, store: Store) -> None:
        await store.tokens.add(issued("tok_1", expires_at=NOON + 1), now=NOON)
        await store.tokens.revoke(unknown("tok_1"), now=NOON)

        # Servers accept it some minutes longer, and the clock may be wrong.
        await store.tokens.add(issued("tok_2"), now=NOON + KEPT_AFTER_END_MS)
        assert (await store.tokens.revoked()).ids == {("default", "tok_1")}
        await store.tokens.add(issued("tok_3"), now=NOON + KEPT_AFTER_END_MS + 1)
        assert (await store.tokens.revoked()).ids == frozenset()

    async def test_a_tenant_that_revokes_an_id_for_itself_does_not_shield_it_elsewhere(self, store: Store) -> None:
        await store.tokens.revoke(unknown("urn:jti:7", "evil"), now=NOON)

        assert await store.tokens.revoke(unknown("urn:jti:7", EVERY_TENANT), now=NOON)

        assert (await store.tokens.revoked()).revokes("default", "urn:jti:7", NOON)
        assert not await store.tokens.revoke(unknown("urn:jti:7", EVERY_TENANT), now=LATER)

    async def test_a_revocation_of_all_by_a_wrong_clock_can_be_replaced(self, store: Store) -> None:
        for ahead in (LARGEST_CLOCK_ERROR_MS, LARGEST_CLOCK_ERROR_MS + 1):
            await store.tokens.revoke_all("acme", issued_before=NOON + ahead, actor="eve", now=NOON + ahead)
            before = (await store.tokens.revoked()).issued_before["acme"]
            await store.tokens.revoke_all("acme", issued_before=NOON, actor="eve", now=NOON)
            replaced = ahead > LARGEST_CLOCK_ERROR_MS
            assert (await store.tokens.revoked()).issued_before == {"acme": NOON if replaced else before}

    async def test_the_stamp_changes_although_a_clock_was_set_back(self, store: Store) -> None:
        await store.tokens.revoke(unknown("tok_1"), now=LATER)
        short = replace(unknown("tok_2"), expires_at=NOON - KEPT_AFTER_END_MS)
        await store.tokens.revoke(short, now=NOON - KEPT_AFTER_END_MS - 1)
        before = await store.tokens.stamp()

        # One is forgotten and another one takes its place.
        await store.tokens.revoke(unknown("tok_3"), now=NOON)

        assert (await store.tokens.revoked()).ids == {("default", "tok_1"), ("default", "tok_3")}
        assert await store.tokens.stamp() != before
