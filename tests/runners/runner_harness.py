"""A runner to try functions with: hand something over, wait for what comes of it."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

from gnomon.config.sections import SecretsSettings, SecuritySettings, ShellSettings, WorkerSettings
from gnomon.core.model import Run, RunId, RunSource, RunStatus, ScheduleUid, Task, TaskId
from gnomon.core.runs.outcomes import Assignment, AttemptOutcome
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.core.runs.workflow import Step, Workflow
from gnomon.ports.execution import Finished, ProgressWriter
from gnomon.ports.http import HttpSender
from gnomon.ports.tasks import AttemptRef
from gnomon.runners.agents.agent_runner import AgentEnvironment
from gnomon.runners.kernel_support import KernelSupport
from gnomon.runners.registry import Functions
from gnomon.runners.runner import FunctionRunner
from gnomon.runners.secrets import SecretSource

TESTS = Path(__file__).parents[1]
PLANNED = 1_772_452_800_000
_numbers = count(1)


#: The origin of a job whose commands are open: its author has a shell of the machine anyway.
OPEN_ORIGIN = "file:jobs.yaml"


def assignment(
    function: str,
    given: Mapping[str, Any] | None = None,
    *,
    origin: str = OPEN_ORIGIN,
    **step: Any,  # noqa: ANN401 - what a step may say
) -> Assignment:
    """A task of a tick, under its first attempt."""
    number = next(_numbers)
    only = Step(name="main", function=function, **step)
    run = Run(
        run_id=RunId(f"run_{number}"),
        tenant="default",
        schedule_uid=ScheduleUid("sch_1"),
        schedule_id="nightly",
        workflow_id="report",
        workflow_version=1,
        user_id="ada",
        source=RunSource.CRON,
        status=RunStatus.RUNNING,
        queued=False,
        planned_at=PLANNED,
        fire_at=PLANNED,
        created_at=PLANNED,
    )
    task = Task(
        task_id=TaskId(f"task_{number}"),
        tenant="default",
        run_id=run.run_id,
        step="main",
        state=TaskState.RUNNING,
        wait_reason=WaitReason.READY,
        available_at=PLANNED,
        created_at=PLANNED,
        fence=1,
    )
    workflow = Workflow(workflow_id="report", version=1, steps=(only,), origin=origin)
    return Assignment(task=task, run=run, workflow=workflow, step=only, input=given or {})


def attempt_ref(assigned: Assignment) -> AttemptRef:
    return assigned.task.task_id, assigned.task.fence


async def wait_until(condition: Callable[[], bool]) -> None:
    """It has become true, for which there is a limit."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - other threads and processes tell nobody
            await asyncio.sleep(0.005)


class RunnerHarness:
    """The owner of a runner."""

    def __init__(self, runner: FunctionRunner, called: asyncio.Event) -> None:
        self.runner = runner
        self.called = called
        self._collected: dict[str, AttemptOutcome] = {}

    async def outcome(self, assigned: Assignment) -> AttemptOutcome:
        """Its outcome."""
        while assigned.task.task_id not in self._collected:
            await self.called.wait()
            self.called.clear()
            self.keep(self.runner.finished())
        return self._collected[assigned.task.task_id]

    def keep(self, finished: Sequence[Finished]) -> None:
        for each in finished:
            assert each.assignment.task.task_id not in self._collected, "told twice"
            self._collected[each.assignment.task.task_id] = each.outcome

    async def run(self, function: str, given: Mapping[str, Any] | None = None, **step: Any) -> AttemptOutcome:  # noqa: ANN401 - what a step may say
        """The outcome of one try."""
        assigned = assignment(function, given, **step)
        self.runner.start([assigned])
        return await self.outcome(assigned)

    async def idle(self) -> None:
        """No slot is in use."""
        await wait_until(lambda: not self.runner.occupied)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def read_numbers(file: Path) -> list[int]:
    return [int(line) for line in file.read_text().split()]


async def wait_for_numbers(file: Path, count: int) -> list[int]:
    """The numbers in the file, once there are so many."""
    await wait_until(lambda: file.exists() and len(read_numbers(file)) >= count)
    return read_numbers(file)


def environment_of_tests() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join((str(TESTS), os.environ.get("PYTHONPATH", "")))}


@asynccontextmanager
async def open_runner(
    functions: Functions,
    *,
    secrets: SecretsSettings | None = None,
    environ: Mapping[str, str] | None = None,
    shell: ShellSettings | None = None,
    http: HttpSender | None = None,
    agents: AgentEnvironment | None = None,
    security: SecuritySettings | None = None,
    kernel: KernelSupport | None = None,
    imports: tuple[str, ...] = (),
    slot_wait_ms: int = 60_000,
    progress: ProgressWriter | None = None,
    **settings: Any,  # noqa: ANN401 - those of a worker
) -> AsyncIterator[RunnerHarness]:
    """A runner that is closed in the end."""
    called, loop = asyncio.Event(), asyncio.get_running_loop()
    runner = FunctionRunner(
        functions,
        WorkerSettings(**settings),
        default_timeout_ms=30_000,
        secrets=SecretSource(secrets or SecretsSettings(), environ or {}),
        on_finished=lambda: loop.call_soon_threadsafe(called.set),
        shell=shell,
        http=http,
        agents=agents,
        security=security,
        kernel=kernel,
        imports=imports,
        slot_wait_ms=slot_wait_ms,
        progress=progress,
    )
    try:
        yield RunnerHarness(runner, called)
    finally:
        await runner.close(drain_ms=0, grace_ms=settings.get("kill_grace_ms", 1000))
