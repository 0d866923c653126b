"""Faults of the store: how likely each is, and the parts of a store through which a process meets them."""

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from gnomon.core.agents.sessions import SessionSummary, StoredTurn
from gnomon.core.agents.usage import AgentUsageDay, AgentUsageJob, AgentUsageTotal
from gnomon.core.approvals.model import Approval, Vote
from gnomon.core.model import ENGINE, MOST_SUB_RUN_TASKS, RunId, Schedule, ScheduleUid, TaskId, TickVerdict
from gnomon.core.output_policy.ruling import HeldOutput
from gnomon.core.runs.admission import Admission, AdmissionRequest, FanOut, FanOutResult, ReadyTask
from gnomon.core.runs.deadlines import OverdueEnd, OverdueTask
from gnomon.core.runs.fair_share import TenantShares
from gnomon.core.runs.launch import CancelOutcome, LaunchOutcome, LaunchRequest
from gnomon.core.runs.outcomes import TaskCompletion
from gnomon.core.runs.progress import AttemptProgress
from gnomon.core.runs.rollback import RollbackOutcome
from gnomon.core.runs.routing import Placement
from gnomon.core.runs.workflow import Workflow
from gnomon.errors import StoreUnavailable
from gnomon.ports.actions import ActionCounts
from gnomon.ports.agents import AgentSessions, AgentUsages
from gnomon.ports.approvals import ApprovalFilter, Approvals
from gnomon.ports.ledger import ShardRenewal, Shards, Terms
from gnomon.ports.output_policy import HeldOutputReader
from gnomon.ports.runs import PayloadReader, Runs
from gnomon.ports.schedules import JobChangeset, Jobs, ScheduleOrder, SchedulePosition, Schedules
from gnomon.ports.store import Store
from gnomon.ports.tasks import (
    DEFAULT_TAKE_FILTER,
    NO_KNOWN_TASKS,
    AttemptRef,
    Attempts,
    InFlightCounts,
    LeaseRenewal,
    OpenAttemptsPage,
    PendingTasks,
    QueuePosition,
    TakeFilter,
    TaskDeadlines,
    TaskPlacement,
    WorkerInfo,
    Workers,
)
from gnomon.testing.history import MAX_FAULT_MS, OPERATOR
from gnomon.testing.recorder import HistoryRecorder

_SLOW_MS = (5, 200, 3_000, 15_000, MAX_FAULT_MS)
_MEANWHILE_MS = (0, 0, 1_000, 30_000, 200_000)


class SimulatedCrash(BaseException):
    """The process has died. Only the simulation catches this."""


class FaultProbabilities:
    """The probability of each fault, per call. All are 0 by default."""

    def __init__(
        self, *, crash: float = 0, failure: float = 0, slowness: float = 0, race: float = 0, operator_failure: float = 0
    ) -> None:
        self.crash, self.failure, self.slowness, self.race = crash, failure, slowness, race
        #: A call of an operator fails, before or after the commit.
        self.operator_failure = operator_failure

    def disable_all(self) -> None:
        """Inject no more faults."""
        self.crash = self.failure = self.slowness = self.race = self.operator_failure = 0


class FaultEnvironment(Protocol):
    """The surroundings of a process: time, and other processes."""

    def broken(self, who: str) -> None:
        """Record that a process was disturbed."""
        ...

    async def stall(self, ms: int) -> None:
        """Let this much time pass, in which other processes act."""
        ...

    async def meanwhile(self, ms: int = 0) -> None:
        """Let other processes act for this long, at least one of them."""
        ...


