"""The message bus in memory, for tests on a virtual clock."""

from collections.abc import Callable, Collection, Sequence

from msgspec import Struct

from gnomon.core.subjects import DEFAULT_POOL, REPORTS, WORK, worker_token
from gnomon.errors import BusUnavailable
from gnomon.ports.messaging import InboundMessage, OutboundTask, RequestHandler

#: The default limit of NATS.
_LARGEST = 2**20


class _QueuedMessage(Struct):
    """A message, and until when a consumer holds it."""

    name: str
    body: bytes
    #: Whether it may have been delivered before, though the broker does not know.
    doubtful: bool = False
    sender: str = ""
    tries: int = 0
    visible_at: int = 0


class _Stream:
    """Messages that are delivered again and again until a consumer acknowledges them."""

    def __init__(self, name: str, bus: "MemoryBroker") -> None:
        self.name = name
        self._bus = bus
        self.messages: dict[int, _QueuedMessage] = {}
        self._names: set[str] = set()
        self._last = self.forgot = 0

    def add(self, name: str, body: bytes, *, again: bool = False, sender: str = "") -> None:
        """Store a message, once per message id."""
        if name not in self._names:
            self._names.add(name)
            self._last += 1
            self.messages[self._last] = _QueuedMessage(name, body, again, sender)

    def deliver(self, limit: int) -> list[InboundMessage]:
        """Deliver the messages that no consumer holds."""
        now = self._bus.now()
        found: list[InboundMessage] = []
        for number, message in list(self.messages.items()):
            if message.visible_at > now or len(found) == limit:
                continue
            if message.tries == self._bus.max_deliver:
                self._bus.dead.append((self.name, message.body, "was delivered too often"))
                del self.messages[number]
                continue
            message.tries += 1
            message.visible_at = now + self._bus.ack_wait_ms
            doubtful = self._bus.forgetful or message.doubtful
            found.append(InboundMessage(message.body, message.tries, number, doubtful, message.sender, message.name))
        return found

    def drop(self, delivered: Sequence[InboundMessage]) -> None:
        """Remove messages."""
        for one in delivered:
            self.messages.pop(one.handle, None)

    def forget_message_ids(self) -> None:
        """Forget the message ids: a duplicate is stored again."""
        self._names.clear()

    def forget(self) -> None:
        """Forget all deliveries."""
        self.forgot += 1
        for message in self.messages.values():
            message.tries, message.visible_at, message.doubtful = 0, 0, True

    def hold(self, delivered: Sequence[InboundMessage], for_ms: int) -> None:
        """Deliver the messages again after so long."""
        for one in delivered:
            if one.handle in self.messages:
                self.messages[one.handle].visible_at = self._bus.now() + for_ms


class MemoryBroker:
    """The broker that servers and workers share."""

    def __init__(self, now: Callable[[], int], *, ack_wait_ms: int = 30_000, max_deliver: int = 100) -> None:
        self.now = now
        self.ack_wait_ms = ack_wait_ms
        self.max_deliver = max_deliver
        self.away = False
        #: How often it may have lost track of its deliveries.
        self.forgetful = False
        self.work: dict[str, _Stream] = {}
        #: The messages for single workers, as long as they listen.
        self.direct: dict[str, list[InboundMessage]] = {}
        self.reports = _Stream(REPORTS, self)
        #: The dead letters: stream, body and reason.
        self.dead: list[tuple[str, bytes, str]] = []
        self.heartbeats: RequestHandler | None = None
        self.grants: RequestHandler | None = None

    def of(self, pool: str) -> _Stream:
        """The messages for workers of a pool."""
        self.reach()
        return self.work.setdefault(pool, _Stream(WORK, self))

    def reach(self) -> None:
        """Raise BusUnavailable while the bus is down."""
        if self.away:
            raise BusUnavailable("the bus is away")


