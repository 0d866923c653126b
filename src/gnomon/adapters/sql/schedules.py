"""Schedules: finding, adding, changing and deleting them, with their revisions and pauses."""

from collections.abc import Collection, Sequence

import sqlalchemy as sa
from msgspec.structs import replace

from gnomon.adapters.sql import bulk, schema
from gnomon.adapters.sql.cancellation import cancel_queued
from gnomon.adapters.sql.ledger import apply_verdicts, terms_of
from gnomon.adapters.sql.one_shots import EndedOneShot
from gnomon.adapters.sql.rows import SCHEDULE, revision_row, schedule_of, schedule_row
from gnomon.adapters.sql.unreadable import UnreadableSchedules
from gnomon.core.ledger.edits import SYSTEM_ACTOR, paused_schedule, verdict_before_edit
from gnomon.core.ledger.plan import schedule_after
from gnomon.core.model import RunStatus, Schedule, TickVerdict
from gnomon.errors import UsageError
from gnomon.ports.schedules import ScheduleEdit, ScheduleOrder, SchedulePosition

_schedule, _pause = schema.schedule.c, schema.pause.c
_EXISTING = sa.select(*SCHEDULE).where(_schedule.tenant == sa.bindparam("tenant"), _schedule.deleted_at.is_(None))
_BY_UID = sa.select(*SCHEDULE).where(_schedule.uid == sa.bindparam("wanted"), _schedule.deleted_at.is_(None))
_COUNTS = sa.select(_schedule.active_runs, _schedule.queued_runs).where(_schedule.uid == sa.bindparam("wanted"))
_FIND = _EXISTING.where(_schedule.schedule_id == sa.bindparam("name"))
_PAGE = (
    _EXISTING.where(_schedule.schedule_id > sa.bindparam("after"))
    .order_by(_schedule.schedule_id)
    .limit(sa.bindparam("limit"))
)
# In the order of the index of due schedules: of the tenant, the database must not use the index of names.
_NEXT = sa.select(*SCHEDULE).where(
    _schedule.tenant.concat("") == sa.bindparam("tenant"),
    _schedule.deleted_at.is_(None),
    _schedule.next_fire_at.is_not(None),
)
_BY_NEXT = _NEXT.order_by(_schedule.next_fire_at, _schedule.uid).limit(sa.bindparam("limit"))
_AFTER_NEXT = _BY_NEXT.where(
    sa.tuple_(_schedule.next_fire_at, _schedule.uid) > sa.tuple_(sa.bindparam("at"), sa.bindparam("after"))
)
_WITHOUT_NEXT = _PAGE.where(_schedule.next_fire_at.is_(None))
# Without an index: one would be written with every tick. The rows are those of the tenant, whatever the history.
_BY_LAST = _EXISTING.order_by(_schedule.mark_at.desc(), _schedule.schedule_id).limit(sa.bindparam("limit"))
_AFTER_LAST = _BY_LAST.where(
    sa.or_(
        _schedule.mark_at < sa.bindparam("at"),
        sa.and_(_schedule.mark_at == sa.bindparam("at"), _schedule.schedule_id > sa.bindparam("after")),
    )
)
_NAMES_FROM = sa.select(_schedule.schedule_id).where(
    _schedule.tenant == sa.bindparam("tenant"),
    _schedule.deleted_at.is_(None),
    _schedule.origin.in_(sa.bindparam("origins", expanding=True)),
)
_ORPHANS = _EXISTING.where(_schedule.orphaned).order_by(_schedule.schedule_id).limit(sa.bindparam("limit"))
_ADD = bulk.insert_statement(
    schema.schedule,
    tuple(column.name for column in SCHEDULE),
    "ON CONFLICT (tenant, schedule_id) WHERE deleted_at IS NULL DO NOTHING",
)
_CHANGE = sa.update(schema.schedule).where(_schedule.uid == sa.bindparam("changed"))
_CHANGE_ALL = bulk.update_statement(schema.schedule, [column.name for column in SCHEDULE[1:]], by=("uid",))
_NEWEST_PAUSE = sa.select(sa.func.max(_pause.number)).where(_pause.uid == sa.bindparam("schedule"))
_RESUME = (
    sa.update(schema.pause)
    .where(_pause.uid == sa.bindparam("schedule"), _pause.number == sa.bindparam("newest"))
    .values(resumed_at=sa.bindparam("at"), resumed_by=sa.bindparam("by"))
)


