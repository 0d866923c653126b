"""How many runs a schedule has under way and waiting, and whose turn it is when one of them is over."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import sqlalchemy as sa

from gnomon.adapters.sql import bulk, tables
from gnomon.adapters.sql.hinting import hint
from gnomon.adapters.sql.run_rows import RUN, named, run_of
from gnomon.core.model import Run, RunStatus, ScheduleUid
from gnomon.core.runs.launch import room_made
from gnomon.core.runs.states import WaitReason
from gnomon.ports.coordination import Topic

#: Only these columns: also a schedule that cannot be read here has to count.
_COUNTS = bulk.statement(
    "SELECT uid, active_runs, queued_runs, delete_after_run FROM schedule"
    " WHERE uid IN KEYS AND deleted_at IS NULL ORDER BY uid FOR UPDATE"
)
_SET_COUNTS = bulk.changing(tables.schedule, ("active_runs", "queued_runs"), by=("uid",))
_IN_LINE = f"""
SELECT {named(RUN)} FROM run WHERE run.schedule_uid = {{uid}} AND queued
ORDER BY planned_at, run_id LIMIT {{most}}
"""  # noqa: S608 - our own names
_NEXT = bulk.Statement(
    _IN_LINE.format(uid="?", most="?"),
    "SELECT r.* FROM unnest($1::text[], $2::integer[]) AS v (uid, most)"  # noqa: S608 - our own names
    f" CROSS JOIN LATERAL ({_IN_LINE.format(uid='v.uid', most='v.most')}) AS r",
)
_RELEASE = bulk.changing(tables.run, ("queued",), by=("run_id",))
_WAKE = bulk.changing(tables.task, ("wait_reason",), by=("run_id",))


class Ended(NamedTuple):
    """A run, as it was before its end, and how and when it ended."""

    run: Run
    status: RunStatus
    error: str | None
    at: int


class Counts:
    """The runs of one schedule, counted."""

    __slots__ = ("active", "delete_after_run", "queued")

    def __init__(self, active: int, queued: int, *, delete_after_run: bool) -> None:
        self.active, self.queued, self.delete_after_run = active, queued, delete_after_run


class Rooms:
    """The counts of schedules, nobody else's to change until the end of the transaction.

    Whoever changes runs or tasks for good begins with this: one order of locks for all, so that none waits for another
    in a circle.
    """

    def __init__(self, conn: sa.Connection, uids: Iterable[ScheduleUid | None]) -> None:
        self._conn = conn
        self._counts: dict[str, Counts | None] = {}
        self.hold(uids)

    def hold(self, uids: Iterable[ScheduleUid | None]) -> None:
        """Those schedules are held as well."""
        new = sorted({uid for uid in uids if uid is not None and uid not in self._counts})
        if not new:
            return
        # The deleted ones have nothing to count, and need not be looked for again.
        self._counts |= dict.fromkeys(new)
        for uid, active, queued, once in bulk.rows(self._conn, _COUNTS, new):
            self._counts[uid] = Counts(active, queued, delete_after_run=bool(once))

    def read_again(self, uid: ScheduleUid) -> None:
        """What others in this transaction have made of the counts of the schedule is known."""
        self._counts.pop(uid, None)
        self.hold([uid])

    def counts(self, uid: ScheduleUid | None) -> Counts | None:
        """The counts of the schedule; None if it was deleted, or never was."""
        return None if uid is None else self._counts[uid]

    def make(self, ended: Sequence[Ended]) -> None:
        """The runs are counted no longer; the next ones whose turn it then is go on."""
        self.hold(one.run.schedule_uid for one in ended)
        by_schedule: dict[str, list[Ended]] = {}
        for one in ended:
            if one.run.schedule_uid is not None and self._counts[one.run.schedule_uid] is not None:
                by_schedule.setdefault(one.run.schedule_uid, []).append(one)
        in_line = self._in_line(by_schedule)
        freed: list[tuple[Run, int]] = []
        for uid, theirs in by_schedule.items():
            counts = self._counts[uid]
            assert counts is not None  # noqa: S101 - asked above
            freed += _leave(counts, theirs, in_line.get(uid))
        self._release(freed)
        self.write(by_schedule)

    def _in_line(self, ended: dict[str, list[Ended]]) -> dict[str, list[Run]]:
        """The first of those that wait for their turn: as many as may have it, and one more."""
        crowded = [(uid, len(theirs) + 1) for uid, theirs in ended.items() if (c := self._counts[uid]) and c.queued]
        if not crowded:
            return {}
        if self._conn.dialect.name == "sqlite":
            rows = [row for uid, most in crowded for row in bulk.rows(self._conn, _NEXT, uid, most)]
        else:
            uids, most = zip(*crowded, strict=True)
            rows = list(bulk.rows(self._conn, _NEXT, list(uids), list(most)))
        found: dict[str, list[Run]] = {uid: [] for uid, _ in crowded}
        for run in map(run_of, rows):
            found[str(run.schedule_uid)].append(run)
        return {uid: sorted(runs, key=lambda run: (run.planned_at, run.run_id)) for uid, runs in found.items()}

    def _release(self, freed: Sequence[tuple[Run, int]]) -> None:
        bulk.many(self._conn, _RELEASE, [(False, run.run_id) for run, _ in freed])
        if freed:
            hint(self._conn, Topic.READY)
        wait = [WaitReason.DELAY if run.fire_at > at else WaitReason.READY for run, at in freed]
        bulk.many(self._conn, _WAKE, [(why.value, run.run_id) for why, (run, _) in zip(wait, freed, strict=True)])

    def recount(self, uid: ScheduleUid, *, active: int, queued: int, now: int) -> None:
        """So many are under way and waiting, whatever was counted; if none is, the first that waits goes on."""
        counts = self._counts[uid]
        assert counts is not None  # noqa: S101 - only those that are there are counted
        counts.active, counts.queued = active, queued
        room = room_made(active=active, waiting=tuple(self._in_line({uid: []}).get(uid, ())))
        if room.released is not None:
            counts.active, counts.queued = room.active, queued - 1
            self._release([(room.released, now)])
        self.write([uid])

    def write(self, uids: Iterable[str]) -> None:
        """What is counted of these schedules stands in the database."""
        counted = [(uid, self._counts[uid]) for uid in sorted(uids)]
        bulk.many(self._conn, _SET_COUNTS, [(c.active, c.queued, uid) for uid, c in counted if c is not None])


def _leave(counts: Counts, ended: Sequence[Ended], in_line: list[Run] | None) -> list[tuple[Run, int]]:
    """Those whose turn it is after the end of these, and since when."""
    if in_line is None:
        counts.active -= len(ended)
        return []
    seen_all = len(in_line) <= len(ended)
    freed = []
    for one in ended:
        counts.active -= not one.run.queued
        counts.queued -= one.run.queued
        room = room_made(active=counts.active, waiting=tuple(in_line))
        if room.released is not None:
            counts.active, counts.queued = room.active, counts.queued - 1
            freed.append((in_line.pop(0), one.at))
    if seen_all:
        # Whatever was counted before, this is how many there are.
        counts.queued = len(in_line)
    return freed
