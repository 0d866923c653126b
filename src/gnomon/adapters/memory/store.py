"""The store in memory: its parts on one shared state."""

from collections.abc import Callable
from secrets import token_bytes

from gnomon.adapters.memory.actions import MemoryActionCounts
from gnomon.adapters.memory.agent_sessions import MemoryAgentSessions
from gnomon.adapters.memory.agent_usage import MemoryAgentUsages
from gnomon.adapters.memory.announcements import MemoryAnnouncementQueue, MemoryAnnouncements
from gnomon.adapters.memory.approvals import MemoryApprovals
from gnomon.adapters.memory.audit import MemoryAuditTrail
from gnomon.adapters.memory.backfills import MemoryBackfills
from gnomon.adapters.memory.breakers import MemoryBreakers
from gnomon.adapters.memory.budgets import MemoryBudgetWindows
from gnomon.adapters.memory.calendar import MemoryTickCalendar
from gnomon.adapters.memory.external_events import MemoryExternalEvents
from gnomon.adapters.memory.maintenance import MemoryInvariants, MemoryRetention, MemorySingletonLeases
from gnomon.adapters.memory.output_rulings import MemoryHeldOutputs, MemoryLateChecks, MemoryOutputRulings
from gnomon.adapters.memory.overview import MemoryOverviewCounts
from gnomon.adapters.memory.policies import MemoryPolicies, MemoryPolicyShadows, MemoryRulings
from gnomon.adapters.memory.rules import MemoryRules
from gnomon.adapters.memory.runs import MemoryDeadLetters, MemoryExecutions, MemoryRuns, MemoryRunTasks
from gnomon.adapters.memory.schedules import (
    MemoryJobs,
    MemoryLedger,
    MemoryScheduleHistory,
    MemorySchedules,
    MemoryShards,
    MemoryTickHistory,
)
from gnomon.adapters.memory.sign_in_codes import MemorySignInCodes
from gnomon.adapters.memory.state import MemoryTables
from gnomon.adapters.memory.stats import MemoryStoreStats
from gnomon.adapters.memory.tasks import (
    MemoryAttempts,
    MemoryTaskDeadlines,
    MemoryTaskPlacement,
    MemoryTasks,
    MemoryWorkers,
)
from gnomon.adapters.memory.tokens import MemoryTokens


class MemoryStore:
    """Implements Store. A test that needs a defect replaces a part, or passes rules of its own."""

    def __init__(self, now: Callable[[], int], *, rules: type[MemoryRules] = MemoryRules) -> None:
        state = self.state = MemoryTables(now)
        shared = self.rules = rules(state)
        self.ledger = MemoryLedger(state, shared)
        self.shards = MemoryShards(state)
        self.schedules = MemorySchedules(state, shared)
        self.history = MemoryScheduleHistory(state)
        self.calendar = MemoryTickCalendar(state)
        self.overview = MemoryOverviewCounts(state)
        self.tick_history = MemoryTickHistory(state)
        self.jobs = MemoryJobs(state, self.schedules)
        self.runs = MemoryRuns(state, shared)
        self.executions = MemoryExecutions(state)
        self.run_tasks = MemoryRunTasks(state)
        self.backfills = MemoryBackfills(state, shared)
        self.dead_letters = MemoryDeadLetters(state, shared)
        self.announcements = MemoryAnnouncements(state, shared)
        self.announcement_queue = MemoryAnnouncementQueue(state, shared)
        self.events = MemoryExternalEvents(state, shared)
        self.audit = MemoryAuditTrail(state)
        self.tokens = MemoryTokens(state)
        self.sign_in_codes = MemorySignInCodes(state)
        self.approvals = self.approval_upkeep = MemoryApprovals(state, shared)
        self.actions = MemoryActionCounts(state)
        self.policies = MemoryPolicies(state)
        self.policy_shadows = MemoryPolicyShadows(state, self.policies)
        self.budget_windows = MemoryBudgetWindows(state)
        self.breakers = MemoryBreakers(state, shared)
        self.agent_sessions = MemoryAgentSessions(state)
        self.agent_usages = MemoryAgentUsages(state)
        self.rulings = MemoryRulings(state, shared)
        self.output_rulings = MemoryOutputRulings(state)
        self.held_outputs = MemoryHeldOutputs(state, shared)
        self.late_checks = MemoryLateChecks(state, shared)
        self.tasks = MemoryTasks(state, shared)
        self.attempts = MemoryAttempts(state, shared)
        self.deadlines = MemoryTaskDeadlines(state, shared)
        self.placement = MemoryTaskPlacement(state)
        self.workers = MemoryWorkers(state)
        self.singletons = MemorySingletonLeases(state)
        self.retention = MemoryRetention(state, shared)
        self.invariants = MemoryInvariants(state, shared)
        self.stats = MemoryStoreStats(state, shared)
        self._cursor_key = token_bytes(32)

    async def cursor_key(self) -> bytes:
        """See Store.cursor_key."""
        return self._cursor_key

    async def now(self) -> int:
        """See Store.now."""
        return self.state.now()

    async def close(self) -> None:
        """See Store.close."""
