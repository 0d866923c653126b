"""A process that only executes: `gnomon worker` on a store."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Self

from msgspec import Struct

from gnomon.adapters.host import LoadSampler, RandomIds
from gnomon.adapters.sql.connect import sqlite_path
from gnomon.adapters.sql.sqlite import CommitWatcher
from gnomon.adapters.structured_log import LoggedEvents
from gnomon.adapters.synced_clock import StoreSyncedClock
from gnomon.app.agent_verbs import StoreVerbs
from gnomon.app.attempt_progress import StoreProgress
from gnomon.app.coordination import ClockSynchronizer
from gnomon.app.gate import build_gate, build_output_policy, build_stored_policy, held_output_cipher
from gnomon.app.maintenance import build_pinger
from gnomon.app.observability import EventObservers, Observability, observed
from gnomon.app.runner import build_runner, import_modules
from gnomon.app.stores import ConnectedStore
from gnomon.config.settings import Settings
from gnomon.core import component_names
from gnomon.errors import Unavailable
from gnomon.ports.coordination import HintTopic
from gnomon.ports.runtime import Events
from gnomon.runners.registry import FUNCTIONS, Functions
from gnomon.services.execution.local_dispatch import LocalDispatch
from gnomon.services.execution.worker import Worker
from gnomon.services.execution.workflow_cache import WorkflowCache
from gnomon.services.loop import run_loop
from gnomon.services.observability.metrics import MetricsRecorder
from gnomon.services.observed_events import ObservedEvents

#: How often to look at a database server for writes of other processes.
_POLL_SECONDS = 0.25
#: Every so many of these looks, also look for cancellations.
_POLLS_PER_CANCEL_CHECK = 4


class WorkerOptions(Struct, frozen=True, kw_only=True):
    """The options of `gnomon worker`."""

    settings: Settings
    #: Modules that register functions when they are imported.
    imports: Sequence[str] = ()
    functions: Functions = FUNCTIONS
    events: Events | None = None
    #: Serve metrics and health probes on the port of the settings.
    metrics: bool = False


class WorkerProcess:
    """One worker on a store that others schedule on."""

    def __init__(self, opened: ConnectedStore, options: WorkerOptions) -> None:
        store, settings, clock = opened.store, options.settings, StoreSyncedClock()
        self._opened = opened
        self.store, self.settings = store, settings
        # A server counts its commits, also if it serves metrics: they must not be counted twice.
        recorder = MetricsRecorder(max_jobs=0) if options.metrics else None
        observers = EventObservers(clock, options.events or LoggedEvents(), recorder)
        self._pinger = build_pinger(store, settings, clock, observers.events, deciding=lambda: False)
        self.events: Events = ObservedEvents(observers.events, [self._pinger.heard])
        #: Set when there may be tasks to take, or attempts that have ended.
        self.wake = asyncio.Event()
        self._load_sampler = LoadSampler()
        name = RandomIds().new("worker", clock.now())
        #: Workers follow the clock of the store: other processes compare their times with these.
        self._clock_sync = ClockSynchronizer(clock, store, self.events, worker=name)
        #: The rules about outputs, which the worker checks before it stores them; None: it checks none.
        self._policy = build_stored_policy(settings, store, self.events) if settings.output_policy.enabled else None
        output_policy = None if self._policy is None else build_output_policy(settings, store, clock, self._policy)
        self.worker = Worker(
            store,
            WorkflowCache(store.jobs),
            build_runner(
                options.functions,
                settings,
                options.imports,
                wake=self.wake,
                on_start=self._pinger.started,
                # The schedulers find what models change by themselves.
                verbs=StoreVerbs(store, settings, clock, changed=lambda: None),
                progress=StoreProgress(store, clock, output_policy),
            ),
            build_gate(settings, store, clock),
            clock,
            self.events,
            settings=settings,
            worker=name,
            wake=self.wake.set,
            measure_load=self._load_sampler.load,
            # The dispatchers of other processes find ready tasks by themselves.
            dispatch=LocalDispatch(wake=lambda: None),
            output_policy=output_policy,
            held_cipher=held_output_cipher(settings),
        )
        self.observability = Observability(
            store, settings, clock, observers, backoffs=lambda: {component_names.WORKER: self.worker.backoff}
        )

    @classmethod
    async def open(cls, options: WorkerOptions) -> Self:
        """A worker on the store that the settings name; NoDatabase if that is a missing file."""
        settings = options.settings
        events = options.events or LoggedEvents()
        return cls(await ConnectedStore.open(settings, events, create=False, counts=False), options)

    async def run(self, stop: asyncio.Event) -> None:
        """Take and execute tasks until `stop` is set; then wait for running attempts, or stop them."""
        self.observability.health.started()
        if self._opened.hints is not None:
            await self._opened.hints.listen(self.heard)
        await self._clock_sync.step()
        with suppress(Unavailable):  # until it is known, outputs wait
            if self._policy is not None:
                await self._policy.refresh()
        try:
            await asyncio.gather(
                run_loop(component_names.WORKER, self.worker.step, stop=stop, wake=self.wake, events=self.events),
                run_loop(component_names.WORKER, self.worker.watch_lease, stop=stop, events=self.events),
                run_loop(component_names.CLOCK_SYNCHRONIZER, self._clock_sync.step, stop=stop, events=self.events),
                run_loop(
                    component_names.PINGER, self._pinger.step, stop=stop, wake=self._pinger.wake, events=self.events
                ),
                self._watch(stop),
                *self._policy_loops(stop),
            )
        finally:
            await self.worker.drain()
            await self._pinger.drain()

    def _policy_loops(self, stop: asyncio.Event) -> list[Coroutine[None, None, None]]:
        if self._policy is None:
            return []
        return [run_loop(component_names.POLICY, self._policy.step, stop=stop, events=self.events)]

    def heard(self, topic: HintTopic) -> None:
        """Look soon at what another process has hinted at."""
        if topic is HintTopic.CHANGES:
            self.check_soon()
        elif topic is HintTopic.WORK:
            self.wake.set()

    def check_soon(self) -> None:
        """Look at everything soon: another process may have written something."""
        self.worker.check_soon()
        self.wake.set()

    async def _watch(self, stop: asyncio.Event) -> None:
        """Notice what other processes admit or cancel: at once on a file, by polling on a server."""
        path = sqlite_path(self.settings.database.url)
        if path is not None:
            await CommitWatcher(path).watch(self.check_soon, stop)
        looks = 0
        while not stop.is_set():
            looks += 1
            self.wake.set()
            if looks % _POLLS_PER_CANCEL_CHECK == 0:
                self.check_soon()
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), _POLL_SECONDS)

    async def close(self) -> None:
        """Close the store."""
        self._load_sampler.close()
        await self._opened.close()


async def run_worker(
    options: WorkerOptions, stop: asyncio.Event, *, ready: Callable[[WorkerProcess], None] = lambda _: None
) -> None:
    """Execute until `stop` is set. Wrong options are refused before anything starts."""
    import_modules(options.imports)
    process = await WorkerProcess.open(options)
    try:
        async with observed(process, stop, serve=options.metrics, doing="executing"):
            ready(process)
            await process.run(stop)
    finally:
        await process.close()
