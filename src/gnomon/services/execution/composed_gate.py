"""The gate of a process with a policy: the policy of tasks and that of commands decide together; the stricter wins."""

from gnomon.core.policy.gate_decision import combined_decision, ruled_decision
from gnomon.core.policy.ruling import PolicyDecision
from gnomon.core.runs.admission import AdmissionRequest, GateDecision, GateVerdict, OutputRelease
from gnomon.core.runs.outcomes import Assignment
from gnomon.errors import RulingUnavailable
from gnomon.ports.approvals import Approvals
from gnomon.ports.execution import Gate
from gnomon.ports.policy import TaskPolicy
from gnomon.services.execution.task_approvals import TaskApprovals


class ComposedGate(Gate):
    """Asks the policy about each task, and the gate of commands unless the policy denies it.

    A task that needs an approval is looked up: with its votes, the ruling is a permission.
    """

    def __init__(self, commands: Gate, policy: TaskPolicy, approvals: Approvals) -> None:
        self._commands, self._policy = commands, policy
        self._approvals = TaskApprovals(policy, approvals)

    def admit_now(self, request: AdmissionRequest) -> GateDecision | None:
        """See Gate.admit_now."""
        if request.fan_out is not None:
            return None
        if not self._policy.active:
            return self._commands.admit_now(request)
        ruling = self._policy.rule_now(request)
        if ruling is not None and ruling.decision is PolicyDecision.REQUIRE_APPROVAL:
            ruling = self._approvals.known_ruling(request, ruling)
        if ruling is None:
            return None
        if ruling.decision is PolicyDecision.DENY:
            return ruled_decision(ruling)
        commands = self._commands.admit_now(request)
        return None if commands is None else combined_decision(ruling, commands)

    async def admit(self, request: AdmissionRequest) -> GateDecision:
        """See Gate.admit."""
        try:
            if request.fan_out is not None:
                return await self._approvals.decide_about_items(request, request.fan_out)
            ruling = await self._policy.rule(request) if self._policy.active else None
        except RulingUnavailable as error:
            return GateDecision(GateVerdict.LATER, str(error), after_ms=error.after_ms)
        if ruling is None:
            return await self._commands.admit(request)
        if ruling.decision is PolicyDecision.REQUIRE_APPROVAL:
            ruling = await self._approvals.ruling(request, ruling)
        # An agent would hold its session, and reserve actions, while people think about it.
        waits = ruling.decision is PolicyDecision.REQUIRE_APPROVAL and request.step.is_agent
        if waits or ruling.decision is PolicyDecision.DENY:
            return ruled_decision(ruling)
        return combined_decision(ruling, await self._commands.admit(request))

    def asks_about_items(self, request: AdmissionRequest) -> bool:
        """See Gate.asks_about_items."""
        return self._policy.active and self._policy.may_ask(request)

    def release_now(self, finished: Assignment, output: bytes | None) -> OutputRelease | None:
        """See Gate.release_now."""
        return self._commands.release_now(finished, output)

    async def release(self, finished: Assignment, output: bytes | None) -> OutputRelease:
        """See Gate.release."""
        return await self._commands.release(finished, output)
