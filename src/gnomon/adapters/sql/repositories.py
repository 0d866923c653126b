"""The parts of the SQL store. Each method is one transaction around functions of the module that has the SQL.

A method that changes something for an operator writes its audit entries in the same transaction, with `audit.write`.
"""

from collections.abc import Collection, Mapping, Sequence

import sqlalchemy as sa

from gnomon.adapters.sql import (
    audit,
    backfills,
    cancellation,
    dead_letters,
    external_events,
    history,
    invariants,
    launches,
    leases,
    ledger,
    placement,
    retention,
    runs,
    schedules,
    tasks,
    workers,
    workflows,
)
from gnomon.adapters.sql.fan_out import fan_out
from gnomon.adapters.sql.transactions import Transactions
from gnomon.adapters.sql.unreadable import UnreadableSchedules
from gnomon.core.audit import (
    AuditEntry,
    ChainHead,
    StoredAuditEntry,
    backfill_cancelled_entry,
    backfilled_entry,
    cancelled_entry,
    changed_entry,
    deleted_entry,
    deployed_entry,
    emitted_entry,
    launched_entry,
    registered_entry,
    resolved_entry,
)
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
from gnomon.core.runs.backfill import (
    Backfill,
    BackfillBatch,
    BackfillProgress,
    BackfillTickReason,
    BatchOutcome,
    OpenBackfill,
)
from gnomon.core.runs.external_events import EventEffect, ExternalEvent
from gnomon.core.runs.launch import CancelOutcome, LaunchOutcome, LaunchRequest
from gnomon.core.runs.outcomes import TaskCompletion
from gnomon.core.runs.routing import Placement
from gnomon.core.runs.workflow import Workflow
from gnomon.ports.audit import AuditQuery
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

# ---- schedules -----------------------------------------------------------------------------------


class SqlLedger:
    """Implements Ledger."""

    def __init__(self, transactions: Transactions, unreadable: UnreadableSchedules) -> None:
        self._transactions = transactions
        self._unreadable = unreadable

    async def due(self, now: int, *, shards: frozenset[int], limit: int) -> Sequence[Schedule]:
        """See Ledger.due."""
        return await self._transactions.read(lambda conn: ledger.due(conn, now, shards, limit, self._unreadable))

    async def next_due_at(self, *, shards: frozenset[int]) -> int | None:
        """See Ledger.next_due_at."""
        return await self._transactions.read(lambda conn: ledger.next_due_at(conn, shards, self._unreadable))

    async def decide(self, verdicts: Sequence[Verdict], *, now: int, terms: Terms) -> frozenset[ScheduleUid]:
        """See Ledger.decide."""
        return await self._transactions.write(lambda conn: ledger.decide(conn, verdicts, now, terms))


