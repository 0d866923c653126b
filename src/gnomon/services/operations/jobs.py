"""Jobs as operators look at them: one with all there is to know, its decisions, and the fires of all to come."""

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

#: How much longer than an attempt may take a lock is said to last.
_LOCK_MARGIN_MS = MINUTE_MS


class JobLockView(Struct, frozen=True, kw_only=True):
    """Who excludes other runs of a job, as others may look at it. What excludes them is the run itself."""

    key: str
    execution_id: RunId
    acquired_at: int
    ttl_ms: int


class JobView(Struct, frozen=True, kw_only=True):
    """A job as an operator looks at it."""

    schedule: Schedule
    #: In the version that runs; None if nobody has registered it.
    workflow: Workflow | None
    #: Planned times to come, as if no pause were on.
    next_runs: tuple[int, ...]
    #: The last decisions, newest first.
    last_ticks: tuple[Tick, ...] = ()
    #: Runs that are not over, newest first, waiting ones included.
    under_way: tuple[Run, ...] = ()
    lock: JobLockView | None = None


class UpcomingFire(Struct, frozen=True):
    """A planned time to come."""

    planned_at: int
    schedule: Schedule


class TickQuery(Struct, frozen=True, kw_only=True):
    """Which decisions to look at."""

    kind: TickKind | None = None
    status: TickStatus | None = None
    since: int = -FOREVER
    before: int = FOREVER
    limit: int = 100


class TickPage(Struct, frozen=True):
    """Some decisions, and before which planned time to look for more; None if there are none."""

    ticks: list[Tick]
    before: int | None
    #: How many were looked at for that.
    looked: int = 0


def job_lock(
    schedule: Schedule, workflow: Workflow | None, under_way: Sequence[Run], *, default_timeout_ms: int
) -> JobLockView | None:
    """The lock of a job that has one, while one of its runs is under way."""
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


#: Looks at what is about to be done about a job, and raises an error if it must not be.
PlanGuard = Callable[[JobChangePlan], None]
#: How often a file is tried against others who change the same jobs.
_TRIES = 20
_PAGE = 1000
#: How many decisions are looked at for one page of those that are wanted.
_LOOK = 10_000
#: How many fires are thought about without a break.
_FIRES = 10_000
#: Among how many of the newest runs those under way are looked for.
_LOOK_BACK = 100
#: How many definitions are kept at hand for those who look at one page again and again.
_DEFINITIONS = 2000


class ApplyResult(Struct, frozen=True):
    """What became of one job of a file."""

    name: str
    change: JobChange
    revision: int
    #: Of its workflow.
    version: int
    #: None if it is paused, too.
    next_run_at: int | None
    #: As it was understood.
    spec: Spec


