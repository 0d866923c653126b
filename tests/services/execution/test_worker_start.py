"""A worker begins much at a time: others have a turn in between, and whatever they do then, nothing begins wrongly."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from gnomon.core.model import Result, Schedule
from gnomon.core.runs.admission import ReadyTask
from gnomon.core.runs.outcomes import Assignment, TaskCompletion
from gnomon.core.runs.states import TaskState
from gnomon.ports.tasks import AttemptRef
from support.execution import ExecutionHarness, FakeRunner

pytestmark = pytest.mark.usefixtures("any_gate")

MANY = 250


class InterruptingRunner(FakeRunner):
    """When the first of them have begun, somebody else has a turn."""

    def __init__(self) -> None:
        super().__init__()
        self.then: Callable[[], Awaitable[object]] | None = None
        self.begun: list[AttemptRef] = []

    def start(self, assignments: Sequence[Assignment]) -> None:
        super().start(assignments)
        self.begun += [(one.task.task_id, one.task.fence) for one in assignments]
        if self.then is not None:
            self._turn = asyncio.ensure_future(self.then())
            self.then = None


class LoadedWorker(ExecutionHarness):
    """Much waits for a worker that has room for all of it."""

    def __init__(self, slots: int = MANY) -> None:
        super().__init__(flags={"worker.slots": slots, "execution.batch": 2 * MANY})
        self.runner = self.interrupting_runner = InterruptingRunner()
        self.worker = self.new_worker("w1", self.interrupting_runner)

    async def wait_for_assignments(self, job: Schedule, count: int = MANY) -> None:
        await self.worker.step()
        for number in range(count):
            await self.run(job, f"{number:03}")
        await self.dispatcher.step()

    async def states(self) -> dict[TaskState, int]:
        """How many tasks are in each state."""
        runs = [await self.store.executions.find_run(f"run_{number:03}") for number in range(MANY)]  # type: ignore[arg-type]
        found = [task.state for task in await self.store.history.tasks([run for run in runs if run is not None])]
        return {state: found.count(state) for state in set(found)}


@pytest.fixture
async def busy() -> LoadedWorker:
    busy = LoadedWorker()
    await busy.wait_for_assignments(await busy.job())
    return busy


async def test_others_have_a_turn_before_all_is_begun(busy: LoadedWorker) -> None:
    seen: list[int] = []

    async def look() -> None:
        seen.append(len(busy.interrupting_runner.started))

    busy.interrupting_runner.then = look
    await busy.worker.step()

    assert 0 < seen[0] < len(busy.interrupting_runner.started) == MANY


@pytest.mark.guarantee("C4", "S9")
@pytest.mark.parametrize(("before", "between"), [(0, 90), (30, 60)], ids=["since taken", "since heard of"])
async def test_a_task_not_started_before_the_lease_may_expire_never_starts(
    busy: LoadedWorker, before: int, between: int
) -> None:
    percent = busy.settings.worker.lease_ms // 100
    busy.clock.advance(before * percent)

    async def stand_still() -> None:
        busy.clock.advance(between * percent)
        await busy.worker.watch_lease()

    busy.interrupting_runner.then = stand_still
    await busy.worker.step()
    assert busy.interrupting_runner.stopped == [(held, Result.LOST) for held in busy.interrupting_runner.begun]
    assert not busy.interrupting_runner.started
    await busy.worker.step()

    # Nobody was lost: what never began is given back, and costs no attempt.
    assert await busy.states() == {TaskState.PENDING: MANY}
    attempts = await busy.store.executions.attempts([held for held, _ in busy.interrupting_runner.begun])
    assert {one.result for one in attempts} == {Result.LOST}


@pytest.mark.guarantee("S26")
async def test_a_task_not_started_before_a_worker_stops_never_starts(busy: LoadedWorker) -> None:
    step = asyncio.create_task(busy.worker.step())

    async def stop() -> None:
        step.cancel()

    busy.interrupting_runner.then = stop
    with pytest.raises(asyncio.CancelledError):
        await step
    await busy.worker.drain()

    assert 0 < len(busy.interrupting_runner.begun) < MANY
    assert await busy.states() == {TaskState.PENDING: MANY}
    assert busy.worker.in_hand == 0


async def test_a_task_taken_in_between_needs_a_slot_of_its_own() -> None:
    busy = LoadedWorker(slots=MANY + 10)
    job = await busy.job()
    await busy.wait_for_assignments(job)
    for number in range(50):
        await busy.run(job, f"late_{number}")
    await busy.dispatcher.step()
    taken: list[int] = []

    async def take() -> None:
        await busy.worker.take_with_admission()
        taken.append(busy.interrupting_runner.occupied)

    busy.interrupting_runner.then = take
    await busy.worker.step()
    while not await busy.worker.step():
        pass

    assert taken
    assert len(busy.interrupting_runner.started) == MANY + 10


async def test_a_run_that_is_cancelled_in_between_is_stopped_when_its_worker_looks(busy: LoadedWorker) -> None:
    async def cancel() -> None:
        [last] = [run for run in [await busy.store.executions.find_run("run_249")] if run is not None]  # type: ignore[arg-type]
        await busy.store.runs.cancel(last.run_id, reason="enough", now=busy.clock.now())
        busy.worker.check_soon()

    busy.interrupting_runner.then = cancel
    await busy.worker.step()
    await busy.worker.step()

    assert [why for _, why in busy.interrupting_runner.stopped] == [Result.CANCELLED]


async def test_a_failed_start_during_a_report_is_reported_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = ExecutionHarness()
    job = await harness.job()
    await harness.run(job, "a")
    await harness.run_until_idle()
    harness.runner.end_all()
    waits = await harness.run(job, "b")
    await harness.dispatcher.step()
    report, take = harness.store.attempts.report, harness.store.attempts.take

    async def slowly(endings: Sequence[TaskCompletion]) -> frozenset[AttemptRef]:
        said = list(endings)
        for _ in range(10):
            await asyncio.sleep(0)
        return await report(said)

    async def meanwhile(*words: Any, **named: Any) -> Sequence[ReadyTask]:  # noqa: ANN401 - as it is called
        await asyncio.sleep(0)
        return await take(*words, **named)

    monkeypatch.setattr(harness.store.attempts, "report", slowly)
    monkeypatch.setattr(harness.store.attempts, "take", meanwhile)
    harness.runner.functions = frozenset()
    await harness.worker.step()
    await harness.worker.step()

    [task] = await harness.store.history.tasks([waits])
    assert task.state is TaskState.PENDING
    assert "late_result" not in harness.events.names()
