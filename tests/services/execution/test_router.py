"""From a task that asks for something to the worker that gets it: router, dispatcher, workers, reconciler."""

import asyncio
from typing import Any

import pytest

from gnomon.core.model import Result, Run
from gnomon.core.runs.routing import Placement, Pools
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.core.runs.workflow import Priority, RoutingRequirements, Step, Workflow
from gnomon.errors import StoreUnavailable
from gnomon.ports.tasks import HostLoad, LeaseRenewal
from gnomon.services.execution.worker import Worker
from support.execution import ExecutionHarness, FakeRunner
from support.task_steps import workflow

pytestmark = pytest.mark.req("R-10", "R-11")


def asking(**route: Any) -> Workflow:  # noqa: ANN401 - any field of a route
    """A workflow whose only step asks for something."""
    step = Step(name="main", function="reports.make", route=RoutingRequirements(**route))
    return Workflow(workflow_id="report", version=1, steps=(step,))


@pytest.fixture
def harness() -> ExecutionHarness:
    return ExecutionHarness(flags={"worker.slots": 10})


def another(harness: ExecutionHarness, name: str, *functions: str, **said: object) -> tuple[Worker, FakeRunner]:
    """One more worker, with settings of its own."""
    from gnomon.config.settings import load

    runner = FakeRunner(*functions)
    usual, harness.settings = harness.settings, load(flags={"worker.slots": 10, **said})
    worker = harness.new_worker(name, runner)
    harness.settings = usual
    return worker, runner


async def placed(harness: ExecutionHarness, run: Run) -> Placement:
    [task] = await harness.store.history.tasks([run])
    return (await harness.store.placement.placements([task.task_id]))[task.task_id]


async def note(harness: ExecutionHarness, run: Run) -> str | None:
    [task] = await harness.store.history.tasks([run])
    assert (task.state, task.wait_reason) == (TaskState.PENDING, WaitReason.ROUTE)
    return task.note


# ---- without a table of pools --------------------------------------------------------------------


async def test_a_task_without_requirements_has_no_placement_and_costs_no_query(
    harness: ExecutionHarness,
) -> None:
    await harness.worker.step()
    asked = []
    harness.store.placement.in_flight_counts = lambda: asked.append(1)  # type: ignore[assignment,method-assign,return-value]
    run = await harness.run(await harness.job())

    await harness.dispatcher.step()

    assert (await placed(harness, run), asked) == (Placement(), [])


async def test_a_pool_is_waited_for_and_then_gets_its_tasks(harness: ExecutionHarness) -> None:
    run = await harness.run(await harness.job(asking(pool="gpu")))
    await harness.run_until_idle()
    assert await note(harness, run) == "no_workers: no worker of pool 'gpu' is alive"

    other, runner = another(harness, "w2", **{"worker.pool": "gpu"})
    await other.step()
    harness.clock.advance(2000)
    await harness.run_until_idle()
    assert harness.runner.started == {}
    await other.step()

    assert [one.run.run_id for one in runner.started.values()] == [run.run_id]


async def test_a_worker_is_not_given_what_another_of_its_pool_alone_can_run(harness: ExecutionHarness) -> None:
    other, runner = another(harness, "w2", "other.function")
    await harness.worker.step()
    await other.step()
    run = await harness.run(await harness.job(workflow(function="other.function")))
    await harness.dispatcher.step()

    await harness.worker.step()
    assert (await placed(harness, run)).function == "other.function"
    await other.step()

    [task] = await harness.store.history.tasks([run])
    assert (task.state, task.routings, len(runner.started)) == (TaskState.RUNNING, 0, 1)


async def test_labels_direct_a_task_to_the_worker_that_has_them(harness: ExecutionHarness) -> None:
    other, runner = another(harness, "w2", **{"worker.labels": {"node.zone": "eu"}})
    await harness.worker.step()
    await other.step()
    run = await harness.run(await harness.job(asking(labels={"node.zone": "eu"})))
    await harness.run_until_idle()
    assert (await placed(harness, run)).directed_to == "w2"

    await other.step()

    assert (len(runner.started), len(harness.runner.started)) == (1, 0)


async def test_a_task_placed_on_a_dead_worker_goes_to_another(harness: ExecutionHarness) -> None:
    first, _ = another(harness, "w2", **{"worker.labels": {"node.zone": "eu"}})
    await first.step()
    run = await harness.run(await harness.job(asking(labels={"node.zone": "eu"})))
    await harness.dispatcher.step()
    second, runner = another(harness, "w3", **{"worker.labels": {"node.zone": "eu"}})
    harness.clock.advance(31_000)
    await second.step()

    await harness.reconciler.step()
    await harness.dispatcher.step()
    await second.step()

    assert [one.run.run_id for one in runner.started.values()] == [run.run_id]
    assert "tasks_recalled" in harness.events.names()