class JobService:
    """Apply, look, pause, resume, delete."""

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
        """Make the jobs stand as they were written, all of them or none. Doing it again changes nothing.

        What is to be pruned is removed in the same transaction, see `planned`. `only_if` may object to what is about
        to be done, by an error; what it was shown is then what still stands.
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
        """What `apply` would do about each of them and, if others are to be pruned, about those.

        Schedules that a workflow's triggers made are not pruned: they come and go with the workflow.
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
        """The schedules of the jobs that have other names and are to be pruned."""
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
        """The schedules that have these names, a page at a time: thousands must not take thousands of questions."""
        wanted = sorted(names)
        found: dict[str, Schedule] = {}
        while wanted:
            limit = min(len(wanted), _PAGE)
            page = await self._schedules.page(tenant, after=_predecessor(wanted[0]), limit=limit)
            found |= {schedule.schedule_id: schedule for schedule in page}
            wanted = wanted[bisect_right(wanted, page[-1].schedule_id) :] if len(page) == limit else []
        return found

    async def _apply_plans(self, plans: Sequence[JobChangePlan], actor: str, now: int) -> bool:
        wish = changeset_of(plans)
        if not (wish.workflows or wish.added or wish.edits or wish.removed):
            return True
        return await self._jobs.apply(wish, now=now, actor=actor, tzdata=self._tzdata)

    async def pause(self, name: str, *, actor: str, tenant: str = "default") -> None:
        """Let no tick fire until it is resumed."""
        with _errors_named_job():
            await self._registrar.pause(name, actor=actor, tenant=tenant)

    async def resume(
        self, name: str, *, actor: str, missed: ResumeChoice = SKIP_MISSED, tenant: str = "default"
    ) -> ResumeResult:
        """Go on from now. What the pause swallowed is written down as skipped, unless it is chosen to run."""
        with _errors_named_job():
            return await self._registrar.resume(name, actor=actor, missed=missed, tenant=tenant)

    async def skip(
        self, name: str, at: int, *, actor: str, move_to: int | None = None, tenant: str = "default"
    ) -> None:
        """Let the coming tick planned at `at` not fire, or fire at another time. Saying it again changes nothing."""
        with _errors_named_job():
            await self._registrar.skip(name, at, actor=actor, move_to=move_to, tenant=tenant)

    async def undo_skip(self, name: str, at: int, *, actor: str, tenant: str = "default") -> None:
        """Let a tick that was skipped or moved fire at its time after all."""
        with _errors_named_job():
            await self._registrar.undo_skip(name, at, actor=actor, tenant=tenant)

    async def delete(
        self, name: str, *, actor: str, tenant: str = "default", only_if: Callable[[Schedule], None] = lambda _: None
    ) -> None:
        """End the job and free its name. Its history stays, and so do the versions of its workflow."""
        with _errors_named_job():
            await self._registrar.delete(name, actor=actor, tenant=tenant, only_if=only_if)

    async def get(self, name: str, *, tenant: str = "default", coming: int = 5, last: int = 10) -> JobView:
        """The job with its next planned times, its last decisions and what is under way."""
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
        """The last ticks that had no run, newest first: those that were skipped, missed or coalesced."""
        with _errors_named_job():
            uid = (await self._registrar.get(name, tenant=tenant, coming=0, last=0)).schedule.uid
        found: list[Tick] = []
        before = FOREVER
        while len(found) < limit and (ticks := await self._history.ticks(uid, before=before, limit=_PAGE)):
            found += [tick for tick in ticks if not tick.decision.starts_run]
            before = ticks[-1].decision.planned_at
        return found[:limit]

    async def ledger(self, name: str, asked: TickQuery, *, tenant: str = "default") -> TickPage:
        """What became of a job's planned times, newest first: of so many as can be looked at in one go."""
        with _errors_named_job():
            uid = (await self._registrar.get(name, tenant=tenant, coming=0, last=0)).schedule.uid
        found: list[Tick] = []
        before, looked = asked.before, 0
        size = asked.limit if asked.kind is None and asked.status is None else _PAGE
        while looked < _LOOK and (ticks := await self._history.ticks(uid, before=before, limit=size)):
            looked += len(ticks)
            for tick in ticks:
                before = tick.decision.planned_at
                if tick.decision.last_at < asked.since:
                    return TickPage(found, None, looked)
                if asked.kind in (None, tick.decision.kind) and asked.status in (None, tick.status):
                    found.append(tick)
                if len(found) == asked.limit:
                    return TickPage(found, before, looked)
        return TickPage(found, before if looked >= _LOOK else None, looked)

    async def next(self, name: str, count: int, *, tenant: str = "default") -> tuple[int, ...]:
        """The next planned times, as if no pause were on."""
        return (await self.get(name, tenant=tenant, coming=count, last=0)).next_runs

    async def page(self, *, tenant: str = "default", after: str = "", limit: int = 100) -> list[JobView]:
        """Jobs in the order of their names, each with its next planned time."""
        schedules = await self._registrar.page(tenant=tenant, after=after, limit=limit)
        keys = [(tenant, one.spec.workflow_id, one.spec.workflow_version) for one in schedules]
        workflows, now = await self._workflow_cache.get_many(keys), self._clock.now()
        return [
            JobView(schedule=one, workflow=workflows.get(key), next_runs=next_runs(one, now=now, limit=1))
            for one, key in zip(schedules, keys, strict=True)
        ]

    async def upcoming(self, *, after: int, until: int, limit: int, tenant: str = "default") -> list[UpcomingFire]:
        """The first fires of all jobs that are not paused, planned after `after` and up to `until`, earliest first."""
        found, name, lot = list[UpcomingFire](), "", max(1, _FIRES // limit)
        while page := await self._registrar.page(tenant=tenant, after=name, limit=_PAGE):
            for start in range(0, len(page), lot):
                last = found[-1].planned_at if len(found) == limit else until
                coming = [
                    fire
                    for schedule in page[start : start + lot]
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
    """A text that comes before the name and after all other names that do."""
    return f"{name[:-1]}{chr(ord(name[-1]) - 1)}~"


@contextmanager
def _errors_named_job() -> Iterator[None]:
    """What the registrar calls a schedule is a job to those who ask here."""
    try:
        yield
    except NotFound as error:
        raise NotFound("job", error.name) from None
    except FieldError as error:
        raise FieldError("job" if error.field == "schedule_id" else error.field, error.value, error.reason) from None
