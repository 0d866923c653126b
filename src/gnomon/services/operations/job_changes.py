"""What it takes to make a job stand as its file says: decided from what stands now, and carried out elsewhere."""

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from gnomon.core.instants import ms_of
from gnomon.core.jobs.job import Job
from gnomon.core.ledger.edits import edited, fresh, kept_grid, leaves_some_due, paused, same_spec, verdict_before
from gnomon.core.ledger.plan import settled
from gnomon.core.model import Schedule, ScheduleUid, Spec, Verdict
from gnomon.core.runs.workflow import Workflow
from gnomon.core.triggers import At
from gnomon.ports.schedules import Application, Edit, Schedules


class Change(StrEnum):
    """What applying a job came to."""

    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    REMOVED = "removed"


class Prune(Struct, frozen=True):
    """Which jobs are removed that no file names: all of them, or those with a tag."""

    tag: str | None = None


class Plan(Struct, frozen=True, kw_only=True):
    """What is to be done about one job."""

    change: Change
    #: As it will stand; as it stood, if it is removed.
    schedule: Schedule
    #: As it is written; None if it is not.
    job: Job | None = None
    #: As it stands; None if it does not.
    standing: Schedule | None = None
    #: A version that there was not.
    workflow: Workflow | None = None
    edit: Edit | None = None
    #: What is due of a schedule that is to go.
    removal: Verdict | None = None
    #: Ticks that are to be decided before anything else, because the catch-up cap leaves more of them.
    overdue: Verdict | None = None


def created(job: Job, newest: Workflow | None, *, uid: ScheduleUid, tenant: str, now: int) -> Plan:
    """The plan for a job whose name is free. One that is not to run yet is paused from the start.

    One that was to run once and then be gone, at a time that is past, is gone: there is nothing to do about it.
    """
    workflow, spec = _versioned(job, newest, tenant)
    made = fresh(uid, tenant, job.name, spec, now=now)
    if _is_gone(spec, now):
        return Plan(change=Change.UNCHANGED, schedule=made, job=job)
    return Plan(
        change=Change.CREATED,
        job=job,
        schedule=made if job.enabled else replace(made, paused_at=now, next_fire_at=None),
        workflow=_new(workflow, newest),
    )


def changed(job: Job, newest: Workflow | None, standing: Schedule, *, now: int) -> Plan:
    """The plan for a job that there is. It is never resumed: whoever paused it may have had a reason."""
    workflow, spec = _versioned(job, newest, standing.tenant)
    same, pauses = same_spec(standing.spec, spec), not job.enabled and standing.paused_at is None
    new = _new(workflow, newest)
    plan = Plan(change=Change.CHANGED, schedule=standing, job=job, standing=standing)
    if same and not pauses:
        return replace(plan, change=Change.UNCHANGED if new is None else Change.CHANGED, workflow=new)
    verdict = verdict_before(standing, now=now)
    if leaves_some_due(verdict, now=now):
        return replace(plan, overdue=verdict)
    after = paused(verdict, now=now) if same else edited(verdict, kept_grid(standing.spec, spec), now=now)
    if pauses:
        after = replace(after, paused_at=now, next_fire_at=None)
    return replace(plan, schedule=after, workflow=new, edit=Edit(verdict, after))


def removed(standing: Schedule, *, now: int) -> Plan:
    """The plan for a job that there is and that is to go. What it has under way goes on."""
    plan = Plan(change=Change.REMOVED, schedule=standing, standing=standing)
    verdict = verdict_before(standing, now=now)
    if leaves_some_due(verdict, now=now):
        return replace(plan, overdue=verdict)
    return replace(plan, removal=verdict)


def prunable(standing: Schedule) -> bool:
    """Whether it may go because no file names it: a schedule of a deployed workflow comes and goes with that."""
    return standing.spec.workflow_id == standing.schedule_id


def _is_gone(spec: Spec, now: int) -> bool:
    return spec.delete_after_run and isinstance(spec.trigger, At) and ms_of(spec.trigger.instant) <= now


def application(plans: Iterable[Plan]) -> Application:
    """All plans as one wish."""
    plans = tuple(plans)
    return Application(
        workflows=[plan.workflow for plan in plans if plan.workflow is not None],
        added=[plan.schedule for plan in plans if plan.change is Change.CREATED],
        edits=[plan.edit for plan in plans if plan.edit is not None],
        removed=[plan.removal for plan in plans if plan.removal is not None],
    )


async def decide_overdue(schedules: Schedules, schedule: Schedule, *, now: int, tzdata: str) -> None:
    """All that is due is decided; if someone else was quicker, whoever reads it next goes on."""
    while leaves_some_due(verdict := verdict_before(schedule, now=now), now=now):
        schedule = settled(verdict)
        if not await schedules.change(verdict, schedule, now=now, actor="", tzdata=tzdata):
            return


def _versioned(job: Job, newest: Workflow | None, tenant: str) -> tuple[Workflow, Spec]:
    """The job's workflow and spec under the version that they have, or get."""
    workflow = replace(job.workflow, tenant=tenant, version=1 if newest is None else newest.version)
    if newest is not None and workflow != newest:
        workflow = replace(workflow, version=newest.version + 1)
    return workflow, replace(job.spec, workflow_version=workflow.version)


def _new(workflow: Workflow, newest: Workflow | None) -> Workflow | None:
    return None if newest is not None and workflow.version == newest.version else workflow
