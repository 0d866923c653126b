"""Looking at runs, which operators know as executions, and ending them."""

from collections.abc import AsyncIterator, Mapping, Sequence

from msgspec import Struct

from gnomon.core.launching import Cancelling
from gnomon.core.model import Attempt, LogLine, Run, RunId, RunStatus, Task, TaskId
from gnomon.core.requests import printable, schedule_name
from gnomon.core.workflow import Workflow
from gnomon.errors import AlreadyOver, FieldError, NotFound
from gnomon.ports.clock import Clock
from gnomon.ports.jobs import Jobs
from gnomon.ports.runs import Executions, RunQuery, Runs
from gnomon.ports.schedules import History

_LARGEST_PAGE = 10_000
_LINES = 1000
#: How long to wait between two looks at a run that goes on: soon at first, then less and less often.
_FIRST_LOOK_SECONDS, _SELDOM_SECONDS = 0.05, 1.0


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
    #: Of a step that is done once for each item: for which.
    item: int | None = None


class ExecutionBook:
    """List, show, wait for, read, cancel."""

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
        became = await self._runs.cancel(run.run_id, reason=f"cancelled by {actor}", now=self._clock.now())
        if became is Cancelling.UNKNOWN:
            raise NotFound("execution", execution_id)
        if became is Cancelling.OVER:
            raise AlreadyOver("execution", execution_id)
        return became

    async def logs(
        self, execution_id: str, *, seen: Mapping[TaskId, int] | None = None, tenant: str = "default"
    ) -> tuple[list[Said], dict[TaskId, int]]:
        """What the steps have said, in the order of time, without the lines that were seen; and how many are now."""
        run = await self._find(tenant, execution_id)
        said, counts = list[Said](), dict(seen or {})
        tasks = {task.task_id: task for task in await self._history.tasks([run])}
        for name, length in (await self._executions.log_lengths(list(tasks))).items():
            while counts.get(name, 0) < length:
                lines = await self._executions.log_lines(name, after=counts.get(name, 0), limit=_LINES)
                said += [Said(tasks[name].step, line, tasks[name].item) for line in lines]
                counts[name] = counts.get(name, 0) + len(lines)
        return sorted(said, key=lambda one: one.line.at), counts

    async def looks(self, execution_id: str, *, tenant: str = "default") -> AsyncIterator[Run]:
        """The run as it is now, and again and again until it is over; the last one is."""
        patience = _FIRST_LOOK_SECONDS
        while not (run := await self._find(tenant, execution_id)).over:
            yield run
            await self._clock.sleep(patience)
            patience = min(2 * patience, _SELDOM_SECONDS)
        yield run

    async def finished(self, execution_id: str, *, tenant: str = "default") -> Run:
        """The run, once it is over."""
        [run] = [run async for run in self.looks(execution_id, tenant=tenant) if run.over]
        return run

    async def _find(self, tenant: str, execution_id: str) -> Run:
        schedule_name("tenant", tenant)
        found = await self._executions.find_run(RunId(printable("execution", execution_id)))
        if found is None or found.tenant != tenant:
            raise NotFound("execution", execution_id)
        return found
