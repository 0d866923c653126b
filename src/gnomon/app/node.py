"""The only place that knows everybody: it builds the parts and hands them to each other."""

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Self

from gnomon.adapters.host import RandomIds, SystemClock, tzdata_version
from gnomon.adapters.sql.connect import open_sqlite, sqlite_path
from gnomon.adapters.sql.sqlite import FileLock, FileWatch
from gnomon.adapters.sql.store import SqlStore
from gnomon.adapters.structured_log import LoggedEvents
from gnomon.adapters.synced_clock import GuidedClock
from gnomon.app.coordination import Commons, hints_on, set_by_store
from gnomon.app.execution import Bureau, Crew
from gnomon.app.maintenance import Housekeeping, OverheardEvents
from gnomon.app.observability import Instruments, free_bytes
from gnomon.app.operations import defaults_of, hidden_password, open_server
from gnomon.config.settings import Settings
from gnomon.errors import Unavailable
from gnomon.ports.coordination import Topic
from gnomon.ports.runtime import Events
from gnomon.runners.registry import Functions
from gnomon.services.loop import keep_stepping
from gnomon.services.maintenance.audit_sealer import Sealer
from gnomon.services.operations.launcher import Launcher
from gnomon.services.scheduling.elector import Elector
from gnomon.services.scheduling.registrar import Registrar
from gnomon.services.scheduling.ticker import Health, Ticker

