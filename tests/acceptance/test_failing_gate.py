"""A node on a file whose gate hangs for some jobs: the others run on time, and a stop is a stop."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
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
from gnomon.ports.execution import Gate
from gnomon.runners.registry import Functions
from gnomon.testing.clock import Recorder
from support.gates import ALLOWED, LateGate, hang, hang_on

pytestmark = pytest.mark.timeout(90)


class HangingGate(LateGate):
    """Hangs before the jobs `stuck*` and behind the jobs `held*`; answers late about everything else."""

    def __init__(self, fault: Callable[[], Awaitable[None]] = hang) -> None:
        self._fault = fault

    async def admit(self, request: AdmissionRequest) -> GateDecision:
        if request.workflow.workflow_id.startswith("stuck"):
            await self._fault()
        await asyncio.sleep(0.001)
        return ALLOWED

    async def release(self, finished: Assignment, output: bytes | None) -> OutputRelease:
        if finished.workflow.workflow_id.startswith("held"):
            await self._fault()
        await asyncio.sleep(0.001)
        return OutputRelease(output=output)


class RunningNode:
    """A node with such a gate, and what operators do with it."""

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
async def running(tmp_path: Path, *, gate: Gate | None = None, **flags: object) -> AsyncIterator[RunningNode]:
    functions = Functions()
    functions.function("reports.make")(lambda: "made")
    url = f"sqlite:///{tmp_path / 'gnomon.db'}"
    slots = {"worker.slots": 300}
    settings = load(flags={"database.url": url, **slots, **{f"execution.{key}": value for key, value in flags.items()}})
    events = Recorder()
    node = await Node.open(settings, events=events, functions=functions, gate=gate or HangingGate())
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


@pytest.mark.parametrize(("count", "fault"), [(4, hang_on), (40, hang)], ids=["4-uncancellable", "40-cancellable"])
async def test_a_gate_that_hangs_for_many_jobs_fails_for_no_other_and_holds_up_no_stop(
    tmp_path: Path, count: int, fault: Callable[[], Awaitable[None]]
) -> None:
    async with running(tmp_path, gate=HangingGate(fault), gate_timeout="3s") as setup:
        hung = [f"{kind}{number}" for kind in ("stuck", "held") for number in range(count)]
        await setup.apply(*map(job, [*hung, "good"]))
        for name in hung:
            # More than the calls that all jobs share.
            for _ in range(80 // count):
                await setup.operations.launcher.trigger(name, actor="ada")
        await setup.until("held0", RunStatus.RUNNING)
        for _ in range(3):
            await setup.operations.launcher.trigger("good", actor="ada")

        good = {one.run_id for one in await setup.until("good", RunStatus.COMPLETED, 3)}
        # Two time limits of the gate, and what a busy machine needs.
        assert await setup.stop() < 6 + 10

        reported = [(name, facts["run"]) for name, facts in setup.events.seen if "run" in facts]
        assert not [
            name for name, run in reported if run in good and name in ("output_unchecked", "task_not_scheduled")
        ]
        assert [run for name, run in reported if name == "output_unchecked"]


async def test_operators_see_what_waits_for_the_gate_and_what_passed_it_unchecked(tmp_path: Path) -> None:
    async with running(tmp_path, gate_timeout="300ms") as setup:
        await setup.apply(job("stuck"), job("held"))
        for name in ("stuck", "held"):
            await setup.operations.launcher.trigger(name, actor="ada")
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
            await setup.operations.launcher.trigger(name, actor="ada")
        await setup.until("good", RunStatus.COMPLETED)
        await setup.until("held", RunStatus.RUNNING)

        assert await setup.stop() < 10

        [held] = await setup.runs("held")
        assert held.status is RunStatus.COMPLETED
