"""The cache of admitted tasks between a dispatcher and the taker in its process: they are not read again."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from gnomon.core.model import TaskId
from gnomon.core.runs.admission import AdmissionRequest, ReadyTask

_MAX_ENTRIES = 4000


class AdmissionCache(Mapping[TaskId, AdmissionRequest]):
    """Admitted requests by task. It only saves reads: a task that is missing here is read from the store."""

    def __init__(
        self, most: int = _MAX_ENTRIES, *, sole_dispatcher: bool = False, on_low: Callable[[], None] = lambda: None
    ) -> None:
        """With `sole_dispatcher`, all tasks are admitted here. `on_low` is called when most of them were taken."""
        self._most = most
        #: Each request with the number of its admission.
        self._known: dict[TaskId, tuple[int, AdmissionRequest]] = {}
        self._under_way = 0
        self._sole_dispatcher = sole_dispatcher
        self._on_low = on_low
        #: The number of the last admission; and that of the last one when no task was left to take.
        self._admissions, self._emptied_at = 0, -1

    def __getitem__(self, task_id: TaskId) -> AdmissionRequest:
        return self._known[task_id][1]

    def __iter__(self) -> Iterator[TaskId]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    @property
    def full(self) -> bool:
        """Whether the dispatcher is far ahead of the taker."""
        return len(self._known) >= self._most // 2

    def add_pending(self, requests: Iterable[AdmissionRequest]) -> None:
        """Add requests whose admission is being written; `confirm_written` must follow.

        A request with an input of its own is not cached: the input is stored with the task, and here it would outlive a
        write that failed.
        """
        self._under_way += 1
        self._admissions += 1
        for request in requests:
            if request.own_input is None:
                self._known[request.waiting.task.task_id] = self._admissions, request
        while len(self._known) > self._most:
            del self._known[next(iter(self._known))]

    def confirm_written(self, void: Iterable[TaskId] = ()) -> None:
        """Count one pending admission as written, except for the tasks in `void`."""
        self._under_way -= 1
        for task_id in void:
            self._known.pop(task_id, None)

    def admission_number(self, *, along: bool = False) -> int:
        """The number of the last admission, if all admissions are written; -1 otherwise.

        A take that is started along with an admission runs behind it, and so finds it written; but if a second
        admission is pending, the order is not known.
        """
        return self._admissions if self._under_way <= int(along) else -1

    def known_empty(self, admission_number: int) -> bool:
        """Whether there is surely nothing to take."""
        return self._sole_dispatcher and admission_number == self._emptied_at >= 0

    def invalidate(self) -> None:
        """Forget that there was nothing to take."""
        self._emptied_at = -1

    def mark_empty(self, admission_number: int, in_hand: Iterable[ReadyTask] = ()) -> None:
        """Record that a take found all there was: other workers took the entries so far that are not `in_hand`."""
        self._emptied_at = admission_number
        ours = {one.task.task_id for one in in_hand}
        gone = [name for name, (number, _) in self._known.items() if number <= admission_number and name not in ours]
        for task_id in gone:
            self._forget(task_id)

    def taken(self, task_id: TaskId, fence: int) -> AdmissionRequest | None:
        """The request of a task that was taken under this fence, if it is known; it is forgotten."""
        _, request = self._forget(task_id)
        return request if request is not None and request.waiting.task.fence == fence - 1 else None

    def _forget(self, task_id: TaskId) -> tuple[int, AdmissionRequest | None]:
        found = self._known.pop(task_id, (0, None))
        if len(self._known) == self._most // 4:
            self._on_low()
        return found


class NoAdmissionCache(AdmissionCache):
    """The cache of a process without a taker: it keeps nothing, and the dispatcher never waits."""

    @property
    def full(self) -> bool:
        """Never: the workers are in other processes, and may be many."""
        return False

    def add_pending(self, requests: Iterable[AdmissionRequest]) -> None:
        """Keep nothing."""
        del requests

    def confirm_written(self, void: Iterable[TaskId] = ()) -> None:
        """Do nothing."""
        del void
