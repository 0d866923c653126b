"""The ports of a store by which it is kept in order, on SQL. Each method is one transaction."""

from collections.abc import Collection, Mapping, Sequence

import sqlalchemy as sa

from gnomon.adapters.sql import (
    audit,
    dead_letters,
    external_events,
    history,
    invariants,
    leases,
    ledger,
    placement,
    retention,
    workers,
    workflows,
)
from gnomon.adapters.sql import runs as runs_sql
from gnomon.adapters.sql import schedules as schedules_sql
from gnomon.adapters.sql import tasks as tasks_sql
from gnomon.adapters.sql.after_commit import AfterCommitTransactions
from gnomon.adapters.sql.backfills import SqlBackfills
from gnomon.adapters.sql.fan_out import fan_out
from gnomon.adapters.sql.transactions import Transactions
from gnomon.adapters.sql.unreadable import UnreadableSchedules
from gnomon.core.audit import AuditEntry, ChainHead, StoredAuditEntry
from gnomon.core.invariants import OrphanedAttempt, OverdueSchedule, RunCountCheck
from gnomon.core.model import (
    ENGINE,
    Attempt,
    DeadLetter,
    LogLine,
    Run,
    RunId,
    Schedule,
    ScheduleUid,
    Task,
    TaskId,
    Tick,
    Verdict,
)
from gnomon.core.retention import RetainedSchedule, RetentionHorizons
from gnomon.core.runs.admission import Admission, AdmissionRequest, FanOut, ReadyTask
from gnomon.core.runs.external_events import EventEffect, ExternalEvent
from gnomon.core.runs.launch import CancelOutcome, LaunchOutcome, LaunchRequest
from gnomon.core.runs.outcomes import TaskCompletion
from gnomon.core.runs.routing import Placement
from gnomon.core.runs.workflow import Workflow
from gnomon.ports.audit import AuditQuery
from gnomon.ports.commit_observer import CommitObserver
from gnomon.ports.coordination import HintCallback
from gnomon.ports.ledger import ShardRenewal, Terms
from gnomon.ports.maintenance import OpenRunPosition, RetentionBatch, RetentionPosition, StuckRunsPage
from gnomon.ports.runs import RunQuery
from gnomon.ports.schedules import DeletedSchedule, JobChangeset, Pause, Revision
from gnomon.ports.tasks import (
    DEFAULT_TAKE_FILTER,
    NO_KNOWN_TASKS,
    AttemptRef,
    InFlightCounts,
    LeaseRenewal,
    OpenAttemptsPage,
    QueuePosition,
    TakeFilter,
    WorkerInfo,
)


