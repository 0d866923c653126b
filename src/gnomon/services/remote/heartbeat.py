"""The heartbeat of a remote worker: renews its leases, and stops attempts that are lost or cancelled."""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec
from msgspec import Struct

from gnomon.core import component_names
from gnomon.core.leases import LEASE_TRUST_FRACTION
from gnomon.core.model import Result
from gnomon.errors import Unavailable
from gnomon.ports.execution import Runner
from gnomon.ports.messaging import HeartbeatReply, HeartbeatRequest, InboundMessage, WorkerBus
from gnomon.ports.runtime import Clock, Events
from gnomon.ports.tasks import AttemptRef, WorkerInfo
from gnomon.services.loop import Backoff

#: How often to ask for cancellations.
_HEARTBEAT_SECONDS = 1.0
_MAX_RECENT = 2000
_REPLY_DECODER = msgspec.json.Decoder(HeartbeatReply)


class HeartbeatHooks(Struct, frozen=True, kw_only=True):
    """The actions of a worker on the replies to its heartbeats."""

    #: Called when a server answers again after the worker's leases had ended, or for the first time.
    on_trusted: Callable[[], None]
    #: Called with the attempts that were taken away from the worker, and with those that are to be cancelled.
    on_lost: Callable[[Collection[AttemptRef]], None]
    on_cancelled: Callable[[Collection[AttemptRef]], None]
    #: Called with the server's time, and with the time of the worker when it asked.
    on_server_time: Callable[[int, int], None]


class HeartbeatSender:
    """Sends the heartbeats of one worker, and applies the replies."""

    def __init__(  # noqa: PLR0913 - all of its collaborators
        self,
        queue: WorkerBus,
        runner: Runner,
        clock: Clock,
        events: Events,
        *,
        lease_ms: int,
        renewals: int,
        card: Callable[[], WorkerInfo],
        in_hand: Callable[[], Mapping[AttemptRef, InboundMessage]],
        hooks: HeartbeatHooks,
    ) -> None:
        self._queue = queue
        self._runner = runner
        self._clock = clock
        self._events = events
        self._card = card
        self._in_hand = in_hand
        #: The lease time of the server that answered last; until then, that of the worker's settings.
        self.lease_ms = lease_ms
        #: How often a lease is renewed in the time that it lasts.
        self._renewals = renewals
        #: The newest attempts that were reported since the last renewal. A server may not have written them yet, and
        #: they must not count as lost. Older ones are surely written; all of them would not fit into a message.
        self._recently_reported: deque[AttemptRef] = deque(maxlen=_MAX_RECENT)
        #: Whether less busy workers of the pool are to have its tasks.
        self.relieved = False
        self._hooks = hooks
        self._renewed_at = float("-inf")
        self._fenced = False
        self._backoff = Backoff(events, component_names.WORKER)

    @property
    def trusted(self) -> bool:
        """Whether the last renewal is so recent that no other worker can have been given our attempts."""
        return self._clock.elapsed() - self._renewed_at < self.lease_ms / 1000 * LEASE_TRUST_FRACTION

    def record_reported(self, attempts: Iterable[AttemptRef]) -> None:
        """Remember that the ends of these attempts were reported."""
        self._recently_reported += attempts

    async def send(self, *, at_once: bool = False) -> float:
        """Send a heartbeat if it is time, and apply the reply. Returns how many seconds to wait before the next.

        With `at_once` the leases are renewed now, although it is not time yet.
        """
        elapsed = self._clock.elapsed()
        every = self.lease_ms / 1000 / self._renewals
        # While others have its tasks, it tells its load more often.
        renews = at_once or elapsed - self._renewed_at >= (min(every, _HEARTBEAT_SECONDS) if self.relieved else every)
        if not renews and not self._in_hand():
            return min(_HEARTBEAT_SECONDS, self._renewed_at + every - elapsed)
        try:
            # Before anything else: these attempts must stop even if the bus fails next.
            self._apply_reply(await self._asked(renews=renews))
            if renews:
                await self._renewed(elapsed)
        except Unavailable as error:
            self.stop_if_lease_lost()
            return self._backoff.failed(error)
        self._backoff.worked()
        return min(_HEARTBEAT_SECONDS, every)

    def _apply_reply(self, reply: HeartbeatReply) -> None:
        if reply.lost:
            self._runner.stop(frozenset(reply.lost), why=Result.LOST)
            self._hooks.on_lost(reply.lost)
        if reply.to_cancel:
            self._runner.stop(frozenset(reply.to_cancel), why=Result.CANCELLED)
            self._hooks.on_cancelled(reply.to_cancel)

    async def deregister(self) -> None:
        """Tell a server that this worker leaves; Unavailable if none answers."""
        await self._asked(renews=False, leaves=True)

    async def _asked(self, *, renews: bool, leaves: bool = False) -> HeartbeatReply:
        recent = frozenset(self._recently_reported) if renews else frozenset()
        held = (*self._in_hand(), *recent) if renews else ()
        request = HeartbeatRequest(card=self._card(), held=held, renews=renews, leaves=leaves)
        asked_at = self._clock.now()
        reply = _REPLY_DECODER.decode(await self._queue.heartbeat(msgspec.json.encode(request)))
        if reply.now is not None:
            self._hooks.on_server_time(reply.now, asked_at)
        self.lease_ms = reply.lease_ms
        if reply.relieved is not None:
            self.relieved = reply.relieved
        if renews:
            self._recently_reported = deque(
                (one for one in self._recently_reported if one not in recent), maxlen=_MAX_RECENT
            )
        return reply

    async def _renewed(self, asked_at: float) -> None:
        again, self._renewed_at, self._fenced = not self.trusted, asked_at, False
        if again:
            self._hooks.on_trusted()
        await self._queue.extend(list(self._in_hand().values()))

    def stop_if_lease_lost(self) -> None:
        """Stop all attempts once no server has answered for so long that others may be given them."""
        held = self._in_hand()
        if held and not self.trusted and not self._fenced:
            self._fenced = True
            self._events.emit("worker_cut_off", worker=self._card().worker, count=len(held))
            self._runner.stop(frozenset(held), why=Result.LOST)
