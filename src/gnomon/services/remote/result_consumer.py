"""The result consumer: writes what remote workers report, and answers their heartbeats and start requests.

Fencing over NATS: why a task that travels over an unreliable bus has one result.

Purpose. A remote worker has no access to the store. A server takes a task for it: the attempt gets a *fence*, a number
that grows by one with every attempt of the task, and a lease. The task message carries the fence, and a deadline
within the lease. The worker reports the start and the end of the attempt with its fence; the result consumer writes
them. The store accepts a start or an end only if the task is still open under that fence. A report of an older attempt
is announced as `late_result` and changes nothing.

Why. The bus may lose, repeat, delay and reorder messages, and may even forget after a restart which worker it gave a
message to. Worker and server may be suspended or cut off from each other. None of this can be prevented, so that
correctness must not depend on it: every message may arrive any number of times, and the fence in the store decides.
The deduplicator only saves work, may forget, and may lie: before a report counts as processed, the store is asked.

Who. The body of a message is not believed about its sender. The bus decides who may publish on which subject, and the
subject names the worker; a message that names another one is refused. The store accepts an end, a start or a renewal
only from the worker that holds the attempt (`core/worker_ids.py`).

The result is not enough, though: a body should also not *run* twice at the same time. So:

- A worker starts a task without asking only if no other can have been given it: first delivery, no doubt about the
  memory of the bus (`delivery_gaps`, messages from before the worker was trusted), and no more than 2 s old.
- Otherwise, and always for `at_most_once` steps, it asks for a grant. The server writes the start under the name of
  the worker first, and only one worker gets it. For a doubtful task the server first waits until all reports that had
  arrived are written (`wait_caught_up`): one of them may be the start by another worker.
- A task does not start after half of its lease: then the first renewal is still in time.
- The worker renews its leases with heartbeats. Without an answer for 0.8 of a lease it stops its attempts, before a
  server may count them as lost and dispatch them again. The reconciler in turn waits for pending reports before it
  does so.

A message is acknowledged only after its reports are written. If a server dies in between, another one gets it again,
and the fence makes writing it twice harmless.

Without it. If there were no fence, the late report of a worker that was thought dead would end the attempt
of its successor: a result that never happened. Without grants an `at_most_once` step could run on two workers. Without
the 0.8 rule a worker that is cut off would go on while its successor already runs.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from gnomon.config.settings import Settings
from gnomon.core import component_names
from gnomon.core.messages import EndedReport, Envelope, WorkerReport, decode_worker_report
from gnomon.core.model import Result
from gnomon.core.runs.admission import ReadyTask
from gnomon.core.runs.outcomes import Assignment, AttemptOutcome, TaskCompletion, complete_attempt
from gnomon.core.runs.prepare import immediate_successors
from gnomon.core.runs.progress import checked_progress
from gnomon.core.runs.states import TaskState
from gnomon.core.subjects import SCHEDULERS, check_sender, delivery_times
from gnomon.core.worker_ids import enrolled_pool, identity_of
from gnomon.errors import FieldError, Unavailable
from gnomon.ports.coordination import IN_FLIGHT_MS, Deduplicator, DedupState
from gnomon.ports.execution import Finished, Gate
from gnomon.ports.messaging import (
    HeartbeatReply,
    HeartbeatRequest,
    InboundMessage,
    ReportInbox,
    StartGrant,
    StartRequest,
)
from gnomon.ports.output_policy import OutputPolicy
from gnomon.ports.payloads import PayloadCipher
from gnomon.ports.runtime import Clock, Events
from gnomon.ports.store import ExecutionStore
from gnomon.ports.tasks import AttemptRef, HostLoad, WorkerInfo
from gnomon.services.execution.completions import CompletionWriter, load_assignment, placeholder_assignment
from gnomon.services.execution.dispatcher import give_up_limits
from gnomon.services.execution.gate_client import OutputGate, attempt_ref
from gnomon.services.execution.kept_progress import keep_progress
from gnomon.services.execution.local_dispatch import LocalDispatch
from gnomon.services.execution.workflow_cache import WorkflowCache
from gnomon.services.loop import Backoff, yield_between_batches
from gnomon.services.observed_events import ThrottledEvents
from gnomon.services.remote.busy_reports import BusyReports
from gnomon.services.remote.registry_limits import WorkerRegistryLimits
from gnomon.services.remote.report_turns import ReportTurns
from gnomon.services.remote.sealed_messages import MessageSealer
from gnomon.services.remote.task_publisher import TaskPublisher
from gnomon.services.remote.worker_checks import check_worker_info

#: Results without an execution: they say nothing about an attempt that another worker has started.
_NOT_EXECUTED = frozenset((Result.NEVER_STARTED, Result.DENIED, Result.CANCELLED, Result.INTERRUPTED, Result.LOST))
#: How many messages are processed together, and how long to wait for the first.
_MESSAGES = 50
_WAIT_MS = 250
#: How many messages are read together while more wait than are processed together, to find those of other workers.
_READ_AHEAD = 500
#: How many starts and ends are written together: more would delay all other writes.
_MAX_REPORTS_PER_WRITE = 1000
#: After how many ends other coroutines run, such as API requests.
_YIELD_EVERY = 25
#: How soon reports are delivered again that were read ahead, but are too many to wait here.
_EXCESS_AGAIN_MS = 2_000
#: The gate has at most this part of a lease to decide about an output.
_GATE_LEASE_SHARE = 4
#: The longest time between two looks at the answers of the gate.
_IDLE_SECONDS = 10.0
#: How many registrations are remembered, so that only changes are announced. Every start of a process is a new worker.
_MOST_WORKERS = 10_000
#: The slots of a worker are limited to this number.
_MOST_SLOTS = 100_000

#: How often a message may be delivered that cannot be written, before it is a dead letter.
_MAX_DELIVERIES = 100

_Message = tuple[InboundMessage, Envelope[WorkerReport]]
_HEARTBEAT_DECODER = msgspec.json.Decoder(HeartbeatRequest)
_START_REQUEST_DECODER = msgspec.json.Decoder(StartRequest)


class ResultConsumer:
    """Reads reports, writes what follows from them, and only then acknowledges them."""

    def __init__(  # noqa: PLR0913 - all that a report passes on its way
        self,
        store: ExecutionStore,
        workflow_cache: WorkflowCache,
        queue: ReportInbox,
        gate: Gate,
        deduplicator: Deduplicator,
        clock: Clock,
        events: Events,
        *,
        settings: Settings,
        publisher: TaskPublisher,
        dispatch: LocalDispatch,
        on_started: Callable[[Sequence[Assignment]], None],
        on_workers_changed: Callable[[], None],
        output_policy: OutputPolicy | None = None,
        cipher: PayloadCipher | None = None,
    ) -> None:
        """`on_started` is called with the assignments that workers have started.

        `on_workers_changed` is called when a worker registers, leaves, or changes what it can run. With `cipher`
        encrypted outputs are decrypted. `output_policy` checks them before they are stored; None: nothing does.
        """
        self._output_policy = output_policy
        self._sealer = MessageSealer(cipher)
        self._store = store
        self._workflow_cache = workflow_cache
        self._queue = queue
        #: The reports that were read; whether there may be more than are processed together.
        self._turns, self._behind = ReportTurns(), False
        #: Set when the gate was asked, or has decided, about an output.
        self.wake = asyncio.Event()
        timeout_ms = _gate_timeout_ms(settings)
        self._outputs = OutputGate(
            gate, clock, events, timeout_ms=timeout_ms, on_answer=self.wake.set, policy=output_policy
        )
        #: Messages with endings whose output is with the gate, and the attempts that they wait for.
        self._unreleased: list[tuple[_Message, set[AttemptRef]]] = []
        self._renewed_at = float("-inf")
        #: Knows the messages that were processed: one that is delivered again is not written again.
        self._deduplicator = deduplicator
        self._clock = clock
        #: Workers cause these events: without a limit, one could fill the log.
        self._refusals = ThrottledEvents(events, clock)
        self._lease_ms, self._renewals = settings.worker.lease_ms, settings.worker.renewals
        self._nats = settings.nats
        self._in_flight_ms = _in_flight_ms(settings)
        #: The reports that another server is processing.
        self._busy = BusyReports(clock, in_flight_ms=self._in_flight_ms, retry_ms=self._nats.busy_retry_ms)
        self._limits = give_up_limits(settings.execution)
        self._completions = CompletionWriter(store.attempts, events, self._limits)
        self._publisher = publisher
        self._wake_dispatcher, self._write_and_admit = dispatch.wake, dispatch.write_and_admit
        self._on_started, self._on_workers_changed = on_started, on_workers_changed
        #: The workers as they registered last, without their load; whether one has changed since that was announced.
        self._workers: dict[str, WorkerInfo] = {}
        self._changed_workers = False
        self._registry_limits = WorkerRegistryLimits(self._lease_ms / 1000)
        self.backoff = Backoff(events, component_names.RESULT_CONSUMER)
        #: That of `write_released`: an idle `step` needs no store, and must not count as its success.
        self._release_backoff = Backoff(events, component_names.RESULT_CONSUMER)

    async def step(self) -> float:
        """Process a batch of reports. Returns how many seconds to wait before the next step."""
        self._announce_workers()
        try:
            await self._read()
            readable = await self._readable(self._turns.take(_MESSAGES))
        except Unavailable as error:
            self._publisher.rebuild_streams()
            return self.backoff.failed(error)
        try:
            for batch in _batches(readable):
                await self._process(await self._deduplicate(batch))
        except Unavailable as error:
            with suppress(Unavailable):
                await self._queue.redeliver_later([one for one, _ in readable], after_ms=self._nats.store_retry_ms)
            return self.backoff.failed(error)
        self.backoff.worked()
        return 0.0

    async def _read(self) -> None:
        """Read what has arrived; and more than is written at once, if the reports of others may be behind it."""
        limit = _READ_AHEAD if self._behind else _MESSAGES
        self._turns.add(await self._queue.collect(limit=limit, wait_ms=0 if self._turns else _WAIT_MS))
        self._behind = len(self._turns) >= _MESSAGES
        excess = self._turns.take_excess()
        if excess:
            await self._queue.redeliver_later(excess, after_ms=_EXCESS_AGAIN_MS)

    async def _readable(self, delivered: Sequence[InboundMessage]) -> list[_Message]:
        """The messages that can be decoded; the others become dead letters."""
        found: list[_Message] = []
        async for one in yield_between_batches(delivered, 2):
            try:
                found.append((one, decode_worker_report(one.body, sender=one.sender)))
            except FieldError as error:
                await self._dead_letter(one, str(error))
        return found

    async def _dead_letter(self, one: InboundMessage, reason: str) -> None:
        try:
            await self._queue.dead_letter_message(one, reason=reason)
        except Unavailable:
            await self._queue.redeliver_later([one], after_ms=self._nats.letter_retry_ms)

    async def _deduplicate(self, messages: Sequence[_Message]) -> list[_Message]:
        """The messages that no server has processed or is processing.

        The deduplicator may be wrong. A message counts as processed only if the store agrees, and as in progress only
        for as long as a server may keep it so.
        """
        names = [envelope.id for _, envelope in messages]
        begun = [self._deduplicator.begin(SCHEDULERS, name, ttl_ms=self._in_flight_ms) for name in names]
        states = await asyncio.gather(*begun)
        known = {state: [one for one, at in zip(messages, states, strict=True) if at is state] for state in DedupState}
        unwritten = await self._unwritten(known[DedupState.PROCESSED])
        for _, envelope in (*known[DedupState.NEW], *known[DedupState.PROCESSED]):
            self._busy.forget(envelope.id)
        overdue = [one for one in known[DedupState.IN_FLIGHT] if self._busy.is_overdue(one[1].id, one[0].tries)]
        await self._queue.acknowledge([one for one, _ in _without(known[DedupState.PROCESSED], unwritten)])
        waiting = [one for one, _ in _without(known[DedupState.IN_FLIGHT], overdue)]
        await self._queue.redeliver_later(waiting, after_ms=self._nats.busy_retry_ms)
        if unwritten or overdue:
            self._refusals.emit("dedup_contradicted", processed=len(unwritten), in_flight=len(overdue))
        return [*known[DedupState.NEW], *unwritten, *overdue]

    async def _unwritten(self, processed: Sequence[_Message]) -> list[_Message]:
        """The messages with a start or an end that the store does not have, although it is still open for them."""
        if not processed:
            return []
        refs = [held for one in processed for held in (*_started_in(one), *_ended_in(one))]
        tasks = [one.task for one in await self._store.attempts.assigned_tasks(refs)]
        states = {(task.task_id, task.fence): task.state for task in tasks}
        return [
            one
            for one in processed
            if any(held in states for held in _ended_in(one))
            or any(states.get(held) is TaskState.DISPATCHED for held in _started_in(one))
        ]

    async def _process(self, messages: Sequence[_Message]) -> None:
        """Write the messages and acknowledge them. One that cannot be written does not hold up the others."""
        names = [envelope.id for _, envelope in messages]
        try:
            unreleased = await self._write_reports([envelope.data for _, envelope in messages])
        except Exception as error:
            await asyncio.gather(*(self._deduplicator.give_up(SCHEDULERS, name) for name in names))
            if isinstance(error, Unavailable):
                raise
            if len(messages) == 1:
                await self._retry_or_dead_letter(messages[0][0], error)
            else:
                for one in messages:
                    await self._process([one])
            return
        waiting = [(one, _ended_in(one) & unreleased.keys()) for one in messages]
        self._unreleased += [(one, attempts) for one, attempts in waiting if attempts]
        for finished in unreleased.values():
            # Only after all starts are written: an answer may be written at once.
            self._outputs.ask(finished)
        if unreleased:
            self.wake.set()
        await self._acknowledge([one for one, attempts in waiting if not attempts])

    async def _acknowledge(self, messages: Sequence[_Message]) -> None:
        await asyncio.gather(*(self._deduplicator.mark_processed(SCHEDULERS, envelope.id) for _, envelope in messages))
        for _, envelope in messages:
            self._busy.forget(envelope.id)
        await self._queue.acknowledge([one for one, _ in messages])

    async def write_released(self) -> float:
        """Write the endings whose output the gate has decided about. Returns how many seconds to wait before the next.

        A message with such endings is acknowledged after all of them are written. If that fails it comes again.
        """
        try:
            await self._write_released(await self._outputs.collect())
            renewal_in = await self._renew_leases()
        except Unavailable as error:
            return self._release_backoff.failed(error)
        self._release_backoff.worked()
        return min(self._outputs.calls.next_answer_in(), renewal_in, _IDLE_SECONDS)

    async def _renew_leases(self) -> float:
        """Renew the leases of attempts whose output waits for the gate: their workers have reported and forgotten them.

        Returns the seconds until the next renewal.
        """
        if not self._unreleased:
            return _IDLE_SECONDS
        due_in = self._renewed_at + self._lease_ms / self._renewals / 1000 - self._clock.elapsed()
        if due_in > 0:
            return due_in
        self._renewed_at = self._clock.elapsed()
        held: dict[str, set[AttemptRef]] = defaultdict(set)
        for (_, envelope), attempts in self._unreleased:
            held[envelope.data.worker] |= attempts
        for worker, attempts in held.items():
            await self._store.attempts.renew(worker, attempts, lease_ms=self._lease_ms)
        return self._lease_ms / self._renewals / 1000

    async def _write_released(self, released: Sequence[tuple[Finished, AttemptOutcome]]) -> None:
        known = {attempt_ref(one): one.assignment for one, _ in released}
        try:
            await self._report([self._completion(one.assignment, outcome) for one, outcome in released], known)
        except Unavailable:
            raise
        except Exception as error:  # noqa: BLE001 - one that cannot be written must not hold up the others
            if len(released) > 1:
                for one in released:
                    await self._write_released([one])
                return
            await self._give_back(known.keys(), error)
            return
        self._publisher.record_returned(known.keys())
        await self._acknowledge(self._take_released(known.keys()))

    def _take_released(self, attempts: Collection[AttemptRef]) -> list[_Message]:
        """The messages that waited for nothing but these attempts; the attempts are settled."""
        self._outputs.settle(attempts)
        left = [(one, waits_for.difference(attempts)) for one, waits_for in self._unreleased]
        self._unreleased = [(one, waits_for) for one, waits_for in left if waits_for]
        return [one for one, waits_for in left if not waits_for]

    async def _give_back(self, attempts: Collection[AttemptRef], error: Exception) -> None:
        """The messages that wait for these attempts come again."""
        self._outputs.settle(attempts)
        back = [one for one, waits_for in self._unreleased if not waits_for.isdisjoint(attempts)]
        self._unreleased = [one for one in self._unreleased if one[1].isdisjoint(attempts)]
        for one, envelope in back:
            await self._deduplicator.give_up(SCHEDULERS, envelope.id)
            await self._retry_or_dead_letter(one, error)

    def close(self) -> None:
        """Cancel the calls to the gate. Messages that are not acknowledged come again, to any server."""
        self._outputs.close()

    async def _retry_or_dead_letter(self, one: InboundMessage, error: Exception) -> None:
        """Let the message be delivered again later; after too many deliveries it becomes a dead letter."""
        self._refusals.emit("reports_refused", tries=one.tries, error=repr(error))
        if one.tries >= _MAX_DELIVERIES:
            await self._dead_letter(one, f"{_MAX_DELIVERIES} times: {error!r}")
        else:
            await self._queue.redeliver_later([one], after_ms=self._nats.letter_retry_ms)

    # ---- starts and ends ---------------------------------------------------------------------

    async def _write_reports(self, reports: Sequence[WorkerReport]) -> dict[AttemptRef, Finished]:
        """Write starts and ends. Return the ends about whose output the gate has to be asked first."""
        started: dict[str, list[AttemptRef]] = defaultdict(list)
        for one in reports:
            started[one.worker] += [(begun.task_id, begun.fence) for begun in one.started]
        first, *others = _rounds(reports)
        known = await self._known([*(held for many in started.values() for held in many), *first])
        endings, unreleased = await self._released(first, known)
        now = self._clock.now()
        # Started together, so that they share a commit, and in this order.
        starts = [self._store.attempts.begin(held, now=now, worker=name) for name, held in started.items() if held]
        keeps = self._keep_progress(reports)
        *begun, foreign, kept = await asyncio.gather(
            *starts, self._report(endings, known), keeps, return_exceptions=True
        )
        for failure in (*begun, foreign, kept):
            if isinstance(failure, BaseException):
                raise failure
        self._on_started([known[held] for many in begun if isinstance(many, frozenset) for held in many & known.keys()])
        not_returned = set(foreign) if isinstance(foreign, frozenset) else set()
        for ends in others:
            # Several workers report the same attempt, and the first one was not its holder.
            endings, more = await self._released(ends, known)
            not_returned |= await self._report(endings, known)
            unreleased += more
        ours = await self._claimed(unreleased, now)
        self._publisher.record_returned(first.keys() - ours.keys() - not_returned)
        return ours

    async def _keep_progress(self, reports: Sequence[WorkerReport]) -> None:
        """Keep logs and usage; that of an attempt that is another worker's by now changes nothing."""
        for one in reports:
            progress = [checked_progress(each) for each in (*one.progress, *one.log_progress)]
            if progress:
                now = self._clock.now()
                await keep_progress(self._store.attempts, progress, self._output_policy, now=now, worker=one.worker)

    async def _released(
        self, ended: Mapping[AttemptRef, tuple[EndedReport, str]], known: Mapping[AttemptRef, Assignment]
    ) -> tuple[list[TaskCompletion], list[Finished]]:
        """The completions that can be written at once, and the ends about whose output the gate has to be asked."""
        endings, unreleased = list[TaskCompletion](), list[Finished]()
        async for held, (end, worker) in yield_between_batches(list(ended.items()), _YIELD_EVERY):
            if held not in known:
                self._announce_late(held, end.result, worker)
                continue
            finished = Finished(known[held], replace(self._sealer.outcome(end), reported_by=worker))
            released = self._outputs.release_now(finished)
            if released is None:
                unreleased.append(finished)
            else:
                endings.append(self._completion(known[held], released))
        return endings, unreleased

    async def _claimed(self, unreleased: Sequence[Finished], now: int) -> dict[AttemptRef, Finished]:
        """The ends of attempts that their reporters hold: the gate is asked about no other output."""
        ours: dict[AttemptRef, Finished] = {}
        for worker in {one.outcome.reported_by for one in unreleased}:
            ends = {attempt_ref(one): one for one in unreleased if one.outcome.reported_by == worker}
            claimed = await self._store.attempts.begin(list(ends), now=now, worker=worker)
            ours |= {held: one for held, one in ends.items() if held in claimed}
            await self._announce_uncounted([one for held, one in ends.items() if held not in claimed])
        return ours

    async def _known(self, held: Sequence[AttemptRef]) -> dict[AttemptRef, Assignment]:
        """The assignments of these attempts, of those that are still open."""
        sent = self._publisher.sent
        known = {one: sent[one] for one in held if one in sent}
        unknown = [one for one in held if one not in known]
        if unknown:
            for waiting in await self._store.attempts.assigned_tasks(unknown):
                known[waiting.task.task_id, waiting.task.fence] = await load_assignment(
                    self._workflow_cache, waiting
                ) or placeholder_assignment(waiting)
        return known

    def _completion(self, held: Assignment, outcome: AttemptOutcome) -> TaskCompletion:
        return complete_attempt(held, outcome, now=self._clock.now(), limits=self._limits)

    async def _report(
        self, endings: Sequence[TaskCompletion], known: Mapping[AttemptRef, Assignment]
    ) -> frozenset[AttemptRef]:
        """Write the completions, and admit the tasks that they surely make in the same commit.

        Return the attempts that are still open, because another worker than the reporting one holds them.
        """
        if not endings:
            return frozenset()
        following: list[ReadyTask] = []
        outputs: dict[str, bytes | None] = {}
        for one in endings if self._write_and_admit is not None else ():
            sure = immediate_successors(known[one.task_id, one.fence], one) if one.graph is not None else ()
            if sure:
                following += sure
                outputs[one.task_id] = one.output

        foreign: frozenset[AttemptRef] = frozenset()

        async def write() -> None:
            nonlocal foreign
            counted = await self._completions.write(endings, known)
            uncounted = [one for one in endings if (one.task_id, one.fence) not in counted]
            foreign = await self._announce_uncounted(uncounted)
            await self._completions.announce(
                [one for one in endings if (one.task_id, one.fence) in counted], counted, known
            )

        if self._write_and_admit is not None and following:
            await self._write_and_admit(following, write, outputs)
        else:
            await write()
        if any(one.graph is not None or not one.over for one in endings):
            self._wake_dispatcher()
        return foreign

    async def _announce_uncounted(self, ends: Sequence[TaskCompletion | Finished]) -> frozenset[AttemptRef]:
        """Announce ends that did not count: too late, or reported by a worker that does not hold the attempt.

        Return the attempts of the latter: they are still open.
        """
        if not ends:
            return frozenset()
        said = [_said(one) for one in ends]
        tasks = [one.task for one in await self._store.attempts.assigned_tasks([held for held, _, _ in said])]
        still_open = frozenset((task.task_id, task.fence) for task in tasks)
        for held, result, worker in said:
            if held in still_open and worker is not None and result not in _NOT_EXECUTED:
                facts: dict[str, object] = {"task": held[0], "fence": held[1], "result": result, "worker": worker}
                self._refusals.emit("foreign_result", cause=worker, **facts)
            else:
                self._announce_late(held, result, worker)
        return still_open

    def _announce_late(self, held: AttemptRef, result: Result, worker: str | None) -> None:
        self._refusals.emit("late_result", cause=worker, task=held[0], fence=held[1], result=result)

    # ---- heartbeats and start requests -------------------------------------------------------

    async def answer(self) -> None:
        """Answer the requests of workers from now on."""
        await self._queue.answer(heartbeats=self._on_heartbeat, grants=self._on_start_request)

    async def _on_heartbeat(self, sender: str, body: bytes) -> bytes:
        """Register the worker and renew its leases; the reply names the attempts to stop."""
        request = _HEARTBEAT_DECODER.decode(body)
        worker, card = request.card.worker, _clamp_slots(request.card)
        check_sender("card.worker", worker, sender)
        if enrolled_pool(worker) not in (None, card.pool):
            raise FieldError("card.pool", card.pool, f"is not the pool that {worker} was enrolled for")
        check_worker_info(card)
        if request.leaves:
            await self._store.workers.deregister(worker)
            self._registry_limits.forget(worker)
            # Another server may have registered it.
            self._workers.pop(worker, None)
            self._changed_workers = True
            self._announce_workers()
            return self._heartbeat_reply()
        if not request.renews:
            to_cancel = await self._store.attempts.cancel_requests(worker)
            return self._heartbeat_reply(to_cancel=to_cancel)
        await self._register(card)
        renewal = await self._store.attempts.renew(worker, request.held, lease_ms=self._lease_ms)
        relieved = self._publisher.capacity.is_relieved(card)
        return self._heartbeat_reply(lost=renewal.lost, to_cancel=renewal.to_cancel, relieved=relieved)

    async def _register(self, card: WorkerInfo) -> None:
        """Register the worker; it keeps its leases even if its user has registered too much."""
        try:
            self._registry_limits.admit(card, now=self._clock.elapsed())
        except FieldError as error:
            self._refusals.emit("request_refused", cause=identity_of(card.worker), subject="", reason=str(error))
            return
        await self._store.workers.register(card, ttl_ms=self._lease_ms)
        lasting = replace(card, in_hand=0, load=HostLoad())
        if self._workers.get(card.worker) != lasting:
            if len(self._workers) >= _MOST_WORKERS:
                self._workers.clear()
            self._workers[card.worker] = lasting
            self._changed_workers = True
            self._announce_workers()

    def _announce_workers(self) -> None:
        """Let services read the workers again, if one has changed and the last time was long enough ago."""
        if self._changed_workers and self._registry_limits.may_announce(now=self._clock.elapsed()):
            self._changed_workers = False
            self._publisher.check_soon()
            self._on_workers_changed()

    def _heartbeat_reply(
        self,
        *,
        lost: Iterable[AttemptRef] = (),
        to_cancel: Iterable[AttemptRef] = (),
        relieved: bool | None = None,
    ) -> bytes:
        return msgspec.json.encode(
            HeartbeatReply(
                lease_ms=self._lease_ms,
                lost=tuple(lost),
                to_cancel=tuple(to_cancel),
                now=self._clock.now(),
                relieved=relieved,
            )
        )

    async def _on_start_request(self, sender: str, body: bytes) -> bytes:
        """Grant the start of tasks that must not start twice, or that another worker may have started."""
        request = _START_REQUEST_DECODER.decode(body)
        check_sender("worker", request.worker, sender)
        if request.doubtful:
            await self._queue.wait_caught_up()
        begun = await self._store.attempts.begin(request.held, now=self._clock.now(), worker=request.worker)
        granted = begun - await self._call_off(begun, request.worker)
        known = await self._known(list(granted))
        self._on_started(list(known.values()))
        return msgspec.json.encode(StartGrant(held=tuple(granted)))

    async def _call_off(self, begun: frozenset[AttemptRef], worker: str) -> frozenset[AttemptRef]:
        """Cancel the attempts whose runs are to be cancelled, instead of starting them; return these."""
        unwanted = begun & await self._store.attempts.cancel_requests(worker) if begun else begun
        if unwanted:
            known = await self._known(list(unwanted))
            error = "cancelled before it began"
            outcome = AttemptOutcome(result=Result.CANCELLED, error=error, never_began=True, reported_by=worker)
            now = self._clock.now()
            await self._report(
                [complete_attempt(one, outcome, now=now, limits=self._limits) for one in known.values()], known
            )
        return unwanted


