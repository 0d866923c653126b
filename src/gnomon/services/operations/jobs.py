"""Applies, pauses, resumes, skips, deletes and lists jobs; reads their ticks and coming fires."""

from bisect import bisect_right, insort
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from gnomon.core.agents.catalog import AgentCatalog, check_agents
from gnomon.core.agents.frequency import agent_warnings
from gnomon.core.announcements.channels import Channels, check_announcements
from gnomon.core.approvals.model import Approval
from gnomon.core.commands.tenants import ALL_TENANTS, check_commands
from gnomon.core.instants import FOREVER, ms_of
from gnomon.core.jobs.fields import page_limit, printable, schedule_name
from gnomon.core.jobs.job import Job
from gnomon.core.ledger.edits import (
    SKIP_MISSED,
    SYSTEM_ACTOR,
    ResumeChoice,
    is_missed_one_shot,
    is_one_shot_over,
    will_be_missed,
)
from gnomon.core.ledger.plan import DEFAULT_LIMIT, CatchupLimit
from gnomon.core.ledger.ticks import Ticks
from gnomon.core.model import MINUTE_MS, Reason, Run, RunStatus, Schedule, ScheduleUid, Spec, Tick, TickKind, TickStatus
from gnomon.core.runs.job_lock import RunLock, job_lock
from gnomon.core.runs.workflow import Workflow
from gnomon.core.triggers import At
from gnomon.errors import Contended, FieldError, NotFound
from gnomon.ports.runtime import Clock, Ids
from gnomon.ports.schedules import Jobs, ScheduleHistory, Schedules
from gnomon.services.execution.workflow_cache import WorkflowCache
from gnomon.services.loop import ComputeQueue
from gnomon.services.operations.command_policy import CommandPolicyService
from gnomon.services.operations.job_changes import (
    Declaration,
    JobChange,
    JobChangePlan,
    Prune,
    changeset_of,
    decide_overdue,
    plan_change,
    plan_creation,
    plan_orphan,
    plan_removal,
    prunable,
    repeats_spec,
    with_kept_origin,
    with_stored_ping,
)
from gnomon.services.operations.schedules import ResumeResult, ScheduleService, next_run


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
    #: The number of active runs that have started.
    running: int = 0
    #: The lock that one of them holds.
    lock: RunLock | None = None
    #: The approval of its commands.
    approval: Approval | None = None
    #: The decision on the last tick of a job for one instant that is over.
    last_kind: TickKind | None = None


class FirePosition(NamedTuple):
    """The position of a fire in the order of time and name."""

    planned_at: int
    job: str


class UpcomingFire(Struct, frozen=True):
    """A coming planned time."""

    planned_at: int
    schedule: Schedule

    @property
    def position(self) -> FirePosition:
        """Its position among the fires of all jobs."""
        return FirePosition(self.planned_at, self.schedule.schedule_id)


class TickQuery(Struct, frozen=True, kw_only=True):
    """The filters of a list of ticks."""

    kind: TickKind | None = None
    reason: Reason | None = None
    status: TickStatus | None = None
    since: int = -FOREVER
    before: int = FOREVER
    limit: int = 100

    @property
    def selects(self) -> bool:
        """Whether it selects some of the ticks of a time."""
        return any(one is not None for one in (self.kind, self.reason, self.status))

    def matches(self, tick: Tick) -> bool:
        """Whether the decision on a tick, its reason and its status are selected."""
        made = tick.decision
        return (
            self.kind in (None, made.kind) and self.reason in (None, made.reason) and self.status in (None, tick.status)
        )


class TickPage(Struct, frozen=True):
    """Ticks, and the planned time before which the next page starts; None after the last."""

    ticks: list[Tick]
    before: int | None
    #: The number of ticks that were scanned.
    looked: int = 0


def held_lock(workflow: Workflow | None, under_way: Sequence[Run], *, default_timeout_ms: int) -> RunLock | None:
    """The lock of a job that uses one, while one of its runs, newest first, is active."""
    locks = [job_lock(run, workflow, default_timeout_ms=default_timeout_ms) for run in under_way]
    return next((lock for lock in reversed(locks) if lock is not None), None)