class SqlMaintenance:
    """Keeping, Turns, Mending and Vitals."""

    transactions: Transactions
    _unreadable: UnreadableSchedules

    async def acquire_singleton(self, name: str, holder: str, *, ttl_ms: int) -> bool:
        """See Turns.take_turn."""
        engine = self.transactions

        def take(conn: sa.Connection) -> bool:
            now = engine.now(conn)
            return leases.acquire_singleton(conn, name, holder, now + ttl_ms, now)

        return await engine.write(take)

    async def release_singletons(self, holder: str) -> None:
        """See Turns.give_turns_up."""
        await self.transactions.write(lambda conn: leases.release_singletons(conn, holder))

    async def retained_schedules(self, *, after: str, limit: int) -> Sequence[RetainedSchedule]:
        """See Keeping.pasts."""
        return await self.transactions.read(lambda conn: retention.retained_schedules(conn, after, limit))

    async def tenants(self) -> Sequence[str]:
        """See Keeping.tenants."""
        return await self.transactions.read(retention.tenants)

    async def expired_runs(
        self, past: RetainedSchedule | None, kept: RetentionHorizons, *, after: RetentionPosition, limit: int
    ) -> RetentionBatch:
        """See Keeping.aged_runs."""
        return await self.transactions.read(lambda conn: retention.expired_runs(conn, past, kept, after, limit))

    async def expired_ticks(
        self, past: RetainedSchedule, kept: RetentionHorizons, *, after: RetentionPosition, limit: int
    ) -> RetentionBatch:
        """See Keeping.aged_ticks."""
        return await self.transactions.read(lambda conn: retention.expired_ticks(conn, past, kept, after, limit))

    async def expired_events(
        self, tenant: str, before_at: int, *, after: RetentionPosition, limit: int
    ) -> RetentionBatch:
        """See Keeping.aged_events."""
        return await self.transactions.read(
            lambda conn: retention.expired_events(conn, tenant, before_at, after, limit)
        )

    async def expired_dead_letters(
        self, tenant: str, before_at: int, *, after: RetentionPosition, limit: int
    ) -> RetentionBatch:
        """See Keeping.aged_letters."""
        return await self.transactions.read(
            lambda conn: retention.expired_dead_letters(conn, tenant, before_at, after, limit)
        )

    async def expired_schedule(self, uid: ScheduleUid) -> RetentionBatch:
        """See Keeping.aged_schedule."""
        return await self.transactions.read(lambda conn: retention.expired_schedule(conn, uid))

    async def remove(self, lot: RetentionBatch, *, limit: int) -> bool:
        """See Keeping.remove."""
        return await self.transactions.write(lambda conn: retention.remove(conn, lot, limit))

    async def stuck_runs(self, *, before_at: int, after: OpenRunPosition, limit: int) -> StuckRunsPage:
        """See Mending.ailing."""
        return await self.transactions.read(lambda conn: invariants.stuck_runs(conn, before_at, after, limit))

    async def repair_runs(self, run_ids: Collection[RunId], *, now: int) -> Sequence[RunId]:
        """See Mending.mend."""
        return await self.transactions.write(lambda conn: invariants.repair_runs(conn, run_ids, now))

    async def schedules_without_next_fire(self, *, after: str, limit: int) -> Sequence[Schedule]:
        """See Vitals.idle_schedules."""
        return await self.transactions.read(
            lambda conn: invariants.schedules_without_next_fire(conn, after, limit, self._unreadable)
        )

    async def set_next_fire(self, schedule: Schedule, next_fire_at: int) -> bool:
        """See Vitals.give_next_fire."""
        return await self.transactions.write(lambda conn: invariants.set_next_fire(conn, schedule, next_fire_at))

    async def orphaned_attempts(self, *, grace_ms: int, limit: int) -> Sequence[OrphanedAttempt]:
        """See Vitals.orphans."""
        engine = self.transactions
        return await engine.read(lambda conn: invariants.orphaned_attempts(conn, engine.now(conn) - grace_ms, limit))

    async def oldest_due(self) -> OverdueSchedule | None:
        """See Vitals.oldest_due."""
        engine = self.transactions
        return await engine.read(lambda conn: invariants.oldest_due(conn, engine.now(conn)))

    async def counted(self, *, after: str, limit: int) -> Sequence[RunCountCheck]:
        """See Vitals.counted."""
        return await self.transactions.read(lambda conn: invariants.counted(conn, after, limit))

    async def recount_runs(self, uids: Collection[ScheduleUid], *, now: int) -> Sequence[ScheduleUid]:
        """See Vitals.recount."""
        return await self.transactions.write(lambda conn: invariants.recount_runs(conn, uids, now))


