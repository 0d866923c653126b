"""The services that operators and programs use on one store."""

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import NamedTuple, Self, TypedDict

from gnomon.adapters.host import RandomIds, SystemClock, tzdata_version
from gnomon.adapters.structured_log import LoggedEvents
from gnomon.app.gate import build_command_policy, build_model_actions, held_output_cipher, offered_agents
from gnomon.app.maintenance import build_cleaner
from gnomon.app.policy import parse_policy_text
from gnomon.app.settings import catchup_limit, schedule_defaults
from gnomon.app.stores import ConnectedStore, open_store
from gnomon.config.channels import channel_rules
from gnomon.config.settings import Settings
from gnomon.core.agents.catalog import AgentCatalog
from gnomon.core.agents.usage import daily_limit_micros
from gnomon.core.announcements.channels import Channels
from gnomon.core.ledger.plan import CatchupLimit
from gnomon.ports.runtime import Clock, Events, Ids
from gnomon.ports.store import Store
from gnomon.services.coordination import AlwaysHeldSingleton
from gnomon.services.loop import ComputeQueue
from gnomon.services.observed_events import NullEvents
from gnomon.services.operations.agent_sessions import AgentSessionService
from gnomon.services.operations.agents import AgentUsageService
from gnomon.services.operations.announcements import AnnouncementService
from gnomon.services.operations.approvals import ApprovalService
from gnomon.services.operations.audit import AuditService
from gnomon.services.operations.backfills import BackfillService
from gnomon.services.operations.breakers import BreakerService
from gnomon.services.operations.command_policy import CommandPolicyService
from gnomon.services.operations.dead_letters import DeadLetterService
from gnomon.services.operations.events import EventService
from gnomon.services.operations.executions import ExecutionService
from gnomon.services.operations.explain import Explainer
from gnomon.services.operations.job_plan import Planner
from gnomon.services.operations.jobs import JobService
from gnomon.services.operations.launcher import Launcher
from gnomon.services.operations.policy import PolicyService
from gnomon.services.operations.policy_outlook import PolicyOutlook
from gnomon.services.operations.quarantine import QuarantineService
from gnomon.services.operations.sign_in_codes import SignInCodeService
from gnomon.services.operations.tokens import TokenService
from gnomon.services.operations.workflows import WorkflowService


