"""Standing approvals in memory. No method awaits half-way, so each one is a transaction."""

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from gnomon.adapters.memory.state import MemoryTables
from gnomon.core.approvals import Approval, ApprovalKind
from gnomon.core.audit import approval_revoked_entry, approved_entry


class MemoryApprovals:
    """Implements Approvals."""

    def __init__(self, state: MemoryTables) -> None:
        self._state = state

    async def grant(self, approval: Approval) -> bool:
        """See Approvals.grant."""
        standing = self._standing(approval.tenant, approval.kind, [approval.subject])
        if any(one.digest == approval.digest for one in standing):
            return False
        self._state.approvals[approval.approval_id] = approval
        self._state.write_audit([approved_entry(approval)])
        return True

    async def revoke(self, tenant: str, kind: ApprovalKind, subject: str, *, actor: str, now: int) -> int:
        """See Approvals.revoke."""
        revoked = [replace(one, revoked_at=now, revoked_by=actor) for one in self._standing(tenant, kind, [subject])]
        self._state.approvals.update((one.approval_id, one) for one in revoked)
        self._state.write_audit(approval_revoked_entry(one) for one in revoked)
        return len(revoked)

    async def standing(self, tenant: str, kind: ApprovalKind, subjects: Collection[str]) -> Sequence[Approval]:
        """See Approvals.standing."""
        return self._standing(tenant, kind, subjects)

    def _standing(self, tenant: str, kind: ApprovalKind, subjects: Collection[str]) -> list[Approval]:
        found = [
            one
            for one in self._state.approvals.values()
            if one.revoked_at is None and (one.tenant, one.kind) == (tenant, kind) and one.subject in subjects
        ]
        return sorted(found, key=lambda one: (one.granted_at, one.approval_id))
