"""A process on virtual time in which nothing goes wrong by itself: every service, woken when it has something to do."""

from collections.abc import Awaitable, Callable

from gnomon.adapters.gate import OpenGate
from gnomon.adapters.memory import MemoryStore
from gnomon.config.sections import ExecutionSettings, LeaderSettings, ReconcilerSettings, TickerSettings, WorkerSettings
from gnomon.config.settings import Settings
from gnomon.core.model import DAY_MS
from gnomon.ports.runtime import Events
from gnomon.ports.tasks import HostLoad
from gnomon.services.coordination import SoleNode
from gnomon.services.execution.dispatcher import Dispatcher
from gnomon.services.execution.handover import LocalDispatch, NoTaker
from gnomon.services.execution.reconciler import Reconciler
from gnomon.services.execution.worker import Worker
from gnomon.services.execution.workflow_cache import WorkflowCache
from gnomon.services.operations.events import EventBatcher
from gnomon.services.scheduling.elector import Elector
from gnomon.services.scheduling.ticker import Ticker
from gnomon.testing.clock import VirtualClock
from gnomon.testing.event_queue import EventQueue
from gnomon.testing.scripted_runner import ScriptedRunner

#: Nobody else is there, so nobody has to be convinced again and again that we are alive.
_LONG_MS = 36_500 * DAY_MS
SETTINGS = Settings(
    ticker=TickerSettings(tick_ms=30 * DAY_MS),
    leader=LeaderSettings(ttl_ms=_LONG_MS, renew_interval_ms=_LONG_MS // 3, claim_interval_ms=DAY_MS),
    worker=WorkerSettings(lease_ms=_LONG_MS, poll_secs=24 * 60 * 60, slots=10_000),
    execution=ExecutionSettings(),
    reconciler=ReconcilerSettings(poll_ms=DAY_MS, dispatch_timeout_ms=_LONG_MS, running_timeout_ms=_LONG_MS),
)


class _ServiceTimer:
    """A service, which looks again when it wants to, or when it is woken."""

    def __init__(self, step: Callable[[], Awaitable[float]]) -> None:
        self.step = step
        #: The number of its next look: an earlier one that is still on the agenda is void.
        self.turn = 0


class VirtualProcess:
    """Ticker, dispatcher, worker, reconciler and gatherer of one process."""

    def __init__(
        self,
        store: MemoryStore,
        clock: VirtualClock,
        queue: EventQueue,
        runner: ScriptedRunner,
        events: Events,
        *,
        name: str,
    ) -> None:
        self._store = store
        self._queue = queue
        self._runner = runner
        self.name = name
        self.alive = True
        workflow_cache, gate = WorkflowCache(store.jobs), OpenGate()
        elector = Elector(store.shards, clock, events, SETTINGS.leader, holder=name, alone=True)
        ticker = Ticker(store.ledger, elector, clock, events, SETTINGS.ticker, on_runs_created=self.check_soon)

        def wake_dispatcher() -> None:
            self.wake("dispatcher")

        dispatcher = Dispatcher(
            store,
            workflow_cache,
            gate,
            clock,
            events,
            SETTINGS,
            taker=NoTaker(on_admitted=lambda: self.wake("worker")),
            wake=wake_dispatcher,
            ticker_behind=lambda: False,
        )
        self._worker = Worker(
            store,
            workflow_cache,
            runner,
            gate,
            clock,
            events,
            settings=SETTINGS,
            worker=name,
            wake=lambda: self.wake("worker"),
            measure_load=HostLoad,
            dispatch=LocalDispatch(wake=wake_dispatcher),
        )
        self._reconciler = Reconciler(
            store,
            workflow_cache,
            clock,
            events,
            SETTINGS,
            lease=SoleNode(),
            on_ready=wake_dispatcher,
            own_worker=name,
        )
        self._event_batcher = EventBatcher(store.events, clock, events, lease=SoleNode(), on_ready=wake_dispatcher)
        runner.on_finished = lambda: self.wake("worker")
        self._timers = {
            "ticker": _ServiceTimer(ticker.step),
            "dispatcher": _ServiceTimer(dispatcher.step),
            "worker": _ServiceTimer(self._work),
            "reconciler": _ServiceTimer(self._reconciler.step),
            "gatherer": _ServiceTimer(self._gather),
        }
        self._queue.after(0, self._begin)

    async def _begin(self) -> None:
        """What a process before us had in hand is taken up again; then everyone looks around."""
        if not self.alive:
            return
        await self._worker.step()
        await self._reconciler.recover(alive={self.name})
        for part in self._timers:
            self.wake(part)

    async def _work(self) -> float:
        told = self._runner.reported_count
        wait = await self._worker.step()
        await self._runner.run_pending()
        if self._runner.reported_count > told:
            # What has ended may have made room for something else.
            self.wake("dispatcher")
        return wait

    async def _gather(self) -> float:
        wait = await self._event_batcher.step()
        # Whoever emits says so: without a gathering there is nothing to look for.
        return wait if await self._store.events.next_batch_at() is not None else DAY_MS / 1000

    def wake(self, part: str) -> None:
        """Let a part look at once."""
        self._look_after(0, self._timers[part])

    def check_soon(self) -> None:
        """Something was written: everyone looks."""
        self._worker.check_soon()
        for part in ("ticker", "dispatcher", "worker", "gatherer"):
            self.wake(part)

    def register_again(self) -> None:
        """What can be run has changed."""
        self._worker.register_again()
        self.wake("worker")

    def _look_after(self, ms: float, part: _ServiceTimer) -> None:
        part.turn += 1
        turn = part.turn

        async def step() -> None:
            if self.alive and part.turn == turn:
                wait = await part.step()
                if part.turn == turn:
                    self._look_after(round(wait * 1000), part)

        self._queue.after(ms, step)

    async def die(self) -> None:
        """The process is gone, with all that it had in hand."""
        self.alive = False
        self._runner.die()
        await self._store.workers.deregister(self.name)
