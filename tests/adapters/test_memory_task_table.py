"""The task table of the memory store: no write gets past the table of transitions."""

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

import gnomon
from gnomon.adapters.memory.state import TaskTable
from gnomon.core.model import RunId, Task, TaskId
from gnomon.core.runs.states import INITIAL, TaskState, WaitReason
from gnomon.errors import IllegalTransition

pytestmark = [pytest.mark.req("R-01"), pytest.mark.guarantee("S6")]

TASK = Task(
    task_id=TaskId("task_1"),
    tenant="default",
    run_id=RunId("run_1"),
    step="main",
    state=TaskState.PENDING,
    wait_reason=WaitReason.READY,
    available_at=0,
    created_at=0,
)


@pytest.mark.parametrize("state", list(TaskState))
def test_a_task_is_added_in_an_initial_state_only(state: TaskState) -> None:
    table = TaskTable()
    if state in INITIAL:
        table.add([replace(TASK, state=state)])
        assert table[TASK.task_id].state is state
    else:
        with pytest.raises(IllegalTransition, match=f"^task_1 cannot be created as {state}$"):
            table.add([replace(TASK, state=state)])
        assert not table


def test_every_way_to_write_is_checked() -> None:
    table = TaskTable()
    table.add([replace(TASK, state=TaskState.CANCELLED)])

    for write in (table.__setitem__, lambda name, task: table.update({name: task}), lambda _, task: table.add([task])):
        with pytest.raises(IllegalTransition, match=r"^task_1 cannot go from CANCELLED to PENDING$"):
            write(TASK.task_id, TASK)
    assert table[TASK.task_id].state is TaskState.CANCELLED


def test_other_fields_of_a_task_that_is_over_can_change() -> None:
    table = TaskTable()
    table.add([replace(TASK, state=TaskState.CANCELLED)])

    table[TASK.task_id] = replace(table[TASK.task_id], note="why")

    assert table[TASK.task_id].note == "why"


def test_tasks_that_are_over_are_not_live() -> None:
    table = TaskTable()
    table.add([TASK, replace(TASK, task_id=TaskId("task_2"))])
    table[TASK.task_id] = replace(TASK, state=TaskState.CANCELLED)

    assert (set(table), set(table.live)) == ({"task_1", "task_2"}, {"task_2"})
    del table[TaskId("task_2")]
    assert (list(table.values()), table.live, len(table)) == ([table[TASK.task_id]], {}, 1)


def test_no_module_of_the_memory_store_goes_past_the_table() -> None:
    past = re.compile(r"\btasks\._|\btasks\.live\[[^]]*\] =")
    modules = (Path(gnomon.__file__).parent / "adapters" / "memory").glob("*.py")

    assert not [path.name for path in modules if past.search(path.read_text())]
