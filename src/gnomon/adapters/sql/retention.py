"""Retention: finds expired runs, ticks, events, dead letters and schedules, their archive records, and deletes them.

A run expires together with the runs that its steps waited for. Every function handles about `limit` rows, so that no
transaction becomes long.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from gnomon.adapters.sql import bulk, calendar, expired_definitions, schema
from gnomon.adapters.sql.announcements import unsent
from gnomon.adapters.sql.archive_records import records, row_to_json
from gnomon.adapters.sql.external_events import effects
from gnomon.adapters.sql.rows import DEAD_LETTER, RUN, column_list, dead_letter_of, run_of, tick_of
from gnomon.core.instants import FOREVER
from gnomon.core.model import ENGINE, DeadLetter, Run, ScheduleUid
from gnomon.core.retention import (
    RetainedSchedule,
    RetentionHorizons,
    RunPosition,
    dead_letter_expired,
    event_expired,
    needed_by_dead_letter,
    run_expired,
    select_expired_ticks,
)
from gnomon.core.runs.launch import keyed_run_id
from gnomon.core.runs.outcomes import dead_letter_id
from gnomon.ports.maintenance import ArchiveRecord, RetentionBatch, RetentionKind, RetentionPosition

_SIZES = bulk.statement("SELECT run_id, count(*) FROM task WHERE run_id IN KEYS GROUP BY run_id")
_EXISTING_TASKS = bulk.statement("SELECT task_id FROM task WHERE task_id IN KEYS")
#: Every attempt of a step that waits for a run starts a run of its own.
_WAITED = bulk.statement(
    "SELECT task.run_id, task.tenant, attempt.task_id, attempt.number FROM task"  # noqa: S608 - our own names, here and below
    f" JOIN attempt ON attempt.task_id = task.task_id WHERE task.run_id IN KEYS AND attempt.worker = '{ENGINE}'"
)
_RUNS_BY_ID = bulk.statement(f"SELECT {column_list(RUN)} FROM run WHERE run_id IN KEYS")  # noqa: S608
_UNFINISHED_AMONG = bulk.statement(f"SELECT run_id FROM run WHERE run_id IN KEYS AND {schema.NOT_OVER}")  # noqa: S608
_FAILED = bulk.statement("SELECT run_id, task_id FROM task WHERE run_id IN KEYS AND state <> 'SUCCEEDED'")
_UNRESOLVED = bulk.statement(
    f"SELECT {column_list(DEAD_LETTER)} FROM dead_letter WHERE dead_letter_id IN KEYS AND resolved_at IS NULL"  # noqa: S608
)


class RunTree(NamedTuple):
    """A run, then all runs that its steps waited for."""

    runs: Sequence[Run]


def removable_run_trees(conn: sa.Connection, expired: Sequence[Run], limit: int) -> tuple[list[RunTree], Run | None]:
    """The run trees that may be removed, up to about `limit` tasks; and the last run examined, if not all were."""
    if not expired:
        return [], None
    free = _without_parents(conn, expired)
    few = _up_to_limit(conn, free, limit)
    ended = [tree for tree in _with_sub_runs(conn, few) if all(run.over for run in tree.runs)]
    needed = _needed_by_dead_letters(conn, [tree.runs[0] for tree in ended])
    to_announce = unsent(conn, (run.run_id for tree in ended for run in tree.runs))
    needed |= {tree.runs[0].run_id for tree in ended if any(run.run_id in to_announce for run in tree.runs)}
    seen = few[-1] if len(few) < len(free) else None
    return [tree for tree in ended if tree.runs[0].run_id not in needed], seen


def _without_parents(conn: sa.Connection, runs: Sequence[Run]) -> list[Run]:
    """The runs without those whose parent task still exists."""
    parents: list[str] = [run.parent_task for run in runs if run.parent_task is not None]
    there = {name for (name,) in bulk.fetch_rows(conn, _EXISTING_TASKS, parents)} if parents else set()
    return [run for run in runs if run.parent_task not in there]


def _up_to_limit(conn: sa.Connection, runs: Sequence[Run], limit: int) -> list[Run]:
    sizes = {name: count for name, count in bulk.fetch_rows(conn, _SIZES, [run.run_id for run in runs])}  # noqa: C416 - rows are no tuples to a type checker
    few: list[Run] = []
    tasks = 0
    for run in runs:
        if tasks >= limit:
            break
        tasks += sizes.get(run.run_id, 0)
        few.append(run)
    return few


def _with_sub_runs(conn: sa.Connection, runs: Sequence[Run]) -> list[RunTree]:
    members: dict[str, list[Run]] = {run.run_id: [run] for run in runs}
    first_of: dict[str, str] = {name: name for name in members}
    level = list(members)
    while level:
        names = {
            keyed_run_id(tenant, task_id, str(number)): first_of[run_id]
            for run_id, tenant, task_id, number in bulk.fetch_rows(conn, _WAITED, level)
        }
        found = [run_of(row) for row in bulk.fetch_rows(conn, _RUNS_BY_ID, list(names))] if names else []
        for run in found:
            first_of[run.run_id] = names[run.run_id]
            members[names[run.run_id]].append(run)
        level = [run.run_id for run in found]
    return [RunTree(tree) for tree in members.values()]


def _needed_by_dead_letters(conn: sa.Connection, runs: Sequence[Run]) -> set[str]:
    """The runs that an unresolved dead letter still needs."""
    names: list[str] = [run.run_id for run in runs]
    failed = {dead_letter_id(task): run_id for run_id, task in bulk.fetch_rows(conn, _FAILED, names)} if names else {}
    letters: dict[str, list[DeadLetter]] = {}
    for row in bulk.fetch_rows(conn, _UNRESOLVED, list(failed)) if failed else ():
        letter = dead_letter_of(row)
        letters.setdefault(failed[letter.dead_letter_id], []).append(letter)
    again: list[str] = [one.replayed_by for some in letters.values() for one in some if one.replayed_by is not None]
    under_way = {name for (name,) in bulk.fetch_rows(conn, _UNFINISHED_AMONG, again)} if again else set()
    return {run.run_id for run in runs if needed_by_dead_letter(run, letters.get(run.run_id, ()), under_way)}


_RETAINED_SCHEDULES = bulk.statement(
    "SELECT uid, tenant, schedule_id, workflow_id, mark_at, catchup_window_ms, deleted_at,"
    " (SELECT min(run.planned_at) FROM run WHERE run.schedule_uid = schedule.uid),"
    " (SELECT min(tick.planned_at) FROM tick WHERE tick.uid = schedule.uid),"
    " (SELECT max(tick.planned_at) FROM tick WHERE tick.uid = schedule.uid)"
    " FROM schedule WHERE uid > ? ORDER BY uid LIMIT ?"
)
_NEXT_TENANT = [
    bulk.statement(f"SELECT tenant FROM {table} WHERE tenant > ? ORDER BY tenant LIMIT 1")  # noqa: S608 - our own names, here and below
    for table in ("event", "dead_letter")
]
_PAGE = "planned_at < ? AND (planned_at, run_id) > (?, ?) ORDER BY planned_at, run_id LIMIT ?"
_RUNS_OF_SCHEDULE = bulk.statement(f"SELECT {column_list(RUN)} FROM run WHERE schedule_uid = ? AND {_PAGE}")  # noqa: S608
#: The oldest of the newest runs of a job that have ended.
_OLDEST_KEPT = bulk.statement(
    "SELECT created_at, run_id FROM run WHERE tenant = ? AND schedule_id = ? AND completed_at IS NOT NULL"
    " ORDER BY created_at DESC, run_id DESC LIMIT 1 OFFSET ?"
)
_RUNS_WITHOUT_SCHEDULE = bulk.statement(f"SELECT {column_list(RUN)} FROM run WHERE schedule_uid IS NULL AND {_PAGE}")  # noqa: S608
_TICKS = bulk.statement(
    f"SELECT {column_list(schema.tick.c)} FROM tick"  # noqa: S608
    " WHERE uid = ? AND planned_at > ? AND planned_at < ? ORDER BY planned_at LIMIT ?"
)
_ANNOUNCEMENTS_OF_TICKS = bulk.statement(
    f"SELECT {column_list(schema.announcement.c)} FROM announcement"  # noqa: S608
    f" WHERE {schema.OF_TICK} AND schedule_uid = ? AND planned_at >= ? AND planned_at <= ?"
)
_THERE = bulk.statement("SELECT run_id FROM run WHERE run_id IN KEYS")
_EVENTS = bulk.statement(
    f"SELECT {column_list(schema.event.c)} FROM event WHERE tenant = ? AND emitted_at < ?"  # noqa: S608
    " AND (emitted_at, event_id) > (?, ?) ORDER BY emitted_at, event_id LIMIT ?"
)
_LETTERS = bulk.statement(
    f"SELECT {column_list(DEAD_LETTER)} FROM dead_letter WHERE tenant = ? AND dead_letter_id > ?"  # noqa: S608
    " ORDER BY dead_letter_id LIMIT ?"
)
_DELETED = bulk.statement("SELECT deleted_at FROM schedule WHERE uid = ?")
#: The estimated number of rows of a run.
_ROWS_OF_A_RUN = 4


def retained_schedules(conn: sa.Connection, after: str, limit: int) -> Sequence[RetainedSchedule]:
    """See RetentionStore.retained_schedules."""
    return [
        RetainedSchedule(**dict(zip(RetainedSchedule.__struct_fields__, row, strict=True)))
        for row in bulk.fetch_rows(conn, _RETAINED_SCHEDULES, after, limit)
    ]


def tenants(conn: sa.Connection) -> Sequence[str]:
    """See RetentionStore.tenants."""
    found: set[str] = set()
    for following in _NEXT_TENANT:
        after = ""
        while rows := bulk.fetch_rows(conn, following, after):
            after = rows[0][0]
            found.add(after)
    return sorted(found)


# ---- runs ----------------------------------------------------------------------------------------


def expired_runs(
    conn: sa.Connection, past: RetainedSchedule | None, kept: RetentionHorizons, after: RetentionPosition, limit: int
) -> RetentionBatch:
    """See RetentionStore.expired_runs."""
    most = max(1, limit // _ROWS_OF_A_RUN)
    oldest_kept = None if past is None else _oldest_kept(conn, past, kept)
    place = (kept.runs_at if oldest_kept is None else FOREVER, *after, most)
    found = (
        bulk.fetch_rows(conn, _RUNS_WITHOUT_SCHEDULE, *place)
        if past is None
        else bulk.fetch_rows(conn, _RUNS_OF_SCHEDULE, past.uid, *place)
    )
    page = [run_of(row) for row in found]
    trees, seen = removable_run_trees(conn, [run for run in page if run_expired(run, kept, oldest_kept)], limit)
    last = page[-1] if seen is None and len(page) == most else seen
    return RetentionBatch(
        kind=RetentionKind.RUNS,
        names=tuple(run.run_id for tree in trees for run in tree.runs),
        records=_records_of(conn, trees),
        after=None if last is None else (last.planned_at, last.run_id),
    )


def _oldest_kept(conn: sa.Connection, past: RetainedSchedule, kept: RetentionHorizons) -> RunPosition | None:
    """The oldest of the runs whose number is kept; None if there are no more than those, or all are kept."""
    if kept.most_runs is None:
        return None
    found = bulk.fetch_rows(conn, _OLDEST_KEPT, past.tenant, past.schedule_id, kept.most_runs - 1)
    return next(((at, name) for at, name in found), None)


def _records_of(conn: sa.Connection, trees: Sequence[RunTree]) -> Sequence[ArchiveRecord]:
    """The archive records of the runs, dated by the end of the first run of each tree."""
    at: dict[str, int] = {run.run_id: tree.runs[0].completed_at or 0 for tree in trees for run in tree.runs}
    runs = list(at)
    found = records(conn, schema.run, "run_id", runs, at) + records(conn, schema.task, "run_id", runs, at)
    tasks = [record.row["task_id"] for record in found if record.table == "task"]
    at |= {record.row["task_id"]: record.at for record in found if record.table == "task"}
    found += records(conn, schema.announcement, "run_id", runs, at)
    found += records(conn, schema.ruling, "task_id", tasks, at)
    found += _without_bodies(records(conn, schema.output_ruling, "task_id", tasks, at))
    asked = records(conn, schema.approval, "task_id", tasks, at)
    at |= {record.row["approval_id"]: record.at for record in asked}
    names = [record.row["approval_id"] for record in asked]
    found += asked + records(conn, schema.approval_vote, "approval_id", names, at)
    found += records(conn, schema.attempt, "task_id", tasks, at) + records(conn, schema.task_log, "task_id", tasks, at)
    return found + records(conn, schema.payload, "owner_id", [*runs, *tasks], at)


def _without_bodies(found: Sequence[ArchiveRecord]) -> list[ArchiveRecord]:
    """The rulings on outputs without the outputs that are held back: they are in no archive."""
    return [ArchiveRecord(one.table, {**one.row, "body": None}, one.at) for one in found]


# ---- everything else -----------------------------------------------------------------------------


def expired_ticks(
    conn: sa.Connection, past: RetainedSchedule, kept: RetentionHorizons, after: RetentionPosition, limit: int
) -> RetentionBatch:
    """See RetentionStore.expired_ticks."""
    page = [tick_of(row) for row in bulk.fetch_rows(conn, _TICKS, past.uid, after[0], kept.keys_at, limit)]
    wanted: list[str] = [tick.run_id for tick in page if tick.run_id is not None]
    there = {name for (name,) in bulk.fetch_rows(conn, _THERE, wanted)} if wanted else set()
    going = {tick.decision.planned_at: tick.decided_at for tick in select_expired_ticks(past, page, kept, there)}
    rows = [row for row in bulk.fetch_rows(conn, _TICKS, past.uid, after[0], kept.keys_at, limit) if row[1] in going]
    return RetentionBatch(
        kind=RetentionKind.TICKS,
        uid=past.uid,
        names=tuple(going),
        records=[
            *(ArchiveRecord("tick", row_to_json(schema.tick, row), going[row[1]]) for row in rows),
            *_announcements_of_ticks(conn, past.uid, going),
        ],
        after=(page[-1].decision.planned_at, "") if len(page) == limit else None,
    )


def _announcements_of_ticks(conn: sa.Connection, uid: ScheduleUid, going: Mapping[int, int]) -> Iterator[ArchiveRecord]:
    """The archive records of the announcements of these ticks, by planned time, each dated like its tick."""
    if not going:
        return
    for row in bulk.fetch_rows(conn, _ANNOUNCEMENTS_OF_TICKS, uid, min(going), max(going)):
        announcement = row_to_json(schema.announcement, row)
        if announcement["planned_at"] in going:
            yield ArchiveRecord("announcement", announcement, going[announcement["planned_at"]])


def expired_events(
    conn: sa.Connection, tenant: str, before_at: int, after: RetentionPosition, limit: int
) -> RetentionBatch:
    """See RetentionStore.expired_events."""
    page = {row[0]: row for row in bulk.fetch_rows(conn, _EVENTS, tenant, before_at, *after, limit)}
    effects_of: dict[str, list[Any]] = {name: [] for name in page}
    for entry in effects(conn, list(page)) if page else ():
        effects_of[entry.event_id].append(entry)
    going = [name for name in page if event_expired(effects_of[name])]
    at = {name: row[5] for name, row in page.items()}
    found = [ArchiveRecord("event", row_to_json(schema.event, page[name]), at[name]) for name in going]
    found += records(conn, schema.event_entry, "event_id", going, at)
    last = list(page)[-1] if len(page) == limit else None
    further = None if last is None else (at[last], last)
    return RetentionBatch(kind=RetentionKind.EVENTS, names=tuple(going), records=found, after=further)


def expired_dead_letters(
    conn: sa.Connection, tenant: str, before_at: int, after: RetentionPosition, limit: int
) -> RetentionBatch:
    """See RetentionStore.expired_dead_letters."""
    page = [dead_letter_of(row) for row in bulk.fetch_rows(conn, _LETTERS, tenant, after[1], limit)]
    again: list[str] = [letter.replayed_by for letter in page if letter.replayed_by is not None]
    under_way = {name for (name,) in bulk.fetch_rows(conn, _UNFINISHED_AMONG, again)} if again else set()
    going = {one.dead_letter_id: one.created_at for one in page if dead_letter_expired(one, before_at, under_way)}
    return RetentionBatch(
        kind=RetentionKind.DEAD_LETTERS,
        names=tuple(going),
        records=records(conn, schema.dead_letter, "dead_letter_id", list(going), going),
        after=(0, page[-1].dead_letter_id) if len(page) == limit else None,
    )


def expired_schedule(conn: sa.Connection, uid: ScheduleUid) -> RetentionBatch:
    """See RetentionStore.expired_schedule."""
    [(deleted_at,)] = bulk.fetch_rows(conn, _DELETED, uid) or [(None,)]
    kept = (schema.schedule, schema.schedule_revision, schema.pause)
    found = [record for table in kept for record in records(conn, table, "uid", [uid], {uid: deleted_at or 0})]
    return RetentionBatch(kind=RetentionKind.SCHEDULES, names=(uid,), records=found)


_OVER = bulk.statement("SELECT run_id FROM run WHERE run_id IN KEYS AND completed_at IS NOT NULL")
_TASKS_OF_RUNS = bulk.statement("SELECT task_id FROM task WHERE run_id IN KEYS LIMIT ?")
_OF_TASKS = [
    bulk.statement(
        "DELETE FROM approval_vote WHERE approval_id IN (SELECT approval_id FROM approval WHERE task_id IN KEYS)"
    ),
    *(
        bulk.statement(f"DELETE FROM {table} WHERE {key} IN KEYS")  # noqa: S608 - our own names, here and below
        for table, key in (
            ("task_log", "task_id"),
            ("agent_log", "task_id"),
            ("ruling", "task_id"),
            ("output_ruling", "task_id"),
            ("output_check", "task_id"),
            ("approval", "task_id"),
            ("attempt", "task_id"),
            ("payload", "owner_id"),
            ("task", "task_id"),
        )
    ),
]
_OF_RUNS = [
    bulk.statement(f"DELETE FROM {table} WHERE {key} IN KEYS")  # noqa: S608
    for table, key in (
        ("announcement", "run_id"),
        ("payload", "owner_id"),
        ("sub_run_tasks", "root_run_id"),
        ("run", "run_id"),
    )
]
_OTHERS = {
    kind: [bulk.statement(f"DELETE FROM {table} WHERE {key} IN KEYS") for table in tables]  # noqa: S608
    for kind, key, tables in (
        (RetentionKind.EVENTS, "event_id", ("event_entry", "event")),
        (RetentionKind.DEAD_LETTERS, "dead_letter_id", ("dead_letter",)),
        (
            RetentionKind.SCHEDULES,
            "uid",
            ("failure_streak", "tick_day", "tick_summed", "schedule_revision", "pause", "schedule"),
        ),
    )
}
_NEWEST_WITH_RUN = bulk.statement(
    "SELECT max(planned_at) FROM tick WHERE uid = ? AND planned_at >= ? AND planned_at <= ? AND run_id IS NOT NULL"
)
_NOTE_REMOVED = bulk.statement(
    "UPDATE schedule SET ticks_removed_until = ? WHERE uid = ? AND coalesce(ticks_removed_until, 0) < ?"
)
_REMOVE_TICKS = bulk.Statement(
    "DELETE FROM tick WHERE uid = ? AND planned_at = ?",
    "DELETE FROM tick USING unnest($1::text[], $2::bigint[]) AS v (uid, planned_at)"
    " WHERE tick.uid = v.uid AND tick.planned_at = v.planned_at",
)

_REMOVE_ANNOUNCEMENTS = bulk.Statement(
    f"DELETE FROM announcement WHERE {schema.OF_TICK} AND schedule_uid = ? AND planned_at = ?",  # noqa: S608
    "DELETE FROM announcement USING unnest($1::text[], $2::bigint[]) AS v (uid, planned_at)"  # noqa: S608
    f" WHERE {schema.OF_TICK} AND schedule_uid = v.uid AND announcement.planned_at = v.planned_at",
)


def remove(conn: sa.Connection, batch: RetentionBatch, limit: int) -> bool:
    """See RetentionStore.remove."""
    if batch.kind is RetentionKind.RUNS:
        return _remove_runs(conn, batch.names, limit)
    if batch.kind is RetentionKind.TICKS:
        _note_removed_ticks(conn, batch)
        if batch.uid is not None:
            calendar.forget_removed(conn, batch.uid, [int(at) for at in batch.names])
        bulk.execute_many(conn, _REMOVE_TICKS, [(batch.uid, at) for at in batch.names])
        bulk.execute_many(conn, _REMOVE_ANNOUNCEMENTS, [(batch.uid, at) for at in batch.names])
        return True
    if batch.kind is RetentionKind.BACKFILLS:
        return expired_definitions.remove_backfills(conn, batch.names, limit)
    if batch.kind is RetentionKind.WORKFLOWS:
        expired_definitions.remove_workflows(conn, batch.names)
        return True
    for statement in _OTHERS[batch.kind]:
        bulk.execute_statement(conn, statement, list(batch.names))
    return True


def _note_removed_ticks(conn: sa.Connection, batch: RetentionBatch) -> None:
    """Remember up to where ticks that had a run are removed: their schedule's mark is not set back before that."""
    planned = [int(at) for at in batch.names]
    if not planned:
        return
    [(newest,)] = bulk.fetch_rows(conn, _NEWEST_WITH_RUN, batch.uid, min(planned), max(planned))
    if newest is not None:
        bulk.execute_statement(conn, _NOTE_REMOVED, newest, batch.uid, newest)


def _remove_runs(conn: sa.Connection, names: Sequence[str], limit: int) -> bool:
    """Delete the rows of tasks first and the runs last, so that an interrupted removal finds its runs again."""
    over = [name for (name,) in bulk.fetch_rows(conn, _OVER, list(names))]
    tasks = [name for (name,) in bulk.fetch_rows(conn, _TASKS_OF_RUNS, over, limit)]
    for statement in _OF_TASKS:
        bulk.execute_statement(conn, statement, tasks)
    if len(tasks) == limit:
        return False
    for statement in _OF_RUNS:
        bulk.execute_statement(conn, statement, over)
    return True
