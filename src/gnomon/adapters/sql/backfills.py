"""Backfills. A batch locks its schedule first, like every transaction that starts runs."""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from msgspec.structs import astuple

from gnomon.adapters.sql import bulk, schema
from gnomon.adapters.sql.completion import ConcurrencyCounters
from gnomon.adapters.sql.launches import launch
from gnomon.adapters.sql.rows import Row, column_list
from gnomon.core.model import ScheduleUid
from gnomon.core.runs.backfill import (
    MOST_IN_TURNS,
    Backfill,
    BackfillBatch,
    BackfillProgress,
    BackfillTick,
    BackfillTickReason,
    BatchOutcome,
    OpenBackfill,
    backfill_after_batch,
    batch_ticks_after_launch,
    in_turns,
)

_backfill = schema.backfill.c
_BACKFILL = tuple(_backfill[name] for name in Backfill.__struct_fields__)
_ENTRY = tuple(BackfillTick.__struct_fields__)
_OPEN_TENANTS = bulk.statement(
    f"SELECT backfill_id, tenant FROM backfill WHERE {schema.OPEN} ORDER BY backfill_id LIMIT ?"  # noqa: S608 - our own names, here and below
)
_OPENED = bulk.statement(
    f"SELECT {column_list(_BACKFILL)}, (SELECT count(*) FROM run JOIN backfill_tick AS t ON t.run_id = run.run_id"  # noqa: S608
    " AND t.backfill_id = backfill.backfill_id AND t.planned_at = run.planned_at"
    f" WHERE run.schedule_uid = backfill.schedule_uid AND run.{schema.NOT_OVER})"
    f" FROM backfill WHERE backfill_id IN KEYS AND {schema.OPEN}"
)
_OWN = bulk.statement("SELECT planned_at FROM tick WHERE uid = ? AND planned_at BETWEEN ? AND ? AND run_id IS NOT NULL")
_BEFORE = bulk.statement(
    "SELECT planned_at FROM backfill_tick WHERE schedule_uid = ? AND planned_at BETWEEN ? AND ? AND kind = 'fired'"
)
_MOVE = bulk.statement(
    f"UPDATE backfill SET mark_at = ?, ended_at = ? WHERE backfill_id = ? AND mark_at = ? AND {schema.OPEN}"  # noqa: S608
    " RETURNING backfill_id"
)
_CANCEL = bulk.statement(
    f"UPDATE backfill SET ended_at = ?, cancelled = TRUE WHERE tenant = ? AND backfill_id = ? AND {schema.OPEN}"  # noqa: S608
    " RETURNING backfill_id"
)
_FIND = bulk.statement(f"SELECT {column_list(_BACKFILL)} FROM backfill WHERE tenant = ? AND backfill_id = ?")  # noqa: S608
_ADD = bulk.statement(
    f"INSERT INTO backfill ({', '.join(Backfill.__struct_fields__)})"  # noqa: S608
    f" VALUES ({', '.join('?' * len(Backfill.__struct_fields__))}) ON CONFLICT (backfill_id) DO NOTHING"
    " RETURNING backfill_id"
)
_LIST = (
    sa.select(*_BACKFILL)
    .where(_backfill.tenant == sa.bindparam("owner"))
    .order_by(_backfill.created_at.desc(), _backfill.backfill_id.desc())
    .limit(sa.bindparam("limit"))
)
_COUNTS = bulk.statement(
    "SELECT t.kind, run.status, count(*) FROM backfill_tick AS t LEFT JOIN run ON run.run_id = t.run_id"
    " WHERE t.backfill_id = ? GROUP BY t.kind, run.status"
)


def add(conn: sa.Connection, backfill: Backfill) -> bool:
    """See Backfills.add."""
    return bool(bulk.fetch_rows(conn, _ADD, *astuple(backfill)))


def list_open(conn: sa.Connection, limit: int) -> Sequence[OpenBackfill]:
    """See Backfills.list_open."""
    names = in_turns(bulk.fetch_rows(conn, _OPEN_TENANTS, max(limit, MOST_IN_TURNS)), limit)
    found = {one.backfill.backfill_id: one for one in map(_open_backfill_of, bulk.fetch_rows(conn, _OPENED, names))}
    return [found[name] for name in names if name in found]


