"""From a task that asks for something to the worker that gets it: router, dispatcher, workers, reconciler."""

import asyncio
from typing import Any

import pytest

from gnomon.core.model import Result, Run
from gnomon.core.runs.routing import Placement, Pools
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.core.runs.workflow import Priority, Route, Step, Workflow
from gnomon.errors import StoreUnavailable
from gnomon.ports.tasks import Load, Renewal
from gnomon.services.execution.worker import Worker
from support.crew import Crewed, ToldRunner
from support.labour import workflow

pytestmark = pytest.mark.req("R-10", "R-11")


def asking(**route: Any) -> Workflow:  # noqa: ANN401 - any field of a route
    """A workflow whose only step asks for something."""
    step = Step(name="main", function="reports.make", route=Route(**route))
    return Workflow(workflow_id="report", version=1, steps=(step,))


@pytest.fixture
def crew() -> Crewed:
    return Crewed(flags={"worker.slots": 10})


def another(crew: Crewed, name: str, *functions: str, **said: object) -> tuple[Worker, ToldRunner]:
    """One more worker, with settings of its own."""
    from gnomon.config.settings import load

    runner = ToldRunner(*functions)
    usual, crew.settings = crew.settings, load(flags={"worker.slots": 10, **said})
    worker = crew.another_worker(name, runner)
    crew.settings = usual
    return worker, runner


async def placed(crew: Crewed, run: Run) -> Placement:
    [task] = await crew.store.tasks([run])
    return (await crew.store.placements([task.task_id]))[task.task_id]


async def note(crew: Crewed, run: Run) -> str | None:
    [task] = await crew.store.tasks([run])
    assert (task.state, task.wait_reason) == (TaskState.PENDING, WaitReason.ROUTE)
    return task.note


# ---- without a table of pools --------------------------------------------------------------------


async def test_what_asks_for_nothing_is_placed_nowhere_in_particular_and_costs_no_question(crew: Crewed) -> None:
    await crew.worker.step()
    asked = []
    crew.store.on_the_way = lambda: asked.append(1)  # type: ignore[assignment,method-assign,return-value]
    run = await crew.run(await crew.job())

    await crew.dispatcher.step()

    assert (await placed(crew, run), asked) == (Placement(), [])


async def test_a_pool_is_waited_for_and_then_gets_its_tasks(crew: Crewed) -> None:
    run = await crew.run(await crew.job(asking(pool="gpu")))
    await crew.go()
    assert await note(crew, run) == "no_workers: no worker of pool 'gpu' is alive"

    other, runner = another(crew, "w2", **{"worker.pool": "gpu"})
    await other.step()
    crew.clock.advance(2000)
    await crew.go()
    assert crew.runner.started == {}
    await other.step()

    assert [one.run.run_id for one in runner.started.values()] == [run.run_id]


async def test_a_worker_is_not_given_what_another_of_its_pool_alone_can_run(crew: Crewed) -> None:
    other, runner = another(crew, "w2", "other.function")
    await crew.worker.step()
    await other.step()
    run = await crew.run(await crew.job(workflow(function="other.function")))
    await crew.dispatcher.step()

    await crew.worker.step()
    assert (await placed(crew, run)).function == "other.function"
    await other.step()

    [task] = await crew.store.tasks([run])
    assert (task.state, task.routings, len(runner.started)) == (TaskState.RUNNING, 0, 1)


async def test_labels_direct_a_task_to_the_worker_that_has_them(crew: Crewed) -> None:
    other, runner = another(crew, "w2", **{"worker.labels": {"node.zone": "eu"}})
    await crew.worker.step()
    await other.step()
    run = await crew.run(await crew.job(asking(labels={"node.zone": "eu"})))
    await crew.go()
    assert (await placed(crew, run)).directed_to == "w2"

    await other.step()

    assert (len(runner.started), len(crew.runner.started)) == (1, 0)


async def test_what_waits_for_a_worker_that_has_died_goes_to_another(crew: Crewed) -> None:
    first, _ = another(crew, "w2", **{"worker.labels": {"node.zone": "eu"}})
    await first.step()
    run = await crew.run(await crew.job(asking(labels={"node.zone": "eu"})))
    await crew.dispatcher.step()
    second, runner = another(crew, "w3", **{"worker.labels": {"node.zone": "eu"}})
    crew.clock.advance(31_000)
    await second.step()

    await crew.reconciler.step()
    await crew.dispatcher.step()
    await second.step()

    assert [one.run.run_id for one in runner.started.values()] == [run.run_id]
    assert "tasks_recalled" in crew.events.names()


