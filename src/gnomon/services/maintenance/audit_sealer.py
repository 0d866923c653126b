"""The audit sealer: adds hashes to new entries of the audit trail, which chain them."""

from collections.abc import Callable

from gnomon.ports.audit import AuditTrail
from gnomon.ports.runtime import Clock, Events
from gnomon.services.coordination import Singleton
from gnomon.services.loop import Backoff

#: How many entries are sealed in one transaction.
_BATCH = 500
#: How long to wait for entries; and how long before the next batch while other services are busy: at least, and for
#: every second that the last one took.
_POLL_SECONDS, _REST_SECONDS, _REST_FACTOR = 2.0, 0.25, 20


class AuditSealer:
    """Seals new entries. Several sealers at once do no harm: the store admits one at a time."""

    def __init__(
        self,
        trail: AuditTrail,
        clock: Clock,
        events: Events,
        *,
        lease: Singleton,
        busy: Callable[[], bool] = lambda: True,
    ) -> None:
        """While `busy` says so, other services may have more urgent things to write."""
        self._trail = trail
        self._clock = clock
        self.backoff = Backoff(events, "sealer")
        self._lease, self._busy = lease, busy

    async def step(self) -> float:
        """Seal a batch. Returns how many seconds to wait before the next step."""
        return await self.backoff.attempt(self._step)

    async def _step(self) -> float:
        began = self._clock.elapsed()
        if not await self._lease.ours():
            return self._lease.retry_seconds
        done = await self._trail.seal(limit=_BATCH)
        if done < _BATCH:
            return _POLL_SECONDS
        return max(_REST_SECONDS, _REST_FACTOR * (self._clock.elapsed() - began)) if self._busy() else 0.0