def _open_backfill_of(row: Row) -> OpenBackfill:
    return OpenBackfill(_backfill_of(row[:-1]), row[-1])


def times_already_run(
    conn: sa.Connection, uid: ScheduleUid, first_at: int, last_at: int
) -> Mapping[int, BackfillTickReason]:
    """See Backfills.times_already_run."""
    before = {
        at: BackfillTickReason.BACKFILLED_BEFORE for (at,) in bulk.fetch_rows(conn, _BEFORE, uid, first_at, last_at)
    }
    return before | {at: BackfillTickReason.HAD_A_RUN for (at,) in bulk.fetch_rows(conn, _OWN, uid, first_at, last_at)}


def apply_batch(conn: sa.Connection, batch: BackfillBatch, now: int) -> BatchOutcome:
    """See Backfills.apply_batch."""
    backfill, after = batch.backfill, backfill_after_batch(batch, now=now)
    if ConcurrencyCounters(conn, [backfill.schedule_uid]).counts(backfill.schedule_uid) is None:
        return BatchOutcome.GONE
    if not bulk.fetch_rows(conn, _MOVE, after.mark_at, after.ended_at, backfill.backfill_id, backfill.mark_at):
        return BatchOutcome.VOID
    outcomes = launch(conn, batch.launches, now) if batch.launches else ()
    entries = [_entry_row(entry) for entry in batch_ticks_after_launch(batch, outcomes)]
    bulk.insert_rows(conn, schema.backfill_tick, entries, _ENTRY)
    return BatchOutcome.DONE


def cancel(conn: sa.Connection, tenant: str, backfill_id: str, now: int) -> Backfill | None:
    """The backfill, cancelled; None if there is no such open backfill."""
    if not bulk.fetch_rows(conn, _CANCEL, now, tenant, backfill_id):
        return None
    [row] = bulk.fetch_rows(conn, _FIND, tenant, backfill_id)
    return _backfill_of(row)


def find(conn: sa.Connection, tenant: str, backfill_id: str) -> BackfillProgress | None:
    """See Backfills.find."""
    found = bulk.fetch_rows(conn, _FIND, tenant, backfill_id)
    return _progress(conn, _backfill_of(found[0])) if found else None


def page(
    conn: sa.Connection, tenant: str, job: str | None, after: tuple[int, str] | None, limit: int
) -> Sequence[BackfillProgress]:
    """See Backfills.page."""
    selected = _LIST if job is None else _LIST.where(_backfill.schedule_id == job)
    if after is not None:
        selected = selected.where(sa.tuple_(_backfill.created_at, _backfill.backfill_id) < sa.tuple_(*after))
    return [
        _progress(conn, _backfill_of(row)) for row in conn.execute(selected, {"owner": tenant, "limit": limit}).all()
    ]


def _progress(conn: sa.Connection, backfill: Backfill) -> BackfillProgress:
    counts = {(kind, status): count for kind, status, count in bulk.fetch_rows(conn, _COUNTS, backfill.backfill_id)}
    return BackfillProgress(
        backfill=backfill,
        fired=sum(count for (kind, _), count in counts.items() if kind == "fired"),
        skipped=sum(count for (kind, _), count in counts.items() if kind == "skipped"),
        under_way=sum(count for (_, status), count in counts.items() if status in ("pending", "running")),
        failed=sum(count for (_, status), count in counts.items() if status in ("failed", "cancelled")),
    )


def _backfill_of(row: Row) -> Backfill:
    fields = dict(zip(Backfill.__struct_fields__, row, strict=True))
    # SQLite stores booleans as numbers.
    return Backfill(**fields | {"again": bool(fields["again"]), "cancelled": bool(fields["cancelled"])})


def _entry_row(entry: BackfillTick) -> tuple[Any, ...]:
    kind, reason = entry.kind.value, entry.reason.value
    return (
        entry.backfill_id,
        entry.planned_at,
        entry.schedule_uid,
        kind,
        reason,
        entry.run_id,
        entry.decided_at,
    )
