"""Where tasks were placed, how much is on its way, and what is within a worker's reach; in memory."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec.structs import replace

from gnomon.adapters.memory.completion import MemoryCompletion
from gnomon.core.model import (
    ENGINE,
    Attempt,
    DeadLetter,
    LogLine,
    Result,
    Run,
    RunId,
    RunStatus,
    Schedule,
    Task,
    TaskId,
    TickStatus,
)
from gnomon.core.runs.admission import Admission, AdmissionRequest, FanOut, ReadyTask
from gnomon.core.runs.launch import CancelOutcome, LaunchOutcome, LaunchRequest, decide_launch, first_tasks, item_tasks
from gnomon.core.runs.outcomes import AttemptOutcome, TaskCompletion
from gnomon.core.runs.reconcile import OpenAttempt
from gnomon.core.runs.routing import Placement, is_stranded
from gnomon.core.runs.states import ASSIGNED, TaskState, WaitReason
from gnomon.ports.runs import RunQuery
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


class MemoryPlacement(MemoryCompletion):
    """The part of the port Work that is about places."""

    def _scheduled(self) -> Iterable[Task]:
        return (task for task in self._tasks.live.values() if task.state is TaskState.SCHEDULED)

    def _place_of(self, task: Task) -> Placement:
        return self._placements.get(task.task_id, _ANYWHERE)

    def _in_reach(self, worker: str, reach: TakeFilter) -> list[Task]:
        """What the worker may take, in turn."""
        found = [task for task in self._scheduled() if _reaches(worker, reach, self._place_of(task))]
        return sorted(found, key=lambda task: (self._place_of(task).rank, task.available_at, task.task_id))

    def _within_tenant_limit(self, one: Admission) -> bool:
        return one.tenant_limit is None or self._on_the_way().tenants.get(one.tenant_limit[0], 0) < one.tenant_limit[1]

    async def in_flight_counts(self) -> InFlightCounts:
        """See Work.on_the_way."""
        return self._on_the_way()

    def _on_the_way(self) -> InFlightCounts:
        held = [one for one in self._attempts.values() if one.ended_at is None and one.worker != ENGINE]
        waiting = [(task.tenant, self._place_of(task)) for task in self._scheduled()]
        tenants = [*(self._tasks[one.task_id].tenant for one in held), *(tenant for tenant, _ in waiting)]
        return InFlightCounts(
            in_hand=Counter(one.worker for one in held),
            directed=Counter(at.directed_to for _, at in waiting if at.directed_to is not None),
            scheduled=Counter(at.pool for _, at in waiting if at.directed_to is None),
            tenants=Counter(tenants),
        )

    async def placements(self, tasks: Collection[TaskId]) -> Mapping[TaskId, Placement]:
        """See Work.placements."""
        wanted = set(tasks)
        return {task.task_id: self._place_of(task) for task in self._scheduled() if task.task_id in wanted}

    async def chosen(self) -> Collection[Placement]:
        """See Work.chosen."""
        places = {self._place_of(task) for task in self._scheduled()}
        return {replace(at, rank=0) for at in places if at.directed_to is not None or at.function is not None}

    async def recall_stranded(self) -> Sequence[tuple[TaskId, RunId]]:
        """See Work.recall."""
        now = self._now()
        seats = worker_candidates(card for card, until in self._workers.values() if until > now)
        gone = [task for task in self._scheduled() if is_stranded(self._place_of(task), seats)]
        for task in gone:
            del self._placements[task.task_id]
            self._tasks[task.task_id] = replace(task, state=TaskState.PENDING, wait_reason=WaitReason.READY)
        return [(task.task_id, task.run_id) for task in gone]


def _reaches(worker: str, reach: TakeFilter, at: Placement) -> bool:
    if reach.chosen:
        called = at.directed_to is None and at.function is not None and at.function in (reach.functions or ())
        return at.pool == reach.pool and (at.directed_to == worker or called)
    runs = at.function is None or reach.functions is None or at.function in reach.functions
    return at.pool == reach.pool and at.directed_to in (None, worker) and runs


_HELD_BACK = (WaitReason.DEPS, WaitReason.QUEUE)
_FOREVER = 1 << 62


class MemoryTaskStore(MemoryPlacement):
    """What comes after a decision: the ports Work, Workers, Runs, Executions and DeadLetters."""

    # ---- work --------------------------------------------------------------------------------

    async def waiting(self, now: int, *, limit: int) -> Sequence[ReadyTask]:
        """See Work.waiting."""
        found = sorted((t for t in self._waiting_tasks() if t.available_at <= now), key=_earliest)
        return [self._with_run(task) for task in found[:limit]]

    async def unroutable_tasks(self, *, after: QueuePosition, limit: int) -> Sequence[ReadyTask]:
        """See Work.turned_away."""
        tasks = (t for t in self._waiting_tasks() if t.wait_reason is WaitReason.ROUTE and t.routings)
        found = sorted((t for t in tasks if _earliest(t) > after), key=_earliest)
        return [self._with_run(task) for task in found[:limit]]

    async def next_available_at(self) -> int | None:
        """See Work.next_available_at."""
        return min((task.available_at for task in self._waiting_tasks()), default=None)

    def _waiting_tasks(self) -> Iterable[Task]:
        tasks = self._tasks.live.values()
        return (t for t in tasks if t.state is TaskState.PENDING and t.wait_reason not in _HELD_BACK)

    def _with_run(self, task: Task) -> ReadyTask:
        # An item is given what was worked out for it, and nothing else.
        given = self._payloads.get((task.run_id, "input")) if task.parent is None else None
        own = self._payloads.get((task.task_id, "input"))
        return ReadyTask(task=task, run=self._runs[task.run_id], input=given, own_input=own)

    async def admit(self, admissions: Sequence[Admission], *, now: int) -> frozenset[TaskId]:
        """See Work.admit."""
        done = set()
        for one in admissions:
            task = self._tasks.get(one.task_id)
            if task is None or task.state is not TaskState.PENDING or one.fence not in (None, task.fence):
                continue
            if one.behind is not None and self._state(one.behind) is not TaskState.SUCCEEDED:
                continue
            if not self._within_tenant_limit(one):
                continue
            self._tasks[task.task_id] = replace(
                task,
                state=one.state,
                wait_reason=one.wait_reason,
                available_at=one.available_at,
                routings=one.routings,
                note=one.note,
                skipped=one.skipped,
            )
            if one.placement is not None:
                self._placements[task.task_id] = one.placement
            if one.own_input is not None:
                self._payloads[task.task_id, "input"] = one.own_input
            done.add(task.task_id)
            if one.over:
                self._after_task_end(one, one.note, now)
        return frozenset(done)

    async def fan_out(self, unfoldings: Sequence[FanOut], *, now: int) -> frozenset[TaskId]:
        """See Work.unfold."""
        return frozenset(one.task_id for one in unfoldings if self._unfold(one, now))

    def _unfold(self, one: FanOut, now: int) -> bool:
        task = self._tasks.get(one.task_id)
        if task is None or task.state is not TaskState.PENDING or task.fence != one.fence:
            return False
        held = replace(task, state=TaskState.RUNNING, fence=task.fence + 1, open_items=len(one.items), note=None)
        self._tasks[task.task_id] = held
        self._attempts[held.task_id, held.fence] = Attempt(
            task_id=task.task_id, number=held.fence, worker=ENGINE, lease_until=_FOREVER, dispatched_at=now
        )
        self._start((held.task_id, held.fence), now)
        for made, given in zip(item_tasks(held, len(one.items), limit=one.limit, now=now), one.items, strict=True):
            self._tasks[made.task_id] = made
            self._payloads[made.task_id, "input"] = given
        if one.launch is not None:
            self._launch(one.launch, now)
        elif not one.items:
            self._end_engine_task(held, one.graph, AttemptOutcome(result=Result.SUCCEEDED, output=one.output), now)
        return True

    async def take(
        self,
        worker: str,
        *,
        limit: int,
        lease_ms: int,
        now: int,
        begin: bool = True,
        known: Mapping[TaskId, AdmissionRequest] = NO_KNOWN_TASKS,
        reach: TakeFilter = DEFAULT_TAKE_FILTER,
    ) -> Sequence[ReadyTask]:
        """See Work.take."""
        del known  # reading is free
        taken = []
        for task in self._in_reach(worker, reach)[:limit]:
            held = replace(task, state=TaskState.DISPATCHED, fence=task.fence + 1, note=None)
            self._tasks[task.task_id] = held
            self._attempts[task.task_id, held.fence] = Attempt(
                task_id=task.task_id,
                number=held.fence,
                worker=worker,
                lease_until=self._now() + lease_ms,
                dispatched_at=now,
            )
            if begin:
                self._start((task.task_id, held.fence), now)
            taken.append(self._with_run(self._tasks[task.task_id]))
        return taken

    async def begin(
        self, held: Collection[AttemptRef], *, now: int, worker: str | None = None
    ) -> frozenset[AttemptRef]:
        """See Work.begin."""
        granted = frozenset(one for one in held if self._state(one) is TaskState.DISPATCHED)
        for one in granted:
            self._start(one, now)
            self._attempts[one] = replace(self._attempts[one], worker=worker or self._attempts[one].worker)
        running = (one for one in held if self._state(one) is TaskState.RUNNING)
        return granted | {one for one in running if self._attempts[one].worker == worker}

    def _start(self, held: AttemptRef, now: int) -> None:
        task = self._tasks[held[0]] = replace(self._tasks[held[0]], state=TaskState.RUNNING)
        self._attempts[held] = replace(self._attempts[held], started_at=now)
        run = self._runs[task.run_id]
        if run.started_at is None:
            self._runs[run.run_id] = replace(run, status=RunStatus.RUNNING, started_at=now)
            self._set_tick(run, TickStatus.STARTED)

    async def renew(self, worker: str, held: Collection[AttemptRef], *, lease_ms: int) -> LeaseRenewal:
        """See Work.renew."""
        ours = [one for one in held if self._state(one) in ASSIGNED and not self._started_by_other(one, worker)]
        for one in ours:
            self._attempts[one] = replace(self._attempts[one], lease_until=self._now() + lease_ms)
        to_cancel = (one for one in ours if self._runs[self._tasks[one[0]].run_id].cancel_requested_at is not None)
        return LeaseRenewal(lost=frozenset(held) - frozenset(ours), to_cancel=frozenset(to_cancel))

    async def report(self, endings: Sequence[TaskCompletion]) -> frozenset[AttemptRef]:
        """See Work.report."""
        return frozenset((one.task_id, one.fence) for one in endings if self._end_attempt(one))

    async def cancel_requests(self, worker: str) -> frozenset[AttemptRef]:
        """See Work.asked_to_stop."""
        ours = (held for held, one in self._attempts.items() if one.worker == worker and one.ended_at is None)
        return frozenset(
            held for held in ours if self._runs[self._tasks[held[0]].run_id].cancel_requested_at is not None
        )

    async def assigned_tasks(self, held: Collection[AttemptRef]) -> Sequence[ReadyTask]:
        """See Work.handed_out."""
        return [self._with_run(self._tasks[one[0]]) for one in held if self._state(one) in ASSIGNED]

    async def open_attempts(self, *, after: TaskId, limit: int) -> OpenAttemptsPage:
        """See Work.open_attempts."""
        found = sorted(held for held, attempt in self._attempts.items() if attempt.ended_at is None and held[0] > after)
        tasks = [(self._tasks[task_id], self._attempts[task_id, number]) for task_id, number in found[:limit]]
        page = [OpenAttempt(task=task, run=self._runs[task.run_id], attempt=attempt) for task, attempt in tasks]
        return OpenAttemptsPage(page, self._now())

    # ---- workers -----------------------------------------------------------------------------

    async def register_worker(self, card: WorkerInfo, *, ttl_ms: int) -> None:
        """See Workers.enlist."""
        now = self._now()
        self._workers[card.worker] = replace(card, seen_at=now), now + ttl_ms

    async def workers(self) -> Sequence[WorkerInfo]:
        """See Workers.workers."""
        now = self._now()
        return [card for _, (card, until) in sorted(self._workers.items()) if until > now]

    async def deregister_worker(self, worker: str) -> None:
        """See Workers.dismiss."""
        self._workers.pop(worker, None)

    # ---- runs --------------------------------------------------------------------------------

    async def launch(self, launches: Sequence[LaunchRequest], *, now: int) -> Sequence[LaunchOutcome]:
        """See Runs.launch."""
        return [self._launch(one, now) for one in launches]

    def _launch(self, wish: LaunchRequest, now: int) -> LaunchOutcome:
        run = wish.run
        if run.run_id in self._runs:
            return LaunchOutcome.ALREADY
        became, replaces, schedule = LaunchOutcome.STARTED, False, None
        if run.schedule_uid is not None:
            schedule = self._schedules.get(run.schedule_uid)
            if schedule is None:
                return LaunchOutcome.GONE
            counts = {"active": schedule.active_runs, "queued": schedule.queued_runs}
            became, replaces = decide_launch(schedule.spec, **counts, force=wish.force)
            if became not in (LaunchOutcome.STARTED, LaunchOutcome.QUEUED):
                return became
            run = replace(run, queued=became is LaunchOutcome.QUEUED)
            if replaces:
                schedule = replace(schedule, queued_runs=0)
        self._add_run(run, wish, schedule, now)
        if schedule is not None and replaces:
            self._supersede(schedule.uid, now, by=run.run_id)
        return became

    def _add_run(self, run: Run, wish: LaunchRequest, schedule: Schedule | None, now: int) -> None:
        self._runs[run.run_id] = run
        self._tasks.add(first_tasks(run, wish.first_steps, now=now))
        if wish.input is not None:
            self._payloads[run.run_id, "input"] = wish.input
        letter = self._dead_letters.get(run.replay_of or "")
        if letter is not None:
            self._dead_letters[letter.dead_letter_id] = replace(letter, replayed_by=run.run_id)
        if schedule is not None:
            active, queued = schedule.active_runs + (not run.queued), schedule.queued_runs + run.queued
            self._schedules[schedule.uid] = replace(schedule, active_runs=active, queued_runs=queued)

    async def cancel(self, run_id: RunId, *, reason: str, now: int, actor: str = ENGINE) -> CancelOutcome:
        """See Runs.cancel."""
        del actor
        run = self._runs.get(run_id)
        if run is None:
            return CancelOutcome.UNKNOWN
        if run.over:
            return CancelOutcome.OVER
        self._cancel(run, reason, now)
        return CancelOutcome.CANCELLED if self._runs[run_id].over else CancelOutcome.ASKED

    # ---- executions --------------------------------------------------------------------------

    async def find_run(self, run_id: RunId) -> Run | None:
        """See Executions.find_run."""
        return self._runs.get(run_id)

    async def list_runs(self, query: RunQuery) -> Sequence[Run]:
        """See Executions.list_runs."""
        found = [
            run
            for run in self._listed(query)
            if query.status in (None, run.status)
            and query.source in (None, run.source)
            and (query.down_to is None or (run.created_at, run.run_id) >= query.down_to)
        ]
        return found[: query.limit]

    async def run_position(self, query: RunQuery, number: int) -> tuple[int, str] | None:
        """See Executions.place_of_run."""
        found = self._listed(query)[number - 1 : number]
        return (found[0].created_at, found[0].run_id) if found else None

    def _listed(self, query: RunQuery) -> list[Run]:
        found = [
            run
            for run in self._runs.values()
            if run.tenant == query.tenant
            and query.schedule_id in (None, run.schedule_id)
            and (query.since is None or run.created_at >= query.since)
            and (query.until is None or run.created_at < query.until)
            and (query.after is None or (run.created_at, run.run_id) < query.after)
        ]
        return sorted(found, key=lambda run: (run.created_at, run.run_id), reverse=True)

    async def attempts(self, tasks: Sequence[TaskId]) -> Sequence[Attempt]:
        """See Executions.attempts."""
        wanted = set(tasks)
        return [attempt for held, attempt in sorted(self._attempts.items()) if held[0] in wanted]

    async def payload(self, owner_id: str, kind: str) -> bytes | None:
        """See Executions.payload."""
        return self._payloads.get((owner_id, kind))

    async def payloads(self, owner_ids: Sequence[str], kind: str) -> Mapping[str, bytes]:
        """See Executions.payloads."""
        return {name: self._payloads[name, kind] for name in owner_ids if (name, kind) in self._payloads}

    async def log_lengths(self, tasks: Sequence[TaskId]) -> Mapping[TaskId, int]:
        """See Executions.log_lengths."""
        return {name: len(lines) for name in tasks if (lines := self._logs.get(name))}

    async def log_lines(self, task_id: TaskId, *, after: int = 0, limit: int = 1000) -> Sequence[LogLine]:
        """See Executions.log_lines."""
        return self._logs.get(task_id, [])[after : after + limit]

    # ---- dead letters ------------------------------------------------------------------------

    async def find_dead_letter(self, tenant: str, dead_letter_id: str) -> DeadLetter | None:
        """See DeadLetters.find_dead_letter."""
        found = self._dead_letters.get(dead_letter_id)
        return found if found is not None and found.tenant == tenant else None

    async def list_dead_letters(
        self, tenant: str, *, job: str | None = None, unresolved: bool = False, after: str = "", limit: int = 100
    ) -> Sequence[DeadLetter]:
        """See DeadLetters.list_dead_letters."""
        found = [
            letter
            for name, letter in sorted(self._dead_letters.items())
            if letter.tenant == tenant
            and job in (None, letter.job)
            and not (unresolved and letter.resolved_at is not None)
            and name > after
        ]
        return found[:limit]

    async def resolve(self, tenant: str, dead_letter_ids: Collection[str], *, by: str, now: int) -> int:
        """See DeadLetters.resolve."""
        ours = [name for name in dead_letter_ids if await self.find_dead_letter(tenant, name)]
        return sum(self._resolve(name, by, now) for name in ours)


def _earliest(task: Task) -> tuple[int, str]:
    return task.available_at, task.task_id
