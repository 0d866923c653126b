"""The audit trail in memory. No method awaits half-way, so each one is a transaction."""

from collections.abc import Sequence

from gnomon.adapters.memory.state import MemoryTables
from gnomon.core.audit import AuditEntry, ChainHead, StoredAuditEntry, seal_entries
from gnomon.ports.audit import AuditQuery


class MemoryAuditTrail:
    """Implements AuditTrail."""

    def __init__(self, state: MemoryTables) -> None:
        self._state = state

    async def add(self, entry: AuditEntry) -> None:
        """See AuditTrail.add."""
        self._state.write_audit([entry])

    async def page(self, query: AuditQuery) -> Sequence[StoredAuditEntry]:
        """See AuditTrail.page."""
        found = [kept for kept in reversed(self._state.audit) if _matches(query, kept)]
        return found[: query.limit]

    async def sealed(self, *, after: int, limit: int) -> Sequence[StoredAuditEntry]:
        """See AuditTrail.sealed."""
        found = [kept for kept in self._state.audit if kept.seq is not None and kept.seq > after]
        return sorted(found, key=lambda kept: kept.seq or 0)[:limit]

    async def head(self) -> tuple[ChainHead, int]:
        """See AuditTrail.head."""
        chained = [kept for kept in self._state.audit if kept.seq is not None]
        last = chained[-1] if chained else None
        head = ChainHead() if last is None else ChainHead(last.seq or 0, last.hash or "")
        return head, len(self._state.audit) - len(chained)

    async def seal(self, *, limit: int) -> int:
        """See AuditTrail.seal."""
        head, _ = await self.head()
        done = seal_entries(head, [kept for kept in self._state.audit if kept.seq is None][:limit])
        for kept in done:
            self._state.audit[kept.number - 1] = kept
        return len(done)


def _matches(query: AuditQuery, kept: StoredAuditEntry) -> bool:
    entry = kept.entry
    filters = (
        (query.actor, entry.actor),
        (query.action, entry.action),
        (query.kind, entry.kind),
        (query.name, entry.name),
    )
    return (
        entry.tenant == query.tenant
        and all(wanted in (None, value) for wanted, value in filters)
        and (query.since_at is None or entry.at >= query.since_at)
        and (query.until_at is None or entry.at < query.until_at)
        and (query.before is None or kept.number < query.before)
    )
