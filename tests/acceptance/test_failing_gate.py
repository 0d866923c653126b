"""A node on a file whose gate hangs for some jobs: the others run on time, and a stop is a stop."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gnomon.adapters.host import SystemClock
from gnomon.app.node import Node
from gnomon.app.operations import Operations
from gnomon.app.settings import schedule_defaults
from gnomon.config.settings import load
from gnomon.core.jobs.job import read_job
from gnomon.core.model import Run, RunStatus
from gnomon.core.runs.admission import AdmissionRequest, GateDecision, OutputRelease
from gnomon.core.runs.outcomes import Assignment
from gnomon.runners.registry import Functions
from gnomon.testing.clock import Recorder
from support.gates import ALLOWED, LateGate, hang

pytestmark = pytest.mark.timeout(90)


class HangingGate(LateGate):
    """Hangs before the job `stuck` and behind the job `held`; answers late about everything else."""

    async def admit(self, request: AdmissionRequest) -> GateDecision:
        if request.workflow.workflow_id == "stuck":
            await hang()
        await asyncio.sleep(0.001)
        return ALLOWED

    async def release(self, finished: Assignment, output: bytes | None) -> OutputRelease:
        if finished.workflow.workflow_id == "held":
            await hang()
        await asyncio.sleep(0.001)
        return OutputRelease(output=output)


class RunningNode:
    """A node with such a gate, and what operators do with it."""

    def __init__(self, node: Node, office: Operations) -> None:
        self.node, self.office = node, office
        self._stop = asyncio.Event()
        self._running = asyncio.create_task(node.run(self._stop))

    async def apply(self, *definitions: dict[str, Any]) -> None:
        now, defaults = SystemClock().now(), schedule_defaults(self.node.settings)
        await self.office.jobs.apply([read_job(one, defaults, now=now) for one in definitions], actor="ada")

    async def runs(self, job: str) -> list[Run]:
        found = await self.office.store.schedules.find("default", job)
        assert found is not None
        return list(await self.office.store.history.runs(found.uid, before=1 << 62, limit=1000))

    async def until(self, job: str, status: RunStatus, count: int = 1) -> list[Run]:
        async with asyncio.timeout(30):
            while len(found := [one for one in await self.runs(job) if one.status is status]) < count:  # noqa: ASYNC110 - another process could write it
                await asyncio.sleep(0.02)
        return found

    async def note_of(self, run: Run) -> str:
        async with asyncio.timeout(30):
            while not (note := (await self.office.store.history.tasks([run]))[0].note):  # noqa: ASYNC110 - another process could write it
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
async def running(tmp_path: Path, **flags: object) -> AsyncIterator[RunningNode]:
    functions = Functions()
    functions.function("reports.make")(lambda: "made")
    url = f"sqlite:///{tmp_path / 'gnomon.db'}"
    settings = load(flags={"database.url": url, **{f"execution.{key}": value for key, value in flags.items()}})
    node = await Node.open(settings, events=Recorder(), functions=functions, gate=HangingGate())
    try:
        async with Operations.open(settings) as office:
            running = RunningNode(node, office)
            try:
                yield running
            finally:
                await running.stop()
    finally:
        await node.close()


def job(name: str, **said: Any) -> dict[str, Any]:  # noqa: ANN401 - any key of a job
    return {"name": name, "function": "reports.make", "overlap": "allow", **said}


def printed(tmp_path: Path, *arguments: str) -> str:
    """What a command of the operator prints."""
    environment = {**os.environ, "DATABASE_URL": f"sqlite:///{tmp_path / 'gnomon.db'}", "COLUMNS": "300"}
    command = [sys.executable, "-m", "gnomon", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=30)
    return done.stdout


async def test_a_gate_that_hangs_for_one_job_holds_up_no_other_and_no_stop(tmp_path: Path) -> None:
    async with running(tmp_path, gate_timeout="60s") as setup:
        first = {"step": "first", "function": "reports.make"}
        steps = [first, {"step": "last", "function": "reports.make", "depends_on": ["first"]}]
        await setup.apply(
            job("stuck", schedule="* * * * * *"),
            job("good", schedule="* * * * * *"),
            {"name": "graph", "dag": steps, "schedule": "* * * * * *", "overlap": "allow"},
        )
        good = await setup.until("good", RunStatus.COMPLETED, 4)
        graph = await setup.until("graph", RunStatus.COMPLETED, 2)
        stuck = await setup.runs("stuck")

        assert len(stuck) >= 3
        assert {one.status for one in stuck} == {RunStatus.PENDING}
        # Far less than the gate may take, and far more than a busy machine does.
        late = [(one.started_at or 0) - one.planned_at for one in (*good, *graph)]
        assert max(late) < 10_000
        assert await setup.stop() < 10

        assert {one.status for one in await setup.runs("good")} <= {RunStatus.COMPLETED, RunStatus.PENDING}
        assert {one.status for one in await setup.runs("stuck")} == {RunStatus.PENDING}


async def test_operators_see_what_waits_for_the_gate_and_what_passed_it_unchecked(tmp_path: Path) -> None:
    async with running(tmp_path, gate_timeout="300ms") as setup:
        await setup.apply(job("stuck"), job("held"))
        for name in ("stuck", "held"):
            await setup.office.launcher.trigger(name, actor="ada")
        [held] = await setup.until("held", RunStatus.COMPLETED)
        [stuck] = await setup.runs("stuck")
        said = "the gate has not answered within 0.3 s"
        assert await setup.note_of(stuck) == f"gate_failed: {said}"

        why = await asyncio.to_thread(printed, tmp_path, "why", "stuck")
        assert f"It waits at the gate: {said}. It will be asked again" in " ".join(why.split())
        shown = await asyncio.to_thread(printed, tmp_path, "executions", "show", stuck.run_id)
        assert f"gate_failed: {said}" in shown
        logs = await asyncio.to_thread(printed, tmp_path, "executions", "logs", held.run_id)
        assert f"the output was stored unchecked: {said}" in logs


async def test_a_stop_waits_for_the_gate_as_long_as_it_may_take_and_loses_no_ending(tmp_path: Path) -> None:
    async with running(tmp_path, gate_timeout="2s") as setup:
        await setup.apply(job("held"), job("good"))
        for name in ("held", "good"):
            await setup.office.launcher.trigger(name, actor="ada")
        await setup.until("good", RunStatus.COMPLETED)
        await setup.until("held", RunStatus.RUNNING)

        assert await setup.stop() < 10

        [held] = await setup.runs("held")
        assert held.status is RunStatus.COMPLETED
