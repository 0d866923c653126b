"""The services that operators and programs use on one store."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

from gnomon.adapters.host import RandomIds, SystemClock, tzdata_version
from gnomon.adapters.structured_log import LoggedEvents
from gnomon.app.gate import build_command_policy, build_model_actions
from gnomon.app.maintenance import build_cleaner
from gnomon.app.policy import parse_policy_text
from gnomon.app.settings import catchup_limit, schedule_defaults
from gnomon.app.stores import ConnectedStore, open_store
from gnomon.config.agents import agent_catalog
from gnomon.config.channels import channel_rules
from gnomon.config.settings import Settings
from gnomon.core.agents.usage import daily_limit_micros
from gnomon.ports.runtime import Clock, Events
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
from gnomon.services.operations.dead_letters import DeadLetterService
from gnomon.services.operations.events import EventService
from gnomon.services.operations.executions import ExecutionService
from gnomon.services.operations.explain import Explainer
from gnomon.services.operations.job_plan import Planner
from gnomon.services.operations.jobs import JobService
from gnomon.services.operations.launcher import Launcher
from gnomon.services.operations.policy import PolicyService
from gnomon.services.operations.policy_outlook import PolicyOutlook
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
        clock, ids = clock or SystemClock(), RandomIds()
        compute = self.compute = compute or ComputeQueue()
        timeout = settings.execution.default_timeout_ms
        self.store, self.clock = store, clock
        self.command_policy = build_command_policy(settings, store, clock, compute=compute)
        self.model_actions = build_model_actions(settings, store, clock)
        self.policy = PolicyService(
            store.policies,
            store.rulings,
            store.executions,
            store.jobs,
            store.schedules,
            clock,
            shadows=store.policy_shadows,
            parse=parse_policy_text,
            compute=compute,
        )
        self.approvals = ApprovalService(
            store.approvals,
            store.executions,
            store.jobs,
            clock,
            break_glass=settings.policy.break_glass,
        )
        self.jobs = JobService(
            store.jobs,
            store.schedules,
            store.history,
            clock,
            ids,
            compute=compute,
            tzdata=tzdata_version(),
            default_timeout_ms=timeout,
            command_tenants=settings.shell.tenants,
            channels=channel_rules(settings.channels),
            agents=agent_catalog(settings.agents),
            command_policy=self.command_policy,
            catchup_limit=catchup_limit(settings),
        )
        self.policy_outlook = PolicyOutlook(
            store.policies, parse=parse_policy_text, compute=compute, by_kernel=bool(settings.policy.kernel)
        )
        self.planner = Planner(self.jobs, store.jobs, clock, compute, outlook=self.policy_outlook)
        self.launcher = Launcher(store.runs, store.executions, store.jobs, store.schedules, clock, ids, compute=compute)
        self.executions = ExecutionService(
            store.runs, store.executions, store.run_tasks, store.jobs, clock, announcements=store.announcements
        )
        self.workflows = WorkflowService(
            store.jobs,
            store.schedules,
            clock,
            ids,
            compute=compute,
            defaults=schedule_defaults(settings),
            tzdata=tzdata_version(),
            command_tenants=settings.shell.tenants,
            channels=channel_rules(settings.channels),
            agents=agent_catalog(settings.agents),
            command_policy=self.command_policy,
            catchup_limit=catchup_limit(settings),
        )
        self.events = EventService(store.events, clock, ids, compute)
        self.backfills = BackfillService(store.backfills, store.schedules, clock, ids, compute)
        self.audit = AuditService(store.audit)
        self.tokens = TokenService(store.tokens, clock, max_lifetime_ms=settings.auth.max_lifetime_ms)
        self.agent_usage = AgentUsageService(
            store.agent_usages, clock, daily_limit=daily_limit_micros(settings.agents.max_cost_per_day)
        )
        self.agent_sessions = AgentSessionService(store.agent_sessions, clock)
        self.breakers = BreakerService(store.breakers, clock)
        self.announcements = AnnouncementService(store.announcements, clock)
        self.dead_letters = DeadLetterService(store.dead_letters, store.executions, self.launcher, clock)
        self.explainer = Explainer(
            store,
            clock,
            settings=settings,
            compute=compute,
            catchup_limit=catchup_limit(settings),
            outlook=self.policy_outlook,
        )
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
