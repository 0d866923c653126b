"""The SQL store: its parts on one object that runs transactions."""

from collections.abc import Callable, Sequence

from gnomon.adapters.sql.after_commit import AfterCommitTransactions
from gnomon.adapters.sql.agent_sessions import SqlAgentSessions
from gnomon.adapters.sql.agent_usage import SqlAgentUsages
from gnomon.adapters.sql.calendar import SqlTickCalendar
from gnomon.adapters.sql.change_log import ChangeLogWriter, SqlChangeLog
from gnomon.adapters.sql.metrics_outbox import SqlMetricsOutbox
from gnomon.adapters.sql.migrator import cursor_key
from gnomon.adapters.sql.one_shots import RetiringTransactions
from gnomon.adapters.sql.overview import SqlOverviewCounts
from gnomon.adapters.sql.repositories.breakers import SqlBreakers
from gnomon.adapters.sql.repositories.budgets import SqlBudgetWindows
from gnomon.adapters.sql.repositories.maintenance import (
    SqlAuditTrail,
    SqlInvariants,
    SqlRetention,
    SqlSignInCodes,
    SqlSingletonLeases,
    SqlTokens,
)
from gnomon.adapters.sql.repositories.policy import (
    SqlApprovals,
    SqlHeldOutputs,
    SqlLateChecks,
    SqlOutputRulings,
    SqlPolicies,
    SqlPolicyShadows,
    SqlRulings,
)
from gnomon.adapters.sql.repositories.runs import (
    SqlAnnouncementQueue,
    SqlAnnouncements,
    SqlBackfills,
    SqlDeadLetters,
    SqlExecutions,
    SqlExternalEvents,
    SqlRuns,
    SqlRunTasks,
)
from gnomon.adapters.sql.repositories.schedules import (
    SqlJobs,
    SqlLedger,
    SqlScheduleHistory,
    SqlSchedules,
    SqlShards,
    SqlTickHistory,
)
from gnomon.adapters.sql.repositories.tasks import (
    SqlActionCounts,
    SqlAttempts,
    SqlTaskDeadlines,
    SqlTaskPlacement,
    SqlTasks,
    SqlWorkers,
)
from gnomon.adapters.sql.schedules import retire_one_shot
from gnomon.adapters.sql.stats import SqlStoreStats
from gnomon.adapters.sql.transactions import Transactions
from gnomon.adapters.sql.unreadable import UnreadableSchedules
from gnomon.ports.commit_observer import CommitJournal, CommitObserver
from gnomon.ports.coordination import HintCallback


class SqlStore:
    """Implements Store. All parts run their transactions on the same engine."""

    def __init__(
        self,
        engine: Transactions,
        *,
        observers: Sequence[CommitObserver] = (),
        hint: HintCallback | None = None,
        journal: Callable[[], CommitJournal] | None = None,
        change_log: ChangeLogWriter | None = None,
    ) -> None:
        """`observers` are called for every commit; `hint` is called for each topic that other processes should look at.

        With `journal`, which makes one for each transaction, every commit is written down for a server to count, and
        with `change_log`, for the followers of other servers.
        """
        self._engine = engine
        transactions: Transactions = engine
        if observers or hint is not None or journal is not None or change_log is not None:
            transactions = AfterCommitTransactions(
                engine, observers=observers, hint=hint, journal=journal, change_log=change_log
            )
        self.transactions = transactions = RetiringTransactions(transactions, retire=retire_one_shot)
        unreadable = UnreadableSchedules()
        self.ledger = SqlLedger(transactions, unreadable)
        self.shards = SqlShards(transactions)
        self.schedules = SqlSchedules(transactions, unreadable)
        self.history = SqlScheduleHistory(transactions)
        self.calendar = SqlTickCalendar(transactions)
        self.overview = SqlOverviewCounts(transactions, unreadable)
        self.tick_history = SqlTickHistory(transactions)
        self.jobs = SqlJobs(transactions)
        self.runs = SqlRuns(transactions)
        self.executions = SqlExecutions(transactions)
        self.run_tasks = SqlRunTasks(transactions)
        self.backfills = SqlBackfills(transactions)
        self.dead_letters = SqlDeadLetters(transactions)
        self.announcements = SqlAnnouncements(transactions)
        self.announcement_queue = SqlAnnouncementQueue(transactions)
        self.events = SqlExternalEvents(transactions, unreadable)
        self.audit = SqlAuditTrail(transactions)
        self.tokens = SqlTokens(transactions)
        self.sign_in_codes = SqlSignInCodes(transactions)
        self.approvals = self.approval_upkeep = SqlApprovals(transactions)
        self.policies = SqlPolicies(transactions)
        self.policy_shadows = SqlPolicyShadows(transactions)
        self.budget_windows = SqlBudgetWindows(transactions)
        self.breakers = SqlBreakers(transactions)
        self.agent_sessions = SqlAgentSessions(transactions)
        self.agent_usages = SqlAgentUsages(transactions)
        self.rulings = SqlRulings(transactions)
        self.output_rulings = SqlOutputRulings(transactions)
        self.held_outputs = SqlHeldOutputs(transactions)
        self.late_checks = SqlLateChecks(transactions)
        self.tasks = SqlTasks(transactions)
        self.actions = SqlActionCounts(transactions)
        self.attempts = SqlAttempts(transactions)
        self.deadlines = SqlTaskDeadlines(transactions)
        self.placement = SqlTaskPlacement(transactions)
        self.workers = SqlWorkers(transactions)
        self.singletons = SqlSingletonLeases(transactions)
        self.retention = SqlRetention(transactions)
        self.invariants = SqlInvariants(transactions, unreadable)
        self.stats = SqlStoreStats(transactions)
        self.metrics_outbox = SqlMetricsOutbox(transactions)
        self.changes = SqlChangeLog(transactions)
        self._cursor_key: bytes | None = None

    def observed(
        self,
        *,
        observers: Sequence[CommitObserver] = (),
        hint: HintCallback | None = None,
        journal: Callable[[], CommitJournal] | None = None,
        change_log: ChangeLogWriter | None = None,
    ) -> "SqlStore":
        """The same store with these observers, hints, journals and log of changes instead of its own."""
        return SqlStore(self._engine, observers=observers, hint=hint, journal=journal, change_log=change_log)

    async def cursor_key(self) -> bytes:
        """See Store.cursor_key."""
        if self._cursor_key is None:
            self._cursor_key = await self.transactions.read(cursor_key)
        return self._cursor_key

    async def now(self) -> int:
        """See Store.now."""
        return await self.transactions.read(self.transactions.now)

    async def close(self) -> None:
        """See Store.close."""
        await self.transactions.close()
