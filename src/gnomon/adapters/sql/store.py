"""The SQL store: its parts on one object that runs transactions."""

from collections.abc import Sequence

from gnomon.adapters.sql.after_commit import AfterCommitTransactions
from gnomon.adapters.sql.repositories import (
    SqlAttempts,
    SqlAuditTrail,
    SqlBackfills,
    SqlDeadLetters,
    SqlExecutions,
    SqlExternalEvents,
    SqlInvariants,
    SqlJobs,
    SqlLedger,
    SqlRetention,
    SqlRuns,
    SqlScheduleHistory,
    SqlSchedules,
    SqlShards,
    SqlSingletonLeases,
    SqlTaskPlacement,
    SqlTasks,
    SqlWorkers,
)
from gnomon.adapters.sql.stats import SqlStoreStats
from gnomon.adapters.sql.transactions import Transactions
from gnomon.adapters.sql.unreadable import UnreadableSchedules
from gnomon.ports.commit_observer import CommitObserver
from gnomon.ports.coordination import HintCallback


class SqlStore:
    """Implements Store. All parts run their transactions on the same engine."""

    def __init__(
        self, engine: Transactions, *, observers: Sequence[CommitObserver] = (), hint: HintCallback | None = None
    ) -> None:
        """`observers` are told of every commit; `hint` is called for each topic that other processes should look at."""
        self._engine = engine
        transactions: Transactions = engine
        if observers or hint is not None:
            transactions = AfterCommitTransactions(engine, observers=observers, hint=hint)
        self.transactions = transactions
        unreadable = UnreadableSchedules()
        self.ledger = SqlLedger(transactions, unreadable)
        self.shards = SqlShards(transactions)
        self.schedules = SqlSchedules(transactions, unreadable)
        self.history = SqlScheduleHistory(transactions)
        self.jobs = SqlJobs(transactions)
        self.runs = SqlRuns(transactions)
        self.executions = SqlExecutions(transactions)
        self.backfills = SqlBackfills(transactions)
        self.dead_letters = SqlDeadLetters(transactions)
        self.events = SqlExternalEvents(transactions, unreadable)
        self.audit = SqlAuditTrail(transactions)
        self.tasks = SqlTasks(transactions)
        self.attempts = SqlAttempts(transactions)
        self.placement = SqlTaskPlacement(transactions)
        self.workers = SqlWorkers(transactions)
        self.singletons = SqlSingletonLeases(transactions)
        self.retention = SqlRetention(transactions)
        self.invariants = SqlInvariants(transactions, unreadable)
        self.stats = SqlStoreStats(transactions)

    def observed(self, *, observers: Sequence[CommitObserver] = (), hint: HintCallback | None = None) -> "SqlStore":
        """The same store with these observers and hints instead of its own."""
        return SqlStore(self._engine, observers=observers, hint=hint)

    async def now(self) -> int:
        """See Store.now."""
        return await self.transactions.read(self.transactions.now)

    async def close(self) -> None:
        """See Store.close."""
        await self.transactions.close()
