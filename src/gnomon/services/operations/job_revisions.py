"""The revisions of a job: its definitions, one after the other, and what changed from each to the next."""

from collections.abc import Sequence

from msgspec import Struct

from gnomon.core.jobs.fields import page_limit, schedule_name
from gnomon.core.jobs.job import Job
from gnomon.core.ledger.forecast import FieldChange, changed_fields
from gnomon.core.runs.workflow import Workflow
from gnomon.errors import NotFound
from gnomon.ports.schedules import Jobs, Revision, ScheduleHistory, Schedules
from gnomon.services.execution.workflow_cache import WorkflowCache, WorkflowKey
from gnomon.services.loop import ComputeQueue


class RevisionView(Struct, frozen=True, kw_only=True):
    """A revision of a job."""

    revision: Revision
    #: None if that version of the workflow is no longer kept.
    workflow: Workflow | None
    #: How it differs from the one before; None for the first, and if one of the two workflows is not kept.
    changes: Sequence[FieldChange] | None


class RevisionPage(Struct, frozen=True):
    """Revisions, newest first, and the number before which the next page starts; None after the last."""

    items: Sequence[RevisionView]
    before: int | None


class JobRevisionService:
    """Lists the revisions of jobs."""

    def __init__(self, schedules: Schedules, history: ScheduleHistory, jobs: Jobs, *, compute: ComputeQueue) -> None:
        self._schedules, self._history = schedules, history
        self._workflow_cache = WorkflowCache(jobs)
        self._compute = compute

    async def page(self, name: str, *, before: int | None = None, limit: int = 20, tenant: str) -> RevisionPage:
        """The revisions of a job before a number; NotFound if there is no such job."""
        schedule = await self._schedules.find(schedule_name("tenant", tenant), schedule_name("job", name))
        if schedule is None:
            raise NotFound("job", name)
        found = await self._history.revisions(schedule.uid, before=before, newest=page_limit(limit) + 1)
        newest_first = found[::-1]
        workflows = await self._workflow_cache.get_many({_key(one) for one in found})

        def view(number: int) -> RevisionView:
            one = newest_first[number]
            earlier = newest_first[number + 1] if number + 1 < len(newest_first) else None
            workflow = workflows.get(_key(one))
            return RevisionView(revision=one, workflow=workflow, changes=changes(earlier, one))

        def changes(earlier: Revision | None, later: Revision) -> Sequence[FieldChange] | None:
            if earlier is None:
                return None
            old, new = workflows.get(_key(earlier)), workflows.get(_key(later))
            return None if old is None or new is None else changed_fields(_job(earlier, old), _job(later, new))

        shown = await self._compute.map(view, range(min(limit, len(found))))
        return RevisionPage(shown, shown[-1].revision.revision if len(found) > limit else None)


def _key(revision: Revision) -> WorkflowKey:
    schedule = revision.schedule
    return schedule.tenant, schedule.spec.workflow_id, schedule.spec.workflow_version


def _job(revision: Revision, workflow: Workflow) -> Job:
    schedule = revision.schedule
    enabled = schedule.paused_at is None
    return Job(name=schedule.schedule_id, spec=schedule.spec, workflow=workflow, enabled=enabled)
