"""Issued and revoked tokens in memory. No method awaits half-way, so each one is a transaction."""

from collections.abc import Sequence

from msgspec.structs import replace

from gnomon.adapters.memory.state import MemoryTables
from gnomon.core.audit import all_revoked_entry, issued_entry, revoked_entry
from gnomon.core.tokens import (
    EVERY_TENANT,
    KEPT_AFTER_END_MS,
    LARGEST_CLOCK_ERROR_MS,
    STAMP_MODULUS,
    RevokedTokens,
    TokenRecord,
    must_be_added,
)


class MemoryTokens:
    """Implements Tokens."""

    def __init__(self, state: MemoryTables) -> None:
        self._state = state

    async def add(self, record: TokenRecord, *, now: int) -> bool:
        """See Tokens.add."""
        self._forget_expired(now)
        key = (record.tenant, record.token_id)
        if key in self._state.tokens:
            return False
        self._state.tokens[key] = record
        self._state.write_audit([issued_entry(record, now)])
        return True

    async def page(self, tenant: str, *, before: str | None, limit: int, now: int) -> Sequence[TokenRecord]:
        """See Tokens.page."""
        found = [
            one
            for one in self._state.tokens.values()
            if one.expires_at > now
            and tenant in (EVERY_TENANT, one.tenant)
            and (before is None or one.token_id < before)
        ]
        return sorted(found, key=lambda one: (one.token_id, one.tenant), reverse=True)[:limit]

    async def revoke(self, record: TokenRecord, *, now: int) -> bool:
        """See Tokens.revoke."""
        self._forget_expired(now)
        kept = [one for one in self._state.tokens.values() if one.token_id == record.token_id]
        known = [one for one in kept if record.tenant in (EVERY_TENANT, one.tenant)]
        if must_be_added(record, known):
            known.append(record)
        fresh = [replace(one, revoked_at=now, revoked_by=record.revoked_by) for one in known if one.revoked_at is None]
        self._state.tokens.update({(one.tenant, one.token_id): one for one in fresh})
        self._state.write_audit(revoked_entry(one, now) for one in fresh)
        return bool(fresh)

    async def revoke_all(self, tenant: str, *, issued_before: int, actor: str, now: int) -> None:
        """See Tokens.revoke_all."""
        cutoffs = self._state.token_cutoffs
        before = cutoffs.get(tenant, 0)
        cutoffs[tenant] = max(issued_before, before) if before <= now + LARGEST_CLOCK_ERROR_MS else issued_before
        self._state.write_audit([all_revoked_entry(tenant, issued_before, actor, now)])

    async def count_revoked(self, tenant: str) -> int:
        """See Tokens.count_revoked."""
        return sum(one.tenant == tenant and one.revoked_at is not None for one in self._state.tokens.values())

    async def stamp(self) -> tuple[int, ...]:
        """See Tokens.stamp."""
        revoked = [one.revoked_at for one in self._state.tokens.values() if one.revoked_at is not None]
        cutoffs = self._state.token_cutoffs
        return len(revoked), sum(at % STAMP_MODULUS for at in revoked), len(cutoffs), sum(cutoffs.values())

    async def revoked(self) -> RevokedTokens:
        """See Tokens.revoked."""
        ids = frozenset(key for key, one in self._state.tokens.items() if one.revoked_at is not None)
        return RevokedTokens(ids, dict(self._state.token_cutoffs))

    def _forget_expired(self, now: int) -> None:
        for key in [key for key, one in self._state.tokens.items() if one.expires_at <= now - KEPT_AFTER_END_MS]:
            del self._state.tokens[key]
