"""A worker on a store that is slow: what others do while it waits for an answer is not forgotten."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from gnomon.core.model import Result
from gnomon.core.runs.outcomes import Ending
from gnomon.core.runs.states import TaskState
from gnomon.core.runs.workflow import Delivery, Workflow
from gnomon.errors import StoreUnavailable
from gnomon.ports.tasks import Held
from support.crew import Crewed
from support.labour import workflow


@pytest.fixture
def crew() -> Crewed:
    return Crewed()


@pytest.mark.guarantee("S4", "S5")
async def test_what_is_given_back_while_something_else_is_being_reported_is_reported_too(
    crew: Crewed, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await crew.job(workflow(delivery=Delivery.AT_MOST_ONCE))
    await crew.run(job, "a")
    await crew.go()
    crew.runner.end_all()
    run = await crew.run(job, "b")
    await crew.dispatcher.step()
    crew.runner.functions = frozenset()
    report, take = crew.store.report, crew.store.take

    async def slow(endings: Sequence[Ending]) -> frozenset[Held]:
        reported = await report(list(endings))
        for _ in range(10):
            await asyncio.sleep(0)
        return reported

    async def meanwhile(*words: Any, **named: Any) -> Any:  # noqa: ANN401 - as it is called
        await asyncio.sleep(0)
        return await take(*words, **named)

    with monkeypatch.context() as patched:
        patched.setattr(crew.store, "report", slow)
        patched.setattr(crew.store, "take", meanwhile)
        await crew.worker.step()
    await crew.worker.step()

    [task] = await crew.store.tasks([run])
    assert [one.result for one in await crew.store.attempts([task.task_id])] == [Result.NEVER_STARTED]
    assert task.state is TaskState.PENDING


@pytest.mark.guarantee("S9", "C4")
async def test_what_was_taken_is_not_begun_if_what_else_was_taken_kept_us_for_too_long(
    crew: Crewed, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await crew.job()
    runs = [await crew.run(job, name) for name in "ab"]
    await crew.worker.step()
    await crew.dispatcher.step()
    read = crew.store.workflow
    reads = 0

    async def slow(tenant: str, workflow_id: str, version: int | None = None) -> Workflow | None:
        nonlocal reads
        reads += 1
        if reads > 1:
            crew.clock.advance(crew.settings.worker.lease_ms)
        crew.shelf._kept.clear()  # noqa: SLF001 - as with many definitions
        return await read(tenant, workflow_id, version)

    monkeypatch.setattr(crew.store, "workflow", slow)
    monkeypatch.setattr(crew.shelf, "_keep", lambda _: None)
    crew.shelf._kept.clear()  # noqa: SLF001 - as after a restart
    await crew.worker.step()
    await crew.worker.step()

    assert reads > 1
    assert not crew.runner.started
    assert {one.state for one in await crew.store.tasks(runs)} == {TaskState.PENDING}


@pytest.mark.guarantee("C7", "S4")
@pytest.mark.parametrize("delivery", Delivery)
async def test_what_ended_while_the_store_was_away_is_no_loss(
    crew: Crewed, monkeypatch: pytest.MonkeyPatch, delivery: Delivery
) -> None:
    run = await crew.run(await crew.job(workflow(delivery=delivery)))
    await crew.go()
    open_attempts, sleep = crew.store.open_attempts, crew.clock.sleep
    back_at = crew.clock.now() + 2 * crew.settings.worker.lease_ms

    async def away_until_then(**page: Any) -> Any:  # noqa: ANN401 - as it is called
        if crew.clock.now() < back_at:
            raise StoreUnavailable("away")
        return await open_attempts(**page)

    async def meanwhile(seconds: float) -> None:
        await sleep(seconds)
        if seconds > 1:
            # It had to wait for its next try, too.
            await crew.worker.step()

    crew.runner.end_all()
    monkeypatch.setattr(crew.store, "open_attempts", away_until_then)
    monkeypatch.setattr(crew.clock, "sleep", meanwhile)
    crew.clock.advance(2 * crew.settings.worker.lease_ms - 10)
    await crew.reconciler.step()

    [task] = await crew.store.tasks([run])
    assert [one.result for one in await crew.store.attempts([task.task_id])] == [Result.SUCCEEDED]
