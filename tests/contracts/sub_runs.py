"""The contract of stores for sub-runs: how many tasks they may have together below one run."""

import pytest
from msgspec.structs import replace

from contracts.store import NOON, minutely
from gnomon.core.model import Overlap, Result, Run, RunId, RunSource
from gnomon.core.runs.admission import AdmissionRequest, FanOut, FanOutResult, ReadyTask
from gnomon.core.runs.launch import LaunchRequest, new_requested_run
from gnomon.core.runs.prepare import prepare_task
from gnomon.core.runs.workflow import Step, Workflow
from gnomon.core.triggers import OnDemand
from gnomon.ports.maintenance import RetentionBatch, RetentionKind
from gnomon.ports.schedules import JobChangeset
from gnomon.ports.store import Store
from support.task_steps import admission, completion_of

#: Two steps, each of which runs `inner`, whose steps run `leaf` or have items.
OUTER = Workflow(
    workflow_id="outer", version=1, steps=tuple(Step(name=name, workflow="inner") for name in ("left", "right"))
)
INNER = Workflow(
    workflow_id="inner",
    version=1,
    steps=(Step(name="sub", workflow="leaf"), Step(name="each", function="f", foreach=[1, 2, 3])),
)
LEAF = Workflow(workflow_id="leaf", version=1, steps=(Step(name="main", function="f"),))
DEFINITIONS = {one.workflow_id: one for one in (OUTER, INNER, LEAF)}


