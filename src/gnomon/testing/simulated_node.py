"""A process with everything that a node does: ticker, dispatcher, worker and reconciler. They live and die together."""

import random
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field

from msgspec.structs import replace

from gnomon.config.sections import ExecutionSettings, LeaderSettings, ReconcilerSettings, TickerSettings, WorkerSettings
from gnomon.config.settings import Settings
from gnomon.ports.execution import Gate
from gnomon.ports.store import Store
from gnomon.ports.tasks import HostLoad
from gnomon.services.coordination import SoleNode
from gnomon.services.execution.dispatcher import Dispatcher
from gnomon.services.execution.handover import LocalDispatch, NoTaker
from gnomon.services.execution.reconciler import Reconciler
from gnomon.services.execution.worker import Worker
from gnomon.services.execution.workflow_cache import WorkflowCache
from gnomon.services.scheduling.elector import Elector
from gnomon.services.scheduling.ticker import Ticker
from gnomon.testing.clock import Recorder, VirtualClock
from gnomon.testing.event_queue import EventQueue
from gnomon.testing.faults import (
    FaultEnvironment,
    FaultInjector,
    FaultProbabilities,
    FaultyExecutionStore,
    FaultyLedger,
    FaultyShards,
    SimulatedCrash,
)
from gnomon.testing.history import SimulationHistory
from gnomon.testing.recorder import HistoryRecorder
from gnomon.testing.simulated_runner import ExecutionObserver, SimulatedRunner, WorkloadModel

#: What one look takes.
_STEP_MS = 2
#: Long enough that a day holds thousands of looks, not a hundred thousand; hints wake nodes in between.
SETTINGS = Settings(
    ticker=TickerSettings(tick_ms=60_000),
    leader=LeaderSettings(ttl_ms=180_000, renew_interval_ms=60_000, claim_interval_ms=2_000),
    worker=WorkerSettings(lease_ms=180_000, poll_secs=120, slots=20),
    execution=ExecutionSettings(default_timeout_ms=300_000),
    reconciler=ReconcilerSettings(poll_ms=60_000, dispatch_timeout_ms=120_000, pending_ms=300_000),
)


@dataclass
class SimulationContext:
    """What all processes of a simulation share."""

    store: Store
    clock: VirtualClock
    dice: random.Random
    chances: FaultProbabilities
    queue: EventQueue
    environment: FaultEnvironment
    history: SimulationHistory
    recorder: HistoryRecorder
    events: Recorder
    gate: Gate
    habits: WorkloadModel = field(default_factory=WorkloadModel)
    settings: Settings = SETTINGS


class _ServiceLoop:
    """One of the services of a process, which looks again and again."""

    def __init__(self, step: Callable[[], Awaitable[float]]) -> None:
        self.step = step
        #: The number of its next look: an earlier one that is still on the agenda is void.
        self.turn = 0
        self.busy = False
        #: Woken while it was busy.
        self.again = False