class SqlShards:
    """Implements Shards."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def renew(self, holder: str, *, ttl_ms: int) -> ShardRenewal:
        """See Shards.renew."""
        engine = self._transactions
        return await engine.write(lambda conn: leases.renew_shards(conn, holder, ttl_ms, engine.now(conn)))

    async def claim(self, holder: str, *, ttl_ms: int, limit: int, by_force: bool = False) -> Terms:
        """See Shards.claim."""
        engine = self._transactions
        return await engine.write(
            lambda conn: leases.claim(conn, holder, ttl_ms, limit, engine.now(conn), by_force=by_force)
        )

    async def leave(self, holder: str) -> None:
        """See Shards.leave."""
        await self._transactions.write(lambda conn: leases.leave(conn, holder))

    async def release(self, holder: str, shards: Collection[int]) -> None:
        """See Shards.release."""
        await self._transactions.write(lambda conn: leases.release(conn, holder, shards))


class SqlSchedules:
    """Implements Schedules."""

    def __init__(self, transactions: Transactions, unreadable: UnreadableSchedules) -> None:
        self._transactions = transactions
        self._unreadable = unreadable

    async def find(self, tenant: str, schedule_id: str) -> Schedule | None:
        """See Schedules.find."""
        return await self._transactions.read(lambda conn: schedules.find(conn, tenant, schedule_id))

    async def page(self, tenant: str, *, after: str, limit: int) -> Sequence[Schedule]:
        """See Schedules.page."""
        return await self._transactions.read(lambda conn: schedules.page(conn, tenant, after, limit, self._unreadable))

    async def add(self, added: Sequence[Schedule], *, actor: str, tzdata: str) -> frozenset[str]:
        """See Schedules.add."""

        def add(conn: sa.Connection) -> frozenset[str]:
            taken = schedules.add(conn, added, actor, tzdata)
            audit.write(conn, (registered_entry(one, actor) for one in added if one.schedule_id not in taken))
            return taken

        return await self._transactions.write(add)

    async def change(self, verdict: Verdict, changed: Schedule, *, now: int, actor: str, tzdata: str) -> bool:
        """See Schedules.change."""

        def change(conn: sa.Connection) -> bool:
            done = schedules.change(conn, verdict, changed, now, actor, tzdata)
            if done:
                audit.write(conn, [changed_entry(verdict.schedule, changed, actor, now)])
            return done

        return await self._transactions.write(change)

    async def delete(self, verdict: Verdict, *, now: int, actor: str) -> bool:
        """See Schedules.delete."""

        def delete(conn: sa.Connection) -> bool:
            done = schedules.delete(conn, verdict, now, actor)
            if done:
                audit.write(conn, [deleted_entry(verdict.schedule, actor, now)])
            return done

        return await self._transactions.write(delete)


class SqlScheduleHistory:
    """Implements ScheduleHistory."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def ticks(self, uid: ScheduleUid, *, before: int, limit: int) -> Sequence[Tick]:
        """See ScheduleHistory.ticks."""
        return await self._transactions.read(lambda conn: history.ticks(conn, uid, before, limit))

    async def runs(self, uid: ScheduleUid, *, before: int, limit: int) -> Sequence[Run]:
        """See ScheduleHistory.runs."""
        return await self._transactions.read(lambda conn: history.runs(conn, uid, before, limit))

    async def tasks(self, runs: Sequence[Run]) -> Sequence[Task]:
        """See ScheduleHistory.tasks."""
        return await self._transactions.read(lambda conn: history.tasks(conn, runs))

    async def revisions(self, uid: ScheduleUid) -> Sequence[Revision]:
        """See ScheduleHistory.revisions."""
        return await self._transactions.read(lambda conn: history.revisions(conn, uid))

    async def pauses(self, uid: ScheduleUid) -> Sequence[Pause]:
        """See ScheduleHistory.pauses."""
        return await self._transactions.read(lambda conn: history.pauses(conn, uid))

    async def deleted(self, tenant: str, schedule_id: str, *, limit: int) -> Sequence[DeletedSchedule]:
        """See ScheduleHistory.deleted."""
        return await self._transactions.read(lambda conn: history.deleted(conn, tenant, schedule_id, limit))


