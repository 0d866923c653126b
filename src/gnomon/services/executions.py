"""Looking at runs, which operators know as executions, and ending them."""

from collections.abc import AsyncIterator, Sequence
from heapq import nsmallest

from msgspec import Struct

from gnomon.core.jobs.schedule_fields import printable, schedule_name
from gnomon.core.model import Attempt, LogLine, Run, RunId, RunStatus, Task, TaskId
from gnomon.core.runs.launch import Cancelling
from gnomon.core.runs.workflow import Workflow
from gnomon.errors import AlreadyOver, FieldError, NotFound
from gnomon.ports.runs import Executions, RunQuery, Runs
from gnomon.ports.runtime import Clock
from gnomon.ports.schedules import History, Jobs

_LARGEST_PAGE = 10_000
_LINES = 1000
LogPlace = tuple[int, str, int]


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


class Said(Struct, frozen=True):
    """A line of a log, and which step said it."""

    step: str
    line: LogLine
    #: The first that its task has said is 1.
    number: int
    task: str
    #: Of a step that is done once for each item: for which.
    item: int | None = None

    @property
    def place(self) -> LogPlace:
        """Where it stands among all lines."""
        return self.line.at, self.task, self.number


class LogPage(Struct, frozen=True):
    """Some lines, and after which place to look for more; None if there are none."""

    said: list[Said]
    after: LogPlace | None


class ExecutionBook:
    """List, show, read, cancel."""

    def __init__(self, runs: Runs, executions: Executions, history: History, jobs: Jobs, clock: Clock) -> None:
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

    async def cancel(self, execution_id: str, *, actor: str, tenant: str = "default") -> Cancelling:
        """End what waits of the run at once, and ask for the end of what is running; AlreadyOver if it is."""
        printable("actor", actor)
        run = await self._find(tenant, execution_id)
        reason, now = f"cancelled by {actor}", self._clock.now()
        became = await self._runs.cancel(run.run_id, reason=reason, now=now, actor=actor)
        if became is Cancelling.UNKNOWN:
            raise NotFound("execution", execution_id)
        if became is Cancelling.OVER:
            raise AlreadyOver("execution", execution_id)
        return became

    async def logs(
        self,
        execution_id: str,
        *,
        after: LogPlace | None = None,
        since: int | None = None,
        limit: int = _LINES,
        tenant: str = "default",
    ) -> LogPage:
        """What the steps have said, in the order of time: so many lines after a place, from a time on."""
        run = await self._find(tenant, execution_id)
        tasks = {task.task_id: task for task in await self._history.tasks([run])}
        said: list[Said] = []
        for name, length in (await self._executions.log_lengths(list(tasks))).items():
            async for number, line in self._lines(name, length):
                one = Said(tasks[name].step, line, number, name, tasks[name].item)
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
