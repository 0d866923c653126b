"""How often each caller may ask."""

from collections import OrderedDict
from math import ceil

from gnomon.core.rates import Bucket, Rate
from gnomon.errors import TooMany
from gnomon.ports.clock import Clock
from gnomon.ports.identity import Caller
from gnomon.sections import Server

#: Of how many callers it is remembered how often they have asked; those who have not for longest are forgotten.
_MOST = 10_000


class Limiter:
    """Counts the requests of each caller, if there is a limit."""

    def __init__(self, server: Server, clock: Clock) -> None:
        limit = server.rate_limit
        self._rate = Rate(per_minute=limit, burst=server.rate_burst) if limit else None
        self._clock = clock
        self._buckets: OrderedDict[tuple[str, str], Bucket] = OrderedDict()

    def admit(self, caller: Caller) -> None:
        """One more request is counted; TooMany if it is one too many."""
        if self._rate is None:
            return
        who = caller.tenant, caller.subject
        bucket, wait = self._rate.taken(self._buckets.pop(who, None), elapsed=self._clock.elapsed())
        self._buckets[who] = bucket
        if len(self._buckets) > _MOST:
            self._buckets.popitem(last=False)
        if wait:
            refused = TooMany(f"nobody may ask more often than {self._rate.per_minute} times a minute")
            refused.seconds = ceil(wait)
            raise refused
