"""Whether what must hold does. Everything is read off an index, and no more than was asked for."""

from collections.abc import Collection, Sequence

import sqlalchemy as sa

from gnomon.adapters.sql import bulk, tables
from gnomon.adapters.sql.rooms import Rooms
from gnomon.adapters.sql.rows import SCHEDULE
from gnomon.adapters.sql.run_rows import named
from gnomon.adapters.sql.unreadable import Unreadable
from gnomon.core.invariants import Counted, Orphan, Overdue
from gnomon.core.model import Schedule, ScheduleUid, TaskId

_IDLE = bulk.statement(
    f"SELECT {named(SCHEDULE)} FROM schedule WHERE {tables.IDLE} AND uid > ? ORDER BY uid LIMIT ?"  # noqa: S608 - our own names, here and below
)
_GIVE = bulk.statement(
    "UPDATE schedule SET next_fire_at = ? WHERE uid = ? AND revision = ? AND mark_at = ?"  # noqa: S608
    f" AND {tables.IDLE} RETURNING uid"
)
_ORPHANS = bulk.statement(
    f"SELECT task_id, worker, lease_until FROM attempt WHERE {tables.OPEN} AND task_id > '' AND lease_until < ?"  # noqa: S608
    " ORDER BY task_id LIMIT ?"
)
_OLDEST = bulk.statement(
    "SELECT uid, schedule_id, next_fire_at, shard FROM schedule WHERE next_fire_at IS NOT NULL"
    " ORDER BY next_fire_at, uid LIMIT 1"
)
_UID = [column.name for column in SCHEDULE].index("uid")
_LED = bulk.statement("SELECT holder FROM shard WHERE shard = ? AND lease_until > ? AND holder IS NOT NULL")
_RUNS = f"(SELECT count(*) FROM run WHERE run.schedule_uid = schedule.uid AND {tables.NOT_OVER}"  # noqa: S608
_COUNTS = (
    "SELECT uid, schedule_id, active_runs, queued_runs,"  # noqa: S608
    f" {_RUNS} AND NOT queued), {_RUNS} AND queued) FROM schedule"
)
_PAGE = bulk.statement(f"{_COUNTS} WHERE deleted_at IS NULL AND uid > ? ORDER BY uid LIMIT ?")
_THESE = bulk.statement(f"{_COUNTS} WHERE deleted_at IS NULL AND uid IN KEYS")


def idle_schedules(conn: sa.Connection, after: str, limit: int, unreadable: Unreadable) -> Sequence[Schedule]:
    """See Vitals.idle_schedules."""
    found: list[Schedule] = []
    while len(found) < limit:
        wanted = limit - len(found)
        rows = bulk.rows(conn, _IDLE, after, wanted)
        found += unreadable.readable(rows)
        if len(rows) < wanted:
            break
        after = rows[-1][_UID]
    return found


def give_next_fire(conn: sa.Connection, schedule: Schedule, next_fire_at: int) -> bool:
    """See Vitals.give_next_fire."""
    return bool(bulk.rows(conn, _GIVE, next_fire_at, schedule.uid, schedule.revision, schedule.mark_at))


def orphans(conn: sa.Connection, before_at: int, limit: int) -> Sequence[Orphan]:
    """See Vitals.orphans."""
    found = bulk.rows(conn, _ORPHANS, before_at, limit)
    return [Orphan(task_id=TaskId(task), worker=worker, lease_until=until) for task, worker, until in found]


def oldest_due(conn: sa.Connection, now: int) -> Overdue | None:
    """See Vitals.oldest_due."""
    for uid, name, next_fire_at, shard in bulk.rows(conn, _OLDEST):
        led = bool(bulk.rows(conn, _LED, shard, now))
        return Overdue(uid=uid, schedule_id=name, next_fire_at=next_fire_at, led=led)
    return None


def counted(conn: sa.Connection, after: str, limit: int) -> Sequence[Counted]:
    """See Vitals.counted."""
    return [_counted(row) for row in bulk.rows(conn, _PAGE, after, limit)]


def _counted(row: Sequence[object]) -> Counted:
    return Counted(**dict(zip(Counted.__struct_fields__, row, strict=True)))  # type: ignore[arg-type]


def recount(conn: sa.Connection, uids: Collection[ScheduleUid], now: int) -> Sequence[ScheduleUid]:
    """See Vitals.recount. Whoever changes runs holds their schedule first, so that nothing changes while we count."""
    rooms = Rooms(conn, uids)
    names: list[str] = sorted(uids)
    wrong = [one for row in bulk.rows(conn, _THESE, names) if (one := _counted(row)).wrong]
    for one in wrong:
        rooms.recount(one.uid, active=one.active, queued=one.queued, now=now)
    return sorted(one.uid for one in wrong)