class MemoryServerBus:
    """The server's side of the bus; see ServerBus."""

    def __init__(self, bus: MemoryBroker) -> None:
        self._bus = bus

    async def prepare(self, pools: Collection[str]) -> None:
        """See TaskOutbox.prepare."""
        for pool in pools:
            self._bus.of(pool)

    async def under_way(self, pool: str) -> int:
        """See TaskOutbox.under_way."""
        return len(self._bus.of(pool).messages)

    async def publish(self, tasks: Sequence[OutboundTask]) -> frozenset[str]:
        """See TaskOutbox.publish."""
        self._bus.reach()
        for task in tasks:
            _fits(task.body)
            if task.to is None:
                self._bus.of(task.pool).add(task.name, task.body, again=task.again)
            elif task.to in self._bus.direct:
                self._bus.direct[task.to].append(InboundMessage(task.body, 1, None))
        return frozenset(one.name for one in tasks if one.to is None or one.to in self._bus.direct)

    async def collect(self, *, limit: int, wait_ms: int) -> Sequence[InboundMessage]:
        """See ReportInbox.collect. It does not wait."""
        del wait_ms
        self._bus.reach()
        return self._bus.reports.deliver(limit)

    async def acknowledge(self, delivered: Sequence[InboundMessage]) -> None:
        """See ReportInbox.acknowledge."""
        self._bus.reports.drop(delivered)

    async def redeliver_later(self, delivered: Sequence[InboundMessage], *, after_ms: int) -> None:
        """See ReportInbox.redeliver_later."""
        self._bus.reports.hold(delivered, after_ms)

    async def wait_caught_up(self) -> None:
        """See ReportInbox.wait_caught_up. It does not wait."""
        self._bus.reach()
        if self._bus.reports.messages:
            raise BusUnavailable("there are reports that nobody has dealt with")

    async def dead_letter_message(self, delivered: InboundMessage, *, reason: str) -> None:
        """See ReportInbox.dead_letter_message."""
        self._bus.reach()
        self._bus.dead.append((REPORTS, delivered.body, reason))
        self._bus.reports.drop([delivered])

    async def answer(self, *, heartbeats: RequestHandler, grants: RequestHandler) -> None:
        """See ReportInbox.answer."""
        self._bus.heartbeats, self._bus.grants = heartbeats, grants


class MemoryWorkerBus:
    """A worker's side of the bus; see WorkerBus."""

    def __init__(self, bus: MemoryBroker, *, worker: str = "worker_1", pool: str = DEFAULT_POOL) -> None:
        self._bus = bus
        self._pool = pool
        self._token = worker_token(worker)
        self._direct = bus.direct.setdefault(worker, [])

    @property
    def delivery_gaps(self) -> int:
        """See TaskInbox.delivery_gaps."""
        return self._bus.work[self._pool].forgot if self._pool in self._bus.work else 0

    async def pull(self, *, limit: int, wait_ms: int, directed_only: bool = False) -> Sequence[InboundMessage]:
        """See TaskInbox.pull. It does not wait."""
        del wait_ms
        self._bus.reach()
        come = [self._direct.pop(0) for _ in range(min(limit, len(self._direct)))]
        return come if directed_only else [*come, *self._bus.of(self._pool).deliver(limit - len(come))]

    async def stop_pulling(self) -> Sequence[InboundMessage]:
        """See TaskInbox.stop_pulling. Only messages for this worker alone may have arrived."""
        come = list(self._direct)
        self._direct.clear()
        return come

    async def acknowledge(self, delivered: Sequence[InboundMessage]) -> None:
        """See TaskInbox.acknowledge."""
        self._bus.of(self._pool).drop(delivered)

    async def extend(self, delivered: Sequence[InboundMessage]) -> None:
        """See TaskInbox.extend."""
        self._bus.of(self._pool).hold(delivered, self._bus.ack_wait_ms)

    async def terminate(self, delivered: Sequence[InboundMessage]) -> None:
        """See TaskInbox.terminate."""
        self._bus.of(self._pool).drop(delivered)

    async def report(self, name: str, body: bytes) -> None:
        """See ReportOutbox.report."""
        self._bus.reach()
        _fits(name.encode() + body)
        self._bus.reports.add(name, body, sender=self._token)

    async def heartbeat(self, body: bytes) -> bytes:
        """See ReportOutbox.heartbeat."""
        return await self._asked(self._bus.heartbeats, body)

    async def ask(self, body: bytes) -> bytes:
        """See ReportOutbox.ask."""
        return await self._asked(self._bus.grants, body)

    async def _asked(self, respond: RequestHandler | None, body: bytes) -> bytes:
        self._bus.reach()
        if respond is None:
            raise BusUnavailable("no server answers")
        _fits(body)
        return await respond(self._token, body)


def _fits(body: bytes) -> None:
    """Raise if the message is larger than NATS accepts."""
    if len(body) > _LARGEST:
        raise BusUnavailable(f"{len(body)} bytes do not fit into a message")
