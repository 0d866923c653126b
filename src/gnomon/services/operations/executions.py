"""Looking at runs, which operators know as executions, and ending them."""

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from heapq import nsmallest
from typing import Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from gnomon.core.jobs.fields import printable, schedule_name
from gnomon.core.model import Attempt, LogLine, Run, RunId, RunStatus, Task, TaskId, Tick
from gnomon.core.runs.dag import topological_order
from gnomon.core.runs.launch import CancelOutcome, sub_run_id
from gnomon.core.runs.workflow import Step, Workflow
from gnomon.errors import AlreadyOver, FieldError, NotFound
from gnomon.ports.runs import Executions, RunQuery, Runs
from gnomon.ports.runtime import Clock
from gnomon.ports.schedules import Jobs, ScheduleHistory
from gnomon.services.execution.workflow_cache import WorkflowCache
from gnomon.services.operations.jobs import JobService, JobView, TickQuery

_LARGEST_PAGE = 10_000
_LINES = 1000
LogCursor = tuple[int, str, int]


class StepView(Struct, frozen=True, kw_only=True):
    """A task of a run and all that was tried."""

    task: Task
    attempts: tuple[Attempt, ...]
    #: What it returned, as JSON.
    output: bytes | None = None

    @property
    def started_at(self) -> int | None:
        """When its first attempt began."""
        return min((one.started_at for one in self.attempts if one.started_at is not None), default=None)

    @property
    def ended_at(self) -> int | None:
        """When its last attempt ended; None while one goes on."""
        ends = [one.ended_at for one in self.attempts]
        return max((end for end in ends if end is not None), default=None) if None not in ends else None


class ExecutionView(Struct, frozen=True, kw_only=True):
    """A run as an operator looks at it."""

    run: Run
    workflow: Workflow | None
    steps: tuple[StepView, ...]
    #: What it was given, as JSON; None if that is the workflow's own input.
    input: bytes | None = None


class StepLogLine(Struct, frozen=True):
    """A line of a log, and which step said it."""

    step: str
    line: LogLine
    #: The first that its task has said is 1.
    number: int
    task: str
    #: Of a step that is done once for each item: for which.
    item: int | None = None

    @property
    def place(self) -> LogCursor:
        """Where it stands among all lines."""
        return self.line.at, self.task, self.number


class LogPage(Struct, frozen=True):
    """Some lines, and after which place to look for more; None if there are none."""

    lines: list[StepLogLine]
    after: LogCursor | None


class ExecutionService:
    """List, show, read, cancel."""

    def __init__(self, runs: Runs, executions: Executions, history: ScheduleHistory, jobs: Jobs, clock: Clock) -> None:
        self._runs = runs
        self._executions = executions
        self._history = history
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
        """Runs, the newest first."""
        if not 1 <= limit <= _LARGEST_PAGE:
            raise FieldError("limit", limit, f"must be from 1 to {_LARGEST_PAGE}")
        if job is not None:
            schedule_name("job", job)
        schedule_name("tenant", tenant)
        query = RunQuery(tenant=tenant, schedule_id=job, status=status, after=after, limit=limit)
        return await self._executions.list_runs(query)

    async def get(self, execution_id: str, *, tenant: str = "default") -> ExecutionView:
        """The run with its tasks, their attempts and what they returned."""
        run = await self._find(tenant, execution_id)
        tasks = await self._history.tasks([run])
        tried: dict[TaskId, list[Attempt]] = {}
        for one in await self._executions.attempts([task.task_id for task in tasks]):
            tried.setdefault(one.task_id, []).append(one)
        outputs = await self._executions.payloads([task.task_id for task in tasks], "output")
        steps = [
            StepView(task=task, attempts=tuple(tried.get(task.task_id, ())), output=outputs.get(str(task.task_id)))
            for task in tasks
        ]
        return ExecutionView(
            run=run,
            workflow=await self._jobs.workflow(tenant, run.workflow_id, run.workflow_version),
            steps=tuple(steps),
            input=await self._executions.payload(run.run_id, "input"),
        )

    async def cancel(self, execution_id: str, *, actor: str, tenant: str = "default") -> CancelOutcome:
        """End what waits of the run at once, and ask for the end of what is running; AlreadyOver if it is."""
        printable("actor", actor)
        run = await self._find(tenant, execution_id)
        reason, now = f"cancelled by {actor}", self._clock.now()
        became = await self._runs.cancel(run.run_id, reason=reason, now=now, actor=actor)
        if became is CancelOutcome.UNKNOWN:
            raise NotFound("execution", execution_id)
        if became is CancelOutcome.OVER:
            raise AlreadyOver("execution", execution_id)
        return became

    async def logs(
        self,
        execution_id: str,
        *,
        after: LogCursor | None = None,
        since: int | None = None,
        limit: int = _LINES,
        tenant: str = "default",
    ) -> LogPage:
        """What the steps have said, in the order of time: so many lines after a place, from a time on."""
        run = await self._find(tenant, execution_id)
        tasks = {task.task_id: task for task in await self._history.tasks([run])}
        said: list[StepLogLine] = []
        for name, length in (await self._executions.log_lengths(list(tasks))).items():
            async for number, line in self._lines(name, length):
                one = StepLogLine(tasks[name].step, line, number, name, tasks[name].item)
                if (since is None or line.at >= since) and (after is None or one.place > after):
                    said.append(one)
            said = nsmallest(limit + 1, said, key=lambda one: one.place)
        shown = said[:limit]
        return LogPage(shown, shown[-1].place if len(said) > limit else None)

    async def _lines(self, task: TaskId, length: int) -> AsyncIterator[tuple[int, LogLine]]:
        for start in range(0, length, _LINES):
            lines = await self._executions.log_lines(task, after=start, limit=_LINES)
            for number, line in enumerate(lines, start + 1):
                yield number, line

    async def _find(self, tenant: str, execution_id: str) -> Run:
        schedule_name("tenant", tenant)
        found = await self._executions.find_run(RunId(printable("execution", execution_id)))
        if found is None or found.tenant != tenant:
            raise NotFound("execution", execution_id)
        return found