class SqlStore(SqlBackfills, SqlMaintenance):
    """Each method is one transaction of the engine it was given."""

    def __init__(
        self, transactions: Transactions, *, observers: Sequence[CommitObserver] = (), hint: HintCallback | None = None
    ) -> None:
        """`observers` are told of every commit; `hint` is called for each topic that other processes should look at."""
        self._engine = transactions
        self.transactions: Transactions = transactions
        if observers or hint is not None:
            self.transactions = AfterCommitTransactions(transactions, observers=observers, hint=hint)
        self._unreadable = UnreadableSchedules()

    def observed(self, *, observers: Sequence[CommitObserver] = (), hint: HintCallback | None = None) -> "SqlStore":
        """The same store with these observers and hints instead of its own: for a process that opens it first."""
        return SqlStore(self._engine, observers=observers, hint=hint)

    async def close(self) -> None:
        """Let go of every connection, once what was asked for is done."""
        await self.transactions.close()

    # ---- ledger ------------------------------------------------------------------------------

    async def due(self, now: int, *, shards: frozenset[int], limit: int) -> Sequence[Schedule]:
        """See Ledger.due."""
        return await self.transactions.read(lambda conn: ledger.due(conn, now, shards, limit, self._unreadable))

    async def next_due_at(self, *, shards: frozenset[int]) -> int | None:
        """See Ledger.next_due_at."""
        return await self.transactions.read(lambda conn: ledger.next_due_at(conn, shards, self._unreadable))

    async def decide(self, verdicts: Sequence[Verdict], *, now: int, terms: Terms) -> frozenset[ScheduleUid]:
        """See Ledger.decide."""
        return await self.transactions.write(lambda conn: ledger.decide(conn, verdicts, now, terms))

    # ---- work --------------------------------------------------------------------------------

    async def waiting(self, now: int, *, limit: int) -> Sequence[ReadyTask]:
        """See Work.waiting."""
        return await self.transactions.read(lambda conn: tasks_sql.waiting(conn, now, limit))

    async def unroutable_tasks(self, *, after: QueuePosition, limit: int) -> Sequence[ReadyTask]:
        """See Work.turned_away."""
        return await self.transactions.read(lambda conn: tasks_sql.unroutable_tasks(conn, after, limit))

    async def next_available_at(self) -> int | None:
        """See Work.next_available_at."""
        return await self.transactions.read(tasks_sql.next_available_at)

    async def admit(self, admissions: Sequence[Admission], *, now: int) -> frozenset[TaskId]:
        """See Work.admit."""
        return await self.transactions.write(lambda conn: tasks_sql.admit(conn, admissions, now))

    async def fan_out(self, unfoldings: Sequence[FanOut], *, now: int) -> frozenset[TaskId]:
        """See Work.unfold."""
        return await self.transactions.write(lambda conn: fan_out(conn, unfoldings, now))

    async def take(
        self,
        worker: str,
        *,
        limit: int,
        lease_ms: int,
        now: int,
        begin: bool = True,
        known: Mapping[TaskId, AdmissionRequest] = NO_KNOWN_TASKS,
        reach: TakeFilter = DEFAULT_TAKE_FILTER,
    ) -> Sequence[ReadyTask]:
        """See Work.take."""
        engine = self.transactions

        def take(conn: sa.Connection) -> Sequence[ReadyTask]:
            if conn.dialect.name == "postgresql":
                return tasks_sql.take_on_postgres(
                    conn, worker, limit, lease_ms, now, begin=begin, known=known, reach=reach
                )
            until = engine.now(conn) + lease_ms
            return tasks_sql.take(conn, worker, limit, until, now, begin=begin, known=known, reach=reach)

        # Whoever knows of nothing that is being let through beside it has no commit to share with that.
        return await engine.write(take, apart=begin and not known)

    async def begin(
        self, held: Collection[AttemptRef], *, now: int, worker: str | None = None
    ) -> frozenset[AttemptRef]:
        """See Work.begin."""
        return await self.transactions.write(lambda conn: tasks_sql.begin(conn, held, now, worker))

    async def assigned_tasks(self, held: Collection[AttemptRef]) -> Sequence[ReadyTask]:
        """See Work.handed_out."""
        return await self.transactions.read(lambda conn: tasks_sql.assigned_tasks(conn, held))

    async def renew(self, worker: str, held: Collection[AttemptRef], *, lease_ms: int) -> LeaseRenewal:
        """See Work.renew."""
        engine = self.transactions
        return await engine.write(lambda conn: tasks_sql.renew(conn, worker, held, engine.now(conn) + lease_ms))

    async def cancel_requests(self, worker: str) -> frozenset[AttemptRef]:
        """See Work.asked_to_stop."""
        return await self.transactions.read(lambda conn: tasks_sql.cancel_requests(conn, worker))

    async def report(self, endings: Sequence[TaskCompletion]) -> frozenset[AttemptRef]:
        """See Work.report."""
        return await self.transactions.write(lambda conn: tasks_sql.report(conn, endings))

    async def in_flight_counts(self) -> InFlightCounts:
        """See Work.on_the_way."""
        return await self.transactions.read(placement.in_flight_counts)

    async def placements(self, tasks: Collection[TaskId]) -> Mapping[TaskId, Placement]:
        """See Work.placements."""
        return await self.transactions.read(lambda conn: placement.placements(conn, tasks))

    async def chosen(self) -> Collection[Placement]:
        """See Work.chosen."""
        return await self.transactions.read(placement.chosen)

    async def recall_stranded(self) -> Sequence[tuple[TaskId, RunId]]:
        """See Work.recall."""
        engine = self.transactions
        return await engine.write(lambda conn: placement.recall_stranded(conn, engine.now(conn)))

    async def open_attempts(self, *, after: TaskId, limit: int) -> OpenAttemptsPage:
        """See Work.open_attempts."""
        engine = self.transactions
        return await engine.read(lambda conn: tasks_sql.open_attempts(conn, after, limit, engine.now(conn)))

    # ---- workers -----------------------------------------------------------------------------

    async def register_worker(self, card: WorkerInfo, *, ttl_ms: int) -> None:
        """See Workers.enlist."""
        engine = self.transactions
        await engine.write(lambda conn: workers.register_worker(conn, card, ttl_ms, engine.now(conn)))

    async def workers(self) -> Sequence[WorkerInfo]:
        """See Workers.workers."""
        engine = self.transactions
        return await engine.read(lambda conn: workers.workers(conn, engine.now(conn)))

    async def deregister_worker(self, worker: str) -> None:
        """See Workers.dismiss."""
        await self.transactions.write(lambda conn: workers.deregister_worker(conn, worker))

    # ---- runs --------------------------------------------------------------------------------

    async def launch(self, launches: Sequence[LaunchRequest], *, now: int) -> Sequence[LaunchOutcome]:
        """See Runs.launch."""
        return await self.transactions.write(lambda conn: audit.launch(conn, launches, now))

    async def cancel(self, run_id: RunId, *, reason: str, now: int, actor: str = ENGINE) -> CancelOutcome:
        """See Runs.cancel."""
        return await self.transactions.write(lambda conn: audit.cancel(conn, run_id, reason, now, actor))

    # ---- executions --------------------------------------------------------------------------

    async def find_run(self, run_id: RunId) -> Run | None:
        """See Executions.find_run."""
        return await self.transactions.read(lambda conn: runs_sql.find_run(conn, run_id))

    async def list_runs(self, query: RunQuery) -> Sequence[Run]:
        """See Executions.list_runs."""
        return await self.transactions.read(lambda conn: runs_sql.list_runs(conn, query))

    async def run_position(self, query: RunQuery, number: int) -> tuple[int, str] | None:
        """See Executions.place_of_run."""
        return await self.transactions.read(lambda conn: runs_sql.run_position(conn, query, number))

    async def attempts(self, tasks: Sequence[TaskId]) -> Sequence[Attempt]:
        """See Executions.attempts."""
        return await self.transactions.read(lambda conn: dead_letters.attempts(conn, tasks))

    async def payload(self, owner_id: str, kind: str) -> bytes | None:
        """See Executions.payload."""
        return await self.transactions.read(lambda conn: runs_sql.payload(conn, owner_id, kind))

    async def payloads(self, owner_ids: Sequence[str], kind: str) -> Mapping[str, bytes]:
        """See Executions.payloads."""
        return await self.transactions.read(lambda conn: runs_sql.payloads(conn, owner_ids, kind))

    async def log_lengths(self, tasks: Sequence[TaskId]) -> Mapping[TaskId, int]:
        """See Executions.log_lengths."""
        return await self.transactions.read(lambda conn: runs_sql.log_lengths(conn, tasks))

    async def log_lines(self, task_id: TaskId, *, after: int = 0, limit: int = 1000) -> Sequence[LogLine]:
        """See Executions.log_lines."""
        return await self.transactions.read(lambda conn: runs_sql.log_lines(conn, task_id, after, limit))

    # ---- dead letters ------------------------------------------------------------------------

    async def find_dead_letter(self, tenant: str, dead_letter_id: str) -> DeadLetter | None:
        """See DeadLetters.find_dead_letter."""
        return await self.transactions.read(lambda conn: dead_letters.find(conn, tenant, dead_letter_id))

    async def list_dead_letters(
        self, tenant: str, *, job: str | None = None, unresolved: bool = False, after: str = "", limit: int = 100
    ) -> Sequence[DeadLetter]:
        """See DeadLetters.list_dead_letters."""
        return await self.transactions.read(
            lambda conn: dead_letters.listed(conn, tenant, job, after, limit, unresolved=unresolved)
        )

    async def resolve(self, tenant: str, dead_letter_ids: Collection[str], *, by: str, now: int) -> int:
        """See DeadLetters.resolve."""
        return await self.transactions.write(lambda conn: audit.resolve(conn, tenant, dead_letter_ids, by, now))

    # ---- events ------------------------------------------------------------------------------

    async def emit_event(self, event: ExternalEvent, *, now: int) -> Sequence[EventEffect]:
        """See EventLog.emit_event."""
        return await self.transactions.write(lambda conn: audit.emit(conn, event, now, self._unreadable))

    async def next_batch_at(self) -> int | None:
        """See EventLog.next_gathering_at."""
        return await self.transactions.read(external_events.next_batch_at)

    async def close_event_batches(self, now: int, *, limit: int) -> Sequence[ScheduleUid]:
        """See EventLog.close_gatherings."""
        return await self.transactions.write(lambda conn: external_events.close(conn, now, limit, self._unreadable))

    async def list_events(
        self, tenant: str, *, name: str | None = None, after: tuple[int, str] | None = None, limit: int = 100
    ) -> Sequence[ExternalEvent]:
        """See EventLog.list_events."""
        return await self.transactions.read(lambda conn: external_events.listed(conn, tenant, name, after, limit))

    async def find_event(self, event_id: str) -> ExternalEvent | None:
        """See EventLog.find_event."""
        return await self.transactions.read(lambda conn: external_events.find(conn, event_id))

    async def entries(self, event_ids: Sequence[str]) -> Sequence[EventEffect]:
        """See EventLog.entries."""
        return await self.transactions.read(lambda conn: external_events.entries(conn, event_ids))

    # ---- audit -------------------------------------------------------------------------------

    async def add_audit(self, entry: AuditEntry) -> None:
        """See AuditTrail.add_audit."""
        await self.transactions.write(lambda conn: audit.write(conn, [entry]))

    async def list_audit(self, query: AuditQuery) -> Sequence[StoredAuditEntry]:
        """See AuditTrail.list_audit."""
        return await self.transactions.read(lambda conn: audit.listed(conn, query))

    async def sealed_audit(self, *, after: int, limit: int) -> Sequence[StoredAuditEntry]:
        """See AuditTrail.sealed_audit."""
        return await self.transactions.read(lambda conn: audit.sealed(conn, after, limit))

    async def audit_head(self) -> tuple[ChainHead, int]:
        """See AuditTrail.audit_head."""
        return await self.transactions.read(audit.head)

    async def seal_audit(self, *, limit: int) -> int:
        """See AuditTrail.seal_audit. Nobody is kept from writing while there is nothing to seal."""
        if not await self.transactions.read(audit.has_unsealed):
            return 0
        return await self.transactions.write(lambda conn: audit.seal(conn, limit))

    # ---- jobs --------------------------------------------------------------------------------

    async def workflow(self, tenant: str, workflow_id: str, version: int | None = None) -> Workflow | None:
        """See Jobs.workflow."""
        return await self.transactions.read(lambda conn: workflows.workflow(conn, tenant, workflow_id, version))

    async def list_workflows(self, tenant: str, *, after: str, limit: int) -> Sequence[Workflow]:
        """See Jobs.page_of_workflows."""
        return await self.transactions.read(lambda conn: workflows.list_workflows(conn, tenant, after, limit))

    async def newest_workflows(self, tenant: str, workflow_ids: Sequence[str]) -> Sequence[Workflow]:
        """See Jobs.newest_workflows."""
        return await self.transactions.read(lambda conn: workflows.newest_workflows(conn, tenant, workflow_ids))

    async def apply(self, wish: JobChangeset, *, now: int, actor: str, tzdata: str) -> bool:
        """See Jobs.apply."""
        try:
            await self.transactions.write(lambda conn: audit.apply(conn, wish, now, actor, tzdata))
        except workflows.ChangesetConflict:
            return False
        return True

    # ---- schedules ---------------------------------------------------------------------------

    async def find(self, tenant: str, schedule_id: str) -> Schedule | None:
        """See Schedules.find."""
        return await self.transactions.read(lambda conn: schedules_sql.find(conn, tenant, schedule_id))

    async def page(self, tenant: str, *, after: str, limit: int) -> Sequence[Schedule]:
        """See Schedules.page."""
        return await self.transactions.read(
            lambda conn: schedules_sql.page(conn, tenant, after, limit, self._unreadable)
        )

    async def add(self, schedules: Sequence[Schedule], *, actor: str, tzdata: str) -> frozenset[str]:
        """See Schedules.add."""
        return await self.transactions.write(lambda conn: audit.add(conn, schedules, actor, tzdata))

    async def change(self, verdict: Verdict, changed: Schedule, *, now: int, actor: str, tzdata: str) -> bool:
        """See Schedules.change."""
        return await self.transactions.write(lambda conn: audit.change(conn, verdict, changed, now, actor, tzdata))

    async def delete(self, verdict: Verdict, *, now: int, actor: str) -> bool:
        """See Schedules.delete."""
        return await self.transactions.write(lambda conn: audit.delete(conn, verdict, now, actor))

    # ---- history -----------------------------------------------------------------------------

    async def ticks(self, uid: ScheduleUid, *, before: int, limit: int) -> Sequence[Tick]:
        """See History.ticks."""
        return await self.transactions.read(lambda conn: history.ticks(conn, uid, before, limit))

    async def runs(self, uid: ScheduleUid, *, before: int, limit: int) -> Sequence[Run]:
        """See History.runs."""
        return await self.transactions.read(lambda conn: history.runs(conn, uid, before, limit))

    async def tasks(self, runs: Sequence[Run]) -> Sequence[Task]:
        """See History.tasks."""
        return await self.transactions.read(lambda conn: history.tasks(conn, runs))

    async def revisions(self, uid: ScheduleUid) -> Sequence[Revision]:
        """See History.revisions."""
        return await self.transactions.read(lambda conn: history.revisions(conn, uid))

    async def pauses(self, uid: ScheduleUid) -> Sequence[Pause]:
        """See History.pauses."""
        return await self.transactions.read(lambda conn: history.pauses(conn, uid))

    async def gone(self, tenant: str, schedule_id: str, *, limit: int) -> Sequence[DeletedSchedule]:
        """See History.gone."""
        return await self.transactions.read(lambda conn: history.gone(conn, tenant, schedule_id, limit))

    # ---- shards ------------------------------------------------------------------------------

    async def renew_shards(self, holder: str, *, ttl_ms: int) -> ShardRenewal:
        """See Shards.attend."""
        engine = self.transactions
        return await engine.write(lambda conn: leases.renew_shards(conn, holder, ttl_ms, engine.now(conn)))

    async def claim(self, holder: str, *, ttl_ms: int, limit: int, by_force: bool = False) -> Terms:
        """See Shards.claim."""
        engine = self.transactions
        return await engine.write(
            lambda conn: leases.claim(conn, holder, ttl_ms, limit, engine.now(conn), by_force=by_force)
        )

    async def leave(self, holder: str) -> None:
        """See Shards.leave."""
        await self.transactions.write(lambda conn: leases.leave(conn, holder))

    async def release(self, holder: str, shards: Collection[int]) -> None:
        """See Shards.release."""
        await self.transactions.write(lambda conn: leases.release(conn, holder, shards))
