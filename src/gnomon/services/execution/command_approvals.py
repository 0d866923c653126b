"""Whether the commands of a definition are approved, for the gate and for those who give tasks to workers."""

from msgspec.structs import replace

from gnomon.core.approvals.commands import approval_of, covers_input
from gnomon.core.commands.rules import CommandRules
from gnomon.core.runs.outcomes import Assignment
from gnomon.core.runs.workflow import Workflow
from gnomon.ports.approvals import Approvals


class CommandApprovals:
    """Looks up approvals of commands that are under a policy. Open commands need none, and cost no lookup."""

    def __init__(self, rules: CommandRules, approvals: Approvals) -> None:
        self._rules = rules
        self._approvals = approvals

    async def approved(self, workflow: Workflow) -> bool:
        """Whether an approval counts for the commands of this version."""
        found = await self._approvals.standing(workflow.tenant, [workflow.workflow_id])
        return approval_of(workflow, found) is not None

    async def marked(self, assignment: Assignment) -> Assignment:
        """The assignment as its worker gets it: a guarded command says whether it is approved."""
        workflow = assignment.workflow
        if not assignment.step.is_command or self._rules.policy(workflow.origin) is None:
            return assignment
        if not covers_input(workflow, assignment.step, assignment.given):
            return assignment
        return replace(assignment, approved=True) if await self.approved(workflow) else assignment
