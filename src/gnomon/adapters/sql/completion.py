"""Ends of attempts and runs: their rows, outputs and logs, and the concurrency counters of their schedules."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import sqlalchemy as sa

from gnomon.adapters.sql import bulk, dead_letters, output_rulings, schema
from gnomon.adapters.sql.actions import give_back_agent_actions
from gnomon.adapters.sql.after_commit import hint_after_commit, notify_activity, notify_runs
from gnomon.adapters.sql.agent_sessions import append_turns
from gnomon.adapters.sql.agent_usage import write_usage
from gnomon.adapters.sql.attempt_progress import forget_kept_logs, with_kept_progress
from gnomon.adapters.sql.one_shots import EndedOneShot, retire_at_end
from gnomon.adapters.sql.payloads import PayloadRow, sealed_rows
from gnomon.adapters.sql.rows import RUN, column_list, run_of
from gnomon.adapters.sql.runs import log_lengths
from gnomon.adapters.sql.transitions import StateChange, state_update, write_changes
from gnomon.core.announcements.model import AnnounceRule
from gnomon.core.model import Run, RunSource, RunStatus, ScheduleUid, TickStatus
from gnomon.core.runs.launch import advance_queue
from gnomon.core.runs.outcomes import TaskCompletion, run_error, tick_status
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.ports.coordination import HintTopic

_END_TASK = state_update("wait_reason", "available_at", "attempts", "losses", "routings", "note")
_END_ATTEMPT = bulk.update_statement(schema.attempt, ("ended_at", "result", "error"), by=("task_id", "number"))
#: The input or the output of a task; the newest replaces the one before.
_INSERT_PAYLOAD = bulk.insert_statement(
    schema.payload, ("owner_id", "kind", "body"), "ON CONFLICT (owner_id, kind) DO UPDATE SET body = excluded.body"
)


def insert_payloads(conn: sa.Connection, rows: Sequence[PayloadRow]) -> None:
    """Write inputs or outputs; each replaces the one before it."""
    bulk.execute_many(conn, _INSERT_PAYLOAD, sealed_rows(conn, rows))


class AttemptEnd(NamedTuple):
    """The end of an attempt, and the state that its task was in until then."""

    before: TaskState
    completion: TaskCompletion


def write_attempt_ends(conn: sa.Connection, ends: Sequence[AttemptEnd]) -> None:
    """End the attempts and move their tasks to the states that follow, with outputs and logs."""
    reported = [one.completion for one in ends]
    endings = with_kept_progress(conn, reported)
    write_changes(conn, _END_TASK, [_task_change(*one) for one in ends])
    ended = [(one.ended_at, one.result._value_, one.error, one.task_id, one.fence) for one in endings]
    bulk.execute_many(conn, _END_ATTEMPT, ended)
    insert_payloads(conn, [(one.task_id, "output", one.output) for one in endings if one.output is not None])
    insert_payloads(
        conn, [(one.task_id, "compensation", one.compensation) for one in endings if one.compensation is not None]
    )
    output_rulings.write(conn, endings)
    _keep_logs(conn, [one for one in endings if one.logs])
    forget_kept_logs(conn, endings)
    write_usage(conn, endings)
    # The last action of a lost worker may not have been kept.
    give_back_agent_actions(conn, reported)
    append_turns(conn, endings)
    if not all(one.over for one in endings):
        hint_after_commit(conn, HintTopic.READY)
    notify_activity(conn, lambda observer: observer.tried(endings))


def _task_change(before: TaskState, one: TaskCompletion) -> StateChange:
    values = one.wait_reason._value_, one.available_at, one.attempts, one.losses, one.routings, one.error
    return StateChange(one.task_id, before, one.state, values)


def _keep_logs(conn: sa.Connection, endings: Sequence[TaskCompletion]) -> None:
    if not endings:
        return
    names = [one.task_id for one in endings]
    lengths = log_lengths(conn, names)
    lines = [
        (one.task_id, number, line.at, line.level, line.text)
        for one in endings
        for number, line in enumerate(one.logs, lengths.get(one.task_id, 0) + 1)
    ]
    bulk.insert_rows(conn, schema.task_log, lines)


#: Only these columns, so that the runs of an unreadable schedule are counted as well.
_COUNTS = bulk.statement(
    "SELECT uid, active_runs, queued_runs, delete_after_run FROM schedule"
    " WHERE uid IN KEYS AND deleted_at IS NULL ORDER BY uid FOR UPDATE"
)
_SET_COUNTS = bulk.update_statement(schema.schedule, ("active_runs", "queued_runs"), by=("uid",))
_QUEUED = f"""
SELECT {column_list(RUN)} FROM run WHERE run.schedule_uid = {{uid}} AND queued
ORDER BY planned_at, run_id LIMIT {{limit}}
"""  # noqa: S608 - our own names
_NEXT = bulk.Statement(
    _QUEUED.format(uid="?", limit="?"),
    "SELECT r.* FROM unnest($1::text[], $2::integer[]) AS v (uid, most)"  # noqa: S608 - our own names
    f" CROSS JOIN LATERAL ({_QUEUED.format(uid='v.uid', limit='v.most')}) AS r",
)
_RELEASE = bulk.update_statement(schema.run, ("queued",), by=("run_id",))
_WAKE = bulk.update_statement(schema.task, ("wait_reason",), by=("run_id",))


class EndedRun(NamedTuple):
    """A run as it was before its end, with the status, the error and the time of the end."""

    run: Run
    status: RunStatus
    error: str | None
    at: int
    #: The rules by which it is announced.
    announce: Sequence[AnnounceRule] = ()


class RunCounts:
    """The numbers of active and queued runs of one schedule."""

    __slots__ = ("active", "delete_after_run", "queued")

    def __init__(self, active: int, queued: int, *, delete_after_run: bool) -> None:
        self.active, self.queued, self.delete_after_run = active, queued, delete_after_run

    def add_run(self, *, queued: bool, replaces: bool) -> None:
        """Count a new run, queued or active. With `replaces` the queued runs are cancelled."""
        self.active += not queued
        self.queued = (0 if replaces else self.queued) + queued


class ConcurrencyCounters:
    """The run counts of schedules, locked until the end of the transaction.

    Every transaction that ends tasks or runs locks these first. All of them lock in the same order, so that they cannot
    deadlock.
    """

    def __init__(self, conn: sa.Connection, uids: Iterable[ScheduleUid | None]) -> None:
        self._conn = conn
        self._counts: dict[str, RunCounts | None] = {}
        self.lock(uids)

    def lock(self, uids: Iterable[ScheduleUid | None]) -> None:
        """Lock these schedules too."""
        new = sorted({uid for uid in uids if uid is not None and uid not in self._counts})
        if not new:
            return
        # Deleted schedules have no counts, and are not looked up again.
        self._counts |= dict.fromkeys(new)
        for uid, active, queued, once in bulk.fetch_rows(self._conn, _COUNTS, new):
            self._counts[uid] = RunCounts(active, queued, delete_after_run=bool(once))

    def reload(self, uid: ScheduleUid) -> None:
        """Read the counts of the schedule again, after another part of this transaction changed them."""
        self._counts.pop(uid, None)
        self.lock([uid])

    def counts(self, uid: ScheduleUid | None) -> RunCounts | None:
        """The counts of the schedule; None if it was deleted or never existed."""
        return None if uid is None else self._counts[uid]

    def release_slots(self, ended: Sequence[EndedRun]) -> None:
        """Subtract the ended runs from the counts, and release the queued runs that may start instead."""
        self.lock(one.run.schedule_uid for one in ended)
        by_schedule: dict[str, list[EndedRun]] = {}
        for one in ended:
            if one.run.schedule_uid is not None and self._counts[one.run.schedule_uid] is not None:
                by_schedule.setdefault(one.run.schedule_uid, []).append(one)
        queues = self._queued_runs(by_schedule)
        released: list[tuple[Run, int]] = []
        for uid, theirs in by_schedule.items():
            counts = self._counts[uid]
            assert counts is not None  # noqa: S101 - checked above
            released += _promote_queued(counts, theirs, queues.get(uid))
        self._release(released)
        self.write(by_schedule)

    def _queued_runs(self, ended: dict[str, list[EndedRun]]) -> dict[str, list[Run]]:
        """The first queued runs of each schedule: as many as may start, and one more."""
        limits = [(uid, len(theirs) + 1) for uid, theirs in ended.items() if (c := self._counts[uid]) and c.queued]
        if not limits:
            return {}
        if self._conn.dialect.name == "sqlite":
            rows = [row for uid, limit in limits for row in bulk.fetch_rows(self._conn, _NEXT, uid, limit)]
        else:
            uids, numbers = zip(*limits, strict=True)
            rows = list(bulk.fetch_rows(self._conn, _NEXT, list(uids), list(numbers)))
        found: dict[str, list[Run]] = {uid: [] for uid, _ in limits}
        for run in map(run_of, rows):
            found[str(run.schedule_uid)].append(run)
        return {uid: sorted(runs, key=lambda run: (run.planned_at, run.run_id)) for uid, runs in found.items()}

    def _release(self, released: Sequence[tuple[Run, int]]) -> None:
        bulk.execute_many(self._conn, _RELEASE, [(False, run.run_id) for run, _ in released])
        if released:
            hint_after_commit(self._conn, HintTopic.READY)
        reasons = [WaitReason.DELAY if run.fire_at > at else WaitReason.READY for run, at in released]
        bulk.execute_many(
            self._conn, _WAKE, [(why.value, run.run_id) for why, (run, _) in zip(reasons, released, strict=True)]
        )

    def recount_runs(self, uid: ScheduleUid, *, active: int, queued: int, now: int) -> None:
        """Set the counts of the schedule, and release its first queued run if no run is active."""
        counts = self._counts[uid]
        assert counts is not None  # noqa: S101 - only existing schedules are counted
        counts.active, counts.queued = active, queued
        after = advance_queue(active=active, waiting=tuple(self._queued_runs({uid: []}).get(uid, ())))
        if after.released is not None:
            counts.active, counts.queued = after.active, queued - 1
            self._release([(after.released, now)])
        self.write([uid])

    def write(self, uids: Iterable[str]) -> None:
        """Write the counts of these schedules."""
        counted = [(uid, self._counts[uid]) for uid in sorted(uids)]
        bulk.execute_many(self._conn, _SET_COUNTS, [(c.active, c.queued, uid) for uid, c in counted if c is not None])


def _promote_queued(counts: RunCounts, ended: Sequence[EndedRun], queue: list[Run] | None) -> list[tuple[Run, int]]:
    """The queued runs that may start after the end of these, each with the time from which it may."""
    if queue is None:
        counts.active -= len(ended)
        return []
    seen_all = len(queue) <= len(ended)
    released = []
    for one in ended:
        counts.active -= not one.run.queued
        counts.queued -= one.run.queued
        after = advance_queue(active=counts.active, waiting=tuple(queue))
        if after.released is not None:
            counts.active, counts.queued = after.active, counts.queued - 1
            released.append((queue.pop(0), one.at))
    if seen_all:
        # The whole queue was read, so the stored count is corrected if it was wrong.
        counts.queued = len(queue)
    return released


_START = bulk.statement("UPDATE run SET status = 'running', started_at = ? WHERE run_id IN KEYS AND started_at IS NULL")
_END_RUN = bulk.update_statement(schema.run, ("status", "queued", "completed_at", "error"), by=("run_id",))
_SHOW = bulk.update_statement(schema.tick, ("status",), by=("uid", "planned_at", "run_id"))


def start_runs(conn: sa.Connection, runs: Sequence[Run], now: int) -> None:
    """Start the runs, except those that have started before."""
    names: list[str] = sorted({run.run_id for run in runs if run.started_at is None})
    if names:
        bulk.execute_statement(conn, _START, now, names)
        record_started(conn, runs, now)


def record_started(conn: sa.Connection, runs: Sequence[Run], now: int) -> None:
    """Show the start of the runs that had not started in their ticks, and call the observers of the commit."""
    fresh = list({run.run_id: run for run in runs if run.started_at is None}.values())
    if fresh:
        set_tick_statuses(conn, ((run, TickStatus.STARTED) for run in fresh))
        notify_runs(conn, lambda observer: observer.started(fresh, now))


def end_runs(conn: sa.Connection, ended: Sequence[EndedRun], counters: ConcurrencyCounters) -> None:
    """End the runs, and release the queued runs that waited for them."""
    if not ended:
        return
    bulk.execute_many(
        conn,
        _END_RUN,
        [(status._value_, False, at, run_error(run, status, error), run.run_id) for run, status, error, at, _ in ended],
    )
    set_tick_statuses(
        conn, ((run, tick_status(status, started=run.started_at is not None)) for run, status, *_ in ended)
    )
    for run, status, _, at, _ in ended:
        if run.replay_of is not None and status is RunStatus.COMPLETED:
            names = dead_letters.of_execution(conn, run.tenant, [run.replay_of])
            dead_letters.resolve(conn, run.tenant, names, f"replay {run.run_id}", at)
    counters.release_slots(ended)
    _retire_one_shots(conn, ended, counters)
    finishes = [(run, status, error, at) for run, status, error, at, _ in ended]
    notify_runs(conn, lambda observer: observer.ended(finishes))


def _retire_one_shots(conn: sa.Connection, ended: Sequence[EndedRun], counters: ConcurrencyCounters) -> None:
    for run, status, _, at, _ in ended:
        counts = counters.counts(run.schedule_uid)
        if (
            counts is not None
            and counts.delete_after_run
            and run.source is RunSource.CRON
            and run.schedule_uid is not None
        ):
            retire_at_end(conn, EndedOneShot(run.schedule_uid, status, at))


def set_tick_statuses(conn: sa.Connection, statuses: Iterable[tuple[Run, TickStatus]]) -> None:
    """Set the statuses of the ticks that started these runs."""
    rows = [
        (status.value, run.schedule_uid, run.planned_at, run.run_id)
        for run, status in statuses
        if run.source is RunSource.CRON
    ]
    bulk.execute_many(conn, _SHOW, rows)
