"""Approvals for people: what waits for votes, who may cast them, and overrides."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from gnomon.core.approvals.model import Approval, ApprovalKind, ApprovalRequest, ApprovalStatus, Vote, VoteKind
from gnomon.core.approvals.terms import Voter, voter_refusal
from gnomon.core.ids import task_id
from gnomon.core.jobs.fields import page_limit, printable, schedule_name
from gnomon.core.model import Run, Task
from gnomon.core.model_names import owner_of
from gnomon.core.runs.admission import AdmissionRequest, FanOut, ReadyTask
from gnomon.core.runs.prepare import outputs_needed, prepare_task
from gnomon.core.runs.secret_text import shown_data
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.core.runs.workflow import Step, Workflow
from gnomon.errors import ApprovalChanged, FieldError, Forbidden, NotFound
from gnomon.ports.approvals import ApprovalFilter, Approvals
from gnomon.ports.runs import Executions
from gnomon.ports.runtime import Clock
from gnomon.ports.schedules import Jobs
from gnomon.services.loop import ComputeQueue
from gnomon.services.operations.command_policy import CommandPolicyService

_LONGEST_REASON = 500
_DIGEST_LENGTH = 64
#: Of how many items the input is shown.
_MOST_ITEMS_SHOWN = 100


class ApprovalView(Struct, frozen=True, kw_only=True):
    """An approval with everything that voters should look at."""

    approval: Approval
    #: The input of the task without secrets, or those of the first items; None if there is none any more.
    input: Any = None
    #: The commands of the definition by their steps; None if they have changed since, or if it is about a task.
    commands: Mapping[str, str] | None = None


class AskedItems(NamedTuple):
    """A step that is asked about with all of its items."""

    asked: ApprovalRequest
    run: Run
    workflow: Workflow
    step: Step
    #: The input of the run, as JSON; None if that is the workflow's own input.
    given: bytes | None


class ApprovalService:
    """Lists and shows approvals, and counts votes."""

    def __init__(
        self,
        approvals: Approvals,
        executions: Executions,
        jobs: Jobs,
        clock: Clock,
        commands: CommandPolicyService,
        *,
        break_glass: Collection[str] = (),
        compute: ComputeQueue | None = None,
    ) -> None:
        """`break_glass` are the groups whose members may override."""
        self._compute = compute or ComputeQueue()
        self._approvals = approvals
        self._executions, self._jobs = executions, jobs
        self._clock, self._commands = clock, commands
        self._break_glass = frozenset(break_glass)

    async def page(
        self,
        *,
        status: ApprovalStatus | None = None,
        kind: ApprovalKind | None = None,
        job: str | None = None,
        before: str | None = None,
        limit: int = 100,
        tenant: str = "default",
    ) -> Sequence[Approval]:
        """Approvals, newest first."""
        wanted = ApprovalFilter(tenant=schedule_name("tenant", tenant), status=status, kind=kind, subject=job)
        return await self._approvals.page(wanted, before=before, limit=page_limit(limit))

    async def get(self, approval_id: str, *, tenant: str = "default") -> ApprovalView:
        """The approval; NotFound if there is none."""
        return await self._view(await self._find(approval_id, tenant))

    async def ask(self, job: str, *, actor: str, reason: str = "", tenant: str = "default") -> ApprovalView:
        """Ask for an approval of the commands of a job as they are now; return that which there is then."""
        return await self._view(await self._commands.ask(job, actor=actor, reason=reason, tenant=tenant))

    async def revoke(self, approval_id: str, *, actor: str, tenant: str = "default") -> ApprovalView:
        """End an approval of commands: they do not run any more."""
        return await self._view(await self._commands.revoke(approval_id, actor=actor, tenant=tenant))

    async def vote(
        self,
        approval_id: str,
        kind: VoteKind,
        voter: Voter,
        *,
        digest: str,
        reason: str = "",
        model: bool = False,
        tenant: str = "default",
    ) -> ApprovalView:
        """Count a vote, and return the approval as it is then.

        Forbidden if the caller may not cast it. `digest` is that of the approval as the voter saw it; `model` says that
        a model makes the request.
        """
        if model:
            raise Forbidden("a model may not vote on approvals: only people may")
        if len(digest) != _DIGEST_LENGTH or not digest.isascii():
            raise FieldError("digest", digest, "must be the digest of the approval, 64 hexadecimal digits")
        text = printable("reason", reason, longest=_LONGEST_REASON).strip()
        found = await self._find(approval_id, tenant)
        if kind is VoteKind.OVERRIDE:
            self._check_override(found, voter, text)
        else:
            excluded = {owner_of(name) for name in await self._approvals.authors(found)}
            refusal = voter_refusal(found.terms, voter, excluded)
            if refusal is not None:
                raise Forbidden(refusal)
        if found.request is None:
            await self._check_commands(found)
        cast = Vote(voter=printable("actor", voter.name), kind=kind, at=self._clock.now(), reason=text)
        after = await self._approvals.vote(tenant, found.approval_id, cast, digest=digest)
        return await self._view(after)

    async def _check_commands(self, found: Approval) -> None:
        """Raise ApprovalChanged if the commands that wait are not those of the definition any more."""
        self._commands.refuse_changes()
        if found.status is ApprovalStatus.WAITING and await self._commands.asked_commands(found) is None:
            raise ApprovalChanged(found.approval_id)

    def _check_override(self, found: Approval, voter: Voter, reason: str) -> None:
        if found.request is None:
            raise FieldError("approval", found.approval_id, "is about commands: only a task can be let run without one")
        if not self._break_glass:
            raise Forbidden("nobody may override an approval: the setting policy.break_glass names no group")
        if voter.groups.isdisjoint(self._break_glass):
            raise Forbidden(f"only members of {', '.join(sorted(self._break_glass))} may override an approval")
        if not reason:
            raise FieldError("reason", reason, "is empty: an override needs a reason")

    async def _find(self, approval_id: str, tenant: str) -> Approval:
        schedule_name("tenant", tenant)
        found = await self._approvals.find(tenant, printable("approval", approval_id))
        if found is None:
            raise NotFound("approval", approval_id)
        return found

    async def _view(self, found: Approval) -> ApprovalView:
        if found.request is None:
            return ApprovalView(approval=found, commands=await self._commands.asked_commands(found))
        return ApprovalView(approval=found, input=await self._input(found))

    async def _input(self, approval: Approval) -> Any:  # noqa: ANN401 - data of users
        """The input of the task; None if its run is gone."""
        asked = approval.request
        if asked is None:
            return None
        own = await self._executions.payload(asked.task_id, "input")
        if own is not None:
            return shown_data(msgspec.json.decode(own))
        run = await self._executions.find_run(asked.run_id)
        workflow = None if run is None else await self._jobs.workflow(run.tenant, run.workflow_id, run.workflow_version)
        if workflow is None:
            return None
        given = await self._executions.payload(asked.run_id, "input")
        step = workflow.step(asked.step) or workflow.steps[0]
        if asked.items and run is not None:
            return await self._inputs_of_items(AskedItems(asked, run, workflow, step, given))
        base = workflow.input if given is None else msgspec.json.decode(given)
        return shown_data({**base, **step.input})

    async def _inputs_of_items(self, of: AskedItems) -> Any:  # noqa: ANN401 - data of users
        """The inputs that the first items of a step will get; None if they cannot be told any more."""
        run, asked = of.run, of.asked
        owners = {task_id(run.run_id, name): name for name in outputs_needed(of.step)}
        kept = await self._executions.payloads([str(owner) for owner in owners], "output")
        outputs = {name: kept.get(owner) for owner, name in owners.items()}
        # The delay and the condition of the step are over.
        task = Task(
            task_id=asked.task_id,
            tenant=run.tenant,
            run_id=run.run_id,
            step=asked.step,
            state=TaskState.PENDING,
            wait_reason=WaitReason.READY,
            available_at=asked.asked_at,
            created_at=0,
        )
        waiting = ReadyTask(task=task, run=run, input=of.given)
        request = AdmissionRequest(waiting=waiting, workflow=of.workflow, step=of.step, input={})

        def compute() -> Any:  # noqa: ANN401 - data of users
            made = prepare_task(request, outputs, None, now=asked.asked_at)
            if not isinstance(made, FanOut):
                return None
            return [shown_data(msgspec.json.decode(item)) for item in made.items[:_MOST_ITEMS_SHOWN]]

        return await self._compute.run_in_thread(compute)
