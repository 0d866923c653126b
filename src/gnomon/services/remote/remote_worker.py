"""What has come to a worker elsewhere, and what it has to say of it."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import suppress

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gnomon.config.settings import Settings
from gnomon.core.leases import LEASE_START_FRACTION
from gnomon.core.messages import (
    MAX_MESSAGE_BYTES,
    EndedReport,
    StartedReport,
    TaskMessage,
    WorkerReport,
    assignment_of,
    decode_task_message,
    encode_worker_report,
    ended_report_of,
)
from gnomon.core.model import Result, TaskId
from gnomon.core.runs.outcomes import Assignment, AttemptOutcome
from gnomon.core.runs.workflow import Delivery
from gnomon.errors import FieldError, Unavailable
from gnomon.ports.execution import Runner
from gnomon.ports.messaging import InboundMessage, StartGrant, StartRequest, WorkerBus
from gnomon.ports.runtime import Clock, Events
from gnomon.ports.tasks import AttemptRef, HostLoad, WorkerInfo
from gnomon.services.execution.completions import drain_runner
from gnomon.services.execution.worker_registration import WorkerRegistration
from gnomon.services.loop import Backoff
from gnomon.services.remote.heartbeat import HeartbeatHooks, HeartbeatSender


class HeldTask(Struct):
    """An assignment, the message that brought it, and when it came."""

    assignment: Assignment
    delivered: InboundMessage
    received_at: float
    #: After this instant it is not begun, and after this one not without being granted: by then it may be cancelled.
    deadline: int
    grant_required_from: int
    #: How often the bus may have forgotten whom it gave what, when it came.
    delivery_gaps: int
    #: Whether it may still be begun, whether a server has granted it, and why it is not begun here although it may be.
    pending: bool = True
    granted: bool = False
    refusal: str | None = None

    @property
    def held(self) -> AttemptRef:
        """Its task and attempt."""
        return self.assignment.task.task_id, self.assignment.task.fence

    @property
    def doubtful(self) -> bool:
        """Whether somebody else may have been given it before."""
        return self.delivered.doubtful or self.delivered.tries > 1


class PendingReport(Struct, frozen=True):
    """A report that is being made: what is begun and let go of once it is kept."""

    name: str
    body: bytes
    starts: Sequence[HeldTask]
    ends: Sequence[AttemptRef]


#: How often a worker that stops shows that it is still there.
_HEARTBEAT_SECONDS = 1.0
#: How long one pull waits, and a worker that has no room or no server.
_PULL_MS = 500
_IDLE_SECONDS = 1.0
#: What it has done lately: whatever comes of it again is not for us.
_MAX_DONE = 100_000
#: For so long after it was sent a task is begun without being granted.
_UNGRANTED_START_MS = 2_000
#: By so much ours may differ from a server's.
_MAX_CLOCK_SKEW_MS = 1_000
#: In one message, unless a single end takes more.
_MOST_BYTES = 512 * 1024

_GRANT_DECODER = msgspec.json.Decoder(StartGrant)


class RemoteWorker:
    """One holder of attempts, by a name that no other start of a process has ever had."""

    def __init__(  # noqa: PLR0913 - all of its collaborators
        self,
        queue: WorkerBus,
        runner: Runner,
        clock: Clock,
        events: Events,
        *,
        settings: Settings,
        worker: str,
        wake: asyncio.Event,
        measure_load: Callable[[], HostLoad],
        on_server_time: Callable[[int, int], None],
    ) -> None:
        """`wake` is set when something has arrived or ended: the runner sets it, too.

        `on_server_time` is called with the time of the server that answers a heartbeat, and with ours when we asked.
        """
        self._queue = queue
        self._runner = runner
        self._clock = clock
        self._events = events
        self._settings = settings.worker
        self.worker = worker
        #: How it presents itself to servers.
        self.registration = WorkerRegistration(
            settings.worker, worker, started_at=clock.now(), measure_load=measure_load
        )
        self._held: dict[AttemptRef, HeldTask] = {}
        self._done: OrderedDict[AttemptRef, None] = OrderedDict()
        #: Come and not yet begun: what may simply begin, and what must be granted first.
        self._new: list[HeldTask] = []
        self._awaiting_grant: list[HeldTask] = []
        self._ended: list[EndedReport] = []
        self._not_ours: list[AttemptRef] = []
        self._unreadable: list[InboundMessage] = []
        self._pending_report: PendingReport | None = None
        self._count = 0
        self._looked_at = float("-inf")
        self._draining = False
        self._wake = wake
        self._slot_freed = asyncio.Event()
        self.backoff = Backoff(events, "worker")
        self._pulling = Backoff(events, "worker")
        self.heartbeat = HeartbeatSender(
            queue,
            runner,
            clock,
            events,
            lease_ms=settings.worker.lease_ms,
            card=self._card,
            in_hand=self._in_hand,
            hooks=HeartbeatHooks(
                on_trusted=self._trusted,
                on_lost=self._lost,
                on_cancelled=self._cancelled,
                on_server_time=on_server_time,
            ),
        )
        #: What was sent before then the bus may have given to others, and have forgotten so before we came.
        self._trusted_since: int | None = None

    @property
    def in_hand(self) -> int:
        """How many attempts it has not reported the end of."""
        return len(self._held)

    # ---- getting tasks -----------------------------------------------------------------------

    async def pull(self) -> float:
        """Get as many tasks as there are free slots. Returns how many seconds to wait before the next."""
        free = self._settings.slots - max(len(self._held), self._runner.occupied)
        if free <= 0 or self._draining or not self.heartbeat.trusted:
            return _IDLE_SECONDS
        try:
            delivered = await self._queue.pull(limit=free, wait_ms=_PULL_MS)
            await self._accept_deliveries(delivered)
        except Unavailable as error:
            return self._pulling.failed(error)
        self._pulling.worked()
        return 0.0

    async def _accept_deliveries(self, delivered: Sequence[InboundMessage]) -> None:
        """What has come is ours to begin, or to ask about; what is not is let go of."""
        not_ours = []
        for one in delivered:
            try:
                order = decode_task_message(one.body)
            except FieldError:
                self._unreadable.append(one)
                continue
            if not self._accepts(order, one):
                not_ours.append(one)
        if delivered:
            self._wake.set()
        if not_ours:
            await self._queue.acknowledge(not_ours)

    def _accepts(self, order: TaskMessage, delivered: InboundMessage) -> bool:
        held = TaskId(order.task_id), order.fence
        if held in self._held:
            # The bus has lost patience, but it is us who work on it. What was in doubt stays in doubt.
            ours = self._held[held]
            ours.delivered = replace(delivered, doubtful=ours.doubtful or delivered.doubtful)
            return True
        once = order.delivery is Delivery.AT_MOST_ONCE
        if held in self._done or (delivered.tries > 1 and not once):
            # Someone else may have begun it. If not, it is offered again once its lease has ended.
            return False
        sent_at = order.deadline - int(self.heartbeat.lease_ms * LEASE_START_FRACTION)
        if delivered.handle is not None and (self._trusted_since is None or sent_at <= self._trusted_since):
            # Unless it is for us alone.
            delivered = replace(delivered, doubtful=True)
        now, doubts = self._clock.elapsed(), self._queue.delivery_gaps
        came = HeldTask(assignment_of(order), delivered, now, order.deadline, sent_at + _UNGRANTED_START_MS, doubts)
        self._held[held] = came
        came.refusal = self._refusal(order)
        if came.refusal is not None and not came.doubtful:
            self._report_never_started(came, came.refusal)
        elif once or came.doubtful or self._clock.now() > came.grant_required_from:
            self._awaiting_grant.append(came)
        else:
            self._new.append(came)
        return True

    def _refusal(self, order: TaskMessage) -> str | None:
        """Why it is not begun here, if so."""
        if self._clock.now() > order.deadline:
            return f"it reached {self.worker} too late"
        if order.function not in self._runner.functions:
            return f"no_workers: {self.worker} has no function {order.function!r}"
        return f"{self.worker} stops" if self._draining else None

    def _report_never_started(self, came: HeldTask, reason: str) -> None:
        came.pending = False
        if came.doubtful and not came.granted:
            # Somebody else may have begun it: what becomes of it is not for us to say.
            self._not_ours.append(came.held)
            return
        self._ended.append(ended_report_of(came.assignment, AttemptOutcome(result=Result.NEVER_STARTED, error=reason)))

    # ---- doing and saying --------------------------------------------------------------------

    async def step(self) -> float:
        """Report what has ended and what begins, and begin it. Returns how many seconds to wait before the next."""
        self.heartbeat.stop_if_lease_lost()
        self._ended += [ended_report_of(one.assignment, one.outcome) for one in self._runner.finished()]
        try:
            await self._send_report()
            await self._pass_on_unreadable()
            await self._request_grants()
            await self._release_not_ours()
        except Unavailable as error:
            return self.backoff.failed(error)
        self.backoff.worked()
        return 0.0 if self._ended or self._new else _IDLE_SECONDS

    async def _send_report(self) -> None:
        """What begins and what has ended is kept by the bus; then it is begun, and let go of."""
        if self._pending_report is None:
            self._pending_report = self._next_report()
        saying = self._pending_report
        if saying is None:
            return
        await self._queue.report(saying.name, saying.body)
        self._pending_report = None
        self._begin(self._at_once(saying.starts))
        gone = [self._held.pop(held).delivered for held in saying.ends if held in self._held]
        self._remember(saying.ends)
        self.heartbeat.recently_reported += saying.ends
        if gone:
            self._slot_freed.set()
            # If the bus does not hear it, they come again, and are known.
            await self._queue.acknowledge(gone)

    def _next_report(self) -> PendingReport | None:
        """All that there is to say, as far as it fits into a message. It is said again under the same name."""
        starts, self._new = self._still_ours(self._new), []
        ended, size = 0, 0
        for one in self._ended:
            size += 200 + len(one.output or b"") + sum(len(line.text) + 60 for line in one.logs)
            if ended and size > _MOST_BYTES:
                break
            ended += 1
        ends, self._ended = self._ended[:ended], self._ended[ended:]
        if not starts and not ends:
            return None
        self._count += 1
        name = f"{self.worker}:{self._count}"
        begun = tuple(StartedReport(*one.held) for one in starts)
        reports = WorkerReport(worker=self.worker, started=begun, ended=tuple(ends))
        body = encode_worker_report(reports, message_id=name, now=self._clock.now())
        return PendingReport(name, body, starts, [(one.task_id, one.fence) for one in ends])

    def _at_once(self, come: Sequence[HeldTask]) -> list[HeldTask]:
        """Those that nobody else can have been given or cancelled; the others are to be granted first."""
        now, doubts = self._clock.now(), self._queue.delivery_gaps
        for one in come:
            if one.delivery_gaps < doubts:
                # The bus may have given it to somebody else, whom a server may have granted it before it heard of us.
                one.delivered = replace(one.delivered, doubtful=True)
        self._awaiting_grant += [
            one for one in come if one.pending and (one.delivery_gaps < doubts or now > one.grant_required_from)
        ]
        return [one for one in come if one.delivery_gaps >= doubts and now <= one.grant_required_from]

    def _begin(self, come: Sequence[HeldTask]) -> None:
        ours = self._still_ours(come)
        for one in ours:
            one.pending = False
            if one.refusal is not None:
                self._report_never_started(one, one.refusal)
        able = [one.assignment for one in ours if one.refusal is None]
        if able:
            self._runner.start(able)

    def _still_ours(self, come: Iterable[HeldTask]) -> list[HeldTask]:
        """Those that nobody else can have been given meanwhile; of the others we say that we never began."""
        now, oldest = self._clock.now(), self._clock.elapsed() - self.heartbeat.lease_ms / 1000 * LEASE_START_FRACTION
        ours = []
        # What was taken from us meanwhile has been spoken of.
        for one in [one for one in come if one.pending]:
            if one.received_at > oldest and now <= one.deadline and self.heartbeat.trusted and not self._draining:
                ours.append(one)
            else:
                self._report_never_started(one, f"{self.worker} stood still or stopped before it could start")
        return ours

    async def _request_grants(self) -> None:
        """What must not be started twice is begun if a server grants it, and otherwise never."""
        self._awaiting_grant = self._still_ours(self._awaiting_grant)
        # Looked at once: what comes again while we ask for it has become doubtful, and is not asked for twice.
        sure = [one for one in self._awaiting_grant if not one.doubtful]
        unsure = [one for one in self._awaiting_grant if one.doubtful]
        # What nobody else has seen does not wait for what others may have begun.
        await self._request_start(sure, doubtful=False)
        await self._request_start(unsure, doubtful=True)

    async def _request_start(self, wanted: Sequence[HeldTask], *, doubtful: bool) -> None:
        """They are begun, or not ours. As long as there is no answer they are wished for."""
        if not wanted:
            return
        asked = frozenset(one.held for one in wanted)
        wish = StartRequest(worker=self.worker, held=tuple(asked), doubtful=doubtful)
        granted = frozenset(_GRANT_DECODER.decode(await self._queue.ask(msgspec.json.encode(wish))).held)
        self._awaiting_grant = [one for one in self._awaiting_grant if one.held not in asked]
        ours = [one for one in wanted if one.held in granted]
        for one in ours:
            one.granted = True
        # But for those that were taken from us meanwhile.
        self._begin(ours)
        self._not_ours += [one.held for one in self._taken_back(asked - granted)]

    async def _release_not_ours(self) -> None:
        """What is not ours to begin is not ours to keep."""
        others, self._not_ours = self._not_ours, []
        gone = [self._held.pop(held).delivered for held in others if held in self._held]
        self._remember(others)
        if gone:
            self._slot_freed.set()
            await self._queue.acknowledge(gone)

    async def _pass_on_unreadable(self) -> None:
        """What we can make nothing of goes to a server as it is: it will be kept for people."""
        while self._unreadable:
            one = self._unreadable[0]
            self._count += 1
            await self._queue.report(f"{self.worker}:{self._count}", one.body[:MAX_MESSAGE_BYTES])
            await self._queue.terminate([one])
            del self._unreadable[0]

    def _remember(self, ends: Iterable[AttemptRef]) -> None:
        self._done |= dict.fromkeys(ends)
        while len(self._done) > _MAX_DONE:
            self._done.popitem(last=False)

    # ---- being there -------------------------------------------------------------------------

    def _card(self) -> WorkerInfo:
        card = self.registration.card(self._runner.functions, in_hand=len(self._held), draining=self._draining)
        return replace(card, slots=max(0, card.slots - self._runner.overrunning))

    def _trusted(self) -> None:
        if self._trusted_since is None:
            self._trusted_since = self._clock.now() + _MAX_CLOCK_SKEW_MS
        self._slot_freed.set()

    def _in_hand(self) -> dict[AttemptRef, InboundMessage]:
        return {held: one.delivered for held, one in self._held.items()}

    def _lost(self, lost: Collection[AttemptRef]) -> None:
        """What has been taken from us, and is not begun yet, is not begun."""
        self._not_ours += [one.held for one in self._taken_back(lost)]

    def _cancelled(self, cancelled: Collection[AttemptRef]) -> None:
        """What is to be cancelled, and is not begun yet, is not begun."""
        for one in self._taken_back(cancelled):
            if one.doubtful:
                self._not_ours.append(one.held)
            else:
                outcome = AttemptOutcome(result=Result.CANCELLED, error="cancelled before it began")
                self._ended.append(ended_report_of(one.assignment, outcome))

    def _taken_back(self, held: Collection[AttemptRef]) -> list[HeldTask]:
        """Those of them that waited to be begun, also for an answer; they do no longer."""
        back = [one for name in held if (one := self._held.get(name)) is not None and one.pending]
        for one in back:
            one.pending = False
        self._new = [one for one in self._new if one.pending]
        self._awaiting_grant = [one for one in self._awaiting_grant if one.pending]
        return back

    async def drain(self) -> None:
        """Nothing more is taken, what runs has ended one way or another, and all of it is reported."""
        self._draining = True
        with suppress(Unavailable):
            await self._accept_deliveries(await self._queue.stop_pulling())
        await self.heartbeat.send(at_once=True)
        await drain_runner(self._runner, self._settings, self._clock, self._once, reported=lambda: not self._held)
        with suppress(Unavailable):
            await self.heartbeat.deregister()

    async def _once(self) -> None:
        await self.step()
        if self._clock.elapsed() - self._looked_at >= _HEARTBEAT_SECONDS:
            self._looked_at = self._clock.elapsed()
            await self.heartbeat.send()

    def loops(self) -> list[tuple[str, Callable[[], Awaitable[float]], asyncio.Event | None]]:
        """The loops of a worker: the component that each reports to, its step, and the event that wakes it."""
        return [
            ("worker", self.pull, self._slot_freed),
            ("worker", self.step, self._wake),
            ("heartbeat", self.heartbeat.send, None),
        ]