class FaultInjector:
    """Injects faults into the calls of one process."""

    def __init__(
        self,
        who: str,
        rng: random.Random,
        chances: FaultProbabilities,
        environment: FaultEnvironment,
        alive: Callable[[], bool],
    ) -> None:
        self._who = who
        self._rng = rng
        self._chances = chances
        self._environment = environment
        self._alive = alive

    async def before(self) -> None:
        """Before a call: delay it, fail it, or crash the process."""
        await self._slow()
        self._maybe_fail("the store is away")

    async def after(self) -> None:
        """After the commit: delay the answer, lose it, or crash the process."""
        await self._slow()
        self._maybe_fail("the connection broke while committing")

    def fail_at_random(self) -> None:
        """Fail a call of a gate: it runs beside the services, so it does not stall, and takes no process down."""
        if self._rng.random() < self._chances.failure:
            self._environment.broken(self._who)
            raise StoreUnavailable("the store is away")

    async def _slow(self) -> None:
        if self._rng.random() < self._chances.slowness:
            self._environment.broken(self._who)
            await self._environment.stall(self._rng.choice(_SLOW_MS))

    async def race_decision(self) -> None:
        """Let others act between reading schedules and writing their decisions."""
        if self._rng.random() < self._chances.race:
            # The decision of the ticks is late by as much.
            self._environment.broken(self._who)
            for _ in range(self._rng.choice((1, 2, 5))):
                await self._environment.meanwhile()

    async def race_task_write(self) -> None:
        """Let others act, perhaps for long, between reading tasks and writing them."""
        if self._rng.random() < self._chances.race:
            await self._environment.meanwhile(self._rng.choice(_MEANWHILE_MS))

    def _maybe_fail(self, text: str) -> None:
        if not self._alive():
            raise SimulatedCrash
        if self._rng.random() < self._chances.failure:
            self._environment.broken(self._who)
            raise StoreUnavailable(text)
        if self._rng.random() < self._chances.crash:
            self._environment.broken(self._who)
            raise SimulatedCrash


class FaultyLedger:
    """Implements Ledger for the ticker of one process."""

    def __init__(self, store: Store, recorder: HistoryRecorder, faults: FaultInjector, *, holder: str) -> None:
        self._store = store
        self._recorder = recorder
        self._faults = faults
        self._holder = holder

    async def due(self, now: int, *, shards: frozenset[int], limit: int) -> Sequence[Schedule]:
        """See Ledger.due."""
        await self._faults.before()
        found = await self._store.ledger.due(now, shards=shards, limit=limit)
        if found:
            await self._faults.race_decision()
        return found

    async def next_due_at(self, *, shards: frozenset[int]) -> int | None:
        """See Ledger.next_due_at."""
        return await self._store.ledger.next_due_at(shards=shards)

    async def decide(self, verdicts: Sequence[TickVerdict], *, now: int, terms: Terms) -> frozenset[ScheduleUid]:
        """See Ledger.decide."""
        await self._faults.before()
        done = await self._store.ledger.decide(verdicts, now=now, terms=terms)
        for verdict in verdicts:
            if verdict.schedule.uid in done:
                term = terms[verdict.schedule.shard]
                await self._recorder.decided(verdict, at=now, term=term, holder=self._holder)
        await self._faults.after()
        return done

    async def set_back_marks(self, *, terms: Terms, limit: int) -> Sequence[Schedule]:
        """See Ledger.set_back_marks."""
        await self._faults.before()
        corrected = await self._store.ledger.set_back_marks(terms=terms, limit=limit)
        for schedule in corrected:
            self._recorder.set_back(schedule)
        await self._faults.after()
        return corrected


class FaultyShards:
    """Implements Shards for the elector of one process."""

    def __init__(self, shards: Shards, faults: FaultInjector) -> None:
        self._shards = shards
        self._faults = faults

    async def renew(self, holder: str, *, ttl_ms: int) -> ShardRenewal:
        """See Shards.renew."""
        await self._faults.before()
        return await self._shards.renew(holder, ttl_ms=ttl_ms)

    async def claim(self, holder: str, *, ttl_ms: int, limit: int, by_force: bool = False) -> Terms:
        """See Shards.claim."""
        taken = await self._shards.claim(holder, ttl_ms=ttl_ms, limit=limit, by_force=by_force)
        await self._faults.after()
        return taken

    async def leave(self, holder: str) -> None:
        """See Shards.leave."""
        await self._shards.leave(holder)

    async def release(self, holder: str, shards: Collection[int]) -> None:
        """See Shards.release."""
        await self._shards.release(holder, shards)


