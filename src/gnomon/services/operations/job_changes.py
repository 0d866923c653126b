"""Plans the change of a job to a new definition: compares it with the stored schedule; `Jobs.apply` writes the plan."""

from collections.abc import Callable, Iterable
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from gnomon.core.jobs.job import Job
from gnomon.core.jobs.origins import declares, kept_origin
from gnomon.core.jobs.steps import restored_ping
from gnomon.core.ledger.edits import (
    edited_schedule,
    has_remaining_due,
    is_missed_one_shot,
    keep_interval_anchor,
    missed_one_shot_error,
    new_schedule,
    paused_schedule,
    redeclared,
    same_spec,
    verdict_before_edit,
)
from gnomon.core.ledger.plan import DEFAULT_LIMIT, CatchupLimit, schedule_after
from gnomon.core.model import Schedule, ScheduleUid, Spec, TickVerdict
from gnomon.core.runs.workflow import Workflow
from gnomon.ports.schedules import JobChangeset, ScheduleEdit, Schedules


class JobChange(StrEnum):
    """The effect of applying a job."""

    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    REMOVED = "removed"
    #: It was to run once and be deleted, and both is done.
    FINISHED = "finished"
    #: Its origin does not declare it any more; it stays as it is.
    ORPHANED = "orphaned"


#: The changes that applying a list of jobs can make.
PLANNED_CHANGES = (JobChange.CREATED, JobChange.CHANGED, JobChange.UNCHANGED, JobChange.REMOVED, JobChange.FINISHED)


class Declaration(Struct, frozen=True):
    """Origins of which all jobs are at hand: their other jobs are orphans, which are marked, or deleted."""

    origins: frozenset[str]
    prune: bool = False
    #: Whether there is nothing any more at a place of jobs, such as a file that was moved. Without it, nobody knows.
    has_gone: Callable[[str], bool] | None = None

    def gone_origins(self, before: Iterable[Schedule]) -> frozenset[str]:
        """Those of the origins of these jobs that have gone: nothing there declares any other job of them either."""
        if self.has_gone is None:
            return frozenset()
        others = {one.spec.origin for one in before} - self.origins
        return frozenset(origin for origin in others if declares(origin) and self.has_gone(origin))


class Prune(Struct, frozen=True):
    """Deletes the jobs that are in none of the files: all of them, or those with a tag."""

    tag: str | None = None


class JobChangePlan(Struct, frozen=True, kw_only=True):
    """The planned change of one job."""

    change: JobChange
    #: The schedule after the change; the stored one if it is removed.
    schedule: Schedule
    #: The new definition; None if the job is removed or orphaned.
    job: Job | None = None
    #: The stored schedule; None if the job is new.
    standing: Schedule | None = None
    #: The new version of the workflow; None if it has not changed.
    workflow: Workflow | None = None
    edit: ScheduleEdit | None = None
    #: The decision on the due ticks of a schedule that is removed.
    removal: TickVerdict | None = None
    #: Ticks to decide before the change, because the catch-up limit leaves more than one decision.
    overdue: TickVerdict | None = None
    #: The hints about commands of the new definition that need an approval, whether they have one or not.
    unapproved: tuple[str, ...] = ()


def with_stored_ping(workflow: Workflow, newest: Workflow | None) -> Workflow:
    """The workflow with the ping URL that is stored, if its own is that URL as it is shown."""
    if workflow.ping is None:
        return workflow
    return replace(workflow, ping=restored_ping(workflow.ping, None if newest is None else newest.ping))


def with_kept_origin(workflow: Workflow, newest: Workflow | None, *, changed: bool) -> Workflow:
    """The workflow with the origin that its version has: that of the stored version, if it repeats that one.

    `changed` says that its schedules change although it does not.
    """
    if newest is None or not repeats_workflow(workflow, newest):
        return workflow
    if not workflow.has_commands:
        return replace(workflow, origin=newest.origin)
    return replace(workflow, origin=kept_origin(newest.origin, workflow.origin, changed=changed))


def repeats_workflow(workflow: Workflow, newest: Workflow) -> bool:
    """Whether the workflow says what the stored version says, wherever both come from."""
    return replace(workflow, tenant=newest.tenant, version=newest.version, origin=newest.origin) == newest


def repeats_spec(spec: Spec, standing: Schedule, newest: Workflow) -> bool:
    """Whether the spec says what the stored schedule says, and takes over no orphan."""
    return not standing.spec.orphaned and same_spec(standing.spec, replace(spec, workflow_version=newest.version))


def plan_creation(
    job: Job, newest: Workflow | None, *, uid: ScheduleUid, tenant: str, now: int, finished: bool = False
) -> JobChangePlan:
    """The plan for a new job. A job that is not enabled is paused from the start.

    `finished` says that the one-shot job ran and was deleted: it stays deleted. FieldError for any other job whose only
    time is past its grace.
    """
    workflow, spec = _with_version(job, newest, tenant)
    made = new_schedule(uid, tenant, job.name, spec, now=now)
    if finished:
        return JobChangePlan(change=JobChange.FINISHED, schedule=made, job=job)
    if is_missed_one_shot(spec, now=now):
        raise missed_one_shot_error(spec, f"{job.name}.at", now=now)
    return JobChangePlan(
        change=JobChange.CREATED,
        job=job,
        schedule=made if job.enabled else replace(made, paused_at=now, next_fire_at=None),
        workflow=_new_version(workflow, newest),
    )


