"""Graphs of steps on PostgreSQL, whose steps and items end on several nodes at the same time."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from random import Random
from typing import Any

import pytest
import sqlalchemy as sa
from msgspec.structs import replace
from sqlalchemy.util import await_only

from contracts.store import NOON, minutely
from gnomon.adapters.sql import SqlStore, open_postgres
from gnomon.adapters.sql import tasks as tasks_module
from gnomon.adapters.sql.fan_out import fan_out
from gnomon.core.model import Overlap, Result, RunId, RunSource, RunStatus, Schedule, TaskId
from gnomon.core.runs.admission import AdmissionRequest, FanOut, FanOutResult, ReadyTask
from gnomon.core.runs.launch import CancelOutcome, LaunchRequest, new_requested_run
from gnomon.core.runs.outcomes import Assignment, AttemptOutcome, GiveUpLimits, TaskCompletion, complete_attempt
from gnomon.core.runs.prepare import prepare_task
from gnomon.core.runs.workflow import Step, Workflow
from gnomon.core.triggers import OnDemand
from gnomon.ports.runs import RunQuery
from gnomon.ports.schedules import JobChangeset
from gnomon.testing.clock import VirtualClock
from support.execution import ExecutionHarness
from support.postgres_server import postgres
from support.task_steps import LEASE, admission


def step(name: str, *needs: str, **said: Any) -> Step:  # noqa: ANN401 - any field of a step
    return Step(name=name, function=said.pop("function", "reports.make"), depends_on=needs, **said)


FORK = Workflow(workflow_id="fork", version=1, steps=(step("left"), step("right"), step("after", "left", "right")))
EACH = Workflow(workflow_id="each", version=1, steps=(step("each", foreach=[1, 2]), step("after", "each")))
LEAF = Workflow(workflow_id="leaf", version=1, steps=(step("main"),))
ALL = Workflow(
    workflow_id="all",
    version=1,
    steps=(
        *(step("first"), step("each", "first", foreach=[1, 2, 3, 4], max_parallel=2)),
        step("subs", "first", function="", workflow="leaf", foreach=[1, 2]),
        step("last", "each", "subs"),
    ),
)


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with postgres(18).database() as url:
        yield url


@pytest.fixture
async def stores(url: str) -> AsyncIterator[tuple[SqlStore, SqlStore]]:
    """Two nodes on one database."""
    one, other = await open_postgres(url), await open_postgres(url)
    yield one, other
    await asyncio.gather(one.close(), other.close())


def launch_of(workflow: Workflow, name: str = "a", schedule: Schedule | None = None) -> LaunchRequest:
    """A run, without a schedule that whoever ends it could hold."""
    run = new_requested_run(RunId(f"run_{name}"), schedule or minutely(), source=RunSource.API, now=NOON)
    if schedule is None:
        run = replace(run, schedule_uid=None, schedule_id=None)
    return LaunchRequest(run=replace(run, workflow_id=workflow.workflow_id), first_steps=workflow.first_steps)


async def in_hand(store: SqlStore) -> Sequence[ReadyTask]:
    """Everything that waits, taken."""
    ready = await store.tasks.waiting(NOON, limit=100)
    await store.tasks.admit([admission(one.task) for one in ready], now=NOON)
    return await store.attempts.take("w1", limit=100, lease_ms=LEASE, now=NOON)


def done(one: ReadyTask, workflow: Workflow) -> TaskCompletion:
    found = workflow.step(one.task.step)
    assert found is not None
    had = Assignment(task=one.task, run=one.run, workflow=workflow, step=found, input={})
    return complete_attempt(had, AttemptOutcome(result=Result.SUCCEEDED, output=b"1"), now=NOON, limits=GiveUpLimits())


async def at_once(url: str, asked: Sequence[Awaitable[Any]]) -> None:
    """All of them wait for the same run before any of them goes on."""
    engine = (await open_postgres(url)).transactions

    def hold(conn: sa.Connection) -> list[asyncio.Task[Any]]:
        conn.exec_driver_sql("SELECT run_id FROM run FOR UPDATE")
        tasks = [asyncio.ensure_future(one) for one in asked]
        await_only(blocked(url, len(asked)))
        return tasks

    await asyncio.gather(*await engine.write(hold))
    await engine.close()


async def blocked(url: str, count: int) -> None:
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    async with asyncio.timeout(30):
        while (await postgres(18).run(waiting, url=url))[0][0] < count:  # noqa: ASYNC110 - the server tells nobody
            await asyncio.sleep(0.01)


async def test_of_two_steps_that_end_at_once_on_two_nodes_one_sees_that_it_was_the_last(
    url: str, stores: tuple[SqlStore, SqlStore]
) -> None:
    wanted = launch_of(FORK)
    await stores[0].runs.launch([wanted], now=NOON)
    taken = await in_hand(stores[0])
    assert len(taken) == 2

    await at_once(url, [store.attempts.report([done(one, FORK)]) for store, one in zip(stores, taken, strict=True)])

    tasks = await stores[0].history.tasks([wanted.run])
    assert [(task.step, task.state) for task in tasks] == [
        ("after", "PENDING"),
        ("left", "SUCCEEDED"),
        ("right", "SUCCEEDED"),
    ]


async def test_of_two_items_that_end_at_once_on_two_nodes_one_sees_that_it_was_the_last(
    url: str, stores: tuple[SqlStore, SqlStore]
) -> None:
    wanted = launch_of(EACH)
    await stores[0].runs.launch([wanted], now=NOON)
    [each] = await stores[0].tasks.waiting(NOON, limit=10)
    fan_out = FanOut(
        task_id=each.task.task_id,
        run_id=each.run.run_id,
        schedule_uid=None,
        fence=0,
        graph=EACH,
        items=(b"1", b"2"),
    )
    assert (await stores[0].tasks.fan_out([fan_out], now=NOON)).started
    taken = await in_hand(stores[0])

    await at_once(url, [store.attempts.report([done(one, EACH)]) for store, one in zip(stores, taken, strict=True)])

    tasks = {task.task_id: task for task in await stores[0].history.tasks([wanted.run])}
    assert (tasks[each.task.task_id].state, tasks[each.task.task_id].open_items) == ("SUCCEEDED", 0)
    assert [task.state for task in tasks.values() if task.step == "after"] == ["PENDING"]


PAIR = Workflow(
    workflow_id="pair",
    version=1,
    steps=(step("left", function="", workflow="leaf"), step("right", function="", workflow="leaf")),
)


@pytest.mark.req("H-22")
async def test_two_nodes_together_start_no_more_tasks_of_sub_runs_than_allowed(
    url: str, stores: tuple[SqlStore, SqlStore]
) -> None:
    wanted = launch_of(PAIR)
    await stores[0].runs.launch([wanted], now=NOON)
    waiting = await stores[0].tasks.waiting(NOON, limit=10)
    results = list[FanOutResult]()

    async def start(store: SqlStore, one: ReadyTask) -> None:
        results.append(await store.tasks.fan_out([fan_out_of_pair(one)], now=NOON, most_sub_run_tasks=1))

    await at_once(url, [start(store, one) for store, one in zip(stores, waiting, strict=True)])

    assert sorted((len(one.started), len(one.over_limit)) for one in results) == [(0, 1), (1, 0)]


def fan_out_of_pair(one: ReadyTask) -> FanOut:
    found = PAIR.step(one.task.step)
    assert found is not None
    made = prepare_task(AdmissionRequest(waiting=one, workflow=PAIR, step=found, input={}), {}, LEAF, now=NOON)
    assert isinstance(made, FanOut)
    return made


LINE = Workflow(workflow_id="line", version=1, steps=(step("main"), step("after", "main")))
WAITS = Workflow(workflow_id="waits", version=1, steps=(step("main", function="", workflow="leaf"), step("z", "main")))


def goes_on(conn: sa.Connection, one: ReadyTask) -> None:
    """The next step may begin."""
    assert tasks_module.report(conn, [done(one, LINE)])


def fans_out(conn: sa.Connection, one: ReadyTask) -> None:
    """A run that the step waits for may begin."""
    request = AdmissionRequest(waiting=one, workflow=WAITS, step=WAITS.steps[0], input={})
    made = prepare_task(request, {}, LEAF, now=NOON)
    assert isinstance(made, FanOut)
    assert fan_out(conn, [made], NOON).started


@pytest.mark.req("H-26")
@pytest.mark.parametrize(("definition", "happens"), [(LINE, goes_on), (WAITS, fans_out)], ids=["step", "run"])
async def test_a_step_that_starts_while_its_run_is_cancelled_is_cancelled_too(
    url: str,
    stores: tuple[SqlStore, SqlStore],
    definition: Workflow,
    happens: Callable[[sa.Connection, ReadyTask], None],
) -> None:
    await stores[0].jobs.apply(JobChangeset(workflows=[LEAF, LINE, WAITS]), now=NOON, actor="ada", tzdata="")
    wanted = launch_of(definition)
    await stores[0].runs.launch([wanted], now=NOON)
    [one] = await (in_hand(stores[0]) if definition is LINE else stores[0].tasks.waiting(NOON, limit=10))

    def meanwhile(conn: sa.Connection) -> asyncio.Task[Any]:
        happens(conn, one)
        cancelling = asyncio.ensure_future(stores[1].runs.cancel(wanted.run.run_id, reason="no", now=NOON))
        await_only(blocked(url, 1))
        return cancelling

    assert await (await stores[0].transactions.write(meanwhile)) is CancelOutcome.CANCELLED
    runs = await stores[0].executions.list_runs(RunQuery())
    assert {run.status for run in runs} == {RunStatus.CANCELLED}
    assert await stores[0].tasks.waiting(NOON, limit=10) == []


@pytest.mark.parametrize("seed", range(3))
async def test_graphs_that_two_nodes_work_on_while_some_are_cancelled_all_come_to_an_end(
    stores: tuple[SqlStore, SqlStore], seed: int
) -> None:
    rng, clock = Random(seed), VirtualClock(NOON)
    harnesses = [ExecutionHarness(store=store, clock=clock) for store in stores]
    harnesses[1].worker = harnesses[1].new_worker("w2", harnesses[1].runner)
    job = replace(minutely(trigger=OnDemand(), overlap=Overlap.ALLOW), next_fire_at=None)
    wanted = JobChangeset(workflows=[LEAF, ALL], added=[job])
    assert await stores[0].jobs.apply(wanted, now=NOON, actor="ada", tzdata="")
    launches = [launch_of(ALL, f"{number}", job) for number in range(8)]
    await stores[0].runs.launch(launches, now=NOON)

    for _ in range(40):
        name = rng.choice(launches).run.run_id
        cancelling = [stores[0].runs.cancel(name, reason="no", now=NOON)] if rng.random() < 0.3 else []
        await asyncio.gather(*(harness.run_until_idle() for harness in harnesses), *cancelling)
        for harness in harnesses:
            harness.runner.end_all(output=b"1")

    ended = [await harnesses[0].now(one.run) for one in launches]
    assert {one.status for one in ended} <= {RunStatus.COMPLETED, RunStatus.CANCELLED}
    found = await stores[0].schedules.find("default", job.schedule_id)
    assert found is not None
    assert (found.active_runs, found.queued_runs) == (0, 0)
    assert not (await stores[0].attempts.open_attempts(after=TaskId(""), limit=10)).attempts
