"""The task publisher: takes admitted tasks for remote workers and sends them over the message bus."""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from gnomon.config.settings import Settings
from gnomon.core import component_names
from gnomon.core.commands.rules import CommandRules
from gnomon.core.leases import LEASE_START_FRACTION
from gnomon.core.messages import MAX_MESSAGE_BYTES, encode_task_message, task_message_of
from gnomon.core.model import Result
from gnomon.core.runs.admission import ReadyTask
from gnomon.core.runs.fair_share import TenantShares
from gnomon.core.runs.outcomes import Assignment, AttemptOutcome, complete_attempt
from gnomon.core.subjects import DEFAULT_POOL
from gnomon.errors import BusUnavailable, Unavailable
from gnomon.ports.messaging import OutboundTask, TaskOutbox
from gnomon.ports.payloads import PayloadCipher
from gnomon.ports.runtime import Clock, Events
from gnomon.ports.store import ExecutionStore
from gnomon.ports.tasks import AttemptRef, TakeFilter
from gnomon.services.execution.admission_cache import AdmissionCache
from gnomon.services.execution.agent_context import AgentContext
from gnomon.services.execution.command_approvals import CommandApprovals
from gnomon.services.execution.compensation_inputs import CompensationInputs
from gnomon.services.execution.completions import load_assignment, placeholder_assignment
from gnomon.services.execution.dispatcher import give_up_limits
from gnomon.services.execution.workflow_cache import WorkflowCache
from gnomon.services.loop import Backoff, yield_between_batches
from gnomon.services.remote.pool_capacity import CACHE_SECONDS, CACHE_WHEN_FULL_SECONDS, PoolCapacity
from gnomon.services.remote.sealed_messages import MessageSealer

#: How long a step waits for direct deliveries, and how soon a worker is tried again.
_WAIT_SECONDS = 0.05
_RETRY_SECONDS = 0.25


class _PendingDelivery(Struct):
    """A message to one worker, its deadline, when it may be tried next, and whether it is being tried."""

    message: OutboundTask
    until: float
    next_at: float = float("-inf")
    trying: bool = False


class DirectDelivery:
    """Delivers tasks to single workers until they have arrived or are too old.

    A worker that does not answer delays no other delivery.
    """

    def __init__(self, queue: TaskOutbox, clock: Clock) -> None:
        self._queue = queue
        self._clock = clock
        self._pending: dict[str, _PendingDelivery] = {}
        self._tries: set[asyncio.Task[None]] = set()

    def add(self, message: OutboundTask, until: float) -> None:
        """Deliver the message, until that moment at the latest."""
        self._pending[message.name] = _PendingDelivery(message, until)

    @property
    def waiting(self) -> bool:
        """Whether any message has not arrived yet."""
        return bool(self._pending)

    async def deliver_due(self) -> None:
        """Try every delivery that is due, and wait for them a moment; the others go on in the background."""
        now = self._clock.elapsed()
        self._pending = {name: one for name, one in self._pending.items() if one.until > now}
        due = [one for one in self._pending.values() if not one.trying and one.next_at <= now]
        if not due:
            return
        tries = [asyncio.create_task(self._try(one)) for one in due]
        self._tries.update(tries)
        for each in tries:
            each.add_done_callback(self._tries.discard)
        await asyncio.wait(tries, timeout=_WAIT_SECONDS)

    async def _try(self, one: _PendingDelivery) -> None:
        one.trying = True
        try:
            arrived = await self._queue.publish([one.message])
        except Unavailable:
            arrived = frozenset()
        one.trying, one.next_at = False, self._clock.elapsed() + _RETRY_SECONDS
        if arrived:
            self._pending.pop(one.message.name, None)


#: How many tasks are taken at once.
_MAX_BATCH = 500
#: After how many encoded messages other coroutines run, such as API requests.
_YIELD_EVERY = 25
_MAX_SENT = 100_000
#: How often the tasks in hand of each tenant are counted, while tenants compete.
_RECOUNT_SECONDS = 2.0
#: How often to look for tasks that other servers have admitted.
_LOOK_SECONDS = 0.25


class _TakenTask(Struct, frozen=True):
    """A task to be sent: when it was asked for, its pool, and its only worker if it is directed."""

    waiting: ReadyTask
    asked_at: float
    pool: str
    to: str | None = None