class SubRunContract:
    """Tests for any store."""

    async def launched_graphs(self, store: Store, *names: str) -> list[Run]:
        """Runs of `outer`."""
        job = minutely("outer", trigger=OnDemand(), overlap=Overlap.ALLOW)
        job = replace(job, spec=replace(job.spec, workflow_id="outer", first_steps=OUTER.first_steps))
        job = replace(job, next_fire_at=None)
        changeset = JobChangeset(workflows=list(DEFINITIONS.values()), added=[job])
        assert await store.jobs.apply(changeset, now=NOON, actor="ada", tzdata="")
        runs = [new_requested_run(RunId(f"run_{name}"), job, source=RunSource.MANUAL, now=NOON) for name in names]
        requests = [LaunchRequest(run=run, first_steps=OUTER.first_steps) for run in runs]
        await store.runs.launch(requests, now=NOON)
        return runs

    async def waiting_fan_outs(self, store: Store, root: RunId, *steps: str) -> list[FanOut]:
        """Fan-outs of these steps, of this run or of the runs below it."""
        ready = await store.tasks.waiting(NOON, limit=100)
        return [prepared(one) for one in ready if one.task.step in steps and one.run.root == root]

    async def started_steps(self, store: Store, root: RunId, *steps: str, most: int) -> tuple[int, int]:
        """How many of these steps were started, and how many would have gone over the limit."""
        made = await self.waiting_fan_outs(store, root, *steps)
        done = await store.tasks.fan_out(made, now=NOON, most_sub_run_tasks=most)
        return len(done.started), len(done.over_limit)

    async def test_the_tasks_of_all_sub_runs_below_a_run_count_together(self, store: Store) -> None:
        [top] = await self.launched_graphs(store, "a")

        assert await self.started_steps(store, top.run_id, "left", "right", most=8) == (2, 0)
        below = [one.run for one in await store.tasks.waiting(NOON, limit=100)]
        assert {(one.root, one.depth) for one in below} == {(top.run_id, 1)}
        # Four tasks so far. The items of a step count as tasks, and of the two steps only one has room for them.
        assert await self.started_steps(store, top.run_id, "each", most=8) == (1, 1)
        assert await self.started_steps(store, top.run_id, "sub", most=8) == (1, 1)

    async def test_a_task_over_the_limit_stays_as_it_was_and_nothing_is_counted(self, store: Store) -> None:
        [top] = await self.launched_graphs(store, "a")
        before = await self.waiting_fan_outs(store, top.run_id, "left", "right")

        assert await self.started_steps(store, top.run_id, "left", "right", most=1) == (0, 2)
        assert await self.waiting_fan_outs(store, top.run_id, "left", "right") == before
        assert await self.started_steps(store, top.run_id, "left", "right", most=4) == (2, 0)

    async def test_other_runs_are_counted_apart(self, store: Store) -> None:
        tops = await self.launched_graphs(store, "a", "b")

        for top in tops:
            assert await self.started_steps(store, top.run_id, "left", most=2) == (1, 0)
            assert await self.started_steps(store, top.run_id, "right", most=2) == (0, 1)

    async def test_a_fan_out_that_comes_too_late_is_not_counted(self, store: Store) -> None:
        [top] = await self.launched_graphs(store, "a")
        made = await self.waiting_fan_outs(store, top.run_id, "left", "right")
        left = [one for one in made if one.task_id == made[0].task_id]

        await store.tasks.fan_out(left, now=NOON, most_sub_run_tasks=4)
        assert await store.tasks.fan_out(left, now=NOON, most_sub_run_tasks=4) == FanOutResult(frozenset())
        assert await self.started_steps(store, top.run_id, "left", "right", most=4) == (1, 0)

    async def test_the_own_items_of_the_run_at_the_top_do_not_count(self, store: Store) -> None:
        [top] = await self.launched_graphs(store, "a")
        [left, _] = await self.waiting_fan_outs(store, top.run_id, "left", "right")
        items = replace(left, launch=None, items=(b"1",) * 5, sub_run_tasks=0)

        done = await store.tasks.fan_out([items], now=NOON, most_sub_run_tasks=1)
        assert done == FanOutResult(frozenset({left.task_id}))

    @pytest.mark.guarantee("S19")
    async def test_the_count_goes_with_the_run_at_the_top(self, store: Store) -> None:
        [top] = await self.launched_graphs(store, "a")
        assert await self.started_steps(store, top.run_id, "left", most=2) == (1, 0)
        await store.runs.cancel(top.run_id, reason="enough", now=NOON)
        sub_runs = [one.run_id for one in await store.executions.find_by_prefix("default", "run_", limit=10)]
        batch = RetentionBatch(kind=RetentionKind.RUNS, names=tuple(sub_runs))
        assert await store.retention.remove(batch, limit=100)
        assert await store.executions.find_run(top.run_id) is None

        run = replace(top, created_at=NOON)
        await store.runs.launch([LaunchRequest(run=run, first_steps=OUTER.first_steps)], now=NOON)
        assert await self.started_steps(store, top.run_id, "left", most=2) == (1, 0)

    async def test_a_sub_run_that_ends_still_counts(self, store: Store) -> None:
        [top] = await self.launched_graphs(store, "a")
        assert await self.started_steps(store, top.run_id, "left", "right", most=5) == (2, 0)
        [first, second] = await self.waiting_fan_outs(store, top.run_id, "sub")

        await store.tasks.fan_out([first], now=NOON, most_sub_run_tasks=5)
        await self.finish_leaf(store)
        assert len((await store.tasks.fan_out([second], now=NOON, most_sub_run_tasks=5)).over_limit) == 1

    async def finish_leaf(self, store: Store) -> None:
        """End the task of `leaf` well."""
        [ready] = [one for one in await store.tasks.waiting(NOON, limit=100) if one.run.workflow_id == "leaf"]
        await store.tasks.admit([admission(ready.task)], now=NOON)
        [taken] = await store.attempts.take("w", limit=1, lease_ms=1000, now=NOON)
        await store.attempts.report([completion_of(taken, Result.SUCCEEDED, now=NOON, definition=LEAF)])


def prepared(one: ReadyTask) -> FanOut:
    """The fan-out of the task."""
    graph = DEFINITIONS[one.run.workflow_id]
    step = graph.step(one.task.step)
    assert step is not None
    request = AdmissionRequest(waiting=one, workflow=graph, step=step, input={})
    made = prepare_task(request, {}, DEFINITIONS.get(step.workflow or ""), now=NOON)
    assert isinstance(made, FanOut)
    return made
