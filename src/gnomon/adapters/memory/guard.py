"""What this process has seen, on a given clock. No method awaits half-way, so each one is atomic by itself."""

from collections.abc import Callable, Sequence
from itertools import islice

from gnomon.core.leases import checked_key, checked_ttl
from gnomon.ports.coordination import IN_FLIGHT_MS, PROCESSED_MS, Standing

#: Of so many, the oldest are forgotten.
_MOST = 100_000


class MemoryGuard:
    """The port Guard."""

    def __init__(self, now: Callable[[], int], *, most: int = _MOST) -> None:
        self._now = now
        self._most = most
        #: By consumer and message, in the order in which they were last seen.
        self._seen: dict[tuple[str, str], tuple[Standing, int]] = {}

    async def begin(self, consumer: str, message: str, *, ttl_ms: int = IN_FLIGHT_MS) -> Standing:
        """See Guard.begin."""
        name, until_at = (
            (checked_key("consumer", consumer), checked_key("message", message)),
            self._now() + checked_ttl(ttl_ms),
        )
        standing, known_until = self._seen.get(name, (Standing.NEW, 0))
        if known_until > self._now():
            return standing
        self._keep(name, Standing.IN_FLIGHT, until_at)
        return Standing.NEW

    async def processed(self, consumer: str, message: str, *, ttl_ms: int = PROCESSED_MS) -> None:
        """See Guard.processed."""
        name, until_at = (
            (checked_key("consumer", consumer), checked_key("message", message)),
            self._now() + checked_ttl(ttl_ms),
        )
        self._keep(name, Standing.PROCESSED, until_at)

    async def give_up(self, consumer: str, message: str) -> None:
        """See Guard.give_up."""
        name = checked_key("consumer", consumer), checked_key("message", message)
        if self._seen.get(name, (Standing.NEW, 0))[0] is Standing.IN_FLIGHT:
            del self._seen[name]

    def _keep(self, name: tuple[str, str], standing: Standing, until_at: int) -> None:
        self._seen.pop(name, None)
        self._seen[name] = standing, until_at
        if len(self._seen) > self._most:
            for oldest in list(islice(self._seen, len(self._seen) - self._most)):
                del self._seen[oldest]


class MemoryCounters:
    """The port Counters."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._counts: dict[str, tuple[int, int]] = {}

    async def count(self, name: str, *, ttl_ms: int) -> int:
        """See Counters.count."""
        fresh = 0, self._now() + checked_ttl(ttl_ms)
        count, until_at = self._counts.get(checked_key("name", name), fresh)
        if until_at <= self._now():
            count, until_at = fresh
        self._counts[name] = count + 1, until_at
        return count + 1

    async def counted(self, names: Sequence[str]) -> Sequence[int]:
        """See Counters.counted."""
        found = [self._counts.get(checked_key("name", name), (0, 0)) for name in names]
        return [count if until_at > self._now() else 0 for count, until_at in found]

    async def forget(self, names: Sequence[str]) -> None:
        """See Counters.forget."""
        for name in names:
            self._counts.pop(checked_key("name", name), None)
