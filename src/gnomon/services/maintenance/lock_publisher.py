"""The lock publisher: shows the locks of jobs in NATS or Redis, where other programs can see them.

The active run itself is the lock, and no decision depends on what is published: a failure here costs a line in the log.
"""

from gnomon.core import component_names
from gnomon.core.runs.job_lock import RunLock, job_lock
from gnomon.errors import Unavailable
from gnomon.ports.coordination import PublishedLocks
from gnomon.ports.runs import Executions
from gnomon.ports.runtime import Clock, Events
from gnomon.services.coordination import FallbackService, Singleton
from gnomon.services.execution.workflow_cache import WorkflowCache
from gnomon.services.loop import Backoff

#: How often active runs are looked at, and how much longer than such a look the publisher waits for the next.
_LOOK_SECONDS, _PAUSE_RATIO = 1.0, 20
#: A lock is written again after this part of its time to live, and soon after the lock service may have lost its data.
_RENEW_FRACTION, _RENEW_SECONDS = 1 / 3, 30.0
#: How many active runs are read in one look.
_MOST_RUNS = 10_000


class LockPublisher:
    """Publishes the locks that runs hold, renews them, and withdraws them when the runs are over.

    If this process dies, they expire after their time to live, and the next one to publish renews those that are held.
    """

    def __init__(
        self,
        executions: Executions,
        workflow_cache: WorkflowCache,
        locks: PublishedLocks,
        clock: Clock,
        events: Events,
        *,
        lease: Singleton,
        default_timeout_ms: int,
    ) -> None:
        self._executions = executions
        self._workflow_cache = workflow_cache
        self._locks = locks
        self._clock = clock
        self._lease = lease
        self._default_timeout_ms = default_timeout_ms
        #: The locks that were published here, each with the time after which it is written again.
        self._published: dict[RunLock, float] = {}
        self._lock_service = FallbackService(component_names.PUBLISHED_LOCKS, clock, events)
        self.backoff = Backoff(events, component_names.LOCK_PUBLISHER)

    async def step(self) -> float:
        """Publish the locks as they are now. Returns how many seconds to wait before the next step."""
        began = self._clock.elapsed()
        try:
            if not await self._lease.ours():
                self._published.clear()
                return self._lease.retry_seconds
            held = await self._held_locks()
        except Unavailable as error:
            return self.backoff.failed(error)
        self.backoff.worked()
        took = self._clock.elapsed() - began
        await self._lock_service.ask(lambda: self._show(held), _give_up)
        return max(_LOOK_SECONDS, _PAUSE_RATIO * took)

    async def _held_locks(self) -> dict[str, RunLock]:
        """The lock of each job, by key. Of several active runs the oldest one holds it."""
        runs = await self._executions.excluding_runs(limit=_MOST_RUNS)
        await self._workflow_cache.preload(runs)
        held: dict[str, RunLock] = {}
        for run in runs:
            workflow = await self._workflow_cache.for_run(run)
            lock = job_lock(run, workflow, default_timeout_ms=self._default_timeout_ms)
            if lock is not None:
                held.setdefault(lock.published_key, lock)
        return held

    async def _show(self, held: dict[str, RunLock]) -> None:
        for lock in [one for one in self._published if held.get(one.published_key) != one]:
            await self._locks.withdraw(lock)
            del self._published[lock]
        for lock in held.values():
            now = self._clock.elapsed()
            if now >= self._published.get(lock, float("-inf")):
                await self._locks.publish(lock)
                self._published[lock] = now + min(lock.ttl_ms / 1000 * _RENEW_FRACTION, _RENEW_SECONDS)


async def _give_up() -> None:
    """Do nothing: the next step tries again."""
