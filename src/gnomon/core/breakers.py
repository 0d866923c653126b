"""Circuit breakers: whether requests to a service that keeps failing may be sent, decided from their last outcomes.

A breaker is CLOSED while requests succeed. A number of failures in a row opens it. While it is OPEN no request is sent.
That time counts from the failure that opened it: neither later failures nor later readers extend it. Afterwards it is
HALF_OPEN: a few requests at a time are sent as probes. A failed probe opens the breaker again, and a number of
successful ones closes it.

While a breaker is not closed, only the outcomes of its probes count. The outcome of a request that was sent before the
breaker opened says nothing about the service as it is now.

Everything here is a pure function of the breaker, its limits and the time, so that the breaker can be kept wherever its
users share it: a row of the store, a key in Redis, or a variable of one process.
"""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

#: A probe without an outcome frees its slot after this time.
_PROBE_MS = 60_000


class BreakerState(StrEnum):
    """The state of a breaker at a moment."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class BreakerLimits(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When a breaker opens and closes."""

    #: The number of failures in a row that open it.
    failures: int = 3
    #: How long it stays open.
    open_ms: int = 30_000
    #: How many probes may be under way at once.
    probes: int = 3
    #: The number of successful probes that close it.
    successes: int = 2
    #: How long a probe occupies its slot if its outcome is never recorded.
    probe_ms: int = _PROBE_MS


#: A probe of a task occupies its slot until the task has ended, however long that takes.
_TASK_PROBE_MS = 366 * 86_400_000


class StepBreaker(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The breaker that a step names, and its definition of it."""

    name: str
    limits: BreakerLimits = BreakerLimits(failures=5, open_ms=60_000, probes=1, successes=1, probe_ms=_TASK_PROBE_MS)


class Breaker(Struct, frozen=True, kw_only=True):
    """The memory of a breaker. A new one is closed."""

    #: The number of failures since the last success.
    failures: int = 0
    #: The end of the time for which it is open; None while it is closed.
    open_until: int | None = None
    #: The number of successful probes since it was open.
    successes: int = 0
    #: The probes under way: by request, until when each occupies its slot.
    probes: Mapping[str, int] = {}

    def state(self, now: int) -> BreakerState:
        """Its state at that moment."""
        if self.open_until is None:
            return BreakerState.CLOSED
        return BreakerState.OPEN if now < self.open_until else BreakerState.HALF_OPEN


#: A breaker without failures.
CLOSED_BREAKER = Breaker()


class BreakerPermission(Struct, frozen=True):
    """The answer to a request."""

    #: The breaker after the request.
    breaker: Breaker
    #: When to ask again; None if the request may be sent.
    ask_again_at: int | None = None

    @property
    def granted(self) -> bool:
        """Whether the request may be sent."""
        return self.ask_again_at is None


def request_permission(breaker: Breaker, limits: BreakerLimits, request: str, *, now: int) -> BreakerPermission:
    """Whether the request may be sent now. A probe that asks again keeps its slot."""
    if breaker.open_until is None:
        return BreakerPermission(breaker)
    if now < breaker.open_until:
        return BreakerPermission(breaker, breaker.open_until)
    under_way = {name: until for name, until in breaker.probes.items() if until > now or name == request}
    if request not in under_way and len(under_way) >= limits.probes:
        return BreakerPermission(breaker, min(under_way.values()))
    under_way[request] = now + limits.probe_ms
    return BreakerPermission(replace(breaker, probes=under_way))


def record_success(breaker: Breaker, limits: BreakerLimits, request: str) -> Breaker:
    """The breaker after the success of a request."""
    if breaker.open_until is None:
        return CLOSED_BREAKER if breaker.failures else breaker
    if request not in breaker.probes:
        return breaker
    if breaker.successes + 1 >= limits.successes:
        return CLOSED_BREAKER
    return replace(release(breaker, request), successes=breaker.successes + 1)


def record_failure(breaker: Breaker, limits: BreakerLimits, request: str, *, now: int) -> Breaker:
    """The breaker after the failure of a request at `now`."""
    if breaker.open_until is not None and request not in breaker.probes:
        return breaker
    failures = breaker.failures + 1
    if breaker.open_until is None and failures < limits.failures:
        return replace(breaker, failures=failures)
    return Breaker(failures=failures, open_until=now + limits.open_ms)


def release(breaker: Breaker, request: str) -> Breaker:
    """The breaker after the end of a request that neither succeeded nor failed, such as a cancelled one."""
    if request not in breaker.probes:
        return breaker
    return replace(breaker, probes={name: until for name, until in breaker.probes.items() if name != request})