class SlowEndingRunner(FakeRunner):
    """Its tasks take their time to end."""

    def __init__(self) -> None:
        super().__init__()
        self.over = asyncio.Event()

    async def close(self, *, drain_ms: int, grace_ms: int) -> None:
        await self.over.wait()
        await super().close(drain_ms=drain_ms, grace_ms=grace_ms)


async def test_a_worker_that_drains_says_so_and_is_given_nothing_more(harness: ExecutionHarness) -> None:
    runner = SlowEndingRunner()
    stopping = harness.new_worker("w2", runner)
    await harness.worker.step()
    await stopping.step()
    draining = asyncio.create_task(stopping.drain())
    while not any(card.draining for card in await harness.store.workers.alive()):  # noqa: ASYNC110 - the store sets no event
        await asyncio.sleep(0)
    run = await harness.run(await harness.job(asking(labels={"preferred_worker_id": "w2"})))

    await harness.run_until_idle()
    runner.over.set()
    await draining

    assert [one.run.run_id for one in harness.runner.started.values()] == [run.run_id]
    assert [card.worker for card in await harness.store.workers.alive()] == ["w1"]


async def test_a_task_that_is_tried_again_is_placed_anew(harness: ExecutionHarness) -> None:
    other, runner = another(harness, "w2", **{"worker.labels": {"node.zone": "eu"}})
    await other.step()
    run = await harness.run(await harness.job(asking(labels={"preferred_worker_id": "w2"})))
    await harness.worker.step()
    await harness.dispatcher.step()
    assert (await placed(harness, run)).directed_to == "w2"
    await other.step()
    runner.end_all(Result.INTERRUPTED)
    await other.step()
    await harness.store.workers.deregister("w2")
    harness.clock.advance(2000)

    await harness.run_until_idle()

    assert [one.run.run_id for one in harness.runner.started.values()] == [run.run_id]


async def test_the_critical_go_first_and_batches_last() -> None:
    harness = ExecutionHarness(flags={"worker.slots": 1})
    await harness.worker.step()
    steps = tuple(
        Step(name=str(priority), function="reports.make", route=RoutingRequirements(priority=priority))
        for priority in (Priority.BATCH, Priority.INTERACTIVE, Priority.CRITICAL)
    )
    job = await harness.job(Workflow(workflow_id="report", version=1, steps=steps))
    await harness.run(job, first_steps=tuple(step.name for step in steps))
    order = []
    await harness.dispatcher.step()
    for _ in range(3):
        await harness.worker.step()
        order += [one.step.name for one in harness.runner.started.values()]
        harness.runner.end_all()

    assert order == ["critical", "interactive", "batch"]


# ---- with one ------------------------------------------------------------------------------------


async def test_with_a_table_of_pools_every_topic_must_be_in_it(harness: ExecutionHarness) -> None:
    harness.dispatcher.router.use_pools(Pools(topics={"other": ("default",)}))
    run = await harness.run(await harness.job())

    await harness.run_until_idle()

    assert await note(harness, run) == "no_pool_mapping: no pool is named for the topic 'reports.make'"


async def test_a_worker_with_enough_to_do_is_given_no_more_and_then_again() -> None:
    harness = ExecutionHarness(flags={"worker.slots": 10})
    harness.dispatcher.router.use_pools(Pools(topics={"reports.make": ("default",)}))
    job = await harness.job()
    runs = [await harness.run(job, f"{number}") for number in range(12)]
    await harness.run_until_idle()
    assert len(harness.runner.started) == 9
    waiting = [task for task in await harness.store.history.tasks(runs) if task.state is TaskState.PENDING]
    assert {task.note for task in waiting} == {"pool_overloaded: w1 of pool 'default' is overloaded"}

    harness.runner.end_all()
    await harness.worker.step()
    harness.clock.advance(2000)
    await harness.run_until_idle()

    assert len(harness.runner.started) == 3


async def test_a_machine_that_is_too_busy_is_given_nothing(harness: ExecutionHarness) -> None:
    harness.dispatcher.router.use_pools(Pools(topics={"reports.make": ("default",)}))
    harness.worker = harness.new_worker("w1", harness.runner, measure_load=lambda: HostLoad(cpu=95))
    run = await harness.run(await harness.job())

    await harness.run_until_idle()

    assert str(await note(harness, run)).startswith("pool_overloaded")


@pytest.mark.req("R-04")
async def test_an_unroutable_task_fails_after_fifty_tries_with_the_last_reason(
    harness: ExecutionHarness,
) -> None:
    harness.dispatcher.router.use_pools(Pools(topics={"other": ("default",)}))
    run = await harness.run(await harness.job())
    for _ in range(50):
        await harness.run_until_idle()
        harness.clock.advance(31_000)

    [task] = await harness.store.history.tasks([run])
    [letter] = await harness.store.dead_letters.page("default")
    assert (task.state, task.routings, letter.reason) == (TaskState.FAILED, 50, "no_pool_mapping")


