"""A worker on a store that is slow: what others do while it waits for an answer is not forgotten."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from gnomon.core.model import Result
from gnomon.core.runs.outcomes import TaskCompletion
from gnomon.core.runs.states import TaskState
from gnomon.core.runs.workflow import Delivery, Workflow
from gnomon.errors import StoreUnavailable
from gnomon.ports.tasks import AttemptRef
from support.execution import ExecutionHarness
from support.task_steps import workflow

pytestmark = pytest.mark.usefixtures("any_gate")


@pytest.fixture
def harness() -> ExecutionHarness:
    return ExecutionHarness()


@pytest.mark.guarantee("S4", "S5")
async def test_a_task_given_back_during_a_report_is_reported_too(
    harness: ExecutionHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await harness.job(workflow(delivery=Delivery.AT_MOST_ONCE))
    await harness.run(job, "a")
    await harness.run_until_idle()
    harness.runner.end_all()
    run = await harness.run(job, "b")
    await harness.dispatcher.step()
    harness.runner.functions = frozenset()
    report, take = harness.store.attempts.report, harness.store.attempts.take

    async def slow(endings: Sequence[TaskCompletion]) -> frozenset[AttemptRef]:
        reported = await report(list(endings))
        for _ in range(10):
            await asyncio.sleep(0)
        return reported

    async def meanwhile(*words: Any, **named: Any) -> Any:  # noqa: ANN401 - as it is called
        await asyncio.sleep(0)
        return await take(*words, **named)

    with monkeypatch.context() as patched:
        patched.setattr(harness.store.attempts, "report", slow)
        patched.setattr(harness.store.attempts, "take", meanwhile)
        await harness.worker.step()
    await harness.worker.step()

    [task] = await harness.store.history.tasks([run])
    assert [one.result for one in await harness.store.executions.attempts([task.task_id])] == [Result.NEVER_STARTED]
    assert task.state is TaskState.PENDING


@pytest.mark.guarantee("S9", "C4")
async def test_a_taken_task_is_not_started_if_starting_others_took_too_long(
    harness: ExecutionHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await harness.job()
    runs = [await harness.run(job, name) for name in "ab"]
    await harness.worker.step()
    await harness.dispatcher.step()
    read = harness.store.jobs.workflow
    reads = 0

    async def slow(tenant: str, workflow_id: str, version: int | None = None) -> Workflow | None:
        nonlocal reads
        reads += 1
        if reads > 1:
            harness.clock.advance(harness.settings.worker.lease_ms)
        harness.workflow_cache._entries.clear()  # noqa: SLF001 - as with many definitions
        return await read(tenant, workflow_id, version)

    monkeypatch.setattr(harness.store.jobs, "workflow", slow)
    monkeypatch.setattr(harness.workflow_cache, "_keep", lambda _: None)
    harness.workflow_cache._entries.clear()  # noqa: SLF001 - as after a restart
    await harness.worker.step()
    await harness.worker.step()

    assert reads > 1
    assert not harness.runner.started
    assert {one.state for one in await harness.store.history.tasks(runs)} == {TaskState.PENDING}


@pytest.mark.guarantee("C7", "S4")
@pytest.mark.parametrize("delivery", Delivery)
async def test_an_end_during_an_outage_of_the_store_is_no_loss(
    harness: ExecutionHarness, monkeypatch: pytest.MonkeyPatch, delivery: Delivery
) -> None:
    run = await harness.run(await harness.job(workflow(delivery=delivery)))
    await harness.run_until_idle()
    open_attempts, sleep = harness.store.attempts.open_attempts, harness.clock.sleep
    back_at = harness.clock.now() + 2 * harness.settings.worker.lease_ms

    async def away_until_then(**page: Any) -> Any:  # noqa: ANN401 - as it is called
        if harness.clock.now() < back_at:
            raise StoreUnavailable("away")
        return await open_attempts(**page)

    async def meanwhile(seconds: float) -> None:
        await sleep(seconds)
        if seconds > 1:
            # It had to wait for its next try, too.
            await harness.worker.step()

    harness.runner.end_all()
    monkeypatch.setattr(harness.store.attempts, "open_attempts", away_until_then)
    monkeypatch.setattr(harness.clock, "sleep", meanwhile)
    harness.clock.advance(2 * harness.settings.worker.lease_ms - 10)
    await harness.reconciler.step()

    [task] = await harness.store.history.tasks([run])
    assert [one.result for one in await harness.store.executions.attempts([task.task_id])] == [Result.SUCCEEDED]
