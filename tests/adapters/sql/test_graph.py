"""Graphs of steps in the store on SQL, where several things end in one transaction."""

from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from contracts.store import NOON
from gnomon.adapters.sql import SqlStore, open_postgres, open_sqlite
from gnomon.core.model import ENGINE, Result, Run, RunStatus, TaskId
from gnomon.core.runs.states import TaskState
from gnomon.core.runs.workflow import Step, Workflow
from gnomon.ports.schedules import JobChangeset
from gnomon.testing.clock import VirtualClock
from support.execution import ExecutionHarness
from support.postgres_server import postgres
from support.sqlite_files import new_sqlite_file


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(NOON)


@pytest.fixture(params=["sqlite", 18], ids=str)
async def store(request: pytest.FixtureRequest, tmp_path: Path, clock: VirtualClock) -> AsyncIterator[SqlStore]:
    if request.param == "sqlite":
        store = await open_sqlite(str(new_sqlite_file(tmp_path / "gnomon.db")), now=clock.now)
        yield store
        await store.close()
        return
    async with postgres(request.param).database() as url:
        store = await open_postgres(url)
        yield store
        await store.close()


@pytest.fixture
def harness(store: SqlStore, clock: VirtualClock) -> ExecutionHarness:
    return ExecutionHarness(store=store, clock=clock)


def step(name: str, *needs: str, **said: Any) -> Step:  # noqa: ANN401 - any field of a step
    return Step(name=name, function=said.pop("function", "reports.make"), depends_on=needs, **said)


async def running(harness: ExecutionHarness, *steps: Step, others: tuple[Workflow, ...] = ()) -> Run:
    """A run of these steps, as far as it comes until somebody has to end something."""
    definition = Workflow(workflow_id="report", version=1, steps=steps)
    assert await harness.store.jobs.apply(JobChangeset(workflows=list(others)), now=NOON, actor="ada", tzdata="")
    run = await harness.run(await harness.job(definition), first_steps=definition.first_steps)
    await harness.run_until_idle()
    return run


async def states(harness: ExecutionHarness, run: Run) -> dict[str, TaskState]:
    return {task.step: task.state for task in await harness.store.history.tasks([run]) if task.parent is None}


async def test_many_items_that_end_together_are_counted_together(harness: ExecutionHarness) -> None:
    run = await running(harness, step("each", foreach=list(range(20)), max_parallel=7), step("after", "each"))
    ended = []
    while harness.runner.started and "after" not in {one.task.step for one in harness.runner.started.values()}:
        ended.append(len(harness.runner.started))
        harness.runner.end_all(output=b"1")
        await harness.run_until_idle()

    assert ended == [7, 7, 6]
    [each] = [task for task in await harness.store.history.tasks([run]) if task.step == "each" and task.parent is None]
    assert (each.state, each.open_items, each.failed_items) == (TaskState.SUCCEEDED, 0, 0)
    assert await harness.store.executions.payload(each.task_id, "output") == b"[" + b",".join([b"1"] * 20) + b"]"


@pytest.mark.req("H-26")
async def test_a_step_all_of_whose_items_are_cancelled_is_over_although_another_step_is_in_hand(
    harness: ExecutionHarness,
) -> None:
    run = await running(
        harness, step("long"), step("wait", function="", delay_ms=1000), step("each", "wait", foreach=[1])
    )
    harness.clock.advance(1000)
    await harness.dispatcher.step()
    await harness.dispatcher.step()
    assert (await states(harness, run))["each"] is TaskState.RUNNING

    await harness.store.runs.cancel(run.run_id, reason="enough", now=harness.clock.now())

    assert (await states(harness, run))["each"] is TaskState.CANCELLED
    harness.runner.end_all(Result.CANCELLED)
    await harness.run_until_idle()
    assert (await harness.now(run)).status is RunStatus.CANCELLED
    assert not (await harness.store.attempts.open_attempts(after=TaskId(""), limit=10)).attempts


async def test_a_run_that_ends_with_a_step_done_for_each_item_gives_all_of_them(harness: ExecutionHarness) -> None:
    inner = Workflow(workflow_id="inner", version=1, steps=(step("each", foreach=[1, 2]),))
    run = await running(harness, step("sub", function="", workflow="inner"), step("after", "sub"), others=(inner,))
    harness.runner.end_all(output=b"7")
    await harness.run_until_idle()

    [sub] = [task for task in await harness.store.history.tasks([run]) if task.step == "sub"]
    assert await harness.store.executions.payload(sub.task_id, "output") == b"[7,7]"


async def test_a_chain_of_runs_that_wait_for_each_other_ends_in_one_transaction(
    harness: ExecutionHarness, store: SqlStore
) -> None:
    names = [f"w{number}" for number in range(5)]
    inner = [
        Workflow(workflow_id=name, version=1, steps=(step("sub", function="", workflow=below),))
        for name, below in pairwise(names)
    ]
    last = Workflow(workflow_id=names[-1], version=1, steps=(step("main"),))
    run = await running(harness, step("sub", function="", workflow="w0"), step("z", "sub"), others=(*inner, last))
    attempts = (await store.attempts.open_attempts(after=TaskId(""), limit=10)).attempts
    assert [one.attempt.worker for one in attempts].count(ENGINE) == 5
    harness.runner.end_all(output=b"7")

    await harness.worker.step()

    assert await states(harness, run) == {"sub": TaskState.SUCCEEDED, "z": TaskState.PENDING}
