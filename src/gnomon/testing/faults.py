"""Which faults there are, how likely each is, and a store that has them: what one process sees of the shared one."""

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from gnomon.core.model import ENGINE, RunId, Schedule, ScheduleUid, TaskId, Verdict
from gnomon.core.runs.admission import Admission, AdmissionRequest, FanOut, ReadyTask
from gnomon.core.runs.launch import CancelOutcome, LaunchOutcome, LaunchRequest
from gnomon.core.runs.outcomes import TaskCompletion
from gnomon.core.runs.routing import Placement
from gnomon.core.runs.workflow import Workflow
from gnomon.errors import StoreUnavailable
from gnomon.ports.ledger import ShardRenewal, Terms
from gnomon.ports.schedules import JobChangeset
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
)
from gnomon.testing.history import MAX_FAULT_MS, OPERATOR
from gnomon.testing.recorder import HistoryRecorder, SimulationStore

_SLOW_MS = (5, 200, 3_000, 15_000, MAX_FAULT_MS)
_MEANWHILE_MS = (0, 0, 1_000, 30_000, 200_000)


class SimulatedCrash(BaseException):
    """The process that was working has just died. Nothing catches it but the simulation."""


class FaultProbabilities:
    """How likely each fault is, per call. All off by default."""

    def __init__(
        self, *, crash: float = 0, failure: float = 0, slowness: float = 0, race: float = 0, operator_failure: float = 0
    ) -> None:
        self.crash, self.failure, self.slowness, self.race = crash, failure, slowness, race
        #: That the store fails an operator, before or after the commit.
        self.operator_failure = operator_failure

    def disable_all(self) -> None:
        """From now on nothing breaks any more."""
        self.crash = self.failure = self.slowness = self.race = self.operator_failure = 0


class FaultEnvironment(Protocol):
    """What a process cannot help: time, others, and being hurt."""

    def broken(self, who: str) -> None:
        """A process was hurt."""
        ...

    async def stall(self, ms: int) -> None:
        """So much time passes, and others act in it, as far as they can."""
        ...

    async def meanwhile(self, ms: int = 0) -> None:
        """Others act for so long, but at least one does."""
        ...


class FaultInjector:
    """What happens to one process between asking and being answered."""

    def __init__(
        self,
        who: str,
        dice: random.Random,
        chances: FaultProbabilities,
        environment: FaultEnvironment,
        alive: Callable[[], bool],
    ) -> None:
        self._who = who
        self._dice = dice
        self._chances = chances
        self._environment = environment
        self._alive = alive

    async def before(self) -> None:
        """The call is slow, is not answered, or is the last thing that the process does."""
        await self._slow()
        self._maybe_fail("the store is away")

    async def after(self) -> None:
        """What was asked for is done, but the process hears of it late, or never."""
        await self._slow()
        self._maybe_fail("the connection broke while committing")

    async def _slow(self) -> None:
        if self._dice.random() < self._chances.slowness:
            self._environment.broken(self._who)
            await self._environment.stall(self._dice.choice(_SLOW_MS))

    async def race_decision(self) -> None:
        """Others act between what was read about schedules and what is going to be written."""
        if self._dice.random() < self._chances.race:
            # Whoever decides ticks is late by as much.
            self._environment.broken(self._who)
            for _ in range(self._dice.choice((1, 2, 5))):
                await self._environment.meanwhile()

    async def race_task_write(self) -> None:
        """Others act, perhaps for long, between what was read about tasks and what is going to be written."""
        if self._dice.random() < self._chances.race:
            await self._environment.meanwhile(self._dice.choice(_MEANWHILE_MS))

    def _maybe_fail(self, text: str) -> None:
        if not self._alive():
            raise SimulatedCrash
        if self._dice.random() < self._chances.failure:
            self._environment.broken(self._who)
            raise StoreUnavailable(text)
        if self._dice.random() < self._chances.crash:
            self._environment.broken(self._who)
            raise SimulatedCrash


class FaultyLedger:
    """The ledger and the shards, as the ticker and the elector of one process see them."""

    def __init__(
        self, store: SimulationStore, recorder: HistoryRecorder, faults: FaultInjector, *, holder: str
    ) -> None:
        self._store = store
        self._recorder = recorder
        self._faults = faults
        self._holder = holder

    async def due(self, now: int, *, shards: frozenset[int], limit: int) -> Sequence[Schedule]:
        """See Ledger.due."""
        await self._faults.before()
        found = await self._store.due(now, shards=shards, limit=limit)
        if found:
            await self._faults.race_decision()
        return found

    async def next_due_at(self, *, shards: frozenset[int]) -> int | None:
        """See Ledger.next_due_at."""
        return await self._store.next_due_at(shards=shards)

    async def decide(self, verdicts: Sequence[Verdict], *, now: int, terms: Terms) -> frozenset[ScheduleUid]:
        """See Ledger.decide."""
        await self._faults.before()
        done = await self._store.decide(verdicts, now=now, terms=terms)
        for verdict in verdicts:
            if verdict.schedule.uid in done:
                term = terms[verdict.schedule.shard]
                await self._recorder.decided(verdict, at=now, term=term, holder=self._holder)
        await self._faults.after()
        return done

    async def renew_shards(self, holder: str, *, ttl_ms: int) -> ShardRenewal:
        """See Shards.attend."""
        await self._faults.before()
        return await self._store.renew_shards(holder, ttl_ms=ttl_ms)

    async def claim(self, holder: str, *, ttl_ms: int, limit: int, by_force: bool = False) -> Terms:
        """See Shards.claim."""
        taken = await self._store.claim(holder, ttl_ms=ttl_ms, limit=limit, by_force=by_force)
        await self._faults.after()
        return taken

    async def leave(self, holder: str) -> None:
        """See Shards.leave."""
        await self._store.leave(holder)

    async def release(self, holder: str, shards: Collection[int]) -> None:
        """See Shards.release."""
        await self._store.release(holder, shards)


