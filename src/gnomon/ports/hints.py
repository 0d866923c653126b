"""Telling other processes that there may be something to look at, so that they need not find out by themselves.

A hint says where to look and nothing else. It may be lost, late, doubled or wrong; whoever listens looks now and then
all the same.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Protocol


class Topic(StrEnum):
    """What there may be something new about."""

    #: Somebody has registered, changed, triggered, emitted or cancelled something: for everyone.
    CHANGES = "changes"
    #: Tasks may be ready to pass the gate: for dispatchers.
    READY = "ready"
    #: Tasks have passed it: for workers.
    WORK = "work"
    #: Somebody has come who may take what nobody could: for dispatchers.
    WORKERS = "workers"
    #: Shards were given up: for electors.
    SHARDS = "shards"


Heard = Callable[[Topic], None]


class Hints(Protocol):
    """One process's voice and ear."""

    def tell(self, topic: Topic) -> None:
        """Everybody else who listens hears of it soon, if all goes well. Never fails and never waits."""
        ...

    async def listen(self, heard: Heard) -> None:
        """From soon on, call this for what others tell; for every topic when some may have been missed.

        It need not be possible now: it is tried again and again.
        """
        ...

    async def close(self) -> None:
        """What was told is on its way, or given up after a moment, and nothing is heard any more."""
        ...
