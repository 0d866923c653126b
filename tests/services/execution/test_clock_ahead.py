"""A node whose clock was set forward admits no task before its time by the clock of the store."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from contracts.store import HOUR, NOON
from gnomon.adapters.memory import MemoryStore
from gnomon.adapters.sql import open_postgres
from gnomon.core.model import Result, RunStatus
from gnomon.core.runs.states import TaskState
from gnomon.core.runs.workflow import RetryPolicy, Step, Workflow
from gnomon.testing.clock import VirtualClock
from support.execution import ExecutionHarness
from support.postgres_server import postgres
from support.task_steps import workflow

pytestmark = [pytest.mark.guarantee("C10", "S16"), pytest.mark.req("R-16")]

#: A second step, an hour after the first.
LATER = Workflow(
    workflow_id="report",
    version=1,
    steps=(
        Step(name="main", function="reports.make"),
        Step(name="pause", function="", delay_ms=HOUR, depends_on=("main",)),
        Step(name="late", function="reports.make", depends_on=("pause",)),
    ),
)
RETRIED = workflow(retry=RetryPolicy(max_attempts=2, initial_delay_ms=HOUR, max_delay_ms=HOUR, jitter=0))


class Node:
    """The services of a node with a clock of its own."""

    def __init__(self, harness: ExecutionHarness, store_now: Callable[[], Awaitable[int]]) -> None:
        self.harness = harness
        self._store_now = store_now

    async def compare(self) -> None:
        """Set the clock to that of the store."""
        self.harness.clock.shift_wall_clock(await self._store_now() - self.harness.clock.now())


@pytest.fixture(params=["memory", 18], ids=str)
async def node(request: pytest.FixtureRequest) -> AsyncIterator[Node]:
    clock = VirtualClock(NOON)
    if request.param == "memory":
        store_clock = VirtualClock(NOON)
        harness = ExecutionHarness(store=MemoryStore(store_clock.now), clock=clock)
        yield Node(harness, harness.store.now)
        return
    async with postgres(request.param).database() as url:
        store = await open_postgres(url)
        made = Node(ExecutionHarness(store=store, clock=clock), store.now)
        await made.compare()
        yield made
        await store.close()


async def test_a_delay_of_an_hour_does_not_end_when_the_clock_of_the_node_is_an_hour_ahead(node: Node) -> None:
    harness = node.harness
    run = await harness.run(await harness.job(LATER))
    await harness.run_until_idle()
    harness.runner.end_all()
    await harness.run_until_idle()

    harness.clock.shift_wall_clock(HOUR + 1000)
    waits = [await harness.dispatcher.step() for _ in range(3)]
    await node.compare()
    await harness.run_until_idle()

    tasks = {task.step: task.state for task in await harness.store.history.tasks([run])}
    assert tasks == {"main": TaskState.SUCCEEDED, "pause": TaskState.PENDING}
    assert all(0 < wait <= 0.05 for wait in waits)


async def test_a_retry_waits_for_its_time_by_the_clock_of_the_store(node: Node) -> None:
    harness = node.harness
    run = await harness.run(await harness.job(RETRIED))
    await harness.run_until_idle()
    harness.runner.end_all(Result.FAILED, error="no")
    await harness.run_until_idle()

    harness.clock.shift_wall_clock(2 * HOUR)
    await harness.dispatcher.step()
    await harness.worker.step()
    await node.compare()
    await harness.run_until_idle()

    [task] = await harness.store.history.tasks([run])
    assert (task.state, harness.runner.started) == (TaskState.PENDING, {})


async def test_nothing_is_admitted_while_the_clock_is_ahead_and_everything_once_it_is_right(node: Node) -> None:
    harness = node.harness
    harness.share_process()
    run = await harness.run(await harness.job())
    harness.clock.shift_wall_clock(HOUR)
    await harness.dispatcher.step()
    before = dict(harness.runner.started)
    await node.compare()

    await harness.run_until_idle()
    harness.runner.end_all()
    await harness.run_until_idle()

    assert before == {}
    assert (await harness.now(run)).status is RunStatus.COMPLETED
