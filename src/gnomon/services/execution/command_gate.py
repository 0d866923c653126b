"""The gate that decides about commands: the policy by the origin of their definition, and the budget of their tenant.

The order is that of the rules that users see: read-only autonomy, the rate limit, the command with its arguments and
paths, and its approval. The budget itself is counted by the store, in the transaction that admits the task.
"""

import asyncio

from gnomon.core.agents.catalog import AgentCatalog, price_refusal
from gnomon.core.agents.sessions import SESSION_WAIT_MS
from gnomon.core.agents.spec import ISOLATED
from gnomon.core.agents.usage import DAILY_COST_RULE, PRICE_RULE, day_is_spent_text, day_of
from gnomon.core.approvals.commands import covers_input
from gnomon.core.commands.actions import ACTION_WINDOW_MS, BUDGET_RULE, RATE_RULE
from gnomon.core.commands.policy import BUDGET_TEXT, RATE_LIMIT_TEXT, CommandVerdict, PolicyRule
from gnomon.core.commands.rules import CommandRules, approval_hint
from gnomon.core.runs.admission import AdmissionRequest, GateDecision, GateVerdict, OutputRelease
from gnomon.core.runs.outcomes import Assignment
from gnomon.core.runs.workflow import AGENT, SHELL, Step
from gnomon.ports.actions import ActionCounts
from gnomon.ports.agents import AgentSessions, AgentUsages
from gnomon.ports.approvals import Approvals
from gnomon.ports.execution import Gate
from gnomon.ports.runtime import Clock
from gnomon.ports.tasks import PendingTasks
from gnomon.services.execution.command_approvals import CommandApprovals

#: A longer command is checked in a thread, since the event loop cannot wait for it.
_LONG_COMMAND = 2000
_ALLOWED = GateDecision(GateVerdict.ALLOW)
_RATE_EXCEEDED = GateDecision(GateVerdict.DENY, RATE_LIMIT_TEXT, rule=RATE_RULE)


class AgentGate:
    """Refuses agents beyond the cost of a day or the actions of an hour, and lets one at a time into a session.

    Agents that run at the same time may exceed the cost, each by no more than its own budget.
    """

    def __init__(
        self,
        usages: AgentUsages,
        sessions: AgentSessions,
        actions: ActionCounts,
        clock: Clock,
        *,
        limit: int | None = None,
        action_limit: int | None = None,
        catalog: AgentCatalog | None = None,
    ) -> None:
        """`limit` is the cost of a day in UTC, in millionths, and `action_limit` the actions of an hour; None: any.

        `catalog` are the models of the settings as they are now; None if they are not known.
        """
        self._usages = usages
        self._sessions = sessions
        self._actions = actions
        self._action_limit = action_limit
        self._clock = clock
        self._limit = limit
        self._catalog = catalog

    def admits_at_once(self, step: Step) -> bool:
        """Whether nothing has to be asked about an agent."""
        agent = step.agent
        if agent is None:
            return True
        counts = self._action_limit is not None and agent.reserved_actions
        has_limit = self._limit is not None or agent.budget.cost_micros is not None
        return not has_limit and not counts and agent.session == ISOLATED

    async def admit(self, request: AdmissionRequest) -> GateDecision:
        """The decision about an agent."""
        refusal = self._price_refusal(request) or await self._cost_refusal(request)
        if refusal is not None:
            return refusal
        return await self._session_delay(request) or await self._action_refusal(request) or _ALLOWED

    async def _session_delay(self, request: AdmissionRequest) -> GateDecision | None:
        """The delay while another run is in the session of the agent."""
        agent, tenant = request.step.agent, request.waiting.run.tenant
        if agent is None or agent.session == ISOLATED:
            return None
        task = request.waiting.task.task_id
        if await self._sessions.acquire(tenant, agent.session, task, now=self._clock.now()):
            return None
        reason = f"another run is in the session {agent.session}"
        return GateDecision(GateVerdict.LATER, reason, after_ms=SESSION_WAIT_MS)

    async def _action_refusal(self, request: AdmissionRequest) -> GateDecision | None:
        """The refusal of an agent whose actions exceed those that its tenant has left; they are reserved if not."""
        agent, task = request.step.agent, request.waiting.task
        if agent is None or self._action_limit is None or not agent.reserved_actions:
            return None
        reserved = await self._actions.reserve(
            task.task_id,
            task.fence + 1,
            request.waiting.run.tenant,
            count=agent.reserved_actions,
            limit=self._action_limit,
            now=self._clock.now(),
        )
        return None if reserved else GateDecision(GateVerdict.DENY, BUDGET_TEXT, rule=BUDGET_RULE)

    def _price_refusal(self, request: AdmissionRequest) -> GateDecision | None:
        """The refusal of an agent whose model had a price when the job was added, and has none any more."""
        agent = request.step.agent
        if agent is None or self._catalog is None:
            return None
        reason = price_refusal(agent, self._catalog)
        return None if reason is None else GateDecision(GateVerdict.DENY, reason, rule=PRICE_RULE)

    async def _cost_refusal(self, request: AdmissionRequest) -> GateDecision | None:
        if self._limit is None:
            return None
        spent = await self._usages.cost_since(request.waiting.run.tenant, day_of(self._clock.now()))
        if spent < self._limit:
            return None
        return GateDecision(GateVerdict.DENY, day_is_spent_text(spent, self._limit), rule=DAILY_COST_RULE)


