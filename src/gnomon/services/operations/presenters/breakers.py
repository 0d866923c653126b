"""Presents circuit breakers."""

from gnomon.core.breakers import BreakerState
from gnomon.core.durations import duration_text
from gnomon.core.instants import instant_of
from gnomon.core.named_breakers import NamedBreaker
from gnomon.core.responses.breakers import BreakerDefinition, BreakerDetail
from gnomon.services.operations.presenters.common import optional_instant


def breaker_detail(named: NamedBreaker, *, now: int) -> BreakerDetail:
    """A circuit breaker."""
    state = named.state(now)
    return BreakerDetail(
        name=named.name,
        state=state.value,
        failures=named.breaker.failures,
        open_until=optional_instant(named.breaker.open_until) if state is BreakerState.OPEN else None,
        opened_by=named.opened_by.partition("/")[0] or None,
        probes=sorted(name.partition("/")[0] for name in named.breaker.probes),
        changed_at=instant_of(named.changed_at) if named.changed_at else None,
        definitions=[
            BreakerDefinition(
                user=user,
                failures=limits.failures,
                open=duration_text(limits.open_ms),
                probes=limits.probes,
                successes=limits.successes,
            )
            for user, limits in sorted(named.definitions.items())
        ],
    )
