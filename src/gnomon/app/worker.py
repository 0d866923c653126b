"""A process that only executes: what `gnomon worker` starts."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from typing import Self

from msgspec import Struct

from gnomon.adapters.host import LoadSampler, RandomIds
from gnomon.adapters.sql.connect import sqlite_path
from gnomon.adapters.sql.sqlite import CommitWatcher
from gnomon.adapters.sql.store import SqlStore
from gnomon.adapters.structured_log import LoggedEvents
from gnomon.adapters.synced_clock import StoreSyncedClock
from gnomon.app.coordination import attach_hints, sync_clock
from gnomon.app.execution import build_runner
from gnomon.app.gate import build_gate
from gnomon.app.maintenance import EventTap, build_pinger
from gnomon.app.observability import Observability, free_bytes, observed
from gnomon.app.operations import open_existing_store
from gnomon.app.server import import_modules
from gnomon.config.settings import Settings
from gnomon.ports.coordination import HintTopic
from gnomon.ports.runtime import Events
from gnomon.runners.registry import FUNCTIONS, Functions
from gnomon.services.execution.worker import Worker
from gnomon.services.execution.workflow_cache import WorkflowCache
from gnomon.services.loop import run_loop

#: How often to look at a server for what others have written there.
_POLL_SECONDS = 0.25
#: How many looks at a server make one look at what is to be cancelled.
_POLLS_PER_CANCEL_CHECK = 4


class WorkerOptions(Struct, frozen=True, kw_only=True):
    """What to work on, and with what."""

    settings: Settings
    #: Modules that register functions when they are imported.
    imports: Sequence[str] = ()
    functions: Functions = FUNCTIONS
    events: Events | None = None
    #: Show numbers and health on the port of the settings.
    metrics: bool = False


class WorkerProcess:
    """One worker on a store that others schedule on."""

    def __init__(self, store: SqlStore, shift: WorkerOptions) -> None:
        settings, clock = shift.settings, StoreSyncedClock()
        self._clock = clock
        self.store = store
        self.settings = settings
        self._hints = attach_hints(store, settings, shift.events or LoggedEvents())
        self.observability = Observability(store, settings, clock, shift.events or LoggedEvents())
        self.events = EventTap(self.observability.events)
        #: Set to say that there may be something to take or to report.
        self.wake = asyncio.Event()
        runner = build_runner(shift.functions, settings, shift.imports, wake=self.wake)
        name = RandomIds().new("worker", clock.now())
        self.worker = Worker(
            store,
            WorkflowCache(store),
            runner,
            build_gate(settings),
            clock,
            self.events,
            settings=settings,
            worker=name,
        )
        self.worker.on_taken = self.wake.set
        self._load_meter = LoadSampler()
        self.worker.registration.measure = self._load_meter.load
        self._pinger = build_pinger(store, settings, clock, self.events)
        self._pinger.deciding = lambda: False
        self.events.listener = self._pinger.heard
        runner.on_start = self._pinger.started
        backoffs = {"worker": self.worker.backoff}
        self.observability.health.attach(None, None, backoffs, partial(free_bytes, settings))

    @classmethod
    async def open(cls, shift: WorkerOptions) -> Self:
        """A workshop on the store that the settings name; NoDatabase if that is a file that is not there."""
        return cls(await open_existing_store(shift.settings), shift)

    async def run(self, stop: asyncio.Event) -> None:
        """Take and execute until told to stop; then what runs has ended one way or another."""
        self.observability.health.active = True
        if self._hints is not None:
            await self._hints.listen(self.heard)
        await self._set_clock()
        try:
            await asyncio.gather(
                run_loop("worker", self.worker.step, stop=stop, wake=self.wake, events=self.events),
                run_loop("worker", self.worker.watch_lease, stop=stop, events=self.events),
                run_loop("clock", self._set_clock, stop=stop, events=self.events),
                run_loop("pinger", self._pinger.step, stop=stop, wake=self._pinger.wake, events=self.events),
                self._watch(stop),
            )
        finally:
            await self.worker.drain()
            await self._pinger.drain()

    def heard(self, topic: HintTopic) -> None:
        """Another process says that there may be something to look at."""
        if topic is HintTopic.CHANGES:
            self.check_soon()
        elif topic is HintTopic.WORK:
            self.wake.set()

    def check_soon(self) -> None:
        """Someone may have written something: look at all of it."""
        self.worker.check_soon()
        self.wake.set()

    async def _watch(self, stop: asyncio.Event) -> None:
        """What others let through or cancel is noticed soon: at once on a file, by looking often on a server."""
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

    async def _set_clock(self) -> float:
        """What we write down is compared with what others do, so that we go by the clock of the store."""
        return await sync_clock(self._clock, self.store, self.events, worker=self.worker.worker)

    async def close(self) -> None:
        """Let go of the store."""
        if self._hints is not None:
            await self._hints.close()
        self._load_meter.close()
        await self.store.close()


async def run_worker(
    shift: WorkerOptions, stop: asyncio.Event, *, ready: Callable[[WorkerProcess], None] = lambda _: None
) -> None:
    """Execute until told to stop. What was asked for wrongly is refused before anything starts."""
    import_modules(shift.imports)
    shop = await WorkerProcess.open(shift)
    try:
        async with observed(shop, stop, doing="executing") if shift.metrics else nullcontext():
            ready(shop)
            await shop.run(stop)
    finally:
        await shop.close()
