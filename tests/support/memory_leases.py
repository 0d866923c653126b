"""Leases in memory, on a given clock."""

from collections.abc import Callable

from msgspec import Struct

from gnomon.core.leases import checked_key, checked_ttl


class _Lease(Struct):
    token: int
    owner: str
    until_at: int


class MemoryLeases:
    """Implements Leases. No method awaits, so each one is atomic."""

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