def plan_change(
    job: Job, newest: Workflow | None, standing: Schedule, *, now: int, limit: CatchupLimit = DEFAULT_LIMIT
) -> JobChangePlan:
    """The plan for an existing job. It never resumes a paused job: an operator may have paused it for a reason."""
    workflow, spec = _with_version(job, newest, standing.tenant)
    same, pauses = same_spec(standing.spec, spec), not job.enabled and standing.paused_at is None
    new = _new_version(workflow, newest)
    plan = JobChangePlan(change=JobChange.CHANGED, schedule=standing, job=job, standing=standing)
    if same and not pauses:
        plan = replace(plan, change=JobChange.UNCHANGED if new is None else JobChange.CHANGED, workflow=new)
        return _redeclared(plan, standing, spec.origin) if _is_redeclared(standing.spec, spec.origin) else plan
    if not same and spec.trigger != standing.spec.trigger and is_missed_one_shot(spec, now=now):
        raise missed_one_shot_error(spec, f"{job.name}.at", now=now)
    verdict = verdict_before_edit(standing, now=now, limit=limit)
    if has_remaining_due(verdict, now=now):
        return replace(plan, overdue=verdict)
    after = (
        paused_schedule(verdict, now=now)
        if same
        else edited_schedule(verdict, keep_interval_anchor(standing.spec, spec), now=now)
    )
    if pauses:
        after = replace(after, paused_at=now, next_fire_at=None)
    return replace(plan, schedule=after, workflow=new, edit=ScheduleEdit(verdict, after))


def _is_redeclared(current: Spec, origin: str) -> bool:
    """Whether the same definition belongs to this origin from now on. A request that changes nothing takes nothing."""
    takes = current.orphaned if not declares(origin) else current.origin != origin or current.orphaned
    return bool(origin) and takes


def _redeclared(plan: JobChangePlan, standing: Schedule, origin: str, *, orphaned: bool = False) -> JobChangePlan:
    verdict, after = redeclared(standing, origin, orphaned=orphaned)
    return replace(plan, schedule=after, edit=ScheduleEdit(verdict, after))


def plan_orphan(standing: Schedule) -> JobChangePlan:
    """The plan for a job that its origin does not declare any more: it is marked, and stays active."""
    plan = JobChangePlan(change=JobChange.ORPHANED, schedule=standing, standing=standing)
    if standing.spec.orphaned:
        return plan
    return _redeclared(plan, standing, standing.spec.origin, orphaned=True)


def plan_removal(standing: Schedule, *, now: int, limit: CatchupLimit = DEFAULT_LIMIT) -> JobChangePlan:
    """The plan for removing a job. Its active runs continue."""
    plan = JobChangePlan(change=JobChange.REMOVED, schedule=standing, standing=standing)
    verdict = verdict_before_edit(standing, now=now, limit=limit)
    if has_remaining_due(verdict, now=now):
        return replace(plan, overdue=verdict)
    return replace(plan, removal=verdict)


def prunable(standing: Schedule) -> bool:
    """Whether pruning may delete it: a schedule of a deployed workflow belongs to that workflow."""
    return standing.spec.workflow_id == standing.schedule_id


def changeset_of(plans: Iterable[JobChangePlan]) -> JobChangeset:
    """All plans as one changeset."""
    plans = tuple(plans)
    return JobChangeset(
        workflows=[plan.workflow for plan in plans if plan.workflow is not None],
        added=[plan.schedule for plan in plans if plan.change is JobChange.CREATED],
        edits=[plan.edit for plan in plans if plan.edit is not None],
        removed=[plan.removal for plan in plans if plan.removal is not None],
    )


async def decide_overdue(
    schedules: Schedules, schedule: Schedule, *, now: int, tzdata: str, limit: CatchupLimit = DEFAULT_LIMIT
) -> None:
    """Decide all due ticks; stop if a concurrent change was faster: the caller reads the schedule again."""
    while has_remaining_due(verdict := verdict_before_edit(schedule, now=now, limit=limit), now=now):
        schedule = schedule_after(verdict)
        if not await schedules.change(verdict, schedule, now=now, actor="", tzdata=tzdata):
            return


def _with_version(job: Job, newest: Workflow | None, tenant: str) -> tuple[Workflow, Spec]:
    """The job's workflow and spec with their version number: the newest one, or the next if they differ."""
    workflow = replace(job.workflow, tenant=tenant, version=1 if newest is None else newest.version)
    if newest is not None and workflow != newest:
        workflow = replace(workflow, version=newest.version + 1)
    return workflow, replace(job.spec, workflow_version=workflow.version)


def _new_version(workflow: Workflow, newest: Workflow | None) -> Workflow | None:
    return None if newest is not None and workflow.version == newest.version else workflow
