"""A task table without the check of transitions, for stores that are broken on purpose."""

from collections.abc import Callable

from gnomon.adapters.memory import MemoryStore
from gnomon.adapters.memory.completion import TaskTable
from gnomon.core.model import Task, TaskId


class UncheckedTaskTable(TaskTable):
    """Writes any state over any other."""

    def __setitem__(self, task_id: TaskId, task: Task) -> None:
        self._put(task)


class UncheckedMemoryStore(MemoryStore):
    """A memory store whose subclasses may break the table of transitions."""

    def __init__(self, now: Callable[[], int]) -> None:
        super().__init__(now)
        self._tasks = UncheckedTaskTable()
