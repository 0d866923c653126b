"""Lists, shows, searches and cancels executions, as the API calls runs; reads their logs."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from gnomon.core.announcements.model import Announcement
from gnomon.core.instants import FOREVER
from gnomon.core.jobs.fields import page_limit, printable, schedule_name
from gnomon.core.model import Attempt, Run, RunId, RunStatus, Task, TaskId, Tick
from gnomon.core.runs.dag import topological_order
from gnomon.core.runs.launch import CancelOutcome, sub_run_id
from gnomon.core.runs.rollback import RollbackOutcome, is_compensation, undone_step
from gnomon.core.runs.states import TaskState
from gnomon.core.runs.workflow import Step, Workflow
from gnomon.errors import AlreadyOver, NotFound, NotRolledBack
from gnomon.ports.announcements import Announcements
from gnomon.ports.runs import Executions, ItemQuery, LogCursor, LogQuery, RunQuery, Runs, RunTasks, StepLogLine
from gnomon.ports.runtime import Clock
from gnomon.ports.schedules import Jobs, TenantTickQuery, TickHistory, TickPosition
from gnomon.services.execution.workflow_cache import WorkflowCache
from gnomon.services.operations.jobs import JobService, JobView, TickQuery

_LINES = 1000
#: The items of a `foreach` step that are shown with their run: it may have 100,000.
_ITEMS_WITH_RUN = 100


class StepView(Struct, frozen=True, kw_only=True):
    """A task of a run and its attempts."""

    task: Task
    attempts: tuple[Attempt, ...]
    #: Its output, as JSON.
    output: bytes | None = None

    @property
    def started_at(self) -> int | None:
        """The start of its first attempt."""
        return min((one.started_at for one in self.attempts if one.started_at is not None), default=None)

    @property
    def ended_at(self) -> int | None:
        """The end of its last attempt; None while one is running."""
        ends = [one.ended_at for one in self.attempts]
        return max((end for end in ends if end is not None), default=None) if None not in ends else None


class ExecutionView(Struct, frozen=True, kw_only=True):
    """A run with its workflow, steps and input."""

    run: Run
    workflow: Workflow | None
    #: The tasks of steps, and of the first items of each `foreach` step.
    steps: tuple[StepView, ...]
    #: The number of items of each `foreach` step in each state.
    item_counts: Mapping[str, Mapping[TaskState, int]] = {}
    #: Its input, as JSON; None if it is the workflow's own.
    input: bytes | None = None
    announcements: Sequence[Announcement] = ()


class ListedRun(Struct, frozen=True):
    """A run in a list, the number of its last attempt, and its announcements."""

    run: Run
    attempt: int
    announcements: Sequence[Announcement] = ()


def last_attempt(tasks: Iterable[Task]) -> int:
    """The highest number of an attempt among these tasks, items left out; 0 before the first."""
    return max((task.fence for task in tasks if task.parent is None), default=0)


class LogPage(Struct, frozen=True):
    """Log lines, and the position of the next page; None after the last."""

    lines: list[StepLogLine]
    after: LogCursor | None


class ExecutionService:
    """Lists, shows and cancels runs, and reads their logs."""

    def __init__(
        self,
        runs: Runs,
        executions: Executions,
        tasks: RunTasks,
        jobs: Jobs,
        clock: Clock,
        *,
        announcements: Announcements,
    ) -> None:
        self._announcements = announcements
        self._runs = runs
        self._executions = executions
        self._tasks = tasks
        self._jobs = jobs
        self._clock = clock

    async def page(
        self,
        *,
        job: str | None = None,
        status: RunStatus | None = None,
        after: tuple[int, str] | None = None,
        limit: int = 100,
        tenant: str = "default",
    ) -> Sequence[Run]:
        """Runs, newest first."""
        page_limit(limit)
        if job is not None:
            schedule_name("job", job)
        schedule_name("tenant", tenant)
        query = RunQuery(tenant=tenant, schedule_id=job, status=status, after=after, limit=limit)
        return await self._executions.list_runs(query)

    async def get(self, execution_id: str, *, tenant: str = "default") -> ExecutionView:
        """The run with the tasks of its steps and of their first items, with attempts and outputs."""
        run = await self.find(execution_id, tenant=tenant)
        tasks = await self._tasks.steps([run.run_id], items=_ITEMS_WITH_RUN)
        many = any(task.item is not None for task in tasks)
        return ExecutionView(
            run=run,
            workflow=await self._jobs.workflow(tenant, run.workflow_id, run.workflow_version),
            steps=await self._step_views(tasks),
            item_counts=await self._tasks.item_counts(run.run_id) if many else {},
            input=await self._executions.payload(run.run_id, "input"),
            announcements=(await self._announcements.of_runs([run.run_id])).get(run.run_id, ()),
        )

    async def items(
        self,
        execution_id: str,
        step: str,
        *,
        state: TaskState | None = None,
        after: int | None = None,
        limit: int = 100,
        tenant: str = "default",
    ) -> "SearchPage[StepView, int]":
        """Items of a `foreach` step in order, after a number; in one state if it is given."""
        run = await self.find(execution_id, tenant=tenant)
        query = ItemQuery(
            run_id=run.run_id,
            step=printable("step", step),
            states=None if state is None else frozenset({state}),
            after=-1 if after is None else after,
            limit=limit + 1,
        )
        found = await self._tasks.items(query)
        shown = found[:limit]
        return SearchPage(await self._step_views(shown), shown[-1].item if len(found) > limit else None)

    async def _step_views(self, tasks: Sequence[Task]) -> tuple[StepView, ...]:
        attempts: dict[TaskId, list[Attempt]] = {}
        for one in await self._executions.attempts([task.task_id for task in tasks]):
            attempts.setdefault(one.task_id, []).append(one)
        outputs = await self._executions.payloads([task.task_id for task in tasks], "output")
        return tuple(
            StepView(task=task, attempts=tuple(attempts.get(task.task_id, ())), output=outputs.get(str(task.task_id)))
            for task in tasks
        )

    async def cancel(self, execution_id: str, *, actor: str, tenant: str = "default") -> CancelOutcome:
        """Cancel pending tasks at once and request the stop of running ones; AlreadyOver if the run has ended."""
        printable("actor", actor)
        run = await self.find(execution_id, tenant=tenant)
        reason, now = f"cancelled by {actor}", self._clock.now()
        became = await self._runs.cancel(run.run_id, reason=reason, now=now, actor=actor)
        if became is CancelOutcome.UNKNOWN:
            raise NotFound("execution", execution_id)
        if became is CancelOutcome.OVER:
            raise AlreadyOver("execution", execution_id)
        return became

    async def roll_back(self, execution_id: str, *, reason: str, actor: str, tenant: str = "default") -> None:
        """Undo the steps of an execution that has ended; Refused if there is nothing to undo, or it has not ended."""
        printable("actor", actor)
        run = await self.find(execution_id, tenant=tenant)
        why = f"{printable('reason', reason)} ({actor})"
        became = await self._runs.roll_back(run.run_id, reason=why, now=self._clock.now(), actor=actor)
        if became is RollbackOutcome.UNKNOWN:
            raise NotFound("execution", execution_id)
        if became is not RollbackOutcome.STARTED:
            raise NotRolledBack(execution_id, _NOT_ROLLED_BACK[became])

    async def logs(  # noqa: PLR0913 - the filters of a log
        self,
        execution_id: str,
        *,
        after: LogCursor | None = None,
        since: int | None = None,
        newest_first: bool = False,
        step: str | None = None,
        after_line: int = 0,
        find: str | None = None,
        limit: int = _LINES,
        tenant: str = "default",
    ) -> LogPage:
        """A page of log lines in order of time, after a position and from a time on; see LogQuery."""
        run = await self.find(execution_id, tenant=tenant)
        found = await self._tasks.log(
            LogQuery(
                run_id=run.run_id,
                since=since,
                after=after,
                limit=limit + 1,
                newest_first=newest_first,
                step=step,
                after_line=after_line,
                find=None if find is None else printable("find", find),
            )
        )
        shown = list(found[:limit])
        return LogPage(shown, shown[-1].place if len(found) > limit else None)

    async def find(self, execution_id: str, *, tenant: str = "default") -> Run:
        """The run with that id; NotFound if the tenant has none."""
        schedule_name("tenant", tenant)
        found = await self._executions.find_run(RunId(printable("execution", execution_id)))
        if found is None or found.tenant != tenant:
            raise NotFound("execution", execution_id)
        return found


#: The state of a step that has no task yet.
NO_TASK_YET = "waiting"


class StepProgress(Struct, frozen=True, kw_only=True):
    """A step of a run with its task and items."""

    step: Step
    #: None until the step has a task.
    view: StepView | None = None
    #: For a compensation: the step that it undoes.
    undone: StepView | None = None
    #: The first items, and the number of all of them in each state.
    items: tuple[StepView, ...] = ()
    item_counts: Mapping[TaskState, int] = {}


def step_progress(view: ExecutionView, workflow: Workflow) -> list[StepProgress]:
    """Every step of the workflow with its tasks, in topological order, and then the compensations of a rollback."""
    own = {one.task.step: one for one in view.steps if one.task.parent is None}
    items: dict[str, list[StepView]] = {}
    for one in view.steps:
        if one.task.parent is not None:
            items.setdefault(one.task.step, []).append(one)
    return [
        StepProgress(
            step=step,
            view=own.get(step.name),
            undone=own.get(undone_step(step.name)) if is_compensation(step.name) else None,
            items=tuple(sorted(items.get(step.name, ()), key=lambda one: one.task.item or 0)),
            item_counts=view.item_counts.get(step.name, {}),
        )
        for step in (*topological_order(workflow), *_compensations(workflow, own))
    ]


def _compensations(workflow: Workflow, views: Mapping[str, StepView]) -> list[Step]:
    """The compensations that have a task, of all rollbacks, in the order in which these were created."""
    found = ((name, workflow.step(name)) for name in views if is_compensation(name))
    steps = [replace(step, name=name) for name, step in found if step is not None]
    return sorted(steps, key=lambda one: (views[one.name].task.created_at, -steps.index(one)))


def sub_run_of(progress: StepProgress) -> str | None:
    """The run that a sub-workflow step has started, or whose rollback it has; None for other steps."""
    view = progress.undone or progress.view
    if progress.step.workflow is None or view is None or not view.attempts or progress.items:
        return None
    return sub_run_id(view.task)


#: Why a run is not rolled back.
_NOT_ROLLED_BACK = {
    RollbackOutcome.NOTHING: "no step of it has succeeded, has a compensation, and is not undone",
    RollbackOutcome.UNDER_WAY: "it has not ended: cancel it first",
}
T = TypeVar("T")
PageKey = TypeVar("PageKey")
#: The rows scanned for one page of matches: by the store, and by tag in this process, which is slower.
_SCAN_LIMIT, _TAG_SCAN_LIMIT = 10_000, 1000
#: The position in a list of ticks, job by job: a job, and the planned time before which the next page starts.
LedgerCursor = tuple[str, int]
#: The jobs whose ticks are read for one page, and a planned time before which no job has ticks.
_LEDGERS, _NOTHING_MORE = 25, -(2**62)
#: The runs or jobs that are read at once.
_BATCH = 100


class SearchPage(Struct, Generic[T, PageKey], frozen=True):
    """Matches, and the position of the next page; None after the last. A page may have fewer matches than its limit."""

    items: Sequence[T]
    after: PageKey | None


class SearchService:
    """Searches executions, jobs and ticks by attributes that no index covers."""

    def __init__(
        self,
        executions: Executions,
        tasks: RunTasks,
        jobs: Jobs,
        job_service: JobService,
        *,
        announcements: Announcements,
        tick_history: TickHistory,
        scan_limit: int = _SCAN_LIMIT,
    ) -> None:
        self._executions = executions
        self._announcements = announcements
        self._tasks = tasks
        self._workflow_cache = WorkflowCache(jobs)
        self._job_service = job_service
        self._tick_history = tick_history
        self._scan_limit, self._tag_scan_limit = scan_limit, min(scan_limit, _TAG_SCAN_LIMIT)
        self._batch = min(scan_limit, _BATCH)

    async def executions(self, query: RunQuery, *, tag: str | None = None) -> SearchPage[ListedRun, tuple[int, str]]:
        """Runs, newest first, with the number of their last attempt."""
        page = await self._runs(query, tag)
        return SearchPage(await self._listed(page.items), page.after)

    async def executions_by_prefix(self, prefix: str, *, limit: int, tenant: str) -> list[ListedRun]:
        """The runs whose ids begin with these characters, by id."""
        found = await self._executions.find_by_prefix(tenant, printable("prefix", prefix), limit=limit)
        return await self._listed(found)

    async def _listed(self, runs: Sequence[Run]) -> list[ListedRun]:
        names = [run.run_id for run in runs]
        numbers, announcements = await self._tasks.attempt_numbers(names), await self._announcements.of_runs(names)
        return [ListedRun(run, numbers.get(run.run_id, 0), announcements.get(run.run_id, ())) for run in runs]

    async def _runs(self, query: RunQuery, tag: str | None) -> SearchPage[Run, tuple[int, str]]:
        if query.unfinished or any(one is not None for one in (query.status, query.source, query.wait_reason, tag)):
            limit = self._scan_limit if tag is None else self._tag_scan_limit
            query = replace(query, down_to=await self._executions.run_position(query, limit))
        found = await self._tagged(query, tag) if tag else await self._executions.list_runs(query)
        if len(found) >= query.limit:
            return SearchPage(found, (found[-1].created_at, found[-1].run_id))
        return SearchPage(found, query.down_to)

    async def _tagged(self, query: RunQuery, tag: str) -> list[Run]:
        found: list[Run] = []
        batch = replace(query, limit=self._batch)
        while len(found) < query.limit and (runs := await self._executions.list_runs(batch)):
            await self._workflow_cache.preload(runs)
            for run in runs:
                workflow = await self._workflow_cache.for_run(run)
                if workflow is not None and tag in workflow.tags:
                    found.append(run)
            batch = replace(batch, after=(runs[-1].created_at, runs[-1].run_id))
        return found[: query.limit]

    async def ticks(
        self, query: TickQuery, *, after: TickPosition | None, tenant: str
    ) -> SearchPage[Tick, TickPosition]:
        """The ticks of all jobs, also of deleted ones: those planned last first, of one instant in a fixed order.

        At the end come those that begin before `query.since` and stand for several planned times up to it or beyond.
        """
        first, bound = after or (query.before, ""), (query.since, "")
        wanted = TenantTickQuery(
            tenant=tenant, kind=query.kind, reason=query.reason, status=query.status, limit=query.limit
        )
        within = SearchPage[Tick, TickPosition]([], None)
        if first > bound:
            within = await self._ticks_between(replace(wanted, before=first, down_to=bound))
        if within.after is not None or query.since == -FOREVER:
            return within
        if len(within.items) == query.limit:
            return SearchPage(within.items, bound)
        rest = replace(wanted, before=min(first, bound), reaching=query.since, limit=query.limit - len(within.items))
        earlier = await self._ticks_between(rest)
        return SearchPage([*within.items, *earlier.items], earlier.after)

    async def _ticks_between(self, query: TenantTickQuery) -> SearchPage[Tick, TickPosition]:
        """The ticks that match, among those that one call may scan."""
        last = await self._tick_history.position(query, self._scan_limit) if query.selects else None
        found = await self._tick_history.page(query if last is None else replace(query, down_to=last))
        if len(found) == query.limit:
            return SearchPage(found, (found[-1].decision.planned_at, found[-1].uid))
        return SearchPage(found, last)

    async def ticks_by_job(
        self, query: TickQuery, *, after: tuple[str, int] | None, tenant: str, tag: str
    ) -> SearchPage[Tick, LedgerCursor]:
        """The ticks of the jobs with a tag: job by job, newest first."""
        found: list[Tick] = []
        looked = 0
        name, before = after or ("", None)
        ahead = [] if before is None else [(name, before)]
        jobs = await self._job_service.page(tenant=tenant, after=name, limit=_LEDGERS)
        ahead += [(view.schedule.schedule_id, query.before) for view in jobs if _has_tag(view, tag)]
        for name, before in ahead:
            with suppress(NotFound):  # it was deleted in the meantime
                rest = replace(query, before=before, limit=query.limit - len(found))
                page = await self._job_service.ledger(name, rest, tenant=tenant)
                found += page.ticks
                looked += page.looked
                if page.before is not None:
                    return SearchPage(found, (name, page.before))
            if len(found) == query.limit or looked >= self._scan_limit:
                return SearchPage(found, (name, _NOTHING_MORE))
        return SearchPage(found, (name, _NOTHING_MORE) if len(jobs) == _LEDGERS else None)

    async def is_tagged(self, job: str, tag: str, *, tenant: str) -> bool:
        """Whether the job has that tag; NotFound if there is no such job."""
        return _has_tag(await self._job_service.get(job, tenant=tenant, coming=0, last=0), tag)


def _has_tag(view: JobView, tag: str) -> bool:
    return view.workflow is not None and tag in view.workflow.tags
