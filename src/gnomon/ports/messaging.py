"""The way to workers elsewhere, and back: messages that may be lost, doubled and late, and cost time only.

Both sides raise Unavailable when the bus is away. Whatever was asked for may then have been done, or not.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Protocol

from msgspec import Struct

from gnomon.ports.tasks import AttemptRef, WorkerInfo

#: Answers the body of a request.
RequestHandler = Callable[[bytes], Awaitable[bytes]]


class OutboundTask(Struct, frozen=True, kw_only=True, gc=False):
    """A task to be sent."""

    #: Sent twice under the same name, it is there once.
    name: str
    job: str
    pool: str
    body: bytes
    #: The only worker that it is for; None if it may be anybody of the pool.
    to: str | None = None
    #: Whether it may have arrived before: whoever is given it then cannot know that nobody else was.
    again: bool = False


class InboundMessage(Struct, frozen=True, gc=False):
    """A message that somebody was given, and has to do something about."""

    body: bytes
    #: How often it has been given to somebody, this time included.
    tries: int
    #: What whoever delivered it knows it by.
    handle: Any
    #: Whether somebody else may have been given it before, though the bus does not say so.
    doubtful: bool = False


class HeartbeatRequest(Struct, frozen=True, kw_only=True):
    """A worker is alive: how it presents itself, and what it has in hand."""

    card: WorkerInfo
    held: tuple[AttemptRef, ...] = ()
    #: Whether its leases are to be extended; else it only asks what it is to stop.
    renews: bool = True
    #: It stops, and takes nothing any more.
    leaves: bool = False


class HeartbeatReply(Struct, frozen=True, kw_only=True):
    """What a worker hears back."""

    #: For how long its word counts now.
    lease_ms: int
    #: Attempts that are no longer its own, and those whose runs are to be cancelled.
    lost: tuple[AttemptRef, ...] = ()
    to_cancel: tuple[AttemptRef, ...] = ()
    #: What time it is by the clock of whoever answers; None from a server that does not say.
    now: int | None = None


class StartRequest(Struct, frozen=True, kw_only=True):
    """A worker wants to start what must not be started twice, or what somebody else may have started."""

    worker: str
    held: tuple[AttemptRef, ...]
    #: Somebody else may have begun it, and said so; that must have been heard before.
    doubtful: bool = False


class StartGrant(Struct, frozen=True, kw_only=True):
    """What of it may start."""

    held: tuple[AttemptRef, ...]


class TaskOutbox(Protocol):
    """Where servers hand out tasks. Several servers share it."""

    async def prepare(self, pools: Collection[str]) -> None:
        """All that keeps messages stands as it should, for workers of these pools; what was lost is made again."""
        ...

    async def under_way(self, pool: str) -> int:
        """How many parcels of the pool are on their way to a worker, or with one that has not acknowledged them."""
        ...

    async def publish(self, parcels: Sequence[OutboundTask]) -> frozenset[str]:
        """Send them all. The names of those that surely arrived come back; of all others nothing is known.

        What is for one worker alone has arrived once that worker has it; nobody keeps it for later.
        """
        ...


class ReportInbox(Protocol):
    """Where servers hear what came of tasks. Several servers share it."""

    async def collect(self, *, limit: int, wait_ms: int) -> Sequence[InboundMessage]:
        """The next messages of workers, in their order, as soon as there are some; none after so long."""
        ...

    async def acknowledge(self, delivered: Sequence[InboundMessage]) -> None:
        """They are dealt with, and will not come again."""
        ...

    async def redeliver_later(self, delivered: Sequence[InboundMessage], *, after_ms: int) -> None:
        """They come again after so long."""
        ...

    async def wait_caught_up(self) -> None:
        """All that workers had reported when this was asked is dealt with; Unavailable if that takes too long."""
        ...

    async def dead_letter_message(self, delivered: InboundMessage, *, reason: str) -> None:
        """It is kept among the dead letters of the bus, and only then will it not come again."""
        ...

    async def answer(self, *, heartbeats: RequestHandler, grants: RequestHandler) -> None:
        """From now on requests of workers are answered like this."""
        ...


class ServerBus(TaskOutbox, ReportInbox, Protocol):
    """Both directions."""


class TaskInbox(Protocol):
    """The tasks that are delivered to one worker."""

    @property
    def delivery_gaps(self) -> int:
        """How often the bus may have forgotten whom it gave what: if more than before, others may have what we do."""
        ...

    async def pull(self, *, limit: int, wait_ms: int) -> Sequence[InboundMessage]:
        """The next tasks, as soon as there are some; none after so long."""
        ...

    async def stop_pulling(self) -> Sequence[InboundMessage]:
        """No more tasks come. Those that had come already, and that nobody has seen, are handed over."""
        ...

    async def acknowledge(self, delivered: Sequence[InboundMessage]) -> None:
        """What came of them is reported: they will not come again."""
        ...

    async def extend(self, delivered: Sequence[InboundMessage]) -> None:
        """They are being worked on: they do not go to anybody else yet."""
        ...

    async def terminate(self, delivered: Sequence[InboundMessage]) -> None:
        """They will not come again, though nothing came of them."""
        ...


class ReportOutbox(Protocol):
    """The messages of one worker to the servers."""

    async def report(self, name: str, body: bytes) -> None:
        """It is kept until a server has dealt with it. Told twice under one name, it is there once."""
        ...

    async def heartbeat(self, body: bytes) -> bytes:
        """What a server answers."""
        ...

    async def ask(self, body: bytes) -> bytes:
        """What a server grants."""
        ...


class WorkerBus(TaskInbox, ReportOutbox, Protocol):
    """Both directions."""