class FaultyTasks:
    """Implements PendingTasks for one process."""

    def __init__(self, tasks: PendingTasks, recorder: HistoryRecorder, faults: FaultInjector, *, holder: str) -> None:
        self._tasks = tasks
        self._recorder = recorder
        self._faults = faults
        self._holder = holder

    async def waiting(self, now: int, *, limit: int, in_turns: bool = False) -> Sequence[ReadyTask]:
        """See PendingTasks.waiting."""
        await self._faults.before()
        found = await self._tasks.waiting(now, limit=limit, in_turns=in_turns)
        if found:
            await self._faults.race_task_write()
        return found

    async def unroutable_tasks(self, *, after: QueuePosition, limit: int) -> Sequence[ReadyTask]:
        """See PendingTasks.unroutable_tasks."""
        await self._faults.before()
        return await self._tasks.unroutable_tasks(after=after, limit=limit)

    async def next_available_at(self) -> int | None:
        """See PendingTasks.next_available_at."""
        return await self._tasks.next_available_at()

    async def admit(self, admissions: Sequence[Admission], *, now: int) -> Mapping[TaskId, Admission]:
        """See PendingTasks.admit."""
        await self._faults.before()
        done = await self._tasks.admit(admissions, now=now)
        self._recorder.policy.admitted(done, now=now, by=self._holder)
        await self._recorder.look(one.run_id for one in admissions if one.task_id in done)
        await self._faults.after()
        return done

    async def fan_out(
        self, fan_outs: Sequence[FanOut], *, now: int, most_sub_run_tasks: int = MOST_SUB_RUN_TASKS
    ) -> FanOutResult:
        """See PendingTasks.fan_out."""
        await self._faults.before()
        done = await self._tasks.fan_out(fan_outs, now=now, most_sub_run_tasks=most_sub_run_tasks)
        await self._recorder.look(one.run_id for one in fan_outs if one.task_id in done.started)
        await self._faults.after()
        return done

    async def actions_since(self, tenant: str, *, since: int, besides: AttemptRef | None = None) -> int:
        """See PendingTasks.actions_since."""
        await self._faults.before()
        return await self._tasks.actions_since(tenant, since=since, besides=besides)


class FaultyAttempts:
    """Implements Attempts for one process."""

    def __init__(self, attempts: Attempts, recorder: HistoryRecorder, faults: FaultInjector, *, holder: str) -> None:
        self._attempts = attempts
        self._recorder = recorder
        self._faults = faults
        self._holder = holder

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
        await self._faults.before()
        taken = await self._attempts.take(
            worker, limit=limit, lease_ms=lease_ms, now=now, begin=begin, known=known, reach=reach, shares=shares
        )
        if taken:
            await self._recorder.granted(taken, worker, lease_ms)
        await self._faults.after()
        return taken

    async def begin(
        self, held: Collection[AttemptRef], *, now: int, worker: str | None = None
    ) -> frozenset[AttemptRef]:
        """See Attempts.begin."""
        return await self._attempts.begin(held, now=now, worker=worker)

    async def renew(self, worker: str, held: Collection[AttemptRef], *, lease_ms: int) -> LeaseRenewal:
        """See Attempts.renew."""
        await self._faults.before()
        renewal = await self._attempts.renew(worker, held, lease_ms=lease_ms)
        self._recorder.renewed(frozenset(held) - renewal.lost, lease_ms)
        await self._faults.after()
        return renewal

    async def cancel_requests(self, worker: str) -> frozenset[AttemptRef]:
        """See Attempts.cancel_requests."""
        await self._faults.before()
        return await self._attempts.cancel_requests(worker)

    async def report(self, endings: Sequence[TaskCompletion]) -> frozenset[AttemptRef]:
        """See Attempts.report."""
        await self._faults.before()
        counted = await self._attempts.report(endings)
        await self._recorder.reported(endings, counted, by=self._holder)
        await self._faults.after()
        return counted

    async def keep_progress(self, progress: AttemptProgress, *, worker: str | None, now: int) -> bool:
        """See Attempts.keep_progress."""
        await self._faults.before()
        return await self._attempts.keep_progress(progress, worker=worker, now=now)

    async def assigned_tasks(self, held: Collection[AttemptRef]) -> Sequence[ReadyTask]:
        """See Attempts.assigned_tasks."""
        return await self._attempts.assigned_tasks(held)

    async def open_attempts(self, *, after: TaskId, limit: int) -> OpenAttemptsPage:
        """See Attempts.open_attempts."""
        await self._faults.before()
        page = await self._attempts.open_attempts(after=after, limit=limit)
        if page.attempts:
            self._recorder.looked_for_lapsed((one.task.task_id, one.attempt.number) for one in page.attempts)
            await self._faults.race_task_write()
        return page


