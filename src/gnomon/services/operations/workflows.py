"""Deploys and lists workflows: versions of a graph of steps, with the schedules of its triggers."""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gnomon.core.agents.catalog import AgentCatalog, check_agents
from gnomon.core.announcements.channels import Channels, check_announcements
from gnomon.core.commands.tenants import ALL_TENANTS, check_commands
from gnomon.core.jobs.definition import Definition, read_definition
from gnomon.core.jobs.fields import page_limit, printable, schedule_name
from gnomon.core.jobs.job import Job
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.ledger.plan import DEFAULT_LIMIT, CatchupLimit
from gnomon.core.model import Schedule, ScheduleUid
from gnomon.core.runs.workflow import Workflow
from gnomon.errors import Contended, FieldError, NotFound
from gnomon.ports.runtime import Clock, Ids
from gnomon.ports.schedules import Jobs, Schedules
from gnomon.services.loop import ComputeQueue
from gnomon.services.operations.command_policy import CommandPolicyService
from gnomon.services.operations.job_changes import (
    JobChangePlan,
    changeset_of,
    decide_overdue,
    plan_change,
    plan_creation,
    plan_removal,
    repeats_spec,
    with_kept_origin,
    with_stored_ping,
)

#: The number of tries against concurrent changes of the same workflow.
_TRIES = 20
_PAGE = 1000


class DeployResult(Struct, frozen=True, kw_only=True):
    """The result of a deployment."""

    workflow_id: str
    version: int
    #: Whether that version is new.
    new: bool
    #: The schedules of its triggers, and the removed schedules of earlier versions.
    schedules: tuple[str, ...]
    removed: tuple[str, ...]
    #: Commands that need an approval and have none.
    warnings: tuple[str, ...] = ()


