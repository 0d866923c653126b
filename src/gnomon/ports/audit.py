"""The audit trail: reading it and sealing it. Every method is one transaction.

The transaction that makes a change writes its audit entry. Changes that the scheduler makes by itself leave no entry.
A denied request changes nothing; its entry is added on its own.
"""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from gnomon.core.audit import AuditEntry, ChainHead, StoredAuditEntry


class AuditQuery(Struct, frozen=True, kw_only=True):
    """A selection of entries: all of a tenant, narrowed by the fields that are set."""

    tenant: str = "default"
    actor: str | None = None
    action: str | None = None
    kind: str | None = None
    name: str | None = None
    #: At or after `since_at`, and before `until_at`.
    since_at: int | None = None
    until_at: int | None = None
    #: Only entries that were written before the one with this number.
    before: int | None = None
    limit: int = 100


class AuditTrail(Protocol):
    """The record of who changed what."""

    async def add(self, entry: AuditEntry) -> None:
        """Add the entry of a request that changed nothing."""
        ...

    async def page(self, query: AuditQuery) -> Sequence[StoredAuditEntry]:
        """Entries, newest first."""
        ...

    async def sealed(self, *, after: int, limit: int) -> Sequence[StoredAuditEntry]:
        """Entries of the chain after that place, of all tenants, in chain order."""
        ...

    async def head(self) -> tuple[ChainHead, int]:
        """The last sealed entry, and the number of entries that are not sealed yet."""
        ...

    async def seal(self, *, limit: int) -> int:
        """Chain the oldest entries that are not sealed; return how many. Only one caller at a time seals."""
        ...