class FaultyTaskDeadlines:
    """Implements TaskDeadlines for one process."""

    def __init__(self, deadlines: TaskDeadlines, recorder: HistoryRecorder, faults: FaultInjector) -> None:
        self._deadlines = deadlines
        self._recorder = recorder
        self._faults = faults

    async def next_end_at(self, *, grace_ms: int) -> int | None:
        """See TaskDeadlines.next_end_at."""
        await self._faults.before()
        return await self._deadlines.next_end_at(grace_ms=grace_ms)

    async def overdue(self, now: int, *, grace_ms: int, after: QueuePosition, limit: int) -> Sequence[OverdueTask]:
        """See TaskDeadlines.overdue."""
        found = await self._deadlines.overdue(now, grace_ms=grace_ms, after=after, limit=limit)
        if found:
            await self._faults.race_task_write()
        return found

    async def end_overdue(self, ends: Sequence[OverdueEnd], *, now: int) -> frozenset[TaskId]:
        """See TaskDeadlines.end_overdue."""
        await self._faults.before()
        ended = await self._deadlines.end_overdue(ends, now=now)
        await self._recorder.ended_by_deadline([one for one in ends if one.task_id in ended])
        await self._faults.after()
        return ended


class FaultyTaskPlacement:
    """Implements TaskPlacement for one process."""

    def __init__(self, placement: TaskPlacement, recorder: HistoryRecorder, faults: FaultInjector) -> None:
        self._placement = placement
        self._recorder = recorder
        self._faults = faults

    async def in_flight_counts(self) -> InFlightCounts:
        """See TaskPlacement.in_flight_counts."""
        await self._faults.before()
        return await self._placement.in_flight_counts()

    async def placements(self, tasks: Collection[TaskId]) -> Mapping[TaskId, Placement]:
        """See TaskPlacement.placements."""
        return await self._placement.placements(tasks)

    async def chosen(self) -> Collection[Placement]:
        """See TaskPlacement.chosen."""
        return await self._placement.chosen()

    async def recall_stranded(self) -> Sequence[tuple[TaskId, RunId]]:
        """See TaskPlacement.recall_stranded. A call that recalls nothing, as most do, has no fault."""
        recalled = await self._placement.recall_stranded()
        self._recorder.policy.recalled(task_id for task_id, _ in recalled)
        if recalled:
            await self._recorder.look(run_id for _, run_id in recalled)
            await self._faults.after()
        return recalled


class FaultyWorkers:
    """Implements Workers for one process."""

    def __init__(self, workers: Workers, faults: FaultInjector) -> None:
        self._workers = workers
        self._faults = faults

    async def register(self, card: WorkerInfo, *, ttl_ms: int) -> None:
        """See Workers.register."""
        await self._faults.before()
        await self._workers.register(card, ttl_ms=ttl_ms)

    async def alive(self) -> Sequence[WorkerInfo]:
        """See Workers.alive."""
        await self._faults.before()
        return await self._workers.alive()

    async def deregister(self, worker: str) -> None:
        """See Workers.deregister."""
        await self._workers.deregister(worker)

    async def in_hand_of(self, tenant: str) -> Mapping[str, int]:
        """See Workers.in_hand_of."""
        await self._faults.before()
        return await self._workers.in_hand_of(tenant)


class FaultyPayloads:
    """Implements PayloadReader for one process."""

    def __init__(self, executions: PayloadReader, faults: FaultInjector) -> None:
        self._executions = executions
        self._faults = faults

    async def payloads(self, owner_ids: Sequence[str], kind: str) -> Mapping[str, bytes]:
        """See PayloadReader.payloads."""
        await self._faults.before()
        return await self._executions.payloads(owner_ids, kind)


