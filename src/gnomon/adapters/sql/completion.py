"""How attempts ended, written down with what they gave back and said."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import sqlalchemy as sa

from gnomon.adapters.sql import bulk, dead_letters, schema
from gnomon.adapters.sql.after_commit import hint_after_commit, notify_after_commit
from gnomon.adapters.sql.rows import RUN, column_list, run_of
from gnomon.adapters.sql.runs import log_lengths
from gnomon.core.model import Run, RunStatus, ScheduleUid, Source, TickStatus
from gnomon.core.runs.launch import advance_queue
from gnomon.core.runs.outcomes import TaskCompletion, tick_status
from gnomon.core.runs.states import WaitReason
from gnomon.ports.coordination import HintTopic

_ATTEMPTED = ("state", "wait_reason", "available_at", "attempts", "losses", "routings", "note")
_END_TASK = bulk.update_statement(schema.task, _ATTEMPTED, by=("task_id",))
_END_ATTEMPT = bulk.update_statement(schema.attempt, ("ended_at", "result", "error"), by=("task_id", "number"))
#: What a task is given or gives back; the newest counts.
INSERT_PAYLOAD = bulk.insert_statement(
    schema.payload, ("owner_id", "kind", "body"), "ON CONFLICT (owner_id, kind) DO UPDATE SET body = excluded.body"
)


def write_attempt_ends(conn: sa.Connection, endings: Sequence[TaskCompletion]) -> None:
    """The attempts are over, and their tasks are where that leads them."""
    bulk.execute_many(conn, _END_TASK, [_ended_row(one) for one in endings])
    ended = [(one.ended_at, one.result.value, one.error, one.task_id, one.fence) for one in endings]
    bulk.execute_many(conn, _END_ATTEMPT, ended)
    bulk.execute_many(
        conn, INSERT_PAYLOAD, [(one.task_id, "output", one.output) for one in endings if one.output is not None]
    )
    _keep_logs(conn, [one for one in endings if one.logs])
    if not all(one.over for one in endings):
        hint_after_commit(conn, HintTopic.READY)
    notify_after_commit(conn, lambda tally: tally.tried(endings))


def _ended_row(one: TaskCompletion) -> tuple[object, ...]:
    return (
        one.state.value,
        one.wait_reason.value,
        one.available_at,
        one.attempts,
        one.losses,
        one.routings,
        one.error,
        one.task_id,
    )


def _keep_logs(conn: sa.Connection, endings: Sequence[TaskCompletion]) -> None:
    if not endings:
        return
    names = [one.task_id for one in endings]
    said = log_lengths(conn, names)
    lines = [
        (one.task_id, number, line.at, line.level, line.text)
        for one in endings
        for number, line in enumerate(one.logs, said.get(one.task_id, 0) + 1)
    ]
    bulk.insert_rows(conn, schema.task_log, lines)


#: Only these columns: also a schedule that cannot be read here has to count.
_COUNTS = bulk.statement(
    "SELECT uid, active_runs, queued_runs, delete_after_run FROM schedule"
    " WHERE uid IN KEYS AND deleted_at IS NULL ORDER BY uid FOR UPDATE"
)
_SET_COUNTS = bulk.update_statement(schema.schedule, ("active_runs", "queued_runs"), by=("uid",))
_IN_LINE = f"""
SELECT {column_list(RUN)} FROM run WHERE run.schedule_uid = {{uid}} AND queued
ORDER BY planned_at, run_id LIMIT {{most}}
"""  # noqa: S608 - our own names
_NEXT = bulk.Statement(
    _IN_LINE.format(uid="?", most="?"),
    "SELECT r.* FROM unnest($1::text[], $2::integer[]) AS v (uid, most)"  # noqa: S608 - our own names
    f" CROSS JOIN LATERAL ({_IN_LINE.format(uid='v.uid', most='v.most')}) AS r",
)
_RELEASE = bulk.update_statement(schema.run, ("queued",), by=("run_id",))
_WAKE = bulk.update_statement(schema.task, ("wait_reason",), by=("run_id",))


class EndedRun(NamedTuple):
    """A run, as it was before its end, and how and when it ended."""

    run: Run
    status: RunStatus
    error: str | None
    at: int


class RunCounts:
    """The runs of one schedule, counted."""

    __slots__ = ("active", "delete_after_run", "queued")

    def __init__(self, active: int, queued: int, *, delete_after_run: bool) -> None:
        self.active, self.queued, self.delete_after_run = active, queued, delete_after_run


class ConcurrencyCounters:
    """The counts of schedules, nobody else's to change until the end of the transaction.

    Whoever changes runs or tasks for good begins with this: one order of locks for all, so that none waits for another
    in a circle.
    """

    def __init__(self, conn: sa.Connection, uids: Iterable[ScheduleUid | None]) -> None:
        self._conn = conn
        self._counts: dict[str, RunCounts | None] = {}
        self.lock(uids)

    def lock(self, uids: Iterable[ScheduleUid | None]) -> None:
        """Those schedules are held as well."""
        new = sorted({uid for uid in uids if uid is not None and uid not in self._counts})
        if not new:
            return
        # The deleted ones have nothing to count, and need not be looked for again.
        self._counts |= dict.fromkeys(new)
        for uid, active, queued, once in bulk.fetch_rows(self._conn, _COUNTS, new):
            self._counts[uid] = RunCounts(active, queued, delete_after_run=bool(once))

    def reload(self, uid: ScheduleUid) -> None:
        """What others in this transaction have made of the counts of the schedule is known."""
        self._counts.pop(uid, None)
        self.lock([uid])

    def counts(self, uid: ScheduleUid | None) -> RunCounts | None:
        """The counts of the schedule; None if it was deleted, or never was."""
        return None if uid is None else self._counts[uid]

    def release_slots(self, ended: Sequence[EndedRun]) -> None:
        """The runs are counted no longer; the next ones whose turn it then is go on."""
        self.lock(one.run.schedule_uid for one in ended)
        by_schedule: dict[str, list[EndedRun]] = {}
        for one in ended:
            if one.run.schedule_uid is not None and self._counts[one.run.schedule_uid] is not None:
                by_schedule.setdefault(one.run.schedule_uid, []).append(one)
        in_line = self._queued_runs(by_schedule)
        freed: list[tuple[Run, int]] = []
        for uid, theirs in by_schedule.items():
            counts = self._counts[uid]
            assert counts is not None  # noqa: S101 - asked above
            freed += _promote_queued(counts, theirs, in_line.get(uid))
        self._release(freed)
        self.write(by_schedule)

    def _queued_runs(self, ended: dict[str, list[EndedRun]]) -> dict[str, list[Run]]:
        """The first of those that wait for their turn: as many as may have it, and one more."""
        crowded = [(uid, len(theirs) + 1) for uid, theirs in ended.items() if (c := self._counts[uid]) and c.queued]
        if not crowded:
            return {}
        if self._conn.dialect.name == "sqlite":
            rows = [row for uid, most in crowded for row in bulk.fetch_rows(self._conn, _NEXT, uid, most)]
        else:
            uids, most = zip(*crowded, strict=True)
            rows = list(bulk.fetch_rows(self._conn, _NEXT, list(uids), list(most)))
        found: dict[str, list[Run]] = {uid: [] for uid, _ in crowded}
        for run in map(run_of, rows):
            found[str(run.schedule_uid)].append(run)
        return {uid: sorted(runs, key=lambda run: (run.planned_at, run.run_id)) for uid, runs in found.items()}

    def _release(self, freed: Sequence[tuple[Run, int]]) -> None:
        bulk.execute_many(self._conn, _RELEASE, [(False, run.run_id) for run, _ in freed])
        if freed:
            hint_after_commit(self._conn, HintTopic.READY)
        wait = [WaitReason.DELAY if run.fire_at > at else WaitReason.READY for run, at in freed]
        bulk.execute_many(
            self._conn, _WAKE, [(why.value, run.run_id) for why, (run, _) in zip(wait, freed, strict=True)]
        )

    def recount_runs(self, uid: ScheduleUid, *, active: int, queued: int, now: int) -> None:
        """So many are under way and waiting, whatever was counted; if none is, the first that waits goes on."""
        counts = self._counts[uid]
        assert counts is not None  # noqa: S101 - only those that are there are counted
        counts.active, counts.queued = active, queued
        room = advance_queue(active=active, waiting=tuple(self._queued_runs({uid: []}).get(uid, ())))
        if room.released is not None:
            counts.active, counts.queued = room.active, queued - 1
            self._release([(room.released, now)])
        self.write([uid])

    def write(self, uids: Iterable[str]) -> None:
        """What is counted of these schedules stands in the database."""
        counted = [(uid, self._counts[uid]) for uid in sorted(uids)]
        bulk.execute_many(self._conn, _SET_COUNTS, [(c.active, c.queued, uid) for uid, c in counted if c is not None])


def _promote_queued(counts: RunCounts, ended: Sequence[EndedRun], in_line: list[Run] | None) -> list[tuple[Run, int]]:
    """Those whose turn it is after the end of these, and since when."""
    if in_line is None:
        counts.active -= len(ended)
        return []
    seen_all = len(in_line) <= len(ended)
    freed = []
    for one in ended:
        counts.active -= not one.run.queued
        counts.queued -= one.run.queued
        room = advance_queue(active=counts.active, waiting=tuple(in_line))
        if room.released is not None:
            counts.active, counts.queued = room.active, counts.queued - 1
            freed.append((in_line.pop(0), one.at))
    if seen_all:
        # Whatever was counted before, this is how many there are.
        counts.queued = len(in_line)
    return freed


_START = bulk.statement("UPDATE run SET status = 'running', started_at = ? WHERE run_id IN KEYS AND started_at IS NULL")
_END_RUN = bulk.update_statement(schema.run, ("status", "queued", "completed_at", "error"), by=("run_id",))
_SHOW = bulk.update_statement(schema.tick, ("status",), by=("uid", "planned_at", "run_id"))


def start_runs(conn: sa.Connection, runs: Sequence[Run], now: int) -> None:
    """Those of the runs that had not begun have."""
    names: list[str] = sorted({run.run_id for run in runs if run.started_at is None})
    if names:
        bulk.execute_statement(conn, _START, now, names)
        record_started(conn, runs, now)


def record_started(conn: sa.Connection, runs: Sequence[Run], now: int) -> None:
    """Ticks and whoever counts show that those of the runs have begun that had not."""
    fresh = list({run.run_id: run for run in runs if run.started_at is None}.values())
    if fresh:
        set_tick_statuses(conn, ((run, TickStatus.STARTED) for run in fresh))
        notify_after_commit(conn, lambda tally: tally.started(fresh, now))


def end_runs(conn: sa.Connection, ended: Sequence[EndedRun], rooms: ConcurrencyCounters) -> None:
    """The runs are over, and whoever waited for that goes on."""
    if not ended:
        return
    bulk.execute_many(
        conn,
        _END_RUN,
        [(status.value, False, at, run_error(run, status, error), run.run_id) for run, status, error, at in ended],
    )
    set_tick_statuses(
        conn, ((run, tick_status(status, started=run.started_at is not None)) for run, status, _, _ in ended)
    )
    for run, status, _, at in ended:
        if run.replay_of is not None and status is RunStatus.COMPLETED:
            dead_letters.resolve(conn, run.tenant, [run.replay_of], f"replay {run.run_id}", at)
    _release_slots(conn, ended, rooms)
    notify_after_commit(conn, lambda tally: tally.ended(ended))


def run_error(run: Run, status: RunStatus, error: str | None) -> str | None:
    """What a run shows as the reason of its end."""
    return None if status is RunStatus.COMPLETED else run.error or error


def _release_slots(conn: sa.Connection, ended: Sequence[EndedRun], rooms: ConcurrencyCounters) -> None:
    """Those who waited go on. A one-shot whose run is over is gone if that went well, and paused if not."""
    rooms.lock(one.run.schedule_uid for one in ended)
    done = 0
    for number, (run, status, _, at) in enumerate(ended, 1):
        counts = rooms.counts(run.schedule_uid)
        if counts is None or not counts.delete_after_run or run.source is not Source.CRON or run.schedule_uid is None:
            continue
        rooms.release_slots(ended[done:number])
        done = number
        # Where schedules are changed runs are superseded, and so may end.
        from gnomon.adapters.sql import schedules

        schedules.retire_one_shot(conn, run.schedule_uid, status, at)
        rooms.reload(run.schedule_uid)
    rooms.release_slots(ended[done:])


def set_tick_statuses(conn: sa.Connection, shown: Iterable[tuple[Run, TickStatus]]) -> None:
    """The ticks that made these runs show it."""
    rows = [
        (status.value, run.schedule_uid, run.planned_at, run.run_id)
        for run, status in shown
        if run.source is Source.CRON
    ]
    bulk.execute_many(conn, _SHOW, rows)
