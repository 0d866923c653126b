"""Breakers by name: each is shared by all processes of a store, and by everything that names it.

A user of a breaker brings the limits of its own definition. Where definitions of one name differ, the strictest of
each limit applies: no user of the service then sends more than any of them allows. To refuse one of the definitions
instead would let a change of one job break the registration of another job, of another team. One user of each
definition is kept with it, so that its next request with other limits replaces what it said before.
"""

from enum import StrEnum
from functools import reduce
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from gnomon.core.breakers import (
    CLOSED_BREAKER,
    Breaker,
    BreakerLimits,
    BreakerState,
    record_failure,
    record_success,
    release,
    request_permission,
)

#: The tenant of breakers that belong to the installation and not to a tenant.
NO_TENANT = ""
#: How many different definitions are kept of a breaker.
_MOST_DEFINITIONS = 20


class RequestOutcome(StrEnum):
    """The outcome of a request, as far as it tells something about the service."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    #: It was cancelled, or ended for a reason of its own.
    NEITHER = "neither"


class BreakerKey(NamedTuple):
    """The name of a breaker within its tenant."""

    tenant: str
    name: str


class BreakerUse(Struct, frozen=True, kw_only=True):
    """One use of a breaker: who asks for which request, by which definition."""

    key: BreakerKey
    limits: BreakerLimits
    #: The user that has defined these limits, such as a job; empty if there is only one.
    user: str = ""
    #: Names the request: its outcome is recorded under the same name.
    request: str


class NamedBreaker(Struct, frozen=True, kw_only=True):
    """A breaker as its users share it."""

    tenant: str
    name: str
    breaker: Breaker = CLOSED_BREAKER
    #: The different definitions, each by one of its users.
    definitions: dict[str, BreakerLimits]
    #: The request whose failure has opened it; empty while it is closed.
    opened_by: str = ""
    #: When its state changed last; 0 if it never did.
    changed_at: int = 0

    @property
    def key(self) -> BreakerKey:
        """Its tenant and name."""
        return BreakerKey(self.tenant, self.name)

    @property
    def limits(self) -> BreakerLimits:
        """The strictest of its definitions."""
        return reduce(strictest, self.definitions.values())

    def state(self, now: int) -> BreakerState:
        """Its state at that moment."""
        return self.breaker.state(now)


class NamedPermission(Struct, frozen=True):
    """The answer to a request, and the breaker after it."""

    named: NamedBreaker
    #: When to ask again; None if the request may be sent.
    ask_again_at: int | None = None

    @property
    def granted(self) -> bool:
        """Whether the request may be sent."""
        return self.ask_again_at is None


class BreakerChange(Struct, frozen=True):
    """A breaker that has got another state."""

    named: NamedBreaker
    state: BreakerState


def change_between(before: NamedBreaker | None, after: NamedBreaker, *, now: int) -> BreakerChange | None:
    """The change of the state of a breaker, if there is one to report. It becomes half open with its first probe."""
    old = CLOSED_BREAKER if before is None else before.breaker
    new = after.breaker
    if old.open_until != new.open_until:
        return BreakerChange(after, BreakerState.CLOSED if new.open_until is None else BreakerState.OPEN)
    if new.probes and not old.probes and not old.successes:
        return BreakerChange(after, after.state(now))
    return None


def strictest(one: BreakerLimits, other: BreakerLimits) -> BreakerLimits:
    """Limits that let no more requests pass than either of these."""
    return BreakerLimits(
        failures=min(one.failures, other.failures),
        open_ms=max(one.open_ms, other.open_ms),
        probes=min(one.probes, other.probes),
        successes=max(one.successes, other.successes),
        probe_ms=max(one.probe_ms, other.probe_ms),
    )


def defined(named: NamedBreaker | None, use: BreakerUse) -> NamedBreaker:
    """The breaker with the definition of this use."""
    key, limits, user = use.key, use.limits, use.user
    if named is None:
        return NamedBreaker(tenant=key.tenant, name=key.name, definitions={user: limits})
    known = named.definitions
    if limits in known.values() and known.get(user, limits) == limits:
        return named
    kept = {name: one for name, one in known.items() if name != user}
    if limits not in kept.values():
        kept[user] = limits
    return replace(named, definitions=dict([*kept.items()][-_MOST_DEFINITIONS:]))


def ask_permission(named: NamedBreaker | None, use: BreakerUse, *, now: int) -> NamedPermission:
    """Whether the request may be sent now, and the breaker after it."""
    known = defined(named, use)
    permission = request_permission(known.breaker, known.limits, use.request, now=now)
    if permission.breaker is not known.breaker:
        known = replace(known, breaker=permission.breaker)
    return NamedPermission(known, permission.ask_again_at)


def record_outcome(named: NamedBreaker | None, use: BreakerUse, outcome: RequestOutcome, *, now: int) -> NamedBreaker:
    """The breaker after the outcome of the request."""
    known = defined(named, use)
    before, limits = known.breaker, known.limits
    match outcome:
        case RequestOutcome.SUCCEEDED:
            after = record_success(before, limits, use.request)
        case RequestOutcome.FAILED:
            after = record_failure(before, limits, use.request, now=now)
        case RequestOutcome.NEITHER:
            after = release(before, use.request)
    if after is before:
        return known
    if after.open_until == before.open_until:
        return replace(known, breaker=after)
    if after.open_until is None:
        # Definitions of jobs that no longer exist are forgotten here.
        return replace(known, breaker=after, definitions={use.user: use.limits}, opened_by="", changed_at=now)
    return replace(known, breaker=after, opened_by=use.request, changed_at=now)


def closed_by_hand(named: NamedBreaker, *, now: int) -> NamedBreaker:
    """The breaker after an operator has reset it."""
    return replace(named, breaker=CLOSED_BREAKER, opened_by="", changed_at=now)
