"""The contract of codes that sign a browser in, for any store."""

import asyncio

from contracts.store import NOON
from gnomon.core.model import MINUTE_MS
from gnomon.ports.audit import AuditQuery
from gnomon.ports.auth import Caller, Role
from gnomon.ports.sign_in_codes import SignInCode
from gnomon.ports.store import Store

EVE = Caller(
    "eve",
    frozenset({Role.OPERATOR}),
    "shop",
    expires_at=NOON + 90 * MINUTE_MS,
    token_id="tok_1",  # noqa: S106 - the id of a token
    issued_at=NOON,
    groups=frozenset({"finance"}),
)


def code(digest: str, caller: Caller = EVE) -> SignInCode:
    return SignInCode(digest=digest, caller=caller, expires_at=NOON + MINUTE_MS)


class SignInCodeContract:
    """Tests for any store. `store` is a fresh one."""

    async def test_a_code_is_taken_once_with_everything_about_its_caller(self, store: Store) -> None:
        await store.sign_in_codes.issue(code("a"), actor="eve", now=NOON)

        assert await store.sign_in_codes.take("b", now=NOON) is None
        assert await store.sign_in_codes.take("a", now=NOON) == EVE
        assert await store.sign_in_codes.take("a", now=NOON) is None

    async def test_of_many_that_take_a_code_at_once_one_gets_it(self, store: Store) -> None:
        await store.sign_in_codes.issue(code("a"), actor="eve", now=NOON)

        taken = await asyncio.gather(*(store.sign_in_codes.take("a", now=NOON) for _ in range(8)))

        assert [one for one in taken if one is not None] == [EVE]

    async def test_an_expired_code_is_not_taken(self, store: Store) -> None:
        await store.sign_in_codes.issue(code("a"), actor="eve", now=NOON)

        assert await store.sign_in_codes.take("a", now=NOON + MINUTE_MS) is None

    async def test_a_new_code_of_a_caller_replaces_the_one_before_and_no_other(self, store: Store) -> None:
        ada = Caller("ada", frozenset({Role.VIEWER}), "shop")
        eve_elsewhere = Caller("eve", frozenset({Role.VIEWER}), "other")
        for digest, caller in (("a", EVE), ("b", ada), ("c", eve_elsewhere), ("d", EVE)):
            await store.sign_in_codes.issue(code(digest, caller), actor="eve", now=NOON)

        assert [await store.sign_in_codes.take(digest, now=NOON) for digest in "abcd"] == [
            None, ada, eve_elsewhere, EVE,
        ]  # fmt: skip

    async def test_an_issued_code_is_written_down_without_the_code(self, store: Store) -> None:
        await store.sign_in_codes.issue(code("the digest"), actor="model:triage", now=NOON)

        [entry] = await store.audit.page(AuditQuery(tenant="shop", kind="sign_in_code"))
        assert (entry.entry.actor, entry.entry.action, entry.entry.name) == ("model:triage", "issue", "eve")
        assert "the digest" not in str(entry)
