"""Circuit breakers that all processes of a store share."""

from collections.abc import Sequence
from typing import Protocol

from gnomon.core.named_breakers import BreakerKey, BreakerUse, NamedBreaker, NamedPermission, RequestOutcome


class Breakers(Protocol):
    """Keeps breakers. Every method is one transaction; Unavailable if the store is away."""

    async def find(self, key: BreakerKey) -> NamedBreaker | None:
        """The breaker; None if nobody has used it yet."""
        ...

    async def request(self, use: BreakerUse, *, now: int) -> NamedPermission:
        """Ask whether the request may be sent. A half-open breaker counts it as a probe if it may."""
        ...

    async def record(self, use: BreakerUse, outcome: RequestOutcome, *, now: int) -> NamedBreaker:
        """Record the outcome of the request, and return the breaker after it."""
        ...

    async def page(self, tenant: str, *, after: str = "", limit: int) -> Sequence[NamedBreaker]:
        """The breakers of the tenant with names behind `after`, by name."""
        ...

    async def reset(self, key: BreakerKey, *, actor: str, now: int) -> NamedBreaker | None:
        """Close the breaker, and return it; None if there is none. Its waiting tasks are asked about again at once."""
        ...
