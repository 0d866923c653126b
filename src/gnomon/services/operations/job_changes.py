"""What it takes to make a job stand as its file says: decided from what stands now, and carried out elsewhere."""

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
    """What applying a job came to."""

    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    REMOVED = "removed"


class Prune(Struct, frozen=True):
    """Which jobs are removed that no file names: all of them, or those with a tag."""

    tag: str | None = None


class JobChangePlan(Struct, frozen=True, kw_only=True):
    """What is to be done about one job."""

    change: JobChange
    #: As it will stand; as it stood, if it is removed.
    schedule: Schedule
    #: As it is written; None if it is not.
    job: Job | None = None
    #: As it stands; None if it does not.
    standing: Schedule | None = None
    #: A version that there was not.
    workflow: Workflow | None = None
    edit: ScheduleEdit | None = None
    #: What is due of a schedule that is to go.
    removal: Verdict | None = None
    #: Ticks that are to be decided before anything else, because the catch-up cap leaves more of them.
    overdue: Verdict | None = None


def plan_creation(job: Job, newest: Workflow | None, *, uid: ScheduleUid, tenant: str, now: int) -> JobChangePlan:
    """The plan for a job whose name is free. One that is not to run yet is paused from the start.

    One that was to run once and then be gone, at a time that is past, is gone: there is nothing to do about it.
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
    """The plan for a job that there is. It is never resumed: whoever paused it may have had a reason."""
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
    """The plan for a job that there is and that is to go. What it has under way goes on."""
    plan = JobChangePlan(change=JobChange.REMOVED, schedule=standing, standing=standing)
    verdict = verdict_before_edit(standing, now=now)
    if has_remaining_due(verdict, now=now):
        return replace(plan, overdue=verdict)
    return replace(plan, removal=verdict)


def prunable(standing: Schedule) -> bool:
    """Whether it may go because no file names it: a schedule of a deployed workflow comes and goes with that."""
    return standing.spec.workflow_id == standing.schedule_id


def _is_past_one_shot(spec: Spec, now: int) -> bool:
    return spec.delete_after_run and isinstance(spec.trigger, At) and ms_of(spec.trigger.instant) <= now


def changeset_of(plans: Iterable[JobChangePlan]) -> JobChangeset:
    """All plans as one wish."""
    plans = tuple(plans)
    return JobChangeset(
        workflows=[plan.workflow for plan in plans if plan.workflow is not None],
        added=[plan.schedule for plan in plans if plan.change is JobChange.CREATED],
        edits=[plan.edit for plan in plans if plan.edit is not None],
        removed=[plan.removal for plan in plans if plan.removal is not None],
    )


async def decide_overdue(schedules: Schedules, schedule: Schedule, *, now: int, tzdata: str) -> None:
    """All that is due is decided; if someone else was quicker, whoever reads it next goes on."""
    while has_remaining_due(verdict := verdict_before_edit(schedule, now=now), now=now):
        schedule = schedule_after(verdict)
        if not await schedules.change(verdict, schedule, now=now, actor="", tzdata=tzdata):
            return


def _with_version(job: Job, newest: Workflow | None, tenant: str) -> tuple[Workflow, Spec]:
    """The job's workflow and spec under the version that they have, or get."""
    workflow = replace(job.workflow, tenant=tenant, version=1 if newest is None else newest.version)
    if newest is not None and workflow != newest:
        workflow = replace(workflow, version=newest.version + 1)
    return workflow, replace(job.spec, workflow_version=workflow.version)


def _new_version(workflow: Workflow, newest: Workflow | None) -> Workflow | None:
    return None if newest is not None and workflow.version == newest.version else workflow