#: The state of a step that has no task yet.
NO_TASK_YET = "waiting"


class StepProgress(Struct, frozen=True, kw_only=True):
    """A step of a run with all that has become of it."""

    step: Step
    #: None as long as its turn has not come.
    view: StepView | None = None
    items: tuple[StepView, ...] = ()


def step_progress(view: ExecutionView, workflow: Workflow) -> list[StepProgress]:
    """Every step of the workflow, each after those that it depends on, with its tasks."""
    own = {one.task.step: one for one in view.steps if one.task.parent is None}
    items: dict[str, list[StepView]] = {}
    for one in view.steps:
        if one.task.parent is not None:
            items.setdefault(one.task.step, []).append(one)
    return [
        StepProgress(
            step=step,
            view=own.get(step.name),
            items=tuple(sorted(items.get(step.name, ()), key=lambda one: one.task.item or 0)),
        )
        for step in topological_order(workflow)
    ]


def sub_run_of(drawn: StepProgress) -> str | None:
    """The execution that a step has started and waits for, or has waited for."""
    view = drawn.view
    if drawn.step.workflow is None or view is None or not view.attempts or drawn.items:
        return None
    return sub_run_id(view.task)


T = TypeVar("T")
Cursor = TypeVar("Cursor")
#: How many are looked at for one page of those that are wanted: by the store, and here, where it takes longer.
_SCAN_LIMIT, _TAG_SCAN_LIMIT = 10_000, 1000
#: Where a listing of ledgers goes on: before which planned time of which job.
LedgerCursor = tuple[str, int]
#: How many ledgers are looked at for one page, and before when there is nothing more in any.
_LEDGERS, _NOTHING_MORE = 25, -(2**62)
#: How many are looked at without a break.
_BATCH = 100


class SearchPage(Struct, Generic[T, Cursor], frozen=True):
    """Some of those that are wanted, and after which place to look for more; None if there are none."""

    items: Sequence[T]
    after: Cursor | None


class SearchService:
    """Executions and jobs by what no index knows."""

    def __init__(self, executions: Executions, jobs: Jobs, book: JobService, *, look: int = _SCAN_LIMIT) -> None:
        self._executions = executions
        self._workflow_cache = WorkflowCache(jobs)
        self._job_service = book
        self._look, self._look_here = look, min(look, _TAG_SCAN_LIMIT)
        self._lot = min(look, _BATCH)

    async def executions(self, query: RunQuery, *, tag: str | None = None) -> SearchPage[Run, tuple[int, str]]:
        """Runs, the newest first."""
        if query.status is not None or query.source is not None or tag is not None:
            look = self._look if tag is None else self._look_here
            query = replace(query, down_to=await self._executions.run_position(query, look))
        found = await self._tagged(query, tag) if tag else await self._executions.list_runs(query)
        if len(found) >= query.limit:
            return SearchPage(found, (found[-1].created_at, found[-1].run_id))
        return SearchPage(found, query.down_to)

    async def _tagged(self, query: RunQuery, tag: str) -> list[Run]:
        found: list[Run] = []
        lot = replace(query, limit=self._lot)
        while len(found) < query.limit and (runs := await self._executions.list_runs(lot)):
            await self._workflow_cache.preload(runs)
            for run in runs:
                workflow = await self._workflow_cache.for_run(run)
                if workflow is not None and tag in workflow.tags:
                    found.append(run)
            lot = replace(lot, after=(runs[-1].created_at, runs[-1].run_id))
        return found[: query.limit]

    async def ticks(
        self, asked: TickQuery, *, after: tuple[str, int] | None, tenant: str
    ) -> SearchPage[Tick, LedgerCursor]:
        """What became of the planned times of all jobs: one job after the other, of each the newest first."""
        found: list[Tick] = []
        looked = 0
        name, before = after or ("", None)
        ahead = [] if before is None else [(name, before)]
        jobs = await self._job_service.page(tenant=tenant, after=name, limit=_LEDGERS)
        ahead += [(view.schedule.schedule_id, asked.before) for view in jobs]
        for name, before in ahead:
            with suppress(NotFound):  # it was deleted in the meantime
                wanted = replace(asked, before=before, limit=asked.limit - len(found))
                page = await self._job_service.ledger(name, wanted, tenant=tenant)
                found += page.ticks
                looked += page.looked
                if page.before is not None:
                    return SearchPage(found, (name, page.before))
            if len(found) == asked.limit or looked >= self._look:
                return SearchPage(found, (name, _NOTHING_MORE))
        return SearchPage(found, (name, _NOTHING_MORE) if len(jobs) == _LEDGERS else None)

    async def jobs(self, *, tag: str | None, after: str, limit: int, tenant: str) -> SearchPage[JobView, str]:
        """Jobs in the order of their names."""
        found: list[JobView] = []
        for _ in range(self._look_here // self._lot):
            size = limit if tag is None else self._lot
            page = await self._job_service.page(tenant=tenant, after=after, limit=size)
            for view in page:
                after = view.schedule.schedule_id
                if tag is None or (view.workflow is not None and tag in view.workflow.tags):
                    found.append(view)
                if len(found) == limit:
                    return SearchPage(found, after)
            if len(page) < size:
                return SearchPage(found, None)
        return SearchPage(found, after)
