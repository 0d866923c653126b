"""The parts of the SQL store about runs: launches, reading, backfills, dead letters and events."""

from collections.abc import Collection, Mapping, Sequence

import sqlalchemy as sa

from gnomon.adapters.sql import (
    announcement_queue,
    announcements,
    audit,
    backfills,
    cancellation,
    dead_letters,
    external_events,
    launches,
    rollbacks,
    run_tasks,
    runs,
)
from gnomon.adapters.sql.payloads import fingerprinted
from gnomon.adapters.sql.transactions import Transactions
from gnomon.adapters.sql.unreadable import UnreadableSchedules
from gnomon.core.announcements.model import Announcement
from gnomon.core.audit import (
    backfill_cancelled_entry,
    backfilled_entry,
    cancelled_entry,
    emitted_entry,
    launched_entry,
    resolved_entry,
    rolled_back_entry,
)
from gnomon.core.model import (
    ENGINE,
    Attempt,
    DeadLetter,
    LogLine,
    Run,
    RunId,
    ScheduleUid,
    Task,
    TaskId,
)
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
from gnomon.core.runs.rollback import RollbackOutcome
from gnomon.core.runs.states import TaskState
from gnomon.ports.announcements import AnnouncementClaim, AnnouncementQuery, AnnouncementUpdate
from gnomon.ports.runs import (
    ItemQuery,
    LetterGroups,
    LetterPage,
    LetterPosition,
    LetterQuery,
    LogQuery,
    RunQuery,
    StepLogLine,
)


class SqlRuns:
    """Implements Runs."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def launch(self, requests: Sequence[LaunchRequest], *, now: int) -> Sequence[LaunchOutcome]:
        """See Runs.launch."""

        def launch(conn: sa.Connection) -> Sequence[LaunchOutcome]:
            outcomes = launches.launch(conn, requests, now)
            audited = [fingerprinted(conn, request) for request in requests]
            audit.write(conn, (launched_entry(*pair, now) for pair in zip(audited, outcomes, strict=True)))
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

    async def roll_back(self, run_id: RunId, *, reason: str, now: int, actor: str) -> RollbackOutcome:
        """See Runs.roll_back."""

        def roll_back(conn: sa.Connection) -> RollbackOutcome:
            before = runs.find_run(conn, run_id)
            outcome = rollbacks.roll_back(conn, run_id, reason, now)
            after = runs.find_run(conn, run_id)
            if outcome is RollbackOutcome.STARTED and before is not None and after is not None:
                audit.write(conn, [rolled_back_entry(before, after, actor, now)])
            return outcome

        return await self._transactions.write(roll_back)


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

    async def find_by_prefix(self, tenant: str, prefix: str, *, limit: int) -> Sequence[Run]:
        """See Executions.find_by_prefix."""
        return await self._transactions.read(lambda conn: runs.find_by_prefix(conn, tenant, prefix, limit))

    async def run_position(self, query: RunQuery, number: int) -> tuple[int, str] | None:
        """See Executions.run_position."""
        return await self._transactions.read(lambda conn: runs.run_position(conn, query, number))

    async def excluding_runs(self, *, limit: int) -> Sequence[Run]:
        """See Executions.excluding_runs."""
        return await self._transactions.read(lambda conn: runs.excluding_runs(conn, limit))

    async def attempts(self, task_ids: Sequence[TaskId]) -> Sequence[Attempt]:
        """See Executions.attempts."""
        return await self._transactions.read(lambda conn: dead_letters.attempts(conn, task_ids))

    async def payload(self, owner_id: str, kind: str) -> bytes | None:
        """See Executions.payload."""
        return await self._transactions.read(lambda conn: runs.payload(conn, owner_id, kind))

    async def payloads(self, owner_ids: Sequence[str], kind: str) -> Mapping[str, bytes]:
        """See PayloadReader.payloads."""
        return await self._transactions.read(lambda conn: runs.payloads(conn, owner_ids, kind))

    async def log_lines(self, task_id: TaskId, *, after: int = 0, limit: int = 1000) -> Sequence[LogLine]:
        """See Executions.log_lines."""
        return await self._transactions.read(lambda conn: runs.log_lines(conn, task_id, after, limit))


class SqlRunTasks:
    """Implements RunTasks."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def steps(self, runs: Sequence[RunId], *, items: int = 0) -> Sequence[Task]:
        """See RunTasks.steps."""
        return await self._transactions.read(lambda conn: run_tasks.steps(conn, runs, items))

    async def items(self, query: ItemQuery) -> Sequence[Task]:
        """See RunTasks.items."""
        return await self._transactions.read(lambda conn: run_tasks.items(conn, query))

    async def item_counts(self, run_id: RunId) -> Mapping[str, Mapping[TaskState, int]]:
        """See RunTasks.item_counts."""
        return await self._transactions.read(lambda conn: run_tasks.item_counts(conn, run_id))

    async def attempt_numbers(self, runs: Sequence[RunId]) -> Mapping[RunId, int]:
        """See RunTasks.attempt_numbers."""
        return await self._transactions.read(lambda conn: run_tasks.attempt_numbers(conn, runs))

    async def log(self, query: LogQuery) -> Sequence[StepLogLine]:
        """See RunTasks.log."""
        return await self._transactions.read(lambda conn: run_tasks.log(conn, query))


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
        self,
        tenant: str,
        *,
        job: str | None = None,
        unresolved: bool = False,
        oldest_first: bool = False,
        after: LetterPosition | None = None,
        limit: int = 100,
    ) -> Sequence[DeadLetter]:
        """See DeadLetters.page."""
        query = LetterQuery(
            tenant=tenant, job=job, unresolved=unresolved, oldest_first=oldest_first, after=after, limit=limit
        )
        return await self._transactions.read(lambda conn: dead_letters.page(conn, query))

    async def search(self, query: LetterQuery) -> LetterPage:
        """See DeadLetters.search."""
        return await self._transactions.read(lambda conn: dead_letters.search(conn, query))

    async def groups(self, query: LetterQuery) -> LetterGroups:
        """See DeadLetters.groups."""
        return await self._transactions.read(lambda conn: dead_letters.groups(conn, query))

    async def find_by_prefix(self, tenant: str, prefix: str, *, limit: int) -> Sequence[DeadLetter]:
        """See DeadLetters.find_by_prefix."""
        return await self._transactions.read(lambda conn: dead_letters.find_by_prefix(conn, tenant, prefix, limit))

    async def of_execution(self, tenant: str, dead_letter_id: str) -> Sequence[str]:
        """See DeadLetters.of_execution."""
        return await self._transactions.read(lambda conn: dead_letters.of_execution(conn, tenant, [dead_letter_id]))

    async def resolve(self, tenant: str, dead_letter_ids: Collection[str], *, by: str, actor: str, now: int) -> int:
        """See DeadLetters.resolve."""

        def resolve(conn: sa.Connection) -> int:
            found = dead_letters.lock_unresolved(conn, tenant, dead_letter_ids)
            audit.write(conn, (resolved_entry(name, tenant, by, actor, now) for name in found))
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