class SqlJobs:
    """Implements Jobs."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def workflow(self, tenant: str, workflow_id: str, version: int | None = None) -> Workflow | None:
        """See Jobs.workflow."""
        return await self._transactions.read(lambda conn: workflows.workflow(conn, tenant, workflow_id, version))

    async def list_workflows(self, tenant: str, *, after: str, limit: int) -> Sequence[Workflow]:
        """See Jobs.list_workflows."""
        return await self._transactions.read(lambda conn: workflows.list_workflows(conn, tenant, after, limit))

    async def newest_workflows(self, tenant: str, workflow_ids: Sequence[str]) -> Sequence[Workflow]:
        """See Jobs.newest_workflows."""
        return await self._transactions.read(lambda conn: workflows.newest_workflows(conn, tenant, workflow_ids))

    async def apply(self, changes: JobChangeset, *, now: int, actor: str, tzdata: str) -> bool:
        """See Jobs.apply."""

        def apply(conn: sa.Connection) -> None:
            workflows.apply(conn, changes, now, actor, tzdata)
            audit.write(conn, (deployed_entry(one, actor, now) for one in changes.workflows))
            audit.write(conn, (registered_entry(one, actor) for one in changes.added))
            edits = changes.edits
            audit.write(conn, (changed_entry(one.verdict.schedule, one.changed, actor, now) for one in edits))
            audit.write(conn, (deleted_entry(one.schedule, actor, now) for one in changes.removed))

        try:
            await self._transactions.write(apply)
        except workflows.ChangesetConflict:
            return False
        return True


# ---- runs ----------------------------------------------------------------------------------------


class SqlRuns:
    """Implements Runs."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def launch(self, requests: Sequence[LaunchRequest], *, now: int) -> Sequence[LaunchOutcome]:
        """See Runs.launch."""

        def launch(conn: sa.Connection) -> Sequence[LaunchOutcome]:
            outcomes = launches.launch(conn, requests, now)
            audit.write(conn, (launched_entry(*pair, now) for pair in zip(requests, outcomes, strict=True)))
            return outcomes

        return await self._transactions.write(launch)

    async def cancel(self, run_id: RunId, *, reason: str, now: int, actor: str = ENGINE) -> CancelOutcome:
        """See Runs.cancel."""

        def cancel(conn: sa.Connection) -> CancelOutcome:
            if actor == ENGINE:
                return cancellation.cancel(conn, run_id, reason, now)
            before = runs.find_run(conn, run_id)
            outcome = cancellation.cancel(conn, run_id, reason, now)
            after = runs.find_run(conn, run_id)
            changed = outcome in (CancelOutcome.ASKED, CancelOutcome.CANCELLED)
            if changed and before is not None and after is not None:
                audit.write(conn, [cancelled_entry(before, after, actor, now)])
            return outcome

        return await self._transactions.write(cancel)


class SqlExecutions:
    """Implements Executions."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def find_run(self, run_id: RunId) -> Run | None:
        """See Executions.find_run."""
        return await self._transactions.read(lambda conn: runs.find_run(conn, run_id))

    async def list_runs(self, query: RunQuery) -> Sequence[Run]:
        """See Executions.list_runs."""
        return await self._transactions.read(lambda conn: runs.list_runs(conn, query))

    async def run_position(self, query: RunQuery, number: int) -> tuple[int, str] | None:
        """See Executions.run_position."""
        return await self._transactions.read(lambda conn: runs.run_position(conn, query, number))

    async def attempts(self, task_ids: Sequence[TaskId]) -> Sequence[Attempt]:
        """See Executions.attempts."""
        return await self._transactions.read(lambda conn: dead_letters.attempts(conn, task_ids))

    async def payload(self, owner_id: str, kind: str) -> bytes | None:
        """See Executions.payload."""
        return await self._transactions.read(lambda conn: runs.payload(conn, owner_id, kind))

    async def payloads(self, owner_ids: Sequence[str], kind: str) -> Mapping[str, bytes]:
        """See Payloads.payloads."""
        return await self._transactions.read(lambda conn: runs.payloads(conn, owner_ids, kind))

    async def log_lengths(self, task_ids: Sequence[TaskId]) -> Mapping[TaskId, int]:
        """See Executions.log_lengths."""
        return await self._transactions.read(lambda conn: runs.log_lengths(conn, task_ids))

    async def log_lines(self, task_id: TaskId, *, after: int = 0, limit: int = 1000) -> Sequence[LogLine]:
        """See Executions.log_lines."""
        return await self._transactions.read(lambda conn: runs.log_lines(conn, task_id, after, limit))


class SqlBackfills:
    """Implements Backfills."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def add(self, backfill: Backfill) -> bool:
        """See Backfills.add."""

        def add(conn: sa.Connection) -> bool:
            added = backfills.add(conn, backfill)
            if added:
                audit.write(conn, [backfilled_entry(backfill)])
            return added

        return await self._transactions.write(add)

    async def list_open(self, *, limit: int) -> Sequence[OpenBackfill]:
        """See Backfills.list_open."""
        return await self._transactions.read(lambda conn: backfills.list_open(conn, limit))

    async def times_already_run(
        self, uid: ScheduleUid, *, first_at: int, last_at: int
    ) -> Mapping[int, BackfillTickReason]:
        """See Backfills.times_already_run."""
        return await self._transactions.read(lambda conn: backfills.times_already_run(conn, uid, first_at, last_at))

    async def apply_batch(self, batch: BackfillBatch, *, now: int) -> BatchOutcome:
        """See Backfills.apply_batch."""
        return await self._transactions.write(lambda conn: backfills.apply_batch(conn, batch, now))

    async def cancel(self, tenant: str, backfill_id: str, *, now: int, actor: str = ENGINE) -> bool:
        """See Backfills.cancel."""

        def cancel(conn: sa.Connection) -> bool:
            cancelled = backfills.cancel(conn, tenant, backfill_id, now)
            if cancelled is not None and actor != ENGINE:
                audit.write(conn, [backfill_cancelled_entry(cancelled, actor, now)])
            return cancelled is not None

        return await self._transactions.write(cancel)

    async def find(self, tenant: str, backfill_id: str) -> BackfillProgress | None:
        """See Backfills.find."""
        return await self._transactions.read(lambda conn: backfills.find(conn, tenant, backfill_id))

    async def page(
        self, tenant: str, *, job: str | None = None, after: tuple[int, str] | None = None, limit: int = 100
    ) -> Sequence[BackfillProgress]:
        """See Backfills.page."""
        return await self._transactions.read(lambda conn: backfills.page(conn, tenant, job, after, limit))