class FaultyJobs:
    """Implements Jobs for one process."""

    def __init__(self, jobs: Jobs, faults: FaultInjector) -> None:
        self._jobs = jobs
        self._faults = faults

    async def workflow(self, tenant: str, workflow_id: str, version: int | None = None) -> Workflow | None:
        """See Jobs.workflow."""
        await self._faults.before()
        return await self._jobs.workflow(tenant, workflow_id, version)

    async def list_workflows(self, tenant: str, *, after: str, limit: int) -> Sequence[Workflow]:
        """See Jobs.list_workflows."""
        return await self._jobs.list_workflows(tenant, after=after, limit=limit)

    async def newest_workflows(self, tenant: str, workflow_ids: Sequence[str]) -> Sequence[Workflow]:
        """See Jobs.newest_workflows."""
        return await self._jobs.newest_workflows(tenant, workflow_ids)

    async def apply(self, changes: JobChangeset, *, now: int, actor: str, tzdata: str) -> bool:
        """See Jobs.apply."""
        return await self._jobs.apply(changes, now=now, actor=actor, tzdata=tzdata)


class FaultyApprovals:
    """Implements Approvals for one process."""

    def __init__(self, approvals: Approvals, fail_at_random: Callable[[], None]) -> None:
        self._approvals = approvals
        self._fail_at_random = fail_at_random

    async def ask(self, asked: Approval, *, actor: str, now: int) -> Approval:
        """See Approvals.ask."""
        return await self._approvals.ask(asked, actor=actor, now=now)

    async def revoke(self, tenant: str, approval_id: str, *, actor: str, now: int) -> Approval:
        """See Approvals.revoke."""
        return await self._approvals.revoke(tenant, approval_id, actor=actor, now=now)

    async def standing(self, tenant: str, subjects: Collection[str]) -> Sequence[Approval]:
        """See Approvals.standing."""
        self._fail_at_random()
        return await self._approvals.standing(tenant, subjects)

    async def of_task(self, task_id: TaskId) -> Sequence[Approval]:
        """See Approvals.of_task."""
        self._fail_at_random()
        return await self._approvals.of_task(task_id)

    async def find(self, tenant: str, approval_id: str) -> Approval | None:
        """See Approvals.find."""
        return await self._approvals.find(tenant, approval_id)

    async def page(self, wanted: ApprovalFilter, *, before: str | None, limit: int) -> Sequence[Approval]:
        """See Approvals.page."""
        return await self._approvals.page(wanted, before=before, limit=limit)

    async def vote(self, tenant: str, approval_id: str, vote: Vote, *, digest: str) -> Approval:
        """See Approvals.vote."""
        return await self._approvals.vote(tenant, approval_id, vote, digest=digest)

    async def authors(self, approval: Approval) -> frozenset[str]:
        """See Approvals.authors."""
        return await self._approvals.authors(approval)


class FaultyActionCounts:
    """Implements ActionCounts for one process."""

    def __init__(self, actions: ActionCounts, faults: FaultInjector) -> None:
        self._actions = actions
        self._faults = faults

    async def count(self, action_id: str, tenant: str, *, limit: int, now: int) -> bool:
        """See ActionCounts.count."""
        return await self._actions.count(action_id, tenant, limit=limit, now=now)

    async def reserve(self, task_id: str, number: int, tenant: str, *, count: int, limit: int, now: int) -> bool:
        """See ActionCounts.reserve."""
        await self._faults.before()
        return await self._actions.reserve(task_id, number, tenant, count=count, limit=limit, now=now)

    async def give_back(self, action_id: str) -> None:
        """See ActionCounts.give_back."""
        await self._actions.give_back(action_id)


