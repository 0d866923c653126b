"""Ending runs, and letting those go on that waited for it."""

from collections.abc import Sequence

import sqlalchemy as sa
from msgspec.structs import replace

from gnomon.adapters.sql import tables
from gnomon.adapters.sql.rows import SCHEDULE, run_of, schedule_of
from gnomon.core.model import Run, RunId, RunStatus, Schedule, ScheduleUid
from gnomon.core.plan import room_made, superseded
from gnomon.core.states import TaskState, WaitReason

_run, _task, _schedule = tables.run.c, tables.task.c, tables.schedule.c
_NOT_OVER = sa.text(tables.NOT_OVER)
_OWNER = sa.select(_run.schedule_uid).where(_run.run_id == sa.bindparam("run"))
_RUN = sa.select(tables.run).where(_run.run_id == sa.bindparam("run"), _NOT_OVER).with_for_update()
_LOCKED = (
    sa.select(*SCHEDULE)
    .where(_schedule.uid == sa.bindparam("schedule"), _schedule.deleted_at.is_(None))
    .with_for_update()
)
_UNDER_WAY = (
    sa.select(tables.run)
    .where(_run.schedule_uid.in_(sa.bindparam("schedules", expanding=True)), _NOT_OVER)
    .order_by(_run.schedule_uid, _run.planned_at)
)
_SET_RUN = (
    sa.update(tables.run)
    .where(_run.run_id == sa.bindparam("run"))
    .values({name: sa.bindparam(f"new_{name}") for name in ("status", "queued", "completed_at", "cancel_requested_at")})
)
_SET_COUNTS = (
    sa.update(tables.schedule)
    .where(_schedule.uid == sa.bindparam("schedule"))
    .values(active_runs=sa.bindparam("active"), queued_runs=sa.bindparam("queued"))
)


def finish(conn: sa.Connection, run_id: RunId, status: RunStatus, now: int) -> bool:
    """See Runs.finish."""
    owner = conn.scalar(_OWNER, {"run": run_id})
    # The schedule first, as whoever decides its ticks does: after that nobody adds to the queue or takes from it.
    schedule = None if owner is None else _locked(conn, owner)
    row = conn.execute(_RUN, {"run": run_id}).one_or_none()
    if row is None:
        return False
    ended = run_of(row)
    _set_runs(conn, [replace(ended, status=status, queued=False, completed_at=now)])
    if schedule is not None:
        _make_room(conn, schedule, ended)
    return True


def _locked(conn: sa.Connection, uid: ScheduleUid) -> Schedule | None:
    row = conn.execute(_LOCKED, {"schedule": uid}).one_or_none()
    return None if row is None else schedule_of(row)


def _make_room(conn: sa.Connection, schedule: Schedule, ended: Run) -> None:
    # Most schedules have nobody waiting, and many runs under way that need not be read for that.
    queued = [run for run in _under_way(conn, [schedule.uid]) if run.queued] if schedule.queued_runs else []
    after, released = room_made(schedule, ended, queued)
    counts = {"schedule": schedule.uid, "active": after.active_runs, "queued": after.queued_runs}
    conn.execute(_SET_COUNTS, counts)
    if released is not None:
        _set_runs(conn, [replace(released, queued=False)])
        _set_tasks(conn, [released.run_id], wait_reason=WaitReason.READY.value)


def supersede(conn: sa.Connection, uids: Sequence[ScheduleUid], now: int) -> None:
    """Every run of these schedules that is not over is out of the way of the one that replaces it, or asked to be."""
    if not uids:
        return
    _stop(conn, _under_way(conn, uids), now)


def cancel_queued(conn: sa.Connection, uid: ScheduleUid, now: int) -> None:
    """The runs of the schedule that wait for others are over."""
    _stop(conn, [run for run in _under_way(conn, [uid]) if run.queued], now)


def _stop(conn: sa.Connection, runs: Sequence[Run], now: int) -> None:
    stopped = [superseded(run, now=now) for run in runs]
    _set_runs(conn, stopped)
    _set_tasks(conn, [run.run_id for run in stopped if run.over], state=TaskState.CANCELLED.value)


def _under_way(conn: sa.Connection, uids: Sequence[ScheduleUid]) -> list[Run]:
    return [run_of(row) for row in conn.execute(_UNDER_WAY, {"schedules": list(uids)})]


def _set_runs(conn: sa.Connection, runs: Sequence[Run]) -> None:
    if runs:
        conn.execute(_SET_RUN, [_changed(run) for run in runs])


def _changed(run: Run) -> dict[str, object]:
    return {
        "run": run.run_id,
        "new_status": run.status.value,
        "new_queued": run.queued,
        "new_completed_at": run.completed_at,
        "new_cancel_requested_at": run.cancel_requested_at,
    }


def _set_tasks(conn: sa.Connection, runs: Sequence[RunId], **changes: str) -> None:
    if runs:
        conn.execute(sa.update(tables.task).where(_task.run_id.in_(runs)).values(changes))
