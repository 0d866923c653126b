"""Presents the audit trail."""

import msgspec

from gnomon.core.audit import StoredAuditEntry
from gnomon.core.instants import instant_of
from gnomon.core.responses.audit import AuditRecord


def audit_record(stored: StoredAuditEntry, *, place: bool) -> AuditRecord:
    """An audit entry; with `place`, also its number and its place in the chain, which counts all tenants."""
    entry = stored.entry
    return AuditRecord(
        number=stored.number if place else None,
        at=instant_of(entry.at),
        actor=entry.actor,
        tenant=entry.tenant,
        action=entry.action,
        kind=entry.kind,
        name=entry.name,
        before=entry.before,
        after=entry.after,
        details=msgspec.json.decode(entry.details),
        seq=stored.seq if place else None,
        prev_hash=stored.prev_hash if place else None,
        hash=stored.hash,
    )
