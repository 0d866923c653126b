"""Checks and repairs of the store: the ports StuckRuns and InvariantChecks."""

from collections.abc import Collection, Mapping, Sequence

import sqlalchemy as sa

from gnomon.adapters.sql import bulk, schema
from gnomon.adapters.sql.advances import STEPS, AdvancingRun
from gnomon.adapters.sql.announcements import awaiting
from gnomon.adapters.sql.completion import ConcurrencyCounters, EndedRun
from gnomon.adapters.sql.graph import (
    EngineTaskEnd,
    advance_runs,
    cascade_run_ends,
    end_engine_tasks,
    end_tasks,
    fan_out_outcome,
    lock_counters,
    sub_run_outcome,
)
from gnomon.adapters.sql.rows import RUN, SCHEDULE, column_list, load_workflow, run_of, task_of
from gnomon.adapters.sql.unreadable import UnreadableSchedules
from gnomon.core.invariants import (
    OrphanedAttempt,
    OverdueSchedule,
    RunCountCheck,
    StuckReason,
    StuckRun,
    diagnose_run,
    waits_for_run,
)
from gnomon.core.model import Run, RunId, RunStatus, Schedule, ScheduleUid, Task, TaskId
from gnomon.core.runs.launch import sub_run_id
from gnomon.core.runs.outcomes import AttemptOutcome
from gnomon.core.runs.workflow import Workflow
from gnomon.ports.maintenance import OpenRunPosition, StuckRunsPage

_OPEN = f"SELECT {column_list(RUN)} FROM run WHERE {schema.NOT_OVER} AND created_at < ?"  # noqa: S608 - our own names, here and below
_UNSCHEDULED = bulk.statement(f"{_OPEN} AND schedule_uid IS NULL AND planned_at > ? ORDER BY planned_at LIMIT ?")
_UNSCHEDULED_AT = bulk.statement(f"{_OPEN} AND schedule_uid IS NULL AND planned_at = ?")
_OF_SCHEDULES = bulk.statement(
    f"{_OPEN} AND (schedule_uid, planned_at) > (?, ?) ORDER BY schedule_uid, planned_at LIMIT ?"
)
_AT = bulk.statement(f"{_OPEN} AND schedule_uid = ? AND planned_at = ?")
_RUNS_BY_ID = bulk.statement(f"SELECT {column_list(RUN)} FROM run WHERE run_id IN KEYS")  # noqa: S608
_OWNERS = bulk.statement(f"SELECT run_id, schedule_uid FROM run WHERE run_id IN KEYS AND {schema.NOT_OVER}")  # noqa: S608
_LOCK = bulk.statement(
    f"SELECT {column_list(RUN)} FROM run WHERE run_id IN KEYS AND {schema.NOT_OVER} ORDER BY run_id FOR UPDATE"  # noqa: S608
)
_LOWEST = -(1 << 62)


def stuck_runs(conn: sa.Connection, before_at: int, after: OpenRunPosition, limit: int) -> StuckRunsPage:
    """See StuckRuns.stuck_runs."""
    runs, further = _page(conn, before_at, after, limit)
    found = {run.run_id: stuck.reason for run, _, stuck in _diagnosed(conn, runs) if stuck is not None}
    return StuckRunsPage(found, further)


def _page(
    conn: sa.Connection, before_at: int, after: OpenRunPosition, limit: int
) -> tuple[list[Run], OpenRunPosition | None]:
    """Runs in the order of the index. The runs of one position are never split, however many there are."""
    uid, at = after
    if uid:
        rows = bulk.fetch_rows(conn, _OF_SCHEDULES, before_at, uid, at, limit + 1)
    else:
        rows = bulk.fetch_rows(conn, _UNSCHEDULED, before_at, at, limit + 1)
    runs = [run_of(row) for row in rows]
    if len(runs) <= limit:
        # After the runs without a schedule come those of the first schedule.
        return runs, None if uid else (" ", _LOWEST)
    last = _position(runs[-1])
    complete = [run for run in runs if _position(run) != last]
    if complete:
        return complete, _position(complete[-1])
    rows = (
        bulk.fetch_rows(conn, _AT, before_at, *last)
        if uid
        else bulk.fetch_rows(conn, _UNSCHEDULED_AT, before_at, last[1])
    )
    return [run_of(row) for row in rows], last


def _position(run: Run) -> OpenRunPosition:
    return run.schedule_uid or "", run.planned_at


def _diagnosed(conn: sa.Connection, runs: Sequence[Run]) -> list[tuple[Run, Workflow | None, StuckRun | None]]:
    """Each run with its workflow and the diagnosis; None if it is not stuck."""
    steps: dict[str, list[Task]] = {run.run_id: [] for run in runs}
    for task in map(task_of, bulk.fetch_rows(conn, STEPS, list(steps))) if steps else ():
        steps[task.run_id].append(task)
    versions = {(run.tenant, run.workflow_id, run.workflow_version) for run in runs}
    known = {version: load_workflow(conn, *version) for version in versions}
    with_graphs = [(run, known[run.tenant, run.workflow_id, run.workflow_version]) for run in runs]
    sub_runs: list[str] = [
        sub_run_id(task)
        for run, graph in with_graphs
        for task in steps[run.run_id]
        if graph is not None and waits_for_run(task, graph)
    ]
    over = {run.run_id for run in _found(conn, sub_runs).values() if run.over}
    held = awaiting(conn, steps)
    return [
        (run, graph, None if run.run_id in held else diagnose_run(run, graph, steps[run.run_id], over))
        for run, graph in with_graphs
    ]


