"""The API in this process, on a store in memory and a clock that stands still, and callers of every role."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import httpx
from msgspec.structs import replace

from contracts.store import NOON
from gnomon.adapters.dry_run_process import DryRunProcesses
from gnomon.adapters.memory import MemoryStore
from gnomon.adapters.policy_file import parse_policy
from gnomon.api.app import create_app
from gnomon.api.middleware import App, with_request_checks
from gnomon.api.route import ApiServices
from gnomon.config.sections import SecuritySettings, ServerSettings
from gnomon.core import component_names
from gnomon.core.agents.sessions import StoredTurn
from gnomon.core.announcements.model import AnnouncementState, AnnounceRule
from gnomon.core.approvals.decide import asked_approval
from gnomon.core.approvals.model import Approval
from gnomon.core.approvals.terms import ApprovalTerms
from gnomon.core.breakers import BreakerLimits
from gnomon.core.commands.rules import CommandRules
from gnomon.core.health import ComponentHealth, HealthCondition, NodeHealth
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.model import DAY_MS, Result, RunId, TaskId
from gnomon.core.named_breakers import BreakerKey, BreakerUse, RequestOutcome
from gnomon.core.output_policy.ruling import OutputCheck, OutputDecision, OutputRuling
from gnomon.core.policy.ruling import PolicyDecision, Ruling
from gnomon.core.runs.states import TaskState
from gnomon.core.runs.workflow import Workflow
from gnomon.errors import TokenMissing, Unauthenticated
from gnomon.ports.announcements import AnnouncementClaim, AnnouncementUpdate
from gnomon.ports.auth import Caller, Role
from gnomon.services.loop import ComputeQueue
from gnomon.services.observability.change_stream import ChangeStream
from gnomon.services.operations.agent_sessions import AgentSessionService
from gnomon.services.operations.agents import AgentUsageService
from gnomon.services.operations.announcements import AnnouncementService
from gnomon.services.operations.approvals import ApprovalService
from gnomon.services.operations.audit import AuditService
from gnomon.services.operations.backfills import BackfillService
from gnomon.services.operations.breakers import BreakerService
from gnomon.services.operations.bulk_changes import BulkChangeService
from gnomon.services.operations.calendar import CalendarService
from gnomon.services.operations.command_policy import CommandPolicyService
from gnomon.services.operations.dead_letters import DeadLetterService
from gnomon.services.operations.events import EventService
from gnomon.services.operations.executions import ExecutionService, SearchService
from gnomon.services.operations.explain import Explainer
from gnomon.services.operations.job_plan import Planner
from gnomon.services.operations.job_revisions import JobRevisionService
from gnomon.services.operations.job_search import JobSearchService
from gnomon.services.operations.jobs import JobService
from gnomon.services.operations.launcher import Launcher
from gnomon.services.operations.model_actions import ModelActions
from gnomon.services.operations.overview import OverviewService
from gnomon.services.operations.policy import PolicyService
from gnomon.services.operations.policy_outlook import PolicyOutlook
from gnomon.services.operations.quarantine import QuarantineService
from gnomon.services.operations.schedules import ScheduleService
from gnomon.services.operations.sign_in_codes import SignInCodeService
from gnomon.services.operations.tasks import TaskService
from gnomon.services.operations.tokens import TokenService
from gnomon.services.operations.workflows import WorkflowService
from gnomon.testing.clock import CountedIds, Recorder, VirtualClock
from support.task_steps import admission, completion_of, take_task, workflow

JOB: dict[str, Any] = {"name": "report", "schedule": "0 9 * * *", "function": "reports.make", "tags": ["numbers"]}


class RoleTokens:
    """A token names its role, and the tenant after a slash; or role, caller and groups between tildes."""

    async def caller(self, token: str) -> Caller:
        named, _, tenant = token.partition("/")
        role, _, person = named.partition("~")
        name, _, members = person.partition("~")
        if not token:
            raise TokenMissing
        if role not in ("viewer", "operator", "admin", "nothing"):
            raise Unauthenticated("that token is nobody's")
        roles = frozenset() if role == "nothing" else frozenset({Role(f"scheduler-{role}")})
        groups = frozenset(filter(None, (members if person else "finance+on-call").split("+")))
        return Caller(name or f"{role}@example.com", roles, tenant or "default", groups=groups)


class ApiFixture:
    """The API with its store, clock and services."""

    def __init__(self, *, server: ServerSettings | None = None, security: SecuritySettings | None = None) -> None:
        self.clock = VirtualClock(NOON)
        self.store = store = MemoryStore(self.clock.now)
        self.unhandled_errors: list[BaseException] = []
        self.login_failures: list[Unauthenticated] = []
        #: The events of its connections, if it is served on a socket.
        self.connection_events = Recorder()
        self.changes = 0
        ids, clock, defaults, compute = CountedIds(), self.clock, Defaults(), ComputeQueue()
        self.change_stream = ChangeStream(most=3)
        self.condition, self.alive = HealthCondition.OK, True
        #: The component that has this condition.
        self.component = component_names.STORE
        launcher = Launcher(store.runs, store.executions, store.jobs, store.schedules, clock, ids, compute=compute)
        rules = CommandRules(security or SecuritySettings(), workspace="/srv/workspace")
        outlook = PolicyOutlook(store.policies, parse=parse_policy, compute=compute)
        policy = CommandPolicyService(
            rules, store.approvals, store.tasks, store.jobs, store.schedules, clock, ids, compute=compute
        )
        jobs = JobService(
            store.jobs, store.schedules, store.history, clock, ids, compute=compute, command_policy=policy
        )
        workflows = WorkflowService(
            store.jobs, store.schedules, clock, ids, compute=compute, defaults=defaults, command_policy=policy
        )
        job_search = JobSearchService(jobs, store.schedules, store.tick_history, clock)
        search = SearchService(
            store.executions,
            store.run_tasks,
            store.jobs,
            jobs,
            announcements=store.announcements,
            tick_history=store.tick_history,
        )
        executions = ExecutionService(
            store.runs, store.executions, store.run_tasks, store.jobs, clock, announcements=store.announcements
        )
        self.put(
            ApiServices(
                tokens=RoleTokens(),
                jobs=jobs,
                schedules=ScheduleService(
                    store.schedules, store.history, clock, ids, compute=compute, defaults=defaults
                ),
                launcher=launcher,
                executions=executions,
                search=search,
                overview=OverviewService(store.overview, store.workers, self._look, clock),
                job_search=job_search,
                bulk_changes=BulkChangeService(
                    jobs, executions, launcher, store.schedules, clock, jobs=job_search, runs=search
                ),
                calendar=CalendarService(
                    store.schedules, store.history, store.calendar, store.jobs, clock, compute=compute
                ),
                revisions=JobRevisionService(store.schedules, store.history, store.jobs, compute=compute),
                workflows=workflows,
                events=EventService(store.events, clock, ids, compute),
                dead_letters=DeadLetterService(store.dead_letters, store.executions, launcher, clock),
                announcements=AnnouncementService(store.announcements, clock),
                breakers=BreakerService(store.breakers, clock),
                approvals=ApprovalService(
                    store.approvals, store.executions, store.jobs, clock, policy, break_glass=["on-call"]
                ),
                quarantine=QuarantineService(store.held_outputs, clock),
                agent_sessions=AgentSessionService(store.agent_sessions, clock),
                agent_usage=AgentUsageService(store.agent_usages, clock),
                tasks=TaskService(store.jobs, launcher, clock, compute),
                backfills=BackfillService(store.backfills, store.schedules, clock, ids, compute),
                planner=Planner(jobs, store.jobs, clock, compute, outlook=outlook),
                audit=AuditService(store.audit),
                command_policy=policy,
                dry_runner=DryRunProcesses(),
                model_actions=ModelActions(rules, store.actions, clock, ids),
                policy=PolicyService(
                    store.policies,
                    store.rulings,
                    store.executions,
                    store.jobs,
                    store.schedules,
                    clock,
                    shadows=store.policy_shadows,
                    budget_windows=store.budget_windows,
                    parse=parse_policy,
                    compute=compute,
                ),
                sign_in_codes=SignInCodeService(store.sign_in_codes, clock),
                issued_tokens=TokenService(store.tokens, clock, max_lifetime_ms=366 * DAY_MS),
                explainer=Explainer(store, clock, compute=compute, outlook=outlook),
                workers=store.workers,
                health=self._look,
                change_stream=self.change_stream,
                clock=clock,
                defaults=defaults,
                server=server or ServerSettings(),
                cursor_key=store.cursor_key,
                compute=compute,
                busy=lambda: False,
                login_failed=lambda error, _address: self.login_failures.append(error),
                changed=self._changed,
            )
        )

    def put(self, services: ApiServices) -> None:
        """Serve these services from now on."""
        self.services = services
        self._app: App | None = None

    @property
    def app(self) -> "App":
        """The application on these services. It takes a sixteenth of a second to build, so it is built on first use."""
        if self._app is None:
            self._app = self.built_app()
        return self._app

    def built_app(self) -> "App":
        """A new application on these services."""
        built = create_app(self.services, on_unexpected_error=self.unhandled_errors.append)
        return with_request_checks(cast("App", built), self.services.busy)

    async def _look(self) -> NodeHealth:
        now, well = self.clock.now(), self.condition is not HealthCondition.ERROR
        part = ComponentHealth(name=self.component, condition=self.condition, message="at db.example", since_at=now)
        ready = well or self.component != component_names.STORE
        return NodeHealth(at=now, components=(part,), ready=ready, alive=self.alive)

    def _changed(self) -> None:
        self.changes += 1

    async def open_breaker(self, name: str = "stripe") -> None:
        """Open a breaker of the tenant default."""
        key, limits = BreakerKey("default", name), BreakerLimits(failures=1, open_ms=600_000)
        use = BreakerUse(key=key, limits=limits, user="report", request="task_1/1")
        await self.store.breakers.record(use, RequestOutcome.FAILED, now=self.clock.now())

    async def given_up_announcement(self) -> str:
        """The id of an announcement of an execution of the job report that was given up."""
        async with self.caller("admin") as admin:
            execution = (await admin.post("/v1/jobs/report/trigger")).json()["execution_id"]
        await self.finish_execution(execution, announce=(AnnounceRule(channel="ops", to="C1"),))
        queue = self.store.announcement_queue
        [held] = await queue.claim(AnnouncementClaim(holder="a", limit=1, per_channel=1, claim_ms=1000))
        over = replace(held, state=AnnouncementState.GIVEN_UP, tries=3, ended_at=self.clock.now(), note="answered 403")
        await queue.update([AnnouncementUpdate(announcement=over)], now=self.clock.now())
        return held.announcement_id

    async def finish_execution(
        self,
        execution: str,
        result: Result = Result.SUCCEEDED,
        *,
        announce: tuple[AnnounceRule, ...] = (),
        definition: Workflow | None = None,
        **reported: Any,  # noqa: ANN401
    ) -> None:
        """End the only task of the execution with this result."""
        run = await self.store.executions.find_run(RunId(execution))
        assert run is not None
        taken = await take_task(self.store, "worker-1", run, now=self.clock.now())
        kept = definition or replace(workflow(), dead_letter=True, announce=announce)
        await self.store.attempts.report(
            [completion_of(taken, result, now=self.clock.now(), definition=kept, **reported)]
        )

    async def hold_back_output(self, execution: str) -> str:
        """Hold back the output of the only task of the execution; return its id."""
        ruling = OutputRuling(
            decision=OutputDecision.QUARANTINE, rule="keys", version=1, content_digest="5f" * 32, size=6
        )
        check = OutputCheck(topic="reports.make", ruling=ruling, held=b'"held"')
        await self.finish_execution(execution, quarantine="output_quarantined: no keys (rule keys)", check=check)
        run = await self.store.executions.find_run(RunId(execution))
        assert run is not None
        [task] = await self.store.history.tasks([run])
        return task.task_id

    async def ask_for_approval(self, execution: str, **changes: Any) -> Approval:  # noqa: ANN401 - fields of the terms
        """Have the only task of the execution wait for the vote of one member of finance, on these terms."""
        run = await self.store.executions.find_run(RunId(execution))
        assert run is not None
        [task] = await self.store.history.tasks([run])
        terms = ApprovalTerms(**{"groups": ("finance",), **changes})
        ruling = Ruling(
            decision=PolicyDecision.REQUIRE_APPROVAL,
            rule="payments",
            version=1,
            digest=b"\x01" * 32,
            reason="money moves",
            rule_digest="r1",
            approval=terms,
        )
        now = self.clock.now()
        asked = asked_approval(task, run, ruling, now=now)
        await self.store.tasks.admit(
            [
                admission(
                    task,
                    schedule_uid=run.schedule_uid,
                    state=TaskState.APPROVAL_REQUIRED,
                    ruling=ruling,
                    approval=asked,
                )
            ],
            now=now,
        )
        return asked

    def keep_turn(self, session: str = "triage", *, tenant: str = "default") -> None:
        """Add the messages of a run to a session of agents."""
        turn = StoredTurn(
            number=1, job="triage", run_id="run_1", at=self.clock.now(), tokens=7, messages=b'[{"kind":"x"}]'
        )
        self.store.state.session_turns.setdefault((tenant, session), {})[TaskId("task_1")] = turn

    @asynccontextmanager
    async def caller(self, token: str | None = "admin") -> AsyncIterator["ApiCaller"]:  # noqa: S107 - a role
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        transport = httpx.ASGITransport(cast("Any", self.app))
        async with httpx.AsyncClient(transport=transport, base_url="http://gnomon", headers=headers) as client:
            yield ApiCaller(client)


class ApiCaller:
    """A client of the API with one token."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        raw: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        content = raw if raw is not None else None if body is None else json.dumps(body).encode()
        sent = {"Content-Type": "application/json"} if content is not None else {}
        return await self._client.request(method, path, content=content, headers={**sent, **(headers or {})})

    async def stream(self, path: str, pieces: AsyncIterator[bytes]) -> httpx.Response:
        """Send a body piece by piece."""
        return await self._client.post(path, content=pieces, headers={"Content-Type": "application/json"})

    async def get(self, path: str, **headers: str) -> httpx.Response:
        return await self.ask("GET", path, headers=headers)

    async def post(self, path: str, body: object = None, **headers: str) -> httpx.Response:
        return await self.ask("POST", path, body, headers=headers)

    async def registered(self, **said: Any) -> str:  # noqa: ANN401 - fields of a job
        """Register a job; return its name."""
        done = await self.post("/v1/jobs", {**JOB, **said})
        assert done.status_code == 201, done.text
        return str(done.json()["job"])

    async def triggered(self, job: str = "report", **headers: str) -> str:
        done = await self.post(f"/v1/jobs/{job}/trigger", **headers)
        assert done.status_code == 202, done.text
        return str(done.json()["execution_id"])