class SqlDeadLetters:
    """Implements DeadLetters."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def find(self, tenant: str, dead_letter_id: str) -> DeadLetter | None:
        """See DeadLetters.find."""
        return await self._transactions.read(lambda conn: dead_letters.find(conn, tenant, dead_letter_id))

    async def page(
        self, tenant: str, *, job: str | None = None, unresolved: bool = False, after: str = "", limit: int = 100
    ) -> Sequence[DeadLetter]:
        """See DeadLetters.page."""
        return await self._transactions.read(
            lambda conn: dead_letters.page(conn, tenant, job, after, limit, unresolved=unresolved)
        )

    async def resolve(self, tenant: str, dead_letter_ids: Collection[str], *, by: str, now: int) -> int:
        """See DeadLetters.resolve."""

        def resolve(conn: sa.Connection) -> int:
            found = dead_letters.lock_unresolved(conn, tenant, dead_letter_ids)
            audit.write(conn, (resolved_entry(name, tenant, by, now) for name in found))
            return dead_letters.resolve(conn, tenant, found, by, now) if found else 0

        return await self._transactions.write(resolve)


class SqlExternalEvents:
    """Implements EventLog."""

    def __init__(self, transactions: Transactions, unreadable: UnreadableSchedules) -> None:
        self._transactions = transactions
        self._unreadable = unreadable

    async def emit(self, event: ExternalEvent, *, now: int) -> Sequence[EventEffect]:
        """See EventLog.emit."""

        def emit(conn: sa.Connection) -> Sequence[EventEffect]:
            known = external_events.find(conn, event.event_id)
            effects = external_events.emit(conn, event, now, self._unreadable)
            # Another process may have emitted it in the meantime: then its event is the one that is stored.
            if known is None and external_events.find(conn, event.event_id) == event:
                audit.write(conn, [emitted_entry(event)])
            return effects

        return await self._transactions.write(emit)

    async def next_batch_at(self) -> int | None:
        """See EventLog.next_batch_at."""
        return await self._transactions.read(external_events.next_batch_at)

    async def close_batches(self, now: int, *, limit: int) -> Sequence[ScheduleUid]:
        """See EventLog.close_batches."""
        return await self._transactions.write(
            lambda conn: external_events.close_batches(conn, now, limit, self._unreadable)
        )

    async def page(
        self, tenant: str, *, name: str | None = None, after: tuple[int, str] | None = None, limit: int = 100
    ) -> Sequence[ExternalEvent]:
        """See EventLog.page."""
        return await self._transactions.read(lambda conn: external_events.page(conn, tenant, name, after, limit))

    async def find(self, event_id: str) -> ExternalEvent | None:
        """See EventLog.find."""
        return await self._transactions.read(lambda conn: external_events.find(conn, event_id))

    async def effects(self, event_ids: Sequence[str]) -> Sequence[EventEffect]:
        """See EventLog.effects."""
        return await self._transactions.read(lambda conn: external_events.effects(conn, event_ids))


class SqlAuditTrail:
    """Implements AuditTrail."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def add(self, entry: AuditEntry) -> None:
        """See AuditTrail.add."""
        await self._transactions.write(lambda conn: audit.write(conn, [entry]))

    async def page(self, query: AuditQuery) -> Sequence[StoredAuditEntry]:
        """See AuditTrail.page."""
        return await self._transactions.read(lambda conn: audit.page(conn, query))

    async def sealed(self, *, after: int, limit: int) -> Sequence[StoredAuditEntry]:
        """See AuditTrail.sealed."""
        return await self._transactions.read(lambda conn: audit.sealed(conn, after, limit))

    async def head(self) -> tuple[ChainHead, int]:
        """See AuditTrail.head."""
        return await self._transactions.read(audit.head)

    async def seal(self, *, limit: int) -> int:
        """See AuditTrail.seal. Reads first, so that no writer waits while there is nothing to seal."""
        if not await self._transactions.read(audit.has_unsealed):
            return 0
        return await self._transactions.write(lambda conn: audit.seal(conn, limit))


