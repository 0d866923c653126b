"""What was let through the gate in this process and waits for a worker: read once, it need not be read again."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from gnomon.core.model import TaskId
from gnomon.core.runs.admission import AdmissionRequest, ReadyTask

_MAX_ENTRIES = 4000


class AdmissionCache(Mapping[TaskId, AdmissionRequest]):
    """Between a dispatcher and the worker beside it. Nothing rests on it: what it does not know is read."""

    def __init__(
        self, most: int = _MAX_ENTRIES, *, sole_dispatcher: bool = False, on_low: Callable[[], None] = lambda: None
    ) -> None:
        """With `sole_dispatcher`, tasks are admitted nowhere but here. `on_low` is called when most were taken."""
        self._most = most
        #: Each with the number of the admission that it came with.
        self._known: dict[TaskId, tuple[int, AdmissionRequest]] = {}
        self._under_way = 0
        self._sole_dispatcher = sole_dispatcher
        self._on_low = on_low
        #: How often something was let through, or is just being so; and how often, when nothing was left to take.
        self._admissions, self._emptied_at = 0, -1

    def __getitem__(self, task_id: TaskId) -> AdmissionRequest:
        return self._known[task_id][1]

    def __iter__(self) -> Iterator[TaskId]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    @property
    def full(self) -> bool:
        """Whether whoever lets tasks through is far ahead of whoever takes them."""
        return len(self._known) >= self._most // 2

    def add_pending(self, requests: Iterable[AdmissionRequest]) -> None:
        """These are being let through: someone writes it down now, and says so when that is done.

        What was worked out for a task alone is kept with it, and read from there: here it would outlive a write that
        came to nothing.
        """
        self._under_way += 1
        self._admissions += 1
        for request in requests:
            if request.own_input is None:
                self._known[request.waiting.task.task_id] = self._admissions, request
        while len(self._known) > self._most:
            del self._known[next(iter(self._known))]

    def confirm_written(self, void: Iterable[TaskId] = ()) -> None:
        """What was expected is written down, but for these."""
        self._under_way -= 1
        for task_id in void:
            self._known.pop(task_id, None)

    def admission_number(self, *, along: bool = False) -> int:
        """What was let through until now can be taken now; -1 if some of it is still being written down.

        What is asked for along with an admission is carried out behind it, and so finds it written; but nobody knows
        whether it is behind another one, too.
        """
        return self._admissions if self._under_way <= int(along) else -1

    def known_empty(self, admission_number: int) -> bool:
        """Whether it is known that there is nothing to take."""
        return self._sole_dispatcher and admission_number == self._emptied_at >= 0

    def invalidate(self) -> None:
        """Nothing is known of what there is to take."""
        self._emptied_at = -1

    def mark_empty(self, admission_number: int, in_hand: Iterable[ReadyTask] = ()) -> None:
        """Beside these there was nothing to take at that moment: what else is here of until then, others have taken."""
        self._emptied_at = admission_number
        ours = {one.task.task_id for one in in_hand}
        gone = [name for name, (number, _) in self._known.items() if number <= admission_number and name not in ours]
        for task_id in gone:
            self._forget(task_id)

    def taken(self, task_id: TaskId, fence: int) -> AdmissionRequest | None:
        """What is known of a task that was taken under this fence."""
        _, request = self._forget(task_id)
        return request if request is not None and request.waiting.task.fence == fence - 1 else None

    def _forget(self, task_id: TaskId) -> tuple[int, AdmissionRequest | None]:
        found = self._known.pop(task_id, (0, None))
        if len(self._known) == self._most // 4:
            self._on_low()
        return found


class NoAdmissionCache(AdmissionCache):
    """Where no worker is beside the dispatcher: nothing is kept, and nobody is waited for."""

    @property
    def full(self) -> bool:
        """Never: those who take are elsewhere, and may be many."""
        return False

    def add_pending(self, requests: Iterable[AdmissionRequest]) -> None:
        """Nobody would ask for them."""
        del requests

    def confirm_written(self, void: Iterable[TaskId] = ()) -> None:
        """Nothing was expected."""
        del void
