"""Applies, pauses, resumes, skips, deletes and lists jobs; reads their ticks and coming fires."""

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from heapq import nsmallest

from msgspec import Struct

from gnomon.core.instants import FOREVER
from gnomon.core.jobs.fields import printable, schedule_name
from gnomon.core.jobs.job import Job
from gnomon.core.ledger.edits import SKIP_MISSED, ResumeChoice
from gnomon.core.ledger.ticks import Ticks
from gnomon.core.model import MINUTE_MS, Run, RunId, Schedule, ScheduleUid, Spec, Tick, TickKind, TickStatus
from gnomon.core.runs.workflow import Workflow
from gnomon.errors import Contended, FieldError, NotFound
from gnomon.ports.runtime import Clock, Ids
from gnomon.ports.schedules import Jobs, ScheduleHistory, Schedules
from gnomon.services.execution.workflow_cache import WorkflowCache
from gnomon.services.loop import yield_between_batches
from gnomon.services.operations.job_changes import (
    JobChange,
    JobChangePlan,
    Prune,
    changeset_of,
    decide_overdue,
    plan_change,
    plan_creation,
    plan_removal,
    prunable,
)
from gnomon.services.scheduling.registrar import Registrar, ResumeResult, next_runs

#: The reported duration of a lock is the timeout of an attempt plus this margin.
_LOCK_MARGIN_MS = MINUTE_MS


class JobLockView(Struct, frozen=True, kw_only=True):
    """The lock of a job as the API shows it. The active run itself is the lock; nothing else is stored."""

    key: str
    execution_id: RunId
    acquired_at: int
    ttl_ms: int


class JobView(Struct, frozen=True, kw_only=True):
    """A job with its workflow, coming planned times and last ticks."""

    schedule: Schedule
    #: The version that runs; None if it is not registered.
    workflow: Workflow | None
    #: The coming planned times, as if the job were not paused.
    next_runs: tuple[int, ...]
    #: The last ticks, newest first.
    last_ticks: tuple[Tick, ...] = ()
    #: The active and queued runs, newest first.
    under_way: tuple[Run, ...] = ()
    lock: JobLockView | None = None


class UpcomingFire(Struct, frozen=True):
    """A coming planned time."""

    planned_at: int
    schedule: Schedule


class TickQuery(Struct, frozen=True, kw_only=True):
    """The filters of a list of ticks."""

    kind: TickKind | None = None
    status: TickStatus | None = None
    since: int = -FOREVER
    before: int = FOREVER
    limit: int = 100


class TickPage(Struct, frozen=True):
    """Ticks, and the planned time before which the next page starts; None after the last."""

    ticks: list[Tick]
    before: int | None
    #: The number of ticks that were scanned.
    looked: int = 0


def job_lock(
    schedule: Schedule, workflow: Workflow | None, under_way: Sequence[Run], *, default_timeout_ms: int
) -> JobLockView | None:
    """The lock of a job that uses one, while one of its runs is active."""
    holders = [run for run in under_way if not run.queued]
    if workflow is None or not workflow.lock or not holders:
        return None
    timeout = max(step.timeout_ms or default_timeout_ms for step in workflow.steps)
    return JobLockView(
        key=f"scheduler.lock.{schedule.schedule_id}",
        execution_id=holders[-1].run_id,
        acquired_at=holders[-1].created_at,
        ttl_ms=timeout + _LOCK_MARGIN_MS,
    )


def upcoming_fires(schedule: Schedule, after: int, until: int, limit: int) -> Iterator[UpcomingFire]:
    """The first fires of a job after `after` and up to `until`; none while it is paused."""
    if schedule.paused_at is not None:
        return
    ticks, at = Ticks(schedule.schedule_id, schedule.spec).unskipped, max(after, schedule.mark_at)
    for _ in range(limit):
        planned = ticks.after(at)
        if planned is None or planned > until:
            return
        yield UpcomingFire(planned, schedule)
        at = planned


