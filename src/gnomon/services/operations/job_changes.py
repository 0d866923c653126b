"""Plans the change of a job to a new definition: compares it with the stored schedule; `Jobs.apply` writes the plan."""

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from gnomon.core.instants import ms_of
from gnomon.core.jobs.job import Job
from gnomon.core.ledger.edits import (
    edited_schedule,
    has_remaining_due,
    keep_interval_anchor,
    new_schedule,
    paused_schedule,
    same_spec,
    verdict_before_edit,
)
from gnomon.core.ledger.plan import schedule_after
from gnomon.core.model import Schedule, ScheduleUid, Spec, Verdict
from gnomon.core.runs.workflow import Workflow
from gnomon.core.triggers import At
from gnomon.ports.schedules import JobChangeset, ScheduleEdit, Schedules


class JobChange(StrEnum):
    """The effect of applying a job."""

    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    REMOVED = "removed"


class Prune(Struct, frozen=True):
    """Deletes the jobs that are in none of the files: all of them, or those with a tag."""

    tag: str | None = None


class JobChangePlan(Struct, frozen=True, kw_only=True):
    """The planned change of one job."""

    change: JobChange
    #: The schedule after the change; the stored one if it is removed.
    schedule: Schedule
    #: The new definition; None if the job is removed.
    job: Job | None = None
    #: The stored schedule; None if the job is new.
    standing: Schedule | None = None
    #: The new version of the workflow; None if it has not changed.
    workflow: Workflow | None = None
    edit: ScheduleEdit | None = None
    #: The decision on the due ticks of a schedule that is removed.
    removal: Verdict | None = None
    #: Ticks to decide before the change, because the catch-up cap leaves more than one decision.
    overdue: Verdict | None = None


def plan_creation(job: Job, newest: Workflow | None, *, uid: ScheduleUid, tenant: str, now: int) -> JobChangePlan:
    """The plan for a new job. A job that is not enabled is paused from the start.

    A one-shot job with `delete_after_run` whose time is past counts as deleted: nothing changes.
    """
    workflow, spec = _with_version(job, newest, tenant)
    made = new_schedule(uid, tenant, job.name, spec, now=now)
    if _is_past_one_shot(spec, now):
        return JobChangePlan(change=JobChange.UNCHANGED, schedule=made, job=job)
    return JobChangePlan(
        change=JobChange.CREATED,
        job=job,
        schedule=made if job.enabled else replace(made, paused_at=now, next_fire_at=None),
        workflow=_new_version(workflow, newest),
    )


def plan_change(job: Job, newest: Workflow | None, standing: Schedule, *, now: int) -> JobChangePlan:
    """The plan for an existing job. It never resumes a paused job: an operator may have paused it for a reason."""
    workflow, spec = _with_version(job, newest, standing.tenant)
    same, pauses = same_spec(standing.spec, spec), not job.enabled and standing.paused_at is None
    new = _new_version(workflow, newest)
    plan = JobChangePlan(change=JobChange.CHANGED, schedule=standing, job=job, standing=standing)
    if same and not pauses:
        return replace(plan, change=JobChange.UNCHANGED if new is None else JobChange.CHANGED, workflow=new)
    verdict = verdict_before_edit(standing, now=now)
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


def plan_removal(standing: Schedule, *, now: int) -> JobChangePlan:
    """The plan for removing a job. Its active runs continue."""
    plan = JobChangePlan(change=JobChange.REMOVED, schedule=standing, standing=standing)
    verdict = verdict_before_edit(standing, now=now)
    if has_remaining_due(verdict, now=now):
        return replace(plan, overdue=verdict)
    return replace(plan, removal=verdict)


def prunable(standing: Schedule) -> bool:
    """Whether pruning may delete it: a schedule of a deployed workflow belongs to that workflow."""
    return standing.spec.workflow_id == standing.schedule_id


def _is_past_one_shot(spec: Spec, now: int) -> bool:
    return spec.delete_after_run and isinstance(spec.trigger, At) and ms_of(spec.trigger.instant) <= now


def changeset_of(plans: Iterable[JobChangePlan]) -> JobChangeset:
    """All plans as one changeset."""
    plans = tuple(plans)
    return JobChangeset(
        workflows=[plan.workflow for plan in plans if plan.workflow is not None],
        added=[plan.schedule for plan in plans if plan.change is JobChange.CREATED],
        edits=[plan.edit for plan in plans if plan.edit is not None],
        removed=[plan.removal for plan in plans if plan.removal is not None],
    )


async def decide_overdue(schedules: Schedules, schedule: Schedule, *, now: int, tzdata: str) -> None:
    """Decide all due ticks; stop if a concurrent change was faster: the caller reads the schedule again."""
    while has_remaining_due(verdict := verdict_before_edit(schedule, now=now), now=now):
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
