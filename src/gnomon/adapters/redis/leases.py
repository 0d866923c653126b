"""Leases in Redis: a random token and its owner under each key, which Redis lets go by itself."""

import secrets
from typing import TYPE_CHECKING

from gnomon.adapters.redis.connection import translated
from gnomon.core.leases import checked_key, checked_ttl

if TYPE_CHECKING:
    from redis.asyncio import Redis as Client

#: What begins with the token and a space is ours.
_OURS = "local held = redis.call('GET', KEYS[1]) if held and string.sub(held, 1, #ARGV[1]) == ARGV[1] then "
_RENEW = _OURS + "return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0"
_RELEASE = _OURS + "return redis.call('DEL', KEYS[1]) end return 0"


class RedisLeases:
    """The port Leases."""

    #: Redis may forget everything, so that no number of its own can be relied on to grow.
    ordered = False

    def __init__(self, client: "Client", prefix: str) -> None:
        self._client = client
        self._prefix = prefix
        self._renew = client.register_script(_RENEW)
        self._release = client.register_script(_RELEASE)

    async def acquire(self, key: str, owner: str, *, ttl_ms: int) -> int | None:
        """See Leases.acquire."""
        name, value, span = self._name(key), checked_key("owner", owner), checked_ttl(ttl_ms)
        token = secrets.randbits(63)
        with translated():
            taken = await self._client.set(name, _mark(token) + value, nx=True, px=span)
        return token if taken else None

    async def renew(self, key: str, token: int, *, ttl_ms: int) -> int | None:
        """See Leases.renew."""
        name, span = self._name(key), checked_ttl(ttl_ms)
        with translated():
            renewed = await self._renew(keys=[name], args=[_mark(token), span])
        return token if renewed else None

    async def release(self, key: str, token: int) -> bool:
        """See Leases.release."""
        name = self._name(key)
        with translated():
            return bool(await self._release(keys=[name], args=[_mark(token)]))

    def _name(self, key: str) -> str:
        return f"{self._prefix}lease:{checked_key('key', key)}"


def _mark(token: int) -> str:
    return f"{token} "
