"""How often somebody may ask: a bucket that fills up as time goes by, and from which every request takes a drop."""

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
    """How much is left, and when that was so."""

    drops: float
    #: In seconds of a clock that never goes back.
    elapsed: float


class RateLimit(Struct, frozen=True, kw_only=True):
    """How many requests a minute, and how many at once after a pause."""

    per_minute: int
    burst: int

    def taken(self, bucket: TokenBucket | None, *, elapsed: float) -> tuple[TokenBucket, float]:
        """The bucket after one more request, and for how many seconds it should have waited: 0 if it may pass."""
        per_second = self.per_minute / 60
        before = bucket or TokenBucket(float(self.burst), elapsed)
        drops = min(float(self.burst), before.drops + (elapsed - before.elapsed) * per_second)
        if drops >= 1:
            return TokenBucket(drops - 1, elapsed), 0.0
        return TokenBucket(drops, elapsed), (1 - drops) / per_second


#: Of how many callers it is remembered how often they have asked; those who have not for longest are forgotten.
_MAX_TRACKED_CALLERS = 10_000
#: How many times as much as the largest body may be in memory at once.
_BUDGET_FACTOR = 4


class RateLimiter:
    """Counts the requests of each caller, if there is a limit."""

    def __init__(self, server: ServerSettings, clock: Clock) -> None:
        limit = server.rate_limit
        self._rate = RateLimit(per_minute=limit, burst=server.rate_burst) if limit else None
        self._clock = clock
        self._buckets: OrderedDict[tuple[str, str], TokenBucket] = OrderedDict()

    def admit(self, caller: Caller) -> None:
        """One more request is counted; TooMany if it is one too many."""
        if self._rate is None:
            return
        who = caller.tenant, caller.subject
        bucket, wait = self._rate.taken(self._buckets.pop(who, None), elapsed=self._clock.elapsed())
        self._buckets[who] = bucket
        if len(self._buckets) > _MAX_TRACKED_CALLERS:
            self._buckets.popitem(last=False)
        if wait:
            refused = TooMany(f"nobody may ask more often than {self._rate.per_minute} times a minute")
            refused.seconds = ceil(wait)
            raise refused


class BodyBudget:
    """What has been sent and is not dealt with: bounded, so that many large bodies do not fill the memory together."""

    def __init__(self, server: ServerSettings) -> None:
        self._max_bytes = _BUDGET_FACTOR * max(server.max_body, server.max_jobs_body)
        self._reserved_bytes = 0
        #: A whole file of jobs takes much more room once it is read: one at a time.
        self.bulk_slot = asyncio.Semaphore(1)

    @contextmanager
    def reserve(self) -> Iterator[Callable[[int], None]]:
        """What is told how many more bytes there are; Unavailable if that is too much. All are let go of at the end."""
        own = 0

        def more(size: int) -> None:
            nonlocal own
            own += size
            self._reserved_bytes += size
            if self._reserved_bytes > self._max_bytes:
                raise Unavailable("too much is being sent at once")

        try:
            yield more
        finally:
            self._reserved_bytes -= own
