"""The start of commands: with and without the sandbox, by a shell and by a plan, beside `subprocess.run`.

The program ends at once. The time is that from the hand-over of an attempt to its outcome; the processor time, which
other programs on the machine hardly disturb, is that of the processes of the command and its guardians.
"""

import argparse
import asyncio
import resource
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from gnomon.config.sections import SecretsSettings, SecuritySettings, ShellSettings, WorkerSettings
from gnomon.core.commands.sandbox import SandboxMode
from gnomon.core.model import Result, Run, RunId, RunSource, RunStatus, Task, TaskId
from gnomon.core.runs.outcomes import Assignment
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.core.runs.workflow import SHELL, Step, Workflow
from gnomon.runners.registry import Functions
from gnomon.runners.runner import FunctionRunner
from gnomon.runners.secrets import SecretSource
from report import table, write_section

#: A program of every system that ends at once, and that no policy refuses once it is listed.
PROGRAM = "true"
#: The goal: how much longer a sandboxed start may take, in milliseconds.
GOAL_MS = 3.0
_numbers = count(1)
Start = Callable[[], Awaitable[None]]


def assignment(text: str, *, origin: str, sandbox: SandboxMode = SandboxMode.AUTO, network: bool = True) -> Assignment:
    """An attempt that runs the command."""
    step = Step(name="main", function=SHELL, command=text, sandbox=sandbox, network=network)
    name, now = f"run_{next(_numbers)}", 1_800_000_000_000
    run = Run(
        run_id=RunId(name),
        tenant="default",
        schedule_uid=None,
        schedule_id=None,
        workflow_id="bench",
        workflow_version=1,
        user_id="",
        source=RunSource.API,
        status=RunStatus.RUNNING,
        queued=False,
        planned_at=now,
        fire_at=now,
        created_at=now,
    )
    task = Task(
        task_id=TaskId(f"task_{name}"),
        tenant="default",
        run_id=run.run_id,
        step="main",
        state=TaskState.RUNNING,
        wait_reason=WaitReason.READY,
        available_at=now,
        created_at=now,
        fence=1,
    )
    workflow = Workflow(workflow_id="bench", version=1, steps=(step,), origin=origin)
    return Assignment(task=task, run=run, workflow=workflow, step=step, input={})


@asynccontextmanager
async def commands(folder: Path, **shell: object) -> AsyncIterator[Callable[[Assignment], Awaitable[None]]]:
    """A runner of commands, as a callable that waits until an attempt has succeeded."""
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    runner = FunctionRunner(
        Functions(),
        WorkerSettings(),
        default_timeout_ms=30_000,
        secrets=SecretSource(SecretsSettings(), {}),
        on_finished=lambda: loop.call_soon_threadsafe(ended.set),
        shell=ShellSettings(workspace=str(folder), login=False, **shell),  # type: ignore[arg-type]
        security=SecuritySettings(allowed_commands=(PROGRAM,)),
    )

    async def run(assigned: Assignment) -> None:
        runner.start([assigned])
        await ended.wait()
        ended.clear()
        for finished in runner.finished():
            assert finished.outcome.result is Result.SUCCEEDED, finished.outcome

    try:
        yield run
    finally:
        await runner.close(drain_ms=0, grace_ms=1000)


class StartTimes(NamedTuple):
    """The times of one start, in milliseconds."""

    elapsed: float
    processor: float


async def measure(starts: int) -> Mapping[str, list[StartTimes]]:
    """The times of each start, by its kind. The kinds take turns, so that all of them meet the same load."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with commands(folder, sandbox="off") as unconfined, commands(folder) as confined:
            kinds = _kinds(unconfined, confined)
            found: dict[str, list[StartTimes]] = {kind: [] for kind in kinds}
            for _ in range(starts):
                for kind, start in kinds.items():
                    used, began = _processor_ms(), perf_counter()
                    await start()
                    found[kind].append(StartTimes(1000 * (perf_counter() - began), _processor_ms() - used))
    return found


def _processor_ms() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (used.ru_utime + used.ru_stime)


def _kinds(
    unconfined: Callable[[Assignment], Awaitable[None]], confined: Callable[[Assignment], Awaitable[None]]
) -> dict[str, Start]:
    async def alone() -> None:
        subprocess.run(shell, check=True)  # noqa: ASYNC221, S603 - nothing else runs

    async def peer() -> None:
        subprocess.run([str(sandlock), "run", "-r", "/usr", "-r", "/lib", "--", *shell], check=True)  # noqa: ASYNC221, S603

    shell, sandlock = ["/bin/sh", "-c", PROGRAM], shutil.which("sandlock")
    required, origin = SandboxMode.REQUIRED, "file:bench.yaml"
    own: dict[str, Start] = {
        "plan without sandbox": lambda: unconfined(assignment(PROGRAM, origin=origin)),
        "plan, files confined": lambda: confined(assignment(PROGRAM, origin=origin, sandbox=required)),
        "plan, files confined, no network": lambda: confined(
            assignment(PROGRAM, origin=origin, sandbox=required, network=False)
        ),
    }
    peers: dict[str, Start] = {"subprocess.run, without guardians": alone}
    if sandlock is not None:
        peers["sandlock, without guardians"] = peer
    return own | peers


def main() -> None:
    """Measure, and write the section of the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=300)
    found = asyncio.run(measure(parser.parse_args().starts))
    rows = [[kind, *(f"{value:.1f} ms" for value in _summary(times))] for kind, times in found.items()]
    none, complete = (_summary(found[kind]) for kind in ("plan without sandbox", "plan, files confined, no network"))
    verdict = (
        f"The sandbox adds {complete[0] - none[0]:.1f} ms to the median and {complete[1] - none[1]:.1f} ms to the 99th"
        f" percentile; {complete[2] - none[2]:.1f} ms are processor time. The goal is at most {GOAL_MS:.0f} ms."
    )
    columns = ["start", "median", "99 %", "processor time"]
    write_section("Start of commands", f"{table(columns, rows)}\n\n{verdict}")


def _summary(times: list[StartTimes]) -> tuple[float, float, float]:
    """The median and the 99th percentile of the time, and the median of the processor time."""
    elapsed = sorted(one.elapsed for one in times)
    processor = statistics.median(one.processor for one in times)
    return statistics.median(elapsed), elapsed[-(len(elapsed) // 100) - 1], processor


if __name__ == "__main__":
    main()
