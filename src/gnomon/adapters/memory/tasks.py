"""Tasks in memory: admission, attempts, placement, and the workers. No method awaits, so each one is a transaction."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from gnomon.adapters.memory.rules import MemoryRules
from gnomon.adapters.memory.state import MemoryTables
from gnomon.core.instants import FOREVER
from gnomon.core.ledger.plan import NODE_TOLERANCE_MS, refuse_clock_ahead
from gnomon.core.model import ENGINE, MOST_SUB_RUN_TASKS, Attempt, Result, RunId, Task, TaskId
from gnomon.core.runs.admission import (
    Admission,
    AdmissionRequest,
    FanOut,
    FanOutResult,
    ReadyTask,
    approved_meanwhile,
    limited_rules,
    within_concurrency,
)
from gnomon.core.runs.deadlines import OverdueEnd, OverdueTask, has_passed
from gnomon.core.runs.fair_share import TenantShares, take_in_turns
from gnomon.core.runs.launch import item_tasks
from gnomon.core.runs.outcomes import AttemptOutcome, TaskCompletion
from gnomon.core.runs.progress import AttemptProgress
from gnomon.core.runs.reconcile import OpenAttempt
from gnomon.core.runs.routing import DEFAULT_POOL, Placement, is_stranded, lacks_common_function
from gnomon.core.runs.states import ASSIGNED, WAITING, TaskState, WaitReason
from gnomon.core.worker_ids import MOST_STARTS, enrolled_pool, identity_of
from gnomon.ports.tasks import (
    DEFAULT_TAKE_FILTER,
    NO_KNOWN_TASKS,
    AttemptRef,
    InFlightCounts,
    LeaseRenewal,
    OpenAttemptsPage,
    QueuePosition,
    TakeFilter,
    WorkerInfo,
    worker_candidates,
)

_ANYWHERE = Placement()
_HELD_BACK = (WaitReason.DEPS, WaitReason.QUEUE)


class MemoryTasks:
    """Implements PendingTasks."""

    def __init__(self, state: MemoryTables, rules: MemoryRules) -> None:
        self._state = state
        self._rules = rules

    async def waiting(self, now: int, *, limit: int, in_turns: bool = False) -> Sequence[ReadyTask]:
        """See PendingTasks.waiting."""
        found = sorted((t for t in self._waiting_tasks() if t.available_at <= now), key=_earliest)
        if in_turns:
            found = sorted(_in_turns(found, limit, TenantShares()), key=_earliest)
        return [_ready(self._state, task) for task in found[:limit]]

    async def unroutable_tasks(self, *, after: QueuePosition, limit: int) -> Sequence[ReadyTask]:
        """See PendingTasks.unroutable_tasks."""
        tasks = (t for t in self._waiting_tasks() if t.wait_reason is WaitReason.ROUTE and t.routings)
        found = sorted((t for t in tasks if _earliest(t) > after), key=_earliest)
        return [_ready(self._state, task) for task in found[:limit]]

    async def next_available_at(self) -> int | None:
        """See PendingTasks.next_available_at."""
        return min((task.available_at for task in self._waiting_tasks()), default=None)

    def _waiting_tasks(self) -> Iterable[Task]:
        tasks = self._state.tasks.live.values()
        return (t for t in tasks if t.state is TaskState.PENDING and t.wait_reason not in _HELD_BACK)

    async def admit(self, admissions: Sequence[Admission], *, now: int) -> Mapping[TaskId, Admission]:
        """See PendingTasks.admit."""
        state = self._state
        if any(one.task_id in state.tasks for one in admissions):
            refuse_clock_ahead(now, state.now(), tolerance_ms=NODE_TOLERANCE_MS)
        done: dict[TaskId, Admission] = {}
        for asked in admissions:
            one = asked
            task = state.tasks.get(one.task_id)
            if task is None or task.state is not TaskState.PENDING or one.fence not in (None, task.fence):
                continue
            if one.behind is not None and self._rules.state_of(one.behind) is not TaskState.SUCCEEDED:
                continue
            if not self._within_tenant_limit(one):
                continue
            if limited_rules([one]):
                [one] = within_concurrency([one], self._rules.in_flight_by_rule(), now=now)
            one = self._rules.within_breaker(one, now)
            one = self._rules.reserve_budgets(task, one, now)
            one = self._rules.within_budget(task, one, now)
            if one.approval is not None and self._rules.ask_for(one.approval, one.announcements, now):
                one = approved_meanwhile(one, now)
            state.tasks[task.task_id] = replace(
                task,
                state=one.state,
                wait_reason=one.wait_reason,
                available_at=one.available_at,
                routings=one.routings,
                note=one.note,
                skipped=one.skipped,
            )
            self._note_details(task, one, now)
            done[task.task_id] = one
            if one.over:
                self._rules.give_back_untaken(task)
                self._rules.after_task_end(one, one.note, now)
        return done

    def _note_details(self, task: Task, one: Admission, now: int) -> None:
        """Keep what comes with an admission, besides the columns of its task."""
        state = self._state
        if one.ruling is not None:
            self._rules.write_ruling(task.task_id, task.run_id, one.ruling, now)
        if one.voids_approval:
            self._rules.void_unasked(task.task_id, now)
        if one.placement is not None:
            state.placements[task.task_id] = one.placement
        if one.unroutable_since is not None:
            state.unroutable_since.setdefault(task.task_id, one.unroutable_since)
        if one.own_input is not None:
            state.payloads[task.task_id, "input"] = one.own_input

    async def actions_since(self, tenant: str, *, since: int, besides: AttemptRef | None = None) -> int:
        """See PendingTasks.actions_since."""
        counted = (one for held, one in self._state.actions.items() if held != besides)
        return sum(of_tenant == tenant and at > since for of_tenant, at in counted)

    async def fan_out(
        self, fan_outs: Sequence[FanOut], *, now: int, most_sub_run_tasks: int = MOST_SUB_RUN_TASKS
    ) -> FanOutResult:
        """See PendingTasks.fan_out."""
        refuse_clock_ahead(now, self._state.now(), tolerance_ms=NODE_TOLERANCE_MS)
        started, over = set[TaskId](), set[TaskId]()
        for one in fan_outs:
            task = self._state.tasks.get(one.task_id)
            if task is None or task.state is not TaskState.PENDING or task.fence != one.fence:
                continue
            count = self._state.sub_run_tasks.get(one.root, 0) + one.sub_run_tasks
            if one.sub_run_tasks and count > most_sub_run_tasks:
                over.add(one.task_id)
                continue
            self._state.sub_run_tasks[one.root] = count
            self._fan_out(one, task, now)
            started.add(one.task_id)
        return FanOutResult(frozenset(started), frozenset(over))

    def _fan_out(self, one: FanOut, task: Task, now: int) -> None:
        state = self._state
        step = one.graph.step(task.step)
        undoes_items = one.undoes is not None and step is not None and step.foreach is not None and task.parent is None
        numbers: Sequence[int] = range(len(one.items))
        if step is not None and undoes_items:
            numbers = self._rules.numbers_to_undo(task, step)
        held = replace(task, state=TaskState.RUNNING, fence=task.fence + 1, open_items=len(numbers), note=None)
        state.tasks[task.task_id] = held
        state.attempts[held.task_id, held.fence] = Attempt(
            task_id=task.task_id, number=held.fence, worker=ENGINE, lease_until=FOREVER, dispatched_at=now
        )
        self._rules.start_attempt((held.task_id, held.fence), now)
        if one.ruling is not None:
            self._rules.write_ruling(task.task_id, task.run_id, one.ruling, now)
        for made in item_tasks(held, numbers, limit=one.limit, now=now):
            state.tasks[made.task_id] = made
            if one.items:
                kind = "input" if one.undoes is None else "item"
                state.payloads[made.task_id, kind] = one.items[made.item or 0]
        if one.launch is not None:
            self._rules.launch(one.launch, now)
        elif one.undoes is not None and not undoes_items:
            self._rules.undo_next_run(held, one.graph, now)
        elif not numbers:
            self._rules.end_engine_task(
                held, one.graph, AttemptOutcome(result=Result.SUCCEEDED, output=one.output), now
            )

    def _within_tenant_limit(self, one: Admission) -> bool:
        return (
            one.tenant_limit is None
            or in_flight_counts(self._state).tenants.get(one.tenant_limit[0], 0) < one.tenant_limit[1]
        )


class MemoryAttempts:
    """Implements Attempts."""

    def __init__(self, state: MemoryTables, rules: MemoryRules) -> None:
        self._state = state
        self._rules = rules

    async def take(  # noqa: PLR0913 - everything that limits a take
        self,
        worker: str,
        *,
        limit: int,
        lease_ms: int,
        now: int,
        begin: bool = True,
        known: Mapping[TaskId, AdmissionRequest] = NO_KNOWN_TASKS,
        reach: TakeFilter = DEFAULT_TAKE_FILTER,
        shares: TenantShares | None = None,
    ) -> Sequence[ReadyTask]:
        """See Attempts.take."""
        state = self._state
        del known  # reading is free
        taken = []
        for task in self._next_tasks(worker, reach, limit, shares or TenantShares()):
            at = _ready(state, task).taken_at(now)
            held = replace(task, state=TaskState.DISPATCHED, fence=task.fence + 1, note=None)
            state.tasks[task.task_id] = held
            state.unroutable_since.pop(task.task_id, None)
            state.attempts[task.task_id, held.fence] = Attempt(
                task_id=task.task_id,
                number=held.fence,
                worker=worker,
                lease_until=state.now() + lease_ms,
                dispatched_at=at,
            )
            if begin:
                self._rules.start_attempt((task.task_id, held.fence), now, attempt_at=at)
            taken.append(_ready(state, state.tasks[task.task_id]))
        return taken

    async def begin(
        self, held: Collection[AttemptRef], *, now: int, worker: str | None = None
    ) -> frozenset[AttemptRef]:
        """See Attempts.begin."""
        state = self._state
        waiting = (one for one in held if self._rules.state_of(one) is TaskState.DISPATCHED)
        granted = frozenset(one for one in waiting if worker is None or self._rules.may_hold(one, worker))
        for one in granted:
            self._rules.start_attempt(one, now)
            state.attempts[one] = replace(state.attempts[one], worker=worker or state.attempts[one].worker)
        running = (one for one in held if self._rules.state_of(one) is TaskState.RUNNING)
        return granted | {one for one in running if state.attempts[one].worker == worker}

    def _next_tasks(self, worker: str, reach: TakeFilter, limit: int, shares: TenantShares) -> list[Task]:
        """The tasks that the worker takes next."""
        state = self._state
        found = [task for task in scheduled_tasks(state) if _reaches(worker, reach, task, placement_of(state, task))]
        found.sort(key=lambda task: (placement_of(state, task).rank, task.available_at, task.task_id))
        return _in_turns(found, limit, shares)

    async def renew(self, worker: str, held: Collection[AttemptRef], *, lease_ms: int) -> LeaseRenewal:
        """See Attempts.renew."""
        state = self._state
        ours = [one for one in held if self._rules.state_of(one) in ASSIGNED and self._rules.may_hold(one, worker)]
        for one in ours:
            state.attempts[one] = replace(state.attempts[one], lease_until=state.now() + lease_ms)
        to_cancel = (one for one in ours if state.runs[state.tasks[one[0]].run_id].cancel_requested_at is not None)
        return LeaseRenewal(lost=frozenset(held) - frozenset(ours), to_cancel=frozenset(to_cancel))

    async def report(self, endings: Sequence[TaskCompletion]) -> frozenset[AttemptRef]:
        """See Attempts.report."""
        return frozenset((one.task_id, one.fence) for one in endings if self._rules.end_attempt(one))

    async def cancel_requests(self, worker: str) -> frozenset[AttemptRef]:
        """See Attempts.cancel_requests."""
        state = self._state
        ours = (held for held, one in state.attempts.items() if one.worker == worker and one.ended_at is None)
        return frozenset(
            held for held in ours if state.runs[state.tasks[held[0]].run_id].cancel_requested_at is not None
        )

    async def keep_progress(self, progress: AttemptProgress, *, worker: str | None, now: int) -> bool:
        """See Attempts.keep_progress."""
        return self._rules.keep_progress(progress, worker, now)

    async def assigned_tasks(self, held: Collection[AttemptRef]) -> Sequence[ReadyTask]:
        """See Attempts.assigned_tasks."""
        return [_ready(self._state, self._state.tasks[one[0]]) for one in held if self._rules.state_of(one) in ASSIGNED]

    async def open_attempts(self, *, after: TaskId, limit: int) -> OpenAttemptsPage:
        """See Attempts.open_attempts."""
        state = self._state
        found = sorted(held for held, attempt in state.attempts.items() if attempt.ended_at is None and held[0] > after)
        tasks = [(state.tasks[task_id], state.attempts[task_id, number]) for task_id, number in found[:limit]]
        page = [OpenAttempt(task=task, run=state.runs[task.run_id], attempt=attempt) for task, attempt in tasks]
        return OpenAttemptsPage(page, state.now())


class MemoryTaskDeadlines:
    """Implements TaskDeadlines."""

    def __init__(self, state: MemoryTables, rules: MemoryRules) -> None:
        self._state = state
        self._rules = rules

    async def next_end_at(self, *, grace_ms: int) -> int | None:
        """See TaskDeadlines.next_end_at."""
        return min((end_at for end_at, _ in self._ends(grace_ms)), default=None)

    async def overdue(self, now: int, *, grace_ms: int, after: QueuePosition, limit: int) -> Sequence[OverdueTask]:
        """See TaskDeadlines.overdue."""
        refuse_clock_ahead(now, self._state.now(), tolerance_ms=NODE_TOLERANCE_MS)
        found = {(one.deadline_at or 0, one.task_id): one for end_at, one in self._ends(grace_ms) if end_at <= now}
        return [self._overdue(found[place]) for place in sorted(found) if place > after][:limit]

    def _ends(self, grace_ms: int) -> Iterator[tuple[int, Task]]:
        """The tasks that are not over, each with the time at which it counts as past its deadline."""
        for task in self._state.tasks.limited.values():
            at = task.deadline_at or 0
            if task.state in WAITING:
                yield at, task
            elif self._state.attempts[task.task_id, task.fence].worker != ENGINE:
                yield at + grace_ms, task

    def _overdue(self, task: Task) -> OverdueTask:
        held = task.state in ASSIGNED
        attempt = self._state.attempts[task.task_id, task.fence] if held else None
        return OverdueTask(task=task, run=self._state.runs[task.run_id], attempt=attempt)

    async def end_overdue(self, ends: Sequence[OverdueEnd], *, now: int) -> frozenset[TaskId]:
        """See TaskDeadlines.end_overdue."""
        refuse_clock_ahead(now, self._state.now(), tolerance_ms=NODE_TOLERANCE_MS)
        return frozenset(one.task_id for one in ends if self._end(one, now))

    def _end(self, one: OverdueEnd, now: int) -> bool:
        task = self._state.tasks.get(one.task_id)
        if (
            task is None
            or task.state not in WAITING
            or task.fence != one.fence
            or not has_passed(task.deadline_at, now)
        ):
            return False
        self._state.tasks[task.task_id] = replace(task, state=one.state, note=one.note)
        if task.state is TaskState.APPROVAL_REQUIRED:
            self._rules.void_approvals(task.task_id, now)
        self._rules.give_back_untaken(task)
        self._rules.after_task_end(one, one.note, now)
        return True


class MemoryTaskPlacement:
    """Implements TaskPlacement."""

    def __init__(self, state: MemoryTables) -> None:
        self._state = state

    async def in_flight_counts(self) -> InFlightCounts:
        """See TaskPlacement.in_flight_counts."""
        return in_flight_counts(self._state)

    async def placements(self, tasks: Collection[TaskId]) -> Mapping[TaskId, Placement]:
        """See TaskPlacement.placements."""
        wanted = set(tasks)
        return {
            task.task_id: placement_of(self._state, task)
            for task in scheduled_tasks(self._state)
            if task.task_id in wanted
        }

    async def chosen(self) -> Collection[Placement]:
        """See TaskPlacement.chosen."""
        places = {placement_of(self._state, task) for task in scheduled_tasks(self._state)}
        return {replace(at, rank=0) for at in places if at.directed_to is not None or at.function is not None}

    async def recall_stranded(self) -> Sequence[tuple[TaskId, RunId]]:
        """See TaskPlacement.recall_stranded."""
        state = self._state
        now = state.now()
        candidates = worker_candidates(card for card, until in state.workers.values() if until > now)
        stranded = [task for task in scheduled_tasks(state) if is_stranded(placement_of(state, task), candidates)]
        for task in stranded:
            del state.placements[task.task_id]
            state.tasks[task.task_id] = replace(task, state=TaskState.PENDING, wait_reason=WaitReason.READY)
        return [(task.task_id, task.run_id) for task in stranded]


class MemoryWorkers:
    """Implements Workers."""

    def __init__(self, state: MemoryTables) -> None:
        self._state = state

    async def register(self, card: WorkerInfo, *, ttl_ms: int) -> None:
        """See Workers.register."""
        state, now = self._state, self._state.now()
        known = state.workers.get(card.worker)
        changed = known is None or (known[0].pool, known[0].functions) != (card.pool, card.functions)
        state.workers[card.worker] = replace(card, seen_at=now), now + ttl_ms
        if known is None and enrolled_pool(card.worker) is not None:
            self._forget_surplus(identity_of(card.worker))
        others = [one.functions for one, _ in state.workers.values() if _works_beside(one, card)]
        if changed and lacks_common_function(card.functions, others):
            self._recall_common(None if card.pool == DEFAULT_POOL else card.pool)

    def _forget_surplus(self, identity: str) -> None:
        """Forget the starts of an enrolled worker beyond those that may be registered."""
        starts = [card for card, _ in self._state.workers.values() if identity_of(card.worker) == identity]
        starts.sort(key=lambda card: (card.seen_at, card.worker), reverse=True)
        for card in starts[MOST_STARTS:]:
            del self._state.workers[card.worker]

    def _recall_common(self, pool: str | None) -> None:
        """Return the tasks to PENDING that every worker of the pool could run."""
        state = self._state
        for task in list(scheduled_tasks(state)):
            at = placement_of(state, task)
            if at.pool == pool and at.directed_to is None and at.function is None:
                state.placements.pop(task.task_id, None)
                state.tasks[task.task_id] = replace(task, state=TaskState.PENDING, wait_reason=WaitReason.READY)

    async def alive(self) -> Sequence[WorkerInfo]:
        """See Workers.alive."""
        now = self._state.now()
        return [card for _, (card, until) in sorted(self._state.workers.items()) if until > now]

    async def deregister(self, worker: str) -> None:
        """See Workers.deregister."""
        self._state.workers.pop(worker, None)

    async def in_hand_of(self, tenant: str) -> Mapping[str, int]:
        """See Workers.in_hand_of."""
        state = self._state
        held = (one for one in state.attempts.values() if one.ended_at is None and one.worker != ENGINE)
        return Counter(one.worker for one in held if state.tasks[one.task_id].tenant == tenant)


def scheduled_tasks(state: MemoryTables) -> Iterable[Task]:
    """The tasks that wait for a worker."""
    return (task for task in state.tasks.live.values() if task.state is TaskState.SCHEDULED)


def placement_of(state: MemoryTables, task: Task) -> Placement:
    """The placement of a SCHEDULED task."""
    return state.placements.get(task.task_id, _ANYWHERE)


def in_flight_counts(state: MemoryTables) -> InFlightCounts:
    """See TaskPlacement.in_flight_counts."""
    held = [one for one in state.attempts.values() if one.ended_at is None and one.worker != ENGINE]
    waiting = [(task.tenant, placement_of(state, task)) for task in scheduled_tasks(state)]
    holders = Counter(state.tasks[one.task_id].tenant for one in held)
    return InFlightCounts(
        in_hand=Counter(one.worker for one in held),
        directed=Counter(at.directed_to for _, at in waiting if at.directed_to is not None),
        scheduled=Counter(at.pool for _, at in waiting if at.directed_to is None),
        tenants=holders + Counter(tenant for tenant, _ in waiting),
        tenants_in_hand=holders,
    )


def _works_beside(one: WorkerInfo, card: WorkerInfo) -> bool:
    return one.worker != card.worker and one.pool == card.pool and not one.draining


def _ready(state: MemoryTables, task: Task) -> ReadyTask:
    # An item gets only the input that was computed for it.
    given = state.payloads.get((task.run_id, "input")) if task.parent is None else None
    own = state.payloads.get((task.task_id, "input"))
    return ReadyTask(task=task, run=state.runs[task.run_id], input=given, own_input=own)


def _reaches(worker: str, reach: TakeFilter, task: Task, at: Placement) -> bool:
    if reach.chosen:
        called = at.directed_to is None and at.function is not None and at.function in (reach.functions or ())
        return at.pool == reach.pool and (at.directed_to == worker or called)
    runs = at.function is None or reach.functions is None or at.function in reach.functions
    due = reach.available_by is None or task.available_at <= reach.available_by
    return at.pool == reach.pool and runs and (at.directed_to == worker or (at.directed_to is None and due))


def _in_turns(tasks: Iterable[Task], limit: int, shares: TenantShares) -> list[Task]:
    """Up to `limit` of the tasks; tenants take turns, and of each the first ones are chosen."""
    waiting: dict[str, list[Task]] = {}
    for task in tasks:
        waiting.setdefault(task.tenant, []).append(task)
    return take_in_turns(
        shares,
        limit,
        sorted(waiting),
        lambda wanted: {tenant: waiting[tenant][:count] for tenant, count in wanted.items()},
    )


def _earliest(task: Task) -> tuple[int, str]:
    return task.available_at, task.task_id
