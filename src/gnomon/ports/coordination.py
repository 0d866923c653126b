"""What was seen before: messages that were dealt with, and how often something went wrong.

It saves work; it never makes anything correct. Where it is lost, messages are dealt with at least once, and each
process counts for itself.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

from gnomon.core.model import MINUTE_MS

#: As long as a message may come again because nobody acknowledged it.
PROCESSED_MS = 10 * MINUTE_MS
#: As long as someone who deals with a message is believed to live.
IN_FLIGHT_MS = 2 * MINUTE_MS


class DedupState(StrEnum):
    """What is known of a message."""

    #: Nothing, until now: whoever asked is the one to deal with it.
    NEW = "new"
    #: Someone is dealing with it.
    IN_FLIGHT = "in_flight"
    #: Someone has dealt with it.
    PROCESSED = "processed"


class Deduplicator(Protocol):
    """Messages by who consumes them: what one has dealt with another has not. Unavailable if nobody answers.

    Names are printable texts of 1 to 200 characters; FieldError for anything else.
    """

    async def begin(self, consumer: str, message: str, *, ttl_ms: int = IN_FLIGHT_MS) -> DedupState:
        """What is known of the message. If it is new, it is in flight from now on, for so long at most."""
        ...

    async def mark_processed(self, consumer: str, message: str, *, ttl_ms: int = PROCESSED_MS) -> None:
        """It has been dealt with, and that is known for so long."""
        ...

    async def give_up(self, consumer: str, message: str) -> None:
        """Nobody is dealing with it: the next one who gets it may. What was dealt with stays so."""
        ...


class HintTopic(StrEnum):
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


HintCallback = Callable[[HintTopic], None]


class Hints(Protocol):
    """One process's voice and ear."""

    def tell(self, topic: HintTopic) -> None:
        """Everybody else who listens hears of it soon, if all goes well. Never fails and never waits."""
        ...

    async def listen(self, heard: HintCallback) -> None:
        """From soon on, call this for what others tell; for every topic when some may have been missed.

        It need not be possible now: it is tried again and again.
        """
        ...

    async def close(self) -> None:
        """What was told is on its way, or given up after a moment, and nothing is heard any more."""
        ...


class Leases(Protocol):
    """Every method is one atomic step at whoever keeps them, and Unavailable if they do not answer.

    Keys and owners are printable texts of 1 to 200 characters, and a lease lasts from a second to a day: FieldError
    for anything else. It may last for up to a second longer than was asked for, never for less.
    """

    #: Whether a token is higher than all before it of the same key, as long as nothing was lost.
    ordered: bool

    async def acquire(self, key: str, owner: str, *, ttl_ms: int) -> int | None:
        """The token by which we alone hold the lease from now on; None if somebody has it, ourselves included.

        If the answer is lost, the lease ends by itself.
        """
        ...

    async def renew(self, key: str, token: int, *, ttl_ms: int) -> int | None:
        """The token by which it is held from now on, for so long again; None if it is held no longer, or by others."""
        ...

    async def release(self, key: str, token: int) -> bool:
        """It is free, if it was held by that token; otherwise nothing is changed, and the answer is False."""
        ...