class CommandGate(Gate):
    """Allows functions and open commands at once, and asks the policy about guarded commands. Releases every output."""

    def __init__(
        self,
        rules: CommandRules,
        tasks: PendingTasks,
        approvals: Approvals,
        clock: Clock,
        agents: AgentGate | None = None,
    ) -> None:
        """`agents` decides about agents; None allows them all."""
        self._rules = rules
        self._tasks = tasks
        self._approvals = CommandApprovals(rules, approvals)
        self._clock = clock
        self._agents = agents

    def admit_now(self, request: AdmissionRequest) -> GateDecision | None:
        """See Gate.admit_now."""
        function = request.step.function
        if function == AGENT and self._agents is not None and not self._agents.admits_at_once(request.step):
            return None
        if function != SHELL:
            return _ALLOWED
        origin = request.workflow.origin
        is_open = self._rules.policy(origin) is None and self._rules.action_limit(origin) is None
        return _ALLOWED if is_open else None

    async def admit(self, request: AdmissionRequest) -> GateDecision:
        """See Gate.admit."""
        if (decision := self.admit_now(request)) is not None:
            return decision
        if request.step.is_agent and self._agents is not None:
            return await self._agents.admit(request)
        return await self._admit_command(request)

    async def _admit_command(self, request: AdmissionRequest) -> GateDecision:
        verdict = await self._judged(request, approved=False)
        if verdict is not None and verdict.rule is PolicyRule.AUTONOMY:
            return _denied(request, verdict)
        limit = self._rules.action_limit(request.workflow.origin)
        if limit is not None and await self._spent(request) >= limit:
            return _RATE_EXCEEDED
        if (
            verdict is not None
            and verdict.rule is PolicyRule.APPROVAL
            and await self._approvals.approved(request.workflow)
        ):
            if not covers_input(request.workflow, request.step, request.waiting.input):
                return _not_covered(verdict)
            verdict = await self._judged(request, approved=True)
        if verdict is not None and not verdict.allowed:
            return _denied(request, verdict)
        return GateDecision(GateVerdict.ALLOW, action_limit=limit)

    def release_now(self, finished: Assignment, output: bytes | None) -> OutputRelease:
        """See Gate.release_now."""
        del finished
        return OutputRelease(output=output)

    async def release(self, finished: Assignment, output: bytes | None) -> OutputRelease:
        """See Gate.release."""
        return self.release_now(finished, output)

    async def _judged(self, request: AdmissionRequest, *, approved: bool) -> CommandVerdict | None:
        def judge() -> CommandVerdict | None:
            return self._rules.judge(request.workflow, request.step, request.input, approved=approved)

        return await asyncio.to_thread(judge) if len(request.step.command) > _LONG_COMMAND else judge()

    async def _spent(self, request: AdmissionRequest) -> int:
        """The actions of its tenant that count already, without that of an earlier admission of the same attempt."""
        task = request.waiting.task
        since = self._clock.now() - ACTION_WINDOW_MS
        return await self._tasks.actions_since(
            request.waiting.run.tenant, since=since, besides=(task.task_id, task.fence + 1)
        )


def _not_covered(verdict: CommandVerdict) -> GateDecision:
    command = verdict.reason.partition(" (")[0]
    reason = f"{command} (its approval covers the input of the definition, and this run has another)"
    return GateDecision(GateVerdict.DENY, reason, rule=str(verdict.rule))


def _denied(request: AdmissionRequest, verdict: CommandVerdict) -> GateDecision:
    reason = approval_hint(verdict, request.workflow.workflow_id)
    return GateDecision(GateVerdict.DENY, reason, rule=str(verdict.rule))
