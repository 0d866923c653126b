"""The real services on a store and a clock of our own: months in seconds, the same by seed.

One thing happens at a time, so a history can be repeated; what runs beside each other in the world is interleaved where
it matters, between reading and writing. Processes die before and after commits, or stand still for longer than their
leases last; the store is slow or away, clocks are set, operators change their minds, bodies take their time. When all
is over everything is healed, so that what was due can be decided and what was begun can end, and the history is ready
for the checker.
"""

import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from gnomon.adapters.gate import OpenGate
from gnomon.config.settings import Settings
from gnomon.core.instants import FOREVER
from gnomon.core.model import MINUTE_MS, RunId, ScheduleUid, Task
from gnomon.core.runs.states import TaskState
from gnomon.core.runs.workflow import ONLY_STEP, Step, Workflow
from gnomon.errors import AlreadyOver, NotFound, StoreUnavailable
from gnomon.ports.execution import Gate
from gnomon.ports.schedules import JobChangeset
from gnomon.ports.store import Store
from gnomon.services.operations.dead_letters import DeadLetterService
from gnomon.services.operations.executions import ExecutionService
from gnomon.services.operations.launcher import Launcher
from gnomon.services.scheduling.registrar import Registrar
from gnomon.testing.clock import CountedIds, Recorder, VirtualClock
from gnomon.testing.event_queue import EventQueue, QueuedEvent
from gnomon.testing.faults import FaultProbabilities, FaultyRuns, FaultySchedules, OperatorFaults
from gnomon.testing.history import EVERYONE, RecordedSchedule, SimulationHistory
from gnomon.testing.recorder import HistoryRecorder
from gnomon.testing.simulated_node import SETTINGS, SimulatedNode, SimulationContext
from gnomon.testing.simulated_runner import WorkloadModel

#: How soon an operator tries again.
_AGAIN_MS = 50
#: Leases run out, what was lost is found and tried again, and ends.
_RECOVERY_MS = 8 * MINUTE_MS
_PAGE = 1000
#: How often another node than the one where something happened hears of it at once.
_HINT_PROBABILITY = 0.3

Done = TypeVar("Done")


