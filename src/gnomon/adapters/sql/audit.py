"""The audit trail in tables: every change that an operator makes, written down in the transaction that makes it."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import sqlalchemy as sa
from msgspec.structs import astuple

from gnomon.adapters.sql import bulk, cancellation, dead_letters, external_events, launches, runs, schema, workflows
from gnomon.adapters.sql import schedules as schedules_sql
from gnomon.adapters.sql.after_commit import hint_after_commit
from gnomon.adapters.sql.rows import Row
from gnomon.adapters.sql.unreadable import UnreadableSchedules
from gnomon.core import audit as trail
from gnomon.core.audit import AuditEntry, ChainHead, StoredAuditEntry
from gnomon.core.model import ENGINE, RunId, Schedule, Verdict
from gnomon.core.runs.external_events import EventEffect, ExternalEvent
from gnomon.core.runs.launch import CancelOutcome, LaunchOutcome, LaunchRequest
from gnomon.ports.audit import AuditQuery
from gnomon.ports.coordination import HintTopic
from gnomon.ports.schedules import JobChangeset

_audit = schema.audit.c
_ENTRY = AuditEntry.__struct_fields__
_KEPT = [_audit.number, *(_audit[name] for name in _ENTRY), _audit.seq, _audit.prev_hash, _audit.hash]
_LIST = sa.select(*_KEPT).order_by(_audit.number.desc())
#: Written out, because a partial index is only used where its condition stands in the query word for word.
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
_UNRESOLVED = bulk.statement(
    "SELECT dead_letter_id FROM dead_letter WHERE dead_letter_id IN KEYS AND tenant = ? AND resolved_at IS NULL"
    " ORDER BY dead_letter_id FOR UPDATE"
)
#: Any constant will do, as long as nobody else uses it.
_SEALERS_LOCK = 7_163_071_907


# ---- changes -------------------------------------------------------------------------------------


def write(conn: sa.Connection, entries: Iterable[AuditEntry | None]) -> None:
    """The entries stand in the trail, if what the transaction does, does."""
    bulk.insert_rows(conn, schema.audit, [astuple(one) for one in entries if one is not None], _ENTRY)
    hint_after_commit(conn, HintTopic.CHANGES)


def add(conn: sa.Connection, schedules: Sequence[Schedule], actor: str, tzdata: str) -> frozenset[str]:
    """See Schedules.add."""
    taken = schedules_sql.add(conn, schedules, actor, tzdata)
    write(conn, (trail.registered_entry(one, actor) for one in schedules if one.schedule_id not in taken))
    return taken


def change(conn: sa.Connection, verdict: Verdict, changed: Schedule, now: int, actor: str, tzdata: str) -> bool:
    """See Schedules.change."""
    done = schedules_sql.change(conn, verdict, changed, now, actor, tzdata)
    if done:
        write(conn, [trail.changed_entry(verdict.schedule, changed, actor, now)])
    return done


def delete(conn: sa.Connection, verdict: Verdict, now: int, actor: str) -> bool:
    """See Schedules.delete."""
    done = schedules_sql.delete(conn, verdict, now, actor)
    if done:
        write(conn, [trail.deleted_entry(verdict.schedule, actor, now)])
    return done


def apply(conn: sa.Connection, wish: JobChangeset, now: int, actor: str, tzdata: str) -> None:
    """See Jobs.apply."""
    workflows.apply(conn, wish, now, actor, tzdata)
    write(conn, (trail.deployed_entry(one, actor, now) for one in wish.workflows))
    write(conn, (trail.registered_entry(one, actor) for one in wish.added))
    write(conn, (trail.changed_entry(edit.verdict.schedule, edit.changed, actor, now) for edit in wish.edits))


def launch(conn: sa.Connection, wishes: Sequence[LaunchRequest], now: int) -> Sequence[LaunchOutcome]:
    """See Runs.launch."""
    became = launches.launch(conn, wishes, now)
    write(conn, (trail.launched_entry(wish, one, now) for wish, one in zip(wishes, became, strict=True)))
    return became


def cancel(conn: sa.Connection, run_id: RunId, reason: str, now: int, actor: str) -> CancelOutcome:
    """See Runs.cancel."""
    if actor == ENGINE:
        return cancellation.cancel(conn, run_id, reason, now)
    before = runs.find_run(conn, run_id)
    became = cancellation.cancel(conn, run_id, reason, now)
    after = runs.find_run(conn, run_id)
    if before is not None and after is not None and became in (CancelOutcome.ASKED, CancelOutcome.CANCELLED):
        write(conn, [trail.cancelled_entry(before, after, actor, now)])
    return became


def resolve(conn: sa.Connection, tenant: str, dead_letter_ids: Collection[str], by: str, now: int) -> int:
    """See DeadLetters.resolve."""
    found = [name for (name,) in bulk.fetch_rows(conn, _UNRESOLVED, sorted(set(dead_letter_ids)), tenant)]
    write(conn, (trail.resolved_entry(name, tenant, by, now) for name in found))
    return dead_letters.resolve(conn, tenant, found, by, now) if found else 0


def emit(conn: sa.Connection, event: ExternalEvent, now: int, unreadable: UnreadableSchedules) -> Sequence[EventEffect]:
    """See EventLog.emit_event."""
    known = external_events.find(conn, event.event_id)
    entries = external_events.emit(conn, event, now, unreadable)
    # Another may have emitted it meanwhile: then it is theirs that is kept.
    if known is None and external_events.find(conn, event.event_id) == event:
        write(conn, [trail.emitted_entry(event)])
    return entries


# ---- looking -------------------------------------------------------------------------------------


def listed(conn: sa.Connection, query: AuditQuery) -> Sequence[StoredAuditEntry]:
    """See AuditTrail.list_audit."""
    asked = _LIST.where(_audit.tenant == query.tenant).limit(query.limit)
    for name in ("actor", "action", "kind", "name"):
        if (wanted := getattr(query, name)) is not None:
            asked = asked.where(_audit[name] == wanted)
    if query.since_at is not None:
        asked = asked.where(_audit.at >= query.since_at)
    if query.until_at is not None:
        asked = asked.where(_audit.at < query.until_at)
    if query.before is not None:
        asked = asked.where(_audit.number < query.before)
    return [_stored_entry_of(row) for row in conn.execute(asked).all()]


def sealed(conn: sa.Connection, after: int, limit: int) -> Sequence[StoredAuditEntry]:
    """See AuditTrail.sealed_audit."""
    return [_stored_entry_of(row) for row in conn.execute(_SEALED, {"after": after, "limit": limit}).all()]


def head(conn: sa.Connection) -> tuple[ChainHead, int]:
    """See AuditTrail.audit_head."""
    return _head(conn), conn.scalar(_COUNT_OPEN) or 0


# ---- sealing -------------------------------------------------------------------------------------


def has_unsealed(conn: sa.Connection) -> bool:
    """Whether any entry is not sealed."""
    return conn.scalar(_ANY_OPEN) is not None


def seal(conn: sa.Connection, limit: int) -> int:
    """See AuditTrail.seal_audit."""
    if conn.dialect.name == "postgresql" and not conn.scalar(
        sa.select(sa.func.pg_try_advisory_xact_lock(_SEALERS_LOCK))
    ):
        return 0
    entries = [_stored_entry_of(row) for row in conn.execute(_OPEN, {"limit": limit}).all()]
    done = trail.seal_entries(_head(conn), entries)
    bulk.execute_many(conn, _SEAL, [(one.seq, one.prev_hash, one.hash, one.number) for one in done])
    return len(done)


def _head(conn: sa.Connection) -> ChainHead:
    row = conn.execute(_HEAD).one_or_none()
    return ChainHead() if row is None else ChainHead(row[0], row[1])


def _stored_entry_of(row: Row) -> StoredAuditEntry:
    said: dict[str, Any] = dict(zip(_ENTRY, row[1 : len(_ENTRY) + 1], strict=True))
    seq, prev_hash, own = row[len(_ENTRY) + 1 :]
    return StoredAuditEntry(number=row[0], entry=AuditEntry(**said), seq=seq, prev_hash=prev_hash, hash=own)
