"""The registration of a worker: what it tells servers about itself, and which tasks it may take."""

from collections.abc import Callable, Iterable

from gnomon.config.sections import WorkerSettings
from gnomon.core.runs.routing import DEFAULT_POOL
from gnomon.ports.tasks import HostLoad, TakeFilter, WorkerInfo


class WorkerRegistration:
    """Builds the WorkerInfo that a worker sends with every heartbeat."""

    def __init__(
        self,
        settings: WorkerSettings,
        worker: str,
        *,
        started_at: int,
        measure_load: Callable[[], HostLoad],
        alone: bool = False,
    ) -> None:
        """With `alone`, no other worker executes, and every task was admitted by the dispatcher in this process."""
        self._settings = settings
        self._worker = worker
        self._started_at = started_at
        self.alone = alone
        self._measure_load = measure_load
        self.reach = TakeFilter(None if settings.pool == DEFAULT_POOL else settings.pool)

    def card(self, functions: Iterable[str], *, in_hand: int, draining: bool) -> WorkerInfo:
        """The worker as it is now. From now on it takes tasks of these functions."""
        settings, known = self._settings, tuple(sorted(functions))
        self.reach = TakeFilter(self.reach.pool, None if self.alone else known)
        return WorkerInfo(
            worker=self._worker,
            functions=known,
            slots=settings.slots,
            pool=settings.pool,
            started_at=self._started_at,
            capabilities=tuple(sorted({word.strip().lower() for word in settings.capabilities})),
            labels=settings.labels,
            in_hand=in_hand,
            load=self._measure_load(),
            draining=draining,
        )
