"""The audit trail in memory. No method awaits half-way, so each one is a transaction."""

from collections.abc import Sequence

from gnomon.adapters.memory.state import MemoryTables
from gnomon.core.audit import AuditEntry, ChainHead, SignedCheckpoint, StoredAuditEntry, seal_entries, signing_obstacle
from gnomon.ports.audit import AuditQuery, CheckpointKey, Sealing, SealOutcome


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

    async def seal(self, *, limit: int, sealing: Sealing | None = None) -> SealOutcome:
        """See AuditTrail.seal."""
        head, unsealed = await self.head()
        own = None if sealing is None else await self.checkpoint(sealing.key.kid)
        if not unsealed and (sealing is None or own is not None or not sealing.begin):
            return SealOutcome(0)
        waiting = [kept for kept in self._state.audit if kept.seq is None][:limit]
        done = seal_entries(head, waiting, signed=sealing is not None)
        for kept in done:
            self._state.audit[kept.number - 1] = kept
        after, _ = await self.head()
        if sealing is None or not after.seq:
            return SealOutcome(len(done))
        if own is not None and not sealing.key.is_valid(own):
            return SealOutcome(len(done), broken="the signed checkpoint of the audit trail was changed")
        hashes = {kept.seq: kept.hash or "" for kept in self._state.audit if kept.seq is not None}
        broken = signing_obstacle(own, sealing.anchored, hashes, last=head.seq, begin=sealing.begin)
        if broken:
            return SealOutcome(len(done), broken=broken)
        return SealOutcome(len(done), self._keep(sealing.key.sign(after, at=sealing.now)))

    async def checkpoint(self, kid: str) -> SignedCheckpoint | None:
        """See AuditTrail.checkpoint."""
        return self._state.audit_checkpoints.get(kid)

    async def accept(self, key: CheckpointKey, entry: AuditEntry) -> SignedCheckpoint | None:
        """See AuditTrail.accept."""
        head, _ = await self.head()
        self._state.write_audit([entry])
        return self._keep(key.sign(head, at=entry.at)) if head.seq else None

    def _keep(self, checkpoint: SignedCheckpoint) -> SignedCheckpoint:
        self._state.audit_checkpoints[checkpoint.kid] = checkpoint
        return checkpoint


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
