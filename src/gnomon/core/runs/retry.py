"""Delays before the next attempt of a failed task, and before the next routing of one without a worker."""

from hashlib import sha256

from gnomon.core.ids import hash_fraction
from gnomon.core.runs.workflow import RetryPolicy

_LONGEST_POWER = 64


def delay_ms(retry: RetryPolicy, failures: int, share: float) -> int:
    """The delay after so many failed attempts: it grows with each, up to a limit; the jitter moves or lengthens it.

    `share` is from [0, 1): 0 is the shortest delay that the jitter allows, almost 1 the longest.
    """
    power = min(failures - 1, _LONGEST_POWER)
    grown = min(retry.initial_delay_ms * retry.multiplier**power, retry.max_delay_ms)
    return round(grown * (1 + retry.jitter * (2 * share - 1)) + retry.jitter_ms * share)


def share_of(task_id: str, attempt: int) -> float:
    """A number in [0, 1) for the delay after an attempt: evenly distributed, and the same on every node."""
    return hash_fraction(sha256(f"{task_id}:{attempt}".encode()).digest())


#: The delay before the second routing of a task, and the longest one.
ROUTING_BACKOFF_MS, LONGEST_ROUTING_BACKOFF_MS = 1_000, 30_000


def routing_delay_ms(
    tries: int, share: float, *, first_ms: int = ROUTING_BACKOFF_MS, longest_ms: int = LONGEST_ROUTING_BACKOFF_MS
) -> int:
    """The delay before a task that no worker could take is routed again, after so many tries.

    `share` is from [0, 1), and the jitter from [0, 500) ms.
    """
    return min(first_ms * (1 << min(tries, 10)) + int(500 * share), longest_ms)
