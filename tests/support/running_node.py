"""A node in this process on a database file, and what operators do with it."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from gnomon.adapters.host import SystemClock
from gnomon.app.node import Node
from gnomon.app.operations import Operations
from gnomon.app.settings import schedule_defaults
from gnomon.config.settings import load
from gnomon.core.jobs.job import read_job
from gnomon.core.model import Run, RunStatus
from gnomon.ports.execution import Gate
from gnomon.runners.registry import Functions
from gnomon.testing.clock import Recorder
from support.command_line import run_command


class RunningNode:
    """A node that runs until it is stopped."""

    def __init__(self, node: Node, operations: Operations, events: Recorder) -> None:
        self.node, self.operations, self.events = node, operations, events
        self._stop = asyncio.Event()
        self._running = asyncio.create_task(node.run(self._stop))

    async def apply(self, *definitions: dict[str, Any]) -> None:
        now, defaults = SystemClock().now(), schedule_defaults(self.node.settings)
        await self.operations.jobs.apply([read_job(one, defaults, now=now) for one in definitions], actor="ada")

    async def runs(self, job: str) -> list[Run]:
        found = await self.operations.store.schedules.find("default", job)
        assert found is not None
        return list(await self.operations.store.history.runs(found.uid, before=1 << 62, limit=1000))

    async def until(self, job: str, status: RunStatus, count: int = 1) -> list[Run]:
        async with asyncio.timeout(30):
            while len(found := [one for one in await self.runs(job) if one.status is status]) < count:  # noqa: ASYNC110 - another process could write it
                await asyncio.sleep(0.02)
        return found

    async def note_of(self, run: Run) -> str:
        async with asyncio.timeout(30):
            while not (note := (await self.operations.store.history.tasks([run]))[0].note):  # noqa: ASYNC110 - another process could write it
                await asyncio.sleep(0.02)
        return note

    async def stop(self) -> float:
        """Stop the node. Returns how many seconds that took."""
        began = time.monotonic()
        self._stop.set()
        async with asyncio.timeout(30):
            await self._running
        return time.monotonic() - began


@asynccontextmanager
async def running_node(tmp_path: Path, *, gate: Gate | None = None, **flags: object) -> AsyncIterator[RunningNode]:
    """A running node with these settings; without `gate` it has the one that they ask for."""
    functions = Functions()
    functions.function("reports.make")(lambda: "made")
    url = f"sqlite:///{tmp_path / 'gnomon.db'}"
    settings = load(flags={"database.url": url, "worker.slots": 300, **flags})
    events = Recorder()
    node = await Node.open(settings, events=events, functions=functions, gate=gate)
    try:
        async with Operations.open(settings) as operations:
            running = RunningNode(node, operations, events)
            try:
                yield running
            finally:
                await running.stop()
    finally:
        await node.close()


def job(name: str, **said: Any) -> dict[str, Any]:  # noqa: ANN401 - any key of a job
    return {"name": name, "function": "reports.make", "overlap": "allow", **said}


def printed(tmp_path: Path, *arguments: str) -> str:
    """The output of a command of the operator."""
    environment = {"DATABASE_URL": f"sqlite:///{tmp_path / 'gnomon.db'}", "COLUMNS": "300"}
    with patch.dict(os.environ, environment):
        done = run_command(*arguments, folder=Path.cwd())
    assert done.returncode == 0, done.stderr
    return done.stdout
