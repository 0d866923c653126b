"""The audit trail: looking at it, and sealing it. Every method is one transaction.

Entries are written by the transactions that change something, together with what they change. What the scheduler does
by itself leaves none. Only what was not allowed changes nothing and is written down by itself.
"""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from gnomon.core.audit import AuditEntry, ChainHead, StoredAuditEntry


class AuditQuery(Struct, frozen=True, kw_only=True):
    """Which entries to look at: all of a tenant, unless something narrows it down."""

    tenant: str = "default"
    actor: str | None = None
    action: str | None = None
    kind: str | None = None
    name: str | None = None
    #: From the first instant on, and before the second.
    since_at: int | None = None
    until_at: int | None = None
    #: Only those that were written before the one of this number.
    before: int | None = None
    limit: int = 100


class AuditTrail(Protocol):
    """Who changed what."""

    async def add_audit(self, entry: AuditEntry) -> None:
        """The entry stands in the trail, of something that changed nothing."""
        ...

    async def list_audit(self, query: AuditQuery) -> Sequence[StoredAuditEntry]:
        """Entries, the newest first."""
        ...

    async def sealed_audit(self, *, after: int, limit: int) -> Sequence[StoredAuditEntry]:
        """Entries of the chain after that place, of all tenants, in their order."""
        ...

    async def audit_head(self) -> tuple[ChainHead, int]:
        """The last sealed entry, and how many are not sealed yet."""
        ...

    async def seal_audit(self, *, limit: int) -> int:
        """Chain the oldest entries that are not sealed; how many these were comes back. One does so at a time."""
        ...