class SqlAnnouncements:
    """Implements Announcements."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def find(self, tenant: str, announcement_id: str) -> Announcement | None:
        """See Announcements.find."""
        return await self._transactions.read(lambda conn: announcements.find(conn, tenant, announcement_id))

    async def page(self, query: AnnouncementQuery) -> Sequence[Announcement]:
        """See Announcements.page."""
        return await self._transactions.read(lambda conn: announcements.page(conn, query))

    async def find_by_prefix(self, tenant: str, prefix: str, *, limit: int) -> Sequence[Announcement]:
        """See Announcements.find_by_prefix."""
        return await self._transactions.read(lambda conn: announcements.find_by_prefix(conn, tenant, prefix, limit))

    async def of_runs(self, runs: Sequence[RunId]) -> Mapping[RunId, Sequence[Announcement]]:
        """See Announcements.of_runs."""
        return await self._transactions.read(lambda conn: announcements.of_runs(conn, runs))

    async def retry(self, tenant: str, announcement_id: str, *, actor: str, now: int) -> bool:
        """See Announcements.retry."""
        return await self._transactions.write(
            lambda conn: announcements.retry(conn, tenant, announcement_id, actor, now)
        )


class SqlAnnouncementQueue:
    """Implements AnnouncementQueue."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def claim(self, claim: AnnouncementClaim) -> Sequence[Announcement]:
        """See AnnouncementQueue.claim."""
        engine = self._transactions
        return await engine.write(lambda conn: announcement_queue.claim(conn, claim, engine.now(conn)))

    async def update(self, updates: Sequence[AnnouncementUpdate], *, now: int) -> frozenset[str]:
        """See AnnouncementQueue.update."""
        engine = self._transactions
        return await engine.write(lambda conn: announcement_queue.update(conn, updates, engine.now(conn), now))

    async def give_up_stale(self, channel: str, *, since_before: int, note: str, limit: int, now: int) -> Sequence[str]:
        """See AnnouncementQueue.give_up_stale."""
        engine = self._transactions

        def give_up(conn: sa.Connection) -> Sequence[str]:
            return announcement_queue.give_up_stale(
                conn, channel, since_before=since_before, note=note, limit=limit, store_now=engine.now(conn), now=now
            )

        return await engine.write(give_up)

    async def next_at(self) -> int | None:
        """See AnnouncementQueue.next_at."""
        return await self._transactions.read(announcement_queue.next_at)
