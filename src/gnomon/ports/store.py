"""The store as a whole: a bundle of parts, each of which implements one or two ports.

A service takes the parts that it needs. A service that needs most of them, and the code that composes services, takes
the bundle.
"""

from typing import Protocol

from gnomon.ports.actions import ActionCounts
from gnomon.ports.agents import AgentSessions, AgentUsages
from gnomon.ports.announcements import AnnouncementQueue, Announcements
from gnomon.ports.approvals import Approvals, ApprovalUpkeep
from gnomon.ports.audit import AuditTrail
from gnomon.ports.breakers import Breakers
from gnomon.ports.budgets import BudgetWindows
from gnomon.ports.calendar import TickCalendar
from gnomon.ports.external_events import EventLog
from gnomon.ports.ledger import Ledger, Shards
from gnomon.ports.maintenance import InvariantChecks, RetainedHistory, SingletonLeases, StoreStatsReader, StuckRuns
from gnomon.ports.output_policy import HeldOutputReader, HeldOutputs, LateChecks, OutputRulings
from gnomon.ports.overview import OverviewCounts
from gnomon.ports.policy import Policies, PolicyShadows, Rulings
from gnomon.ports.runs import Backfills, DeadLetters, Executions, PayloadReader, Runs, RunTasks
from gnomon.ports.schedules import Jobs, ScheduleHistory, Schedules, TickHistory
from gnomon.ports.sign_in_codes import SignInCodes
from gnomon.ports.tasks import Attempts, PendingTasks, TaskDeadlines, TaskPlacement, Workers
from gnomon.ports.tokens import Tokens


class ExecutionStore(Protocol):
    """The parts by which dispatchers, workers and the reconciler move tasks."""

    @property
    def tasks(self) -> PendingTasks:
        """Tasks on their way to a worker."""
        ...

    @property
    def attempts(self) -> Attempts:
        """Attempts at tasks."""
        ...

    @property
    def deadlines(self) -> TaskDeadlines:
        """Tasks with a deadline."""
        ...

    @property
    def placement(self) -> TaskPlacement:
        """Placements of tasks, and counts of those in flight."""
        ...

    @property
    def workers(self) -> Workers:
        """The registered workers."""
        ...

    @property
    def executions(self) -> PayloadReader:
        """Inputs and outputs of runs and tasks."""
        ...

    @property
    def approvals(self) -> Approvals:
        """Approvals of definitions and tasks."""
        ...

    @property
    def actions(self) -> ActionCounts:
        """The actions of models and agents."""
        ...

    @property
    def agent_sessions(self) -> AgentSessions:
        """The sessions of agents."""
        ...

    @property
    def agent_usages(self) -> AgentUsages:
        """The usage of agents."""
        ...

    @property
    def held_outputs(self) -> HeldOutputReader:
        """Outputs that are held back."""
        ...


class InvariantStore(InvariantChecks, StuckRuns, Protocol):
    """Everything that checks and repairs a store."""


class Store(ExecutionStore, Protocol):
    """Every part of a store."""

    @property
    def executions(self) -> Executions:
        """Runs as they are read, with their payloads and logs."""
        ...

    @property
    def ledger(self) -> Ledger:
        """Due schedules and the decisions on their ticks."""
        ...

    @property
    def shards(self) -> Shards:
        """The leases by which nodes divide the schedules."""
        ...

    @property
    def schedules(self) -> Schedules:
        """Schedules as operators register and change them."""
        ...

    @property
    def history(self) -> ScheduleHistory:
        """The past of schedules."""
        ...

    @property
    def calendar(self) -> TickCalendar:
        """Numbers of ticks by time."""
        ...

    @property
    def overview(self) -> OverviewCounts:
        """Counts of what needs attention."""
        ...

    @property
    def tick_history(self) -> TickHistory:
        """The ledger of many schedules at once."""
        ...

    @property
    def jobs(self) -> Jobs:
        """Workflows, and changes to jobs."""
        ...

    @property
    def runs(self) -> Runs:
        """Launching and cancelling runs."""
        ...

    @property
    def run_tasks(self) -> RunTasks:
        """The tasks of runs, as they are read."""
        ...

    @property
    def backfills(self) -> Backfills:
        """Backfills."""
        ...

    @property
    def dead_letters(self) -> DeadLetters:
        """Dead letters."""
        ...

    @property
    def announcements(self) -> Announcements:
        """Announcements, as they are read."""
        ...

    @property
    def announcement_queue(self) -> AnnouncementQueue:
        """Announcements that are to be sent."""
        ...

    @property
    def events(self) -> EventLog:
        """External events."""
        ...

    @property
    def audit(self) -> AuditTrail:
        """The audit trail."""
        ...

    @property
    def tokens(self) -> Tokens:
        """Issued and revoked tokens."""
        ...

    @property
    def sign_in_codes(self) -> SignInCodes:
        """Codes that sign a browser in."""
        ...

    @property
    def breakers(self) -> Breakers:
        """Circuit breakers."""
        ...

    @property
    def policies(self) -> Policies:
        """The versions of the policy."""
        ...

    @property
    def budget_windows(self) -> BudgetWindows:
        """The windows of budgets of the policy."""
        ...

    @property
    def output_rulings(self) -> OutputRulings:
        """The rulings on outputs."""
        ...

    @property
    def late_checks(self) -> LateChecks:
        """The outputs that have to be checked after they were stored."""
        ...

    @property
    def held_outputs(self) -> HeldOutputs:
        """Outputs that are held back, and what is decided about them."""
        ...

    @property
    def policy_shadows(self) -> PolicyShadows:
        """The shadow of the policy."""
        ...

    @property
    def approval_upkeep(self) -> ApprovalUpkeep:
        """Approvals that end, and questions that have to be asked again."""
        ...

    @property
    def rulings(self) -> Rulings:
        """The rulings of the policy."""
        ...

    @property
    def retention(self) -> RetainedHistory:
        """Expired records."""
        ...

    @property
    def invariants(self) -> InvariantStore:
        """Checks and repairs."""
        ...

    @property
    def singletons(self) -> SingletonLeases:
        """Leases for services of which one node at a time runs one."""
        ...

    @property
    def stats(self) -> StoreStatsReader:
        """Statistics for health checks and metrics."""
        ...

    async def cursor_key(self) -> bytes:
        """The key that seals the cursors of lists: random, and the same for every process on the store."""
        ...

    async def now(self) -> int:
        """The store's clock, by which leases are judged."""
        ...

    async def close(self) -> None:
        """Finish what was asked for and close every connection."""
        ...
