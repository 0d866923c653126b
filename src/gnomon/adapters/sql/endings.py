"""The beginning and the end of runs, and everything that follows from it in the same transaction."""

from collections.abc import Iterable, Sequence

import sqlalchemy as sa

from gnomon.adapters.sql import bulk, dead_letters, tables
from gnomon.adapters.sql.rooms import Ended, Rooms
from gnomon.adapters.sql.tally import note
from gnomon.core.model import Run, RunStatus, Source, TickStatus
from gnomon.core.runs.outcomes import tick_status

_START = bulk.statement("UPDATE run SET status = 'running', started_at = ? WHERE run_id IN KEYS AND started_at IS NULL")
_END = bulk.changing(tables.run, ("status", "queued", "completed_at", "error"), by=("run_id",))
_SHOW = bulk.changing(tables.tick, ("status",), by=("uid", "planned_at", "run_id"))


def start_runs(conn: sa.Connection, runs: Sequence[Run], now: int) -> None:
    """Those of the runs that had not begun have."""
    names: list[str] = sorted({run.run_id for run in runs if run.started_at is None})
    if names:
        bulk.run(conn, _START, now, names)
        show_begun(conn, runs, now)


def show_begun(conn: sa.Connection, runs: Sequence[Run], now: int) -> None:
    """Ticks and whoever counts show that those of the runs have begun that had not."""
    fresh = list({run.run_id: run for run in runs if run.started_at is None}.values())
    if fresh:
        show_ticks(conn, ((run, TickStatus.STARTED) for run in fresh))
        note(conn, lambda tally: tally.started(fresh, now))


def end_runs(conn: sa.Connection, ended: Sequence[Ended], rooms: Rooms) -> None:
    """The runs are over, and whoever waited for that goes on."""
    if not ended:
        return
    bulk.many(
        conn,
        _END,
        [(status.value, False, at, why(run, status, error), run.run_id) for run, status, error, at in ended],
    )
    show_ticks(conn, ((run, tick_status(status, started=run.started_at is not None)) for run, status, _, _ in ended))
    for run, status, _, at in ended:
        if run.replay_of is not None and status is RunStatus.COMPLETED:
            dead_letters.resolve(conn, run.tenant, [run.replay_of], f"replay {run.run_id}", at)
    _make_room(conn, ended, rooms)
    note(conn, lambda tally: tally.ended(ended))


def why(run: Run, status: RunStatus, error: str | None) -> str | None:
    """What a run shows as the reason of its end."""
    return None if status is RunStatus.COMPLETED else run.error or error


def _make_room(conn: sa.Connection, ended: Sequence[Ended], rooms: Rooms) -> None:
    """Those who waited go on. A one-shot whose run is over is gone if that went well, and paused if not."""
    rooms.hold(one.run.schedule_uid for one in ended)
    done = 0
    for number, (run, status, _, at) in enumerate(ended, 1):
        counts = rooms.counts(run.schedule_uid)
        if counts is None or not counts.delete_after_run or run.source is not Source.CRON or run.schedule_uid is None:
            continue
        rooms.make(ended[done:number])
        done = number
        # Where schedules are changed runs are superseded, and so may end.
        from gnomon.adapters.sql import book

        book.retire(conn, run.schedule_uid, status, at)
        rooms.read_again(run.schedule_uid)
    rooms.make(ended[done:])


def show_ticks(conn: sa.Connection, shown: Iterable[tuple[Run, TickStatus]]) -> None:
    """The ticks that made these runs show it."""
    rows = [
        (status.value, run.schedule_uid, run.planned_at, run.run_id)
        for run, status in shown
        if run.source is Source.CRON
    ]
    bulk.many(conn, _SHOW, rows)
