"""The only place that knows everybody: it builds the parts and hands them to each other."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Self

from gnomon.adapters.logs import LoggedEvents
from gnomon.adapters.sql.opening import open_sqlite, sqlite_path
from gnomon.adapters.sql.sqlite import FileLock
from gnomon.adapters.sql.store import SqlStore
from gnomon.adapters.sql.watching import FileWatch
from gnomon.adapters.system import RandomIds, SystemClock, tzdata_version
from gnomon.bureau import Bureau
from gnomon.crew import Crew
from gnomon.errors import Unavailable
from gnomon.housekeeping import Housekeeping, OverheardEvents
from gnomon.office import defaults_of, hidden_password, open_server
from gnomon.operation import Instruments, free_bytes
from gnomon.ports.clock import Clock
from gnomon.ports.events import Events
from gnomon.runners.registry import Functions
from gnomon.services.elector import Elector
from gnomon.services.launcher import Launcher
from gnomon.services.looping import keep_stepping
from gnomon.services.registrar import Registrar
from gnomon.services.sealer import Sealer
from gnomon.services.ticker import Health, Ticker
from gnomon.settings import Settings

#: How often a process that stands by asks for the right to schedule.
_STANDBY_SECONDS = 0.5
#: How soon a write by another process is noticed.
_FILE_SECONDS = 0.1
_SERVER_SECONDS = 1.0


class Node:
    """One process's share: a store, a registrar for operators, and the services that decide, dispatch and execute."""

    def __init__(
        self,
        store: SqlStore,
        settings: Settings,
        *,
        lock: FileLock | None,
        events: Events,
        functions: Functions | None = None,
        imports: Sequence[str] = (),
        dispatches: bool = False,
    ) -> None:
        clock: Clock = SystemClock()
        ids = RandomIds()
        self._clock = clock
        self.store = store
        self.settings = settings
        self._lock = lock
        self.instruments = Instruments(store, settings, clock, events)
        self.events = events = OverheardEvents(self.instruments.events)
        holder = ids.new("node", clock.now())
        self._elector = Elector(store, clock, events, settings.leader, holder=holder, alone=lock is not None)
        self.ticker = Ticker(store, self._elector, clock, events, settings.ticker)
        self.registrar = Registrar(store, store, clock, ids, defaults=defaults_of(settings), tzdata=tzdata_version())
        self.housekeeping = Housekeeping(store, settings, clock, events, holder=holder)
        self.housekeeping.pinger.deciding = lambda: self.ticker.health is Health.OK
        events.listener = self.housekeeping.pinger.heard
        self.crew = None if functions is None else Crew(store, settings, clock, events, functions, imports)
        self.bureau = Bureau(store, settings, clock, events) if dispatches and self.crew is None else None
        self.launcher = Launcher(store, store, store, store, clock, ids)
        if self.crew is not None:
            self.launcher.hand_over = self.crew.dispatcher.hand_over
        doers = self.crew or self.bureau
        backoffs = {} if doers is None else doers.backoffs
        self.instruments.vitals.attach(self.ticker, self._elector, backoffs, partial(free_bytes, settings))
        #: Where it answers requests, if it does.
        self.address: str | None = None
        #: Whether it does its share, and does not stand by.
        self.scheduling = False
        #: Set it to say that there may be something new to decide.
        self.wake = asyncio.Event()

    @classmethod
    async def open(
        cls,
        settings: Settings,
        *,
        events: Events | None = None,
        functions: Functions | None = None,
        imports: Sequence[str] = (),
        dispatches: bool = False,
    ) -> Self:
        """A node on the store that the settings name. With functions it executes, too; else it may dispatch."""
        path = sqlite_path(settings.database.url)
        if path is not None:
            store, lock = await open_sqlite(path), FileLock(path)
        else:
            store, lock = await open_server(settings.database), None
        events = events or LoggedEvents()
        return cls(
            store,
            settings,
            lock=lock,
            events=events,
            functions=functions,
            imports=imports,
            dispatches=dispatches,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Do our share until told to stop; on a file that another process has, stand by until it is free."""
        if not await self._may_schedule(stop):
            return
        database = hidden_password(self.settings.database.url)
        self.events.emit("scheduling", database=database)
        self.scheduling = True
        sealer = Sealer(self.store, self._clock, self.events)
        services = [
            keep_stepping(self.ticker.step, stop=stop, wake=self.wake, events=self.events),
            keep_stepping(sealer.step, stop=stop, events=self.events),
            *self.housekeeping.services(stop),
        ]
        if self.crew is not None:
            self.ticker.on_fired = self.crew.dispatch.set
            self.housekeeping.mender.on_ready = self.crew.dispatch.set
            self.crew.runner.on_start = self.housekeeping.pinger.started
            # The gate is open, so what is decided can be passed on without asking anybody.
            self.ticker.hand_over = self.crew.dispatcher.hand_over
            # On a file that is ours alone, whatever others had in hand died with them.
            await self.crew.begin(alone=self._lock is not None)
            services += [*self.crew.services(stop), self._watch(stop)]
        if self.bureau is not None:
            self.ticker.on_fired = self.bureau.dispatch.set
            self.housekeeping.mender.on_ready = self.bureau.dispatch.set
            services += [*self.bureau.services(stop), self._watch(stop)]
        self.instruments.vitals.on_duty = True
        try:
            await asyncio.gather(*services)
        finally:
            self.scheduling = False
            await self._hand_over()

    def look(self) -> None:
        """Someone may have written something: look at all of it."""
        self.wake.set()
        for others in (self.crew, self.bureau):
            if others is not None:
                others.look()

    async def _watch(self, stop: asyncio.Event) -> None:
        """Whatever others write is noticed soon: at once on a file, by looking now and then on a server."""
        path = sqlite_path(self.settings.database.url)
        watch = None if path is None else FileWatch(path)
        while not stop.is_set():
            if watch is None or watch.changed():
                self.look()
            pause = _SERVER_SECONDS if watch is None else _FILE_SECONDS
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), pause)
        if watch is not None:
            watch.close()

    async def _hand_over(self) -> None:
        """What runs has ended, and others may go on at once; if the store is away, once our leases have ended."""
        try:
            if self.crew is not None:
                await self.crew.worker.drain()
            await self.housekeeping.pinger.drain()
            await self._elector.stop()
        except Unavailable as error:
            self.events.emit("store_unavailable", error=str(error))
        finally:
            if self._lock is not None:
                self._lock.release()

    async def _may_schedule(self, stop: asyncio.Event) -> bool:
        told = False
        while not stop.is_set():
            if self._lock is None or self._lock.try_acquire():
                return True
            if not told:
                self.events.emit("standing_by", database=hidden_password(self.settings.database.url))
                told = True
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), _STANDBY_SECONDS)
        return False

    async def close(self) -> None:
        """Let go of the store."""
        if self.crew is not None:
            self.crew.meter.close()
        await self.store.close()