def upcoming_fires(schedule: Schedule, after: FirePosition, until: int) -> Iterator[UpcomingFire]:
    """The fires of a job after a position and up to `until`; none while it is paused."""
    if schedule.paused_at is not None:
        return
    begin = after.planned_at - 1 if schedule.schedule_id > after.job else after.planned_at
    ticks, at = Ticks(schedule.schedule_id, schedule.spec).unskipped, max(begin, schedule.mark_at)
    while (planned := ticks.after(at)) is not None and planned <= until:
        yield UpcomingFire(planned, schedule)
        at = planned


def _merge_fires(
    found: list[UpcomingFire], page: Sequence[Schedule], after: FirePosition, until: int, limit: int
) -> Generator[None, None, None]:
    """Add the fires of these schedules to the first fires that are found, in order, and keep `limit` of them."""
    for schedule in page:
        for fire in upcoming_fires(schedule, after, until):
            if len(found) == limit and fire.position > found[-1].position:
                break
            insort(found, fire, key=lambda one: one.position)
            del found[limit:]
            yield
        yield


#: Inspects the plan for a job before it is applied, and raises an error to refuse it.
PlanGuard = Callable[[JobChangePlan], None]
#: Inspects all plans together in the same way. It may take a while for many jobs.
PlansGuard = Callable[[Sequence[JobChangePlan]], Awaitable[None]]
#: The number of tries against concurrent changes of the same jobs.
_TRIES = 20
_PAGE = 1000
#: The number of ticks that are scanned for one page of matches.
_SCAN_LIMIT = 10_000
#: A text after the name of every job.
LAST_NAME = "~"
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
    #: See `JobService.warnings`.
    warnings: tuple[str, ...] = ()


