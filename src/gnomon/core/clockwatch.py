"""Noticing that the wall clock was set, or that the machine slept: two clocks disagree about the time that passed."""

from typing import NamedTuple

#: Less than this is ordinary drift and rounding.
TOLERANCE_MS = 2000


class Reading(NamedTuple):
    """Both clocks at one moment."""

    wall_ms: int
    elapsed: float


def step_between(before: Reading, after: Reading) -> int:
    """By how many milliseconds the wall clock moved beyond the time that elapsed; 0 if nothing notable happened."""
    moved = after.wall_ms - before.wall_ms - round((after.elapsed - before.elapsed) * 1000)
    return moved if abs(moved) > TOLERANCE_MS else 0
