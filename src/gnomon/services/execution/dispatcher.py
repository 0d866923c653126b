"""The dispatcher: admits ready tasks, so that workers can take them.

Commit coalescing: tick, admission and take in one commit.

Purpose. A task passes three writes before it starts. The ticker writes the decision that creates it (PENDING). The
dispatcher admits it (SCHEDULED). A worker takes it (take = a worker, or the publisher to remote workers, assigns an
admitted task to itself). In the plain path each service finds the work of the one before it in the store: three polls,
three commits. The fast path is `write_and_admit`. The ticker, the launcher, the worker and the result consumer call it
with a write and with the tasks that this write will create. The dispatcher prepares these tasks, asks the gate and
routes them. Then it submits three writes one after another without waiting between them: the write of the caller, the
admissions, and the take of the worker in this process (`TaskTaker.take_with_admission`). The store runs them in the
order in which they were submitted and in one transaction (see adapters/sql/transactions.py): the admission finds the
new tasks, and the take finds the admissions.

Why. A commit costs a flush to disk, whatever it writes: three commits in a row limit the throughput of a node and delay
the start of a task. The fast path needs only one commit, and no loop has to wait for its next poll. The taker also
finds the admitted requests in its AdmissionCache, and reads nothing again.

Requirements. The fast path only saves time. Removing it must not change any result:

- Only tasks that the gate allows at once (`Gate.admit_now`) and that a worker can take are admitted in this way. All
  others are left to `step`, which is woken, and which asks the gate without waiting for it.
- A failed admission or take is not a failure of the write. The caller gets the result of its own write, and a step
  finds the tasks that are left. If the caller's write fails, the admissions match no task and change nothing.
- `_admit` waits until all three writes are done, even if one fails: no caller continues while one of its writes may
  still be carried out. The cache counts an admission as pending until then (`add_pending`, `confirm_written`), so
  that a worker whose take runs before the admission is written does not record that nothing is left to take, and does
  not skip its next take.
- In a storm (more than 100 decisions at once) the ticker does not use it: reading the tasks in bulk is cheaper.

Without the fast path, Gnomon is only slower: a step of the dispatcher and a step of the worker still find every task.
The simulations run in that way. A version that returned before the take was written, or that reported a failed
admission as a failed write, would be incorrect: a committed launch would look failed, and its caller would launch it
again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial

from msgspec.structs import replace

from gnomon.config.sections import ExecutionSettings
from gnomon.config.settings import Settings
from gnomon.core import component_names
from gnomon.core.model import TaskId
from gnomon.core.payloads import has_sealed_field
from gnomon.core.runs.admission import (
    Admission,
    AdmissionRequest,
    FanOut,
    GateVerdict,
    ReadyTask,
    admission_for,
    as_admitted,
    bad_input_admission,
    launch_failed_admission,
    merged_input,
    overdue_admission,
    too_many_sub_run_tasks,
)
from gnomon.core.runs.deadlines import has_passed
from gnomon.core.runs.outcomes import GiveUpLimits
from gnomon.core.runs.prepare import (
    PreparedTask,
    count_references,
    data_size,
    output_owners,
    prepare_task,
    undone_item_payloads,
    without_held_output,
)
from gnomon.core.runs.rollback import is_compensation
from gnomon.core.runs.routing import Unroutable
from gnomon.core.runs.states import TaskState
from gnomon.errors import ClockAhead, Unavailable
from gnomon.ports.execution import Gate
from gnomon.ports.runtime import Clock, Events
from gnomon.ports.store import ExecutionStore
from gnomon.ports.tasks import QueuePosition
from gnomon.services.execution.announced_causes import AnnouncedCauses
from gnomon.services.execution.gate_client import AdmissionGate, Decided, Delay
from gnomon.services.execution.local_dispatch import NO_OUTPUTS, Done, Outputs, TaskTaker
from gnomon.services.execution.router import Router
from gnomon.services.execution.workflow_cache import WorkflowCache, step_of
from gnomon.services.loop import Backoff, ComputeQueue, yield_between_batches

#: While the ticker is behind, the dispatcher uses one part of the time in so many.
_YIELD_RATIO = 4
#: How long to wait for a worker that is far behind, unless it wakes the dispatcher before.
_BEHIND_SECONDS = 1.0
#: After how many prepared tasks other coroutines run, such as API requests.
_YIELD_EVERY = 50
#: The same for tasks that the gate decides about: a long policy takes a tenth of a millisecond for each new step.
_DECIDE_AT_ONCE = 20
#: More items of a step than this, and more bytes that its references read together, are prepared in a thread.
_MANY_ITEMS, _MUCH_DATA = 1000, 20_000
#: About how many tasks one transaction adds. The items of one step are left to the store.
_MOST_ROWS = 1000
#: While requests wait for a free call to the gate: how often more tasks are read, and how many batches of them at most.
_REREAD_SECONDS, _MAX_ASKED_BATCHES = 0.1, 4
#: In milliseconds: the longest wait after an admission that was early by the clock of the store.
_CLOCK_PAUSE_MS = 50
#: Later than the time of any task.
_NEVER = 1 << 62
#: A position before every waiting task.
_QUEUE_START: QueuePosition = (-(2**62), "")
#: An admission, and the request that it answers; None if it needed no request.
_Decided = tuple[Admission, AdmissionRequest | None]


class Dispatcher:
    """Reads ready tasks, routes them, asks the gate about them, and writes their admissions."""

    def __init__(  # noqa: PLR0913 - the collaborators of every admission
        self,
        store: ExecutionStore,
        workflow_cache: WorkflowCache,
        gate: Gate,
        clock: Clock,
        events: Events,
        settings: Settings,
        *,
        taker: TaskTaker,
        wake: Callable[[], None],
        ticker_behind: Callable[[], bool],
        delay: Delay | None = None,
    ) -> None:
        """`wake` asks for a step soon. While `ticker_behind` says so, ticks come first. `delay`: see GateCalls.

        A task that waits is late, but a tick that waits for too long is missed.
        """
        self._store = store
        self._workflow_cache = workflow_cache
        self._clock = clock
        self._events = events
        self._batch = settings.execution.batch
        self._poll_seconds = settings.worker.poll_secs
        self._taker = taker
        self._wake = wake
        self._ticker_behind = ticker_behind
        self._limits = give_up_limits(settings.execution)
        self._most_sub_run_tasks = settings.execution.max_sub_run_tasks
        self.router = Router(store, clock, settings.routing, on_directed=taker.expect_directed_tasks)
        self._admitted_at = float("-inf")
        #: The position behind which unroutable tasks are still to be looked at again; None if there are none.
        self._turned_away: QueuePosition | None = None
        #: An answer of the gate wakes the dispatcher: a step writes it.
        self._gate = AdmissionGate(
            gate, clock, timeout_ms=settings.execution.gate_timeout_ms, on_answer=wake, delay=delay
        )
        self._read_at = float("-inf")
        self._causes = AnnouncedCauses()
        #: Not that of requests: a plan of minutes must not delay tasks.
        self._compute = ComputeQueue()
        self.backoff = Backoff(events, component_names.DISPATCHER)

    def retry_unroutable(self) -> None:
        """Look at unroutable tasks again before their time: a worker has come that may be able to take them."""
        self._turned_away = _QUEUE_START
        self.router.invalidate()

    async def step(self) -> float:
        """Admit a batch of ready tasks. Returns how many seconds to wait before the next step."""
        behind = self._behind()
        if behind > 0:
            return behind
        now, began = self._clock.now(), self._clock.elapsed()
        try:
            ready = await self._ready(now)
            if not ready and not await self._gate.collect():
                wait = await self._nothing_ready(now)
                self.backoff.worked()
                return wait
            await self._workflow_cache.preload(waiting.run for waiting in ready)
            found = [await self._prepared(waiting, now) async for waiting in yield_between_batches(ready, _YIELD_EVERY)]
            fan_outs, asked = self._fan_outs_to_ask_about(found, ready)
            refused = await self._write_fan_outs(fan_outs, ready, now)
            others = [one for one in found if not isinstance(one, FanOut)]
            await self._decide([*others, *asked, *refused], ready, now)
        except ClockAhead as error:
            # The clock of this node was set, and will be compared with the store's.
            return min(error.ahead_ms, _CLOCK_PAUSE_MS) / 1000
        except Unavailable as error:
            return self.backoff.failed(error)
        self.backoff.worked()
        # There may be more: step again at once, unless the worker is far behind.
        self._admitted_at = self._clock.elapsed()
        aside = (_YIELD_RATIO - 1) * (self._admitted_at - began) if self._ticker_behind() else 0.0
        return max(aside, self._behind())

    async def _ready(self, now: int) -> Sequence[ReadyTask]:
        """The tasks whose time has come, without those that the gate is being asked about."""
        asked = len(self._gate)
        if self._read_again_in() > 0:
            return ()
        self._read_at = self._clock.elapsed()
        ready = await self._store.tasks.waiting(now, limit=self._batch + asked, in_turns=True)
        return [one for one in ready if not self._gate.is_asked(one.task)] if asked else ready

    def _read_again_in(self) -> float:
        """Seconds until more tasks are read: while requests wait for a free call to the gate, not in every step."""
        if len(self._gate) >= _MAX_ASKED_BATCHES * self._batch:
            return _REREAD_SECONDS
        return max(0.0, self._read_at + _REREAD_SECONDS - self._clock.elapsed()) if self._gate.calls.queued else 0.0

    async def _decide(
        self, prepared: Sequence[AdmissionRequest | Admission], ready: Sequence[ReadyTask], now: int
    ) -> None:
        """Have the gate decide about the requests, and store all decisions that there are."""
        requests = [one for one in prepared if isinstance(one, AdmissionRequest)]
        decided, unanswered = await self._decided_now(requests)
        self._gate.ask(unanswered)
        collected = await self._gate.collect()
        waiting = [*ready, *(request.waiting for request, _ in collected)]
        allowed, rest = _allowed_fan_outs([*decided, *collected])
        refused = await self._write_fan_outs(allowed, waiting, now)
        ruled: list[_Decided] = [(one, None) for one in (*prepared, *refused) if isinstance(one, Admission)]
        ruled += await self._ruled(rest, now)
        done = await self._admit(ruled, now) if ruled else {}
        self._gate.settle(collected)
        await self._announce(done.values(), waiting)

    def _fan_outs_to_ask_about(
        self, found: Sequence[PreparedTask], ready: Sequence[ReadyTask]
    ) -> tuple[list[FanOut], list[AdmissionRequest]]:
        """The fan-outs that need no decision of the gate, and the requests for those that do."""
        free: list[FanOut] = []
        asked: list[AdmissionRequest] = []
        for one, waiting in zip(found, ready, strict=True):
            if not isinstance(one, FanOut):
                continue
            step = step_of(one.graph, waiting)
            if step is None or not one.items or not step.function or one.undoes is not None:
                # The steps of sub-runs are asked about, and each item that is undone.
                free.append(one)
                continue
            request = AdmissionRequest(waiting=waiting, workflow=one.graph, step=step, input={}, fan_out=one)
            if self._gate.asks_about_items(request):
                asked.append(request)
            else:
                free.append(one)
        return free, asked

    async def _decided_now(self, requests: Sequence[AdmissionRequest]) -> tuple[list[Decided], list[AdmissionRequest]]:
        """The decisions that the gate makes at once, and the requests that it has to be asked about.

        A policy selects the rules of a step for its first task: other coroutines run now and then.
        """
        decided, unanswered = list[Decided](), list[AdmissionRequest]()
        for start in range(0, len(requests), _DECIDE_AT_ONCE):
            if start:
                await asyncio.sleep(0)
            now_decided, others = self._gate.decide_now(requests[start : start + _DECIDE_AT_ONCE])
            decided += now_decided
            unanswered += others
        return decided, unanswered

    async def _nothing_ready(self, now: int) -> float:
        """Seconds to wait. If workers have changed, use the time to look at unroutable tasks again."""
        if self._turned_away is None or self._gate.calls.queued:
            return await self._until_next()
        after, self._turned_away = self._turned_away, None
        found = await self._store.tasks.unroutable_tasks(after=after, limit=self._batch)
        ruled = await self._admissible(found, now, NO_OUTPUTS, ask=True)
        if len(found) == self._batch and self._turned_away is None:
            last = found[-1].task
            self._turned_away = last.available_at, last.task_id
        done = await self._admit(ruled, now) if ruled else {}
        await self._announce(done.values(), found)
        return 0.0

    async def _until_next(self) -> float:
        """Seconds until the next task has its time, or the gate should have answered."""
        asked = len(self._gate)
        if not asked:
            return self._until(await self._store.tasks.next_available_at())
        again, answer = self._read_again_in(), self._gate.calls.next_answer_in()
        if again > 0:
            return min(again, answer)
        # The tasks that the gate is being asked about are among the first.
        first = await self._store.tasks.waiting(_NEVER, limit=asked + 1)
        others = [one.task.available_at for one in first if not self._gate.is_asked(one.task)]
        return min(self._until(min(others, default=None)), answer)

    def _behind(self) -> float:
        """Seconds to wait for a worker that is far behind: tasks that its cache cannot hold it would read again."""
        return (
            max(0.0, self._admitted_at + _BEHIND_SECONDS - self._clock.elapsed())
            if self._taker.admission_cache.full
            else 0.0
        )

    async def _admit(
        self, ruled: Sequence[_Decided], now: int, *first: Awaitable[object]
    ) -> Mapping[TaskId, Admission]:
        """Write the admissions right behind the writes in `first`; return those that were carried out, by task."""
        admissions = [one for one, _ in ruled]
        cache = self._taker.admission_cache
        cache.add_pending(
            request if one.ruling is None else as_admitted(one, request)
            for one, request in ruled
            if request and one.state is TaskState.SCHEDULED
        )
        done: Mapping[TaskId, Admission] = {}
        try:
            # Started together, so that all of them share a commit; and nothing continues before all of them are done.
            admitting = asyncio.ensure_future(self._store.tasks.admit(admissions, now=now))
            outcomes = await asyncio.gather(
                *first, admitting, self._taker.take_with_admission(), return_exceptions=True
            )
            done = admitting.result()
        finally:
            scheduled = {name for name, one in done.items() if one.state is TaskState.SCHEDULED}
            cache.confirm_written(void=[one.task_id for one in admissions if one.task_id not in scheduled])
        for failure in outcomes:
            if isinstance(failure, BaseException):
                raise failure
        return done

    async def write_and_admit(
        self, made: Sequence[ReadyTask], write: Callable[[], Awaitable[Done]], outputs: Outputs = NO_OUTPUTS
    ) -> Done:
        """Write what makes these tasks, and admit them right behind it: the store may do both in one commit.

        Only tasks that the gate allows at once are admitted. A step finds all others; they do not fail the write.
        `outputs` are those that are being written.
        """
        if not made:
            return await write()
        now = self._clock.now()
        admissible = await self._admissible(made, now, outputs)
        writing = asyncio.ensure_future(write())
        through: Mapping[TaskId, Admission] = {}
        if admissible:
            with suppress(Unavailable):
                through = await self._admit(admissible, now, writing)
            self._taker.tasks_admitted()
        done = await writing
        if len(through) < len(made):
            self._wake()
        return done

    async def _admissible(
        self, made: Sequence[ReadyTask], now: int, outputs: Outputs, *, ask: bool = False
    ) -> list[_Decided]:
        """The admissions of those that can be taken and that the gate allows at once.

        With `ask`, the gate is asked about the others that can be taken; a step finds its answers.
        """
        try:
            await self._workflow_cache.preload(waiting.run for waiting in made)
            found = [
                await self._prepared(waiting, now, outputs)
                async for waiting in yield_between_batches(made, _YIELD_EVERY)
            ]
            requests = [one for one in found if isinstance(one, AdmissionRequest)]
            decided, unanswered = await self._decided_now(requests)
            if ask and unanswered:
                places = await self.router.place_all(unanswered)
                self._gate.ask(
                    request
                    for request, where in zip(unanswered, places, strict=True)
                    if not isinstance(where, Unroutable)
                )
            ruled = await self._ruled(decided, now)
        except Exception:  # noqa: BLE001 - an error here must not fail the write; a step reports it
            return []
        return [(one, request) for one, request in ruled if one.state is TaskState.SCHEDULED]

    def close(self) -> None:
        """Cancel the calls to the gate. Nothing is lost: tasks without a stored decision are asked about again."""
        self._gate.close()

    async def _write_fan_outs(
        self, fan_outs: Sequence[FanOut], ready: Sequence[ReadyTask], now: int
    ) -> list[Admission]:
        """Start these tasks, a few at once; return the ends of those whose sub-runs would have too many tasks."""
        refused = set[TaskId]()
        for lot in _lots(fan_outs):
            done = await self._store.tasks.fan_out(lot, now=now, most_sub_run_tasks=self._most_sub_run_tasks)
            refused |= done.over_limit
        waiting = {one.task.task_id: one for one in ready} if refused else {}
        return [
            too_many_sub_run_tasks(waiting[one.task_id], one, self._most_sub_run_tasks, now=now)
            for one in fan_outs
            if one.task_id in refused
        ]

    async def _ruled(self, decided: Sequence[Decided], now: int) -> list[_Decided]:
        """The admissions that follow from the gate's decisions."""
        if not decided:
            return []
        # A step that waits for a decision about its items needs no worker.
        placed = [request for request, _ in decided if request.fan_out is None]
        places = dict(zip(map(id, placed), await self.router.place_all(placed), strict=True))
        ruled: list[_Decided] = [
            (admission_for(request, decision, places.get(id(request)), now=now, limits=self._limits), request)
            for request, decision in decided
        ]
        return self._limited(ruled) if self.router.limited else ruled

    def _limited(self, ruled: Sequence[_Decided]) -> list[_Decided]:
        """The same decisions; each admission carries the limit of its tenant."""
        return [
            (replace(one, tenant_limit=self.router.tenant_limit(request.waiting.run.tenant)), request)
            if request is not None and one.state is TaskState.SCHEDULED
            else (one, request)
            for one, request in ruled
        ]

    async def _prepared(self, waiting: ReadyTask, now: int, outputs: Outputs = NO_OUTPUTS) -> PreparedTask:
        """The request for the task; or a fan-out, or an admission that ends or delays the task."""
        run = waiting.run
        workflow = await self._workflow_cache.for_run(run)
        if workflow is None:
            reason = f"there is no workflow {run.workflow_id!r} of version {run.workflow_version}"
            return launch_failed_admission(waiting, reason, now=now, limits=self._limits)
        step = step_of(workflow, waiting)
        if step is None:
            reason = f"workflow {run.workflow_id!r} of version {run.workflow_version} has no step {waiting.task.step!r}"
            return launch_failed_admission(waiting, reason, now=now, limits=self._limits)
        if has_passed(waiting.task.deadline_at, now):
            return overdue_admission(waiting, workflow, now=now)
        given = merged_input(workflow, step, waiting)
        if has_sealed_field(given):
            reason = "bad_input: the input is encrypted with a key that payload.keys lacks, or was altered"
            return bad_input_admission(waiting, workflow, reason, now=now)
        request = AdmissionRequest(waiting=waiting, workflow=workflow, step=step, input=given)
        return (
            request if workflow.is_single_step and step.plain else await self._resolve_references(request, now, outputs)
        )

    async def _resolve_references(self, request: AdmissionRequest, now: int, outputs: Outputs) -> PreparedTask:
        """The request with the outputs and the workflow that its step refers to."""
        step, run = request.step, request.waiting.run
        sub = None
        if step.workflow is not None and not is_compensation(step.name):
            sub = await self._workflow_cache.newest(run.tenant, step.workflow)
            if sub is None:
                reason = f"there is no workflow {step.workflow!r}"
                own = request.workflow
                return launch_failed_admission(request.waiting, reason, now=now, limits=self._limits, workflow=own)
        owners = output_owners(request)
        unknown = [owner for owner in owners if owner not in outputs]
        kept = {**outputs, **await self._store.executions.payloads(unknown, "output")} if unknown else outputs
        found = {name: kept.get(owner) for owner, name in owners.items()}
        if None in found.values():
            held_back = await self._without_held_outputs(request, owners, found, now)
            if held_back is not None:
                return held_back
        of_item = [
            (await self._store.executions.payloads([owner], kind)).get(owner)
            for owner, kind in undone_item_payloads(request)
        ]
        prepare = partial(prepare_task, request, found, sub, now=now, of_item=of_item)
        try:
            size = data_size(request.workflow, request.waiting, found)
            return await self._compute.run_in_thread(prepare) if _takes_long(request, size) else prepare()
        except Exception as error:  # noqa: BLE001 - an error in one task must not hold up all others
            return bad_input_admission(request.waiting, request.workflow, f"bad_input: {error!r}", now=now)

    async def _without_held_outputs(
        self, request: AdmissionRequest, owners: Mapping[TaskId, str], found: Mapping[str, bytes | None], now: int
    ) -> AdmissionRequest | Admission | None:
        """The next state of a task if an output that it refers to is held back; None if that changes nothing."""
        task, tenant = request.waiting.task, request.waiting.run.tenant
        if is_compensation(request.step.name) and request.step.foreach is not None and task.parent is None:
            # Each of its items refers to the output by itself.
            return None
        as_it_is: AdmissionRequest | None = None
        for owner in [owner for owner, name in owners.items() if found[name] is None]:
            held = await self._store.held_outputs.find(tenant, owner)
            made = None if held is None else without_held_output(request, owners[owner], held.ruling, now=now)
            if isinstance(made, Admission):
                return made
            as_it_is = as_it_is or made
        return as_it_is

    def _until(self, next_at: int | None) -> float:
        if next_at is None:
            return self._poll_seconds
        return min(self._poll_seconds, max(0.0, self._clock.until(next_at)))

    async def _announce(self, admissions: Collection[Admission], ready: Sequence[ReadyTask]) -> None:
        if any(one.state is TaskState.SCHEDULED for one in admissions):
            self._taker.tasks_admitted()
        noted = [one for one in admissions if one.note is not None]
        runs = {one.task.task_id: one.run for one in ready} if noted else {}
        async for one in yield_between_batches(noted, _YIELD_EVERY):
            run = runs[one.task_id]
            if one.state is TaskState.PENDING and not self._causes.is_new(
                (run.tenant, run.workflow_id, one.note), self._clock.elapsed()
            ):
                continue
            self._events.emit(
                "task_not_scheduled",
                job=run.schedule_id or run.workflow_id,
                task=one.task_id,
                run=one.run_id,
                state=one.state,
                reason=one.note,
            )


