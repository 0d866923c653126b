"""The audit trail: reading it and sealing it. Every method is one transaction.

The transaction that makes a change writes its audit entry. Changes that the scheduler makes by itself leave no entry.
A denied request changes nothing; its entry is added on its own.
"""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from gnomon.core.audit import AuditEntry, ChainHead, SignedCheckpoint, StoredAuditEntry


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


class CheckpointKey(Protocol):
    """The key of the installation, which signs the end of the chain."""

    @property
    def kid(self) -> str:
        """The id of the key."""
        ...

    def sign(self, head: ChainHead, *, at: int) -> SignedCheckpoint:
        """A checkpoint of that head."""
        ...

    def is_valid(self, checkpoint: SignedCheckpoint) -> bool:
        """Whether this key has signed the checkpoint."""
        ...


class CheckpointAnchor(Protocol):
    """Keeps the newest checkpoint outside the store, so that a cut of both in the store is noticed."""

    def read(self) -> SignedCheckpoint | None:
        """The newest checkpoint; None without one."""
        ...

    def write(self, checkpoint: SignedCheckpoint) -> None:
        """Replace the checkpoint."""
        ...


class Sealing(Struct, frozen=True, kw_only=True):
    """How sealed entries are signed."""

    key: CheckpointKey
    #: The checkpoint outside the store, which the chain must contain.
    anchored: SignedCheckpoint | None = None
    #: Sign the chain although the store has no checkpoint of this key.
    begin: bool = False
    now: int


class SealOutcome(Struct, frozen=True):
    """The number of entries that were sealed, and the new checkpoint or the reason why there is none."""

    sealed: int
    checkpoint: SignedCheckpoint | None = None
    #: The chain lacks what was signed before: the older checkpoint is kept as evidence.
    broken: str = ""


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

    async def seal(self, *, limit: int, sealing: Sealing | None = None) -> SealOutcome:
        """Chain the oldest entries that are not sealed, and sign the new end. Only one caller at a time seals."""
        ...

    async def checkpoint(self, kid: str) -> SignedCheckpoint | None:
        """The newest checkpoint that names this key; its signature is not verified."""
        ...

    async def accept(self, key: CheckpointKey, entry: AuditEntry) -> SignedCheckpoint | None:
        """Sign the chain as it is, whatever was signed before, and add the entry; None if the chain is empty."""
        ...
