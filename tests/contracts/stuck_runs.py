"""The contract of stores for stuck runs: one suite, inherited by the tests of each adapter.

`plant` writes rows that no service would write; each adapter has its own.
"""

import pytest
from msgspec.structs import replace

from contracts.store import HOUR, MINUTE, NOON, minutely
from gnomon.core.invariants import StuckReason
from gnomon.core.model import Overlap, Result, Run, RunId, RunSource, RunStatus, Schedule
from gnomon.core.runs.admission import AdmissionRequest, FanOut
from gnomon.core.runs.launch import LaunchRequest, new_requested_run, sub_run_id
from gnomon.core.runs.outcomes import Assignment, AttemptOutcome, GiveUpLimits, complete_attempt
from gnomon.core.runs.prepare import prepare_task
from gnomon.core.runs.states import TaskState
from gnomon.core.runs.workflow import Step, Workflow
from gnomon.core.triggers import OnDemand
from gnomon.ports.maintenance import FIRST_OPEN_RUN
from gnomon.ports.runs import ItemQuery
from gnomon.ports.schedules import JobChangeset
from gnomon.ports.store import Store
from support.row_editing import EditRow
from support.task_steps import admission, workflow

LATER = NOON + HOUR
GRAPH = Workflow(
    workflow_id="graph",
    version=1,
    steps=(
        Step(name="first", function="f"),
        Step(name="beside", function="f"),
        Step(name="second", function="f", depends_on=("first",)),
    ),
)
CALLER = Workflow(workflow_id="caller", version=1, steps=(Step(name="sub", workflow="report"),))
MANY = Workflow(workflow_id="many", version=1, steps=(Step(name="each", function="f", foreach=[1]),))