def find(conn: sa.Connection, tenant: str, schedule_id: str) -> Schedule | None:
    """See Schedules.find."""
    row = conn.execute(_FIND, {"tenant": tenant, "name": schedule_id}).one_or_none()
    return None if row is None else schedule_of(row)


def page(
    conn: sa.Connection, tenant: str, after: str, limit: int, unreadable: UnreadableSchedules
) -> Sequence[Schedule]:
    """See Schedules.page. Unreadable schedules are skipped; the page is filled with those that follow."""
    found: list[Schedule] = []
    while (missing := limit - len(found)) > 0:
        rows = conn.execute(_PAGE, {"tenant": tenant, "after": after, "limit": missing}).all()
        found += unreadable.readable(rows)
        if len(rows) < missing:
            break
        after = rows[-1].schedule_id
    return found


def in_order(
    conn: sa.Connection,
    tenant: str,
    order: ScheduleOrder,
    after: SchedulePosition | None,
    limit: int,
    unreadable: UnreadableSchedules,
) -> Sequence[Schedule]:
    """See Schedules.in_order. Unreadable schedules are skipped, as in a page by name."""
    if order is ScheduleOrder.NAME:
        return page(conn, tenant, "" if after is None else after[1], limit, unreadable)
    found: list[Schedule] = []
    by_time = _BY_NEXT if order is ScheduleOrder.NEXT else _BY_LAST
    after_time = _AFTER_NEXT if order is ScheduleOrder.NEXT else _AFTER_LAST
    while (missing := limit - len(found)) > 0 and (after is None or after[0] is not None):
        given = {"tenant": tenant, "limit": missing}
        if after is None:
            rows = conn.execute(by_time, given).all()
        else:
            rows = conn.execute(after_time, {**given, "at": after[0], "after": after[1]}).all()
        found += unreadable.readable(rows)
        if len(rows) < missing:
            break
        last = rows[-1]
        after = (last.next_fire_at, last.uid) if order is ScheduleOrder.NEXT else (last.mark_at, last.schedule_id)
    if order is ScheduleOrder.LAST or (missing := limit - len(found)) <= 0:
        return found
    after_name = after[1] if after is not None and after[0] is None else ""
    while missing > 0:
        rows = conn.execute(_WITHOUT_NEXT, {"tenant": tenant, "limit": missing, "after": after_name}).all()
        found += unreadable.readable(rows)
        if len(rows) < missing:
            break
        after_name, missing = rows[-1].schedule_id, limit - len(found)
    return found


def names_from(conn: sa.Connection, tenant: str, origins: Collection[str]) -> frozenset[str]:
    """See Schedules.names_from."""
    return frozenset(conn.scalars(_NAMES_FROM, {"tenant": tenant, "origins": sorted(origins)}))


def orphans(conn: sa.Connection, tenant: str, limit: int, unreadable: UnreadableSchedules) -> Sequence[Schedule]:
    """See Schedules.orphans. Unreadable schedules are skipped."""
    return unreadable.readable(conn.execute(_ORPHANS, {"tenant": tenant, "limit": limit}).all())


def add(conn: sa.Connection, schedules: Sequence[Schedule], actor: str, tzdata: str) -> frozenset[str]:
    """See Schedules.add."""
    first = {(schedule.tenant, schedule.schedule_id): schedule for schedule in reversed(schedules)}
    ordered = [first[name] for name in sorted(first)]
    if conn.dialect.name == "sqlite":
        # In the order of decisions: schedules of the same instant are then stored on few pages.
        ordered.sort(key=lambda schedule: schedule.uid)
    # On PostgreSQL an insert waits for another insert of the same name; the order by name prevents deadlocks.
    added = bulk.execute_returning_keys(conn, _ADD, [schedule_row(schedule) for schedule in ordered], "uid")
    new = [schedule for schedule in ordered if schedule.uid in added]
    bulk.insert_rows(conn, schema.schedule_revision, [revision_row(schedule, actor, tzdata) for schedule in new])
    paused_at_once = [(one.uid, 1, one.paused_at, actor) for one in new if one.paused_at is not None]
    bulk.insert_rows(conn, schema.pause, paused_at_once)
    return frozenset(
        schedule.schedule_id
        for schedule in schedules
        if schedule.uid not in added or first[schedule.tenant, schedule.schedule_id] is not schedule
    )


