"""Circuit breakers in memory. No method awaits, so each one is a transaction."""

from collections.abc import Sequence

from gnomon.adapters.memory.rules import MemoryRules
from gnomon.adapters.memory.state import MemoryTables
from gnomon.core.audit import breaker_reset_entry
from gnomon.core.breakers import CLOSED_BREAKER
from gnomon.core.named_breakers import (
    BreakerKey,
    BreakerUse,
    NamedBreaker,
    NamedPermission,
    RequestOutcome,
    ask_permission,
    closed_by_hand,
    record_outcome,
)


class MemoryBreakers:
    """Implements Breakers."""

    def __init__(self, state: MemoryTables, rules: MemoryRules) -> None:
        self._state = state
        self._rules = rules

    async def find(self, key: BreakerKey) -> NamedBreaker | None:
        """See Breakers.find."""
        return self._state.breakers.get(key)

    async def request(self, use: BreakerUse, *, now: int) -> NamedPermission:
        """See Breakers.request."""
        permission = ask_permission(self._state.breakers.get(use.key), use, now=now)
        self._rules.set_breaker(permission.named, now)
        return permission

    async def record(self, use: BreakerUse, outcome: RequestOutcome, *, now: int) -> NamedBreaker:
        """See Breakers.record."""
        after = record_outcome(self._state.breakers.get(use.key), use, outcome, now=now)
        self._rules.set_breaker(after, now)
        return after

    async def page(self, tenant: str, *, after: str = "", limit: int) -> Sequence[NamedBreaker]:
        """See Breakers.page."""
        found = sorted(key for key in self._state.breakers if key.tenant == tenant and key.name > after)
        return [self._state.breakers[key] for key in found[:limit]]

    async def reset(self, key: BreakerKey, *, actor: str, now: int) -> NamedBreaker | None:
        """See Breakers.reset."""
        before = self._state.breakers.get(key)
        if before is None or before.breaker == CLOSED_BREAKER:
            return before
        after = closed_by_hand(before, now=now)
        self._rules.set_breaker(after, now)
        self._state.write_audit([breaker_reset_entry(before, after, actor, now)])
        return after
