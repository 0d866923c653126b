"""Runs that wait in vain."""

from collections.abc import Collection, Mapping, Sequence

import sqlalchemy as sa

from gnomon.adapters.sql import bulk, schema
from gnomon.adapters.sql.completion import Ended, Rooms
from gnomon.adapters.sql.graph import (
    STEPS,
    Going,
    Inner,
    advance,
    end_inner,
    end_tasks,
    follow,
    outcome_of,
    rooms_for,
    together,
)
from gnomon.adapters.sql.rows import RUN, SCHEDULE, definition, named, run_of, task_of
from gnomon.adapters.sql.unreadable import Unreadable
from gnomon.core.invariants import Ailment, Counted, Diagnosis, Orphan, Overdue, diagnosis, waits_for_run
from gnomon.core.model import Run, RunId, RunStatus, Schedule, ScheduleUid, Task, TaskId
from gnomon.core.runs.launch import sub_run_id
from gnomon.core.runs.outcomes import Outcome
from gnomon.core.runs.workflow import Workflow
from gnomon.ports.maintenance import Ailing, OpenPlace

_OPEN = f"SELECT {named(RUN)} FROM run WHERE {schema.NOT_OVER} AND created_at < ?"  # noqa: S608 - our own names, here and below
_LOOSE = bulk.statement(f"{_OPEN} AND schedule_uid IS NULL AND planned_at > ? ORDER BY planned_at LIMIT ?")
_LOOSE_AT = bulk.statement(f"{_OPEN} AND schedule_uid IS NULL AND planned_at = ?")
_OF_SCHEDULES = bulk.statement(
    f"{_OPEN} AND (schedule_uid, planned_at) > (?, ?) ORDER BY schedule_uid, planned_at LIMIT ?"
)
_AT = bulk.statement(f"{_OPEN} AND schedule_uid = ? AND planned_at = ?")
_RUNS = bulk.statement(f"SELECT {named(RUN)} FROM run WHERE run_id IN KEYS")  # noqa: S608
_OWNERS = bulk.statement(f"SELECT run_id, schedule_uid FROM run WHERE run_id IN KEYS AND {schema.NOT_OVER}")  # noqa: S608
_HOLD = bulk.statement(
    f"SELECT {named(RUN)} FROM run WHERE run_id IN KEYS AND {schema.NOT_OVER} ORDER BY run_id FOR UPDATE"  # noqa: S608
)
_LOWEST = -(1 << 62)


def ailing(conn: sa.Connection, before_at: int, after: OpenPlace, limit: int) -> Ailing:
    """See Mending.ailing."""
    runs, further = _page(conn, before_at, after, limit)
    found = {run.run_id: told.ailment for run, _, told in _diagnosed(conn, runs) if told is not None}
    return Ailing(found, further)


def _page(conn: sa.Connection, before_at: int, after: OpenPlace, limit: int) -> tuple[list[Run], OpenPlace | None]:
    """Runs in the order of the index; all that share the last place, of which there may be many, come together."""
    uid, at = after
    if uid:
        rows = bulk.rows(conn, _OF_SCHEDULES, before_at, uid, at, limit + 1)
    else:
        rows = bulk.rows(conn, _LOOSE, before_at, at, limit + 1)
    runs = [run_of(row) for row in rows]
    if len(runs) <= limit:
        # Behind those without a schedule come those of the first.
        return runs, None if uid else (" ", _LOWEST)
    last = _place(runs[-1])
    whole = [run for run in runs if _place(run) != last]
    if whole:
        return whole, _place(whole[-1])
    asked = bulk.rows(conn, _AT, before_at, *last) if uid else bulk.rows(conn, _LOOSE_AT, before_at, last[1])
    return [run_of(row) for row in asked], last


def _place(run: Run) -> OpenPlace:
    return run.schedule_uid or "", run.planned_at