class Lingering(ToldRunner):
    """What it runs takes its time to end."""

    def __init__(self) -> None:
        super().__init__()
        self.over = asyncio.Event()

    async def close(self, *, drain_ms: int, grace_ms: int) -> None:
        await self.over.wait()
        await super().close(drain_ms=drain_ms, grace_ms=grace_ms)


async def test_a_worker_that_drains_says_so_and_is_given_nothing_more(crew: Crewed) -> None:
    runner = Lingering()
    stopping = crew.another_worker("w2", runner)
    await crew.worker.step()
    await stopping.step()
    draining = asyncio.create_task(stopping.drain())
    while not any(card.draining for card in await crew.store.workers()):  # noqa: ASYNC110 - the store sets no event
        await asyncio.sleep(0)
    run = await crew.run(await crew.job(asking(labels={"preferred_worker_id": "w2"})))

    await crew.go()
    runner.over.set()
    await draining

    assert [one.run.run_id for one in crew.runner.started.values()] == [run.run_id]
    assert [card.worker for card in await crew.store.workers()] == ["w1"]


async def test_a_task_that_is_tried_again_is_placed_anew(crew: Crewed) -> None:
    other, runner = another(crew, "w2", **{"worker.labels": {"node.zone": "eu"}})
    await other.step()
    run = await crew.run(await crew.job(asking(labels={"preferred_worker_id": "w2"})))
    await crew.worker.step()
    await crew.dispatcher.step()
    assert (await placed(crew, run)).directed_to == "w2"
    await other.step()
    runner.end_all(Result.INTERRUPTED)
    await other.step()
    await crew.store.dismiss("w2")
    crew.clock.advance(2000)

    await crew.go()

    assert [one.run.run_id for one in crew.runner.started.values()] == [run.run_id]


async def test_the_critical_go_first_and_batches_last() -> None:
    crew = Crewed(flags={"worker.slots": 1})
    await crew.worker.step()
    steps = tuple(
        Step(name=str(priority), function="reports.make", route=Route(priority=priority))
        for priority in (Priority.BATCH, Priority.INTERACTIVE, Priority.CRITICAL)
    )
    job = await crew.job(Workflow(workflow_id="report", version=1, steps=steps))
    await crew.run(job, first_steps=tuple(step.name for step in steps))
    order = []
    await crew.dispatcher.step()
    for _ in range(3):
        await crew.worker.step()
        order += [one.step.name for one in crew.runner.started.values()]
        crew.runner.end_all()

    assert order == ["critical", "interactive", "batch"]


# ---- with one ------------------------------------------------------------------------------------


async def test_with_a_table_of_pools_every_topic_must_be_in_it(crew: Crewed) -> None:
    crew.dispatcher.router.pools = Pools(topics={"other": ("default",)})
    run = await crew.run(await crew.job())

    await crew.go()

    assert await note(crew, run) == "no_pool_mapping: no pool is named for the topic 'reports.make'"


async def test_a_worker_with_enough_to_do_is_given_no_more_and_then_again() -> None:
    crew = Crewed(flags={"worker.slots": 10})
    crew.dispatcher.router.pools = Pools(topics={"reports.make": ("default",)})
    job = await crew.job()
    runs = [await crew.run(job, f"{number}") for number in range(12)]
    await crew.go()
    assert len(crew.runner.started) == 9
    waiting = [task for task in await crew.store.tasks(runs) if task.state is TaskState.PENDING]
    assert {task.note for task in waiting} == {"pool_overloaded: w1 of pool 'default' has enough to do"}

    crew.runner.end_all()
    await crew.worker.step()
    crew.clock.advance(2000)
    await crew.go()

    assert len(crew.runner.started) == 3


async def test_a_machine_that_is_too_busy_is_given_nothing(crew: Crewed) -> None:
    crew.dispatcher.router.pools = Pools(topics={"reports.make": ("default",)})
    crew.worker.presence.measure = lambda: Load(cpu=95)
    run = await crew.run(await crew.job())

    await crew.go()

    assert str(await note(crew, run)).startswith("pool_overloaded")


@pytest.mark.req("R-04")
async def test_what_can_never_be_placed_has_failed_after_fifty_tries_and_leaves_the_last_reason(crew: Crewed) -> None:
    crew.dispatcher.router.pools = Pools(topics={"other": ("default",)})
    run = await crew.run(await crew.job())
    for _ in range(50):
        await crew.go()
        crew.clock.advance(31_000)

    [task] = await crew.store.tasks([run])
    [letter] = await crew.store.list_dead_letters("default")
    assert (task.state, task.routings, letter.reason) == (TaskState.FAILED, 50, "no_pool_mapping")


