"""Messages between servers and remote workers. A message may be lost, duplicated or late, which costs time only.

Both sides raise Unavailable when the bus cannot be reached. The request may or may not have been carried out.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Protocol

from msgspec import Struct

from gnomon.ports.tasks import AttemptRef, WorkerInfo

#: Answers a request: given the sender, which is the token of a worker in the subject, and the body.
RequestHandler = Callable[[str, bytes], Awaitable[bytes]]


class OutboundTask(Struct, frozen=True, kw_only=True, gc=False):
    """A task to send to a worker."""

    #: Publishing is idempotent by name.
    name: str
    job: str
    pool: str
    body: bytes
    #: The only worker that may have it; None for any worker of the pool.
    to: str | None = None
    #: Whether it may have arrived before: its receiver then cannot know that no other worker got it.
    again: bool = False


class InboundMessage(Struct, frozen=True, gc=False):
    """A delivered message, which its receiver has to acknowledge or return."""

    body: bytes
    #: The number of deliveries, including this one.
    tries: int
    #: The bus's own handle of the delivery.
    handle: Any
    #: Whether another worker may have got it before, though the bus does not count that delivery.
    doubtful: bool = False
    #: For a report: the token of the worker in its subject. The bus decides who may publish on which subject.
    sender: str = ""
    #: The name under which the bus stored it.
    name: str = ""


class HeartbeatRequest(Struct, frozen=True, kw_only=True):
    """A heartbeat: the worker's registration, and the attempts that it has."""

    card: WorkerInfo
    held: tuple[AttemptRef, ...] = ()
    #: Whether to renew its leases; otherwise it only asks which attempts to stop.
    renews: bool = True
    #: The worker shuts down.
    leaves: bool = False


class HeartbeatReply(Struct, frozen=True, kw_only=True):
    """The answer to a heartbeat."""

    #: How long its leases last from now on.
    lease_ms: int
    #: Attempts that it no longer owns, and those whose runs are being cancelled.
    lost: tuple[AttemptRef, ...] = ()
    to_cancel: tuple[AttemptRef, ...] = ()
    #: The server's clock; None from an older server.
    now: int | None = None
    #: Whether the worker is overloaded and another of its pool is not, so that it takes only tasks for it alone. None
    #: from an older server, and if its load was not sent.
    relieved: bool | None = None


class StartRequest(Struct, frozen=True, kw_only=True):
    """A request to start attempts that must not start twice, or that another worker may have started."""

    worker: str
    held: tuple[AttemptRef, ...]
    #: Another worker may have started them and reported so: the server must process all pending reports first.
    doubtful: bool = False


class StartGrant(Struct, frozen=True, kw_only=True):
    """The attempts that may start."""

    held: tuple[AttemptRef, ...]


class TaskOutbox(Protocol):
    """Publishes tasks to workers. Several servers share it."""

    async def prepare(self, pools: Collection[str]) -> None:
        """Create the streams and consumers for workers of these pools, unless they exist."""
        ...

    async def under_way(self, pool: str) -> int:
        """The number of tasks of the pool that no worker has acknowledged yet."""
        ...

    async def publish(self, tasks: Sequence[OutboundTask]) -> frozenset[str]:
        """Send the tasks; return the names of those that arrived for certain. The others may have arrived or not.

        A task for one worker has arrived once that worker has it; the bus does not store it.
        """
        ...


class ReportInbox(Protocol):
    """Receives the reports and requests of workers. Several servers share it."""

    async def collect(self, *, limit: int, wait_ms: int) -> Sequence[InboundMessage]:
        """The next messages of workers, in order, as soon as there are some; none after `wait_ms`."""
        ...

    async def acknowledge(self, delivered: Sequence[InboundMessage]) -> None:
        """Acknowledge processed messages, so that they are not redelivered."""
        ...

    async def redeliver_later(self, delivered: Sequence[InboundMessage], *, after_ms: int) -> None:
        """Return the messages, to be redelivered after this time."""
        ...

    async def wait_caught_up(self) -> None:
        """Wait until all reports that were pending at the call are processed; Unavailable if that takes too long."""
        ...

    async def dead_letter_message(self, delivered: InboundMessage, *, reason: str) -> None:
        """Store the message among the dead letters of the bus, then stop its redelivery."""
        ...

    async def answer(self, *, heartbeats: RequestHandler, grants: RequestHandler) -> None:
        """Answer the requests of workers with these handlers from now on."""
        ...


class ServerBus(TaskOutbox, ReportInbox, Protocol):
    """Both directions."""


class TaskInbox(Protocol):
    """The tasks that are delivered to one worker."""

    @property
    def delivery_gaps(self) -> int:
        """How often the bus may have lost its delivery state: after that, other workers may have the same tasks."""
        ...

    async def pull(self, *, limit: int, wait_ms: int, directed_only: bool = False) -> Sequence[InboundMessage]:
        """The next tasks, as soon as there are some; none after `wait_ms`.

        With `directed_only` no task is requested that another worker may have; one that an earlier pull has requested
        may still come.
        """
        ...

    async def stop_pulling(self) -> Sequence[InboundMessage]:
        """Stop the delivery of tasks; return those that had arrived and were not pulled yet."""
        ...

    async def acknowledge(self, delivered: Sequence[InboundMessage]) -> None:
        """Acknowledge tasks whose results are reported, so that they are not redelivered."""
        ...

    async def extend(self, delivered: Sequence[InboundMessage]) -> None:
        """Postpone the redelivery of tasks that are still running."""
        ...

    async def terminate(self, delivered: Sequence[InboundMessage]) -> None:
        """Stop the redelivery of tasks that have no result."""
        ...


class ReportOutbox(Protocol):
    """The messages of one worker to the servers."""

    async def report(self, name: str, body: bytes) -> None:
        """Send a report, which the bus stores until a server has processed it. Idempotent by name."""
        ...

    async def heartbeat(self, body: bytes) -> bytes:
        """Send a heartbeat and return the server's reply."""
        ...

    async def ask(self, body: bytes) -> bytes:
        """Request to start attempts and return the server's grant."""
        ...


class WorkerBus(TaskInbox, ReportOutbox, Protocol):
    """Both directions."""
