"""The planner: what applying a file would do, told before it is done. Nothing is written."""

import asyncio
from collections.abc import Mapping, Sequence

from msgspec import Struct

from gnomon.core.jobs.job import Job
from gnomon.core.ledger.forecast import MOST_WALKED, FireChangeKind, Forecast, forecast
from gnomon.core.model import Schedule
from gnomon.core.runs.workflow import Workflow
from gnomon.ports.runtime import Clock
from gnomon.ports.schedules import Jobs
from gnomon.services.operations.job_changes import JobChange, JobChangePlan, Prune
from gnomon.services.operations.jobs import JobService

#: How many fires of all jobs together are looked at one by one, and how many of each once that is used up.
_MOST_WALKED_IN_ALL, _WALKED_OF_EACH = 100_000, 5


class PlannedJob(Struct, frozen=True, kw_only=True):
    """What would become of one job."""

    change: JobChange
    forecast: Forecast
    #: As it is written, or else as it stands: for its zone.
    job: Job
    #: As it stands; None if it does not.
    standing: Schedule | None = None


class JobsPlan(Struct, frozen=True, kw_only=True):
    """What would become of all of them, and of their fires after `from_at` and up to `until_at`."""

    from_at: int
    until_at: int
    jobs: tuple[PlannedJob, ...]

    def count(self, change: JobChange) -> int:
        """How many jobs that would become of."""
        return sum(one.change is change for one in self.jobs)

    def fires(self, fate: FireChangeKind) -> int:
        """How many fires that would become of, as far as they were compared."""
        return sum(one.forecast.fires.count(fate) for one in self.jobs)


class Planner:
    """Asks the book what `apply` would do, and says what that means."""

    def __init__(self, book: JobService, jobs: Jobs, clock: Clock) -> None:
        self._job_service = book
        self._jobs = jobs
        self._clock = clock
        self._comparing = asyncio.Lock()

    async def plan(
        self, jobs: Sequence[Job], *, ahead_ms: int, prune: Prune | None = None, tenant: str = "default"
    ) -> JobsPlan:
        """What would become of the jobs if they were applied now, and of their fires for so long."""
        now = self._clock.now()
        until = now + ahead_ms
        plans = await self._job_service.plan_changes(jobs, now=now, tenant=tenant, prune=prune)
        names = [plan.standing.spec.workflow_id for plan in plans if plan.standing and plan.change is JobChange.CHANGED]
        newest = {one.workflow_id: one for one in await self._jobs.newest_workflows(tenant, names)}
        told, left = list[PlannedJob](), _MOST_WALKED_IN_ALL
        # Many fires take long to compare: one plan at a time, and between two jobs others have a turn.
        async with self._comparing:
            for plan in plans:
                most = max(_WALKED_OF_EACH, min(MOST_WALKED, left))
                told.append(await self._told(plan, newest, (now, until), most))
                left -= told[-1].forecast.fires.walked
                await asyncio.sleep(0)
        return JobsPlan(from_at=now, until_at=until, jobs=tuple(told))

    async def _told(
        self, plan: JobChangePlan, newest: Mapping[str, Workflow], between: tuple[int, int], most: int
    ) -> PlannedJob:
        before = None if plan.standing is None else await self._as_it_stands(plan, plan.standing, newest)
        gone = plan.job is not None and before is None and plan.change is JobChange.UNCHANGED
        after = plan.job
        said = after or before
        assert said is not None, "a plan is about a job"  # noqa: S101 - tells the type checker
        if gone:
            # A one-shot whose time is past: it does not come to stand.
            before = after
        now, until = between
        told = forecast(before, after, now=now, until=until, most=most)
        return PlannedJob(change=plan.change, forecast=told, job=said, standing=plan.standing)

    async def _as_it_stands(self, plan: JobChangePlan, standing: Schedule, newest: Mapping[str, Workflow]) -> Job:
        spec = standing.spec
        known = newest.get(spec.workflow_id)
        if plan.change is JobChange.UNCHANGED and plan.job is not None:
            workflow: Workflow | None = plan.job.workflow
        elif plan.change is JobChange.REMOVED:
            workflow = None
        elif known is not None and known.version == spec.workflow_version:
            workflow = known
        else:
            workflow = await self._jobs.workflow(standing.tenant, spec.workflow_id, spec.workflow_version)
        unknown = Workflow(workflow_id=spec.workflow_id, version=spec.workflow_version, steps=())
        return Job(
            name=standing.schedule_id, spec=spec, workflow=workflow or unknown, enabled=standing.paused_at is None
        )