# ---- tasks ---------------------------------------------------------------------------------------


class SqlTasks:
    """Implements PendingTasks."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def waiting(self, now: int, *, limit: int) -> Sequence[ReadyTask]:
        """See PendingTasks.waiting."""
        return await self._transactions.read(lambda conn: tasks.waiting(conn, now, limit))

    async def unroutable_tasks(self, *, after: QueuePosition, limit: int) -> Sequence[ReadyTask]:
        """See PendingTasks.unroutable_tasks."""
        return await self._transactions.read(lambda conn: tasks.unroutable_tasks(conn, after, limit))

    async def next_available_at(self) -> int | None:
        """See PendingTasks.next_available_at."""
        return await self._transactions.read(tasks.next_available_at)

    async def admit(self, admissions: Sequence[Admission], *, now: int) -> frozenset[TaskId]:
        """See PendingTasks.admit."""
        return await self._transactions.write(lambda conn: tasks.admit(conn, admissions, now))

    async def fan_out(self, unfoldings: Sequence[FanOut], *, now: int) -> frozenset[TaskId]:
        """See PendingTasks.fan_out."""
        return await self._transactions.write(lambda conn: fan_out(conn, unfoldings, now))


class SqlAttempts:
    """Implements Attempts."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

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
        """See Attempts.take."""
        engine = self._transactions

        def take(conn: sa.Connection) -> Sequence[ReadyTask]:
            if conn.dialect.name == "postgresql":
                return tasks.take_on_postgres(conn, worker, limit, lease_ms, now, begin=begin, known=known, reach=reach)
            until = engine.now(conn) + lease_ms
            return tasks.take(conn, worker, limit, until, now, begin=begin, known=known, reach=reach)

        # A caller that knows no task is not waiting for an admission in the same commit.
        return await engine.write(take, apart=begin and not known)

    async def begin(
        self, held: Collection[AttemptRef], *, now: int, worker: str | None = None
    ) -> frozenset[AttemptRef]:
        """See Attempts.begin."""
        return await self._transactions.write(lambda conn: tasks.begin(conn, held, now, worker))

    async def renew(self, worker: str, held: Collection[AttemptRef], *, lease_ms: int) -> LeaseRenewal:
        """See Attempts.renew."""
        engine = self._transactions
        return await engine.write(lambda conn: tasks.renew(conn, worker, held, engine.now(conn) + lease_ms))

    async def cancel_requests(self, worker: str) -> frozenset[AttemptRef]:
        """See Attempts.cancel_requests."""
        return await self._transactions.read(lambda conn: tasks.cancel_requests(conn, worker))

    async def report(self, endings: Sequence[TaskCompletion]) -> frozenset[AttemptRef]:
        """See Attempts.report."""
        return await self._transactions.write(lambda conn: tasks.report(conn, endings))

    async def assigned_tasks(self, held: Collection[AttemptRef]) -> Sequence[ReadyTask]:
        """See Attempts.assigned_tasks."""
        return await self._transactions.read(lambda conn: tasks.assigned_tasks(conn, held))

    async def open_attempts(self, *, after: TaskId, limit: int) -> OpenAttemptsPage:
        """See Attempts.open_attempts."""
        engine = self._transactions
        return await engine.read(lambda conn: tasks.open_attempts(conn, after, limit, engine.now(conn)))


