"""Plans what applying jobs would change, in fields and in fires, without writing anything."""

from collections.abc import Mapping, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from gnomon.core.jobs.job import Job
from gnomon.core.ledger.forecast import MOST_WALKED, FireChangeKind, Forecast, forecast
from gnomon.core.ledger.ticks import Ticks
from gnomon.core.model import Schedule
from gnomon.core.runs.workflow import Workflow
from gnomon.ports.runtime import Clock
from gnomon.ports.schedules import Jobs
from gnomon.services.loop import ComputeQueue
from gnomon.services.operations.job_changes import JobChange, JobChangePlan, Prune
from gnomon.services.operations.jobs import JobService
from gnomon.services.operations.policy_outlook import ExpectedRun, PolicyOutlook, RunOutlook

#: The fires that are compared one by one: of all jobs together, and of each job once that budget is used up.
_MOST_WALKED_IN_ALL, _WALKED_OF_EACH = 100_000, 5


class PlannedJob(Struct, frozen=True, kw_only=True):
    """The planned change of one job."""

    change: JobChange
    forecast: Forecast
    #: The new definition, or the stored one if the job is removed: it has the time zone.
    job: Job
    #: The stored schedule; None if the job is new.
    standing: Schedule | None = None
    #: The steps of its next run that the policy in force would hold back.
    outlook: RunOutlook = RunOutlook()
    #: See `JobService.warnings`.
    warnings: tuple[str, ...] = ()


class JobsPlan(Struct, frozen=True, kw_only=True):
    """The planned changes of all jobs, and of their fires after `from_at` and up to `until_at`."""

    from_at: int
    until_at: int
    jobs: tuple[PlannedJob, ...]
    #: The plans of `JobService.apply`.
    changes: tuple[JobChangePlan, ...] = ()

    def count(self, change: JobChange) -> int:
        """The number of jobs with this change."""
        return sum(one.change is change for one in self.jobs)

    def fires(self, fate: FireChangeKind) -> int:
        """The number of fires with this change, as far as they were compared."""
        return sum(one.forecast.fires.count(fate) for one in self.jobs)


class Planner:
    """Compares the plan of `JobService.apply` with the stored jobs, and their fires."""

    def __init__(
        self,
        job_service: JobService,
        jobs: Jobs,
        clock: Clock,
        compute: ComputeQueue | None = None,
        *,
        outlook: PolicyOutlook | None = None,
    ) -> None:
        """`outlook` knows what the policy would decide; None: there is no policy."""
        self._outlook = outlook
        self._job_service = job_service
        self._jobs = jobs
        self._clock = clock
        self._compute = compute or ComputeQueue()

    async def plan(
        self, jobs: Sequence[Job], *, ahead_ms: int, prune: Prune | None = None, tenant: str = "default"
    ) -> JobsPlan:
        """The changes if the jobs were applied now, and the changes of their fires in the next `ahead_ms`."""
        now = self._clock.now()
        until = now + ahead_ms
        plans = await self._job_service.plan_changes(jobs, now=now, tenant=tenant, prune=prune)
        names = [plan.standing.spec.workflow_id for plan in plans if plan.standing and plan.change is JobChange.CHANGED]
        newest = {one.workflow_id: one for one in await self._jobs.newest_workflows(tenant, names)}
        stored = [
            None if plan.standing is None else await self._stored_job(plan, plan.standing, newest) for plan in plans
        ]
        # In a thread: the fires of one job alone may take longer than the event loop can wait.
        planned = await self._compute.run_in_thread(partial(_planned_jobs, plans, stored, now=now, until=until))
        warnings = await self._job_service.warnings(plans)
        planned = tuple(replace(one, warnings=warnings.get(one.forecast.name, ())) for one in planned)
        expected = await self._with_outlook(planned, tenant, now)
        return JobsPlan(from_at=now, until_at=until, jobs=expected, changes=tuple(plans))

    async def _with_outlook(self, planned: Sequence[PlannedJob], tenant: str, now: int) -> tuple[PlannedJob, ...]:
        """The same, with what the policy in force would decide about the next run of each."""
        if self._outlook is None:
            return tuple(planned)

        def expected_run(one: PlannedJob) -> ExpectedRun:
            return ExpectedRun(tenant=tenant, job=one.job.name, workflow=one.job.workflow, at=next_run_at(one.job, now))

        runs = await self._compute.map(expected_run, planned)
        found = await self._outlook.of(runs)
        return tuple(
            one if one.change is JobChange.REMOVED or not expected.steps else replace(one, outlook=expected)
            for one, expected in zip(planned, found, strict=True)
        )

    async def outlooks(self, jobs: Sequence[Job], *, tenant: str = "default") -> Sequence[tuple[str, RunOutlook]]:
        """The jobs of which the policy in force would hold back a step of the next run."""
        now = self._clock.now()
        if self._outlook is None:
            return ()

        def expected_run(one: Job) -> ExpectedRun:
            return ExpectedRun(tenant=tenant, job=one.name, workflow=one.workflow, at=next_run_at(one, now))

        runs = await self._compute.map(expected_run, jobs)
        found = zip(jobs, await self._outlook.of(runs), strict=True)
        return [(job.name, expected) for job, expected in found if expected.steps]

    async def _stored_job(self, plan: JobChangePlan, standing: Schedule, newest: Mapping[str, Workflow]) -> Job:
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


def _planned_jobs(
    plans: Sequence[JobChangePlan], stored: Sequence[Job | None], *, now: int, until: int
) -> tuple[PlannedJob, ...]:
    """The plans with their forecasts. `stored` holds the job of each plan as it is stored."""
    planned, left = list[PlannedJob](), _MOST_WALKED_IN_ALL
    for plan, before in zip(plans, stored, strict=True):
        most = max(_WALKED_OF_EACH, min(MOST_WALKED, left))
        planned.append(_planned_job(plan, before, now=now, until=until, most=most))
        left -= planned[-1].forecast.fires.walked
    return tuple(planned)


def _planned_job(plan: JobChangePlan, before: Job | None, *, now: int, until: int, most: int) -> PlannedJob:
    expired = plan.change is JobChange.FINISHED
    after = plan.job
    shown = after or before
    assert shown is not None, "a plan is about a job"  # noqa: S101 - tells the type checker
    if expired:
        # A one-shot job whose time is past is not created.
        before = after
    expected = forecast(before, after, now=now, until=until, most=most)
    return PlannedJob(change=plan.change, forecast=expected, job=shown, standing=plan.standing)


def next_run_at(job: Job, now: int) -> int:
    """The next planned time of a job; now, if it has none."""
    found = Ticks(job.name, job.spec).after(now)
    return now if found is None else found