def _found(conn: sa.Connection, names: Sequence[str]) -> Mapping[str, Run]:
    rows = bulk.fetch_rows(conn, _RUNS_BY_ID, list(names)) if names else ()
    return {run.run_id: run for run in map(run_of, rows)}


def repair_runs(conn: sa.Connection, run_ids: Collection[RunId], now: int) -> Sequence[RunId]:
    """See StuckRuns.repair_runs."""
    names: list[str] = sorted(run_ids)
    counters = lock_counters(conn, [(run_id, uid) for run_id, uid in bulk.fetch_rows(conn, _OWNERS, names)])
    locked = [run_of(row) for row in bulk.fetch_rows(conn, _LOCK, names)]
    repaired: list[RunId] = []
    ended: list[EndedRun] = []
    advancing: list[AdvancingRun] = []
    ended_steps: list[EngineTaskEnd] = []
    for run, graph, stuck in _diagnosed(conn, locked):
        if stuck is None:
            continue
        repaired.append(run.run_id)
        if graph is None:
            ended.append(EndedRun(run, RunStatus.FAILED, "its workflow is gone", now))
        elif stuck.reason is StuckReason.STEP_NOT_ENDED:
            ended_steps += [
                EngineTaskEnd(task, run, graph, _outcome(conn, task, run, graph, now), now) for task in stuck.steps
            ]
        else:
            advancing.append(AdvancingRun(run, graph, now))
    cascade_run_ends(conn, [*ended, *advance_runs(conn, advancing)], counters)
    end_tasks(conn, end_engine_tasks(conn, ended_steps), counters)
    return repaired


def _outcome(conn: sa.Connection, task: Task, run: Run, graph: Workflow, now: int) -> AttemptOutcome:
    """The outcome of a step, once all its items or its sub-run have ended."""
    if not waits_for_run(task, graph):
        return fan_out_outcome(conn, task, run)
    below = _found(conn, [sub_run_id(task)])[sub_run_id(task)]
    return sub_run_outcome(conn, EndedRun(below, below.status, below.error, now))


_IDLE = bulk.statement(
    f"SELECT {column_list(SCHEDULE)} FROM schedule WHERE {schema.IDLE} AND uid > ? ORDER BY uid LIMIT ?"  # noqa: S608 - our own names, here and below
)
_SET_NEXT_FIRE = bulk.statement(
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
_COUNT_OPEN_RUNS = f"(SELECT count(*) FROM run WHERE run.schedule_uid = schedule.uid AND {schema.NOT_OVER}"  # noqa: S608
_COUNTS = (
    "SELECT uid, schedule_id, active_runs, queued_runs,"  # noqa: S608
    f" {_COUNT_OPEN_RUNS} AND NOT queued), {_COUNT_OPEN_RUNS} AND queued) FROM schedule"
)
_PAGE = bulk.statement(f"{_COUNTS} WHERE deleted_at IS NULL AND uid > ? ORDER BY uid LIMIT ?")
_THESE = bulk.statement(f"{_COUNTS} WHERE deleted_at IS NULL AND uid IN KEYS")


def schedules_without_next_fire(
    conn: sa.Connection, after: str, limit: int, unreadable: UnreadableSchedules
) -> Sequence[Schedule]:
    """See InvariantChecks.schedules_without_next_fire."""
    found: list[Schedule] = []
    while len(found) < limit:
        wanted = limit - len(found)
        rows = bulk.fetch_rows(conn, _IDLE, after, wanted)
        found += unreadable.readable(rows)
        if len(rows) < wanted:
            break
        after = rows[-1][_UID]
    return found


def set_next_fire(conn: sa.Connection, schedule: Schedule, next_fire_at: int) -> bool:
    """See InvariantChecks.set_next_fire."""
    return bool(bulk.fetch_rows(conn, _SET_NEXT_FIRE, next_fire_at, schedule.uid, schedule.revision, schedule.mark_at))


def orphaned_attempts(conn: sa.Connection, before_at: int, limit: int) -> Sequence[OrphanedAttempt]:
    """See InvariantChecks.orphaned_attempts."""
    found = bulk.fetch_rows(conn, _ORPHANS, before_at, limit)
    return [OrphanedAttempt(task_id=TaskId(task), worker=worker, lease_until=until) for task, worker, until in found]


def oldest_due(conn: sa.Connection, now: int) -> OverdueSchedule | None:
    """See InvariantChecks.oldest_due."""
    for uid, name, next_fire_at, shard in bulk.fetch_rows(conn, _OLDEST):
        led = bool(bulk.fetch_rows(conn, _LED, shard, now))
        return OverdueSchedule(uid=uid, schedule_id=name, next_fire_at=next_fire_at, led=led)
    return None


def counted(conn: sa.Connection, after: str, limit: int) -> Sequence[RunCountCheck]:
    """See InvariantChecks.counted."""
    return [_counted(row) for row in bulk.fetch_rows(conn, _PAGE, after, limit)]


def _counted(row: Sequence[object]) -> RunCountCheck:
    return RunCountCheck(**dict(zip(RunCountCheck.__struct_fields__, row, strict=True)))  # type: ignore[arg-type]


def recount_runs(conn: sa.Connection, uids: Collection[ScheduleUid], now: int) -> Sequence[ScheduleUid]:
    """See InvariantChecks.recount_runs. The locked counters keep other transactions from changing runs meanwhile."""
    counters = ConcurrencyCounters(conn, uids)
    names: list[str] = sorted(uids)
    wrong = [one for row in bulk.fetch_rows(conn, _THESE, names) if (one := _counted(row)).mismatched]
    for one in wrong:
        counters.recount_runs(one.uid, active=one.active, queued=one.queued, now=now)
    return sorted(one.uid for one in wrong)
