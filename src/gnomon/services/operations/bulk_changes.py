"""Pauses, resumes and triggers many jobs, and cancels many executions: each by itself, with the outcome of each."""

from asyncio import gather
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from msgspec import Struct

from gnomon.core.ledger.edits import MissedTicks, ResumeChoice, missed_ticks, resume_verdict
from gnomon.core.model import Run, RunId, RunSource, Schedule
from gnomon.errors import GnomonError, NotFound
from gnomon.ports.runs import RunQuery
from gnomon.ports.runtime import Clock
from gnomon.ports.schedules import SchedulePosition, Schedules
from gnomon.services.operations.executions import ExecutionService, SearchPage, SearchService
from gnomon.services.operations.job_search import JobFilter, JobSearchService
from gnomon.services.operations.jobs import JobService
from gnomon.services.operations.launcher import Launcher

#: The changes that are made at once: a store commits them together.
_AT_ONCE = 20
#: The outcome of a change that had nothing to do.
UNCHANGED = "unchanged"
T = TypeVar("T")


class JobOutcome(Struct, frozen=True, kw_only=True):
    """The outcome of a change of one of many jobs, or the expected one in a preview."""

    job: str
    #: `paused`, `resumed`, the outcome of a launch, or `unchanged`; None if it was refused.
    became: str | None = None
    refused: str | None = None
    run_id: RunId | None = None
    #: The ticks of the pause that has ended, and how many of them run.
    swallowed: MissedTicks | None = None
    runs: int | None = None


class RunOutcome(Struct, frozen=True, kw_only=True):
    """The outcome of the cancellation of one of many runs, or the expected one in a preview."""

    run_id: RunId
    job: str | None = None
    became: str | None = None
    refused: str | None = None


class JobSelection(Struct, frozen=True, kw_only=True):
    """The jobs to change: those with these names, or a page of those that match."""

    names: Sequence[str] | None = None
    filters: JobFilter = JobFilter()
    after: SchedulePosition | None = None
    limit: int = 100


_JobPage = SearchPage[JobOutcome, SchedulePosition]
_RunPage = SearchPage[RunOutcome, tuple[int, str]]


