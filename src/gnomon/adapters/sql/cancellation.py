"""Cancelling runs: on request, superseded by a newer run, or queued behind a schedule that was deleted.

Tasks without an open attempt end at once, and so does a run without other tasks. A run with assigned tasks is marked,
and its workers see the mark when they renew their leases.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import sqlalchemy as sa
from msgspec.structs import replace

from gnomon.adapters.sql import approvals, bulk, schema
from gnomon.adapters.sql.actions import give_back_reserved, give_back_untaken
from gnomon.adapters.sql.advances import AdvancingRun
from gnomon.adapters.sql.after_commit import notify_activity, notify_runs
from gnomon.adapters.sql.budgets import give_back_unspent
from gnomon.adapters.sql.completion import ConcurrencyCounters, EndedRun, set_tick_statuses
from gnomon.adapters.sql.graph import advance_runs, cascade_run_ends, lock_counters
from gnomon.adapters.sql.rows import RUN, column_list, load_workflow, run_of
from gnomon.adapters.sql.transitions import StateChange, state_in, state_update, write_changes
from gnomon.core.ledger.plan import superseded_run
from gnomon.core.model import ENGINE, Result, Run, RunId, RunStatus, ScheduleUid, TickStatus
from gnomon.core.runs.launch import CancelOutcome
from gnomon.core.runs.rollback import RollbackStatus
from gnomon.core.runs.states import ASSIGNED, WAITING, TaskState

_ASSIGNED = bulk.statement(
    "SELECT task.task_id, task.run_id, task.fence, task.parent, attempt.worker, task.state FROM task"  # noqa: S608 - our own
    " JOIN attempt ON attempt.task_id = task.task_id AND attempt.number = task.fence"
    f" WHERE task.run_id IN KEYS AND {state_in(ASSIGNED)}"
)
_AWAITED = bulk.statement(
    f"SELECT parent_task FROM run WHERE parent_task IN KEYS AND parent_task IS NOT NULL AND {schema.NOT_OVER}"  # noqa: S608 - our own
)
_END_TASK = state_update("note", "open_items")
_RECOUNT = bulk.update_statement(schema.task, ("open_items",), by=("task_id",))
_END = bulk.update_statement(schema.attempt, ("ended_at", "result"), by=("task_id", "number"))


def end_waiting_tasks(conn: sa.Connection, runs: Sequence[Run], now: int) -> Collection[str]:
    """End the engine's tasks of these runs that wait for nothing more; return the runs with tasks still assigned.

    The caller has ended the waiting tasks of the runs before.
    """
    if not runs:
        return ()
    names: list[str] = [run.run_id for run in runs]
    assigned = {row[0]: row for row in bulk.fetch_rows(conn, _ASSIGNED, names)}
    engine = [name for name, row in assigned.items() if row[4] == ENGINE]
    awaiting = {name for (name,) in bulk.fetch_rows(conn, _AWAITED, engine)} if engine else set()
    open_items: dict[str, int] = {}
    idle: list[str] = []
    # Items first: a step waits for those of its items that are not idle.
    for name in sorted(assigned, key=lambda one: assigned[one][3] is None):
        if assigned[name][4] == ENGINE and name not in awaiting and not open_items.get(name):
            idle.append(name)
        elif assigned[name][3] is not None:
            open_items[assigned[name][3]] = open_items.get(assigned[name][3], 0) + 1
    why: Mapping[str, str | None] = {run.run_id: run.error for run in runs}
    ended = [
        StateChange(name, TaskState(assigned[name][5]), TaskState.CANCELLED, (why[assigned[name][1]], 0))
        for name in idle
    ]
    write_changes(conn, _END_TASK, ended)
    bulk.execute_many(conn, _END, [(now, Result.CANCELLED.value, name, assigned[name][2]) for name in idle])
    bulk.execute_many(conn, _RECOUNT, [(count, name) for name, count in open_items.items()])
    notify_activity(conn, lambda observer: observer.attempts_cancelled(len(idle)))
    return {row[1] for name, row in assigned.items() if name not in set(idle)}


_UNDER_WAY = bulk.statement(f"SELECT run_id FROM run WHERE schedule_uid IN KEYS AND {schema.NOT_OVER}")  # noqa: S608 - our own
_QUEUED = bulk.statement("SELECT run_id FROM run WHERE schedule_uid IN KEYS AND queued")
_OWNER = bulk.statement("SELECT schedule_uid FROM run WHERE run_id = ?")
_OF_RUNS = "SELECT task_id, run_id, state FROM task WHERE run_id IN KEYS"
# Items before their steps: the order in which the ends of items lock them.
_TASKS = bulk.Statement(
    bulk.statement(_OF_RUNS).sqlite,
    bulk.statement(f"{_OF_RUNS} ORDER BY parent NULLS LAST, task_id FOR UPDATE").postgresql,
)
_NOT_OVER = bulk.statement(f"SELECT run_id FROM run WHERE run_id IN KEYS AND {schema.NOT_OVER}")  # noqa: S608 - our own
_BELOW = bulk.statement(
    f"SELECT run_id, parent_task FROM run WHERE parent_task IN KEYS AND parent_task IS NOT NULL AND {schema.NOT_OVER}"  # noqa: S608 - our own
)
_RUNS = bulk.statement(f"SELECT {column_list(RUN)} FROM run WHERE run_id IN KEYS ORDER BY run_id FOR UPDATE")  # noqa: S608 - our own
_CANCEL = state_update("note")
_STOP = bulk.update_statement(
    schema.run, ("status", "queued", "completed_at", "cancel_requested_at", "error"), by=("run_id",)
)


def supersede(conn: sa.Connection, by: Mapping[ScheduleUid, RunId], now: int) -> None:
    """Stop all runs of these schedules but the one that replaces them."""
    if not by:
        return
    counters = ConcurrencyCounters(conn, by)
    kept = set(by.values())
    superseded = [name for (name,) in bulk.fetch_rows(conn, _UNDER_WAY, sorted(by)) if name not in kept]
    _stop_runs(conn, superseded, lambda run: superseded_run(run, now=now), counters, now)


def cancel_queued(conn: sa.Connection, uid: ScheduleUid, now: int) -> None:
    """End the queued runs of a schedule that was deleted."""
    waiting = [name for (name,) in bulk.fetch_rows(conn, _QUEUED, [uid])]
    why = "its schedule was deleted"
    _stop_runs(conn, waiting, lambda run: superseded_run(run, now=now, why=why), ConcurrencyCounters(conn, [uid]), now)


def cancel(conn: sa.Connection, run_id: RunId, reason: str, now: int) -> CancelOutcome:
    """See Runs.cancel."""
    owner = bulk.fetch_rows(conn, _OWNER, run_id)
    if not owner:
        return CancelOutcome.UNKNOWN
    counters = lock_counters(conn, [(run_id, owner[0][0])])
    if not _stop_runs(conn, [run_id], lambda run: _with_request(run, reason, now), counters, now):
        return CancelOutcome.OVER
    return CancelOutcome.ASKED if bulk.fetch_rows(conn, _NOT_OVER, [run_id]) else CancelOutcome.CANCELLED


def _with_request(run: Run, reason: str, now: int) -> Run:
    asked_at = now if run.cancel_requested_at is None else run.cancel_requested_at
    return replace(run, cancel_requested_at=asked_at, error=run.error or reason)


def _stop_runs(
    conn: sa.Connection,
    run_ids: Sequence[str],
    stopped_from: Callable[[Run], Run],
    counters: ConcurrencyCounters,
    now: int,
) -> bool:
    """Stop the runs that are not over, and all sub-runs that their steps wait for; return whether there were any."""
    if not run_ids:
        return False
    found = _lock_runs(conn, run_ids)
    stopped: dict[str, Run] = {}
    for run in found.runs:
        above = stopped.get(found.above.get(run.run_id, ""))
        if run.run_id not in found.above:
            stopped[run.run_id] = stopped_from(run)
        elif above is not None and not above.over:
            stopped[run.run_id] = _with_request(run, above.error or "", now)
    cancelled = [
        StateChange(task_id, TaskState(state), TaskState.CANCELLED, (stopped[run_id].error,))
        for task_id, run_id, state in found.tasks
        if run_id in stopped and state in WAITING
    ]
    write_changes(conn, _CANCEL, cancelled)
    approvals.void_of_ended(conn, [one.task_id for one in cancelled if one.before is TaskState.APPROVAL_REQUIRED], now)
    give_back_untaken(conn, [one.task_id for one in cancelled])
    give_back_reserved(conn, [one.task_id for one in cancelled])
    give_back_unspent(conn, [one.task_id for one in cancelled])
    bulk.execute_many(conn, _STOP, [_stopped_row(run) for run in stopped.values()])
    # Queued runs leave the queue first: a slot that another run releases must not go to a cancelled one.
    over = [run for run in stopped.values() if run.over]
    set_tick_statuses(conn, ((run, TickStatus.SKIPPED) for run in over))
    notify_runs(conn, lambda observer: observer.ended([(run, run.status, run.error, now) for run in over]))
    left = _end_idle_runs(conn, found, stopped, counters, now)
    notify_activity(conn, lambda observer: observer.graph_runs_ended([*over, *left]))
    return bool(stopped)


class _LockedRuns(NamedTuple):
    """Runs and the sub-runs that their steps wait for, locked."""

    #: The runs that are not over, each after its parent.
    runs: Sequence[Run]
    #: The parent of each sub-run.
    above: Mapping[str, str]
    #: Id, run and state of each task.
    tasks: Sequence[Sequence[str]]


def _lock_runs(conn: sa.Connection, run_ids: Sequence[str]) -> _LockedRuns:
    tasks: list[Sequence[str]] = []
    above: dict[str, str] = {}
    runs: list[Run] = []
    level = list(run_ids)
    while level:
        found = bulk.fetch_rows(conn, _TASKS, level)
        # A run that is being rolled back is left alone.
        runs += [
            run
            for run in map(run_of, bulk.fetch_rows(conn, _RUNS, level))
            if not run.over and run.rollback is not RollbackStatus.RUNNING
        ]
        if conn.dialect.name != "sqlite":
            # The transaction that held a lock may have added tasks; with the runs locked, no other can.
            found = bulk.fetch_rows(conn, _TASKS, level)
        tasks += found
        assigned = {task_id: run_id for task_id, run_id, state in found if state in ASSIGNED}
        below = bulk.fetch_rows(conn, _BELOW, list(assigned)) if assigned else ()
        above |= {run_id: assigned[task_id] for run_id, task_id in below}
        level = [run_id for run_id, _ in below]
    return _LockedRuns(runs, above, tasks)


def _end_idle_runs(
    conn: sa.Connection, found: _LockedRuns, stopped: Mapping[str, Run], counters: ConcurrencyCounters, now: int
) -> list[Run]:
    """End the runs without assigned tasks, the deepest first: its end may be the last thing that its parent awaits."""
    left: list[Run] = []
    busy = {run_id for _, run_id, state in found.tasks if state in ASSIGNED}
    requested = [run for run in stopped.values() if not run.over]
    for depth in sorted({run.depth for run in requested}, reverse=True):
        here = {run.run_id: run for run in requested if run.depth == depth}
        if found.above:
            here = {run_id: here[run_id] for (run_id,) in bulk.fetch_rows(conn, _NOT_OVER, list(here))}
        held = end_waiting_tasks(conn, [run for name, run in here.items() if name in busy], now)
        idle = [run for name, run in here.items() if name not in held]
        undone = _undone_runs(conn, idle, now)
        ended = [EndedRun(run, RunStatus.CANCELLED, run.error, now) for run in idle if run.run_id not in undone]
        cascade_run_ends(conn, [*ended, *advance_runs(conn, list(undone.values()))], counters)
        left += [one.run for one in ended]
    return left


def _undone_runs(conn: sa.Connection, idle: Sequence[Run], now: int) -> dict[str, AdvancingRun]:
    """Those of the cancelled runs that may be rolled back."""
    found = [(run, load_workflow(conn, run.tenant, run.workflow_id, run.workflow_version)) for run in idle]
    return {
        run.run_id: AdvancingRun(run, workflow, now)
        for run, workflow in found
        if workflow is not None and workflow.may_be_undone
    }


def _stopped_row(run: Run) -> tuple[object, ...]:
    return run.status.value, run.queued, run.completed_at, run.cancel_requested_at, run.error, run.run_id