def change(conn: sa.Connection, verdict: TickVerdict, changed: Schedule, now: int, actor: str, tzdata: str) -> bool:
    """See Schedules.change."""
    return change_all(conn, [ScheduleEdit(verdict, changed)], now, actor, tzdata)


def change_all(conn: sa.Connection, edits: Sequence[ScheduleEdit], now: int, actor: str, tzdata: str) -> bool:
    """Apply every edit; False if a schedule has changed since it was read, though some may have been applied."""
    if not edits:
        return True
    verdicts = [edit.verdict for edit in edits]
    terms = terms_of(conn, {verdict.schedule.shard for verdict in verdicts})
    if len(apply_verdicts(conn, verdicts, now=now, terms=terms)) < len(edits):
        return False
    after = [_counted(conn, edit.verdict, edit.changed) for edit in edits]
    bulk.execute_many(conn, _CHANGE_ALL, [(*schedule_row(one)[1:], one.uid) for one in after])
    before = [verdict.schedule for verdict in verdicts]
    kept = [new for old, new in zip(before, after, strict=True) if new.revision != old.revision]
    bulk.insert_rows(conn, schema.schedule_revision, [revision_row(one, actor, tzdata) for one in kept])
    for old, new in zip(before, after, strict=True):
        _record_pause(conn, old, new, now, actor)
    return True


def delete(conn: sa.Connection, verdict: TickVerdict, now: int, actor: str) -> bool:
    """See Schedules.delete."""
    if not _settle(conn, verdict, now):
        return False
    last = _counted(conn, verdict, schedule_after(verdict))
    last = replace(last, revision=last.revision + 1, updated_at=now)
    gone = {"revision": last.revision, "updated_at": now, "deleted_at": now, "next_fire_at": None}
    conn.execute(_CHANGE.values(gone), {"changed": last.uid})
    cancel_queued(conn, last.uid, now)
    bulk.insert_rows(conn, schema.schedule_revision, [revision_row(last, actor, "")])
    return True


def retire_one_shot(conn: sa.Connection, ended: EndedOneShot) -> None:
    """Delete a one-shot schedule after a successful run; pause it after a failed one."""
    uid, status, now = ended
    row = conn.execute(_BY_UID, {"wanted": uid}).one_or_none()
    try:
        schedule = None if row is None else schedule_of(row)
    except UsageError:
        # The run has ended all the same; a program that can read the schedule may delete it.
        return
    if schedule is None:
        return
    verdict = verdict_before_edit(schedule, now=now)
    if status is RunStatus.COMPLETED:
        delete(conn, verdict, now, SYSTEM_ACTOR)
    else:
        change(conn, verdict, paused_schedule(verdict, now=now), now, SYSTEM_ACTOR, "")


def _settle(conn: sa.Connection, verdict: TickVerdict, now: int) -> bool:
    shard = verdict.schedule.shard
    return bool(apply_verdicts(conn, [verdict], now=now, terms=terms_of(conn, [shard])))


def _counted(conn: sa.Connection, verdict: TickVerdict, after: Schedule) -> Schedule:
    """The schedule with its current run counters: runs that the verdict replaced may have ended at once."""
    if not verdict.replaces:
        return after
    active, queued = conn.execute(_COUNTS, {"wanted": after.uid}).one()
    return replace(after, active_runs=active, queued_runs=queued)


def _record_pause(conn: sa.Connection, before: Schedule, changed: Schedule, now: int, actor: str) -> None:
    if (before.paused_at is None) == (changed.paused_at is None):
        return
    newest = conn.scalar(_NEWEST_PAUSE, {"schedule": changed.uid}) or 0
    if changed.paused_at is not None:
        bulk.insert_rows(conn, schema.pause, [(changed.uid, newest + 1, changed.paused_at, actor)])
    else:
        conn.execute(_RESUME, {"schedule": changed.uid, "newest": newest, "at": now, "by": actor})
