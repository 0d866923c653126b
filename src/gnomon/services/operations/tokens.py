"""Issued tokens: records, lists and revokes them."""

from collections.abc import Sequence

from gnomon.core.jobs.fields import page_limit, printable, schedule_name
from gnomon.core.tokens import EVERY_TENANT, TokenRecord
from gnomon.errors import FieldError, Refused
from gnomon.ports.runtime import Clock
from gnomon.ports.tokens import Tokens

_LONGEST_ID = 255
#: How many tokens of a tenant may be revoked one by one: every server keeps them in memory.
_MAX_REVOKED = 10_000


class TokenService:
    """Records, lists and revokes tokens. Revocations by EVERY_TENANT are for the owner of the installation."""

    def __init__(self, tokens: Tokens, clock: Clock, *, max_lifetime_ms: int) -> None:
        """No token is valid for longer than `max_lifetime_ms`, so that revocations need not be kept longer."""
        self._tokens = tokens
        self._clock = clock
        self._max_lifetime_ms = max_lifetime_ms

    async def issued(self, record: TokenRecord) -> None:
        """Record an issued token; a repeated record has no effect."""
        await self._tokens.add(record, now=self._clock.now())

    async def page(
        self, *, before: str | None = None, limit: int = 100, tenant: str = "default"
    ) -> Sequence[TokenRecord]:
        """The recorded tokens of a tenant that have not expired, newest first."""
        page_limit(limit)
        _check_tenant(tenant)
        return await self._tokens.page(tenant, before=before, limit=limit, now=self._clock.now())

    async def revoke(self, token_id: str, *, actor: str, tenant: str = "default") -> bool:
        """Revoke the token with that id, whoever issued it; return whether it was not revoked before."""
        _check_tenant(tenant)
        if not printable("token_id", token_id, longest=_LONGEST_ID):
            raise FieldError("token_id", token_id, "is empty")
        if await self._tokens.count_revoked(tenant) >= _MAX_REVOKED:
            raise Refused(f"{_MAX_REVOKED} tokens are revoked one by one: revoke all of them instead")
        now = self._clock.now()
        record = TokenRecord(
            tenant=tenant,
            token_id=token_id,
            expires_at=now + self._max_lifetime_ms,
            revoked_by=printable("actor", actor),
        )
        return await self._tokens.revoke(record, now=now)

    async def revoke_all(self, *, actor: str, tenant: str = "default") -> int:
        """Revoke every token of the tenant that exists by now; return the instant from which on new ones are valid."""
        _check_tenant(tenant)
        printable("actor", actor)
        now = self._clock.now()
        # A token that was issued in this millisecond is revoked as well.
        await self._tokens.revoke_all(tenant, issued_before=now + 1, actor=actor, now=now)
        return now + 1


def _check_tenant(tenant: str) -> None:
    if tenant != EVERY_TENANT:
        schedule_name("tenant", tenant)
