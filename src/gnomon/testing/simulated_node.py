"""A simulated node: ticker, dispatcher, worker and reconciler of one process, which crash and freeze together."""

import random
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field

from msgspec.structs import replace

from gnomon.config.sections import ExecutionSettings, LeaderSettings, ReconcilerSettings, TickerSettings, WorkerSettings
from gnomon.config.settings import Settings
from gnomon.core.ledger.plan import DEFAULT_LIMIT, CatchupLimit
from gnomon.ports.execution import Gate
from gnomon.ports.store import Store
from gnomon.ports.tasks import HostLoad
from gnomon.services.coordination import AlwaysHeldSingleton
from gnomon.services.execution.deadline_enforcer import DeadlineEnforcer
from gnomon.services.execution.dispatcher import Dispatcher
from gnomon.services.execution.local_dispatch import LocalDispatch, NoTaker
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
from gnomon.testing.simulated_policy import NodePolicy, SimulatedPolicy
from gnomon.testing.simulated_runner import ExecutionObserver, SimulatedRunner, WorkloadModel

#: The shortest time between two steps of a service.
_STEP_MS = 2
#: Long intervals, so that a day has thousands of steps and not a hundred thousand; hints wake nodes in between.
SETTINGS = Settings(
    ticker=TickerSettings(tick_ms=60_000),
    leader=LeaderSettings(ttl_ms=180_000, renew_interval_ms=60_000, claim_interval_ms=2_000),
    worker=WorkerSettings(lease_ms=180_000, poll_secs=120, slots=20),
    execution=ExecutionSettings(default_timeout_ms=300_000),
    reconciler=ReconcilerSettings(
        poll_ms=60_000, dispatch_timeout_ms=120_000, pending_ms=300_000, deadline_poll_ms=60_000
    ),
)


@dataclass
class SimulationContext:
    """The collaborators that all nodes of a simulation share."""

    store: Store
    clock: VirtualClock
    rng: random.Random
    chances: FaultProbabilities
    queue: EventQueue
    environment: FaultEnvironment
    history: SimulationHistory
    recorder: HistoryRecorder
    events: Recorder
    gate: Gate
    #: Rules on tasks, inside of a gate of each node; None: only `gate` does.
    policy: SimulatedPolicy | None = None
    workload: WorkloadModel = field(default_factory=WorkloadModel)
    settings: Settings = SETTINGS
    catchup_limit: CatchupLimit = DEFAULT_LIMIT


class _ServiceLoop:
    """A service of a node that is stepped repeatedly."""

    def __init__(self, step: Callable[[], Awaitable[float]]) -> None:
        self.step = step
        #: The number of its next step: earlier ones that are still queued are void.
        self.step_number = 0
        self.busy = False
        #: Whether it was woken while it was busy.
        self.again = False


