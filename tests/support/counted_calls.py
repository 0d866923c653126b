"""Counts the calls of Python functions: a measure of work that no load of the machine changes."""

import sys
from collections.abc import Callable
from types import FrameType


def counted_calls(work: Callable[[], object]) -> int:
    """How many functions written in Python are called on this thread while the work is done."""
    count, before = 0, sys.getprofile()

    def observe(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(observe)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count
