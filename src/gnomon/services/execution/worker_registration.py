"""How a worker presents itself to those who hand out work, and what that puts within its reach."""

from collections.abc import Callable, Iterable

from gnomon.config.sections import WorkerSettings
from gnomon.core.runs.routing import DEFAULT_POOL
from gnomon.ports.tasks import HostLoad, TakeFilter, WorkerInfo


class WorkerRegistration:
    """What a worker says of itself, each time that it shows that it is alive."""

    def __init__(self, settings: WorkerSettings, worker: str, *, started_at: int) -> None:
        self._settings = settings
        self._worker = worker
        self._started_at = started_at
        #: Nobody else executes, and nothing can be taken but what the dispatcher beside us lets through.
        self.alone = False
        #: How busy its machine is.
        self.measure: Callable[[], HostLoad] = HostLoad
        self.reach = TakeFilter(None if settings.pool == DEFAULT_POOL else settings.pool)

    def card(self, functions: Iterable[str], *, in_hand: int, draining: bool) -> WorkerInfo:
        """The worker as it is now; from now on, that is within its reach."""
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
            load=self.measure(),
            draining=draining,
        )
