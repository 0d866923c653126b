"""Programs that end while tasks run: the tasks are interrupted, not failed, and start again at once."""

import asyncio
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from gnomon.declarative import Scheduler
from gnomon.declarative.events import Event, TaskRunStarted
from gnomon.declarative.state import StateFile

HOURS = timedelta(hours=6)
PROGRAM = """
import asyncio, contextlib, signal, sys
from datetime import timedelta
from gnomon.declarative import Scheduler

async def interrupted():
    asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGINT)
    await asyncio.Event().wait()

async def main():
    began = asyncio.Event()

    async def task():
        began.set()
        {callback}

    scheduler = Scheduler(sys.argv[1])
    await scheduler.initialize([("task", "* * * * *", task, timedelta(hours=6))])
    await began.wait()
    {ending}

# A shell that starts programs in the background has them ignore interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)
asyncio.run(main())
"""
WAIT = "await asyncio.Event().wait()"
ENDINGS = {
    "patience runs out": (
        WAIT,
        """with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(scheduler.stop(), 0.01)""",
    ),
    "no stop": (WAIT, ""),
    "a callback that fails while it is cut off": (
        """try:
            await asyncio.Event().wait()
        finally:
            raise ConnectionError""",
        "",
    ),
    "an error": (WAIT, "raise ValueError"),
    "two interrupts": (
        WAIT,
        """try:
        await interrupted()
    finally:
        asyncio.get_running_loop().call_later(0.1, signal.raise_signal, signal.SIGINT)
        await scheduler.stop()""",
    ),
    "an interrupt inside of the callback": ("raise KeyboardInterrupt", WAIT),
}


async def records_of(path: Path) -> list[dict[str, object]]:
    state = StateFile(path)
    try:
        return [msgspec.json.decode(str(text)) for _, text in await state.open()]
    finally:
        await state.close()


async def causes_of_starts(path: Path, name: str = "task") -> list[str]:
    """The causes for which a new program starts the task at once."""
    starts: list[str] = []
    began = asyncio.Event()

    def listen(event: Event) -> None:
        if isinstance(event, TaskRunStarted):
            starts.append(event.cause)

    async def task() -> None:
        began.set()

    scheduler = Scheduler(StateFile(path), on_event=listen)
    await scheduler.initialize([(name, "0 0 29 2 *", task, HOURS)])
    await began.wait()
    await scheduler.stop()
    return starts


@pytest.mark.req("D-15")
@pytest.mark.parametrize(("callback", "ending"), ENDINGS.values(), ids=ENDINGS.keys())
async def test_a_task_that_the_end_of_the_program_cuts_off_is_interrupted_and_restarted(
    tmp_path: Path, callback: str, ending: str
) -> None:
    path = tmp_path / "scheduler.db"
    program = PROGRAM.format(callback=callback, ending=ending)
    subprocess.run([sys.executable, "-c", program, path], check=False, timeout=60, capture_output=True)  # noqa: ASYNC221

    [record] = await records_of(path)
    assert "schedulerIdentifier" in record
    assert "lastFailureAt" not in record
    assert await causes_of_starts(path) == ["orphan"]


GRACE_OVER = """
import asyncio, declarative

async def hang():
    print("it hangs", flush=True)
    await asyncio.Event().wait()

declarative.report, declarative.GRACE = hang, 0.01
asyncio.run(declarative.main())
"""
EXAMPLE = Path(__file__).parents[2] / "examples" / "declarative.py"


async def test_the_example_runs_its_task_and_ends_by_a_signal(tmp_path: Path) -> None:
    # The output goes to a pipe, and the program runs in an empty folder.
    process = await asyncio.create_subprocess_exec(
        sys.executable, EXAMPLE, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert await asyncio.wait_for(process.stdout.readline(), 60) == b"the report is written\n"
    process.terminate()
    _, log = await asyncio.wait_for(process.communicate(), 60)

    assert process.returncode == 0
    assert b"SchedulerStopped" in log
    [record] = await records_of(tmp_path / "scheduler.db")
    assert "lastSuccessAt" in record


@pytest.mark.req("D-15")
async def test_a_task_of_the_example_that_outlasts_the_grace_is_interrupted_and_restarted(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", GRACE_OVER),
        cwd=tmp_path,
        env={"PYTHONPATH": str(EXAMPLE.parent)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    assert await asyncio.wait_for(process.stdout.readline(), 60) == b"it hangs\n"
    process.terminate()
    assert await asyncio.wait_for(process.wait(), 60) == 0

    [record] = await records_of(tmp_path / "scheduler.db")
    assert "lastFailureAt" not in record
    assert await causes_of_starts(tmp_path / "scheduler.db", "report") == ["orphan"]


@pytest.mark.req("D-15")
async def test_a_second_signal_ends_the_example_within_its_grace(tmp_path: Path) -> None:
    program = GRACE_OVER.replace("0.01", "600")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program),
        cwd=tmp_path,
        env={"PYTHONPATH": str(EXAMPLE.parent)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert await asyncio.wait_for(process.stdout.readline(), 60) == b"it hangs\n"
    process.terminate()
    while b"SchedulerStopRequested" not in await asyncio.wait_for(process.stderr.readline(), 60):
        pass
    process.terminate()
    await asyncio.wait_for(process.communicate(), 60)

    assert process.returncode == -signal.SIGTERM
    assert await causes_of_starts(tmp_path / "scheduler.db", "report") == ["orphan"]
