"""Starting runs that no tick asked for."""

from collections.abc import Sequence

import sqlalchemy as sa
from msgspec.structs import replace

from gnomon.adapters.sql import bulk, schema
from gnomon.adapters.sql.after_commit import note
from gnomon.adapters.sql.cancellation import supersede
from gnomon.adapters.sql.completion import Rooms
from gnomon.adapters.sql.rows import SCHEDULE, WANTED_RUN, named, schedule_of, task_row, wanted_row
from gnomon.core.model import Run, Spec
from gnomon.core.runs.launch import Launch, Launching, first_tasks, launching

_SCHEDULES = bulk.statement(f"SELECT {named(SCHEDULE)} FROM schedule WHERE uid IN KEYS AND deleted_at IS NULL")  # noqa: S608 - our own names
_TAKEN = bulk.statement("SELECT run_id FROM run WHERE run_id IN KEYS")
_ADD = bulk.inserting(schema.run, WANTED_RUN, "ON CONFLICT (run_id) DO NOTHING")
_REPLAYED = bulk.changing(schema.dead_letter, ("replayed_by",), by=("dead_letter_id",))


def launch(conn: sa.Connection, launches: Sequence[Launch], now: int) -> Sequence[Launching]:
    """See Runs.launch."""
    batch = _Batch(conn, launches, now)
    became = [batch.add(wish) for wish in launches]
    batch.write()
    # Without a schedule there is nothing to hold, so that another may have launched the same run meanwhile.
    return [
        Launching.ALREADY if wish.run.run_id in batch.too_late else outcome
        for wish, outcome in zip(launches, became, strict=True)
    ]


class _Batch:
    """Runs that are launched together, one after the other."""

    def __init__(self, conn: sa.Connection, launches: Sequence[Launch], now: int) -> None:
        self._conn, self._now = conn, now
        uids = {uid for wish in launches if (uid := wish.run.schedule_uid) is not None}
        self._rooms = Rooms(conn, uids)
        self._specs = _specs(conn, sorted(uids)) if uids else {}
        wanted: list[str] = [wish.run.run_id for wish in launches]
        self._taken = {name for (name,) in bulk.rows(conn, _TAKEN, wanted)}
        self._made: list[tuple[Run, Launch]] = []
        self.too_late: set[str] = set()

    def add(self, wish: Launch) -> Launching:
        """What becomes of the wish after those before it."""
        run = wish.run
        if run.run_id in self._taken:
            return Launching.ALREADY
        if run.schedule_uid is None:
            self._make(run, wish)
            return Launching.STARTED
        counts = self._rooms.counts(run.schedule_uid)
        if counts is None:
            return Launching.GONE
        spec = self._specs[run.schedule_uid]
        became, replaces = launching(spec, active=counts.active, queued=counts.queued, force=wish.force)
        if became not in (Launching.STARTED, Launching.QUEUED):
            return became
        queued = became is Launching.QUEUED
        counts.active += not queued
        counts.queued = (0 if replaces else counts.queued) + queued
        self._make(replace(run, queued=queued), wish)
        if replaces:
            self.write()
            supersede(self._conn, {run.schedule_uid: run.run_id}, self._now)
            self._rooms.read_again(run.schedule_uid)
        return became

    def _make(self, run: Run, wish: Launch) -> None:
        self._made.append((run, wish))
        self._taken.add(run.run_id)

    def write(self) -> None:
        """Everything so far stands in the database."""
        made, self._made = self._made, []
        added = bulk.those(self._conn, _ADD, [wanted_row(run) for run, _ in made], "run_id")
        self.too_late |= {run.run_id for run, _ in made if run.run_id not in added}
        made = [(run, wish) for run, wish in made if run.run_id in added]
        note(self._conn, lambda tally: tally.launched([run for run, _ in made]))
        tasks = [task for run, wish in made for task in first_tasks(run, wish.first_steps, now=self._now)]
        bulk.insert(self._conn, schema.task, [task_row(task) for task in tasks])
        given = [(run.run_id, "input", wish.input) for run, wish in made if wish.input is not None]
        bulk.insert(self._conn, schema.payload, given)
        replays = [(run.run_id, run.replay_of) for run, _ in made if run.replay_of is not None]
        bulk.many(self._conn, _REPLAYED, replays)
        self._rooms.write({run.schedule_uid for run, _ in made if run.schedule_uid is not None})


def _specs(conn: sa.Connection, uids: list[str]) -> dict[str, Spec]:
    return {schedule.uid: schedule.spec for schedule in map(schedule_of, bulk.rows(conn, _SCHEDULES, uids))}