#: Inspects the plan for a job before it is applied, and raises an error to refuse it.
PlanGuard = Callable[[JobChangePlan], None]
#: The number of tries against concurrent changes of the same jobs.
_TRIES = 20
_PAGE = 1000
#: The number of ticks that are scanned for one page of matches.
_SCAN_LIMIT = 10_000
#: The number of fires that are computed before other work may run.
_FIRES = 10_000
#: The number of newest runs that are searched for active ones.
_LOOK_BACK = 100
#: The number of cached workflows, for callers that read the same page again and again.
_DEFINITIONS = 2000


class ApplyResult(Struct, frozen=True):
    """The result of applying one job."""

    name: str
    change: JobChange
    revision: int
    #: The version of its workflow.
    version: int
    #: None if nothing is planned or the job is paused.
    next_run_at: int | None
    #: The spec as it was parsed.
    spec: Spec


class JobService:
    """Applies, lists, pauses, resumes, skips and deletes jobs."""

    def __init__(
        self,
        jobs: Jobs,
        schedules: Schedules,
        history: ScheduleHistory,
        clock: Clock,
        ids: Ids,
        *,
        tzdata: str = "",
        default_timeout_ms: int = 5 * MINUTE_MS,
    ) -> None:
        self._jobs = jobs
        self._workflow_cache = WorkflowCache(jobs, most=_DEFINITIONS)
        self._schedules = schedules
        self._history = history
        self._clock = clock
        self._ids = ids
        self._tzdata = tzdata
        self._default_timeout_ms = default_timeout_ms
        self._registrar = Registrar(schedules, history, clock, ids, tzdata=tzdata)

    async def apply(
        self,
        jobs: Sequence[Job],
        *,
        actor: str,
        tenant: str = "default",
        prune: Prune | None = None,
        only_if: PlanGuard = lambda _: None,
    ) -> list[ApplyResult]:
        """Create or update the jobs, atomically. Idempotent.

        Pruned jobs are removed in the same transaction, see `plan_changes`. `only_if` may refuse a plan by raising an
        error; then nothing is written.
        """
        schedule_name("tenant", tenant)
        printable("actor", actor)
        _reject_duplicate_names(jobs)
        for _ in range(_TRIES):
            now = self._clock.now()
            plans = await self.plan_changes(jobs, now=now, tenant=tenant, prune=prune)
            for plan in plans:
                only_if(plan)
            overdue = [plan.schedule for plan in plans if plan.overdue is not None]
            for schedule in overdue:
                await decide_overdue(self._schedules, schedule, now=now, tzdata=self._tzdata)
            if not overdue and await self._apply_plans(plans, actor, now):
                return [_apply_result(plan, now) async for plan in yield_between_batches(plans)]
        raise Contended("job", ", ".join(job.name for job in jobs[:3]))

    async def plan_changes(
        self, jobs: Sequence[Job], *, now: int, tenant: str = "default", prune: Prune | None = None
    ) -> list[JobChangePlan]:
        """The plans of `apply` for each job and, with `prune`, for the jobs to remove.

        Schedules of a deployed workflow's triggers are not pruned: they belong to the workflow.
        """
        names = [job.name for job in jobs]
        standing = await self._existing(tenant, names)
        newest = {one.workflow_id: one for one in await self._jobs.newest_workflows(tenant, names)}
        plans = []
        async for job in yield_between_batches(jobs):
            workflow, schedule = newest.get(job.name), standing.get(job.name)
            if schedule is None:
                uid = ScheduleUid(self._ids.new("sch", now))
                plans.append(plan_creation(job, workflow, uid=uid, tenant=tenant, now=now))
            else:
                plans.append(plan_change(job, workflow, schedule, now=now))
        if prune is not None:
            plans += [
                plan_removal(schedule, now=now) async for schedule in self._to_prune(tenant, frozenset(names), prune)
            ]
        return plans

    async def _to_prune(self, tenant: str, names: Collection[str], prune: Prune) -> AsyncIterator[Schedule]:
        """The schedules of jobs with other names that are to be pruned."""
        after = ""
        while page := await self._schedules.page(tenant, after=after, limit=_PAGE):
            others = [one for one in page if one.schedule_id not in names and prunable(one)]
            if prune.tag is not None:
                newest = await self._jobs.newest_workflows(tenant, [one.schedule_id for one in others])
                tagged = {one.workflow_id for one in newest if prune.tag in one.tags}
                others = [one for one in others if one.schedule_id in tagged]
            for schedule in others:
                yield schedule
            after = page[-1].schedule_id

    async def _existing(self, tenant: str, names: Iterable[str]) -> Mapping[str, Schedule]:
        """The schedules with these names, read page by page: thousands of names must not take thousands of queries."""
        missing = sorted(names)
        found: dict[str, Schedule] = {}
        while missing:
            limit = min(len(missing), _PAGE)
            page = await self._schedules.page(tenant, after=_predecessor(missing[0]), limit=limit)
            found |= {schedule.schedule_id: schedule for schedule in page}
            missing = missing[bisect_right(missing, page[-1].schedule_id) :] if len(page) == limit else []
        return found

    async def _apply_plans(self, plans: Sequence[JobChangePlan], actor: str, now: int) -> bool:
        changes = changeset_of(plans)
        if not (changes.workflows or changes.added or changes.edits or changes.removed):
            return True
        return await self._jobs.apply(changes, now=now, actor=actor, tzdata=self._tzdata)

    async def pause(self, name: str, *, actor: str, tenant: str = "default") -> None:
        """Pause the job: no tick fires until it is resumed."""
        with _errors_named_job():
            await self._registrar.pause(name, actor=actor, tenant=tenant)

    async def resume(
        self, name: str, *, actor: str, missed: ResumeChoice = SKIP_MISSED, tenant: str = "default"
    ) -> ResumeResult:
        """Resume the job. Ticks missed during the pause are recorded as skipped unless `missed` selects them."""
        with _errors_named_job():
            return await self._registrar.resume(name, actor=actor, missed=missed, tenant=tenant)

    async def skip(
        self, name: str, at: int, *, actor: str, move_to: int | None = None, tenant: str = "default"
    ) -> None:
        """Skip the coming tick planned at `at`, or move it to another time. Idempotent."""
        with _errors_named_job():
            await self._registrar.skip(name, at, actor=actor, move_to=move_to, tenant=tenant)

    async def undo_skip(self, name: str, at: int, *, actor: str, tenant: str = "default") -> None:
        """Undo the skip or move of a tick."""
        with _errors_named_job():
            await self._registrar.undo_skip(name, at, actor=actor, tenant=tenant)

    async def delete(
        self, name: str, *, actor: str, tenant: str = "default", only_if: Callable[[Schedule], None] = lambda _: None
    ) -> None:
        """Delete the job and free its name. Its history and the versions of its workflow are kept."""
        with _errors_named_job():
            await self._registrar.delete(name, actor=actor, tenant=tenant, only_if=only_if)

    async def get(self, name: str, *, tenant: str = "default", coming: int = 5, last: int = 10) -> JobView:
        """The job with its next planned times, last ticks and active runs."""
        with _errors_named_job():
            seen = await self._registrar.get(name, tenant=tenant, coming=coming, last=last)
        spec = seen.schedule.spec
        workflow = await self._jobs.workflow(tenant, spec.workflow_id, spec.workflow_version)
        under_way = await self._under_way(seen.schedule)
        return JobView(
            schedule=seen.schedule,
            workflow=workflow,
            next_runs=seen.next_runs,
            last_ticks=seen.last_ticks,
            under_way=under_way,
            lock=job_lock(seen.schedule, workflow, under_way, default_timeout_ms=self._default_timeout_ms),
        )

    async def skipped(self, name: str, *, limit: int, tenant: str = "default") -> list[Tick]:
        """The last ticks without a run, newest first: skipped, missed or coalesced ones."""
        with _errors_named_job():
            uid = (await self._registrar.get(name, tenant=tenant, coming=0, last=0)).schedule.uid
        found: list[Tick] = []
        before = FOREVER
        while len(found) < limit and (ticks := await self._history.ticks(uid, before=before, limit=_PAGE)):
            found += [tick for tick in ticks if not tick.decision.starts_run]
            before = ticks[-1].decision.planned_at
        return found[:limit]

    async def ledger(self, name: str, query: TickQuery, *, tenant: str = "default") -> TickPage:
        """The matching ticks of a job, newest first, among those that one call may scan."""
        with _errors_named_job():
            uid = (await self._registrar.get(name, tenant=tenant, coming=0, last=0)).schedule.uid
        found: list[Tick] = []
        before, looked = query.before, 0
        size = query.limit if query.kind is None and query.status is None else _PAGE
        while looked < _SCAN_LIMIT and (ticks := await self._history.ticks(uid, before=before, limit=size)):
            looked += len(ticks)
            for tick in ticks:
                before = tick.decision.planned_at
                if tick.decision.last_at < query.since:
                    return TickPage(found, None, looked)
                if query.kind in (None, tick.decision.kind) and query.status in (None, tick.status):
                    found.append(tick)
                if len(found) == query.limit:
                    return TickPage(found, before, looked)
        return TickPage(found, before if looked >= _SCAN_LIMIT else None, looked)

    async def next(self, name: str, count: int, *, tenant: str = "default") -> tuple[int, ...]:
        """The next planned times, as if the job were not paused."""
        return (await self.get(name, tenant=tenant, coming=count, last=0)).next_runs

    async def page(self, *, tenant: str = "default", after: str = "", limit: int = 100) -> list[JobView]:
        """Jobs by name, each with its next planned time."""
        schedules = await self._registrar.page(tenant=tenant, after=after, limit=limit)
        keys = [(tenant, one.spec.workflow_id, one.spec.workflow_version) for one in schedules]
        workflows, now = await self._workflow_cache.get_many(keys), self._clock.now()
        return [
            JobView(schedule=one, workflow=workflows.get(key), next_runs=next_runs(one, now=now, limit=1))
            for one, key in zip(schedules, keys, strict=True)
        ]

    async def upcoming(self, *, after: int, until: int, limit: int, tenant: str = "default") -> list[UpcomingFire]:
        """The first fires of all jobs that are not paused, planned after `after` and up to `until`, earliest first."""
        found, name, batch = list[UpcomingFire](), "", max(1, _FIRES // limit)
        while page := await self._registrar.page(tenant=tenant, after=name, limit=_PAGE):
            for start in range(0, len(page), batch):
                last = found[-1].planned_at if len(found) == limit else until
                coming = [
                    fire
                    for schedule in page[start : start + batch]
                    for fire in upcoming_fires(schedule, after, last, limit)
                ]
                found = nsmallest(limit, (*found, *coming), key=lambda fire: fire.planned_at)
                await asyncio.sleep(0)
            name = page[-1].schedule_id
        return found

    async def _under_way(self, schedule: Schedule) -> tuple[Run, ...]:
        if not schedule.active_runs + schedule.queued_runs:
            return ()
        runs = await self._history.runs(schedule.uid, before=FOREVER, limit=_LOOK_BACK)
        return tuple(run for run in runs if not run.over)


def _reject_duplicate_names(jobs: Sequence[Job]) -> None:
    seen: set[str] = set()
    for job in jobs:
        if job.name in seen:
            raise FieldError("name", job.name, "is the name of two jobs")
        seen.add(job.name)


def _apply_result(plan: JobChangePlan, now: int) -> ApplyResult:
    schedule = plan.schedule
    idle = schedule.paused_at is not None or plan.change is JobChange.REMOVED
    coming = () if idle else next_runs(schedule, now=now, limit=1)
    return ApplyResult(
        schedule.schedule_id,
        plan.change,
        schedule.revision,
        schedule.spec.workflow_version,
        next(iter(coming), None),
        schedule.spec,
    )


def _predecessor(name: str) -> str:
    """A text that sorts directly before the name."""
    return f"{name[:-1]}{chr(ord(name[-1]) - 1)}~"


@contextmanager
def _errors_named_job() -> Iterator[None]:
    """Rename the schedule in errors of the registrar to a job."""
    try:
        yield
    except NotFound as error:
        raise NotFound("job", error.name) from None
    except FieldError as error:
        raise FieldError("job" if error.field == "schedule_id" else error.field, error.value, error.reason) from None