class Simulation:
    """A world with some nodes and a store that they share."""

    def __init__(
        self,
        store: Store,
        clock: VirtualClock,
        *,
        seed: object,
        chances: FaultProbabilities | None = None,
        gate: Gate | None = None,
        settings: Settings = SETTINGS,
    ) -> None:
        self.clock = clock
        self.events = Recorder()
        self.history = SimulationHistory(started_at=clock.now())
        self.dice = random.Random(f"{seed}")  # noqa: S311 - repeatable, not secret
        #: How bodies behave.
        self.habits = WorkloadModel()
        #: What workers can run, and how likely it is that a node lacks some of it.
        self.functions: set[str] = set()
        self.missing_function_probability = 0.0
        #: How many schedules a node decides at once.
        self.batch = settings.ticker.batch
        self.nodes: dict[str, SimulatedNode] = {}
        self._store = store
        self._queue = EventQueue(clock)
        self._recorder = HistoryRecorder(self.history, store, clock)
        self._world = self._shared(chances or FaultProbabilities(), gate or OpenGate(), settings)
        self._open_for_operators()
        self._names: dict[ScheduleUid, str] = {}
        self._starts = 0
        #: Nothing breaks any more.
        self._faults_disabled = False
        #: The latest time that the wall clock showed before it was set back.
        self._latest_at = clock.now()

    def _shared(self, chances: FaultProbabilities, gate: Gate, settings: Settings) -> SimulationContext:
        return SimulationContext(
            store=self._store,
            clock=self.clock,
            dice=self.dice,
            chances=chances,
            queue=self._queue,
            environment=self,
            history=self.history,
            recorder=self._recorder,
            events=self.events,
            gate=gate,
            habits=self.habits,
            settings=settings,
        )

    def _open_for_operators(self) -> None:
        store, clock, ids = self._store, self.clock, CountedIds()
        faults = OperatorFaults(self.dice, self._world.chances, self)
        schedules = FaultySchedules(store.schedules, self._recorder, faults)
        runs = FaultyRuns(store.runs, self._recorder, faults)
        self.registrar = Registrar(schedules, store.history, clock, ids)
        self.launcher = Launcher(runs, store.executions, store.jobs, schedules, clock, ids)
        self.executions = ExecutionService(runs, store.executions, store.history, store.jobs, clock)
        self.dead_letter_service = DeadLetterService(store.dead_letters, store.executions, self.launcher, clock)

    # ---- setting the scene -------------------------------------------------------------------

    async def define(self, workflow: Workflow | str) -> None:
        """Make a workflow known, and what it needs to workers; a name stands for a workflow with one step."""
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
        answer = await self.persist(lambda: self.registrar.upsert(request, actor="operator"))
        uid = (await self.registrar.get(answer.schedule_id)).schedule.uid
        self._names[uid] = answer.schedule_id
        return uid

    async def delete(self, uid: ScheduleUid) -> None:
        """Delete a schedule, as an operator does."""
        try:
            await self.persist(lambda: self.registrar.delete(self._names[uid], actor="operator"))
        except NotFound:
            # It is gone by the try whose answer was lost.
            if uid not in self.history.deleted:
                raise

    async def cancel(self, run_id: RunId) -> None:
        """Ask for the end of a run, as an operator does; workers may hear of it at once."""
        try:
            await self.persist(lambda: self.executions.cancel(run_id, actor="operator"))
        except AlreadyOver:
            return
        for node in self._hinted_nodes():
            node.check_cancellations()

    async def persist(self, act: Callable[[], Awaitable[Done]]) -> Done:
        """Do something again and again until the store answers, as an operator does."""
        while True:
            try:
                return await act()
            except StoreUnavailable:
                self.clock.advance(_AGAIN_MS)

    def add_node(self) -> None:
        """Start a node; when it dies another takes its place after a while."""
        self._starts += 1
        name, missing = f"node-{self._starts}", set[str]()
        if self.dice.random() < self.missing_function_probability:
            missing.add(self.dice.choice(sorted(self.functions)))

        def died() -> None:
            del self.nodes[name]
            self.after(self.dice.choice((10, 2_000, 20_000)), self._restart)

        node = SimulatedNode(self._world, name, lambda: self.functions - missing, batch=self.batch, died=died)
        node.on_hint = lambda part: self._spread(node, part)
        self.nodes[name] = node

    async def _restart(self) -> None:
        self.add_node()

    # ---- hints -------------------------------------------------------------------------------

    def _hinted_nodes(self) -> list[SimulatedNode]:
        return [node for node in self.nodes.values() if self.dice.random() < _HINT_PROBABILITY]

    def _spread(self, source: SimulatedNode, part: str) -> None:
        """Some of the other nodes hear of what happened at one."""
        for node in self._hinted_nodes():
            if node is not source:
                node.wake(part)

    def wake(self) -> None:
        """Hint to every node that there is something new to decide, or to dispatch."""
        for node in self.nodes.values():
            node.wake("ticker")
            node.wake("dispatcher")

    # ---- breaking things ---------------------------------------------------------------------

    def after(self, ms: float, event: QueuedEvent) -> None:
        """Let something happen later."""
        self._queue.after(ms, event)

    def broken(self, who: str) -> None:
        """A node was hurt: until others have taken over what it held, or it has it back, lateness is excused."""
        self._hurt(who)
        leader = self._world.settings.leader
        self.note_fault_for(leader.ttl_ms + leader.renew_interval_ms + 200_000)

    def note_fault_for(self, ms: int) -> None:
        """Note that something is broken from now on for so long: lateness is excused."""
        self.history.faults.append((self.clock.now(), self.clock.now() + ms))

    async def stall(self, ms: int) -> None:
        """See FaultEnvironment.stall."""
        if not await self._queue.stall(ms):
            self._hurt(EVERYONE)

    def _hurt(self, who: str) -> None:
        self.history.hurt.append((who, round(self.clock.elapsed() * 1000)))

    async def meanwhile(self, ms: int = 0) -> None:
        """See FaultEnvironment.meanwhile: there are no others before the first node."""
        if self.nodes:
            await self._queue.meanwhile(ms)

    def set_clock(self, by_ms: int) -> None:
        """Set the wall clock back or forth."""
        if self._faults_disabled:
            return
        before = self.clock.now()
        self.clock.shift_wall_clock(by_ms)
        self._latest_at = max(before, self._latest_at)
        self.history.clock_set.append(round(self.clock.elapsed() * 1000))
        self.wake()
        self.history.faults.append((min(before, self.clock.now()), max(before, self.clock.now()) + 60_000))

    def stop_a_node(self, ms: int) -> None:
        """Some node stands still for so long, and then goes on as if nothing had been."""
        if self.nodes and not self._faults_disabled:
            self.nodes[self.dice.choice(sorted(self.nodes))].stand_still(ms)
            self.note_fault_for(ms + self._world.settings.leader.ttl_ms + 200_000)

    # ---- letting it run ----------------------------------------------------------------------

    async def run(self, ms: int) -> SimulationHistory:
        """Let so much time pass with all its faults, then heal everything and let the dust settle."""
        await self._queue.run_for(ms)
        self._disable_faults()
        await self._queue.run_for(_RECOVERY_MS)
        self.history.ended_at = self.clock.now()
        self.history.ended_elapsed_ms = round(self.clock.elapsed() * 1000)
        await self._recorder.look_at_all()
        for uid, name in self._names.items():
            self.history.lives[uid] = await self._read_schedule(uid, name)
        await self._read_dead_letters()
        return self.history

    def _disable_faults(self) -> None:
        """From now on nothing breaks; and a clock that was set back is right, so that no lease is good for hours."""
        self._world.chances.disable_all()
        self.habits.crash_probability = {}
        for node in self.nodes.values():
            node.go_on()
        if self._latest_at > self.clock.now():
            self.set_clock(self._latest_at - self.clock.now())
        self._faults_disabled = True
        self.note_fault_for(_RECOVERY_MS)

    async def _read_schedule(self, uid: ScheduleUid, name: str) -> RecordedSchedule:
        try:
            final = (await self.registrar.get(name)).schedule
        except NotFound:
            final = None
        ticks = await self._store.history.ticks(uid, before=FOREVER, limit=1_000_000)
        runs = tuple(await self._store.history.runs(uid, before=FOREVER, limit=1_000_000))
        tasks = await self._store.history.tasks(runs)
        self.history.tasks |= {task.task_id: task for task in tasks}
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
        after = ""
        while page := await self._store.dead_letters.page("default", after=after, limit=_PAGE):
            self.history.dead_letters += page
            after = page[-1].dead_letter_id


def _eventful(task: Task) -> bool:
    return task.fence != 1 or task.state is not TaskState.SUCCEEDED
