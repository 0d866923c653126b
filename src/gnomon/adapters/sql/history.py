"""The history of schedules: ticks, runs, tasks, revisions, pauses, deletions. Every query reads an index range."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

import sqlalchemy as sa

from gnomon.adapters.sql import bulk, schema
from gnomon.adapters.sql.rows import RUN, SCHEDULE, TASK, pause_of, revision_of, run_of, schedule_of, task_of, tick_of
from gnomon.core.instants import FOREVER
from gnomon.core.model import Reason, Run, Schedule, ScheduleUid, Task, Tick, TickKind, TickStatus
from gnomon.ports.schedules import (
    DeletedSchedule,
    Pause,
    RecentHistory,
    Revision,
    TenantTickQuery,
    TickMark,
    TickPosition,
)

_tick, _run, _task = schema.tick.c, schema.run.c, schema.task.c
_UID = sa.bindparam("uid", type_=schema.NameType)
_BEFORE = sa.bindparam("before", type_=schema.InstantType)
_LIMIT = sa.bindparam("limit", type_=sa.Integer)
_TICKS = (
    sa.select(schema.tick, sa.func.coalesce(_run.completed_at, _run.started_at))
    .outerjoin(schema.run, _run.run_id == _tick.run_id)
    .where(_tick.uid == _UID, _tick.planned_at < _BEFORE)
    .order_by(_tick.planned_at.desc())
    .limit(_LIMIT)
)
_RUNS = (
    sa.select(*RUN)
    .where(_run.schedule_uid == _UID, _run.planned_at < _BEFORE)
    .order_by(_run.planned_at.desc(), _run.run_id.desc())
    .limit(_LIMIT)
)
_TASKS = sa.select(*TASK).where(_task.run_id.in_(sa.bindparam("runs", expanding=True)))
_SCHEDULE = sa.select(*SCHEDULE).where(schema.schedule.c.uid == _UID)
_SOME_REVISIONS = sa.select(schema.schedule_revision).where(
    schema.schedule_revision.c.uid == _UID, schema.schedule_revision.c.revision < _BEFORE
)
_REVISIONS = _SOME_REVISIONS.order_by(schema.schedule_revision.c.revision)
_NEWEST_REVISIONS = _SOME_REVISIONS.order_by(schema.schedule_revision.c.revision.desc()).limit(_LIMIT)
_PAUSES = sa.select(schema.pause).where(schema.pause.c.uid == _UID).order_by(schema.pause.c.number)
_schedule, _revision = schema.schedule.c, schema.schedule_revision.c
_GONE = (
    sa.select(*SCHEDULE, _schedule.deleted_at, _revision.actor)
    .join(
        schema.schedule_revision,
        sa.and_(_revision.uid == _schedule.uid, _revision.revision == _schedule.revision),
    )
    .where(
        _schedule.tenant == sa.bindparam("tenant"),
        _schedule.schedule_id == sa.bindparam("name"),
        _schedule.deleted_at.is_not(None),
    )
    .order_by(_schedule.deleted_at.desc(), _schedule.uid.desc())
    .limit(_LIMIT)
)
_RUNNING = bulk.statement(
    "SELECT schedule_uid, count(*) FROM run"
    " WHERE schedule_uid IN KEYS AND completed_at IS NULL AND status = 'running' GROUP BY schedule_uid"
)
_LAST_TICKS = bulk.statement(
    "SELECT tick.uid, tick.kind FROM tick WHERE tick.uid IN KEYS AND tick.planned_at ="
    " (SELECT max(newest.planned_at) FROM tick AS newest WHERE newest.uid = tick.uid)"
)
_TENANT_TICKS = (
    sa.select(schema.tick, sa.func.coalesce(_run.completed_at, _run.started_at))
    .outerjoin(schema.run, _run.run_id == _tick.run_id)
    .order_by(_tick.planned_at.desc(), _tick.uid.desc())
)
_POSITION = (
    sa.select(_tick.planned_at, _tick.uid).order_by(_tick.planned_at.desc(), _tick.uid.desc()).limit(sa.literal(1))
)
_MARK = "planned_at, count, kind, reason, status, run_id"
_NEWEST = bulk.Statement(
    f"SELECT tick.uid, {_MARK} FROM json_each(?)"  # noqa: S608 - our own names, here and below
    " JOIN tick ON tick.uid = json_each.value AND tick.planned_at IN"
    " (SELECT newest.planned_at FROM tick AS newest WHERE newest.uid = json_each.value"
    " ORDER BY newest.planned_at DESC LIMIT ?)",
    f"SELECT wanted.uid, {_MARK} FROM unnest($1::text[]) AS wanted (uid) CROSS JOIN LATERAL"  # noqa: S608
    f" (SELECT {_MARK} FROM tick WHERE tick.uid = wanted.uid ORDER BY tick.planned_at DESC LIMIT $2) AS newest",
)
_TICK_COLUMNS = ", ".join(f"tick.{column.name}" for column in _tick)
_RECENT_TICKS = bulk.Statement(
    f"SELECT {_TICK_COLUMNS}, coalesce(run.completed_at, run.started_at) FROM json_each(?)"  # noqa: S608
    " JOIN tick ON tick.uid = json_each.value AND tick.planned_at IN"
    " (SELECT newest.planned_at FROM tick AS newest WHERE newest.uid = json_each.value"
    " ORDER BY newest.planned_at DESC LIMIT ?) LEFT JOIN run ON run.run_id = tick.run_id",
    f"SELECT {_TICK_COLUMNS}, coalesce(run.completed_at, run.started_at) FROM unnest($1::text[]) AS wanted (uid)"  # noqa: S608
    " CROSS JOIN LATERAL"
    " (SELECT * FROM tick WHERE tick.uid = wanted.uid ORDER BY tick.planned_at DESC LIMIT $2) AS tick"
    " LEFT JOIN run ON run.run_id = tick.run_id",
)
_RUN_COLUMNS = ", ".join(f"run.{column.name}" for column in RUN)
_RECENT_RUNS = bulk.Statement(
    f"SELECT {_RUN_COLUMNS} FROM json_each(?) JOIN run ON run.run_id IN"  # noqa: S608
    " (SELECT newest.run_id FROM run AS newest WHERE newest.schedule_uid = json_each.value"
    " ORDER BY newest.planned_at DESC, newest.run_id DESC LIMIT ?)",
    f"SELECT {_RUN_COLUMNS} FROM unnest($1::text[]) AS wanted (uid) CROSS JOIN LATERAL"  # noqa: S608
    " (SELECT * FROM run WHERE run.schedule_uid = wanted.uid"
    " ORDER BY run.planned_at DESC, run.run_id DESC LIMIT $2) AS run",
)


def _of_many(table: sa.Table) -> bulk.Statement:
    columns = ", ".join(column.name for column in table.c)
    return bulk.statement(f"SELECT {columns} FROM {table.name} WHERE uid IN KEYS")  # noqa: S608


_MANY_REVISIONS, _MANY_PAUSES = _of_many(schema.schedule_revision), _of_many(schema.pause)
#: A statement has a limited number of parameters.
_RUNS_AT_ONCE = 1000


def ticks(conn: sa.Connection, uid: ScheduleUid, before: int, limit: int) -> Sequence[Tick]:
    """See ScheduleHistory.ticks."""
    found = conn.execute(_TICKS, {"uid": uid, "before": before, "limit": limit})
    return [tick_of(row[:-1], row[-1]) for row in found.all()]


def tenant_ticks(conn: sa.Connection, query: TenantTickQuery) -> Sequence[Tick]:
    """See TickHistory.page."""
    statement = _between(_TENANT_TICKS, query)
    if query.kind is not None:
        statement = statement.where(_tick.kind == query.kind)
    if query.reason is not None:
        statement = statement.where(_tick.reason == query.reason)
    if query.status is not None:
        statement = statement.where(_tick.status == query.status)
    if query.reaching is not None:
        statement = statement.where(_tick.last_at >= query.reaching)
    return [tick_of(row[:-1], row[-1]) for row in conn.execute(statement.limit(query.limit)).all()]


def tick_position(conn: sa.Connection, query: TenantTickQuery, number: int) -> TickPosition | None:
    """See TickHistory.position. It is read off the index alone."""
    row = conn.execute(_between(_POSITION, query).offset(number - 1)).one_or_none()
    return None if row is None else (row.planned_at, row.uid)


def _between(statement: sa.Select[Any], query: TenantTickQuery) -> sa.Select[Any]:
    """The statement with the conditions that the indexes of ticks in order of time support."""
    place = sa.tuple_(_tick.planned_at, _tick.uid)
    statement = statement.where(
        _tick.tenant == query.tenant, place < sa.tuple_(*query.before), place >= sa.tuple_(*query.down_to)
    )
    return statement if query.reaching is None else statement.where(sa.text(f"tick.{schema.SEVERAL_TICKS}"))


def runs(conn: sa.Connection, uid: ScheduleUid, before: int, limit: int) -> Sequence[Run]:
    """See ScheduleHistory.runs."""
    return [run_of(row) for row in conn.execute(_RUNS, {"uid": uid, "before": before, "limit": limit}).all()]


def running(conn: sa.Connection, uids: Sequence[ScheduleUid]) -> Mapping[ScheduleUid, int]:
    """See ScheduleHistory.running."""
    names: list[str] = sorted(set(uids))
    return {ScheduleUid(uid): count for uid, count in bulk.fetch_rows(conn, _RUNNING, names)}


def last_tick_kinds(conn: sa.Connection, uids: Sequence[ScheduleUid]) -> Mapping[ScheduleUid, TickKind]:
    """See ScheduleHistory.last_tick_kinds."""
    names: list[str] = sorted(set(uids))
    return {ScheduleUid(uid): TickKind(kind) for uid, kind in bulk.fetch_rows(conn, _LAST_TICKS, names)}


def newest_ticks(
    conn: sa.Connection, uids: Sequence[ScheduleUid], each: int
) -> Mapping[ScheduleUid, Sequence[TickMark]]:
    """See TickHistory.newest."""
    names: list[str] = sorted(set(uids))
    found: dict[ScheduleUid, list[TickMark]] = {}
    for uid, planned_at, count, kind, reason, status, run_id in bulk.fetch_rows(conn, _NEWEST, names, each):
        mark = TickMark(planned_at, count, TickKind(kind), Reason(reason), TickStatus(status), run_id)
        found.setdefault(ScheduleUid(uid), []).append(mark)
    return {uid: sorted(marks, key=_planned_at, reverse=True) for uid, marks in found.items()}


_planned_at = attrgetter("planned_at")


def tasks(conn: sa.Connection, runs: Sequence[Run]) -> Sequence[Task]:
    """See ScheduleHistory.tasks."""
    wanted = sorted({run.run_id for run in runs})
    pages = [wanted[start : start + _RUNS_AT_ONCE] for start in range(0, len(wanted), _RUNS_AT_ONCE)]
    found = (task_of(row) for page in pages for row in conn.execute(_TASKS, {"runs": page}))
    # The id of an item begins with the id of the task of its step.
    return sorted(found, key=lambda task: (task.run_id, task.step, task.task_id))


def revisions(
    conn: sa.Connection, uid: ScheduleUid, *, before: int | None = None, newest: int | None = None
) -> Sequence[Revision]:
    """See ScheduleHistory.revisions."""
    row = conn.execute(_SCHEDULE, {"uid": uid}).one_or_none()
    if row is None:
        return ()
    schedule = schedule_of(row)
    given = {"uid": uid, "before": FOREVER if before is None else before}
    if newest is None:
        kept = conn.execute(_REVISIONS, given).all()
    else:
        kept = conn.execute(_NEWEST_REVISIONS, {**given, "limit": newest}).all()[::-1]
    return tuple(revision_of(schedule, one) for one in kept)


def pauses(conn: sa.Connection, uid: ScheduleUid) -> Sequence[Pause]:
    """See ScheduleHistory.pauses."""
    return tuple(pause_of(row) for row in conn.execute(_PAUSES, {"uid": uid}))


def recent(conn: sa.Connection, schedules: Sequence[Schedule], each: int) -> Mapping[ScheduleUid, RecentHistory]:
    """See TickHistory.recent."""
    by_uid = {one.uid: one for one in schedules}
    names: list[str] = sorted(by_uid)
    ticks, runs = defaultdict[str, list[Tick]](list), defaultdict[str | None, list[Run]](list)
    revisions, pauses = defaultdict[str, list[Revision]](list), defaultdict[str, list[Any]](list)
    for row in bulk.fetch_rows(conn, _RECENT_TICKS, names, each):
        ticks[row[0]].append(tick_of(row[:-1], row[-1]))
    for row in bulk.fetch_rows(conn, _RECENT_RUNS, names, each):
        run = run_of(row)
        runs[run.schedule_uid].append(run)
    for row in bulk.fetch_rows(conn, _MANY_REVISIONS, names):
        revisions[row[0]].append(revision_of(by_uid[row[0]], row))
    for row in bulk.fetch_rows(conn, _MANY_PAUSES, names):
        pauses[row[0]].append(row)
    return {
        uid: RecentHistory(
            ticks=sorted(ticks[uid], key=lambda one: one.decision.planned_at, reverse=True),
            runs=sorted(runs[uid], key=lambda one: (one.planned_at, one.run_id), reverse=True),
            revisions=tuple(sorted(revisions[uid], key=lambda one: one.revision)),
            pauses=tuple(pause_of(row) for row in sorted(pauses[uid], key=lambda row: row[1])),
        )
        for uid in by_uid
    }


def deleted(conn: sa.Connection, tenant: str, schedule_id: str, limit: int) -> Sequence[DeletedSchedule]:
    """See ScheduleHistory.deleted."""
    found = conn.execute(_GONE, {"tenant": tenant, "name": schedule_id, "limit": limit})
    return [
        DeletedSchedule(schedule=schedule_of(row), deleted_at=row.deleted_at, deleted_by=row.actor) for row in found
    ]
