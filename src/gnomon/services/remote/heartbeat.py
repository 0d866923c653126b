"""The heart of a worker elsewhere: shows servers that it is alive, and stops what it must not go on with."""

from collections import deque
from collections.abc import Callable, Collection, Mapping

import msgspec
from msgspec import Struct

from gnomon.core.leases import LEASE_TRUST_FRACTION
from gnomon.core.model import Result
from gnomon.errors import Unavailable
from gnomon.ports.execution import Runner
from gnomon.ports.messaging import HeartbeatReply, HeartbeatRequest, InboundMessage, WorkerBus
from gnomon.ports.runtime import Clock, Events
from gnomon.ports.tasks import AttemptRef, WorkerInfo
from gnomon.services.loop import Backoff

#: Renewals in the time that a lease lasts, and how often it is asked for what is to be cancelled.
_RENEWALS = 3
_HEARTBEAT_SECONDS = 1.0
_MAX_RECENT = 2000
_REPLY_DECODER = msgspec.json.Decoder(HeartbeatReply)


class HeartbeatHooks(Struct, frozen=True, kw_only=True):
    """What a worker does about the answers to its heartbeats."""

    #: Called when a server answers again after the worker's leases had ended, or for the first time.
    on_trusted: Callable[[], None]
    #: Called with the attempts that were taken away from the worker, and with those that are to be cancelled.
    on_lost: Callable[[Collection[AttemptRef]], None]
    on_cancelled: Callable[[Collection[AttemptRef]], None]
    #: Called with the server's time, and with the time of the worker when it asked.
    on_server_time: Callable[[int, int], None]


class HeartbeatSender:
    """Beats for one worker."""

    def __init__(  # noqa: PLR0913 - all of its collaborators
        self,
        queue: WorkerBus,
        runner: Runner,
        clock: Clock,
        events: Events,
        *,
        lease_ms: int,
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
        #: As a server says; until one has, the worker's own.
        self.lease_ms = lease_ms
        #: The newest of what was reported since the last renewal: a server may not have written it down yet, and it
        #: must not pass for lost. What came before these has had its time; all of it would not fit into a message.
        self.recently_reported: deque[AttemptRef] = deque(maxlen=_MAX_RECENT)
        self._hooks = hooks
        self._renewed_at = float("-inf")
        self._let_go = False
        self._backoff = Backoff(events, "worker")

    @property
    def trusted(self) -> bool:
        """Whether a server has heard of us lately enough that nobody else can have been given what is ours."""
        return self._clock.elapsed() - self._renewed_at < self.lease_ms / 1000 * LEASE_TRUST_FRACTION

    async def send(self, *, at_once: bool = False) -> float:
        """Show that we are alive, and stop what is to be stopped. Returns how many seconds to wait before the next.

        With `at_once` servers hear how we are now, though they would in a while.
        """
        elapsed = self._clock.elapsed()
        every = self.lease_ms / 1000 / _RENEWALS
        renews = at_once or elapsed - self._renewed_at >= every
        if not renews and not self._in_hand():
            return min(_HEARTBEAT_SECONDS, self._renewed_at + every - elapsed)
        try:
            # At once: whatever becomes of the bus after that, this is to be stopped.
            self._apply_reply(await self._asked(renews=renews))
            if renews:
                await self._renewed(elapsed)
        except Unavailable as error:
            self.stop_if_lease_lost()
            return self._backoff.failed(error)
        self._backoff.worked()
        return min(_HEARTBEAT_SECONDS, every)

    def _apply_reply(self, advice: HeartbeatReply) -> None:
        if advice.lost:
            self._runner.stop(frozenset(advice.lost), why=Result.LOST)
            self._hooks.on_lost(advice.lost)
        if advice.to_cancel:
            self._runner.stop(frozenset(advice.to_cancel), why=Result.CANCELLED)
            self._hooks.on_cancelled(advice.to_cancel)

    async def deregister(self) -> None:
        """Servers know that we are no more; Unavailable if there is none."""
        await self._asked(renews=False, leaves=True)

    async def _asked(self, *, renews: bool, leaves: bool = False) -> HeartbeatReply:
        lately = frozenset(self.recently_reported) if renews else frozenset()
        held = (*self._in_hand(), *lately) if renews else ()
        pulse = HeartbeatRequest(card=self._card(), held=held, renews=renews, leaves=leaves)
        asked_at = self._clock.now()
        advice = _REPLY_DECODER.decode(await self._queue.heartbeat(msgspec.json.encode(pulse)))
        if advice.now is not None:
            self._hooks.on_server_time(advice.now, asked_at)
        self.lease_ms = advice.lease_ms
        if renews:
            self.recently_reported = deque(
                (one for one in self.recently_reported if one not in lately), maxlen=_MAX_RECENT
            )
        return advice

    async def _renewed(self, asked_at: float) -> None:
        again, self._renewed_at, self._let_go = not self.trusted, asked_at, False
        if again:
            self._hooks.on_trusted()
        await self._queue.extend(list(self._in_hand().values()))

    def stop_if_lease_lost(self) -> None:
        """Once nobody has heard of us for too long, others may be given what is ours: we stop it."""
        held = self._in_hand()
        if held and not self.trusted and not self._let_go:
            self._let_go = True
            self._events.emit("worker_cut_off", worker=self._card().worker, count=len(held))
            self._runner.stop(frozenset(held), why=Result.LOST)
