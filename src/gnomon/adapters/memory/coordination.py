"""What this process has seen, on a given clock. No method awaits half-way, so each one is atomic by itself."""

import asyncio
from collections.abc import Callable, Sequence
from itertools import islice

from msgspec import Struct

from gnomon.core.leases import checked_key, checked_ttl
from gnomon.ports.coordination import IN_FLIGHT_MS, PROCESSED_MS, DedupState, HintCallback, HintTopic

#: Of so many, the oldest are forgotten.
_MOST = 100_000


class MemoryDeduplicator:
    """The port Guard."""

    def __init__(self, now: Callable[[], int], *, most: int = _MOST) -> None:
        self._now = now
        self._most = most
        #: By consumer and message, in the order in which they were last seen.
        self._seen: dict[tuple[str, str], tuple[DedupState, int]] = {}

    async def begin(self, consumer: str, message: str, *, ttl_ms: int = IN_FLIGHT_MS) -> DedupState:
        """See Guard.begin."""
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
        """See Guard.processed."""
        name, until_at = (
            (checked_key("consumer", consumer), checked_key("message", message)),
            self._now() + checked_ttl(ttl_ms),
        )
        self._keep(name, DedupState.PROCESSED, until_at)

    async def give_up(self, consumer: str, message: str) -> None:
        """See Guard.give_up."""
        name = checked_key("consumer", consumer), checked_key("message", message)
        if self._seen.get(name, (DedupState.NEW, 0))[0] is DedupState.IN_FLIGHT:
            del self._seen[name]

    def _keep(self, name: tuple[str, str], standing: DedupState, until_at: int) -> None:
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


class HintChannel:
    """Where those who share it hear each other."""

    def __init__(self) -> None:
        self.listeners: dict[MemoryHints, HintCallback] = {}


class MemoryHints:
    """The port Hints."""

    def __init__(self, board: HintChannel) -> None:
        self._board = board
        self._closed = False

    def tell(self, topic: HintTopic) -> None:
        """See Hints.tell."""
        if self._closed:
            return
        loop = asyncio.get_running_loop()
        for other, heard in self._board.listeners.items():
            if other is not self:
                loop.call_soon(heard, topic)

    async def listen(self, heard: HintCallback) -> None:
        """See Hints.listen."""
        self._board.listeners[self] = heard
        for topic in HintTopic:
            heard(topic)

    async def close(self) -> None:
        """See Hints.close."""
        self._closed = True
        self._board.listeners.pop(self, None)


class _Lease(Struct):
    token: int
    owner: str
    until_at: int


class MemoryLeases:
    """The port Leases."""

    ordered = True

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._leases: dict[str, _Lease] = {}
        self._last = 0

    async def acquire(self, key: str, owner: str, *, ttl_ms: int) -> int | None:
        """See Leases.acquire."""
        name, holder, until_at = checked_key("key", key), checked_key("owner", owner), self._now() + checked_ttl(ttl_ms)
        if self._held(name) is not None:
            return None
        self._last += 1
        self._leases[name] = _Lease(self._last, holder, until_at)
        return self._last

    async def renew(self, key: str, token: int, *, ttl_ms: int) -> int | None:
        """See Leases.renew."""
        until_at = self._now() + checked_ttl(ttl_ms)
        lease = self._held(checked_key("key", key))
        if lease is None or lease.token != token:
            return None
        lease.until_at = until_at
        return token

    async def release(self, key: str, token: int) -> bool:
        """See Leases.release."""
        lease = self._held(checked_key("key", key))
        if lease is None or lease.token != token:
            return False
        del self._leases[key]
        return True

    def _held(self, key: str) -> _Lease | None:
        lease = self._leases.get(key)
        return lease if lease is not None and lease.until_at > self._now() else None