class JobService:
    """Applies, lists, pauses, resumes, skips and deletes jobs."""

    def __init__(  # noqa: PLR0913 - its collaborators
        self,
        jobs: Jobs,
        schedules: Schedules,
        history: ScheduleHistory,
        clock: Clock,
        ids: Ids,
        *,
        compute: ComputeQueue | None = None,
        tzdata: str = "",
        default_timeout_ms: int = 5 * MINUTE_MS,
        command_tenants: Collection[str] = (ALL_TENANTS,),
        channels: Channels | None = None,
        agents: AgentCatalog | None = None,
        command_policy: CommandPolicyService | None = None,
        catchup_limit: CatchupLimit = DEFAULT_LIMIT,
    ) -> None:
        """`command_tenants` are the tenants whose jobs may have commands; without `command_policy` all are open.

        `channels` are those to which jobs may announce; None if they are not known; `agents` are the models of agents.
        """
        self._compute = compute or ComputeQueue()
        self._jobs = jobs
        self._workflow_cache = WorkflowCache(jobs, most=_DEFINITIONS)
        self._schedules = schedules
        self._history = history
        self._clock = clock
        self._ids = ids
        self._tzdata = tzdata
        self._catchup_limit = catchup_limit
        self._default_timeout_ms = default_timeout_ms
        self._command_tenants = command_tenants
        self._channels = channels
        self._agents = agents
        self._command_policy = command_policy
        self._schedule_service = ScheduleService(
            schedules, history, clock, ids, compute=self._compute, tzdata=tzdata, catchup_limit=catchup_limit
        )

    async def apply(
        self,
        jobs: Sequence[Job],
        *,
        actor: str,
        tenant: str = "default",
        prune: Prune | None = None,
        declaration: Declaration | None = None,
        only_if: PlanGuard = lambda _: None,
        only_if_all: PlansGuard | None = None,
    ) -> list[ApplyResult]:
        """Create or update the jobs, atomically. Idempotent.

        Pruned jobs are removed, and orphans are marked, in the same transaction, see `plan_changes`. `only_if` may
        refuse a plan by raising an error, and `only_if_all` all of them; then nothing is written.
        """
        schedule_name("tenant", tenant)
        printable("actor", actor)
        _reject_duplicate_names(jobs)
        for _ in range(_TRIES):
            now = self._clock.now()
            plans = await self.plan_changes(jobs, now=now, tenant=tenant, prune=prune, declaration=declaration)
            if only_if_all is not None:
                await only_if_all(plans)
            for plan in plans:
                only_if(plan)
            overdue = [plan.schedule for plan in plans if plan.overdue is not None]
            for schedule in overdue:
                await decide_overdue(self._schedules, schedule, now=now, tzdata=self._tzdata, limit=self._catchup_limit)
            if not overdue and await self._apply_plans(plans, actor, now):
                warnings = await self.warnings(plans)
                return await self._compute.map(partial(_apply_result, now=now, warnings=warnings), plans)
        raise Contended("job", ", ".join(job.name for job in jobs[:3]))

    async def plan_changes(
        self,
        jobs: Sequence[Job],
        *,
        now: int,
        tenant: str = "default",
        prune: Prune | None = None,
        declaration: Declaration | None = None,
    ) -> list[JobChangePlan]:
        """The plans of `apply` for each job and, with `prune` or `declaration`, for other jobs to remove or to mark.

        Schedules of a deployed workflow's triggers are not pruned: they belong to the workflow.
        """
        names = [job.name for job in jobs]
        standing = await self._existing(tenant, names)
        finished = {job.name for job in jobs if job.name not in standing and await self._is_finished(tenant, job, now)}
        newest = {one.workflow_id: one for one in await self._jobs.newest_workflows(tenant, names)}

        def plan(job: Job) -> JobChangePlan:
            check_commands(job.workflow, self._command_tenants, tenant)
            check_announcements(job.workflow.announce, self._channels, tenant)
            check_agents(job.workflow, self._agents)
            workflow, schedule = newest.get(job.name), standing.get(job.name)
            own = with_stored_ping(job.workflow, workflow)
            changed = schedule is None or workflow is None or not repeats_spec(job.spec, schedule, workflow)
            job = replace(job, workflow=with_kept_origin(own, workflow, changed=changed))
            if schedule is not None:
                return plan_change(job, workflow, schedule, now=now, limit=self._catchup_limit)
            uid = ScheduleUid(self._ids.new("sch", now))
            done = job.name in finished
            return plan_creation(job, workflow, uid=uid, tenant=tenant, now=now, finished=done)

        plans = await self._compute.map(plan, jobs)
        plans = [await self._checked(one) if one.job and _is_under_policy(one.job.workflow) else one for one in plans]
        if prune is not None:
            plans += [
                plan_removal(schedule, now=now, limit=self._catchup_limit)
                async for schedule in self._to_prune(tenant, frozenset(names), prune)
            ]
        if declaration is not None and declaration.origins:
            # The jobs that these places take over, and the orphans that were found before.
            before = [*standing.values(), *await self.orphans(tenant=tenant)]
            origins = declaration.origins | declaration.gone_origins(before)
            orphans = await self._orphans(tenant, names, origins)
            plans += [
                plan_removal(one, now=now, limit=self._catchup_limit) if declaration.prune else plan_orphan(one)
                for one in orphans
            ]
        return plans

    async def warnings(self, plans: Sequence[JobChangePlan]) -> dict[str, tuple[str, ...]]:
        """The warnings by job: of commands that need an approval and have none, and of agents that start too often."""
        approved = await self._approvals([plan.job.workflow for plan in plans if plan.unapproved and plan.job])
        return {plan.schedule.schedule_id: found for plan in plans if (found := _warnings(plan, approved))}

    async def _checked(self, plan: JobChangePlan) -> JobChangePlan:
        """The plan with what the policy of commands says of it; FieldError if that refuses a command of a change."""
        if self._command_policy is None or plan.job is None or plan.change is JobChange.UNCHANGED:
            return plan
        workflow = replace(plan.job.workflow, tenant=plan.schedule.tenant)
        return replace(
            plan,
            job=replace(plan.job, workflow=workflow),
            unapproved=await self._command_policy.check(workflow),
        )

    async def _approvals(self, workflows: Sequence[Workflow]) -> Mapping[str, Approval]:
        """The approvals of these definitions, by workflow."""
        return {} if self._command_policy is None else await self._command_policy.approvals_of(workflows)

    async def _is_finished(self, tenant: str, job: Job, now: int) -> bool:
        """Whether the job was to run once, and was deleted after that time."""
        trigger = job.spec.trigger
        if not (job.spec.delete_after_run and isinstance(trigger, At) and ms_of(trigger.instant) <= now):
            return False
        missed = is_missed_one_shot(job.spec, now=now)
        gone = await self._history.deleted(tenant, job.name, limit=1)
        # Within the grace a job that a person has deleted before its run may run still.
        return any(one.schedule.spec.trigger == trigger and (missed or one.deleted_by == SYSTEM_ACTOR) for one in gone)

    async def _orphans(self, tenant: str, names: Collection[str], origins: Collection[str]) -> list[Schedule]:
        """The schedules of jobs with other names and one of these origins."""
        others = await self._schedules.names_from(tenant, origins) - frozenset(names)
        found = await self._existing(tenant, others)
        return [one for name, one in sorted(found.items()) if prunable(one)]

    async def orphans(self, *, limit: int = 100, tenant: str = "default") -> Sequence[Schedule]:
        """The schedules of jobs that their origin does not declare any more, by name."""
        return await self._schedules.orphans(tenant, limit=page_limit(limit))

    async def unfit_agents(self, *, tenant: str = "default") -> Mapping[str, str]:
        """The reasons for which agents cannot start with the settings as they are now, by the job."""
        found: dict[str, str] = {}
        after = ""
        while page := await self._jobs.list_workflows(tenant, after=after, limit=_PAGE):
            for workflow in page:
                try:
                    check_agents(workflow, self._agents)
                except FieldError as error:
                    found[workflow.workflow_id] = str(error)
            after = page[-1].workflow_id
        return found

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
        wanted = frozenset(names)
        missing = sorted(wanted)
        found: dict[str, Schedule] = {}
        while missing:
            limit = min(len(missing), _PAGE)
            page = await self._schedules.page(tenant, after=_predecessor(missing[0]), limit=limit)
            # A page also holds the jobs whose names lie between these.
            found |= {schedule.schedule_id: schedule for schedule in page if schedule.schedule_id in wanted}
            missing = missing[bisect_right(missing, page[-1].schedule_id) :] if len(page) == limit else []
        return found

    async def _apply_plans(self, plans: Sequence[JobChangePlan], actor: str, now: int) -> bool:
        changes = changeset_of(plans)
        if not (changes.workflows or changes.added or changes.edits or changes.removed):
            return True
        if self._command_policy is not None:
            self._command_policy.refuse_changes()
        return await self._jobs.apply(changes, now=now, actor=actor, tzdata=self._tzdata)

    async def pause(self, name: str, *, actor: str, tenant: str = "default") -> None:
        """Pause the job: no tick fires until it is resumed."""
        with _errors_named_job():
            await self._schedule_service.pause(name, actor=actor, tenant=tenant)

    async def resume(
        self, name: str, *, actor: str, missed: ResumeChoice = SKIP_MISSED, tenant: str = "default"
    ) -> ResumeResult:
        """Resume the job. Ticks missed during the pause are recorded as skipped unless `missed` selects them."""
        with _errors_named_job():
            return await self._schedule_service.resume(name, actor=actor, missed=missed, tenant=tenant)

    async def skip(
        self, name: str, at: int, *, actor: str, move_to: int | None = None, tenant: str = "default"
    ) -> None:
        """Skip the coming tick planned at `at`, or move it to another time. Idempotent."""
        with _errors_named_job():
            await self._schedule_service.skip(name, at, actor=actor, move_to=move_to, tenant=tenant)

    async def undo_skip(self, name: str, at: int, *, actor: str, tenant: str = "default") -> None:
        """Undo the skip or move of a tick."""
        with _errors_named_job():
            await self._schedule_service.undo_skip(name, at, actor=actor, tenant=tenant)

    async def delete(
        self, name: str, *, actor: str, tenant: str = "default", only_if: Callable[[Schedule], None] = lambda _: None
    ) -> None:
        """Delete the job and free its name. Its history and the versions of its workflow are kept."""
        with _errors_named_job():
            await self._schedule_service.delete(name, actor=actor, tenant=tenant, only_if=only_if)

    async def get(self, name: str, *, tenant: str = "default", coming: int = 5, last: int = 10) -> JobView:
        """The job with its next planned times, last ticks and active runs."""
        with _errors_named_job():
            seen = await self._schedule_service.get(name, tenant=tenant, coming=coming, last=last)
        spec = seen.schedule.spec
        workflow = await self._jobs.workflow(tenant, spec.workflow_id, spec.workflow_version)
        under_way = await self._under_way(seen.schedule)
        approved = await self._approvals([] if workflow is None else [workflow])
        return JobView(
            schedule=seen.schedule,
            workflow=workflow,
            next_runs=seen.next_runs,
            last_ticks=seen.last_ticks,
            under_way=under_way,
            running=sum(run.status is RunStatus.RUNNING for run in under_way),
            lock=held_lock(workflow, under_way, default_timeout_ms=self._default_timeout_ms),
            approval=approved.get(spec.workflow_id),
            last_kind=(await self._last_kinds([seen.schedule])).get(seen.schedule.uid),
        )

    async def skipped(self, name: str, *, limit: int, tenant: str = "default") -> list[Tick]:
        """The last ticks without a run, newest first: skipped, missed or coalesced ones."""
        with _errors_named_job():
            uid = (await self._schedule_service.get(name, tenant=tenant, coming=0, last=0)).schedule.uid
        found: list[Tick] = []
        before = FOREVER
        while len(found) < limit and (ticks := await self._history.ticks(uid, before=before, limit=_PAGE)):
            found += [tick for tick in ticks if not tick.decision.starts_run]
            before = ticks[-1].decision.planned_at
        return found[:limit]

    async def ledger(self, name: str, query: TickQuery, *, tenant: str = "default") -> TickPage:
        """The matching ticks of a job, newest first, among those that one call may scan."""
        with _errors_named_job():
            uid = (await self._schedule_service.get(name, tenant=tenant, coming=0, last=0)).schedule.uid
        found: list[Tick] = []
        before, looked = query.before, 0
        size = _PAGE if query.selects else query.limit
        while looked < _SCAN_LIMIT and (ticks := await self._history.ticks(uid, before=before, limit=size)):
            looked += len(ticks)
            for tick in ticks:
                before = tick.decision.planned_at
                if tick.decision.last_at < query.since:
                    return TickPage(found, None, looked)
                if query.matches(tick):
                    found.append(tick)
                if len(found) == query.limit:
                    return TickPage(found, before, looked)
        return TickPage(found, before if looked >= _SCAN_LIMIT else None, looked)

    async def next(self, name: str, count: int, *, tenant: str = "default") -> tuple[int, ...]:
        """The next planned times, as if the job were not paused."""
        return (await self.get(name, tenant=tenant, coming=count, last=0)).next_runs

    async def page(self, *, tenant: str = "default", after: str = "", limit: int = 100) -> list[JobView]:
        """Jobs by name, each with its next planned time."""
        schedules = await self._schedule_service.page(tenant=tenant, after=after, limit=limit)
        return await self.views(schedules, tenant=tenant)

    async def workflows_of(self, schedules: Sequence[Schedule], *, tenant: str) -> Mapping[ScheduleUid, Workflow]:
        """The versions of workflows that these schedules start, as far as they are registered."""
        keys = {one.uid: (tenant, one.spec.workflow_id, one.spec.workflow_version) for one in schedules}
        found = await self._workflow_cache.get_many(set(keys.values()))
        return {uid: found[key] for uid, key in keys.items() if key in found}

    async def views(self, schedules: Sequence[Schedule], *, tenant: str) -> list[JobView]:
        """The jobs of these schedules, each with its next planned time."""
        workflows, now = await self.workflows_of(schedules, tenant=tenant), self._clock.now()
        running = await self._history.running([one.uid for one in schedules if one.active_runs])
        approved = await self._approvals(list(workflows.values()))
        last_kinds = await self._last_kinds(schedules)

        def view(one: Schedule) -> JobView:
            coming = next_run(one, now=now)
            next_runs = () if coming is None else (coming,)
            return JobView(
                schedule=one,
                workflow=workflows.get(one.uid),
                next_runs=next_runs,
                running=running.get(one.uid, 0),
                approval=approved.get(one.spec.workflow_id),
                last_kind=last_kinds.get(one.uid),
            )

        return await self._compute.map(view, schedules)

    async def _last_kinds(self, schedules: Sequence[Schedule]) -> Mapping[ScheduleUid, TickKind]:
        """The decisions on the last ticks of those schedules for one instant that are over, also those to come."""
        over = [one.uid for one in schedules if is_one_shot_over(one)]
        decided = await self._history.last_tick_kinds(over) if over else {}
        now = self._clock.now()
        missed = {one.uid: TickKind.MISSED for one in schedules if will_be_missed(one, now=now)}
        return {**missed, **decided}

    async def upcoming(
        self, *, after: int, until: int, limit: int, after_job: str = LAST_NAME, tenant: str = "default"
    ) -> list[UpcomingFire]:
        """The first fires of all jobs that are not paused, planned after `after` and up to `until`, earliest first.

        At the instant `after` itself, only the fires of jobs whose names come after `after_job`.
        """
        found, name, position = list[UpcomingFire](), "", FirePosition(after, after_job)
        while page := await self._schedule_service.page(tenant=tenant, after=name, limit=_PAGE):
            await self._compute.run(_merge_fires(found, page, position, until, limit))
            name = page[-1].schedule_id
        return found

    async def _under_way(self, schedule: Schedule) -> tuple[Run, ...]:
        if not schedule.active_runs + schedule.queued_runs:
            return ()
        runs = await self._history.runs(schedule.uid, before=FOREVER, limit=_LOOK_BACK)
        return tuple(run for run in runs if not run.over)


