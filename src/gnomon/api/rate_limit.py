"""Limits per caller and on memory: a token bucket for requests, and a budget for the bytes of bodies."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import ceil

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
#: All bodies in memory together may be this many times as large as the largest single body.
_BUDGET_FACTOR = 4


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
            refused = TooMany(f"the limit is {self._rate.per_minute} requests per minute")
            refused.seconds = ceil(wait)
            raise refused


class BodyBudget:
    """Bounds the bytes of bodies that are received and not yet processed, so that they cannot fill the memory."""

    def __init__(self, server: ServerSettings) -> None:
        self._max_bytes = _BUDGET_FACTOR * max(server.max_body, server.max_jobs_body)
        self._reserved_bytes = 0
        #: A parsed jobs file is much larger than its bytes: only one request parses one at a time.
        self.bulk_slot = asyncio.Semaphore(1)

    @contextmanager
    def reserve(self) -> Iterator[Callable[[int], None]]:
        """Yield a function that reserves more bytes; Unavailable beyond the budget. All are released at the end."""
        own = 0

        def more(size: int) -> None:
            nonlocal own
            own += size
            self._reserved_bytes += size
            if self._reserved_bytes > self._max_bytes:
                raise Unavailable("too many large bodies are being received at once")

        try:
            yield more
        finally:
            self._reserved_bytes -= own
