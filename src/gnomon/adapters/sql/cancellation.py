"""Tasks of runs that are to end, which wait for what will not come: they end at once."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import sqlalchemy as sa
from msgspec.structs import replace

from gnomon.adapters.sql import bulk, schema
from gnomon.adapters.sql.after_commit import notify_after_commit
from gnomon.adapters.sql.completion import ConcurrencyCounters, EndedRun, set_tick_statuses
from gnomon.adapters.sql.graph import cascade_run_ends, lock_counters
from gnomon.adapters.sql.rows import RUN, column_list, run_of
from gnomon.core.ledger.plan import superseded_run
from gnomon.core.model import ENGINE, Result, Run, RunId, RunStatus, ScheduleUid, TickStatus
from gnomon.core.runs.launch import CancelOutcome
from gnomon.core.runs.states import TERMINAL, TaskState

_IN_HAND = bulk.statement(
    "SELECT task.task_id, task.run_id, task.fence, task.parent, attempt.worker FROM task"
    " JOIN attempt ON attempt.task_id = task.task_id AND attempt.number = task.fence"
    " WHERE task.run_id IN KEYS AND task.state IN ('DISPATCHED', 'RUNNING')"
)
_WAITED_FOR = bulk.statement(
    f"SELECT parent_task FROM run WHERE parent_task IN KEYS AND parent_task IS NOT NULL AND {schema.NOT_OVER}"  # noqa: S608 - our own
)
_END_TASK = bulk.update_statement(schema.task, ("state", "note", "open_items"), by=("task_id",))
_RECOUNT = bulk.update_statement(schema.task, ("open_items",), by=("task_id",))
_END = bulk.update_statement(schema.attempt, ("ended_at", "result"), by=("task_id", "number"))


def end_waiting_tasks(conn: sa.Connection, runs: Sequence[Run], now: int) -> Collection[str]:
    """What waits for nothing is over. The runs of which somebody still has something in hand come back.

    All that waited for its turn is over already.
    """
    if not runs:
        return ()
    names: list[str] = [run.run_id for run in runs]
    hands = {row[0]: row for row in bulk.fetch_rows(conn, _IN_HAND, names)}
    inner = [name for name, row in hands.items() if row[4] == ENGINE]
    waited_for = {name for (name,) in bulk.fetch_rows(conn, _WAITED_FOR, inner)} if inner else set()
    open_items: dict[str, int] = {}
    idle: list[str] = []
    # Items first: a step waits for those of them that are not idle.
    for name in sorted(hands, key=lambda one: hands[one][3] is None):
        if hands[name][4] == ENGINE and name not in waited_for and not open_items.get(name):
            idle.append(name)
        elif hands[name][3] is not None:
            open_items[hands[name][3]] = open_items.get(hands[name][3], 0) + 1
    why: Mapping[str, str | None] = {run.run_id: run.error for run in runs}
    ended = [(TaskState.CANCELLED.value, why[hands[name][1]], 0, name) for name in idle]
    bulk.execute_many(conn, _END_TASK, ended)
    bulk.execute_many(conn, _END, [(now, Result.CANCELLED.value, name, hands[name][2]) for name in idle])
    bulk.execute_many(conn, _RECOUNT, [(count, name) for name, count in open_items.items()])
    notify_after_commit(conn, lambda tally: tally.attempts_cancelled(len(idle)))
    return {row[1] for name, row in hands.items() if name not in set(idle)}


#: The states of a task that a worker has in hand.
IN_HAND = frozenset({TaskState.DISPATCHED.value, TaskState.RUNNING.value})
_DONE_OR_IN_HAND = IN_HAND | {state.value for state in TERMINAL}
_UNDER_WAY = bulk.statement(f"SELECT run_id FROM run WHERE schedule_uid IN KEYS AND {schema.NOT_OVER}")  # noqa: S608 - our own
_QUEUED = bulk.statement("SELECT run_id FROM run WHERE schedule_uid IN KEYS AND queued")
_OWNER = bulk.statement("SELECT schedule_uid FROM run WHERE run_id = ?")
_OF_RUNS = "SELECT task_id, run_id, state FROM task WHERE run_id IN KEYS"
# Items before their steps, as whoever ends items does.
_TASKS = bulk.Statement(
    bulk.statement(_OF_RUNS).sqlite,
    bulk.statement(f"{_OF_RUNS} ORDER BY parent NULLS LAST, task_id FOR UPDATE").postgresql,
)
_NOT_OVER = bulk.statement(f"SELECT run_id FROM run WHERE run_id IN KEYS AND {schema.NOT_OVER}")  # noqa: S608 - our own
_BELOW = bulk.statement(
    f"SELECT run_id, parent_task FROM run WHERE parent_task IN KEYS AND parent_task IS NOT NULL AND {schema.NOT_OVER}"  # noqa: S608 - our own
)
_RUNS = bulk.statement(f"SELECT {column_list(RUN)} FROM run WHERE run_id IN KEYS ORDER BY run_id FOR UPDATE")  # noqa: S608 - our own
_CANCEL = bulk.update_statement(schema.task, ("state", "note"), by=("task_id",))
_STOP = bulk.update_statement(
    schema.run, ("status", "queued", "completed_at", "cancel_requested_at", "error"), by=("run_id",)
)


def supersede(conn: sa.Connection, by: Mapping[ScheduleUid, RunId], now: int) -> None:
    """All runs of these schedules but the one that replaces them are over or asked to end."""
    if not by:
        return
    rooms = ConcurrencyCounters(conn, by)
    spared = set(by.values())
    in_the_way = [name for (name,) in bulk.fetch_rows(conn, _UNDER_WAY, sorted(by)) if name not in spared]
    _stop_runs(conn, in_the_way, lambda run: superseded_run(run, now=now), rooms, now)


def cancel_queued(conn: sa.Connection, uid: ScheduleUid, now: int) -> None:
    """The runs of a schedule that was deleted and that wait for others are over."""
    waiting = [name for (name,) in bulk.fetch_rows(conn, _QUEUED, [uid])]
    why = "its schedule was deleted"
    _stop_runs(conn, waiting, lambda run: superseded_run(run, now=now, why=why), ConcurrencyCounters(conn, [uid]), now)


def cancel(conn: sa.Connection, run_id: RunId, reason: str, now: int) -> CancelOutcome:
    """See Runs.cancel."""
    owner = bulk.fetch_rows(conn, _OWNER, run_id)
    if not owner:
        return CancelOutcome.UNKNOWN
    rooms = lock_counters(conn, [(run_id, owner[0][0])])
    if not _stop_runs(conn, [run_id], lambda run: _asked(run, reason, now), rooms, now):
        return CancelOutcome.OVER
    return CancelOutcome.ASKED if bulk.fetch_rows(conn, _NOT_OVER, [run_id]) else CancelOutcome.CANCELLED


def _asked(run: Run, reason: str, now: int) -> Run:
    asked_at = now if run.cancel_requested_at is None else run.cancel_requested_at
    return replace(run, cancel_requested_at=asked_at, error=run.error or reason)


def _stop_runs(
    conn: sa.Connection,
    run_ids: Sequence[str],
    stopped_from: Callable[[Run], Run],
    rooms: ConcurrencyCounters,
    now: int,
) -> bool:
    """Stop those that are not over, and every run that a step of them waits for. Whether there was any comes back."""
    if not run_ids:
        return False
    found = _lock_runs(conn, run_ids)
    stopped: dict[str, Run] = {}
    for run in found.runs:
        above = stopped.get(found.above.get(run.run_id, ""))
        if run.run_id not in found.above:
            stopped[run.run_id] = stopped_from(run)
        elif above is not None and not above.over:
            stopped[run.run_id] = _asked(run, above.error or "", now)
    cancelled = [
        (TaskState.CANCELLED.value, stopped[run_id].error, task_id)
        for task_id, run_id, state in found.tasks
        if run_id in stopped and state not in _DONE_OR_IN_HAND
    ]
    bulk.execute_many(conn, _CANCEL, cancelled)
    bulk.execute_many(conn, _STOP, [_stopped_row(run) for run in stopped.values()])
    # Those that never had their turn are out of the queue before any other makes room for the first in it.
    over = [run for run in stopped.values() if run.over]
    set_tick_statuses(conn, ((run, TickStatus.SKIPPED) for run in over))
    notify_after_commit(conn, lambda tally: tally.ended([(run, run.status, run.error, now) for run in over]))
    left = _end_idle_runs(conn, found, stopped, rooms, now)
    notify_after_commit(conn, lambda tally: tally.graph_runs_ended([*over, *left]))
    return bool(stopped)


class _LockedRuns(NamedTuple):
    """Runs with those that their steps wait for, all of them nobody else's to change."""

    #: Those that are not over, each after the one above it.
    runs: Sequence[Run]
    #: By the name of a run that a step waits for, the run of that step.
    above: Mapping[str, str]
    #: Name, run and state of each.
    tasks: Sequence[Sequence[str]]


