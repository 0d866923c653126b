"""The courier: takes tasks from the store against the free slots of workers elsewhere, and sends them there."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress

from msgspec import Struct

from gnomon.core.attempts import Assignment, Outcome, ending
from gnomon.core.envelopes import order_message, order_of
from gnomon.core.gating import Waiting
from gnomon.core.lease import START_BY
from gnomon.core.model import Result
from gnomon.core.subjects import DEFAULT_POOL, FIELD
from gnomon.errors import BusUnavailable, Unavailable
from gnomon.ports.clock import Clock
from gnomon.ports.events import Events
from gnomon.ports.queue import Outgoing, Parcel
from gnomon.ports.work import Held
from gnomon.ports.workers import Workplace
from gnomon.services.backlog import Backlog
from gnomon.services.dispatcher import limits_of
from gnomon.services.patience import Backoff
from gnomon.services.shelf import Shelf, requested
from gnomon.services.worker import placeholder
from gnomon.settings import Settings

#: How long to believe what was read about workers, and what the bus says is under way.
_BELIEVED_SECONDS = 1.0
#: The same when there is no room for what waits: somebody else may have made some.
_DOUBTED_SECONDS = 0.05
#: How many are sent together.
_MOST = 500
_REMEMBERED = 100_000


class Room(Struct):
    """What is under way to the workers of a pool, as far as we know."""

    slots: int = 0
    #: Sent by us and not yet heard of, and sent by others.
    ours: int = 0
    others: int = 0
    asked_at: float = float("-inf")

    @property
    def free(self) -> int:
        """How many tasks may be sent now."""
        return max(0, self.slots - self.ours - self.others)


class Sent(OrderedDict[Held, Assignment]):
    """What was sent to workers and is not known to have ended. Nothing rests on it: what it does not know is read."""

    def remember(self, assignment: Assignment) -> None:
        """This is being sent."""
        self[assignment.task.task_id, assignment.task.fence] = assignment
        if len(self) > _REMEMBERED:
            self.popitem(last=False)


class Courier:
    """Takes, sends, and sends again under the same name what may not have arrived."""

    def __init__(
        self,
        place: Workplace,
        shelf: Shelf,
        queue: Outgoing,
        clock: Clock,
        events: Events,
        *,
        settings: Settings,
        courier: str,
    ) -> None:
        self._place = place
        self._shelf = shelf
        self._queue = queue
        self._clock = clock
        self._events = events
        self._lease_ms = settings.worker.lease_ms
        self._poll_seconds = settings.worker.poll_secs
        self._limits = limits_of(settings.execution)
        self.courier = courier
        #: What a dispatcher in this process has let through: we need not read it again.
        self.backlog = Backlog()
        #: What whoever collects need not read again.
        self.sent = Sent()
        self._room = Room()
        self._slots, self._cards_read_at = 0, float("-inf")
        #: Whether the last time there may have been more to take than was taken.
        self._more = False
        #: What may not have arrived, and until when it is of any use.
        self._unsent: dict[str, tuple[Parcel, float]] = {}
        self._to_send: list[tuple[Waiting, float]] = []
        self._prepared = False
        self._taking = False
        #: Set to say that there may be something to take, or room for more.
        self.wake = asyncio.Event()
        self.backoff = Backoff(events, "courier")

    def returned(self, count: int) -> None:
        """Workers have reported on so many: there is room for more."""
        self._room.ours = max(0, self._room.ours - count)
        self.wake.set()

    def look(self) -> None:
        """A worker has come or gone: count the slots again."""
        self._room.asked_at = self._cards_read_at = float("-inf")
        self.wake.set()

    def doubt(self) -> None:
        """Somebody could not reach what keeps messages: it may be gone, and is made again."""
        self._prepared = False
        self.look()

    async def take_along(self) -> None:
        """Take what someone is admitting at this moment: asked together with that, it shares a commit with it."""
        with suppress(Unavailable):
            if not self._unsent and await self._take():
                self.wake.set()

    async def step(self) -> float:
        """Take what there is room for, and send it. Returns how many seconds to wait before the next."""
        try:
            await self._prepare()
            await self._send()
            if self._unsent:
                raise BusUnavailable(f"{len(self._unsent)} tasks may not have arrived")
            await self._count()
            took = await self._take()
            await self._send()
        except Unavailable as error:
            # Whatever it was, streams may be gone.
            self._prepared = self._prepared and not isinstance(error, BusUnavailable)
            return self.backoff.failed(error)
        self.backoff.worked()
        if took and self._room.free:
            return 0.0
        return _DOUBTED_SECONDS if self._cramped else _BELIEVED_SECONDS

    @property
    def _cramped(self) -> bool:
        """Whether more waits than there is room for."""
        return bool(self._room.slots) and not self._room.free and (self._more or len(self.backlog) > 0)

    async def _prepare(self) -> None:
        if not self._prepared:
            await self._queue.prepare([DEFAULT_POOL])
            self._prepared = True

    # ---- how much room there is --------------------------------------------------------------

    async def _count(self) -> None:
        """The free slots are known, from what workers said and from what the bus says is under way to them."""
        believed = _DOUBTED_SECONDS if self._cramped else _BELIEVED_SECONDS
        asked_at = self._clock.elapsed()
        if asked_at - self._room.asked_at < believed:
            return
        if asked_at - self._cards_read_at >= _BELIEVED_SECONDS:
            cards = [card for card in await self._place.workers() if card.worker.startswith(f"{FIELD}_")]
            self._slots = sum(card.slots for card in cards if card.pool == DEFAULT_POOL)
            self._cards_read_at = asked_at
        before = self._room.ours
        under_way = await self._queue.under_way(DEFAULT_POOL)
        # What was sent meanwhile is not in what the bus has said.
        sent_since = self._room.ours - before
        ours = min(max(0, before), under_way)
        self._room = Room(self._slots, ours + max(0, sent_since), under_way - ours, asked_at)

    # ---- taking ------------------------------------------------------------------------------

    async def _take(self) -> bool:
        free = min(_MOST, self._room.free - len(self._to_send))
        if self._taking or free <= 0:
            return False
        asked_at = self._clock.elapsed()
        complete = self.backlog.complete
        self._taking = True
        try:
            taken = await self._place.take(
                self.courier,
                limit=free,
                lease_ms=self._lease_ms,
                now=self._clock.now(),
                begin=False,
                known=self.backlog,
            )
        finally:
            self._taking = False
        self._more = len(taken) == free
        if not self._more:
            self.backlog.none_left(complete)
        self._to_send += [(waiting, asked_at) for waiting in taken]
        return bool(taken)

    async def _wrap(self) -> None:
        """What was taken is ready to be sent; what cannot be sent, because nobody knows what it is, is given back."""
        await self._shelf.fetch(waiting.run for waiting, _ in self._to_send if waiting.task.task_id not in self.backlog)
        lost: list[Waiting] = []
        count = len(self._to_send)
        for waiting, asked_at in self._to_send[:count]:
            assignment = await self._assignment(waiting)
            if assignment is None:
                lost.append(waiting)
                continue
            self.sent.remember(assignment)
            parcel = self._parcel(assignment, asked_at)
            self._unsent[parcel.name] = parcel, asked_at + self._lease_ms / 1000 * START_BY
        self._to_send = self._to_send[count:]
        if lost:
            await self._give_back(lost)

    async def _assignment(self, waiting: Waiting) -> Assignment | None:
        task = waiting.task
        request = self.backlog.taken(task.task_id, task.fence) or await requested(self._shelf, waiting)
        if request is None:
            return None
        return Assignment(
            task=task,
            run=waiting.run,
            workflow=request.workflow,
            step=request.step,
            input=request.input,
            given=waiting.input,
        )

    async def _give_back(self, lost: Sequence[Waiting]) -> None:
        now = self._clock.now()
        endings = []
        for one in lost:
            reason = f"launch_failed: there is no {one.run.workflow_id!r} of version {one.run.workflow_version}"
            outcome = Outcome(result=Result.NEVER_STARTED, error=reason)
            endings.append(ending(placeholder(one), outcome, now=now, limits=self._limits))
        await self._place.report(endings)

    # ---- sending -----------------------------------------------------------------------------

    def _parcel(self, assignment: Assignment, asked_at: float) -> Parcel:
        now = self._clock.now()
        left_ms = int(self._lease_ms * START_BY - (self._clock.elapsed() - asked_at) * 1000)
        order = order_of(assignment, deadline=now + left_ms)
        body = order_message(order, source=self.courier, now=now)
        return Parcel(name=f"{order.task_id}:{order.fence}", job=order.job_name, pool=DEFAULT_POOL, body=body)

    async def _send(self) -> None:
        """All that was taken has arrived, or is still to be sent."""
        if self._to_send:
            await self._wrap()
        # Nobody may start any more what is older: its lease ends, and it is offered again.
        elapsed = self._clock.elapsed()
        self._unsent = {name: one for name, one in self._unsent.items() if one[1] > elapsed}
        if not self._unsent:
            return
        arrived = await self._queue.publish([parcel for parcel, _ in self._unsent.values()])
        for name in arrived:
            del self._unsent[name]
        self._room.ours += len(arrived)
