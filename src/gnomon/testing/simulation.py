"""Simulate nodes: the real services on a virtual clock and a store with faults. Months in seconds, repeatable by seed.

Events run one at a time, so a seed repeats a history; concurrent processes are interleaved between their reads and
writes, where it matters. Processes crash before and after commits, or freeze for longer than their leases; the store is
slow or unavailable, clocks are set, operators change schedules, attempts take time. At the end the simulation disables
all faults, so that due ticks are decided and running tasks end, and returns the history for the checker.
"""

import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

from gnomon.adapters.gate import OpenGate
from gnomon.config.settings import Settings
from gnomon.core.commands.rules import CommandRules
from gnomon.core.instants import FOREVER
from gnomon.core.ledger.plan import DEFAULT_LIMIT, CatchupLimit
from gnomon.core.model import MINUTE_MS, RunId, ScheduleUid, Task, TaskId
from gnomon.core.runs.states import TaskState
from gnomon.core.runs.workflow import ONLY_STEP, Step, Workflow
from gnomon.errors import AlreadyOver, NotFound, StoreUnavailable
from gnomon.ports.execution import Gate
from gnomon.ports.schedules import JobChangeset
from gnomon.ports.store import Store
from gnomon.services.operations.approvals import ApprovalService
from gnomon.services.operations.command_policy import CommandPolicyService
from gnomon.services.operations.dead_letters import DeadLetterService
from gnomon.services.operations.executions import ExecutionService
from gnomon.services.operations.launcher import Launcher
from gnomon.services.operations.schedules import ScheduleService
from gnomon.testing.clock import CountedIds, Recorder, VirtualClock
from gnomon.testing.event_queue import EventQueue, QueuedEvent
from gnomon.testing.faults import FaultProbabilities, FaultyRuns, FaultySchedules, OperatorFaults
from gnomon.testing.history import EVERYONE, OPERATOR, RecordedSchedule, SimulationHistory
from gnomon.testing.policy_history import Person, PolicyHistory, PolicyTable
from gnomon.testing.recorder import HistoryRecorder
from gnomon.testing.simulated_node import SETTINGS, SimulatedNode, SimulationContext
from gnomon.testing.simulated_policy import SimulatedPolicy, VotedApprovals
from gnomon.testing.simulated_runner import WorkloadModel

#: The delay before an operator retries.
_AGAIN_MS = 50
#: Enough for leases to expire, and for lost attempts to be found, retried and ended.
_RECOVERY_MS = 8 * MINUTE_MS
_PAGE = 1000
#: The probability that another node receives a hint.
_HINT_PROBABILITY = 0.3

Awaited = TypeVar("Awaited")


