"""Launching runs that no tick started: by hand, by events, by backfills and as sub-runs."""

from collections.abc import Sequence

import sqlalchemy as sa
from msgspec.structs import replace

from gnomon.adapters.sql import audit, bulk, dead_letters, schema
from gnomon.adapters.sql.after_commit import notify_runs
from gnomon.adapters.sql.cancellation import supersede
from gnomon.adapters.sql.completion import ConcurrencyCounters
from gnomon.adapters.sql.payloads import sealed_rows
from gnomon.adapters.sql.rows import REQUESTED_RUN, SCHEDULE, column_list, requested_run_row, schedule_of
from gnomon.adapters.sql.transitions import insert_tasks
from gnomon.core.audit import resolved_entry
from gnomon.core.model import Run, Spec
from gnomon.core.runs.launch import LaunchOutcome, LaunchRequest, decide_launch, first_tasks

_SCHEDULES = bulk.statement(f"SELECT {column_list(SCHEDULE)} FROM schedule WHERE uid IN KEYS AND deleted_at IS NULL")  # noqa: S608 - our own names
_TAKEN = bulk.statement("SELECT run_id FROM run WHERE run_id IN KEYS")
_ADD = bulk.insert_statement(schema.run, REQUESTED_RUN, "ON CONFLICT (run_id) DO NOTHING")
#: The letter that the execution of a letter has replayed itself.
_REPLACED = bulk.statement(
    "SELECT run.replay_of FROM dead_letter JOIN run ON run.run_id = dead_letter.run_id"
    " WHERE dead_letter.dead_letter_id IN KEYS AND run.replay_of IS NOT NULL"
)
_REPLAYED = bulk.update_statement(schema.dead_letter, ("replayed_by",), by=("dead_letter_id",))


def launch(conn: sa.Connection, launches: Sequence[LaunchRequest], now: int) -> Sequence[LaunchOutcome]:
    """See Runs.launch."""
    batch = _LaunchBatch(conn, launches, now)
    outcomes = [batch.add(request) for request in launches]
    batch.write()
    # A run without a schedule has no row to lock: another transaction may have launched the same run meanwhile.
    return [
        LaunchOutcome.ALREADY if request.run.run_id in batch.too_late else outcome
        for request, outcome in zip(launches, outcomes, strict=True)
    ]


class _LaunchBatch:
    """Launches of one transaction. Each is decided after those before it."""

    def __init__(self, conn: sa.Connection, launches: Sequence[LaunchRequest], now: int) -> None:
        self._conn, self._now = conn, now
        uids = {uid for request in launches if (uid := request.run.schedule_uid) is not None}
        self._counters = ConcurrencyCounters(conn, uids)
        self._specs = _specs(conn, sorted(uids)) if uids else {}
        wanted: list[str] = [request.run.run_id for request in launches]
        self._taken = {name for (name,) in bulk.fetch_rows(conn, _TAKEN, wanted)}
        self._made: list[tuple[Run, LaunchRequest]] = []
        self.too_late: set[str] = set()

    def add(self, request: LaunchRequest) -> LaunchOutcome:
        """Decide the request after those before it."""
        run = request.run
        if run.run_id in self._taken:
            return LaunchOutcome.ALREADY
        if run.schedule_uid is None:
            self._make(run, request)
            return LaunchOutcome.STARTED
        counts = self._counters.counts(run.schedule_uid)
        if counts is None:
            return LaunchOutcome.GONE
        spec = self._specs[run.schedule_uid]
        outcome, replaces = decide_launch(
            spec, active=counts.active, queued=counts.queued, force=request.force, waits=request.waits
        )
        if outcome not in (LaunchOutcome.STARTED, LaunchOutcome.QUEUED):
            return outcome
        queued = outcome is LaunchOutcome.QUEUED
        counts.add_run(queued=queued, replaces=bool(replaces))
        self._make(replace(run, queued=queued), request)
        if replaces:
            self.write()
            supersede(self._conn, {run.schedule_uid: run.run_id}, self._now)
            self._counters.reload(run.schedule_uid)
        return outcome

    def _make(self, run: Run, request: LaunchRequest) -> None:
        self._made.append((run, request))
        self._taken.add(run.run_id)

    def write(self) -> None:
        """Write the runs that were added since the last call."""
        made, self._made = self._made, []
        added = bulk.execute_returning_keys(self._conn, _ADD, [requested_run_row(run) for run, _ in made], "run_id")
        self.too_late |= {run.run_id for run, _ in made if run.run_id not in added}
        made = [(run, request) for run, request in made if run.run_id in added]
        notify_runs(self._conn, lambda observer: observer.launched([run for run, _ in made]))
        tasks = [
            task
            for run, request in made
            for task in first_tasks(run, request.first_steps, now=self._now, spans_ms=request.first_spans_ms)
        ]
        insert_tasks(self._conn, tasks)
        inputs = [(run.run_id, "input", request.input) for run, request in made if request.input is not None]
        bulk.insert_rows(self._conn, schema.payload, sealed_rows(self._conn, inputs))
        for run in (run for run, _ in made if run.replay_of is not None):
            names = dead_letters.of_execution(self._conn, run.tenant, [str(run.replay_of)])
            bulk.execute_many(self._conn, _REPLAYED, [(run.run_id, name) for name in names])
            self._resolve_replaced(run, str(run.replay_of))
        self._counters.write({run.schedule_uid for run, _ in made if run.schedule_uid is not None})

    def _resolve_replaced(self, run: Run, letter: str) -> None:
        """Resolve the letters whose replay left this one: it stands for the same work."""
        earlier = bulk.fetch_rows(self._conn, _REPLACED, [letter])
        names = [name for (of,) in earlier for name in dead_letters.of_execution(self._conn, run.tenant, [of])]
        found = dead_letters.lock_unresolved(self._conn, run.tenant, names) if names else ()
        if found:
            by = f"{run.actor}, in favour of {letter}"
            audit.write(self._conn, (resolved_entry(name, run.tenant, by, run.actor, self._now) for name in found))
            dead_letters.resolve(self._conn, run.tenant, found, by, self._now)


def _specs(conn: sa.Connection, uids: list[str]) -> dict[str, Spec]:
    return {schedule.uid: schedule.spec for schedule in map(schedule_of, bulk.fetch_rows(conn, _SCHEDULES, uids))}