async def test_tasks_leave_their_pools_once_there_is_no_pools_file(harness: ExecutionHarness) -> None:
    harness.dispatcher.router.use_pools(Pools(topics={"reports.make": ("gpu",)}))
    other, runner = another(harness, "w2", **{"worker.pool": "gpu"})
    await other.step()
    run = await harness.run(await harness.job())
    await harness.run_until_idle()
    await other.step()
    runner.end_all(Result.INTERRUPTED)
    await other.step()

    harness.dispatcher.router.use_pools(None)
    await harness.run_until_idle()

    assert [one.run.run_id for one in harness.runner.started.values()] == [run.run_id]


async def test_tasks_are_spread_over_workers_of_equal_load(harness: ExecutionHarness) -> None:
    labels = {"node.zone": "eu"}
    workers = [another(harness, f"w{number}", **{"worker.labels": labels}) for number in (2, 3, 4)]
    for worker, _ in workers:
        await worker.step()
    job = await harness.job(asking(labels=labels))
    for number in range(9):
        await harness.run(job, f"{number}")
    await harness.dispatcher.step()

    for worker, _ in workers:
        await worker.step()

    assert [len(runner.started) for _, runner in workers] == [3, 3, 3]


# ---- tenants -------------------------------------------------------------------------------------


async def test_a_tenant_has_no_more_on_their_way_than_it_may_and_others_are_not_behind_it() -> None:
    harness = ExecutionHarness(flags={"worker.slots": 10, "routing.tenant_limits": {"default": 2}})
    job, others = await harness.job(), await harness.job(workflow(tenant="acme"), tenant="acme")
    mine = [await harness.run(job, f"{number}") for number in range(5)]
    theirs = await harness.run(others, "theirs")

    await harness.run_until_idle()

    started = {one.run.run_id for one in harness.runner.started.values()}
    assert (len(started & {run.run_id for run in mine}), theirs.run_id in started) == (2, True)
    waiting = [task for task in await harness.store.history.tasks(mine) if task.state is TaskState.PENDING]
    assert {task.note for task in waiting} == {
        "tenant_limit: tenant 'default' has 2 tasks in flight, which is its limit"
    }
    harness.runner.end_all()
    await harness.worker.step()
    harness.clock.advance(2000)
    await harness.run_until_idle()
    assert len(harness.runner.started) == 2


# ---- being cut off -------------------------------------------------------------------------------


@pytest.mark.guarantee("C4")
async def test_a_worker_that_cannot_say_that_it_is_alive_stops_what_it_has(harness: ExecutionHarness) -> None:
    await harness.run(await harness.job())
    await harness.run_until_idle()

    async def away(*_: object, **__: object) -> LeaseRenewal:
        raise StoreUnavailable("away")

    harness.store.workers.register = harness.store.attempts.renew = away  # type: ignore[assignment,method-assign]
    harness.clock.advance(23_000)
    await harness.worker.step()
    assert harness.runner.stopped == []
    harness.clock.advance(2_000)
    await harness.worker.step()
    await harness.worker.step()

    assert [why for _, why in harness.runner.stopped] == [Result.LOST]
    assert harness.events.names().count("lease_given_up") == 1


async def test_a_sole_worker_continues_whatever_the_store_does(harness: ExecutionHarness) -> None:
    harness.worker = harness.new_worker("w1", harness.runner, alone=True)
    await harness.run(await harness.job())
    await harness.run_until_idle()

    async def away(*_: object, **__: object) -> LeaseRenewal:
        raise StoreUnavailable("away")

    harness.store.workers.register = harness.store.attempts.renew = away  # type: ignore[assignment,method-assign]
    harness.clock.advance(60_000)
    await harness.worker.step()

    assert harness.runner.stopped == []


@pytest.mark.guarantee("C4")
async def test_a_worker_that_the_store_keeps_waiting_stops_what_it_has_before_its_lease_is_over(
    harness: ExecutionHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease_ms = harness.settings.worker.lease_ms
    await harness.run(await harness.job())
    await harness.run_until_idle()
    [held] = harness.runner.started
    answer = asyncio.Event()

    async def hangs(*_: object, **__: object) -> None:
        await answer.wait()
        raise StoreUnavailable("away")

    monkeypatch.setattr(harness.store.workers, "register", hangs)
    harness.clock.advance(lease_ms // 3 + 1)
    step = asyncio.create_task(harness.worker.step())
    await asyncio.sleep(0)
    assert 0 < await harness.worker.watch_lease() <= 1
    assert harness.runner.stopped == []

    harness.clock.advance(lease_ms - lease_ms // 3 - 2)
    await harness.worker.watch_lease()
    await harness.worker.watch_lease()

    assert harness.runner.stopped == [(held, Result.LOST)]
    assert harness.events.names().count("lease_given_up") == 1
    answer.set()
    await step
