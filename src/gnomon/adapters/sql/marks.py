"""Setting back the marks of schedules that are ahead of the clock. It is rare: no index supports the search."""

from collections.abc import Sequence

import sqlalchemy as sa

from gnomon.adapters.sql import audit, bulk, calendar, schema
from gnomon.adapters.sql.history import revisions
from gnomon.adapters.sql.ledger import check_terms
from gnomon.adapters.sql.rows import SCHEDULE, schedule_row, tick_of
from gnomon.adapters.sql.unreadable import UnreadableSchedules
from gnomon.core.audit import mark_set_back_entry
from gnomon.core.ledger.marks import MARK_TOLERANCE_MS, CorrectedMark, corrected_mark, reaching_range
from gnomon.core.model import Schedule
from gnomon.ports.ledger import Terms
from gnomon.ports.maintenance import MarksAhead

_schedule, _tick = schema.schedule.c, schema.tick.c
_AHEAD = (_schedule.deleted_at.is_(None), _schedule.mark_at > sa.bindparam("reached") + _schedule.jitter_ms)
_REMOVED_UNTIL = sa.func.coalesce(_schedule.ticks_removed_until, 0)
_FIND = (
    sa.select(*SCHEDULE, _REMOVED_UNTIL)
    .where(*_AHEAD, _schedule.mark_at > _REMOVED_UNTIL, _schedule.shard.in_(sa.bindparam("shards", expanding=True)))
    .order_by(_schedule.uid)
    .limit(sa.bindparam("limit"))
    .with_for_update()
)
_COUNT = sa.select(sa.func.count(), sa.func.max(_schedule.mark_at)).where(*_AHEAD)
_LAST_BEFORE = (
    sa.select(sa.func.max(_tick.planned_at))
    .where(_tick.uid == sa.bindparam("schedule"), _tick.planned_at <= sa.bindparam("now"))
    .scalar_subquery()
)
_TICKS_AHEAD = (
    sa.select(schema.tick)
    .where(
        _tick.uid == sa.bindparam("schedule"),
        _tick.planned_at >= sa.func.coalesce(_LAST_BEFORE, 0),
        _tick.last_at > sa.bindparam("now"),
    )
    .order_by(_tick.planned_at)
)
_WITHDRAW = bulk.statement("DELETE FROM tick WHERE uid = ? AND planned_at = ?")
_SHORTEN = bulk.update_statement(schema.tick, ("last_at", "count"), by=("uid", "planned_at"))
_CHANGE = bulk.update_statement(schema.schedule, [column.name for column in SCHEDULE[1:]], by=("uid",))


def set_back(
    conn: sa.Connection, terms: Terms, now: int, limit: int, unreadable: UnreadableSchedules
) -> Sequence[Schedule]:
    """See Ledger.set_back_marks."""
    check_terms(conn, set(terms), terms)
    rows = conn.execute(_FIND, {"reached": now + MARK_TOLERANCE_MS, "shards": sorted(terms), "limit": limit}).all()
    removed = {row.uid: row[-1] for row in rows}
    corrected = [_corrected(conn, one, now, removed[one.uid]) for one in unreadable.readable(rows)]
    for one in corrected:
        _write(conn, one)
    audit.write(conn, (mark_set_back_entry(one.schedule) for one in corrected))
    return [one.schedule for one in corrected]


def marks_ahead(conn: sa.Connection, now: int) -> MarksAhead:
    """See StoreStatsReader.marks_ahead."""
    return MarksAhead(*conn.execute(_COUNT, {"reached": now + MARK_TOLERANCE_MS}).one())


def _corrected(conn: sa.Connection, schedule: Schedule, now: int, removed_until: int) -> CorrectedMark:
    to_at = max(now, removed_until)
    ahead = [tick_of(row) for row in conn.execute(_TICKS_AHEAD, {"schedule": schedule.uid, "now": to_at})]
    reaching = reaching_range(ahead, to_at=to_at)
    kept = () if reaching is None else revisions(conn, schedule.uid)
    specs = {one.revision: one.schedule.spec for one in kept}
    spec = None if reaching is None else specs.get(reaching.revision)
    return corrected_mark(schedule, ahead, now=now, to_at=to_at, range_spec=spec)


def _write(conn: sa.Connection, corrected: CorrectedMark) -> None:
    uid, shortened = corrected.schedule.uid, corrected.shortened
    calendar.forget_from(conn, uid, corrected.schedule.mark_at)
    for planned_at in corrected.withdrawn:
        bulk.execute_statement(conn, _WITHDRAW, uid, planned_at)
    if shortened is not None:
        bulk.execute_many(conn, _SHORTEN, [(shortened.last_at, shortened.count, uid, shortened.planned_at)])
    bulk.execute_many(conn, _CHANGE, [(*schedule_row(corrected.schedule)[1:], uid)])