class SqlTaskPlacement:
    """Implements TaskPlacement."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def in_flight_counts(self) -> InFlightCounts:
        """See TaskPlacement.in_flight_counts."""
        return await self._transactions.read(placement.in_flight_counts)

    async def placements(self, task_ids: Collection[TaskId]) -> Mapping[TaskId, Placement]:
        """See TaskPlacement.placements."""
        return await self._transactions.read(lambda conn: placement.placements(conn, task_ids))

    async def chosen(self) -> Collection[Placement]:
        """See TaskPlacement.chosen."""
        return await self._transactions.read(placement.chosen)

    async def recall_stranded(self) -> Sequence[tuple[TaskId, RunId]]:
        """See TaskPlacement.recall_stranded."""
        engine = self._transactions
        return await engine.write(lambda conn: placement.recall_stranded(conn, engine.now(conn)))


class SqlWorkers:
    """Implements Workers."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def register(self, card: WorkerInfo, *, ttl_ms: int) -> None:
        """See Workers.register."""
        engine = self._transactions
        await engine.write(lambda conn: workers.register_worker(conn, card, ttl_ms, engine.now(conn)))

    async def alive(self) -> Sequence[WorkerInfo]:
        """See Workers.alive."""
        engine = self._transactions
        return await engine.read(lambda conn: workers.workers(conn, engine.now(conn)))

    async def deregister(self, worker: str) -> None:
        """See Workers.deregister."""
        await self._transactions.write(lambda conn: workers.deregister_worker(conn, worker))


# ---- maintenance ---------------------------------------------------------------------------------


