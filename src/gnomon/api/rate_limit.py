"""Limits per caller and on memory: a token bucket for requests, and shares of the memory for bodies."""

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from math import ceil
from typing import Any

from msgspec import Struct

from gnomon.config.sections import ServerSettings
from gnomon.errors import TooMany, Unavailable
from gnomon.ports.auth import Caller
from gnomon.ports.runtime import Clock


class TokenBucket(Struct, frozen=True):
    """The tokens left in a bucket at a time."""

    tokens: float
    #: In seconds of a monotonic clock.
    elapsed: float


class RateLimit(Struct, frozen=True, kw_only=True):
    """The number of requests per minute, and of requests at once after a pause."""

    per_minute: int
    burst: int

    def taken(self, bucket: TokenBucket | None, *, elapsed: float) -> tuple[TokenBucket, float]:
        """The bucket after one more request, and the seconds until the request is allowed: 0 if it is allowed now."""
        per_second = self.per_minute / 60
        before = bucket or TokenBucket(float(self.burst), elapsed)
        tokens = min(float(self.burst), before.tokens + (elapsed - before.elapsed) * per_second)
        if tokens >= 1:
            return TokenBucket(tokens - 1, elapsed), 0.0
        return TokenBucket(tokens, elapsed), (1 - tokens) / per_second


#: The number of callers that are tracked; the least recently seen one is dropped first.
_MAX_TRACKED_CALLERS = 10_000
#: How many of the largest single bodies may be in memory at once: of one caller, of one tenant, and of all together.
_BODIES_OF_CALLER, _BODIES_OF_TENANT, _BODIES_OF_ALL = 1, 2, 4
#: The first bytes of every body need no share; the limit on connections bounds them. So a small body always gets in.
_SMALL_BODY = 65_536
#: With small limits, every body has at most this part of the largest one for free.
_FREE_PART = 8


class RateLimiter:
    """Limits the rate of requests of each caller, if a limit is configured."""

    def __init__(self, server: ServerSettings, clock: Clock) -> None:
        limit = server.rate_limit
        self._rate = RateLimit(per_minute=limit, burst=server.rate_burst) if limit else None
        self._clock = clock
        self._buckets: OrderedDict[tuple[str, str], TokenBucket] = OrderedDict()

    def admit(self, caller: Caller) -> None:
        """Count a request; TooMany if it exceeds the limit."""
        if self._rate is None:
            return
        key = caller.tenant, caller.subject
        bucket, wait = self._rate.taken(self._buckets.pop(key, None), elapsed=self._clock.elapsed())
        self._buckets[key] = bucket
        if len(self._buckets) > _MAX_TRACKED_CALLERS:
            self._buckets.popitem(last=False)
        if wait:
            raise TooMany(f"the limit is {self._rate.per_minute} requests per minute", seconds=ceil(wait))


class BodyBudget:
    """Bounds the bytes of bodies that are received and not yet processed, so that they cannot fill the memory.

    Callers and tenants have shares: a caller that holds back its bodies exhausts its own share, and no other.
    """

    def __init__(self, server: ServerSettings) -> None:
        self._largest = max(server.max_body, server.max_jobs_body)
        self._free_bytes = min(_SMALL_BODY, self._largest // _FREE_PART)
        self._of_callers = Counter[tuple[str, str]]()
        self._of_tenants = Counter[str]()
        self._of_all = 0

    @contextmanager
    def reserve(self, caller: Caller) -> Iterator[Callable[[int], None]]:
        """Yield a function that reserves more bytes; they are released at the end.

        TooMany beyond the share of the caller or its tenant, Unavailable beyond the budget of all.
        """
        received = reserved = 0

        def more(size: int) -> None:
            nonlocal received, reserved
            received += size
            beyond = max(0, received - self._free_bytes) - reserved
            if beyond:
                self._refuse_beyond_shares(caller, beyond)
                reserved += beyond
                self._add(caller, beyond)

        try:
            yield more
        finally:
            if reserved:
                self._add(caller, -reserved)

    def _refuse_beyond_shares(self, caller: Caller, size: int) -> None:
        if self._of_callers[caller.tenant, caller.subject] + size > _BODIES_OF_CALLER * self._largest:
            raise TooMany("the caller sends too many large bodies at once")
        if self._of_tenants[caller.tenant] + size > _BODIES_OF_TENANT * self._largest:
            raise TooMany("the callers of the tenant send too many large bodies at once")
        if self._of_all + size > _BODIES_OF_ALL * self._largest:
            raise Unavailable("too many large bodies are being received at once")

    def _add(self, caller: Caller, size: int) -> None:
        self._of_all += size
        _count(self._of_tenants, caller.tenant, size)
        _count(self._of_callers, (caller.tenant, caller.subject), size)


def _count(counts: Counter[Any], key: Hashable, size: int) -> None:
    """Add to the count; a count of zero is removed, so that the table holds only what is in use."""
    counts[key] += size
    if not counts[key]:
        del counts[key]
