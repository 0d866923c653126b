"""The way to workers and back, in memory: for tests and simulations on a clock of their own."""

from collections.abc import Callable, Collection, Sequence

from msgspec import Struct

from gnomon.core.subjects import DEFAULT_POOL, REPORTS, WORK
from gnomon.errors import BusUnavailable
from gnomon.ports.messaging import InboundMessage, OutboundTask, RequestHandler

#: What NATS takes, unless it is told otherwise.
_LARGEST = 2**20


class _QueuedMessage(Struct):
    """A message, and until when somebody has it."""

    name: str
    body: bytes
    #: Whether somebody may have been given it, though it is not known here.
    doubtful: bool = False
    tries: int = 0
    visible_at: int = 0


class _Stream:
    """Messages that are given out again and again until somebody is done with them."""

    def __init__(self, name: str, bus: "MemoryBroker") -> None:
        self.name = name
        self._bus = bus
        self.messages: dict[int, _QueuedMessage] = {}
        self._names: set[str] = set()
        self._last = self.forgot = 0

    def add(self, name: str, body: bytes, *, again: bool = False) -> None:
        """It is there once, however often it comes."""
        if name not in self._names:
            self._names.add(name)
            self._last += 1
            self.messages[self._last] = _QueuedMessage(name, body, again)

    def deliver(self, limit: int) -> list[InboundMessage]:
        """What can be given to somebody now."""
        now = self._bus.now()
        found: list[InboundMessage] = []
        for number, message in list(self.messages.items()):
            if message.visible_at > now or len(found) == limit:
                continue
            if message.tries == self._bus.max_deliver:
                self._bus.dead.append((self.name, message.body, "was given to somebody too often"))
                del self.messages[number]
                continue
            message.tries += 1
            message.visible_at = now + self._bus.ack_wait_ms
            doubtful = self._bus.forgetful or message.doubtful
            found.append(InboundMessage(message.body, message.tries, number, doubtful))
        return found

    def drop(self, delivered: Sequence[InboundMessage]) -> None:
        """They do not come again."""
        for one in delivered:
            self.messages.pop(one.handle, None)

    def forget_message_ids(self) -> None:
        """What comes again is there again."""
        self._names.clear()

    def forget(self) -> None:
        """Nobody was ever given anything, as far as is known here."""
        self.forgot += 1
        for message in self.messages.values():
            message.tries, message.visible_at, message.doubtful = 0, 0, True

    def hold(self, delivered: Sequence[InboundMessage], for_ms: int) -> None:
        """They come again after so long."""
        for one in delivered:
            if one.handle in self.messages:
                self.messages[one.handle].visible_at = self._bus.now() + for_ms


class MemoryBroker:
    """What servers and workers share."""

    def __init__(self, now: Callable[[], int], *, ack_wait_ms: int = 30_000, max_deliver: int = 100) -> None:
        self.now = now
        self.ack_wait_ms = ack_wait_ms
        self.max_deliver = max_deliver
        self.away = False
        #: It may have forgotten whom it gave what.
        self.forgetful = False
        self.work: dict[str, _Stream] = {}
        #: What has come to workers by name, as long as they listen.
        self.direct: dict[str, list[InboundMessage]] = {}
        self.reports = _Stream(REPORTS, self)
        #: Which stream, what it was, and why it was put away.
        self.dead: list[tuple[str, bytes, str]] = []
        self.heartbeats: RequestHandler | None = None
        self.grants: RequestHandler | None = None

    def of(self, pool: str) -> _Stream:
        """The messages for workers of a pool."""
        self.reach()
        return self.work.setdefault(pool, _Stream(WORK, self))

    def reach(self) -> None:
        """Whoever wants something finds out that there is nobody."""
        if self.away:
            raise BusUnavailable("the bus is away")


