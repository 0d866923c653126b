"""Deduplication of messages, leases and the locks of jobs in Redis. Every key has a time to live."""

import secrets
from typing import TYPE_CHECKING

from gnomon.adapters.redis.connection import RedisUnavailable, translated_errors
from gnomon.core.leases import LONGEST_MS, checked_key, checked_ttl
from gnomon.core.runs.job_lock import RunLock
from gnomon.ports.coordination import IN_FLIGHT_MS, PROCESSED_MS, DedupState

if TYPE_CHECKING:
    from redis.asyncio import Redis as Client


#: A value of another length than ours is not read: it may be as large as the memory of the server.
_BEGIN = (
    "local size = redis.call('STRLEN', KEYS[1])"
    " if size > 16 then return 'foreign' end"
    " if size > 0 then return redis.call('GET', KEYS[1]) end"
    " redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) return ARGV[3]"
)
_GIVE_UP = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


class RedisDeduplicator:
    """Messages seen by all processes; see Deduplicator."""

    def __init__(self, client: "Client", prefix: str) -> None:
        self._client = client
        self._prefix = prefix
        self._begin = client.register_script(_BEGIN)
        self._give_up = client.register_script(_GIVE_UP)

    async def begin(self, consumer: str, message: str, *, ttl_ms: int = IN_FLIGHT_MS) -> DedupState:
        """See Deduplicator.begin."""
        name, span = self._name(consumer, message), checked_ttl(ttl_ms)
        with translated_errors():
            known = await self._begin(keys=[name], args=[DedupState.IN_FLIGHT.value, span, DedupState.NEW.value])
        try:
            return DedupState(known)
        except ValueError as error:
            raise RedisUnavailable(f"Redis: {name} holds something that is not ours") from error

    async def mark_processed(self, consumer: str, message: str, *, ttl_ms: int = PROCESSED_MS) -> None:
        """See Deduplicator.mark_processed."""
        name, span = self._name(consumer, message), checked_ttl(ttl_ms)
        with translated_errors():
            await self._client.set(name, DedupState.PROCESSED.value, px=span)

    async def give_up(self, consumer: str, message: str) -> None:
        """See Deduplicator.give_up."""
        name = self._name(consumer, message)
        with translated_errors():
            await self._give_up(keys=[name], args=[DedupState.IN_FLIGHT.value])

    def _name(self, consumer: str, message: str) -> str:
        # The length of the consumer's name keeps the keys of different pairs distinct.
        owner = checked_key("consumer", consumer)
        return f"{self._prefix}seen:{len(owner)}:{owner}:{checked_key('message', message)}"


#: A value that begins with the token and a space is held by that token.
_OURS = "local held = redis.call('GET', KEYS[1]) if held and string.sub(held, 1, #ARGV[1]) == ARGV[1] then "
_RENEW = _OURS + "return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0"
_RELEASE = _OURS + "return redis.call('DEL', KEYS[1]) end return 0"


class RedisLeases:
    """Leases as keys that expire."""

    #: Redis may lose all data, so a counter in Redis is not guaranteed to grow.
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
        with translated_errors():
            taken = await self._client.set(name, _mark(token) + value, nx=True, px=span)
        return token if taken else None

    async def renew(self, key: str, token: int, *, ttl_ms: int) -> int | None:
        """See Leases.renew."""
        name, span = self._name(key), checked_ttl(ttl_ms)
        with translated_errors():
            renewed = await self._renew(keys=[name], args=[_mark(token), span])
        return token if renewed else None

    async def release(self, key: str, token: int) -> bool:
        """See Leases.release."""
        name = self._name(key)
        with translated_errors():
            return bool(await self._release(keys=[name], args=[_mark(token)]))

    def _name(self, key: str) -> str:
        return f"{self._prefix}lease:{checked_key('key', key)}"


_WITHDRAW = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


class RedisJobLocks:
    """The locks of jobs as keys that expire, for other programs to see; see PublishedLocks."""

    def __init__(self, client: "Client", prefix: str) -> None:
        self._client = client
        self._prefix = prefix
        self._withdraw = client.register_script(_WITHDRAW)

    async def publish(self, lock: RunLock) -> None:
        """See PublishedLocks.publish."""
        with translated_errors():
            await self._client.set(self._prefix + lock.published_key, lock.body(), px=min(lock.ttl_ms, LONGEST_MS))

    async def withdraw(self, lock: RunLock) -> None:
        """See PublishedLocks.withdraw."""
        with translated_errors():
            await self._withdraw(keys=[self._prefix + lock.published_key], args=[lock.body()])


def _mark(token: int) -> str:
    return f"{token} "