def _allowed_fan_outs(decided: Sequence[Decided]) -> tuple[list[FanOut], list[Decided]]:
    """The steps that may have their items, and all other decisions."""
    allowed: list[FanOut] = []
    rest: list[Decided] = []
    for request, decision in decided:
        if request.fan_out is not None and decision.verdict is GateVerdict.ALLOW:
            allowed.append(replace(request.fan_out, ruling=decision.ruling))
        else:
            rest.append((request, decision))
    return allowed, rest


def _lots(fan_outs: Sequence[FanOut]) -> Iterator[Sequence[FanOut]]:
    """The fan-outs in lots of about as many tasks, since other writes wait for each of these transactions."""
    lot, rows = list[FanOut](), 0
    for one in fan_outs:
        if lot and rows + one.rows > _MOST_ROWS:
            yield lot
            lot, rows = [], 0
        lot.append(one)
        rows += one.rows
    if lot:
        yield lot


def _takes_long(request: AdmissionRequest, size: int) -> bool:
    """Whether preparing the task, whose references can name that much data, takes longer than the loop can wait."""
    # An item does not read the list of its step again.
    items = request.step.foreach if request.waiting.task.parent is None else None
    if isinstance(items, list):
        return len(items) > _MANY_ITEMS
    if items is not None and size > 2 * _MANY_ITEMS:
        return True
    return size * count_references(request) > _MUCH_DATA


def give_up_limits(settings: ExecutionSettings) -> GiveUpLimits:
    """How often to retry failures that are not the job's own."""
    return GiveUpLimits(
        losses=settings.max_losses,
        routings=settings.max_routings,
        launches=settings.max_launches,
        routing_backoff_ms=settings.routing_backoff_ms,
        max_routing_backoff_ms=settings.max_routing_backoff_ms,
    )
