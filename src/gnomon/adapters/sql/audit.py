"""The audit trail in its table. `write` runs in the transaction that makes the change that it records."""

from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa
from msgspec.structs import asdict, astuple

from gnomon.adapters.sql import bulk, schema
from gnomon.adapters.sql.after_commit import hint_after_commit
from gnomon.adapters.sql.rows import Row
from gnomon.core.audit import (
    AuditEntry,
    ChainHead,
    SignedCheckpoint,
    StoredAuditEntry,
    as_recorded,
    seal_entries,
    signing_obstacle,
)
from gnomon.ports.audit import AuditQuery, CheckpointKey, Sealing, SealOutcome
from gnomon.ports.coordination import HintTopic

_audit = schema.audit.c
_ENTRY = AuditEntry.__struct_fields__
_KEPT = [_audit.number, *(_audit[name] for name in _ENTRY), _audit.seq, _audit.prev_hash, _audit.hash]
_LIST = sa.select(*_KEPT).order_by(_audit.number.desc())
#: As literal text: a database uses a partial index only if the query repeats its condition word for word.
_IS_SEALED, _IS_OPEN = sa.text(schema.SEALED), sa.text(schema.UNSEALED)
_SEALED = (
    sa.select(*_KEPT)
    .where(_IS_SEALED, _audit.seq > sa.bindparam("after"))
    .order_by(_audit.seq)
    .limit(sa.bindparam("limit"))
)
_HEAD = sa.select(_audit.seq, _audit.hash).where(_IS_SEALED).order_by(_audit.seq.desc()).limit(1)
_COUNT_OPEN = sa.select(sa.func.count()).select_from(schema.audit).where(_IS_OPEN)
_ANY_OPEN = sa.select(_audit.number).where(_IS_OPEN).order_by(_audit.number).limit(1)
_OPEN = sa.select(*_KEPT).where(_IS_OPEN).order_by(_audit.number).limit(sa.bindparam("limit"))
_SEAL = bulk.update_statement(schema.audit, ("seq", "prev_hash", "hash"), by=("number",))
_checkpoint = schema.audit_checkpoint.c
_CHECKPOINT = sa.select(*schema.audit_checkpoint.c).where(_checkpoint.kid == sa.bindparam("kid"))
#: The key of an advisory lock: any constant that no other code uses.
_SEALERS_LOCK = 7_163_071_907


def write(conn: sa.Connection, entries: Iterable[AuditEntry | None]) -> None:
    """Add the entries, and hint to other processes that something has changed. None stands for no entry."""
    bulk.insert_rows(conn, schema.audit, [astuple(as_recorded(one)) for one in entries if one is not None], _ENTRY)
    hint_after_commit(conn, HintTopic.CHANGES)


# ---- reading -------------------------------------------------------------------------------------


def page(conn: sa.Connection, query: AuditQuery) -> Sequence[StoredAuditEntry]:
    """See AuditTrail.page."""
    selected = _LIST.where(_audit.tenant == query.tenant).limit(query.limit)
    for name in ("actor", "action", "kind", "name"):
        if (wanted := getattr(query, name)) is not None:
            selected = selected.where(_audit[name] == wanted)
    if query.since_at is not None:
        selected = selected.where(_audit.at >= query.since_at)
    if query.until_at is not None:
        selected = selected.where(_audit.at < query.until_at)
    if query.before is not None:
        selected = selected.where(_audit.number < query.before)
    return [_stored_entry_of(row) for row in conn.execute(selected).all()]


def sealed(conn: sa.Connection, after: int, limit: int) -> Sequence[StoredAuditEntry]:
    """See AuditTrail.sealed."""
    return [_stored_entry_of(row) for row in conn.execute(_SEALED, {"after": after, "limit": limit}).all()]


def head(conn: sa.Connection) -> tuple[ChainHead, int]:
    """See AuditTrail.head."""
    return _head(conn), conn.scalar(_COUNT_OPEN) or 0


# ---- sealing -------------------------------------------------------------------------------------


def has_work(conn: sa.Connection, sealing: Sealing | None) -> bool:
    """Whether an entry is not sealed yet, or the chain is not signed yet."""
    if conn.scalar(_ANY_OPEN) is not None:
        return True
    return sealing is not None and sealing.begin and checkpoint(conn, sealing.key.kid) is None and bool(_head(conn).seq)


def seal(conn: sa.Connection, limit: int, sealing: Sealing | None = None) -> SealOutcome:
    """See AuditTrail.seal."""
    if conn.dialect.name == "postgresql" and not conn.scalar(
        sa.select(sa.func.pg_try_advisory_xact_lock(_SEALERS_LOCK))
    ):
        return SealOutcome(0)
    entries = [_stored_entry_of(row) for row in conn.execute(_OPEN, {"limit": limit}).all()]
    head = _head(conn)
    done = seal_entries(head, entries, signed=sealing is not None)
    bulk.execute_many(conn, _SEAL, [(one.seq, one.prev_hash, one.hash, one.number) for one in done])
    after = head if not done else ChainHead(done[-1].seq or 0, done[-1].hash or "")
    if sealing is None or not after.seq:
        return SealOutcome(len(done))
    broken = _obstacle(conn, sealing, last=head.seq)
    if broken:
        return SealOutcome(len(done), broken=broken)
    return SealOutcome(len(done), _keep(conn, sealing.key.sign(after, at=sealing.now)))


def _obstacle(conn: sa.Connection, sealing: Sealing, *, last: int) -> str:
    own = checkpoint(conn, sealing.key.kid)
    if own is not None and not sealing.key.is_valid(own):
        return "the signed checkpoint of the audit trail was changed"
    places = [one.seq for one in (own, sealing.anchored) if one is not None]
    found = conn.execute(sa.select(_audit.seq, _audit.hash).where(_IS_SEALED, _audit.seq.in_(places)))
    hashes = {row.seq: row.hash for row in found}
    return signing_obstacle(own, sealing.anchored, hashes, last=last, begin=sealing.begin)


def accept(conn: sa.Connection, key: CheckpointKey, entry: AuditEntry) -> SignedCheckpoint | None:
    """See AuditTrail.accept."""
    head = _head(conn)
    write(conn, [entry])
    return _keep(conn, key.sign(head, at=entry.at)) if head.seq else None


def checkpoint(conn: sa.Connection, kid: str) -> SignedCheckpoint | None:
    """See AuditTrail.checkpoint."""
    row = conn.execute(_CHECKPOINT, {"kid": kid}).one_or_none()
    return None if row is None else SignedCheckpoint(**row._asdict())


def _keep(conn: sa.Connection, checkpoint: SignedCheckpoint) -> SignedCheckpoint:
    conn.execute(sa.delete(schema.audit_checkpoint).where(_checkpoint.kid == checkpoint.kid))
    conn.execute(sa.insert(schema.audit_checkpoint).values(asdict(checkpoint)))
    return checkpoint


def _head(conn: sa.Connection) -> ChainHead:
    row = conn.execute(_HEAD).one_or_none()
    return ChainHead() if row is None else ChainHead(row[0], row[1])


def _stored_entry_of(row: Row) -> StoredAuditEntry:
    fields: dict[str, Any] = dict(zip(_ENTRY, row[1 : len(_ENTRY) + 1], strict=True))
    seq, prev_hash, own_hash = row[len(_ENTRY) + 1 :]
    return StoredAuditEntry(number=row[0], entry=AuditEntry(**fields), seq=seq, prev_hash=prev_hash, hash=own_hash)
