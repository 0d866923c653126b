"""A process of the virtual scheduler: all services on virtual time, without faults, woken when they have work."""

from collections.abc import Awaitable, Callable

from gnomon.adapters.gate import OpenGate
from gnomon.adapters.memory import MemoryStore
from gnomon.config.sections import ExecutionSettings, LeaderSettings, ReconcilerSettings, TickerSettings, WorkerSettings
from gnomon.config.settings import Settings
from gnomon.core.model import DAY_MS
from gnomon.ports.runtime import Events
from gnomon.ports.tasks import HostLoad
from gnomon.services.coordination import AlwaysHeldSingleton
from gnomon.services.execution.deadline_enforcer import DeadlineEnforcer
from gnomon.services.execution.dispatcher import Dispatcher
from gnomon.services.execution.local_dispatch import LocalDispatch, NoTaker
from gnomon.services.execution.reconciler import Reconciler
from gnomon.services.execution.worker import Worker
from gnomon.services.execution.workflow_cache import WorkflowCache
from gnomon.services.operations.events import EventBatcher
from gnomon.services.scheduling.elector import Elector
from gnomon.services.scheduling.ticker import Ticker
from gnomon.testing.clock import VirtualClock
from gnomon.testing.event_queue import EventQueue
from gnomon.testing.scripted_runner import ScriptedRunner

#: Leases practically never expire: there is no other process.
_LONG_MS = 36_500 * DAY_MS
SETTINGS = Settings(
    ticker=TickerSettings(tick_ms=30 * DAY_MS),
    leader=LeaderSettings(ttl_ms=_LONG_MS, renew_interval_ms=_LONG_MS // 3, claim_interval_ms=DAY_MS),
    worker=WorkerSettings(lease_ms=_LONG_MS, poll_secs=24 * 60 * 60, slots=10_000),
    execution=ExecutionSettings(),
    reconciler=ReconcilerSettings(
        poll_ms=DAY_MS, dispatch_timeout_ms=_LONG_MS, running_timeout_ms=_LONG_MS, deadline_poll_ms=DAY_MS
    ),
)


class _ServiceTimer:
    """A service that is stepped after the delay it asked for, or when it is woken."""

    def __init__(self, step: Callable[[], Awaitable[float]]) -> None:
        self.step = step
        #: The number of its next step: earlier ones that are still queued are void.
        self.step_number = 0


class VirtualProcess:
    """Ticker, dispatcher, worker, reconciler and event batcher of one process."""

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
        self._clock, self._events = clock, events
        self._workflow_cache, self._gate = WorkflowCache(store.jobs), OpenGate()
        elector = Elector(store.shards, clock, events, SETTINGS.leader, holder=name, alone=True)
        ticker = Ticker(store.ledger, elector, clock, events, SETTINGS.ticker, on_runs_created=self.check_soon)
        dispatcher = self._build_dispatcher()
        self._worker = self._build_worker()
        self._reconciler = Reconciler(
            store,
            self._workflow_cache,
            clock,
            events,
            SETTINGS,
            lease=AlwaysHeldSingleton(),
            on_ready=self._wake_dispatcher,
            own_worker=name,
        )
        self._event_batcher = EventBatcher(
            store.events, clock, events, lease=AlwaysHeldSingleton(), on_ready=self._wake_dispatcher
        )
        self._timers = {
            "ticker": _ServiceTimer(ticker.step),
            "dispatcher": _ServiceTimer(dispatcher.step),
            "worker": _ServiceTimer(self._work),
            "reconciler": _ServiceTimer(self._reconciler.step),
            "deadlines": _ServiceTimer(self._build_deadline_enforcer().step),
            "event_batcher": _ServiceTimer(self._batch_events),
        }
        self._queue.after(0, self._begin)

    def _build_dispatcher(self) -> Dispatcher:
        return Dispatcher(
            self._store,
            self._workflow_cache,
            self._gate,
            self._clock,
            self._events,
            SETTINGS,
            taker=NoTaker(on_admitted=self._wake_worker),
            wake=self._wake_dispatcher,
            ticker_behind=lambda: False,
        )

    def _build_deadline_enforcer(self) -> DeadlineEnforcer:
        return DeadlineEnforcer(
            self._store,
            self._workflow_cache,
            self._clock,
            self._events,
            SETTINGS,
            lease=AlwaysHeldSingleton(),
            on_ready=self._wake_dispatcher,
        )

    def _build_worker(self) -> Worker:
        return Worker(
            self._store,
            self._workflow_cache,
            self._runner,
            self._gate,
            self._clock,
            self._events,
            settings=SETTINGS,
            worker=self.name,
            wake=self._wake_worker,
            measure_load=HostLoad,
            dispatch=LocalDispatch(wake=self._wake_dispatcher),
        )

    def _wake_dispatcher(self) -> None:
        self.wake("dispatcher")
        self._check_deadlines()

    def _check_deadlines(self) -> None:
        """Look at deadlines, if there are any: new tasks may have earlier ones than those before."""
        if self._store.state.tasks.limited:
            self.wake("deadlines")

    def _wake_worker(self) -> None:
        self.wake("worker")

    async def _begin(self) -> None:
        """Recover the attempts of an earlier process, then step every service."""
        if not self.alive:
            return
        await self._worker.step()
        await self._reconciler.recover(alive={self.name})
        for part in self._timers:
            self.wake(part)

    async def _work(self) -> float:
        reported = self._runner.reported_count
        wait = await self._worker.step()
        await self._runner.run_pending()
        if self._runner.reported_count > reported:
            # Ended attempts free slots, so other tasks may be dispatched.
            self._wake_dispatcher()
        return wait

    async def _batch_events(self) -> float:
        wait = await self._event_batcher.step()
        # `check_soon` is called after every event, so without an open batch there is nothing to poll for.
        return wait if await self._store.events.next_batch_at() is not None else DAY_MS / 1000

    def wake(self, part: str) -> None:
        """Step a service at once."""
        self._look_after(0, self._timers[part])

    def check_soon(self) -> None:
        """Step all services after a write to the store."""
        self._worker.check_soon()
        for part in ("ticker", "dispatcher", "worker", "event_batcher"):
            self.wake(part)
        self._check_deadlines()

    def register_again(self) -> None:
        """Register the worker again, since its functions have changed."""
        self._worker.register_again()
        self.wake("worker")

    def _look_after(self, ms: float, part: _ServiceTimer) -> None:
        part.step_number += 1
        step_number = part.step_number

        async def step() -> None:
            if self.alive and part.step_number == step_number:
                wait = await part.step()
                if part.step_number == step_number:
                    self._look_after(round(wait * 1000), part)

        self._queue.after(ms, step)

    async def die(self) -> None:
        """Kill the process with all its attempts."""
        self.alive = False
        self._runner.die()
        await self._store.workers.deregister(self.name)
