"""A node on a file whose gate hangs for some jobs: the others run on time, and a stop is a stop."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gnomon.core.model import RunStatus
from gnomon.core.runs.admission import AdmissionRequest, GateDecision, OutputRelease
from gnomon.core.runs.outcomes import Assignment
from gnomon.ports.execution import Gate
from support.gates import ALLOWED, LateGate, hang, hang_on
from support.running_node import RunningNode, job, printed, running_node

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


@asynccontextmanager
async def running(tmp_path: Path, *, gate: Gate | None = None, **flags: object) -> AsyncIterator[RunningNode]:
    said = {f"execution.{key}": value for key, value in flags.items()}
    async with running_node(tmp_path, gate=gate or HangingGate(), **said) as node:
        yield node


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
