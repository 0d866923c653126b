"""The messages that this process has seen, on a given clock. No method awaits, so each one is atomic."""

from collections.abc import Callable
from itertools import islice

from gnomon.core.leases import checked_key, checked_ttl
from gnomon.ports.coordination import IN_FLIGHT_MS, PROCESSED_MS, DedupState

#: Above this number the oldest messages are forgotten.
_MOST = 100_000


class MemoryDeduplicator:
    """Implements Deduplicator for one process."""

    def __init__(self, now: Callable[[], int], *, most: int = _MOST) -> None:
        self._now = now
        self._most = most
        #: By consumer and message, in the order in which they were last seen: state, and until when it is known.
        self._seen: dict[tuple[str, str], tuple[DedupState, int]] = {}

    async def begin(self, consumer: str, message: str, *, ttl_ms: int = IN_FLIGHT_MS) -> DedupState:
        """See Deduplicator.begin."""
        name, until_at = (
            (checked_key("consumer", consumer), checked_key("message", message)),
            self._now() + checked_ttl(ttl_ms),
        )
        standing, known_until = self._seen.get(name, (DedupState.NEW, 0))
        if known_until > self._now():
            return standing
        self._keep(name, DedupState.IN_FLIGHT, until_at)
        return DedupState.NEW

    async def mark_processed(self, consumer: str, message: str, *, ttl_ms: int = PROCESSED_MS) -> None:
        """See Deduplicator.mark_processed."""
        name, until_at = (
            (checked_key("consumer", consumer), checked_key("message", message)),
            self._now() + checked_ttl(ttl_ms),
        )
        self._keep(name, DedupState.PROCESSED, until_at)

    async def give_up(self, consumer: str, message: str) -> None:
        """See Deduplicator.give_up."""
        name = checked_key("consumer", consumer), checked_key("message", message)
        if self._seen.get(name, (DedupState.NEW, 0))[0] is DedupState.IN_FLIGHT:
            del self._seen[name]

    def _keep(self, name: tuple[str, str], standing: DedupState, until_at: int) -> None:
        self._seen.pop(name, None)
        self._seen[name] = standing, until_at
        if len(self._seen) > self._most:
            for oldest in list(islice(self._seen, len(self._seen) - self._most)):
                del self._seen[oldest]