def _gate_timeout_ms(settings: Settings) -> int:
    """How long the gate may take to decide about an output.

    The worker renews the lease no longer. If this server dies with the output, another one has time to decide.
    """
    return min(settings.execution.gate_timeout_ms, settings.worker.lease_ms // _GATE_LEASE_SHARE)


def _in_flight_ms(settings: Settings) -> int:
    """How long a message counts as being processed.

    A server that has died with a report must not keep it from others for longer than the bus does.
    """
    return delivery_times(
        settings.worker.lease_ms,
        ack_wait_ms=settings.nats.ack_wait_ms,
        in_flight_ms=settings.nats.in_flight_ms,
        longest_ms=IN_FLIGHT_MS,
    ).in_flight


def _started_in(message: _Message) -> set[AttemptRef]:
    return {(begun.task_id, begun.fence) for begun in message[1].data.started}


def _ended_in(message: _Message) -> set[AttemptRef]:
    return {(end.task_id, end.fence) for end in message[1].data.ended}


def _without(messages: Sequence[_Message], others: Sequence[_Message]) -> list[_Message]:
    left_out = set(map(id, others))
    return [one for one in messages if id(one) not in left_out]


def _rounds(reports: Sequence[WorkerReport]) -> list[dict[AttemptRef, tuple[EndedReport, str]]]:
    """The reported ends with their workers, in rounds of one end per attempt; mostly there is one round.

    The result of an execution comes before one of a worker that did not execute it. Of several ends of an attempt
    that the same worker reports, the first one counts.
    """
    ends = [(end, one.worker) for one in reports for end in one.ended]
    rounds: list[dict[AttemptRef, tuple[EndedReport, str]]] = [{}]
    for end, worker in sorted(ends, key=lambda one: one[0].result in _NOT_EXECUTED):
        held = end.task_id, end.fence
        for ended in rounds:
            if held not in ended:
                ended[held] = end, worker
            elif ended[held][1] != worker:
                continue
            break
        else:
            rounds.append({held: (end, worker)})
    return rounds


def _said(end: TaskCompletion | Finished) -> tuple[AttemptRef, Result, str | None]:
    """The attempt, its result, and the worker that reports it."""
    if isinstance(end, Finished):
        return attempt_ref(end), end.outcome.result, end.outcome.reported_by
    return (end.task_id, end.fence), end.result, end.reported_by


def _batches(messages: Iterable[_Message]) -> Iterator[list[_Message]]:
    """The messages in order, in batches that are small enough to be written at once."""
    batch, size = list[_Message](), 0
    for one in messages:
        reports = one[1].data
        batch.append(one)
        size += len(reports.started) + len(reports.ended)
        if size >= _MAX_REPORTS_PER_WRITE:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _clamp_slots(card: WorkerInfo) -> WorkerInfo:
    """The worker with a plausible number of slots."""
    return card if 0 <= card.slots <= _MOST_SLOTS else replace(card, slots=min(max(0, card.slots), _MOST_SLOTS))