def _diagnosed(conn: sa.Connection, runs: Sequence[Run]) -> list[tuple[Run, Workflow | None, Diagnosis | None]]:
    """Each of the runs with what it is made from and what is wrong with it."""
    steps: dict[str, list[Task]] = {run.run_id: [] for run in runs}
    for task in map(task_of, bulk.rows(conn, STEPS, list(steps))) if steps else ():
        steps[task.run_id].append(task)
    versions = {(run.tenant, run.workflow_id, run.workflow_version) for run in runs}
    known = {version: definition(conn, *version) for version in versions}
    made = [(run, known[run.tenant, run.workflow_id, run.workflow_version]) for run in runs]
    waited_for: list[str] = [
        sub_run_id(task)
        for run, graph in made
        for task in steps[run.run_id]
        if graph is not None and waits_for_run(task, graph)
    ]
    over = {run.run_id for run in _found(conn, waited_for).values() if run.over}
    return [(run, graph, diagnosis(run, graph, steps[run.run_id], over)) for run, graph in made]


def _found(conn: sa.Connection, names: Sequence[str]) -> Mapping[str, Run]:
    rows = bulk.rows(conn, _RUNS, list(names)) if names else ()
    return {run.run_id: run for run in map(run_of, rows)}


def mend(conn: sa.Connection, run_ids: Collection[RunId], now: int) -> Sequence[RunId]:
    """See Mending.mend."""
    names: list[str] = sorted(run_ids)
    rooms = rooms_for(conn, [(run_id, uid) for run_id, uid in bulk.rows(conn, _OWNERS, names)])
    held = [run_of(row) for row in bulk.rows(conn, _HOLD, names)]
    mended: list[RunId] = []
    ended: list[Ended] = []
    going: list[Going] = []
    inner: list[Inner] = []
    for run, graph, told in _diagnosed(conn, held):
        if told is None:
            continue
        mended.append(run.run_id)
        if graph is None:
            ended.append(Ended(run, RunStatus.FAILED, "its workflow is gone", now))
        elif told.ailment is Ailment.STEP_NOT_ENDED:
            inner += [Inner(task, run, graph, _outcome(conn, task, run, graph, now), now) for task in told.steps]
        else:
            going.append(Going(run, graph, now))
    follow(conn, [*ended, *advance(conn, going)], rooms)
    end_tasks(conn, end_inner(conn, inner), rooms)
    return mended


def _outcome(conn: sa.Connection, task: Task, run: Run, graph: Workflow, now: int) -> Outcome:
    """How a step has ended that waited for what is over."""
    if not waits_for_run(task, graph):
        return together(conn, task, run)
    below = _found(conn, [sub_run_id(task)])[sub_run_id(task)]
    return outcome_of(conn, Ended(below, below.status, below.error, now))


_IDLE = bulk.statement(
    f"SELECT {named(SCHEDULE)} FROM schedule WHERE {schema.IDLE} AND uid > ? ORDER BY uid LIMIT ?"  # noqa: S608 - our own names, here and below
)
_GIVE = bulk.statement(
    "UPDATE schedule SET next_fire_at = ? WHERE uid = ? AND revision = ? AND mark_at = ?"  # noqa: S608
    f" AND {schema.IDLE} RETURNING uid"
)
_ORPHANS = bulk.statement(
    f"SELECT task_id, worker, lease_until FROM attempt WHERE {schema.OPEN} AND task_id > '' AND lease_until < ?"  # noqa: S608
    " ORDER BY task_id LIMIT ?"
)
_OLDEST = bulk.statement(
    "SELECT uid, schedule_id, next_fire_at, shard FROM schedule WHERE next_fire_at IS NOT NULL"
    " ORDER BY next_fire_at, uid LIMIT 1"
)
_UID = [column.name for column in SCHEDULE].index("uid")
_LED = bulk.statement("SELECT holder FROM shard WHERE shard = ? AND lease_until > ? AND holder IS NOT NULL")
_CHECKED_RUNS = f"(SELECT count(*) FROM run WHERE run.schedule_uid = schedule.uid AND {schema.NOT_OVER}"  # noqa: S608
_COUNTS = (
    "SELECT uid, schedule_id, active_runs, queued_runs,"  # noqa: S608
    f" {_CHECKED_RUNS} AND NOT queued), {_CHECKED_RUNS} AND queued) FROM schedule"
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