class SqlSingletonLeases:
    """Implements SingletonLeases."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def acquire_singleton(self, name: str, holder: str, *, ttl_ms: int) -> bool:
        """See SingletonLeases.acquire_singleton."""
        engine = self._transactions

        def acquire(conn: sa.Connection) -> bool:
            now = engine.now(conn)
            return leases.acquire_singleton(conn, name, holder, now + ttl_ms, now)

        return await engine.write(acquire)

    async def release_singletons(self, holder: str) -> None:
        """See SingletonLeases.release_singletons."""
        await self._transactions.write(lambda conn: leases.release_singletons(conn, holder))


class SqlRetention:
    """Implements RetentionStore."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def retained_schedules(self, *, after: str, limit: int) -> Sequence[RetainedSchedule]:
        """See RetentionStore.retained_schedules."""
        return await self._transactions.read(lambda conn: retention.retained_schedules(conn, after, limit))

    async def tenants(self) -> Sequence[str]:
        """See RetentionStore.tenants."""
        return await self._transactions.read(retention.tenants)

    async def expired_runs(
        self, schedule: RetainedSchedule | None, kept: RetentionHorizons, *, after: RetentionPosition, limit: int
    ) -> RetentionBatch:
        """See RetentionStore.expired_runs."""
        return await self._transactions.read(lambda conn: retention.expired_runs(conn, schedule, kept, after, limit))

    async def expired_ticks(
        self, schedule: RetainedSchedule, kept: RetentionHorizons, *, after: RetentionPosition, limit: int
    ) -> RetentionBatch:
        """See RetentionStore.expired_ticks."""
        return await self._transactions.read(lambda conn: retention.expired_ticks(conn, schedule, kept, after, limit))

    async def expired_events(
        self, tenant: str, before_at: int, *, after: RetentionPosition, limit: int
    ) -> RetentionBatch:
        """See RetentionStore.expired_events."""
        return await self._transactions.read(
            lambda conn: retention.expired_events(conn, tenant, before_at, after, limit)
        )

    async def expired_dead_letters(
        self, tenant: str, before_at: int, *, after: RetentionPosition, limit: int
    ) -> RetentionBatch:
        """See RetentionStore.expired_dead_letters."""
        return await self._transactions.read(
            lambda conn: retention.expired_dead_letters(conn, tenant, before_at, after, limit)
        )

    async def expired_schedule(self, uid: ScheduleUid) -> RetentionBatch:
        """See RetentionStore.expired_schedule."""
        return await self._transactions.read(lambda conn: retention.expired_schedule(conn, uid))

    async def remove(self, batch: RetentionBatch, *, limit: int) -> bool:
        """See RetentionStore.remove."""
        return await self._transactions.write(lambda conn: retention.remove(conn, batch, limit))


class SqlInvariants:
    """Implements InvariantChecks and StuckRuns."""

    def __init__(self, transactions: Transactions, unreadable: UnreadableSchedules) -> None:
        self._transactions = transactions
        self._unreadable = unreadable

    async def stuck_runs(self, *, before_at: int, after: OpenRunPosition, limit: int) -> StuckRunsPage:
        """See StuckRuns.stuck_runs."""
        return await self._transactions.read(lambda conn: invariants.stuck_runs(conn, before_at, after, limit))

    async def repair_runs(self, run_ids: Collection[RunId], *, now: int) -> Sequence[RunId]:
        """See StuckRuns.repair_runs."""
        return await self._transactions.write(lambda conn: invariants.repair_runs(conn, run_ids, now))

    async def schedules_without_next_fire(self, *, after: str, limit: int) -> Sequence[Schedule]:
        """See InvariantChecks.schedules_without_next_fire."""
        return await self._transactions.read(
            lambda conn: invariants.schedules_without_next_fire(conn, after, limit, self._unreadable)
        )

    async def set_next_fire(self, schedule: Schedule, next_fire_at: int) -> bool:
        """See InvariantChecks.set_next_fire."""
        return await self._transactions.write(lambda conn: invariants.set_next_fire(conn, schedule, next_fire_at))

    async def orphaned_attempts(self, *, grace_ms: int, limit: int) -> Sequence[OrphanedAttempt]:
        """See InvariantChecks.orphaned_attempts."""
        engine = self._transactions
        return await engine.read(lambda conn: invariants.orphaned_attempts(conn, engine.now(conn) - grace_ms, limit))

    async def oldest_due(self) -> OverdueSchedule | None:
        """See InvariantChecks.oldest_due."""
        engine = self._transactions
        return await engine.read(lambda conn: invariants.oldest_due(conn, engine.now(conn)))

    async def counted(self, *, after: str, limit: int) -> Sequence[RunCountCheck]:
        """See InvariantChecks.counted."""
        return await self._transactions.read(lambda conn: invariants.counted(conn, after, limit))

    async def recount_runs(self, uids: Collection[ScheduleUid], *, now: int) -> Sequence[ScheduleUid]:
        """See InvariantChecks.recount_runs."""
        return await self._transactions.write(lambda conn: invariants.recount_runs(conn, uids, now))
