"""A task table without the check of transitions, for stores that are broken on purpose."""

from collections.abc import Callable

from gnomon.adapters.memory import MemoryStore
from gnomon.adapters.memory.state import TaskTable
from gnomon.core.model import Task, TaskId
from support.defective_stores import StoreFactory


class UncheckedTaskTable(TaskTable):
    """Writes any state over any other."""

    def __setitem__(self, task_id: TaskId, task: Task) -> None:
        self._put(task)


def unchecked(make: StoreFactory) -> StoreFactory:
    """The same stores without the check of transitions."""

    def make_unchecked(now: Callable[[], int]) -> MemoryStore:
        store = make(now)
        store.state.tasks = UncheckedTaskTable()
        return store

    return make_unchecked