async def test_what_was_in_a_pool_before_is_in_none_once_there_is_no_table(crew: Crewed) -> None:
    crew.dispatcher.router.pools = Pools(topics={"reports.make": ("gpu",)})
    other, runner = another(crew, "w2", **{"worker.pool": "gpu"})
    await other.step()
    run = await crew.run(await crew.job())
    await crew.go()
    await other.step()
    runner.end_all(Result.INTERRUPTED)
    await other.step()

    crew.dispatcher.router.pools = None
    await crew.go()

    assert [one.run.run_id for one in crew.runner.started.values()] == [run.run_id]


async def test_tasks_are_spread_over_workers_of_equal_load(crew: Crewed) -> None:
    labels = {"node.zone": "eu"}
    workers = [another(crew, f"w{number}", **{"worker.labels": labels}) for number in (2, 3, 4)]
    for worker, _ in workers:
        await worker.step()
    job = await crew.job(asking(labels=labels))
    for number in range(9):
        await crew.run(job, f"{number}")
    await crew.dispatcher.step()

    for worker, _ in workers:
        await worker.step()

    assert [len(runner.started) for _, runner in workers] == [3, 3, 3]


# ---- tenants -------------------------------------------------------------------------------------


async def test_a_tenant_has_no_more_on_their_way_than_it_may_and_others_are_not_behind_it() -> None:
    crew = Crewed(flags={"worker.slots": 10, "routing.tenant_limits": {"default": 2}})
    job, others = await crew.job(), await crew.job(workflow(tenant="acme"), tenant="acme")
    mine = [await crew.run(job, f"{number}") for number in range(5)]
    theirs = await crew.run(others, "theirs")

    await crew.go()

    started = {one.run.run_id for one in crew.runner.started.values()}
    assert (len(started & {run.run_id for run in mine}), theirs.run_id in started) == (2, True)
    waiting = [task for task in await crew.store.tasks(mine) if task.state is TaskState.PENDING]
    assert {task.note for task in waiting} == {
        "tenant_limit: tenant 'default' has 2 tasks on their way, which is its limit"
    }
    crew.runner.end_all()
    await crew.worker.step()
    crew.clock.advance(2000)
    await crew.go()
    assert len(crew.runner.started) == 2


# ---- being cut off -------------------------------------------------------------------------------


@pytest.mark.guarantee("C4")
async def test_a_worker_that_cannot_say_that_it_is_alive_stops_what_it_has(crew: Crewed) -> None:
    await crew.run(await crew.job())
    await crew.go()

    async def away(*_: object, **__: object) -> Renewal:
        raise StoreUnavailable("away")

    crew.store.enlist = crew.store.renew = away  # type: ignore[assignment,method-assign]
    crew.clock.advance(23_000)
    await crew.worker.step()
    assert crew.runner.stopped == []
    crew.clock.advance(2_000)
    await crew.worker.step()
    await crew.worker.step()

    assert [why for _, why in crew.runner.stopped] == [Result.LOST]
    assert crew.events.names().count("lease_given_up") == 1


async def test_a_worker_that_is_alone_goes_on_whatever_the_store_does(crew: Crewed) -> None:
    crew.worker.presence.alone = True
    await crew.run(await crew.job())
    await crew.go()

    async def away(*_: object, **__: object) -> Renewal:
        raise StoreUnavailable("away")

    crew.store.enlist = crew.store.renew = away  # type: ignore[assignment,method-assign]
    crew.clock.advance(60_000)
    await crew.worker.step()

    assert crew.runner.stopped == []


@pytest.mark.guarantee("C4")
async def test_a_worker_that_the_store_keeps_waiting_stops_what_it_has_before_its_lease_is_over(
    crew: Crewed, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease_ms = crew.settings.worker.lease_ms
    await crew.run(await crew.job())
    await crew.go()
    [held] = crew.runner.started
    answer = asyncio.Event()

    async def hangs(*_: object, **__: object) -> None:
        await answer.wait()
        raise StoreUnavailable("away")

    monkeypatch.setattr(crew.store, "enlist", hangs)
    crew.clock.advance(lease_ms // 3 + 1)
    step = asyncio.create_task(crew.worker.step())
    await asyncio.sleep(0)
    assert 0 < await crew.worker.watch_lease() <= 1
    assert crew.runner.stopped == []

    crew.clock.advance(lease_ms - lease_ms // 3 - 2)
    await crew.worker.watch_lease()
    await crew.worker.watch_lease()

    assert crew.runner.stopped == [(held, Result.LOST)]
    assert crew.events.names().count("lease_given_up") == 1
    answer.set()
    await step