def _is_under_policy(workflow: Workflow) -> bool:
    """Whether the policy of commands may have something to say about the definition."""
    return workflow.has_commands or workflow.runs_others


def _reject_duplicate_names(jobs: Sequence[Job]) -> None:
    seen: set[str] = set()
    for job in jobs:
        if job.name in seen:
            raise FieldError("name", job.name, "is the name of two jobs")
        seen.add(job.name)


def _warnings(plan: JobChangePlan, approved: Collection[str]) -> tuple[str, ...]:
    if plan.job is None or plan.change is JobChange.UNCHANGED:
        return ()
    workflow = plan.job.workflow
    return (*(() if workflow.workflow_id in approved else plan.unapproved), *agent_warnings(workflow))


def _apply_result(plan: JobChangePlan, *, now: int, warnings: Mapping[str, tuple[str, ...]]) -> ApplyResult:
    schedule = plan.schedule
    idle = schedule.paused_at is not None or plan.change is JobChange.REMOVED
    return ApplyResult(
        schedule.schedule_id,
        plan.change,
        schedule.revision,
        schedule.spec.workflow_version,
        None if idle else next_run(schedule, now=now),
        schedule.spec,
        warnings.get(schedule.schedule_id, ()),
    )


def _predecessor(name: str) -> str:
    """A text that sorts directly before the name."""
    return f"{name[:-1]}{chr(ord(name[-1]) - 1)}~"


@contextmanager
def _errors_named_job() -> Iterator[None]:
    """Rename the schedule in errors of the schedule service to a job."""
    try:
        yield
    except NotFound as error:
        raise NotFound("job", error.name) from None
    except FieldError as error:
        raise FieldError("job" if error.field == "schedule_id" else error.field, error.value, error.reason) from None