def _lock_runs(conn: sa.Connection, run_ids: Sequence[str]) -> _LockedRuns:
    tasks: list[Sequence[str]] = []
    above: dict[str, str] = {}
    runs: list[Run] = []
    level = list(run_ids)
    while level:
        there = bulk.fetch_rows(conn, _TASKS, level)
        runs += [run for run in map(run_of, bulk.fetch_rows(conn, _RUNS, level)) if not run.over]
        if conn.dialect.name != "sqlite":
            # Whoever held one of them may have let others begin; from now on nobody can.
            there = bulk.fetch_rows(conn, _TASKS, level)
        tasks += there
        in_hand = {task_id: run_id for task_id, run_id, state in there if state in IN_HAND}
        below = bulk.fetch_rows(conn, _BELOW, list(in_hand)) if in_hand else ()
        above |= {run_id: in_hand[task_id] for run_id, task_id in below}
        level = [run_id for run_id, _ in below]
    return _LockedRuns(runs, above, tasks)


def _end_idle_runs(
    conn: sa.Connection, found: _LockedRuns, stopped: Mapping[str, Run], rooms: ConcurrencyCounters, now: int
) -> list[Run]:
    """Those of which nobody has anything in hand are over, the lowest first: it may be all that is left above."""
    left: list[Run] = []
    busy = {run_id for _, run_id, state in found.tasks if state in IN_HAND}
    asked = [run for run in stopped.values() if not run.over]
    for depth in sorted({run.depth for run in asked}, reverse=True):
        here = {run.run_id: run for run in asked if run.depth == depth}
        if found.above:
            here = {run_id: here[run_id] for (run_id,) in bulk.fetch_rows(conn, _NOT_OVER, list(here))}
        held = end_waiting_tasks(conn, [run for name, run in here.items() if name in busy], now)
        ended = [run for name, run in here.items() if name not in held]
        cascade_run_ends(conn, [EndedRun(run, RunStatus.CANCELLED, run.error, now) for run in ended], rooms)
        left += ended
    return left


def _stopped_row(run: Run) -> tuple[object, ...]:
    return run.status.value, run.queued, run.completed_at, run.cancel_requested_at, run.error, run.run_id
