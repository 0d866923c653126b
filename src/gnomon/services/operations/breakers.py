"""Lists, shows and resets circuit breakers."""

from collections.abc import Sequence

from gnomon.core.jobs.fields import page_limit, printable, schedule_name
from gnomon.core.named_breakers import BreakerKey, NamedBreaker
from gnomon.errors import NotFound
from gnomon.ports.breakers import Breakers
from gnomon.ports.runtime import Clock


class BreakerService:
    """The breakers of tenants, for operators."""

    def __init__(self, breakers: Breakers, clock: Clock) -> None:
        self._breakers = breakers
        self._clock = clock

    async def page(self, *, after: str = "", limit: int = 100, tenant: str = "default") -> Sequence[NamedBreaker]:
        """The breakers that have been used, by name."""
        return await self._breakers.page(schedule_name("tenant", tenant), after=after, limit=page_limit(limit))

    async def get(self, name: str, *, tenant: str = "default") -> NamedBreaker:
        """The breaker; NotFound if no task has used it."""
        found = await self._breakers.find(_key(name, tenant))
        if found is None:
            raise NotFound("breaker", name)
        return found

    async def reset(self, name: str, *, actor: str, tenant: str = "default") -> NamedBreaker:
        """Close the breaker: the tasks that wait for it start now."""
        key = _key(name, tenant)
        found = await self._breakers.reset(key, actor=printable("actor", actor), now=self._clock.now())
        if found is None:
            raise NotFound("breaker", name)
        return found


def _key(name: str, tenant: str) -> BreakerKey:
    return BreakerKey(schedule_name("tenant", tenant), printable("breaker", name))
