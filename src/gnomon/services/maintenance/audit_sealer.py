"""The sealer: chains the entries of the audit trail, behind those who write them."""

from collections.abc import Callable

from gnomon.errors import Unavailable
from gnomon.ports.audit import AuditTrail
from gnomon.ports.runtime import Clock, Events
from gnomon.services.coordination import SingletonLease
from gnomon.services.loop import Backoff

#: How many entries are sealed in one transaction.
_BATCH = 500
#: How long to wait for entries; and how long before the next batch while others have more urgent things to write, at
#: least and for every second that the last one took.
_POLL_SECONDS, _REST_SECONDS, _REST_FACTOR = 2.0, 0.25, 20


class AuditSealer:
    """Seals what is not sealed. Several at once do no harm: the store lets one at a time."""

    def __init__(self, trail: AuditTrail, clock: Clock, events: Events) -> None:
        self._trail = trail
        self._clock = clock
        self.backoff = Backoff(events, "sealer")
        #: Where one of several nodes is enough.
        self.singleton_lease: SingletonLease | None = None
        #: Whether others may have more urgent things to write.
        self.busy: Callable[[], bool] = lambda: True

    async def step(self) -> float:
        """Seal a batch. Returns how many seconds to wait before the next step."""
        began = self._clock.elapsed()
        try:
            if self.singleton_lease is not None and not await self.singleton_lease.ours():
                self.backoff.worked()
                return self.singleton_lease.retry_seconds
            done = await self._trail.seal_audit(limit=_BATCH)
        except Unavailable as error:
            return self.backoff.failed(error)
        self.backoff.worked()
        if done < _BATCH:
            return _POLL_SECONDS
        return max(_REST_SECONDS, _REST_FACTOR * (self._clock.elapsed() - began)) if self.busy() else 0.0