#: How often a process that stands by asks for the right to schedule.
_STANDBY_SECONDS = 0.5
#: How long what was decided just now may keep everybody busy.
_BURST_SECONDS = 0.1
#: How often to look at a server for what others have written there.
_LOOK_SECONDS = 1.0


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
        clock, ids = GuidedClock(), RandomIds()
        self.store, self.settings, self._lock = store, settings, lock
        #: On a server, set by its clock, as all are who share it; on a file it is the machine's.
        self.clock = clock
        self._hints = hints_on(store, settings, events)
        self.instruments = Instruments(store, settings, clock, events)
        self.events = events = OverheardEvents(self.instruments.events)
        holder = ids.new("node", clock.now())
        # By the machine's own clock, whatever others go by: it says how wrong that is.
        self._elector = Elector(store, SystemClock(), events, settings.leader, holder=holder, alone=lock is not None)
        self.set_clock = partial(set_by_store, clock, store, events, node=holder)
        self.ticker = Ticker(store, self._elector, clock, events, settings.ticker)
        self.registrar = Registrar(store, store, clock, ids, defaults=defaults_of(settings), tzdata=tzdata_version())
        self.commons = Commons(store, settings, clock, events, holder=holder, alone=lock is not None)
        self.housekeeping = Housekeeping(store, self.commons.turns, settings, clock, events, holder=holder)
        self.housekeeping.pinger.deciding = lambda: self.ticker.health is Health.OK
        events.listener = self.housekeeping.pinger.heard
        self.crew = None if functions is None else Crew(store, settings, clock, events, functions, imports)
        self.bureau = Bureau(store, settings, clock, events) if dispatches and self.crew is None else None
        self.launcher = Launcher(store, store, store, store, clock, ids)
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
        node = cls(
            store,
            settings,
            lock=lock,
            events=events or LoggedEvents(),
            functions=functions,
            imports=imports,
            dispatches=dispatches,
        )
        if lock is None:
            await node.set_clock()
        return node

    async def run(self, stop: asyncio.Event) -> None:
        """Do our share until told to stop; on a file that another process has, stand by until it is free."""
        if not await self._may_schedule(stop):
            return
        database = hidden_password(self.settings.database.url)
        self.events.emit("scheduling", database=database)
        self.scheduling = True
        sealer = Sealer(self.store, self.clock, self.events)
        sealer.busy = lambda: self.crew is None or self.crew.worker.in_hand > 0
        self.commons.take_turns(self.crew or self.bureau, sealer)
        services = [
            keep_stepping(self.ticker.step, stop=stop, wake=self.wake, events=self.events),
            keep_stepping(sealer.step, stop=stop, events=self.events),
            *self.housekeeping.services(stop),
        ]
        if self._lock is None:
            services.append(keep_stepping(self.set_clock, stop=stop, events=self.events))
        services += await self._doers(stop)
        self.instruments.vitals.on_duty = True
        if self._hints is not None:
            await self._hints.listen(self.heard)
        try:
            await asyncio.gather(*services)
        finally:
            self.scheduling = False
            self.launcher.hand_over = None
            await self._hand_over()

    async def _doers(self, stop: asyncio.Event) -> list[Coroutine[None, None, None]]:
        """The loops of those who bring tasks to their end, here or elsewhere; everybody knows of them."""
        if self.crew is not None:
            self.ticker.on_fired = self.crew.dispatch.set
            self.housekeeping.mender.on_ready = self.crew.dispatch.set
            self.crew.runner.on_start = self.housekeeping.pinger.started
            # The gate is open, so what is decided can be passed on without asking anybody.
            self.ticker.hand_over = self.crew.dispatcher.hand_over
            # On a file that is ours alone, whatever others had in hand died with them.
            await self.crew.begin(alone=self._lock is not None)
            # Who only stands by must not hand anything over to itself.
            self.launcher.hand_over = self.crew.dispatcher.hand_over
            return [*self.crew.services(stop), self._watch(stop)]
        if self.bureau is None:
            return []
        self.ticker.on_fired = self.bureau.dispatch.set
        self.bureau.dispatcher.others_first = lambda: self.ticker.behind
        self.housekeeping.mender.on_ready = self.bureau.dispatch.set
        self.ticker.hand_over = self.launcher.hand_over = self.bureau.dispatcher.hand_over
        services = [*self.bureau.services(stop), self._watch(stop)]
        if self.settings.nats.url:
            from gnomon.app.fleet import serve_fleet

            services.append(serve_fleet(self, self.bureau, stop))
        return services

    @property
    def busy(self) -> bool:
        """Whether it has something in hand that others should give way to."""
        return self.ticker.decided_ago < _BURST_SECONDS or (self.crew is not None and self.crew.worker.in_hand > 0)

    def heard(self, topic: Topic) -> None:
        """Another process says that there may be something to look at."""
        if topic is Topic.SHARDS:
            self._elector.look()
            self.wake.set()
        elif topic is Topic.CHANGES:
            self.look()
        elif topic is Topic.WORK and self.crew is not None:
            self.crew.work.set()
        elif topic is Topic.READY and (doers := self.crew or self.bureau) is not None:
            doers.dispatch.set()
        elif topic is Topic.WORKERS and (doers := self.crew or self.bureau) is not None:
            doers.newcomer()

    def look(self) -> None:
        """Someone may have written something: look at all of it."""
        self.wake.set()
        for others in (self.crew, self.bureau):
            if others is not None:
                others.look()

    async def _watch(self, stop: asyncio.Event) -> None:
        """Whatever others write is noticed soon: at once on a file, by looking now and then on a server."""
        path = sqlite_path(self.settings.database.url)
        if path is not None:
            await FileWatch(path).tell(self.look, stop)
        while not stop.is_set():
            self.look()
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), _LOOK_SECONDS)

    async def _hand_over(self) -> None:
        """Others decide from now on, and what runs has ended; if the store is away, our leases end by themselves."""
        try:
            # First, because what runs may take its time.
            for part in (self._elector.stop, self.commons.leave, self._drain):
                with self._announced_if_away():
                    await part()
        finally:
            if self._lock is not None:
                self._lock.release()

    async def _drain(self) -> None:
        if self.crew is not None:
            await self.crew.worker.drain()
        await self.housekeeping.pinger.drain()

    @contextmanager
    def _announced_if_away(self) -> Iterator[None]:
        try:
            yield
        except Unavailable as error:
            self.events.emit("store_unavailable", error=str(error))

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
        if self._hints is not None:
            await self._hints.close()
        await self.commons.close()
        if self.crew is not None:
            self.crew.meter.close()
        await self.store.close()
