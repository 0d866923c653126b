"""Judges processor time by the speed of the machine at that moment.

The same work takes more processor time on a slower machine, and on one whose caches others use too. A bound therefore
grows as far as a fixed computation takes longer in this process than where the bounds were measured. A defect makes
work many times slower, and the fixed computation not at all.
"""

from collections.abc import Callable
from time import thread_time

_SAMPLES = 5
_CELLS = 4_000
#: The processor time of the fixed computation where the bounds were measured.
_USUAL_SECONDS = 0.0005


def slowness() -> float:
    """How many times as long this machine takes as the one where the bounds were measured; at least 1."""
    return max(1.0, *(_seconds_of(_fixed_computation) / _USUAL_SECONDS for _ in range(_SAMPLES)))


def is_done_within(seconds: float, work: Callable[[], object], *, tries: int = 4) -> bool:
    """Whether the work takes less processor time of this thread, in one of the tries; its errors are raised."""
    for _ in range(tries):
        took = _seconds_of(work)
        if took < seconds or took < seconds * slowness():
            return True
    return False


def _seconds_of(work: Callable[[], object]) -> float:
    began = thread_time()
    work()
    return thread_time() - began


def _fixed_computation() -> int:
    """Calls, arithmetic, allocation and lookups, as in most of our code."""
    known: dict[str, list[int]] = {}
    for number in range(_CELLS):
        known.setdefault(str(number % 257), []).append(number * 7 % 1_000_003)
    return sum(map(len, known.values()))