class BulkChangeService:
    """Changes many objects. A failure of one is its outcome, and does not keep the others from being changed."""

    def __init__(
        self,
        job_service: JobService,
        execution_service: ExecutionService,
        launcher: Launcher,
        schedules: Schedules,
        clock: Clock,
        *,
        jobs: JobSearchService,
        runs: SearchService,
    ) -> None:
        """`jobs` and `runs` find those that match."""
        self._job_service = job_service
        self._execution_service = execution_service
        self._launcher = launcher
        self._schedules = schedules
        self._clock = clock
        self._job_search = jobs
        self._run_search = runs

    async def pause(self, selection: JobSelection, *, actor: str, tenant: str, preview: bool = False) -> _JobPage:
        """Pause the jobs that are not paused."""

        async def pause(schedule: Schedule) -> JobOutcome:
            name = schedule.schedule_id
            if schedule.paused_at is not None:
                return JobOutcome(job=name, became=UNCHANGED)
            if not preview:
                await self._job_service.pause(name, actor=actor, tenant=tenant)
            return JobOutcome(job=name, became="paused")

        return await self._each_job(selection, tenant, pause)

    async def resume(
        self, selection: JobSelection, missed: ResumeChoice, *, actor: str, tenant: str, preview: bool = False
    ) -> _JobPage:
        """Resume the jobs that are paused, each with this choice for the ticks of its pause."""

        async def resume(schedule: Schedule) -> JobOutcome:
            name = schedule.schedule_id
            if schedule.paused_at is None:
                return JobOutcome(job=name, became=UNCHANGED)
            if preview:
                now = self._clock.now()
                runs = sum(one.starts_run for one in resume_verdict(schedule, missed, now=now).decisions)
                return JobOutcome(job=name, became="resumed", swallowed=missed_ticks(schedule, now=now), runs=runs)
            done = await self._job_service.resume(name, actor=actor, missed=missed, tenant=tenant)
            return JobOutcome(job=name, became="resumed", swallowed=done.swallowed, runs=done.runs)

        return await self._each_job(selection, tenant, resume)

    async def trigger(  # noqa: PLR0913 - everything that a caller may choose
        self,
        selection: JobSelection,
        *,
        actor: str,
        groups: Collection[str],
        tenant: str,
        input: Mapping[str, Any] | None = None,  # noqa: A002 - named as in jobs files and the API
        key: str | None = None,
        source: RunSource = RunSource.API,
        preview: bool = False,
    ) -> _JobPage:
        """Start a run of each job, once per key."""

        async def trigger(schedule: Schedule) -> JobOutcome:
            name = schedule.schedule_id
            if preview:
                return JobOutcome(job=name, became="started")
            done = await self._launcher.trigger(
                name, actor=actor, groups=groups, input=input, key=key, source=source, tenant=tenant
            )
            return JobOutcome(job=name, became=done.became.value, run_id=done.run_id)

        return await self._each_job(selection, tenant, trigger)

    async def cancel(
        self,
        query: RunQuery,
        *,
        actor: str,
        ids: Sequence[str] | None = None,
        tag: str | None = None,
        preview: bool = False,
    ) -> _RunPage:
        """Cancel the runs with these ids, or a page of those that match and have not ended."""

        async def cancel(run: Run) -> RunOutcome:
            if run.over:
                return RunOutcome(run_id=run.run_id, job=run.schedule_id, became=UNCHANGED)
            if preview:
                return RunOutcome(run_id=run.run_id, job=run.schedule_id, became="cancelled")
            became = await self._execution_service.cancel(run.run_id, actor=actor, tenant=run.tenant)
            return RunOutcome(run_id=run.run_id, job=run.schedule_id, became=became.value)

        def refused(run: Run, error: GnomonError) -> RunOutcome:
            return RunOutcome(run_id=run.run_id, job=run.schedule_id, refused=str(error))

        if ids is not None:
            runs, after = [await self._execution_service.find(name, tenant=query.tenant) for name in ids], None
        else:
            page = await self._run_search.executions(query, tag=tag)
            runs, after = [one.run for one in page.items], page.after
        return SearchPage(await _outcomes(runs, cancel, refused), after)

    async def _each_job(
        self, selection: JobSelection, tenant: str, change: Callable[[Schedule], Awaitable[JobOutcome]]
    ) -> _JobPage:
        def refused(schedule: Schedule, error: GnomonError) -> JobOutcome:
            return JobOutcome(job=schedule.schedule_id, refused=str(error))

        schedules, after = await self._selected(selection, tenant)
        return SearchPage(await _outcomes(schedules, change, refused), after)

    async def _selected(
        self, selection: JobSelection, tenant: str
    ) -> tuple[Sequence[Schedule], SchedulePosition | None]:
        if selection.names is None:
            page = await self._job_search.page(
                selection.filters, tenant=tenant, after=selection.after, limit=selection.limit
            )
            return [one.view.schedule for one in page.items], page.after
        found = [await self._schedules.find(tenant, name) for name in selection.names]
        for name, schedule in zip(selection.names, found, strict=True):
            if schedule is None:
                raise NotFound("job", name)
        return [one for one in found if one is not None], None


S = TypeVar("S")


async def _outcomes(
    subjects: Sequence[S], change: Callable[[S], Awaitable[T]], refused: Callable[[S, GnomonError], T]
) -> list[T]:
    """The outcome of the change of each."""

    async def outcome(subject: S) -> T:
        try:
            return await change(subject)
        except GnomonError as error:
            return refused(subject, error)

    found = list[T]()
    for start in range(0, len(subjects), _AT_ONCE):
        found += await gather(*map(outcome, subjects[start : start + _AT_ONCE]))
    return found