class Simulation:
    """Some nodes and the store that they share."""

    def __init__(  # noqa: PLR0913 - all of its collaborators
        self,
        store: Store,
        clock: VirtualClock,
        *,
        seed: object,
        chances: FaultProbabilities | None = None,
        gate: Gate | None = None,
        policy: SimulatedPolicy | None = None,
        settings: Settings = SETTINGS,
        catchup_limit: CatchupLimit = DEFAULT_LIMIT,
    ) -> None:
        """With `policy` each node rules by the policy in the store, and `gate` is not asked."""
        self.clock = clock
        self.events = Recorder()
        self.history = SimulationHistory(started_at=clock.now(), catchup_limit=catchup_limit)
        if policy is not None:
            self.history.policy = PolicyHistory(refresh_ms=round(1000 * policy.refresh_seconds))
        self.rng = random.Random(f"{seed}")  # noqa: S311 - repeatable, not secret
        #: The behaviour of attempts.
        self.workload = WorkloadModel()
        #: The functions of workers, and the probability that a node lacks one of them.
        self.functions: set[str] = set()
        self.missing_function_probability = 0.0
        #: How many schedules a node decides at once.
        self.batch = settings.ticker.batch
        self.nodes: dict[str, SimulatedNode] = {}
        self._store = store
        self._queue = EventQueue(clock)
        self._recorder = HistoryRecorder(self.history, store, clock)
        self._context = self._shared(chances or FaultProbabilities(), gate or OpenGate(), policy, settings)
        self._open_for_operators()
        self._names: dict[ScheduleUid, str] = {}
        self._starts = 0
        #: Whether the final phase without faults has begun.
        self._faults_disabled = False
        #: The latest time that the wall clock showed before it was set back.
        self._latest_at = clock.now()

    def _shared(
        self, chances: FaultProbabilities, gate: Gate, policy: SimulatedPolicy | None, settings: Settings
    ) -> SimulationContext:
        return SimulationContext(
            store=self._store,
            clock=self.clock,
            rng=self.rng,
            chances=chances,
            queue=self._queue,
            environment=self,
            history=self.history,
            recorder=self._recorder,
            events=self.events,
            gate=gate,
            policy=policy,
            workload=self.workload,
            settings=settings,
            catchup_limit=self.history.catchup_limit,
        )

    def _open_for_operators(self) -> None:
        store, clock, ids = self._store, self.clock, CountedIds()
        faults = OperatorFaults(self.rng, self._context.chances, self)
        schedules = FaultySchedules(store.schedules, self._recorder, faults)
        runs = FaultyRuns(store.runs, self._recorder, faults)
        limit = self.history.catchup_limit
        self.schedules = ScheduleService(schedules, store.history, clock, ids, jobs=store.jobs, catchup_limit=limit)
        self.launcher = Launcher(runs, store.executions, store.jobs, schedules, clock, ids)
        self.executions = ExecutionService(
            runs, store.executions, store.run_tasks, store.jobs, clock, announcements=store.announcements
        )
        self.dead_letter_service = DeadLetterService(store.dead_letters, store.executions, self.launcher, clock)
        self._voted_approvals = VotedApprovals(store.approvals, self._recorder, faults)
        self.approvals = self._approval_service(frozenset())

    # ---- operators and nodes -----------------------------------------------------------------

    async def define(self, workflow: Workflow | str) -> None:
        """Define a workflow, and add its functions to the workers; a name stands for a workflow with one step."""
        if isinstance(workflow, str):
            step = Step(name=ONLY_STEP, function=workflow)
            workflow = Workflow(workflow_id=workflow, version=1, steps=(step,))
        self.functions |= {step.function for step in workflow.steps}
        await self._store.jobs.apply(
            JobChangeset(workflows=[workflow]), now=self.clock.now(), actor="operator", tzdata=""
        )
        self.history.workflows[workflow.workflow_id, workflow.version] = workflow
        self.history.defined[workflow.workflow_id, workflow.version] = self.history.moment()

    async def register(self, request: Mapping[str, Any]) -> ScheduleUid:
        """Register a schedule, as an operator does."""
        answer = await self.persist(lambda: self.schedules.upsert(request, actor="operator"))
        uid = (await self.schedules.get(answer.schedule_id)).schedule.uid
        self._names[uid] = answer.schedule_id
        return uid

    async def delete(self, uid: ScheduleUid) -> None:
        """Delete a schedule, as an operator does."""
        try:
            await self.persist(lambda: self.schedules.delete(self._names[uid], actor="operator"))
        except NotFound:
            # An earlier attempt deleted it, and its answer was lost.
            if uid not in self.history.deleted:
                raise

    async def apply_policy(self, table: PolicyTable) -> None:
        """Put another version of the policy in force, as an operator does."""
        made = await self._store.policies.add(table.text(), author=OPERATOR, now=self.clock.now())
        self._recorder.policy.applied(made.version, table)

    def know_voters(self, persons: Iterable[Person], *, break_glass: frozenset[str] = frozenset()) -> None:
        """Let these persons vote; members of the groups `break_glass` may override."""
        if self.history.policy is not None:
            self.history.policy.persons = {one.name: one for one in persons}
            self.history.policy.break_glass = break_glass
        self.approvals = self._approval_service(break_glass)

    def _approval_service(self, break_glass: frozenset[str]) -> ApprovalService:
        store, clock, approvals = self._store, self.clock, self._voted_approvals
        rules = CommandRules(SETTINGS.security)
        commands = CommandPolicyService(rules, approvals, store.tasks, store.jobs, store.schedules, clock, CountedIds())
        return ApprovalService(approvals, store.executions, store.jobs, clock, commands, break_glass=break_glass)

    async def cancel(self, run_id: RunId) -> None:
        """Cancel a run, as an operator does; some workers receive a hint at once."""
        try:
            await self.persist(lambda: self.executions.cancel(run_id, actor="operator"))
        except AlreadyOver:
            return
        for node in self._hinted_nodes():
            node.check_cancellations()

    async def persist(self, action: Callable[[], Awaitable[Awaited]]) -> Awaited:
        """Retry the action until the store answers, as an operator does."""
        while True:
            try:
                return await action()
            except StoreUnavailable:
                self.clock.advance(_AGAIN_MS)

    def add_node(self) -> None:
        """Start a node; some time after it dies, another one is started."""
        self._starts += 1
        name, missing = f"node-{self._starts}", set[str]()
        if self.rng.random() < self.missing_function_probability:
            missing.add(self.rng.choice(sorted(self.functions)))

        def died() -> None:
            del self.nodes[name]
            self.after(self.rng.choice((10, 2_000, 20_000)), self._restart)

        self.nodes[name] = SimulatedNode(
            self._context,
            name,
            lambda: self.functions - missing,
            batch=self.batch,
            died=died,
            on_hint=self._spread,
        )

    async def _restart(self) -> None:
        self.add_node()

    # ---- hints -------------------------------------------------------------------------------

    def _hinted_nodes(self) -> list[SimulatedNode]:
        return [node for node in self.nodes.values() if self.rng.random() < _HINT_PROBABILITY]

    def _spread(self, source: str, part: str) -> None:
        """Pass the hint of a node to some of the others."""
        for node in self._hinted_nodes():
            if node.name != source:
                node.wake(part)

    def wake(self) -> None:
        """Hint to every node that ticks may be due, or tasks ready."""
        for node in self.nodes.values():
            node.wake("ticker")
            node.wake("dispatcher")

    # ---- faults ------------------------------------------------------------------------------

    def after(self, ms: float, event: QueuedEvent) -> None:
        """Queue an event for `ms` milliseconds from now."""
        self._queue.after(ms, event)

    def broken(self, who: str) -> None:
        """Record a fault of a node. Lateness is excused until it has its leases back or other nodes have taken them."""
        self._disturb(who)
        leader = self._context.settings.leader
        self.note_fault_for(leader.ttl_ms + leader.renew_interval_ms + 200_000)

    def note_fault_for(self, ms: int) -> None:
        """Record a fault that lasts for `ms` from now on: lateness is excused."""
        self.history.faults.append((self.clock.now(), self.clock.now() + ms))

    async def stall(self, ms: int) -> None:
        """See FaultEnvironment.stall."""
        if not await self._queue.stall(ms):
            self._disturb(EVERYONE)

    def _disturb(self, who: str) -> None:
        self.history.disturbances.append((who, round(self.clock.elapsed() * 1000)))

    async def meanwhile(self, ms: int = 0) -> None:
        """See FaultEnvironment.meanwhile. Before the first node there are no other processes."""
        if self.nodes:
            await self._queue.meanwhile(ms)

    def set_clock(self, by_ms: int) -> None:
        """Set the wall clock back or forward."""
        if self._faults_disabled:
            return
        before = self.clock.now()
        self.clock.shift_wall_clock(by_ms)
        self._latest_at = max(before, self._latest_at)
        self.history.clock_set.append(round(self.clock.elapsed() * 1000))
        self.wake()
        self.history.faults.append((min(before, self.clock.now()), max(before, self.clock.now()) + 60_000))

    def stop_a_node(self, ms: int) -> None:
        """Freeze a random node for `ms`; it then continues as if no time had passed."""
        if self.nodes and not self._faults_disabled:
            self.nodes[self.rng.choice(sorted(self.nodes))].freeze(ms)
            self.note_fault_for(ms + self._context.settings.leader.ttl_ms + 200_000)

    # ---- running -----------------------------------------------------------------------------

    async def run(self, ms: int) -> SimulationHistory:
        """Advance the time by `ms` with faults, then without faults until the nodes settle; return the history."""
        await self._queue.run_for(ms)
        self._disable_faults()
        await self._queue.run_for(_RECOVERY_MS)
        self.history.ended_at = self.clock.now()
        self.history.ended_elapsed_ms = round(self.clock.elapsed() * 1000)
        await self._recorder.look_at_all()
        await self._recorder.policy.look_at_all()
        for uid, name in self._names.items():
            self.history.schedules[uid] = await self._read_schedule(uid, name)
        await self._read_dead_letters()
        return self.history

    def _disable_faults(self) -> None:
        """Disable all faults, and correct a clock that was set back: leases would otherwise be valid for hours."""
        self._context.chances.disable_all()
        self.workload.crash_probability = {}
        for node in self.nodes.values():
            node.unfreeze()
        if self._latest_at > self.clock.now():
            self.set_clock(self._latest_at - self.clock.now())
        self._faults_disabled = True
        self.note_fault_for(_RECOVERY_MS)

    async def _read_schedule(self, uid: ScheduleUid, name: str) -> RecordedSchedule:
        try:
            final = (await self.schedules.get(name)).schedule
        except NotFound:
            final = None
        ticks = await self._store.history.ticks(uid, before=FOREVER, limit=1_000_000)
        runs = tuple(await self._store.history.runs(uid, before=FOREVER, limit=1_000_000))
        tasks = await self._store.history.tasks(runs)
        self.history.tasks |= {task.task_id: task for task in tasks}
        if self.history.ruled or self.history.policy is not None:
            for run in runs:
                found = await self._store.rulings.of_tasks(run.run_id, limit=_PAGE)
                self.history.rulings |= {TaskId(one.task_id): one.rulings for one in found}
        for attempt in await self._store.executions.attempts([task.task_id for task in tasks if _eventful(task)]):
            self.history.attempts.setdefault(attempt.task_id, []).append(attempt)
        return RecordedSchedule(
            uid=uid,
            revisions=tuple(await self._store.history.revisions(uid)),
            pauses=tuple(await self._store.history.pauses(uid)),
            runs=runs,
            final=final if final is not None and final.uid == uid else None,
            deleted_at=self.history.deleted.get(uid),
            ledger={tick.decision.planned_at: tick.decision for tick in ticks},
            statuses={tick.run_id: tick.status for tick in ticks if tick.run_id is not None},
        )

    async def _read_dead_letters(self) -> None:
        after = None
        while page := await self._store.dead_letters.page("default", oldest_first=True, after=after, limit=_PAGE):
            self.history.dead_letters += page
            after = page[-1].created_at, page[-1].dead_letter_id


def _eventful(task: Task) -> bool:
    return task.fence != 1 or task.state is not TaskState.SUCCEEDED