class SimulatedNode:
    """The services and attempts of one process."""

    def __init__(
        self,
        context: SimulationContext,
        name: str,
        functions: Callable[[], Collection[str]],
        *,
        batch: int,
        died: Callable[[], None],
        on_hint: Callable[[str, str], None],
    ) -> None:
        """`on_hint` is called with the name of this node and of a service that other nodes may step, too."""
        self._context = context
        self.name = name
        self.alive = True
        self._died = died
        self._frozen_until_ms = 0
        self._on_hint = on_hint
        self.runner = self._runner(functions)
        self._policy = self._make_policy()
        self._ticker = self._make_ticker(batch)
        self._worker = self._make_services()
        for part in self._loops:
            self.wake(part, within_ms=1)

    def _runner(self, functions: Callable[[], Collection[str]]) -> SimulatedRunner:
        context = self._context
        return SimulatedRunner(
            context.queue,
            ExecutionObserver(context.history, context.clock),
            context.rng,
            context.workload,
            worker=self.name,
            functions=functions,
            default_timeout_ms=context.settings.execution.default_timeout_ms,
            on_finished=lambda: self.wake("worker"),
            on_death=self._killed_by_attempt,
            frozen_ms=self.frozen_ms,
        )

    def _fault_injector(self) -> FaultInjector:
        context = self._context
        return FaultInjector(self.name, context.rng, context.chances, context.environment, lambda: self.alive)

    def _make_policy(self) -> NodePolicy | None:
        context = self._context
        if context.policy is None:
            return None
        return NodePolicy(
            context.policy,
            context.store,
            context.clock,
            context.events,
            context.recorder,
            self._fault_injector(),
            on_ready=lambda: self._hint("dispatcher"),
        )

    def _make_ticker(self, batch: int) -> Ticker:
        context, settings = self._context, self._context.settings
        faults = self._fault_injector()
        ledger = FaultyLedger(context.store, context.recorder, faults, holder=self.name)
        elector = Elector(
            FaultyShards(context.store.shards, faults), context.clock, context.events, settings.leader, holder=self.name
        )
        return Ticker(
            ledger,
            elector,
            context.clock,
            context.events,
            replace(settings.ticker, batch=batch),
            catchup_limit=context.catchup_limit,
            on_runs_created=lambda: self._hint("dispatcher"),
        )

    def _make_services(self) -> Worker:
        context, settings = self._context, self._context.settings
        place = FaultyExecutionStore(context.store, context.recorder, self._fault_injector(), holder=self.name)
        watch = FaultyExecutionStore(
            context.store, context.recorder, self._fault_injector(), holder=f"reconciler of {self.name}"
        )
        workflow_cache = WorkflowCache(place.jobs)
        gate = context.gate if self._policy is None else self._policy.gate
        dispatcher = Dispatcher(
            place,
            workflow_cache,
            gate,
            context.clock,
            context.events,
            settings,
            taker=NoTaker(on_admitted=lambda: self._hint("worker")),
            wake=lambda: self.wake("dispatcher"),
            ticker_behind=lambda: False,
        )
        worker = Worker(
            place,
            workflow_cache,
            self.runner,
            gate,
            context.clock,
            context.events,
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
            context.clock,
            context.events,
            settings,
            lease=AlwaysHeldSingleton(),
            on_ready=lambda: self._hint("dispatcher"),
        )
        deadline_enforcer = DeadlineEnforcer(
            watch,
            WorkflowCache(watch.jobs),
            context.clock,
            context.events,
            settings,
            lease=AlwaysHeldSingleton(),
            on_ready=lambda: self._hint("dispatcher"),
        )
        self._loops = {
            "ticker": _ServiceLoop(self._ticker.step),
            "dispatcher": _ServiceLoop(dispatcher.step),
            "worker": _ServiceLoop(worker.step),
            "reconciler": _ServiceLoop(reconciler.step),
            "deadlines": _ServiceLoop(deadline_enforcer.step),
        }
        if self._policy is not None:
            self._loops |= {name: _ServiceLoop(step) for name, step in self._policy.steps.items()}
        return worker

    def _hint(self, part: str) -> None:
        self.wake(part)
        self._on_hint(self.name, part)

    # ---- steps -------------------------------------------------------------------------------

    def wake(self, part: str, *, within_ms: int = 20) -> None:
        """Step a service soon."""
        self._step_after(self._context.rng.randrange(within_ms), self._loops[part])

    def check_cancellations(self) -> None:
        """Hint that some run may have been cancelled."""
        self._worker.check_soon()
        self.wake("worker")

    def _step_after(self, ms: float, part: _ServiceLoop) -> None:
        if part.busy:
            part.again = True
            return
        part.step_number += 1
        step_number = part.step_number

        async def step() -> None:
            if self.alive and part.step_number == step_number and not part.busy:
                await self._step(part)

        self._context.queue.after(ms, step)

    async def _step(self, part: _ServiceLoop) -> None:
        if frozen := self.frozen_ms():
            self._step_after(frozen, part)
            return
        part.busy = True
        reported = len(self._context.history.reports)
        try:
            wait = await part.step()
        except SimulatedCrash:
            self.die()
            return
        finally:
            part.busy = False
        if len(self._context.history.reports) > reported:
            # Ended attempts may make other tasks ready.
            self._hint("dispatcher")
        if part.again:
            part.again, wait = False, 0.0
        self._step_after(max(_STEP_MS, round(wait * 1000)), part)

    # ---- faults ------------------------------------------------------------------------------

    def frozen_ms(self) -> int:
        """How long the process stays frozen from now on."""
        return max(0, self._frozen_until_ms - round(self._context.clock.elapsed() * 1000))

    def freeze(self, ms: int) -> None:
        """Do nothing for `ms`, then continue as if no time had passed."""
        since = round(self._context.clock.elapsed() * 1000)
        self._frozen_until_ms = since + ms
        self._context.history.stops.append((self.name, since, since + ms))

    def unfreeze(self) -> None:
        """End the freeze."""
        self._frozen_until_ms = 0
        for part in self._loops:
            self.wake(part)

    def _killed_by_attempt(self) -> None:
        self._context.environment.broken(self.name)
        self.die()

    def die(self) -> None:
        """Kill the process with all its attempts."""
        if self.alive:
            self.alive = False
            self._context.history.deaths[self.name] = round(self._context.clock.elapsed() * 1000)
            self.runner.die()
            self._died()