class Operations:
    """Jobs, executions, events, dead letters and all other operations on one store."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        clock: Clock | None = None,
        compute: ComputeQueue | None = None,
        events: Events | None = None,
    ) -> None:
        """`compute` runs long computations; a process that also schedules has one that knows when it is busy."""
        common = _Common(store, settings, clock or SystemClock(), RandomIds(), compute or ComputeQueue())
        clock, ids, compute = common.clock, common.ids, common.compute
        self.store, self.clock, self.compute = store, clock, compute
        # ---- policies
        self.command_policy = build_command_policy(settings, store, clock, compute=compute)
        self.model_actions = build_model_actions(settings, store, clock)
        self.policy = _policy(common)
        self.policy_outlook = _policy_outlook(common)
        self.approvals = _approvals(common, self.command_policy)
        self.quarantine = QuarantineService(store.held_outputs, clock, cipher=held_output_cipher(settings))
        self.breakers = BreakerService(store.breakers, clock)
        # ---- definitions
        checks = _definition_checks(common, self.command_policy)
        self.jobs = _jobs(common, checks)
        self.workflows = _workflows(common, checks)
        self.planner = Planner(self.jobs, store.jobs, clock, compute, outlook=self.policy_outlook)
        # ---- runs
        self.launcher = Launcher(store.runs, store.executions, store.jobs, store.schedules, clock, ids, compute=compute)
        self.executions = _executions(common)
        self.events = EventService(store.events, clock, ids, compute)
        self.backfills = BackfillService(store.backfills, store.schedules, clock, ids, compute)
        self.dead_letters = DeadLetterService(store.dead_letters, store.executions, self.launcher, clock)
        self.agent_usage = _agent_usage(common)
        self.agent_sessions = AgentSessionService(store.agent_sessions, clock)
        # ---- records
        self.announcements = AnnouncementService(store.announcements, clock)
        self.audit = AuditService(store.audit)
        self.sign_in_codes = SignInCodeService(store.sign_in_codes, clock)
        self.tokens = TokenService(store.tokens, clock, max_lifetime_ms=settings.auth.max_lifetime_ms)
        self.explainer = _explainer(common, self.policy_outlook)
        self.cleaner = build_cleaner(store, settings, clock, events or LoggedEvents(), lease=AlwaysHeldSingleton())

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: Settings, *, make: bool = True) -> AsyncIterator[Self]:
        """The operations on the store that the settings name; NoDatabase if it is a missing file and not `make`."""
        opened = ConnectedStore.observed(await open_store(settings, create=make), settings, NullEvents())
        try:
            yield cls(opened.store, settings)
        finally:
            await opened.close()


class _Common(NamedTuple):
    """The collaborators that most services share."""

    store: Store
    settings: Settings
    clock: Clock
    ids: Ids
    compute: ComputeQueue


class _DefinitionChecks(TypedDict):
    """The arguments by which jobs and workflows are checked alike."""

    compute: ComputeQueue
    tzdata: str
    command_tenants: Collection[str]
    channels: Channels
    agents: AgentCatalog
    command_policy: CommandPolicyService
    catchup_limit: CatchupLimit


def _definition_checks(common: _Common, command_policy: CommandPolicyService) -> _DefinitionChecks:
    settings = common.settings
    return _DefinitionChecks(
        compute=common.compute,
        tzdata=tzdata_version(),
        command_tenants=settings.shell.tenants,
        channels=channel_rules(settings.channels),
        agents=offered_agents(settings),
        command_policy=command_policy,
        catchup_limit=catchup_limit(settings),
    )


def _jobs(common: _Common, checks: _DefinitionChecks) -> JobService:
    store, timeout = common.store, common.settings.execution.default_timeout_ms
    return JobService(
        store.jobs, store.schedules, store.history, common.clock, common.ids, default_timeout_ms=timeout, **checks
    )


def _workflows(common: _Common, checks: _DefinitionChecks) -> WorkflowService:
    store, defaults = common.store, schedule_defaults(common.settings)
    return WorkflowService(store.jobs, store.schedules, common.clock, common.ids, defaults=defaults, **checks)


def _policy(common: _Common) -> PolicyService:
    store = common.store
    return PolicyService(
        store.policies,
        store.rulings,
        store.executions,
        store.jobs,
        store.schedules,
        common.clock,
        shadows=store.policy_shadows,
        budget_windows=store.budget_windows,
        parse=parse_policy_text,
        compute=common.compute,
    )


def _policy_outlook(common: _Common) -> PolicyOutlook:
    by_kernel = bool(common.settings.policy.kernel)
    return PolicyOutlook(common.store.policies, parse=parse_policy_text, compute=common.compute, by_kernel=by_kernel)


def _approvals(common: _Common, commands: CommandPolicyService) -> ApprovalService:
    store, groups = common.store, common.settings.policy.break_glass
    return ApprovalService(
        store.approvals,
        store.executions,
        store.jobs,
        common.clock,
        commands,
        break_glass=groups,
        compute=common.compute,
    )


def _executions(common: _Common) -> ExecutionService:
    store = common.store
    return ExecutionService(
        store.runs, store.executions, store.run_tasks, store.jobs, common.clock, announcements=store.announcements
    )


def _agent_usage(common: _Common) -> AgentUsageService:
    limit = daily_limit_micros(common.settings.agents.max_cost_per_day)
    return AgentUsageService(common.store.agent_usages, common.clock, daily_limit=limit)


def _explainer(common: _Common, outlook: PolicyOutlook) -> Explainer:
    return Explainer(
        common.store,
        common.clock,
        settings=common.settings,
        compute=common.compute,
        catchup_limit=catchup_limit(common.settings),
        outlook=outlook,
    )
