"""Runs that are to end before their time: what waits of them ends at once, what runs is asked to."""

from collections.abc import Callable, Mapping, Sequence

import sqlalchemy as sa
from msgspec.structs import replace

from gnomon.adapters.sql import bulk, tables
from gnomon.adapters.sql.endings import end_runs, show_ticks
from gnomon.adapters.sql.rooms import Ended, Rooms
from gnomon.adapters.sql.run_rows import RUN, named, run_of
from gnomon.core.launching import Cancelling
from gnomon.core.model import Run, RunId, RunStatus, ScheduleUid, TickStatus
from gnomon.core.plan import superseded
from gnomon.core.states import TERMINAL, TaskState

#: The states of a task that a worker has in hand.
IN_HAND = frozenset({TaskState.DISPATCHED.value, TaskState.RUNNING.value})
_DONE_OR_IN_HAND = IN_HAND | {state.value for state in TERMINAL}
_UNDER_WAY = bulk.statement(f"SELECT run_id FROM run WHERE schedule_uid IN KEYS AND {tables.NOT_OVER}")  # noqa: S608 - our own
_QUEUED = bulk.statement("SELECT run_id FROM run WHERE schedule_uid IN KEYS AND queued")
_OWNER = bulk.statement("SELECT schedule_uid FROM run WHERE run_id = ?")
_TASKS = bulk.statement("SELECT task_id, run_id, state FROM task WHERE run_id IN KEYS ORDER BY run_id, step FOR UPDATE")
_RUNS = bulk.statement(f"SELECT {named(RUN)} FROM run WHERE run_id IN KEYS ORDER BY run_id FOR UPDATE")  # noqa: S608 - our own
_CANCEL = bulk.changing(tables.task, ("state", "note"), by=("task_id",))
_STOP = bulk.changing(tables.run, ("status", "queued", "completed_at", "cancel_requested_at", "error"), by=("run_id",))


def supersede(conn: sa.Connection, by: Mapping[ScheduleUid, RunId], now: int) -> None:
    """All runs of these schedules but the one that replaces them are over or asked to end."""
    if not by:
        return
    rooms = Rooms(conn, by)
    spared = set(by.values())
    in_the_way = [name for (name,) in bulk.rows(conn, _UNDER_WAY, sorted(by)) if name not in spared]
    _halt(conn, in_the_way, lambda run: superseded(run, now=now), rooms, now)


def cancel_queued(conn: sa.Connection, uid: ScheduleUid, now: int) -> None:
    """The runs of a schedule that was deleted and that wait for others are over."""
    waiting = [name for (name,) in bulk.rows(conn, _QUEUED, [uid])]
    why = "its schedule was deleted"
    _halt(conn, waiting, lambda run: superseded(run, now=now, why=why), Rooms(conn, [uid]), now)


def cancel(conn: sa.Connection, run_id: RunId, reason: str, now: int) -> Cancelling:
    """See Runs.cancel."""
    owner = bulk.rows(conn, _OWNER, run_id)
    if not owner:
        return Cancelling.UNKNOWN

    def asked(run: Run) -> Run:
        asked_at = now if run.cancel_requested_at is None else run.cancel_requested_at
        return replace(run, cancel_requested_at=asked_at, error=run.error or reason)

    in_hand = _halt(conn, [run_id], asked, Rooms(conn, [owner[0][0]]), now)
    if run_id not in in_hand:
        return Cancelling.OVER
    return Cancelling.ASKED if in_hand[run_id] else Cancelling.CANCELLED


def _halt(
    conn: sa.Connection, run_ids: Sequence[str], stopped_from: Callable[[Run], Run], rooms: Rooms, now: int
) -> Mapping[RunId, bool]:
    """Stop those that are not over. Whether a worker still has something of each in hand comes back."""
    if not run_ids:
        return {}
    tasks = bulk.rows(conn, _TASKS, list(run_ids))
    runs = [run_of(row) for row in bulk.rows(conn, _RUNS, list(run_ids))]
    stopped = {run.run_id: stopped_from(run) for run in runs if not run.over}
    busy = {run_id for _, run_id, state in tasks if state in IN_HAND}
    cancelled = [
        (TaskState.CANCELLED.value, stopped[run_id].error, task_id)
        for task_id, run_id, state in tasks
        if run_id in stopped and state not in _DONE_OR_IN_HAND
    ]
    bulk.many(conn, _CANCEL, cancelled)
    bulk.many(conn, _STOP, [_stopped_row(run) for run in stopped.values()])
    # Those that never had their turn are out of the queue before any other makes room for the first in it.
    show_ticks(conn, ((run, TickStatus.SKIPPED) for run in stopped.values() if run.over))
    ending = [run for run in stopped.values() if not run.over and run.run_id not in busy]
    end_runs(conn, [Ended(run, RunStatus.CANCELLED, run.error, now) for run in ending], rooms)
    return {run_id: run_id in busy for run_id in stopped}


def _stopped_row(run: Run) -> tuple[object, ...]:
    return run.status.value, run.queued, run.completed_at, run.cancel_requested_at, run.error, run.run_id