class FaultyTaskStore:
    """Work, workers and workflows, as the dispatcher, the worker or the reconciler of one process sees them."""

    def __init__(
        self, store: SimulationStore, recorder: HistoryRecorder, faults: FaultInjector, *, holder: str
    ) -> None:
        self._store = store
        self._recorder = recorder
        self._faults = faults
        self._holder = holder

    async def waiting(self, now: int, *, limit: int) -> Sequence[ReadyTask]:
        """See Work.waiting."""
        await self._faults.before()
        found = await self._store.waiting(now, limit=limit)
        if found:
            await self._faults.race_task_write()
        return found

    async def unroutable_tasks(self, *, after: QueuePosition, limit: int) -> Sequence[ReadyTask]:
        """See Work.turned_away."""
        await self._faults.before()
        return await self._store.unroutable_tasks(after=after, limit=limit)

    async def next_available_at(self) -> int | None:
        """See Work.next_available_at."""
        return await self._store.next_available_at()

    async def admit(self, admissions: Sequence[Admission], *, now: int) -> frozenset[TaskId]:
        """See Work.admit."""
        await self._faults.before()
        done = await self._store.admit(admissions, now=now)
        await self._recorder.look(one.run_id for one in admissions if one.task_id in done)
        await self._faults.after()
        return done

    async def fan_out(self, unfoldings: Sequence[FanOut], *, now: int) -> frozenset[TaskId]:
        """See Work.unfold."""
        await self._faults.before()
        done = await self._store.fan_out(unfoldings, now=now)
        await self._recorder.look(one.run_id for one in unfoldings if one.task_id in done)
        await self._faults.after()
        return done

    async def payloads(self, owner_ids: Sequence[str], kind: str) -> Mapping[str, bytes]:
        """See Payloads.payloads."""
        await self._faults.before()
        return await self._store.payloads(owner_ids, kind)

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
        await self._faults.before()
        taken = await self._store.take(
            worker, limit=limit, lease_ms=lease_ms, now=now, begin=begin, known=known, reach=reach
        )
        if taken:
            await self._recorder.granted(taken, worker, lease_ms)
        await self._faults.after()
        return taken

    async def begin(
        self, held: Collection[AttemptRef], *, now: int, worker: str | None = None
    ) -> frozenset[AttemptRef]:
        """See Work.begin."""
        return await self._store.begin(held, now=now, worker=worker)

    async def assigned_tasks(self, held: Collection[AttemptRef]) -> Sequence[ReadyTask]:
        """See Work.handed_out."""
        return await self._store.assigned_tasks(held)

    async def renew(self, worker: str, held: Collection[AttemptRef], *, lease_ms: int) -> LeaseRenewal:
        """See Work.renew."""
        await self._faults.before()
        renewal = await self._store.renew(worker, held, lease_ms=lease_ms)
        self._recorder.renewed(frozenset(held) - renewal.lost, lease_ms)
        await self._faults.after()
        return renewal

    async def cancel_requests(self, worker: str) -> frozenset[AttemptRef]:
        """See Work.asked_to_stop."""
        await self._faults.before()
        return await self._store.cancel_requests(worker)

    async def report(self, endings: Sequence[TaskCompletion]) -> frozenset[AttemptRef]:
        """See Work.report."""
        await self._faults.before()
        counted = await self._store.report(endings)
        await self._recorder.reported(endings, counted, by=self._holder)
        await self._faults.after()
        return counted

    async def in_flight_counts(self) -> InFlightCounts:
        """See Work.on_the_way."""
        await self._faults.before()
        return await self._store.in_flight_counts()

    async def placements(self, tasks: Collection[TaskId]) -> Mapping[TaskId, Placement]:
        """See Work.placements."""
        return await self._store.placements(tasks)

    async def chosen(self) -> Collection[Placement]:
        """See Work.chosen."""
        return await self._store.chosen()

    async def recall_stranded(self) -> Sequence[tuple[TaskId, RunId]]:
        """See Work.recall. Most often there is nothing to recall, and then nothing can go wrong."""
        recalled = await self._store.recall_stranded()
        if recalled:
            await self._recorder.look(run_id for _, run_id in recalled)
            await self._faults.after()
        return recalled

    async def open_attempts(self, *, after: TaskId, limit: int) -> OpenAttemptsPage:
        """See Work.open_attempts."""
        await self._faults.before()
        page = await self._store.open_attempts(after=after, limit=limit)
        if page.attempts:
            self._recorder.looked_for_lapsed((one.task.task_id, one.attempt.number) for one in page.attempts)
            await self._faults.race_task_write()
        return page

    async def register_worker(self, card: WorkerInfo, *, ttl_ms: int) -> None:
        """See Workers.enlist."""
        await self._faults.before()
        await self._store.register_worker(card, ttl_ms=ttl_ms)

    async def workers(self) -> Sequence[WorkerInfo]:
        """See Workers.workers."""
        await self._faults.before()
        return await self._store.workers()

    async def deregister_worker(self, worker: str) -> None:
        """See Workers.dismiss."""
        await self._store.deregister_worker(worker)

    async def workflow(self, tenant: str, workflow_id: str, version: int | None = None) -> Workflow | None:
        """See Jobs.workflow."""
        await self._faults.before()
        return await self._store.workflow(tenant, workflow_id, version)

    async def list_workflows(self, tenant: str, *, after: str, limit: int) -> Sequence[Workflow]:
        """See Jobs.page_of_workflows."""
        return await self._store.list_workflows(tenant, after=after, limit=limit)

    async def newest_workflows(self, tenant: str, workflow_ids: Sequence[str]) -> Sequence[Workflow]:
        """See Jobs.newest_workflows."""
        return await self._store.newest_workflows(tenant, workflow_ids)

    async def apply(self, wish: JobChangeset, *, now: int, actor: str, tzdata: str) -> bool:
        """See Jobs.apply."""
        return await self._store.apply(wish, now=now, actor=actor, tzdata=tzdata)


