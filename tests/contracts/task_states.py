"""Every store writes task states along the edges of the table of transitions, and along no others."""

from collections.abc import Collection
from itertools import permutations

import pytest
from msgspec.structs import replace

from contracts.store import NOON, minutely
from gnomon.core.model import Overlap, Result, Run, RunId, RunSource, Schedule, Task
from gnomon.core.runs.launch import LaunchRequest, new_requested_run
from gnomon.core.runs.states import ASSIGNED, TRANSITIONS, TaskState
from gnomon.errors import IllegalTransition
from gnomon.ports.store import Store
from support.row_editing import EditRow, WriteState
from support.task_steps import admission, completion_of, take_task

EDGES = {(before, after) for before, exits in TRANSITIONS.items() for after in exits}


@pytest.mark.req("R-01")
@pytest.mark.guarantee("S6")
class TaskStateContract:
    """Tests for any store. `plant` puts a task into any state; `write_state` is the store's own write."""

    async def launch(self, store: Store, *names: str) -> list[Run]:
        """One run with one task for each name."""
        owner = await store.schedules.find("default", "report") or await self.add(store)
        runs = [new_requested_run(RunId(f"run_{name}"), owner, source=RunSource.API, now=NOON) for name in names]
        await store.runs.launch([LaunchRequest(run=run, first_steps=("main",)) for run in runs], now=NOON)
        return runs

    async def add(self, store: Store) -> Schedule:
        owner = minutely(overlap=Overlap.ALLOW)
        await store.schedules.add([owner], actor="ada", tzdata="")
        return owner

    async def planted(self, store: Store, plant: EditRow, *states: TaskState) -> dict[TaskState, Task]:
        """One task in each of the states, each of a run of its own."""
        runs = await self.launch(store, *(f"planted_{state}" for state in states))
        tasks = {}
        for state, run in zip(states, runs, strict=True):
            [task] = await store.history.tasks([run])
            await plant("task", "task_id", task.task_id, "state", state.value)
            tasks[state] = replace(task, state=state)
        return tasks

    async def states(self, store: Store, tasks: Collection[Task]) -> list[TaskState]:
        """The states of the tasks in the store."""
        runs = [await store.executions.find_run(task.run_id) for task in tasks]
        found = {
            task.task_id: task.state for task in await store.history.tasks([run for run in runs if run is not None])
        }
        return [found[task.task_id] for task in tasks]

    async def test_of_all_pairs_of_states_those_of_the_table_are_written_and_no_others(
        self, store: Store, plant: EditRow, write_state: WriteState
    ) -> None:
        [run] = await self.launch(store, "a")
        [task] = await store.history.tasks([run])
        written = set()
        for before, after in permutations(TaskState, 2):
            await plant("task", "task_id", task.task_id, "state", before.value)
            refused: IllegalTransition | None = None
            try:
                await write_state(task.task_id, before, after)
            except IllegalTransition as error:
                refused = error
            [found] = await store.history.tasks([run])
            if refused is None:
                assert found.state is after
                written.add((before, after))
            else:
                assert (refused.task, refused.before, refused.after) == (task.task_id, before, after)
                assert found.state is before

        assert written == {(before, after) for before, after in EDGES if before is not after}

    async def test_an_admission_writes_only_from_pending_and_only_along_the_table(
        self, store: Store, plant: EditRow
    ) -> None:
        others = (await self.planted(store, plant, *set(TaskState) - {TaskState.PENDING})).values()
        for after in TaskState:
            [run] = await self.launch(store, f"to_{after}")
            [task] = await store.history.tasks([run])
            admissions = [admission(one, state=after) for one in (*others, task)]
            if (TaskState.PENDING, after) in EDGES:
                assert set(await store.tasks.admit(admissions, now=NOON)) == {task.task_id}
                assert await self.states(store, [task]) == [after]
            else:
                with pytest.raises(IllegalTransition):
                    await store.tasks.admit(admissions, now=NOON)
                assert await self.states(store, [task]) == [TaskState.PENDING]
        assert await self.states(store, others) == [one.state for one in others]

    @pytest.mark.parametrize("before", sorted(ASSIGNED))
    async def test_a_report_writes_only_along_the_table(self, store: Store, before: TaskState) -> None:
        for after in TaskState:
            [run] = await self.launch(store, f"to_{after}")
            taken = await take_task(store, "w1", run, now=NOON, begin=before is TaskState.RUNNING)
            completion = replace(completion_of(taken, Result.FAILED, now=NOON), state=after)
            if (before, after) in EDGES:
                assert await store.attempts.report([completion]) == {(taken.task.task_id, taken.task.fence)}
            else:
                with pytest.raises(IllegalTransition):
                    await store.attempts.report([completion])
            [task] = await store.history.tasks([run])
            [attempt] = await store.executions.attempts([task.task_id])
            assert task.state is (after if (before, after) in EDGES else before)
            assert (attempt.ended_at is not None) == ((before, after) in EDGES)

    async def test_a_report_on_a_task_that_is_not_assigned_changes_nothing(self, store: Store, plant: EditRow) -> None:
        [run] = await self.launch(store, "a")
        taken = await take_task(store, "w1", run, now=NOON)
        for state in set(TaskState) - ASSIGNED:
            await plant("task", "task_id", taken.task.task_id, "state", state.value)

            assert await store.attempts.report([completion_of(taken, Result.SUCCEEDED, now=NOON)]) == frozenset()
            [task] = await store.history.tasks([run])
            assert task.state is state

    async def test_only_a_scheduled_task_is_taken(self, store: Store, plant: EditRow) -> None:
        tasks = await self.planted(store, plant, *TaskState)

        taken = await store.attempts.take("w1", limit=100, lease_ms=1000, now=NOON)

        assert [one.task.task_id for one in taken] == [tasks[TaskState.SCHEDULED].task_id]
        after = [TaskState.RUNNING if state is TaskState.SCHEDULED else state for state in tasks]
        assert await self.states(store, tasks.values()) == after
