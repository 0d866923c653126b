"""Where tasks were placed, how much is on its way, and what is within a worker's reach; in memory."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec.structs import replace

from gnomon.adapters.memory.endings import MemoryEndings
from gnomon.core.model import ENGINE, RunId, Task, TaskId
from gnomon.core.runs.admission import Admission
from gnomon.core.runs.routing import Placement, in_vain
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.ports.tasks import OnTheWay, Reach, seats_of

_ANYWHERE = Placement()


class MemoryPlacing(MemoryEndings):
    """The part of the port Work that is about places."""

    def _scheduled(self) -> Iterable[Task]:
        return (task for task in self._tasks.live.values() if task.state is TaskState.SCHEDULED)

    def _place_of(self, task: Task) -> Placement:
        return self._placements.get(task.task_id, _ANYWHERE)

    def _in_reach(self, worker: str, reach: Reach) -> list[Task]:
        """What the worker may take, in turn."""
        found = [task for task in self._scheduled() if _reaches(worker, reach, self._place_of(task))]
        return sorted(found, key=lambda task: (self._place_of(task).rank, task.available_at, task.task_id))

    def _has_room(self, one: Admission) -> bool:
        return one.room is None or self._on_the_way().tenants.get(one.room[0], 0) < one.room[1]

    async def on_the_way(self) -> OnTheWay:
        """See Work.on_the_way."""
        return self._on_the_way()

    def _on_the_way(self) -> OnTheWay:
        held = [one for one in self._attempts.values() if one.ended_at is None and one.worker != ENGINE]
        waiting = [(task.tenant, self._place_of(task)) for task in self._scheduled()]
        tenants = [*(self._tasks[one.task_id].tenant for one in held), *(tenant for tenant, _ in waiting)]
        return OnTheWay(
            in_hand=Counter(one.worker for one in held),
            directed=Counter(at.directed_to for _, at in waiting if at.directed_to is not None),
            scheduled=Counter(at.pool for _, at in waiting if at.directed_to is None),
            tenants=Counter(tenants),
        )

    async def placements(self, tasks: Collection[TaskId]) -> Mapping[TaskId, Placement]:
        """See Work.placements."""
        wanted = set(tasks)
        return {task.task_id: self._place_of(task) for task in self._scheduled() if task.task_id in wanted}

    async def chosen(self) -> Collection[Placement]:
        """See Work.chosen."""
        places = {self._place_of(task) for task in self._scheduled()}
        return {replace(at, rank=0) for at in places if at.directed_to is not None or at.function is not None}

    async def recall(self) -> Sequence[tuple[TaskId, RunId]]:
        """See Work.recall."""
        now = self._now()
        seats = seats_of(card for card, until in self._workers.values() if until > now)
        gone = [task for task in self._scheduled() if in_vain(self._place_of(task), seats)]
        for task in gone:
            del self._placements[task.task_id]
            self._tasks[task.task_id] = replace(task, state=TaskState.PENDING, wait_reason=WaitReason.READY)
        return [(task.task_id, task.run_id) for task in gone]


def _reaches(worker: str, reach: Reach, at: Placement) -> bool:
    if reach.chosen:
        called = at.directed_to is None and at.function is not None and at.function in (reach.functions or ())
        return at.pool == reach.pool and (at.directed_to == worker or called)
    runs = at.function is None or reach.functions is None or at.function in reach.functions
    return at.pool == reach.pool and at.directed_to in (None, worker) and runs
