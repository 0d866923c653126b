"""The parts of the SQL store about upkeep: audit trail, tokens, leases, retention and invariants."""

from collections.abc import Collection, Sequence

import sqlalchemy as sa

from gnomon.adapters.sql import (
    audit,
    expired_definitions,
    invariants,
    leases,
    retention,
    sign_in_codes,
    tokens,
)
from gnomon.adapters.sql.transactions import Transactions
from gnomon.adapters.sql.unreadable import UnreadableSchedules
from gnomon.core.audit import (
    AuditEntry,
    ChainHead,
    SignedCheckpoint,
    StoredAuditEntry,
)
from gnomon.core.invariants import OrphanedAttempt, OverdueSchedule, RunCountCheck
from gnomon.core.model import (
    RunId,
    Schedule,
    ScheduleUid,
)
from gnomon.core.retention import RetainedSchedule, RetentionHorizons
from gnomon.core.tokens import RevokedTokens, TokenRecord
from gnomon.ports.audit import AuditQuery, CheckpointKey, Sealing, SealOutcome
from gnomon.ports.auth import Caller
from gnomon.ports.maintenance import OpenRunPosition, RetentionBatch, RetentionPosition, StuckRunsPage, VersionsOfRuns
from gnomon.ports.sign_in_codes import SignInCode


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

    async def seal(self, *, limit: int, sealing: Sealing | None = None) -> SealOutcome:
        """See AuditTrail.seal. Reads first, so that no writer waits while there is nothing to seal."""
        if not await self._transactions.read(lambda conn: audit.has_work(conn, sealing)):
            return SealOutcome(0)
        return await self._transactions.write(lambda conn: audit.seal(conn, limit, sealing))

    async def checkpoint(self, kid: str) -> SignedCheckpoint | None:
        """See AuditTrail.checkpoint."""
        return await self._transactions.read(lambda conn: audit.checkpoint(conn, kid))

    async def accept(self, key: CheckpointKey, entry: AuditEntry) -> SignedCheckpoint | None:
        """See AuditTrail.accept."""
        return await self._transactions.write(lambda conn: audit.accept(conn, key, entry))


class SqlTokens:
    """Implements Tokens."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def add(self, record: TokenRecord, *, now: int) -> bool:
        """See Tokens.add."""
        return await self._transactions.write(lambda conn: tokens.add(conn, record, now))

    async def page(self, tenant: str, *, before: str | None, limit: int, now: int) -> Sequence[TokenRecord]:
        """See Tokens.page."""
        return await self._transactions.read(lambda conn: tokens.page(conn, tenant, before, limit, now))

    async def revoke(self, record: TokenRecord, *, now: int) -> bool:
        """See Tokens.revoke."""
        return await self._transactions.write(lambda conn: tokens.revoke(conn, record, now))

    async def revoke_all(self, tenant: str, *, issued_before: int, actor: str, now: int) -> None:
        """See Tokens.revoke_all."""
        await self._transactions.write(lambda conn: tokens.revoke_all(conn, tenant, issued_before, actor, now))

    async def count_revoked(self, tenant: str) -> int:
        """See Tokens.count_revoked."""
        return await self._transactions.read(lambda conn: tokens.count_revoked(conn, tenant))

    async def stamp(self) -> tuple[int, ...]:
        """See Tokens.stamp."""
        return await self._transactions.read(tokens.stamp)

    async def revoked(self) -> RevokedTokens:
        """See Tokens.revoked."""
        return await self._transactions.read(tokens.revoked)


class SqlSignInCodes:
    """Implements SignInCodes."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def issue(self, code: SignInCode, *, actor: str, now: int) -> None:
        """See SignInCodes.issue."""
        await self._transactions.write(lambda conn: sign_in_codes.issue(conn, code, actor, now))

    async def take(self, digest: str, *, now: int) -> Caller | None:
        """See SignInCodes.take."""
        return await self._transactions.write(lambda conn: sign_in_codes.take(conn, digest, now))


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
    """Implements RetainedHistory."""

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

    async def expired_backfills(self, before_at: int, *, after: RetentionPosition, limit: int) -> RetentionBatch:
        """See ExpiredDefinitions.expired_backfills."""
        return await self._transactions.read(
            lambda conn: expired_definitions.expired_backfills(conn, before_at, after, limit)
        )

    async def superseded_workflows(self, before_at: int, *, after: RetentionPosition, limit: int) -> RetentionBatch:
        """See ExpiredDefinitions.superseded_workflows."""
        return await self._transactions.read(
            lambda conn: expired_definitions.superseded_workflows(conn, before_at, after, limit)
        )

    async def versions_of_runs(self, *, after: RunId, limit: int) -> VersionsOfRuns:
        """See ExpiredDefinitions.versions_of_runs."""
        return await self._transactions.read(lambda conn: expired_definitions.versions_of_runs(conn, after, limit))

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