class WorkflowService:
    """Deploys and lists workflows."""

    def __init__(  # noqa: PLR0913 - its collaborators
        self,
        jobs: Jobs,
        schedules: Schedules,
        clock: Clock,
        ids: Ids,
        *,
        compute: ComputeQueue | None = None,
        defaults: Defaults | None = None,
        tzdata: str = "",
        command_tenants: Collection[str] = (ALL_TENANTS,),
        channels: Channels | None = None,
        agents: AgentCatalog | None = None,
        command_policy: CommandPolicyService | None = None,
        catchup_limit: CatchupLimit = DEFAULT_LIMIT,
    ) -> None:
        """`command_tenants` are the tenants whose workflows may have commands; without `command_policy` all are open.

        `channels` are those to which workflows may announce; None if they are not known; `agents` are their models.
        """
        self._compute = compute or ComputeQueue()
        self._jobs = jobs
        self._schedules = schedules
        self._clock = clock
        self._ids = ids
        self._defaults = defaults or Defaults()
        self._tzdata = tzdata
        self._catchup_limit = catchup_limit
        self._command_tenants = command_tenants
        self._channels = channels
        self._agents = agents
        self._command_policy = command_policy

    async def deploy(
        self, definition: Mapping[str, Any], *, actor: str, tenant: str = "default", origin: str = ""
    ) -> DeployResult:
        """Store the workflow as a new version, unless it equals the newest one, and register its triggers.

        One transaction writes the version and its schedules, and removes the schedules of triggers that are no
        longer in the definition.
        """
        schedule_name("tenant", tenant)
        printable("actor", actor)
        name = ""
        for _ in range(_TRIES):
            now = self._clock.now()
            read = await self._compute.read(definition, partial(read_definition, definition, self._defaults, now=now))
            schedules = {name: replace(spec, origin=origin) for name, spec in read.schedules.items()}
            read = replace(read, workflow=replace(read.workflow, origin=origin), schedules=schedules)
            check_commands(read.workflow, self._command_tenants, tenant)
            check_announcements(read.workflow.announce, self._channels, tenant)
            check_agents(read.workflow, self._agents, list_field=read.list_field)
            name = read.workflow.workflow_id
            done = await self._try_deploy(read, actor, tenant, now)
            if done is not None:
                return done
        raise Contended("workflow", name)

    async def _try_deploy(self, read: Definition, actor: str, tenant: str, now: int) -> DeployResult | None:
        """Deploy once; None if a concurrent change was faster, or overdue ticks had to be decided first."""
        newest = await self._jobs.workflow(tenant, read.workflow.workflow_id)
        standing = await self._existing(tenant, read.workflow.workflow_id)
        own = with_stored_ping(read.workflow, newest)
        changed = newest is None or not _repeats_schedules(read, standing, newest)
        read = replace(read, workflow=with_kept_origin(own, newest, changed=changed))
        workflow = _workflow_version(read, newest, tenant)
        removed = [one for name, one in standing.items() if name not in read.schedules]
        plans = await self._planned(read, newest, standing, tenant, now)
        plans += [plan_removal(schedule, now=now, limit=self._catchup_limit) for schedule in removed]
        overdue = [plan.schedule for plan in plans if plan.overdue is not None]
        for schedule in overdue:
            await decide_overdue(self._schedules, schedule, now=now, tzdata=self._tzdata, limit=self._catchup_limit)
        new = newest is None or newest.version != workflow.version
        changes = replace(changeset_of(plans), workflows=[workflow] if new else [])
        warnings = await self._warnings(read, workflow) if new or changes.edits or changes.added else ()
        if overdue or not await self._jobs.apply(changes, now=now, actor=actor, tzdata=self._tzdata):
            return None
        return DeployResult(
            workflow_id=workflow.workflow_id,
            version=workflow.version,
            new=new,
            schedules=tuple(read.schedules),
            removed=tuple(one.schedule_id for one in removed),
            warnings=warnings,
        )

    async def _warnings(self, read: Definition, workflow: Workflow) -> tuple[str, ...]:
        """Commands that need an approval and have none; FieldError if the policy refuses one."""
        policy = self._command_policy
        if policy is None:
            return ()
        found = await policy.check(workflow, list_field=read.list_field)
        return () if found and await policy.approvals_of([workflow]) else found

    async def _planned(
        self, read: Definition, newest: Workflow | None, standing: Mapping[str, Schedule], tenant: str, now: int
    ) -> list[JobChangePlan]:
        plans = []
        for name, spec in read.schedules.items():
            job = Job(name=name, spec=spec, workflow=read.workflow)
            found = standing.get(name)
            if found is not None:
                plans.append(plan_change(job, newest, found, now=now, limit=self._catchup_limit))
            elif await self._schedules.find(tenant, name) is not None:
                raise FieldError("triggers", name, "is the name of a job that runs something else")
            else:
                uid = ScheduleUid(self._ids.new("sch", now))
                plans.append(plan_creation(job, newest, uid=uid, tenant=tenant, now=now))
        return plans

    async def _existing(self, tenant: str, workflow_id: str) -> dict[str, Schedule]:
        """The schedules that earlier deployments have registered."""
        found: dict[str, Schedule] = {}
        after, prefix = f"{workflow_id}.", f"{workflow_id}."
        while page := await self._schedules.page(tenant, after=after, limit=_PAGE):
            for one in page:
                if not one.schedule_id.startswith(prefix):
                    return found
                if one.spec.workflow_id == workflow_id:
                    found[one.schedule_id] = one
            after = page[-1].schedule_id
        return found

    async def page(self, *, tenant: str = "default", after: str = "", limit: int = 100) -> Sequence[Workflow]:
        """The newest version of every workflow, by ID."""
        schedule_name("tenant", tenant)
        printable("after", after)
        page_limit(limit, _PAGE)
        return await self._jobs.list_workflows(tenant, after=after, limit=limit)

    async def get(self, workflow_id: str, version: int | None = None, *, tenant: str = "default") -> Workflow:
        """A version of the workflow, the newest by default; NotFound if there is none."""
        schedule_name("tenant", tenant)
        found = await self._jobs.workflow(tenant, schedule_name("workflow_id", workflow_id), version)
        if found is None:
            raise NotFound("workflow" if version is None else f"version {version} of workflow", workflow_id)
        return found


def _repeats_schedules(read: Definition, standing: Mapping[str, Schedule], newest: Workflow) -> bool:
    """Whether the definition has the schedules that are stored, and no others."""
    return read.schedules.keys() == standing.keys() and all(
        repeats_spec(spec, standing[name], newest) for name, spec in read.schedules.items()
    )


def _workflow_version(read: Definition, newest: Workflow | None, tenant: str) -> Workflow:
    """The workflow with its version number; FieldError if the definition claims another one."""
    workflow = replace(read.workflow, tenant=tenant, version=1 if newest is None else newest.version)
    if newest is not None and workflow != newest:
        workflow = replace(workflow, version=newest.version + 1)
    if read.version not in (None, workflow.version):
        raise FieldError("version", read.version, f"would be {workflow.version}: a version never changes")
    return workflow