class FaultyAgentSessions:
    """Implements AgentSessions for one process."""

    def __init__(self, sessions: AgentSessions, faults: FaultInjector) -> None:
        self._sessions = sessions
        self._faults = faults

    async def acquire(self, tenant: str, session: str, task_id: str, *, now: int) -> bool:
        """See AgentSessions.acquire."""
        await self._faults.before()
        return await self._sessions.acquire(tenant, session, task_id, now=now)

    async def turns(self, tenant: str, session: str, *, limit: int) -> Sequence[StoredTurn]:
        """See AgentSessions.turns."""
        await self._faults.before()
        return await self._sessions.turns(tenant, session, limit=limit)

    async def list_sessions(self, tenant: str, *, limit: int) -> Sequence[SessionSummary]:
        """See AgentSessions.list_sessions."""
        return await self._sessions.list_sessions(tenant, limit=limit)

    async def clear(self, tenant: str, session: str, *, actor: str, now: int) -> int:
        """See AgentSessions.clear."""
        return await self._sessions.clear(tenant, session, actor=actor, now=now)


class FaultyAgentUsages:
    """Implements AgentUsages for one process."""

    def __init__(self, usages: AgentUsages, faults: FaultInjector) -> None:
        self._usages = usages
        self._faults = faults

    async def cost_since(self, tenant: str, since: int) -> int:
        """See AgentUsages.cost_since."""
        await self._faults.before()
        return await self._usages.cost_since(tenant, since)

    async def by_day(self, tenant: str, *, since: int) -> Sequence[AgentUsageDay]:
        """See AgentUsages.by_day."""
        return await self._usages.by_day(tenant, since=since)

    async def by_job(self, tenant: str, *, since: int, limit: int) -> Sequence[AgentUsageJob]:
        """See AgentUsages.by_job."""
        return await self._usages.by_job(tenant, since=since, limit=limit)

    async def of_runs(self, tenant: str, run_ids: Sequence[str]) -> dict[str, AgentUsageTotal]:
        """See AgentUsages.of_runs."""
        return await self._usages.of_runs(tenant, run_ids)

    async def of_job(self, tenant: str, job: str, *, since: int) -> AgentUsageTotal:
        """See AgentUsages.of_job."""
        return await self._usages.of_job(tenant, job, since=since)


class FaultyHeldOutputs:
    """Implements HeldOutputReader for one process."""

    def __init__(self, held: HeldOutputReader, faults: FaultInjector) -> None:
        self._held = held
        self._faults = faults

    async def find(self, tenant: str, task_id: TaskId) -> HeldOutput | None:
        """See HeldOutputReader.find."""
        await self._faults.before()
        return await self._held.find(tenant, task_id)


class FaultyExecutionStore:
    """Implements ExecutionStore for the dispatcher, the worker or the reconciler of one process."""

    def __init__(self, store: Store, recorder: HistoryRecorder, faults: FaultInjector, *, holder: str) -> None:
        self.tasks = FaultyTasks(store.tasks, recorder, faults, holder=holder)
        self.attempts = FaultyAttempts(store.attempts, recorder, faults, holder=holder)
        self.deadlines = FaultyTaskDeadlines(store.deadlines, recorder, faults)
        self.placement = FaultyTaskPlacement(store.placement, recorder, faults)
        self.workers = FaultyWorkers(store.workers, faults)
        self.executions = FaultyPayloads(store.executions, faults)
        self.jobs = FaultyJobs(store.jobs, faults)
        self.approvals = FaultyApprovals(store.approvals, faults.fail_at_random)
        self.actions = FaultyActionCounts(store.actions, faults)
        self.agent_sessions = FaultyAgentSessions(store.agent_sessions, faults)
        self.agent_usages = FaultyAgentUsages(store.agent_usages, faults)
        self.held_outputs = FaultyHeldOutputs(store.held_outputs, faults)


class OperatorFaults:
    """Injects faults into the calls of operators, before or after the commit."""

    def __init__(self, rng: random.Random, chances: FaultProbabilities, environment: FaultEnvironment) -> None:
        self._rng = rng
        self._chances = chances
        self._environment = environment

    def before(self) -> None:
        """Before a call: fail it."""
        self._maybe_fail("the store is away")

    def after(self) -> None:
        """After the commit: lose the answer."""
        self._maybe_fail("the connection broke while committing")

    def _maybe_fail(self, text: str) -> None:
        if self._chances.operator_failure and self._rng.random() < self._chances.operator_failure:
            raise StoreUnavailable(text)

    async def race(self) -> None:
        """Let others act between reading a schedule and changing it."""
        if self._rng.random() < self._chances.race:
            self._environment.broken(OPERATOR)
            await self._environment.meanwhile(self._rng.choice(_MEANWHILE_MS))


