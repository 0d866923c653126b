"""The policy of commands for operators: checks of definitions, standing approvals, and what is left of the budget."""

from collections.abc import Collection, Generator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from gnomon.core.approvals.commands import approval_of, command_digest
from gnomon.core.approvals.model import Approval, ApprovalKind
from gnomon.core.commands.actions import ACTION_WINDOW_MS, refusal_text
from gnomon.core.commands.policy import PolicyRule
from gnomon.core.commands.rules import CheckedStep, CommandRules, approval_hint
from gnomon.core.jobs.fields import printable, schedule_name
from gnomon.core.jobs.origins import origin_text
from gnomon.core.runs.workflow import Workflow
from gnomon.errors import ChangesRefused, FieldError, NotFound
from gnomon.ports.approvals import Approvals
from gnomon.ports.runtime import Clock, Ids
from gnomon.ports.schedules import Jobs, Schedules
from gnomon.ports.tasks import PendingTasks
from gnomon.services.loop import ComputeQueue

_LONGEST_REASON = 500
#: Commands of an unknown origin are guarded unless no command is.
_UNKNOWN_ORIGIN = ""


class ActionBudget(Struct, frozen=True, kw_only=True):
    """The budget of guarded commands of a tenant."""

    #: How many may start within an hour; None if any number may.
    limit: int | None
    #: How many have been admitted in the last hour.
    spent: int

    @property
    def left(self) -> int | None:
        """How many may start now; None if any number may."""
        return None if self.limit is None else max(0, self.limit - self.spent)


