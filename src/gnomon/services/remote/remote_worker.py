"""A worker without access to the store: it gets tasks, reports, and renews its leases over a message bus.

See result_consumer.py for the protocol, and for why no attempt counts twice.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import suppress

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gnomon.config.settings import Settings
from gnomon.core import component_names
from gnomon.core.leases import LEASE_START_FRACTION
from gnomon.core.messages import (
    MAX_MESSAGE_BYTES,
    MOST_ENDED,
    MOST_PROGRESS,
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
from gnomon.core.payloads import has_sealed_field
from gnomon.core.runs.outcomes import Assignment, AttemptOutcome
from gnomon.core.runs.workflow import Delivery
from gnomon.errors import FieldError, Unavailable
from gnomon.ports.execution import Runner
from gnomon.ports.messaging import InboundMessage, StartGrant, StartRequest, WorkerBus
from gnomon.ports.payloads import PayloadCipher
from gnomon.ports.runtime import Clock, Events
from gnomon.ports.tasks import AttemptRef, HostLoad, WorkerInfo
from gnomon.services.execution.completions import drain_runner
from gnomon.services.execution.worker_registration import WorkerRegistration
from gnomon.services.loop import Backoff
from gnomon.services.remote.heartbeat import HeartbeatHooks, HeartbeatSender
from gnomon.services.remote.progress_outbox import ProgressOutbox
from gnomon.services.remote.sealed_messages import MessageSealer


class HeldTask(Struct):
    """A task that has arrived: its assignment, its message, and when it came."""

    assignment: Assignment
    delivered: InboundMessage
    received_at: float
    #: After the first instant it does not start; after the second one only with a grant: it may be cancelled by then.
    deadline: int
    grant_required_from: int
    #: The delivery gaps of the bus when it came.
    delivery_gaps: int
    #: Whether it may still start, whether a server has granted that, and why it does not start here although it may.
    pending: bool = True
    granted: bool = False
    refusal: str | None = None

    @property
    def held(self) -> AttemptRef:
        """Its task and fencing token."""
        return self.assignment.task.task_id, self.assignment.task.fence

    @property
    def doubtful(self) -> bool:
        """Whether another worker may have been given it before."""
        return self.delivered.doubtful or self.delivered.tries > 1


class PendingReport(Struct, frozen=True):
    """A report that is being sent, with the tasks that start and the attempts that are released once the bus has it."""

    name: str
    body: bytes
    starts: Sequence[HeldTask]
    ends: Sequence[AttemptRef]


#: How often a worker that drains sends a heartbeat.
_HEARTBEAT_SECONDS = 1.0
#: How long one pull waits, and how long a worker waits that has no free slot or no server.
_PULL_MS = 500
_IDLE_SECONDS = 1.0
#: How many released attempts it remembers: if one is delivered again, it is not for this worker.
_MAX_DONE = 100_000
#: For so long after it was sent a task may start without a grant.
_UNGRANTED_START_MS = 2_000
#: How much the clocks of worker and server may differ.
_MAX_CLOCK_SKEW_MS = 1_000
#: The size of a report, unless a single result is larger.
_MOST_BYTES = 512 * 1024

_GRANT_DECODER = msgspec.json.Decoder(StartGrant)


class RemoteWorker:
    """Holds attempts under a name that is unique for every start of a process."""

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
        cipher: PayloadCipher | None = None,
        progress: ProgressOutbox | None = None,
    ) -> None:
        """`wake` is set when something has arrived or ended: the runner sets it, too.

        `on_server_time` is called with the time of the server that answers a heartbeat, and with ours when we asked.
        With `cipher` inputs are decrypted and outputs are encrypted. The runner writes to `progress`.
        """
        self._progress = ProgressOutbox(wake) if progress is None else progress
        self._sealer = MessageSealer(cipher)
        self._queue = queue
        self._runner = runner
        self._clock = clock
        self._events = events
        self._settings = settings.worker
        self.worker = worker
        #: The description of this worker for the servers.
        self.registration = WorkerRegistration(
            settings.worker, worker, started_at=clock.now(), measure_load=measure_load
        )
        self._held: dict[AttemptRef, HeldTask] = {}
        self._done: OrderedDict[AttemptRef, None] = OrderedDict()
        #: Tasks that have arrived and not started: those that may start, and those that need a grant first.
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
        self.backoff = Backoff(events, component_names.WORKER)
        self._pulling = Backoff(events, component_names.WORKER)
        self.heartbeat = self._build_heartbeat(on_server_time)
        #: The bus may have delivered messages from before then to other workers, and have forgotten it.
        self._trusted_since: int | None = None

    def _build_heartbeat(self, on_server_time: Callable[[int, int], None]) -> HeartbeatSender:
        return HeartbeatSender(
            self._queue,
            self._runner,
            self._clock,
            self._events,
            lease_ms=self._settings.lease_ms,
            renewals=self._settings.renewals,
            card=self._card,
            in_hand=self._in_hand,
            hooks=HeartbeatHooks(
                on_trusted=self._trusted,
                on_lost=self._lost,
                on_cancelled=self._cancelled,
                on_server_time=on_server_time,
            ),
        )

    @property
    def in_hand(self) -> int:
        """How many attempts it holds, that is, has not reported the end of."""
        return len(self._held)

    # ---- receiving tasks ---------------------------------------------------------------------

    async def pull(self) -> float:
        """Get as many tasks as there are free slots. Returns how many seconds to wait before the next pull."""
        free = self._settings.slots - max(len(self._held), self._runner.occupied)
        if free <= 0 or self._draining or not self.heartbeat.trusted:
            return _IDLE_SECONDS
        try:
            directed_only = self.heartbeat.relieved
            delivered = await self._queue.pull(limit=free, wait_ms=_PULL_MS, directed_only=directed_only)
            await self._accept_deliveries(delivered)
        except Unavailable as error:
            return self._pulling.failed(error)
        self._pulling.worked()
        return 0.0

    async def _accept_deliveries(self, delivered: Sequence[InboundMessage]) -> None:
        """Hold the tasks that this worker may start or ask for, and acknowledge the others."""
        not_ours = []
        for one in delivered:
            try:
                order = self._sealer.unseal_task(decode_task_message(one.body))
            except FieldError:
                self._unreadable.append(one)
                continue
            if not self._is_addressed(order, one):
                self._unreadable.append(one)
                continue
            if not self._accepts(order, one):
                not_ours.append(one)
        if delivered:
            self._wake.set()
        if not_ours:
            await self._queue.acknowledge(not_ours)

    def _is_addressed(self, order: TaskMessage, delivered: InboundMessage) -> bool:
        """Whether a server sent this message here. A copy may have reached another worker, too, which starts it."""
        if delivered.handle is None:
            return order.to in (None, self.worker)
        return not order.to and delivered.name == order.name

    def _accepts(self, order: TaskMessage, delivered: InboundMessage) -> bool:
        held = TaskId(order.task_id), order.fence
        if held in self._held:
            # The bus delivers again what this worker already holds. If it was doubtful, it stays so.
            ours = self._held[held]
            ours.delivered = replace(delivered, doubtful=ours.doubtful or delivered.doubtful)
            return True
        once = order.delivery is Delivery.AT_MOST_ONCE
        if held in self._done or (delivered.tries > 1 and not once):
            # Another worker may have started it. If none has, it is dispatched again once its lease has ended.
            return False
        sent_at = order.deadline - int(self.heartbeat.lease_ms * LEASE_START_FRACTION)
        if delivered.handle is not None and (self._trusted_since is None or sent_at <= self._trusted_since):
            # Unless it was sent to this worker only.
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
        """Why the task does not start here; None if it may."""
        if self._clock.now() > order.deadline:
            return f"it reached {self.worker} too late"
        if order.function not in self._runner.functions:
            return f"no_workers: {self.worker} has no function {order.function!r}"
        if has_sealed_field(order.input):
            return f"no_workers: {self.worker} has no key for the encrypted input"
        return f"{self.worker} stops" if self._draining else None

    def _report_never_started(self, came: HeldTask, reason: str) -> None:
        came.pending = False
        if came.doubtful and not came.granted:
            # Another worker may have started it: this one must not report how it ended.
            self._not_ours.append(came.held)
            return
        self._ended.append(ended_report_of(came.assignment, AttemptOutcome(result=Result.NEVER_STARTED, error=reason)))

    # ---- starting and reporting ------------------------------------------------------------------

    async def step(self) -> float:
        """Report ended and starting attempts, and start them. Returns how many seconds to wait before the next step."""
        self.heartbeat.stop_if_lease_lost()
        ended = [ended_report_of(one.assignment, one.outcome) for one in self._runner.finished()]
        self._ended += map(self._sealer.seal_report, ended)
        try:
            await self._send_report()
            await self._pass_on_unreadable()
            await self._request_grants()
            await self._release_not_ours()
        except Unavailable as error:
            return self.backoff.failed(error)
        self.backoff.worked()
        return 0.0 if self._ended or self._new or not self._progress.is_empty else _IDLE_SECONDS

    async def _send_report(self) -> None:
        """Send a report. Once the bus has stored it, start its tasks, and release its ended attempts."""
        if self._pending_report is None:
            self._pending_report = self._next_report()
        report = self._pending_report
        if report is None:
            return
        await self._queue.report(report.name, report.body)
        self._pending_report = None
        self._begin(self._at_once(report.starts))
        gone = [self._held.pop(held).delivered for held in report.ends if held in self._held]
        self._remember(report.ends)
        self.heartbeat.record_reported(report.ends)
        if gone:
            self._slot_freed.set()
            # If this is lost, they are delivered again, and recognised.
            await self._queue.acknowledge(gone)

    def _next_report(self) -> PendingReport | None:
        """The next report, as large as fits into a message. A retry uses the same message id."""
        starts, self._new = self._still_ours(self._new), []
        ended, size = 0, 0
        for one in self._ended:
            size += 200 + len(one.output or b"") + sum(len(line.text) + 60 for line in one.logs)
            if ended and (size > _MOST_BYTES or ended == MOST_ENDED):
                break
            ended += 1
        ends, self._ended = self._ended[:ended], self._ended[ended:]
        progress = self._progress.take(besides=((one.task_id, one.fence) for one in ends), limit=MOST_PROGRESS)
        if not starts and not ends and not progress:
            return None
        self._count += 1
        name = f"{self.worker}:{self._count}"
        begun = tuple(StartedReport(*one.held) for one in starts)
        reports = WorkerReport(
            worker=self.worker,
            started=begun,
            ended=tuple(ends),
            progress=tuple(one for one in progress if one.spent is not None),
            log_progress=tuple(one for one in progress if one.spent is None),
        )
        body = encode_worker_report(reports, message_id=name, now=self._clock.now())
        return PendingReport(name, body, starts, [(one.task_id, one.fence) for one in ends])

    def _at_once(self, come: Sequence[HeldTask]) -> list[HeldTask]:
        """Those that no other worker can have been given and that cannot be cancelled; the others wait for a grant."""
        now, doubts = self._clock.now(), self._queue.delivery_gaps
        for one in come:
            if one.delivery_gaps < doubts:
                # The bus may have delivered it to another worker, which may have a grant since before our report.
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
        """Those that no other worker can have been given meanwhile; the others are reported as never started."""
        now, oldest = self._clock.now(), self._clock.elapsed() - self.heartbeat.lease_ms / 1000 * LEASE_START_FRACTION
        ours = []
        # Those that are no longer pending have been reported.
        for one in [one for one in come if one.pending]:
            if one.received_at > oldest and now <= one.deadline and self.heartbeat.trusted and not self._draining:
                ours.append(one)
            else:
                self._report_never_started(one, f"{self.worker} stood still or stopped before it could start")
        return ours

    async def _request_grants(self) -> None:
        """Ask for grants; start the tasks that a server grants, and release the others."""
        self._awaiting_grant = self._still_ours(self._awaiting_grant)
        # Split first: a task that is delivered again meanwhile becomes doubtful, and must not be asked for twice.
        sure = [one for one in self._awaiting_grant if not one.doubtful]
        unsure = [one for one in self._awaiting_grant if one.doubtful]
        # Tasks that no other worker has seen do not wait for doubtful ones.
        await self._request_start(sure, doubtful=False)
        await self._request_start(unsure, doubtful=True)

    async def _request_start(self, wanted: Sequence[HeldTask], *, doubtful: bool) -> None:
        """Ask a server for grants. Without an answer the tasks keep waiting for one."""
        if not wanted:
            return
        asked = frozenset(one.held for one in wanted)
        request = StartRequest(worker=self.worker, held=tuple(asked), doubtful=doubtful)
        granted = frozenset(_GRANT_DECODER.decode(await self._queue.ask(msgspec.json.encode(request))).held)
        self._awaiting_grant = [one for one in self._awaiting_grant if one.held not in asked]
        ours = [one for one in wanted if one.held in granted]
        for one in ours:
            one.granted = True
        # Except for those that were lost or cancelled meanwhile.
        self._begin(ours)
        self._not_ours += [one.held for one in self._taken_back(asked - granted)]

    async def _release_not_ours(self) -> None:
        """Acknowledge the messages of tasks that this worker must not start."""
        others, self._not_ours = self._not_ours, []
        gone = [self._held.pop(held).delivered for held in others if held in self._held]
        self._remember(others)
        if gone:
            self._slot_freed.set()
            await self._queue.acknowledge(gone)

    async def _pass_on_unreadable(self) -> None:
        """Report unreadable messages to a server as they are: it keeps them as dead letters."""
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

    # ---- being alive -------------------------------------------------------------------------

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
        """Do not start lost tasks that have not started yet."""
        self._not_ours += [one.held for one in self._taken_back(lost)]

    def _cancelled(self, cancelled: Collection[AttemptRef]) -> None:
        """Do not start cancelled tasks that have not started yet, and report them as cancelled."""
        for one in self._taken_back(cancelled):
            if one.doubtful:
                self._not_ours.append(one.held)
            else:
                outcome = AttemptOutcome(result=Result.CANCELLED, error="cancelled before it began", never_began=True)
                self._ended.append(ended_report_of(one.assignment, outcome))

    def _taken_back(self, held: Collection[AttemptRef]) -> list[HeldTask]:
        """Those of the attempts that have not started; they are no longer pending."""
        back = [one for name in held if (one := self._held.get(name)) is not None and one.pending]
        for one in back:
            one.pending = False
        self._new = [one for one in self._new if one.pending]
        self._awaiting_grant = [one for one in self._awaiting_grant if one.pending]
        return back

    async def drain(self) -> None:
        """Pull nothing more, wait for running attempts or stop them, report all of them, and deregister."""
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
            (component_names.WORKER, self.pull, self._slot_freed),
            (component_names.WORKER, self.step, self._wake),
            (component_names.HEARTBEAT, self.heartbeat.send, None),
        ]