class SentTasks(OrderedDict[AttemptRef, Assignment]):
    """Assignments that were sent and are not known to have ended. It only saves reads of the store."""

    def __init__(self) -> None:
        super().__init__()
        #: The pools of attempts that did not go to the default pool.
        self.pools: dict[AttemptRef, str] = {}

    def remember(self, assignment: Assignment) -> None:
        """Remember an assignment that is being sent."""
        self[assignment.task.task_id, assignment.task.fence] = assignment
        if len(self) > _MAX_SENT:
            oldest, _ = self.popitem(last=False)
            self.pools.pop(oldest, None)


class TaskPublisher:
    """Takes tasks and sends them, again under the same message id while they may not have arrived."""

    def __init__(  # noqa: PLR0913 - all of its collaborators
        self,
        store: ExecutionStore,
        workflow_cache: WorkflowCache,
        queue: TaskOutbox,
        clock: Clock,
        events: Events,
        *,
        settings: Settings,
        name: str,
        wake_dispatcher: Callable[[], None],
        cipher: PayloadCipher | None = None,
        held_cipher: PayloadCipher | None = None,
    ) -> None:
        """`name` is the worker that holds tasks until a remote worker starts them.

        `wake_dispatcher` is called when most of the admitted tasks were taken. With `cipher` inputs are encrypted.
        `held_cipher` decrypts outputs that are held back.
        """
        self._sealer = MessageSealer(cipher)
        self._store, self._workflow_cache = store, workflow_cache
        self._approvals = CommandApprovals(CommandRules(settings.security), store.approvals)
        self._agent_context = AgentContext(store.agent_sessions, store.agent_usages, clock, settings.agents)
        self._compensation_inputs = CompensationInputs(store.executions, store.held_outputs, clock, cipher=held_cipher)
        self._queue = queue
        self._clock, self._events = clock, events
        self._lease_ms = settings.worker.lease_ms
        self._default_timeout_ms = settings.execution.default_timeout_ms
        self._limits = give_up_limits(settings.execution)
        self.name = name
        #: The tasks that the dispatcher in this process has admitted: they need not be read again.
        self.admission_cache = AdmissionCache(on_low=wake_dispatcher)
        #: The attempts of each tenant at remote workers, so that tenants take turns; and when they were counted last.
        self._shares, self._recounted_at = TenantShares(), float("-inf")
        #: The assignments that the result consumer need not read again.
        self.sent = SentTasks()
        #: The free slots of pools and workers.
        self.capacity = PoolCapacity(
            store, queue, clock, lease_ms=self._lease_ms, overload_percent=settings.routing.overload_percent
        )
        #: Until when directed tasks are looked for in every step, and when they were looked for last.
        self._directed_until = self._chosen_at = float("-inf")
        #: Messages that may not have arrived, each with its deadline.
        self._unsent: dict[str, tuple[OutboundTask, float]] = {}
        self._to_send: list[_TakenTask] = []
        #: The pools whose streams and consumers were created.
        self._direct_delivery = DirectDelivery(queue, clock)
        self._prepared: frozenset[str] = frozenset()
        self._taking = False
        #: When a take found all tasks there were; whether the last admission here was taken along, and whether an
        #: earlier one was not.
        self._emptied_at, self._along, self._passed_over = float("-inf"), False, False
        #: Set when there may be tasks to take, or free slots.
        self.wake = asyncio.Event()
        self.backoff = Backoff(events, component_names.TASK_PUBLISHER, longest=settings.nats.publish_retry_ms / 1000)

    def record_returned(self, ended: Collection[AttemptRef]) -> None:
        """Free the slots of attempts that workers have reported, and forget them."""
        pools = Counter(self.sent.pools.pop(one) for one in ended if one in self.sent.pools) if self.sent.pools else {}
        for pool, count in pools.items():
            self.capacity.record_returned(pool, count)
        addressed = self.capacity.directed_ended(ended)
        self.capacity.record_returned(DEFAULT_POOL, len(ended) - sum(pools.values()) - addressed)
        for one in ended:
            assignment = self.sent.pop(one, None)
            if assignment is not None:
                self._shares.ended(assignment.run.tenant)
        self.wake.set()

    def check_soon(self) -> None:
        """Count the slots again: a worker has come or gone."""
        self.capacity.invalidate()
        self._emptied_at = float("-inf")
        self.wake.set()

    def rebuild_streams(self) -> None:
        """Create the streams again: they could not be reached, and may be gone."""
        self._prepared = frozenset()
        self.check_soon()

    def expect_directed_tasks(self) -> None:
        """See TaskTaker.expect_directed_tasks."""
        self._directed_until = self._clock.elapsed() + CACHE_SECONDS

    async def take_with_admission(self) -> None:
        """See TaskTaker.take_with_admission."""
        if self._taking or self._unsent:
            self._passed_over = True
        else:
            with suppress(Unavailable):
                await self._take()
                self._along = True
        if self._to_send:
            self.wake.set()

    def tasks_admitted(self) -> None:
        """Look for admitted tasks soon, unless they were taken together with their admission."""
        self._passed_over |= not self._along
        self._along = False
        self.wake.set()

    async def step(self) -> float:
        """Take tasks for free slots, and send them. Returns how many seconds to wait before the next step."""
        try:
            await self.capacity.read()
            await self._prepare()
            await self._send()
            if self._unsent:
                raise BusUnavailable(f"{len(self._unsent)} tasks may not have arrived")
            await self.capacity.count()
            await self._recount_tenants()
            took = self._may_be_more and await self._take()
            took_chosen = await self._take_directed()
            await self._send()
        except Unavailable as error:
            if isinstance(error, BusUnavailable):
                # For whatever reason, the streams may be gone.
                self._prepared = frozenset()
            return self.backoff.failed(error)
        self.backoff.worked()
        if took or took_chosen:
            return 0.0
        soon = self.capacity.full or self._directed_expected or self._direct_delivery.waiting
        return CACHE_WHEN_FULL_SECONDS if soon else CACHE_SECONDS

    async def _prepare(self) -> None:
        wanted = frozenset(self.capacity.pools)
        if not wanted <= self._prepared:
            await self._queue.prepare(sorted(wanted))
            self._prepared = wanted

    # ---- taking ------------------------------------------------------------------------------

    @property
    def _may_be_more(self) -> bool:
        """Whether to look for tasks: own admissions are mostly taken along; those of other servers are polled for."""
        return self._passed_over or self._clock.elapsed() - self._emptied_at >= _LOOK_SECONDS

    async def _take(self) -> bool:
        """Take tasks for the free slots of all pools. Return whether there may be more tasks and slots."""
        if self._taking:
            return False
        admission_number, asked_at = self.admission_cache.admission_number(), self._clock.elapsed()
        self._taking, self._passed_over, self._emptied_at = True, False, float("-inf")
        try:
            more = [await self._take_for(pool) for pool in list(self.capacity.pools)]
        finally:
            self._taking = False
        all_taken = all(found is False for found in more)
        if all_taken:
            self._emptied_at = asked_at
        if all_taken or not self.capacity.slots:
            self.admission_cache.mark_empty(admission_number, (one.waiting for one in self._to_send))
        return any(more)

    async def _take_for(self, pool: str) -> bool | None:
        """Take tasks for one pool. Return whether there may be more; None if it has no free slot."""
        waiting = sum(one.pool == pool and one.to is None for one in self._to_send)
        free = min(_MAX_BATCH, self.capacity.free(pool) - waiting)
        if free <= 0:
            return None
        taken = await self._take_into_outbox(self.name, free, self.capacity.reach(pool), pool)
        self.capacity.record_take(pool, all_of_it=taken < free)
        return taken == free

    async def _take_into_outbox(
        self, worker: str, limit: int, reach: TakeFilter, pool: str, to: str | None = None
    ) -> int:
        """Take up to `limit` tasks to be sent; return how many they are."""
        asked_at = self._clock.elapsed()
        taken = await self._store.attempts.take(
            worker,
            limit=limit,
            lease_ms=self._lease_ms,
            now=self._clock.now(),
            begin=False,
            known=self.admission_cache,
            reach=reach,
            shares=self._shares,
        )
        for waiting in taken:
            self._shares.started(waiting.run.tenant)
        self._to_send += [_TakenTask(waiting, asked_at, pool, to) for waiting in taken]
        return len(taken)

    async def _recount_tenants(self) -> None:
        """Count the tasks in hand of each tenant again, if tenants compete.

        This process does not see the tasks that other servers have sent, nor the end of those whose worker was lost.
        """
        elapsed = self._clock.elapsed()
        if self._shares.contended and elapsed - self._recounted_at >= _RECOUNT_SECONDS:
            self._recounted_at = elapsed
            self._shares.recount((await self._store.placement.in_flight_counts()).tenants_in_hand)

    @property
    def _directed_expected(self) -> bool:
        return self._clock.elapsed() < self._directed_until

    async def _take_directed(self) -> bool:
        """Take directed tasks for the workers that may run them. Return whether any were taken."""
        elapsed = self._clock.elapsed()
        if not self.capacity.slots or not (self._directed_expected or elapsed - self._chosen_at >= CACHE_SECONDS):
            return False
        self._chosen_at = elapsed
        chosen = await self._store.placement.chosen()
        if not chosen:
            return False
        self.expect_directed_tasks()
        in_hand = (await self._store.placement.in_flight_counts()).in_hand
        took = 0
        for card, reach in self.capacity.candidates(chosen, in_hand):
            free = min(_MAX_BATCH, card.slots - in_hand.get(card.worker, 0))
            took += await self._take_into_outbox(card.worker, free, reach, card.pool, card.worker)
        return took > 0

    async def _prepare_messages(self) -> None:
        """Encode the taken tasks; complete those with an unknown workflow or with too large a message."""
        taken = self._to_send
        await self._workflow_cache.preload(
            one.waiting.run for one in taken if one.waiting.task.task_id not in self.admission_cache
        )
        back: list[tuple[Assignment, AttemptOutcome]] = []
        count = len(self._to_send)
        async for one in yield_between_batches(self._to_send[:count], _YIELD_EVERY):
            assignment = await load_assignment(self._workflow_cache, one.waiting, self.admission_cache)
            if assignment is None:
                back.append((placeholder_assignment(one.waiting), _unknown_workflow(one.waiting)))
                continue
            completed = await self._compensation_inputs.completed(one.waiting, assignment)
            if isinstance(completed, AttemptOutcome):
                back.append((assignment, completed))
                continue
            assignment = await self._agent_context.completed(await self._approvals.marked(completed))
            message = self._task_message(assignment, one)
            if len(message.body) > MAX_MESSAGE_BYTES:
                back.append((assignment, _message_too_large(message)))
                continue
            self._remember(assignment, one)
            until = one.asked_at + self._lease_ms / 1000 * LEASE_START_FRACTION
            if one.to is None:
                self._unsent[message.name] = message, until
            else:
                self._direct_delivery.add(message, until)
        self._to_send = self._to_send[count:]
        if back:
            now = self._clock.now()
            await self._store.attempts.report([complete_attempt(*one, now=now, limits=self._limits) for one in back])

    def _remember(self, assignment: Assignment, taken: _TakenTask) -> None:
        held = assignment.task.task_id, assignment.task.fence
        self.sent.remember(assignment)
        if taken.to is not None:
            self.capacity.directed_sent(held, taken.pool, taken.to)
        elif taken.pool != DEFAULT_POOL:
            self.sent.pools[held] = taken.pool

    # ---- sending -----------------------------------------------------------------------------

    def _task_message(self, assignment: Assignment, taken: _TakenTask) -> OutboundTask:
        now = self._clock.now()
        left_ms = int(self._lease_ms * LEASE_START_FRACTION - (self._clock.elapsed() - taken.asked_at) * 1000)
        message = task_message_of(
            assignment, deadline=now + left_ms, to=taken.to or "", default_timeout_ms=self._default_timeout_ms
        )
        order = self._sealer.seal_task(message)
        body = encode_task_message(order, now=now)
        return OutboundTask(name=order.name, job=order.job_name, pool=taken.pool, body=body, to=taken.to)

    async def _send(self) -> None:
        """Send the taken tasks, and again those that may not have arrived."""
        if self._to_send:
            await self._prepare_messages()
        await self._direct_delivery.deliver_due()
        # An older task may not start any more: its lease ends, and it is dispatched again.
        elapsed = self._clock.elapsed()
        self._unsent = {name: one for name, one in self._unsent.items() if one[1] > elapsed}
        if not self._unsent:
            return
        messages = [message for message, _ in self._unsent.values()]
        # A message that is sent once more may have arrived this time.
        self._unsent = {name: (replace(one, again=True), until) for name, (one, until) in self._unsent.items()}
        for name in await self._queue.publish(messages):
            message, _ = self._unsent.pop(name)
            self.capacity.sent(message.pool)


def _unknown_workflow(one: ReadyTask) -> AttemptOutcome:
    reason = f"launch_failed: there is no {one.run.workflow_id!r} of version {one.run.workflow_version}"
    return AttemptOutcome(result=Result.NEVER_STARTED, error=reason)


def _message_too_large(message: OutboundTask) -> AttemptOutcome:
    reason = f"bad_input: the input is too large for a message: {len(message.body)} bytes"
    return AttemptOutcome(result=Result.GAVE_UP, error=reason)
