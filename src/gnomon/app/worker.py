"""A process that only executes: what `gnomon worker` starts."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from typing import Self

from msgspec import Struct

from gnomon.adapters.gate import OpenGate
from gnomon.adapters.host import LoadMeter, RandomIds
from gnomon.adapters.sql.connect import sqlite_path
from gnomon.adapters.sql.sqlite import FileWatch
from gnomon.adapters.sql.store import SqlStore
from gnomon.adapters.structured_log import LoggedEvents
from gnomon.adapters.synced_clock import GuidedClock
from gnomon.app.coordination import hints_on, set_by_store
from gnomon.app.execution import runner_of
from gnomon.app.maintenance import OverheardEvents, pinger_of
from gnomon.app.observability import Instruments, free_bytes, watched
from gnomon.app.operations import open_existing
from gnomon.app.server import import_modules
from gnomon.config.settings import Settings
from gnomon.ports.coordination import Topic
from gnomon.ports.runtime import Events
from gnomon.runners.registry import FUNCTIONS, Functions
from gnomon.services.execution.worker import Worker
from gnomon.services.execution.workflow_cache import Shelf
from gnomon.services.loop import keep_stepping

#: How often to look at a server for what others have written there.
_LOOK_SECONDS = 0.25
#: How many looks at a server make one look at what is to be cancelled.
_LOOKS = 4


class Shift(Struct, frozen=True, kw_only=True):
    """What to work on, and with what."""

    settings: Settings
    #: Modules that register functions when they are imported.
    imports: Sequence[str] = ()
    functions: Functions = FUNCTIONS
    events: Events | None = None
    #: Show numbers and health on the port of the settings.
    metrics: bool = False


class Workshop:
    """One worker on a store that others schedule on."""

    def __init__(self, store: SqlStore, shift: Shift) -> None:
        settings, clock = shift.settings, GuidedClock()
        self._clock = clock
        self.store = store
        self.settings = settings
        self._hints = hints_on(store, settings, shift.events or LoggedEvents())
        self.instruments = Instruments(store, settings, clock, shift.events or LoggedEvents())
        self.events = OverheardEvents(self.instruments.events)
        #: Set to say that there may be something to take or to report.
        self.wake = asyncio.Event()
        runner = runner_of(shift.functions, settings, shift.imports, wake=self.wake)
        name = RandomIds().new("worker", clock.now())
        self.worker = Worker(
            store, Shelf(store), runner, OpenGate(), clock, self.events, settings=settings, worker=name
        )
        self._meter = LoadMeter()
        self.worker.presence.measure = self._meter.load
        self._pinger = pinger_of(store, settings, clock, self.events)
        self._pinger.deciding = lambda: False
        self.events.listener = self._pinger.heard
        runner.on_start = self._pinger.started
        backoffs = {"worker": self.worker.backoff}
        self.instruments.vitals.attach(None, None, backoffs, partial(free_bytes, settings))

    @classmethod
    async def open(cls, shift: Shift) -> Self:
        """A workshop on the store that the settings name; NoDatabase if that is a file that is not there."""
        return cls(await open_existing(shift.settings), shift)

    async def run(self, stop: asyncio.Event) -> None:
        """Take and execute until told to stop; then what runs has ended one way or another."""
        self.instruments.vitals.on_duty = True
        if self._hints is not None:
            await self._hints.listen(self.heard)
        await self._set_clock()
        try:
            await asyncio.gather(
                keep_stepping(self.worker.step, stop=stop, wake=self.wake, events=self.events),
                keep_stepping(self.worker.watch_lease, stop=stop, events=self.events),
                keep_stepping(self._set_clock, stop=stop, events=self.events),
                keep_stepping(self._pinger.step, stop=stop, wake=self._pinger.wake, events=self.events),
                self._watch(stop),
            )
        finally:
            await self.worker.drain()
            await self._pinger.drain()

    def heard(self, topic: Topic) -> None:
        """Another process says that there may be something to look at."""
        if topic is Topic.CHANGES:
            self.look()
        elif topic is Topic.WORK:
            self.wake.set()

    def look(self) -> None:
        """Someone may have written something: look at all of it."""
        self.worker.look()
        self.wake.set()

    async def _watch(self, stop: asyncio.Event) -> None:
        """What others let through or cancel is noticed soon: at once on a file, by looking often on a server."""
        path = sqlite_path(self.settings.database.url)
        if path is not None:
            await FileWatch(path).tell(self.look, stop)
        looks = 0
        while not stop.is_set():
            looks += 1
            self.wake.set()
            if looks % _LOOKS == 0:
                self.look()
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), _LOOK_SECONDS)

    async def _set_clock(self) -> float:
        """What we write down is compared with what others do, so that we go by the clock of the store."""
        return await set_by_store(self._clock, self.store, self.events, worker=self.worker.worker)

    async def close(self) -> None:
        """Let go of the store."""
        if self._hints is not None:
            await self._hints.close()
        self._meter.close()
        await self.store.close()


async def work(shift: Shift, stop: asyncio.Event, *, ready: Callable[[Workshop], None] = lambda _: None) -> None:
    """Execute until told to stop. What was asked for wrongly is refused before anything starts."""
    import_modules(shift.imports)
    shop = await Workshop.open(shift)
    try:
        async with watched(shop, stop, doing="executing") if shift.metrics else nullcontext():
            ready(shop)
            await shop.run(stop)
    finally:
        await shop.close()