class FaultySchedules:
    """Implements Schedules for operators. Records every change."""

    def __init__(self, schedules: Schedules, recorder: HistoryRecorder, faults: OperatorFaults) -> None:
        self._schedules = schedules
        self._recorder = recorder
        self._faults = faults

    async def find(self, tenant: str, schedule_id: str) -> Schedule | None:
        """See Schedules.find."""
        found = await self._schedules.find(tenant, schedule_id)
        await self._faults.race()
        return found

    async def page(self, tenant: str, *, after: str, limit: int) -> Sequence[Schedule]:
        """See Schedules.page."""
        return await self._schedules.page(tenant, after=after, limit=limit)

    async def in_order(
        self, tenant: str, order: ScheduleOrder, *, after: SchedulePosition | None, limit: int
    ) -> Sequence[Schedule]:
        """See Schedules.in_order."""
        return await self._schedules.in_order(tenant, order, after=after, limit=limit)

    async def names_from(self, tenant: str, origins: Collection[str]) -> frozenset[str]:
        """See Schedules.names_from."""
        return await self._schedules.names_from(tenant, origins)

    async def orphans(self, tenant: str, *, limit: int) -> Sequence[Schedule]:
        """See Schedules.orphans."""
        return await self._schedules.orphans(tenant, limit=limit)

    async def add(self, schedules: Sequence[Schedule], *, actor: str, tzdata: str) -> frozenset[str]:
        """See Schedules.add."""
        self._faults.before()
        taken = await self._schedules.add(schedules, actor=actor, tzdata=tzdata)
        self._faults.after()
        return taken

    async def change(self, verdict: TickVerdict, changed: Schedule, *, now: int, actor: str, tzdata: str) -> bool:
        """See Schedules.change."""
        self._faults.before()
        done = await self._schedules.change(verdict, changed, now=now, actor=actor, tzdata=tzdata)
        if done:
            await self._recorder.decided(verdict, at=now, term=None, holder=None, changed=changed)
        self._faults.after()
        return done

    async def delete(self, verdict: TickVerdict, *, now: int, actor: str) -> bool:
        """See Schedules.delete."""
        self._faults.before()
        done = await self._schedules.delete(verdict, now=now, actor=actor)
        if done:
            await self._recorder.decided(verdict, at=now, term=None, holder=None)
            await self._recorder.deleted(verdict.schedule.uid, at=now)
        self._faults.after()
        return done


class FaultyRuns:
    """Implements Runs for operators. Records every launch and cancellation."""

    def __init__(self, runs: Runs, recorder: HistoryRecorder, faults: OperatorFaults) -> None:
        self._runs = runs
        self._recorder = recorder
        self._faults = faults

    async def launch(self, launches: Sequence[LaunchRequest], *, now: int) -> Sequence[LaunchOutcome]:
        """See Runs.launch."""
        self._faults.before()
        outcomes = await self._runs.launch(launches, now=now)
        for request, outcome in zip(launches, outcomes, strict=True):
            await self._recorder.launched(request, outcome)
        self._faults.after()
        return outcomes

    async def cancel(self, run_id: RunId, *, reason: str, now: int, actor: str = ENGINE) -> CancelOutcome:
        """See Runs.cancel."""
        self._faults.before()
        outcome = await self._runs.cancel(run_id, reason=reason, now=now, actor=actor)
        await self._recorder.cancelled(run_id, outcome)
        self._faults.after()
        return outcome

    async def roll_back(self, run_id: RunId, *, reason: str, now: int, actor: str) -> RollbackOutcome:
        """See Runs.roll_back."""
        self._faults.before()
        outcome = await self._runs.roll_back(run_id, reason=reason, now=now, actor=actor)
        self._faults.after()
        return outcome