class MemoryServerBus:
    """See ServerSide."""

    def __init__(self, bus: MemoryBroker) -> None:
        self._bus = bus

    async def prepare(self, pools: Collection[str]) -> None:
        """See Outgoing.prepare."""
        for pool in pools:
            self._bus.of(pool)

    async def under_way(self, pool: str) -> int:
        """See Outgoing.under_way."""
        return len(self._bus.of(pool).messages)

    async def publish(self, tasks: Sequence[OutboundTask]) -> frozenset[str]:
        """See Outgoing.publish."""
        self._bus.reach()
        for task in tasks:
            _fits(task.body)
            if task.to is None:
                self._bus.of(task.pool).add(task.name, task.body, again=task.again)
            elif task.to in self._bus.direct:
                self._bus.direct[task.to].append(InboundMessage(task.body, 1, None))
        return frozenset(one.name for one in tasks if one.to is None or one.to in self._bus.direct)

    async def collect(self, *, limit: int, wait_ms: int) -> Sequence[InboundMessage]:
        """See Incoming.collect. Nobody waits where time stands still."""
        del wait_ms
        self._bus.reach()
        return self._bus.reports.deliver(limit)

    async def acknowledge(self, delivered: Sequence[InboundMessage]) -> None:
        """See Incoming.acknowledge."""
        self._bus.reports.drop(delivered)

    async def redeliver_later(self, delivered: Sequence[InboundMessage], *, after_ms: int) -> None:
        """See Incoming.put_off."""
        self._bus.reports.hold(delivered, after_ms)

    async def wait_caught_up(self) -> None:
        """See Incoming.caught_up. Nobody waits where time stands still."""
        self._bus.reach()
        if self._bus.reports.messages:
            raise BusUnavailable("there are reports that nobody has dealt with")

    async def dead_letter_message(self, delivered: InboundMessage, *, reason: str) -> None:
        """See Incoming.put_away."""
        self._bus.reach()
        self._bus.dead.append((REPORTS, delivered.body, reason))
        self._bus.reports.drop([delivered])

    async def answer(self, *, heartbeats: RequestHandler, grants: RequestHandler) -> None:
        """See Incoming.answer."""
        self._bus.heartbeats, self._bus.grants = heartbeats, grants


class MemoryWorkerBus:
    """See WorkerSide."""

    def __init__(self, bus: MemoryBroker, *, worker: str = "worker_1", pool: str = DEFAULT_POOL) -> None:
        self._bus = bus
        self._pool = pool
        self._direct = bus.direct.setdefault(worker, [])

    @property
    def delivery_gaps(self) -> int:
        """See WorkerSide.doubts."""
        return self._bus.work[self._pool].forgot if self._pool in self._bus.work else 0

    async def pull(self, *, limit: int, wait_ms: int) -> Sequence[InboundMessage]:
        """See WorkerSide.pull. Nobody waits where time stands still."""
        del wait_ms
        self._bus.reach()
        come = [self._direct.pop(0) for _ in range(min(limit, len(self._direct)))]
        return [*come, *self._bus.of(self._pool).deliver(limit - len(come))]

    async def stop_pulling(self) -> Sequence[InboundMessage]:
        """See WorkerSide.stop_pulling. Nothing comes without being pulled, but for what is for us alone."""
        come = list(self._direct)
        self._direct.clear()
        return come

    async def acknowledge(self, delivered: Sequence[InboundMessage]) -> None:
        """See WorkerSide.acknowledge."""
        self._bus.of(self._pool).drop(delivered)

    async def extend(self, delivered: Sequence[InboundMessage]) -> None:
        """See WorkerSide.extend."""
        self._bus.of(self._pool).hold(delivered, self._bus.ack_wait_ms)

    async def terminate(self, delivered: Sequence[InboundMessage]) -> None:
        """See WorkerSide.terminate."""
        self._bus.of(self._pool).drop(delivered)

    async def report(self, name: str, body: bytes) -> None:
        """See WorkerSide.report."""
        self._bus.reach()
        _fits(name.encode() + body)
        self._bus.reports.add(name, body)

    async def heartbeat(self, body: bytes) -> bytes:
        """See WorkerSide.heartbeat."""
        return await self._asked(self._bus.heartbeats, body)

    async def ask(self, body: bytes) -> bytes:
        """See WorkerSide.ask."""
        return await self._asked(self._bus.grants, body)

    async def _asked(self, respond: RequestHandler | None, body: bytes) -> bytes:
        self._bus.reach()
        if respond is None:
            raise BusUnavailable("no server answers")
        _fits(body)
        return await respond(body)


def _fits(body: bytes) -> None:
    """Whoever sends what is too large finds out."""
    if len(body) > _LARGEST:
        raise BusUnavailable(f"{len(body)} bytes do not fit into a message")
