"""The gate that decides about commands: the policy by the origin of their definition, and the budget of their tenant.

The order is that of the rules that users see: read-only autonomy, the rate limit, the command with its arguments and
paths, and its approval. The budget itself is counted by the store, in the transaction that admits the task.
"""

import asyncio

from gnomon.core.approvals import covers_input
from gnomon.core.commands.actions import ACTION_WINDOW_MS, RATE_RULE
from gnomon.core.commands.policy import RATE_LIMIT_TEXT, CommandVerdict, PolicyRule
from gnomon.core.commands.rules import CommandRules, approval_hint
from gnomon.core.runs.admission import AdmissionRequest, GateDecision, GateVerdict, OutputRelease
from gnomon.core.runs.outcomes import Assignment
from gnomon.ports.approvals import Approvals
from gnomon.ports.execution import Gate
from gnomon.ports.runtime import Clock
from gnomon.ports.tasks import PendingTasks
from gnomon.services.execution.command_approvals import CommandApprovals

#: A longer command is checked in a thread, since the event loop cannot wait for it.
_LONG_COMMAND = 2000
_ALLOWED = GateDecision(GateVerdict.ALLOW)
_RATE_EXCEEDED = GateDecision(GateVerdict.DENY, RATE_LIMIT_TEXT, rule=RATE_RULE)


class CommandGate(Gate):
    """Allows functions and open commands at once, and asks the policy about guarded commands. Releases every output."""

    def __init__(self, rules: CommandRules, tasks: PendingTasks, approvals: Approvals, clock: Clock) -> None:
        self._rules = rules
        self._tasks = tasks
        self._approvals = CommandApprovals(rules, approvals)
        self._clock = clock

    def admit_now(self, request: AdmissionRequest) -> GateDecision | None:
        """See Gate.admit_now."""
        if not request.step.is_command:
            return _ALLOWED
        origin = request.workflow.origin
        is_open = self._rules.policy(origin) is None and self._rules.action_limit(origin) is None
        return _ALLOWED if is_open else None

    async def admit(self, request: AdmissionRequest) -> GateDecision:
        """See Gate.admit."""
        if (decision := self.admit_now(request)) is not None:
            return decision
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
