"""When Python is not to look for garbage."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Nobody looks for garbage meanwhile: for work that makes much, and nothing that is part of a cycle.

    Each look stops every thread, and takes the longer the more there is.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