class SimulatedNode:
    """Everything that dies with one process."""

    def __init__(
        self,
        world: SimulationContext,
        name: str,
        functions: Callable[[], Collection[str]],
        *,
        batch: int,
        died: Callable[[], None],
    ) -> None:
        self._world = world
        self.name = name
        self.alive = True
        self._died = died
        self._still_until_ms = 0
        #: Called with the name of a part of which other nodes' may look, too.
        self.on_hint: Callable[[str], None] = lambda _: None
        self.runner = self._runner(functions)
        self._ticker = self._make_ticker(batch)
        self._worker = self._make_services()
        for part in self._loops:
            self.wake(part, within_ms=1)

    def _runner(self, functions: Callable[[], Collection[str]]) -> SimulatedRunner:
        world = self._world
        runner = SimulatedRunner(
            world.queue,
            ExecutionObserver(world.history, world.clock),
            world.dice,
            world.habits,
            worker=self.name,
            functions=functions,
            default_timeout_ms=world.settings.execution.default_timeout_ms,
        )
        runner.on_finished = lambda: self.wake("worker")
        runner.on_death = self._killed_by_attempt
        runner.still_ms = self.still_ms
        return runner

    def _fault_injector(self) -> FaultInjector:
        world = self._world
        return FaultInjector(self.name, world.dice, world.chances, world.environment, lambda: self.alive)

    def _make_ticker(self, batch: int) -> Ticker:
        world, settings = self._world, self._world.settings
        faults = self._fault_injector()
        ledger = FaultyLedger(world.store, world.recorder, faults, holder=self.name)
        elector = Elector(
            FaultyShards(world.store.shards, faults), world.clock, world.events, settings.leader, holder=self.name
        )
        return Ticker(
            ledger,
            elector,
            world.clock,
            world.events,
            replace(settings.ticker, batch=batch),
            on_runs_created=lambda: self._hint("dispatcher"),
        )

    def _make_services(self) -> Worker:
        world, settings = self._world, self._world.settings
        place = FaultyExecutionStore(world.store, world.recorder, self._fault_injector(), holder=self.name)
        watch = FaultyExecutionStore(
            world.store, world.recorder, self._fault_injector(), holder=f"reconciler of {self.name}"
        )
        workflow_cache = WorkflowCache(place.jobs)
        dispatcher = Dispatcher(
            place,
            workflow_cache,
            world.gate,
            world.clock,
            world.events,
            settings,
            taker=NoTaker(on_admitted=lambda: self._hint("worker")),
            wake=lambda: self.wake("dispatcher"),
            ticker_behind=lambda: False,
        )
        worker = Worker(
            place,
            workflow_cache,
            self.runner,
            world.gate,
            world.clock,
            world.events,
            settings=settings,
            worker=self.name,
            wake=lambda: self.wake("worker"),
            measure_load=HostLoad,
            # After every step that reported something, this node hints at its own and at other dispatchers.
            dispatch=LocalDispatch(wake=lambda: None),
        )
        reconciler = Reconciler(
            watch,
            WorkflowCache(watch.jobs),
            world.clock,
            world.events,
            settings,
            lease=SoleNode(),
            on_ready=lambda: self._hint("dispatcher"),
        )
        self._loops = {
            "ticker": _ServiceLoop(self._ticker.step),
            "dispatcher": _ServiceLoop(dispatcher.step),
            "worker": _ServiceLoop(worker.step),
            "reconciler": _ServiceLoop(reconciler.step),
        }
        return worker

    def _hint(self, part: str) -> None:
        self.wake(part)
        self.on_hint(part)

    # ---- looking -----------------------------------------------------------------------------

    def wake(self, part: str, *, within_ms: int = 20) -> None:
        """Let a part look soon."""
        self._step_after(self._world.dice.randrange(within_ms), self._loops[part])

    def check_cancellations(self) -> None:
        """Hint that some run may have been cancelled."""
        self._worker.check_soon()
        self.wake("worker")

    def _step_after(self, ms: float, part: _ServiceLoop) -> None:
        if part.busy:
            part.again = True
            return
        part.turn += 1
        turn = part.turn

        async def step() -> None:
            if self.alive and part.turn == turn and not part.busy:
                await self._step(part)

        self._world.queue.after(ms, step)

    async def _step(self, part: _ServiceLoop) -> None:
        if still := self.still_ms():
            self._step_after(still, part)
            return
        part.busy = True
        told = len(self._world.history.reports)
        try:
            wait = await part.step()
        except SimulatedCrash:
            self.die()
            return
        finally:
            part.busy = False
        if len(self._world.history.reports) > told:
            # What has ended may have let something go on.
            self._hint("dispatcher")
        if part.again:
            part.again, wait = False, 0.0
        self._step_after(max(_STEP_MS, round(wait * 1000)), part)

    # ---- being hurt --------------------------------------------------------------------------

    def still_ms(self) -> int:
        """For how long the process stands still, from now on."""
        return max(0, self._still_until_ms - round(self._world.clock.elapsed() * 1000))

    def stand_still(self, ms: int) -> None:
        """Do nothing for so long, then go on as if nothing had been."""
        since = round(self._world.clock.elapsed() * 1000)
        self._still_until_ms = since + ms
        self._world.history.stops.append((self.name, since, since + ms))

    def go_on(self) -> None:
        """Stand still no longer."""
        self._still_until_ms = 0
        for part in self._loops:
            self.wake(part)

    def _killed_by_attempt(self) -> None:
        self._world.environment.broken(self.name)
        self.die()

    def die(self) -> None:
        """The process is gone, with all that it had in hand."""
        if self.alive:
            self.alive = False
            self._world.history.deaths[self.name] = round(self._world.clock.elapsed() * 1000)
            self.runner.die()
            self._died()
