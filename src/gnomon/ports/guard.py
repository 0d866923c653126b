"""What was seen before: messages that were dealt with, and how often something went wrong.

It saves work; it never makes anything correct. Where it is lost, messages are dealt with at least once, and each
process counts for itself.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from gnomon.core.model import MINUTE_MS

#: As long as a message may come again because nobody acknowledged it.
PROCESSED_MS = 10 * MINUTE_MS
#: As long as someone who deals with a message is believed to live.
IN_FLIGHT_MS = 2 * MINUTE_MS


class Standing(StrEnum):
    """What is known of a message."""

    #: Nothing, until now: whoever asked is the one to deal with it.
    NEW = "new"
    #: Someone is dealing with it.
    IN_FLIGHT = "in_flight"
    #: Someone has dealt with it.
    PROCESSED = "processed"


class Guard(Protocol):
    """Messages by who consumes them: what one has dealt with another has not. Unavailable if nobody answers.

    Names are printable texts of 1 to 200 characters; FieldError for anything else.
    """

    async def begin(self, consumer: str, message: str, *, ttl_ms: int = IN_FLIGHT_MS) -> Standing:
        """What is known of the message. If it is new, it is in flight from now on, for so long at most."""
        ...

    async def processed(self, consumer: str, message: str, *, ttl_ms: int = PROCESSED_MS) -> None:
        """It has been dealt with, and that is known for so long."""
        ...

    async def give_up(self, consumer: str, message: str) -> None:
        """Nobody is dealing with it: the next one who gets it may. What was dealt with stays so."""
        ...


class Counters(Protocol):
    """Counts that all processes share. Unavailable if nobody answers."""

    async def count(self, name: str, *, ttl_ms: int) -> int:
        """One more, and how many there are now. So long after the first of them there are none again."""
        ...

    async def counted(self, names: Sequence[str]) -> Sequence[int]:
        """How many there are of each."""
        ...

    async def forget(self, names: Sequence[str]) -> None:
        """There are none of these."""
        ...