class CommandPolicyService:
    """Checks the commands of definitions, and asks for their approvals."""

    def __init__(  # noqa: PLR0913 - its collaborators
        self,
        rules: CommandRules,
        approvals: Approvals,
        tasks: PendingTasks,
        jobs: Jobs,
        schedules: Schedules,
        clock: Clock,
        ids: Ids,
        *,
        compute: ComputeQueue | None = None,
    ) -> None:
        self._compute = compute or ComputeQueue()
        self._rules = rules
        self._approvals = approvals
        self._tasks = tasks
        self._jobs, self._schedules = jobs, schedules
        self._clock, self._ids = clock, ids

    @property
    def read_only(self) -> bool:
        """Whether every change is refused."""
        return self._rules.read_only

    def refuse_changes(self) -> None:
        """Raise ChangesRefused if the autonomy is read-only."""
        if self._rules.read_only:
            raise ChangesRefused

    async def check(self, workflow: Workflow, *, list_field: str = "dag") -> tuple[str, ...]:
        """The warnings about commands that need an approval; FieldError for one that could not or may not run.

        `list_field` is the name of the field with the steps of the definition.
        """
        await self._refuse_running_open_commands(workflow, list_field)
        if not workflow.has_commands:
            return ()
        self._rules.refuse_outside(workflow, list_field=list_field)
        return await self._compute.run(self._warnings(workflow, list_field))

    def _warnings(self, workflow: Workflow, list_field: str) -> Generator[None, None, tuple[str, ...]]:
        """See `check`. A definition may have a thousand commands, so the check of each is a part of its own."""
        warnings: list[str] = []
        for one in self._rules.judge_all(workflow, list_field=list_field):
            if one.verdict.rule is PolicyRule.APPROVAL:
                warnings.append(f"{one.field}: {approval_hint(one.verdict, workflow.workflow_id)}")
            elif not one.verdict.allowed:
                raise _refused(one)
            yield
        return tuple(warnings)

    async def refuse_timing_open_commands(
        self, workflow_id: str, version: int | None, *, origin: str, tenant: str = "default"
    ) -> None:
        """Raise FieldError if a request of this origin gives a schedule to commands that are open.

        Their author has a shell of the machine, and the caller may have none: a change by the caller would make the
        commands guarded, and a schedule cannot change them.
        """
        if self._rules.policy(origin) is None:
            return
        found = await self._jobs.workflow(tenant, workflow_id, version)
        if found is not None and found.has_commands and self._rules.policy(found.origin) is None:
            reason = f"runs commands of {origin_text(found.origin)}: change their schedule there"
            raise FieldError("workflow_id", workflow_id, reason)

    async def _refuse_running_open_commands(self, workflow: Workflow, list_field: str) -> None:
        """Raise FieldError if a guarded definition has a step that runs a workflow with open commands.

        Its caller could give them a schedule in this way, see `refuse_timing_open_commands`.
        """
        if self._rules.policy(workflow.origin) is None:
            return
        ahead = [(number, step.workflow) for number, step in enumerate(workflow.steps) if step.workflow is not None]
        seen: set[str] = set()
        while ahead:
            number, name = ahead.pop()
            found = None if name in seen else await self._jobs.workflow(workflow.tenant, name, None)
            seen.add(name)
            if found is None:
                continue
            if found.has_commands and self._rules.policy(found.origin) is None:
                reason = f"runs commands of {origin_text(found.origin)}: put the step there"
                raise FieldError(f"{list_field}[{number}].workflow", workflow.steps[number].workflow, reason)
            ahead += [(number, step.workflow) for step in found.steps if step.workflow is not None]

    async def approvals_of(self, workflows: Collection[Workflow]) -> Mapping[str, Approval]:
        """The approvals that count for these definitions of one tenant, by the ids of the workflows."""
        commands = [one for one in workflows if one.has_commands]
        if not commands:
            return {}
        names = [one.workflow_id for one in commands]
        standing = await self._approvals.standing(commands[0].tenant, names)
        if not standing:
            return {}
        found = await self._compute.map(lambda one: approval_of(one, standing), commands)
        return {one.workflow_id: approval for one, approval in zip(commands, found, strict=True) if approval}

    async def ask(self, name: str, *, actor: str, reason: str = "", tenant: str = "default") -> Approval:
        """Ask for an approval of the commands of a job or workflow as they are now; return that which there is then."""
        self.refuse_changes()
        printable("reason", reason, longest=_LONGEST_REASON)
        workflow = await self._workflow(name, tenant)
        await self._refuse_pointless(name, workflow)
        now = self._clock.now()
        asked = Approval(
            approval_id=self._ids.new("apr", now),
            tenant=tenant,
            kind=ApprovalKind.COMMAND,
            subject=workflow.workflow_id,
            digest=command_digest(workflow),
            reason=reason,
        )
        return await self._approvals.ask(asked, actor=printable("actor", actor), now=now)

    async def asked_commands(self, approval: Approval) -> Mapping[str, str] | None:
        """The commands that the approval is about, by their steps; None if they have changed since."""
        try:
            workflow = await self._workflow(approval.subject, approval.tenant)
        except NotFound:
            return None
        if command_digest(workflow) != approval.digest:
            return None
        return {step.name: step.command for step in workflow.steps if step.is_command}

    async def revoke(self, approval_id: str, *, actor: str, tenant: str = "default") -> Approval:
        """End an approval of commands: they do not run any more."""
        self.refuse_changes()
        schedule_name("tenant", tenant)
        name = printable("approval", approval_id)
        return await self._approvals.revoke(tenant, name, actor=printable("actor", actor), now=self._clock.now())

    async def budget(self, *, tenant: str = "default") -> ActionBudget:
        """The budget of guarded commands of the tenant, and how much of it is spent."""
        schedule_name("tenant", tenant)
        since = self._clock.now() - ACTION_WINDOW_MS
        return ActionBudget(
            limit=self._rules.action_limit(_UNKNOWN_ORIGIN),
            spent=await self._tasks.actions_since(tenant, since=since),
        )

    async def _workflow(self, name: str, tenant: str) -> Workflow:
        """The version that the job runs, or the newest one of a workflow without a job of that name."""
        schedule_name("tenant", tenant)
        schedule_name("job", name)
        schedule = await self._schedules.find(tenant, name)
        key = (name, None) if schedule is None else (schedule.spec.workflow_id, schedule.spec.workflow_version)
        found = await self._jobs.workflow(tenant, *key)
        if found is None:
            raise NotFound("job", name)
        return replace(found, tenant=tenant)

    async def _refuse_pointless(self, name: str, workflow: Workflow) -> None:
        """Raise FieldError if the job has no command, or one that the policy refuses in spite of an approval."""
        if not workflow.has_commands:
            raise FieldError("job", name, "has no command: there is nothing to approve")
        await self._compute.run(self._refusals(workflow))

    def _refusals(self, workflow: Workflow) -> Generator[None, None, None]:
        for one in self._rules.judge_all(workflow, approved=True):
            if not one.verdict.allowed:
                raise _refused(one)
            yield


def _refused(one: CheckedStep) -> FieldError:
    """The error about a command that the policy refuses: field, command, reason and rule."""
    reason = refusal_text(one.verdict.reason)
    return FieldError(one.field, one.step.command, f"is {reason} (rule: {one.verdict.rule})")
