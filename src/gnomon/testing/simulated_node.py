"""A process with everything that a node does: ticker, dispatcher, worker and reconciler. They live and die together."""

import random
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field

from msgspec.structs import replace

from gnomon.config.sections import Executing, Leading, Reconciling, Ticking, Working
from gnomon.config.settings import Settings
from gnomon.ports.execution import Gate
from gnomon.services.execution.dispatcher import Dispatcher
from gnomon.services.execution.reconciler import Reconciler
from gnomon.services.execution.worker import Worker
from gnomon.services.execution.workflow_cache import Shelf
from gnomon.services.scheduling.elector import Elector
from gnomon.services.scheduling.ticker import Ticker
from gnomon.testing.clock import Recorder, VirtualClock
from gnomon.testing.event_queue import Agenda
from gnomon.testing.faults import Chances, Crash, FaultyLedger, FaultyWorkplace, Surroundings, Trouble
from gnomon.testing.history import History
from gnomon.testing.recorder import Recording, Store
from gnomon.testing.simulated_runner import Habits, SimulatedRunner, Witness

#: What one look takes.
_STEP_MS = 2
#: Long enough that a day holds thousands of looks, not a hundred thousand; hints wake nodes in between.
SETTINGS = Settings(
    ticker=Ticking(tick_ms=60_000),
    leader=Leading(ttl_ms=180_000, renew_interval_ms=60_000, claim_interval_ms=2_000),
    worker=Working(lease_ms=180_000, poll_secs=120, slots=20),
    execution=Executing(default_timeout_ms=300_000),
    reconciler=Reconciling(poll_ms=60_000, dispatch_timeout_ms=120_000, pending_ms=300_000),
)


@dataclass
class World:
    """What all processes of a simulation share."""

    store: Store
    clock: VirtualClock
    dice: random.Random
    chances: Chances
    agenda: Agenda
    around: Surroundings
    history: History
    recording: Recording
    events: Recorder
    gate: Gate
    habits: Habits = field(default_factory=Habits)
    settings: Settings = SETTINGS


class _Part:
    """One of the services of a process, which looks again and again."""

    def __init__(self, step: Callable[[], Awaitable[float]]) -> None:
        self.step = step
        #: The number of its next look: an earlier one that is still on the agenda is void.
        self.turn = 0
        self.busy = False
        #: Woken while it was busy.
        self.again = False


class Node:
    """Everything that dies with one process."""

    def __init__(
        self, world: World, name: str, functions: Callable[[], Collection[str]], *, batch: int, died: Callable[[], None]
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
        self._worker = self._make_crew()
        for part in self._parts:
            self.wake(part, within_ms=1)

    def _runner(self, functions: Callable[[], Collection[str]]) -> SimulatedRunner:
        world = self._world
        runner = SimulatedRunner(
            world.agenda,
            Witness(world.history, world.clock),
            world.dice,
            world.habits,
            worker=self.name,
            functions=functions,
            default_timeout_ms=world.settings.execution.default_timeout_ms,
        )
        runner.on_finished = lambda: self.wake("worker")
        runner.on_death = self._taken_down
        runner.still_ms = self.still_ms
        return runner

    def _trouble(self) -> Trouble:
        world = self._world
        return Trouble(self.name, world.dice, world.chances, world.around, lambda: self.alive)

    def _make_ticker(self, batch: int) -> Ticker:
        world, settings = self._world, self._world.settings
        ledger = FaultyLedger(world.store, world.recording, self._trouble(), holder=self.name)
        elector = Elector(ledger, world.clock, world.events, settings.leader, holder=self.name)
        ticker = Ticker(ledger, elector, world.clock, world.events, replace(settings.ticker, batch=batch))
        ticker.on_fired = lambda: self._hint("dispatcher")
        return ticker

    def _make_crew(self) -> Worker:
        world, settings = self._world, self._world.settings
        place = FaultyWorkplace(world.store, world.recording, self._trouble(), holder=self.name)
        watch = FaultyWorkplace(world.store, world.recording, self._trouble(), holder=f"reconciler of {self.name}")
        shelf = Shelf(place)
        dispatcher = Dispatcher(place, shelf, world.gate, world.clock, world.events, settings)
        dispatcher.on_scheduled = lambda: self._hint("worker")
        worker = Worker(
            place, shelf, self.runner, world.gate, world.clock, world.events, settings=settings, worker=self.name
        )
        reconciler = Reconciler(watch, Shelf(watch), world.clock, world.events, settings)
        reconciler.on_ready = lambda: self._hint("dispatcher")
        self._parts = {
            "ticker": _Part(self._ticker.step),
            "dispatcher": _Part(dispatcher.step),
            "worker": _Part(worker.step),
            "reconciler": _Part(reconciler.step),
        }
        return worker

    def _hint(self, part: str) -> None:
        self.wake(part)
        self.on_hint(part)

    # ---- looking -----------------------------------------------------------------------------

    def wake(self, part: str, *, within_ms: int = 20) -> None:
        """Let a part look soon."""
        self._step_after(self._world.dice.randrange(within_ms), self._parts[part])

    def look_for_cancelled(self) -> None:
        """Hint that some run may have been cancelled."""
        self._worker.look()
        self.wake("worker")

    def _step_after(self, ms: float, part: _Part) -> None:
        if part.busy:
            part.again = True
            return
        part.turn += 1
        turn = part.turn

        async def step() -> None:
            if self.alive and part.turn == turn and not part.busy:
                await self._step(part)

        self._world.agenda.after(ms, step)

    async def _step(self, part: _Part) -> None:
        if still := self.still_ms():
            self._step_after(still, part)
            return
        part.busy = True
        told = len(self._world.history.reports)
        try:
            wait = await part.step()
        except Crash:
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
        for part in self._parts:
            self.wake(part)

    def _taken_down(self) -> None:
        self._world.around.broken(self.name)
        self.die()

    def die(self) -> None:
        """The process is gone, with all that it had in hand."""
        if self.alive:
            self.alive = False
            self._world.history.deaths[self.name] = round(self._world.clock.elapsed() * 1000)
            self.runner.die()
            self._died()
