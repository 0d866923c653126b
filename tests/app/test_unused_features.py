"""A task that uses no policy, no agent and no command costs nothing for them: none of their code runs for it."""

import asyncio
import sys
import threading
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Self

import gnomon
from gnomon.adapters.host import RandomIds, SystemClock
from gnomon.app.node import Node
from gnomon.config.settings import load
from gnomon.core.jobs.job import read_job
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.model import RunId, RunSource
from gnomon.core.runs.launch import LaunchRequest, new_requested_run
from gnomon.runners.registry import Functions
from gnomon.services.operations.jobs import JobService
from support.sqlite_files import new_sqlite_file

TASKS = 60
#: The parts of the source that only other tasks need.
UNUSED = (
    "core/agents",
    "core/approvals.py",
    "core/commands",
    "core/policy",
    "core/breakers.py",
    "runners/agents",
    "runners/http_calls.py",
    "runners/shell.py",
    "services/execution/agent_context.py",
    "services/execution/command_approvals.py",
)
SOURCE = Path(gnomon.__file__).parent
FUNCTIONS = Functions()


@FUNCTIONS.function("note")
async def note() -> None:
    """Do nothing."""


class SuccessEvents:
    """Knows when all tasks have succeeded."""

    def __init__(self) -> None:
        self.all_succeeded = asyncio.Event()
        self._left = TASKS

    def emit(self, name: str, **_: object) -> None:
        self._left -= name == "task_succeeded"
        if not self._left:
            self.all_succeeded.set()


class CalledFiles:
    """Counts the calls of Python functions in all threads by the file of the function."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def __enter__(self) -> Self:
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            self.calls[frame.f_code.co_filename] += 1


async def test_no_code_of_a_feature_runs_for_tasks_that_do_not_use_it(tmp_path: Path) -> None:
    new_sqlite_file(tmp_path / "gnomon.db")
    settings = load(flags={"database.url": f"sqlite:///{tmp_path / 'gnomon.db'}", "metrics.port": 0})
    called, events = CalledFiles(), SuccessEvents()
    with called:
        node = await Node.open(settings, events=events, functions=FUNCTIONS)
        try:
            store, clock = node.store, SystemClock()
            job = read_job({"name": "note", "function": "note", "overlap": "allow"}, Defaults(), now=clock.now())
            await JobService(store.jobs, store.schedules, store.history, clock, RandomIds()).apply([job], actor="ada")
            schedule = await store.schedules.find("default", "note")
            assert schedule is not None
            called.calls.clear()
            runs = [
                new_requested_run(RunId(f"run_{number:08}"), schedule, source=RunSource.API, now=clock.now())
                for number in range(TASKS)
            ]
            requests = [LaunchRequest(run=run, first_steps=("main",)) for run in runs]
            await store.runs.launch(requests, now=clock.now())
            stop = asyncio.Event()
            running = asyncio.create_task(node.run(stop))
            await events.all_succeeded.wait()
            stop.set()
            await running
        finally:
            await node.close()

    found = {
        part: sum(count for file, count in called.calls.items() if file.startswith(str(SOURCE / part)))
        for part in UNUSED
    }
    # Some run once for the process, or for a batch of tasks.
    assert {part: count for part, count in found.items() if count >= TASKS // 2} == {}
    assert sum(called.calls.values()) > TASKS * 20, "the calls of the tasks were not counted"
