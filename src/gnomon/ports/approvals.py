"""Standing approvals. Every method that changes them is one transaction, which also writes the audit entries."""

from collections.abc import Collection, Sequence
from typing import Protocol

from gnomon.core.approvals import Approval, ApprovalKind


class Approvals(Protocol):
    """The approvals of definitions."""

    async def grant(self, approval: Approval) -> bool:
        """Add the approval, unless one of the same kind, subject and digest counts; return whether it is new."""
        ...

    async def revoke(self, tenant: str, kind: ApprovalKind, subject: str, *, actor: str, now: int) -> int:
        """Revoke all approvals of the subject that count; return their number."""
        ...

    async def standing(self, tenant: str, kind: ApprovalKind, subjects: Collection[str]) -> Sequence[Approval]:
        """The approvals of these subjects that count, in the order in which they were granted."""
        ...
