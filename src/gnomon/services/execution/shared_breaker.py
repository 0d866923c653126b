"""A breaker of this process that is shared with all others over the store, and counts alone while that is away.

Requests must not wait for the store. While the last known state is closed, a permission costs no I/O: one of the
requests reads the state again, twice a second. A failure is always written; a success only if there were failures,
because otherwise it changes nothing. While the breaker is open the answer comes from memory. Only the probes of a
half-open one ask the store, so that all processes together send no more of them than the limit.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from gnomon.core.breakers import CLOSED_BREAKER, BreakerLimits, BreakerState
from gnomon.core.named_breakers import (
    BreakerKey,
    BreakerUse,
    NamedBreaker,
    NamedPermission,
    RequestOutcome,
    ask_permission,
    record_outcome,
)
from gnomon.errors import KernelUnavailable, Unavailable
from gnomon.ports.breakers import Breakers
from gnomon.ports.runtime import Clock, Events

T = TypeVar("T")
_REFRESH_SECONDS = 0.5


class SharedBreaker:
    """Says whether requests to one service may be sent, and counts their outcomes."""

    def __init__(
        self,
        breakers: Breakers,
        key: BreakerKey,
        limits: BreakerLimits,
        clock: Clock,
        events: Events,
        *,
        refresh_seconds: float = _REFRESH_SECONDS,
    ) -> None:
        """`refresh_seconds` is the age from which the known state is read again."""
        self._breakers, self._clock, self._events = breakers, clock, events
        self._key, self._limits = key, limits
        self._refresh_seconds = refresh_seconds
        self._read_at = float("-inf")
        #: The state as all processes share it, as far as this one knows.
        self._shared: NamedBreaker = self._new()
        #: The state by the outcomes of this process alone.
        self._local: NamedBreaker = self._new()
        #: Whether the store answered last.
        self._is_shared = True

    @property
    def is_shared(self) -> bool:
        """Whether the last answer came from the store; if not, this process counts alone."""
        return self._is_shared

    @property
    def known(self) -> NamedBreaker:
        """The breaker as this process knows it."""
        return self._shared if self._is_shared else self._local

    async def request(self, request: str) -> int | None:
        """None if the request may be sent, else the instant from which to ask again. Never fails."""
        await self._refresh()
        now, known = self._clock.now(), self.known
        match known.state(now):
            case BreakerState.CLOSED:
                return None
            case BreakerState.OPEN:
                return known.breaker.open_until
            case BreakerState.HALF_OPEN:
                use = self._use(request)
                found: NamedPermission | None = None
                if self._is_shared:
                    found = await self._ask(lambda: self._breakers.request(use, now=now))
                if found is None:
                    found = ask_permission(self._local, use, now=now)
                    self._local = found.named
                else:
                    self._shared = found.named
                return found.ask_again_at

    async def record(self, request: str, outcome: RequestOutcome) -> None:
        """Count the outcome of a request. Never fails."""
        use, now = self._use(request), self._clock.now()
        self._local = record_outcome(self._local, use, outcome, now=now)
        says_nothing = outcome is not RequestOutcome.FAILED and self._shared.breaker == CLOSED_BREAKER
        if says_nothing or not self._is_shared:
            return
        found = await self._ask(lambda: self._breakers.record(use, outcome, now=now))
        if found is not None:
            self._shared = found

    async def guarded(self, request: str, ask: Callable[[], Awaitable[T]], *, refusal: str) -> T:
        """The answer of the service, and its outcome counted; KernelUnavailable with `refusal` if it is not asked."""
        if await self.request(request) is not None:
            raise KernelUnavailable(refusal)
        outcome = RequestOutcome.NEITHER
        try:
            answer = await ask()
            outcome = RequestOutcome.SUCCEEDED
        except KernelUnavailable:
            outcome = RequestOutcome.FAILED
            raise
        except ValueError:
            # It is there, and answers, however wrong that is.
            outcome = RequestOutcome.SUCCEEDED
            raise
        finally:
            await self.record(request, outcome)
        return answer

    async def _refresh(self) -> None:
        """Read the shared state again, unless it is known well enough, or another request is reading it."""
        elapsed = self._clock.elapsed()
        if elapsed - self._read_at < self._refresh_seconds:
            return
        self._read_at = elapsed
        found = await self._ask(self._find)
        if found is not None:
            self._shared = found

    async def _find(self) -> NamedBreaker:
        return await self._breakers.find(self._key) or self._new()

    async def _ask(self, ask: Callable[[], Awaitable[T]]) -> T | None:
        """The answer of the store; None if it is away."""
        try:
            found = await ask()
        except Unavailable as error:
            if self._is_shared:
                self._events.emit("breaker_local", breaker=self._key.name, error=str(error))
            self._is_shared = False
            return None
        if not self._is_shared:
            self._events.emit("breaker_shared", breaker=self._key.name)
        self._is_shared = True
        return found

    def _use(self, request: str) -> BreakerUse:
        return BreakerUse(key=self._key, limits=self._limits, request=request)

    def _new(self) -> NamedBreaker:
        return NamedBreaker(tenant=self._key.tenant, name=self._key.name, definitions={"": self._limits})