class FaultyScheduleStore:
    """What operators see of the store: every change is noted, and may fail before or after its commit."""

    def __init__(
        self,
        store: SimulationStore,
        recorder: HistoryRecorder,
        dice: random.Random,
        chances: FaultProbabilities,
        environment: FaultEnvironment,
    ) -> None:
        self._store = store
        self._recorder = recorder
        self._dice = dice
        self._chances = chances
        self._environment = environment

    def _before(self) -> None:
        self._mishap("the store is away")

    def _after(self) -> None:
        self._mishap("the connection broke while committing")

    def _mishap(self, text: str) -> None:
        if self._chances.operator_failure and self._dice.random() < self._chances.operator_failure:
            raise StoreUnavailable(text)

    async def find(self, tenant: str, schedule_id: str) -> Schedule | None:
        """See Schedules.find."""
        found = await self._store.find(tenant, schedule_id)
        if self._dice.random() < self._chances.race:
            self._environment.broken(OPERATOR)
            await self._environment.meanwhile(self._dice.choice(_MEANWHILE_MS))
        return found

    async def page(self, tenant: str, *, after: str, limit: int) -> Sequence[Schedule]:
        """See Schedules.page."""
        return await self._store.page(tenant, after=after, limit=limit)

    async def add(self, schedules: Sequence[Schedule], *, actor: str, tzdata: str) -> frozenset[str]:
        """See Schedules.add."""
        self._before()
        taken = await self._store.add(schedules, actor=actor, tzdata=tzdata)
        self._after()
        return taken

    async def change(self, verdict: Verdict, changed: Schedule, *, now: int, actor: str, tzdata: str) -> bool:
        """See Schedules.change."""
        self._before()
        done = await self._store.change(verdict, changed, now=now, actor=actor, tzdata=tzdata)
        if done:
            await self._recorder.decided(verdict, at=now, term=None, holder=None, changed=changed)
        self._after()
        return done

    async def delete(self, verdict: Verdict, *, now: int, actor: str) -> bool:
        """See Schedules.delete."""
        self._before()
        done = await self._store.delete(verdict, now=now, actor=actor)
        if done:
            await self._recorder.decided(verdict, at=now, term=None, holder=None)
            await self._recorder.deleted(verdict.schedule.uid, at=now)
        self._after()
        return done

    async def launch(self, launches: Sequence[LaunchRequest], *, now: int) -> Sequence[LaunchOutcome]:
        """See Runs.launch."""
        self._before()
        became = await self._store.launch(launches, now=now)
        for wish, one in zip(launches, became, strict=True):
            await self._recorder.launched(wish, one)
        self._after()
        return became

    async def cancel(self, run_id: RunId, *, reason: str, now: int, actor: str = ENGINE) -> CancelOutcome:
        """See Runs.cancel."""
        self._before()
        became = await self._store.cancel(run_id, reason=reason, now=now, actor=actor)
        await self._recorder.cancelled(run_id, became)
        self._after()
        return became
