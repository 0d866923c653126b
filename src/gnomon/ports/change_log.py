"""The log of changes: how servers learn of what other processes have committed, for the callers that follow changes.

While any server follows it, every process logs the changes of a transaction in that transaction. Otherwise it costs one
query in half a second.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct

from gnomon.core.model import DeadLetter
from gnomon.ports.commit_observer import ActivityObserver, LogObserver, RunObserver

#: A process notices within this time that a server has begun to follow the log.
NOTICED_WITHIN_SECONDS = 0.5


#: The kind of changes of logs, of which an execution may have many.
LOG_CHANGE = "log"


class Change(Struct, frozen=True):
    """A change that the followers of its tenant receive."""

    #: `tick`, `execution`, `task`, `log`, `dead_letter`, `approval`, `ruling` or `breaker`.
    kind: str
    tenant: str
    at: datetime
    facts: dict[str, Any]


@runtime_checkable
class LetterObserver(Protocol):
    """Called for each transaction that wrote dead letters."""

    def letters_written(self, letters: Sequence[DeadLetter]) -> None:
        """These dead letters were written."""
        ...


class ChangeCollector(RunObserver, ActivityObserver, LogObserver, LetterObserver, Protocol):
    """Collects the changes of one transaction."""

    def collected(self) -> Sequence[Change]:
        """The changes that were collected."""
        ...


class LoggedChanges(Struct, frozen=True):
    """An entry of the log: the changes of one transaction."""

    number: int
    #: The process that committed it.
    origin: str
    changes: Sequence[Change]


class ChangeLog(Protocol):
    """The changes of the last minute, in the order of their numbers, of which some may appear late or never."""

    async def follow(self, server: str, *, ttl_ms: int) -> int:
        """Ask all processes to log their changes for so long; return the number of the last entry."""
        ...

    async def unfollow(self, server: str) -> None:
        """End the request of `follow`. The entries are removed once no server follows."""
        ...

    async def read(self, after: int, *, late: Collection[int], limit: int) -> Sequence[LoggedChanges]:
        """Entries with these numbers, and the first ones after a number."""
        ...

    async def forget(self, *, older_than_ms: int) -> None:
        """Remove old entries."""
        ...
