"""Coordination between processes: deduplication of messages, hints, and leases.

It saves work and time; correctness never depends on it. If its state is lost, messages are processed at least once, and
processes find new work by polling.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

from gnomon.core.model import MINUTE_MS
from gnomon.core.runs.job_lock import RunLock

#: A processed message is remembered for as long as the bus may redeliver it.
PROCESSED_MS = 10 * MINUTE_MS
#: A consumer that is processing a message is assumed to be alive for this long.
IN_FLIGHT_MS = 2 * MINUTE_MS


class DedupState(StrEnum):
    """The state of a message for one consumer."""

    #: Not seen before: the caller processes it.
    NEW = "new"
    #: Another process is processing it.
    IN_FLIGHT = "in_flight"
    #: It has been processed.
    PROCESSED = "processed"


class Deduplicator(Protocol):
    """Remembers which messages each consumer has processed. Raises Unavailable if its server does not answer.

    Names are printable texts of 1 to 200 characters; FieldError for anything else.
    """

    async def begin(self, consumer: str, message: str, *, ttl_ms: int = IN_FLIGHT_MS) -> DedupState:
        """The state of the message. If it is new, it is in flight from now on, for `ttl_ms` at most."""
        ...

    async def mark_processed(self, consumer: str, message: str, *, ttl_ms: int = PROCESSED_MS) -> None:
        """Remember for `ttl_ms` that the message was processed."""
        ...

    async def give_up(self, consumer: str, message: str) -> None:
        """Make a message that is in flight new again, so that its redelivery is processed. A processed one stays so."""
        ...


class HintTopic(StrEnum):
    """The subjects of hints, each with its receivers."""

    #: An operator registered, changed, triggered, emitted or cancelled something: for every process.
    CHANGES = "changes"
    #: Tasks may be ready for admission: for dispatchers.
    READY = "ready"
    #: Tasks were admitted: for workers.
    WORK = "work"
    #: A worker registered that may take tasks which no other could: for dispatchers.
    WORKERS = "workers"
    #: Shards were released: for electors.
    SHARDS = "shards"
    #: There are announcements to send: for announcers.
    ANNOUNCEMENTS = "announcements"


HintCallback = Callable[[HintTopic], None]


class Hints(Protocol):
    """Hints of one process to the others that there may be new work, and of the others to it."""

    def send(self, topic: HintTopic) -> None:
        """Send the hint to all other processes that listen. It may be lost. Never fails and never waits."""
        ...

    async def listen(self, heard: HintCallback) -> None:
        """Start to call `heard` for the hints of others, and for every topic whenever some may have been missed.

        If the connection cannot be made now, it is retried.
        """
        ...

    async def close(self) -> None:
        """Send the pending hints, or give them up after a moment, and stop listening."""
        ...


class Leases(Protocol):
    """Leases with fencing tokens. Every method is one atomic step; Unavailable if the server does not answer.

    Keys and owners are printable texts of 1 to 200 characters, and a lease lasts from a second to a day: FieldError
    for anything else. A lease may last up to a second longer than requested, never less.
    """

    #: Whether tokens of a key only grow, as long as the server loses no data.
    ordered: bool

    async def acquire(self, key: str, owner: str, *, ttl_ms: int) -> int | None:
        """Acquire the lease and return its token; None if it is held, even by the same owner.

        If the answer is lost, the lease expires by itself.
        """
        ...

    async def renew(self, key: str, token: int, *, ttl_ms: int) -> int | None:
        """Renew the lease for `ttl_ms` and return its token from now on; None if it expired or another owner has it."""
        ...

    async def release(self, key: str, token: int) -> bool:
        """Release the lease. False, and no change, if it is not held by that token."""
        ...


class PublishedLocks(Protocol):
    """The locks of jobs, for other programs to see. Nothing in Gnomon reads them.

    Raises Unavailable if the server does not answer.
    """

    async def publish(self, lock: RunLock) -> None:
        """Write the lock, or renew it. It expires after its time to live."""
        ...

    async def withdraw(self, lock: RunLock) -> None:
        """Remove the lock, unless another execution has it by now."""
        ...
