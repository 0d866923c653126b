"""The field `breaker` of a job or step: the circuit breaker that its tasks share with others."""

from typing import Any

from gnomon.core.breakers import BreakerLimits, StepBreaker
from gnomon.core.durations import duration_text
from gnomon.core.jobs.fields import FieldReader
from gnomon.core.model import DAY_MS

BREAKER_FIELDS = ("name", "failures", "open", "probes", "successes")
MOST_BREAKER_FAILURES, MOST_PROBES = 1000, 100
SHORTEST_OPEN_MS, LONGEST_OPEN_MS = 100, 7 * DAY_MS
_USUAL = StepBreaker(name="").limits


def read_breaker(fields: FieldReader, inherited: StepBreaker | None) -> StepBreaker | None:
    """The breaker of a step or job: its own, or the inherited one."""
    if "breaker" not in fields:
        return inherited
    own = FieldReader(fields["breaker"], BREAKER_FIELDS, path=fields.at("breaker"))
    successes = own.whole("successes", _USUAL.successes, low=1, high=MOST_PROBES)
    return StepBreaker(
        name=own.name("name"),
        limits=BreakerLimits(
            failures=own.whole("failures", _USUAL.failures, low=1, high=MOST_BREAKER_FAILURES),
            open_ms=own.duration("open", _USUAL.open_ms, low=SHORTEST_OPEN_MS, high=LONGEST_OPEN_MS),
            probes=own.whole("probes", _USUAL.probes, low=1, high=MOST_PROBES),
            successes=successes,
            probe_ms=_USUAL.probe_ms,
        ),
    )


def breaker_as_data(breaker: StepBreaker) -> dict[str, Any]:
    """The fields that define this breaker."""
    limits = breaker.limits
    return {
        "name": breaker.name,
        "failures": limits.failures,
        "open": duration_text(limits.open_ms),
        "probes": limits.probes,
        "successes": limits.successes,
    }