class StuckRunsContract:
    """Tests for any store. `store` is a fresh one."""

    async def graph_job(self, store: Store, graph: Workflow, *, overlap: Overlap = Overlap.ALLOW) -> Schedule:
        made = minutely(graph.workflow_id, trigger=OnDemand(), overlap=overlap)
        said = replace(made.spec, workflow_id=graph.workflow_id, first_steps=graph.first_steps)
        made = replace(made, spec=said, next_fire_at=None)
        others = [] if graph.workflow_id == "report" else [workflow()]
        changeset = JobChangeset(workflows=[graph, *others], added=[made])
        assert await store.jobs.apply(changeset, now=NOON, actor="ada", tzdata="")
        return made

    async def begun(self, store: Store, job: Schedule, name: str = "a", *, now: int = NOON) -> Run:
        run = new_requested_run(RunId(f"run_{name}"), job, source=RunSource.MANUAL, now=now)
        await store.runs.launch([LaunchRequest(run=run, first_steps=job.spec.first_steps)], now=now)
        return run

    async def stuck_runs(self, store: Store, *, limit: int = 100, before_at: int = LATER) -> dict[str, StuckReason]:
        found: dict[str, StuckReason] = {}
        place = FIRST_OPEN_RUN
        while True:
            page = await store.invariants.stuck_runs(before_at=before_at, after=place, limit=limit)
            found.update({str(name): ailment for name, ailment in page.runs.items()})
            if page.after is None:
                return found
            place = page.after

    async def step(self, store: Store, run: Run, name: str) -> FanOut:
        [waiting] = [one for one in await store.tasks.waiting(NOON, limit=10) if one.run.run_id == run.run_id]
        graph = await store.jobs.workflow("default", run.workflow_id)
        assert graph is not None
        assert waiting.task.step == name
        request = AdmissionRequest(waiting=waiting, workflow=graph, step=graph.steps[0], input={})
        made = prepare_task(request, {}, workflow(), now=NOON)
        assert isinstance(made, FanOut)
        return made

    async def status(self, store: Store, run: Run) -> RunStatus:
        found = await store.executions.find_run(run.run_id)
        assert found is not None
        return found.status

    # ------------------------------------------------------------------------------------------

    async def test_a_run_that_makes_progress_is_left_alone(self, store: Store) -> None:
        await self.begun(store, await self.graph_job(store, GRAPH))

        assert await self.stuck_runs(store) == {}
        assert await store.invariants.repair_runs([RunId("run_a")], now=LATER) == []

    @pytest.mark.req("R-07")
    async def test_a_run_whose_tasks_are_all_over_is_over(self, store: Store, plant: EditRow) -> None:
        job = await self.graph_job(store, workflow(), overlap=Overlap.QUEUE)
        run = await self.begun(store, job)
        waits = await self.begun(store, job, "b")
        await plant("task", "run_id", run.run_id, "state", "SUCCEEDED")

        assert await self.stuck_runs(store) == {"run_a": StuckReason.NOT_ENDED}
        assert await store.invariants.repair_runs([run.run_id], now=LATER) == [run.run_id]
        assert await self.status(store, run) is RunStatus.COMPLETED
        # The steps that waited for it continue.
        found = await store.executions.find_run(waits.run_id)
        assert found is not None
        assert not found.queued
        assert await self.stuck_runs(store) == {}
        assert await store.invariants.repair_runs([run.run_id], now=LATER) == []

    @pytest.mark.req("R-07")
    async def test_a_step_whose_task_was_never_made_gets_it(self, store: Store, plant: EditRow) -> None:
        run = await self.begun(store, await self.graph_job(store, GRAPH))
        first = next(task for task in await store.history.tasks([run]) if task.step == "first")
        await plant("task", "task_id", first.task_id, "state", "SUCCEEDED")

        assert await self.stuck_runs(store) == {"run_a": StuckReason.NO_NEXT_TASK}
        assert await store.invariants.repair_runs([run.run_id], now=LATER) == [run.run_id]
        tasks = {task.step: task for task in await store.history.tasks([run])}
        assert (tasks["second"].state, tasks["second"].available_at) == (TaskState.PENDING, LATER)
        assert await self.status(store, run) is RunStatus.PENDING
        assert await self.stuck_runs(store) == {}

    @pytest.mark.req("R-07")
    async def test_a_run_without_any_task_gets_its_first(self, store: Store, plant: EditRow) -> None:
        run = await self.begun(store, await self.graph_job(store, GRAPH))
        await plant("task", "run_id", run.run_id, None, None)

        assert await self.stuck_runs(store) == {"run_a": StuckReason.NO_NEXT_TASK}
        await store.invariants.repair_runs([run.run_id], now=LATER)
        assert {task.step for task in await store.history.tasks([run])} == {"first", "beside"}

    @pytest.mark.req("R-07")
    async def test_a_step_that_waits_for_a_run_that_is_over_ends_with_it(self, store: Store, plant: EditRow) -> None:
        run = await self.begun(store, await self.graph_job(store, CALLER))
        await store.tasks.fan_out([await self.step(store, run, "sub")], now=NOON)
        [task] = await store.history.tasks([run])
        below = sub_run_id(task)
        await plant("task", "run_id", below, "state", "FAILED")
        await plant("run", "run_id", below, "status", "failed")
        await plant("run", "run_id", below, "completed_at", NOON)

        assert await self.stuck_runs(store) == {"run_a": StuckReason.STEP_NOT_ENDED}
        assert await store.invariants.repair_runs([run.run_id], now=LATER) == [run.run_id]
        assert await self.status(store, run) is RunStatus.FAILED

    @pytest.mark.req("R-07")
    async def test_a_step_whose_items_are_all_over_is_over(self, store: Store, plant: EditRow) -> None:
        run = await self.begun(store, await self.graph_job(store, MANY))
        await store.tasks.fan_out([await self.step(store, run, "each")], now=NOON)
        step, item = sorted(await store.history.tasks([run]), key=lambda task: task.task_id)
        await plant("task", "task_id", item.task_id, "state", "SUCCEEDED")
        await plant("task", "task_id", step.task_id, "open_items", 0)

        assert await self.stuck_runs(store) == {"run_a": StuckReason.STEP_NOT_ENDED}
        await store.invariants.repair_runs([run.run_id], now=LATER)
        assert await self.status(store, run) is RunStatus.COMPLETED
        assert await store.executions.payload(step.task_id, "output") == b"[null]"

    async def test_the_items_of_a_run_are_counted_and_read_in_parts(self, store: Store, plant: EditRow) -> None:
        several = replace(MANY, steps=(replace(MANY.steps[0], foreach=list(range(12))),))
        run = await self.begun(store, await self.graph_job(store, several))
        await store.tasks.fan_out([await self.step(store, run, "each")], now=NOON)
        items = {task.item: task for task in await store.history.tasks([run])}
        await plant("task", "task_id", items[11].task_id, "state", "FAILED")

        shown = await store.run_tasks.steps([run.run_id], items=2)
        assert [task.item for task in shown] == [None, 0, 1]
        assert [task.item for task in await store.run_tasks.steps([run.run_id])] == [None]
        counts = await store.run_tasks.item_counts(run.run_id)
        assert {step: dict(states) for step, states in counts.items()} == {
            "each": {TaskState.PENDING: 11, TaskState.FAILED: 1}
        }
        page = await store.run_tasks.items(ItemQuery(run_id=run.run_id, step="each", after=8, limit=2))
        assert [task.item for task in page] == [9, 10]
        failed = ItemQuery(run_id=run.run_id, states=frozenset({TaskState.FAILED}))
        assert list(await store.run_tasks.items(failed)) == [replace(items[11], state=TaskState.FAILED)]
        assert list(await store.run_tasks.items(ItemQuery(run_id=run.run_id, step="other"))) == []

    async def test_a_run_whose_workflow_is_gone_and_that_has_nothing_left_has_failed(
        self, store: Store, plant: EditRow
    ) -> None:
        job = await self.graph_job(store, workflow())
        gone = replace(new_requested_run(RunId("run_a"), job, source=RunSource.MANUAL, now=NOON), workflow_id="gone")
        await store.runs.launch([LaunchRequest(run=gone, first_steps=("main",))], now=NOON)
        assert await self.stuck_runs(store) == {}
        await plant("task", "run_id", "run_a", "state", "SUCCEEDED")

        assert await self.stuck_runs(store) == {"run_a": StuckReason.NO_DEFINITION}
        await store.invariants.repair_runs([gone.run_id], now=LATER)
        found = await store.executions.find_run(gone.run_id)
        assert found is not None
        assert (found.status, found.error) == (RunStatus.FAILED, "its workflow is gone")

    async def test_young_runs_and_those_that_wait_for_their_turn_are_left_alone(
        self, store: Store, plant: EditRow
    ) -> None:
        job = await self.graph_job(store, workflow(), overlap=Overlap.QUEUE)
        for name in ("a", "b"):
            await self.begun(store, job, name)
            await plant("task", "run_id", f"run_{name}", "state", "SUCCEEDED")

        assert await self.stuck_runs(store, before_at=NOON) == {}
        assert await self.stuck_runs(store) == {"run_a": StuckReason.NOT_ENDED}

    async def test_every_run_is_looked_at_though_many_share_a_planned_time(self, store: Store, plant: EditRow) -> None:
        job = await self.graph_job(store, workflow())
        for minute, name in enumerate(("a", "b", "c", "d")):
            await self.begun(store, job, name, now=NOON + (minute // 3) * MINUTE)
        loose = new_requested_run(RunId("run_e"), job, source=RunSource.MANUAL, now=NOON)
        for name in ("e", "f", "g"):
            alone = replace(loose, run_id=RunId(f"run_{name}"), schedule_uid=None, schedule_id=None)
            await store.runs.launch([LaunchRequest(run=alone, first_steps=("main",))], now=NOON)
        for name in "abcdefg":
            await plant("task", "run_id", f"run_{name}", "state", "SUCCEEDED")

        assert set(await self.stuck_runs(store, limit=2)) == {f"run_{name}" for name in "abcdefg"}

    async def test_a_repaired_run_equals_one_that_never_got_stuck(self, store: Store, plant: EditRow) -> None:
        run = await self.begun(store, await self.graph_job(store, GRAPH))
        first = next(task for task in await store.history.tasks([run]) if task.step == "first")
        await plant("task", "task_id", first.task_id, "state", "SUCCEEDED")
        await store.invariants.repair_runs([run.run_id], now=LATER)

        waiting = [one.task for one in await store.tasks.waiting(LATER, limit=10)]
        await store.tasks.admit([admission(task, schedule_uid=run.schedule_uid) for task in waiting], now=LATER)
        for one in await store.attempts.take("w", limit=10, lease_ms=HOUR, now=LATER):
            step = GRAPH.step(one.task.step)
            assert step is not None
            held = Assignment(task=one.task, run=one.run, workflow=GRAPH, step=step, input={})
            done = complete_attempt(held, AttemptOutcome(result=Result.SUCCEEDED), now=LATER, limits=GiveUpLimits())
            assert await store.attempts.report([done])

        assert await self.status(store, run) is RunStatus.COMPLETED
