"""The only place that knows everybody: it builds the parts and hands them to each other."""

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Self

from gnomon.adapters.host import RandomIds, SystemClock, tzdata_version
from gnomon.adapters.sql.connect import open_sqlite, sqlite_path
from gnomon.adapters.sql.sqlite import CommitWatcher, FileLock
from gnomon.adapters.sql.store import SqlStore
from gnomon.adapters.structured_log import LoggedEvents
from gnomon.adapters.synced_clock import StoreSyncedClock
from gnomon.app.coordination import Coordination, attach_hints, sync_clock
from gnomon.app.execution import LocalExecution, RemoteDispatch
from gnomon.app.gate import build_gate
from gnomon.app.maintenance import EventTap, Maintenance
from gnomon.app.observability import Observability, free_bytes
from gnomon.app.operations import open_server_store, redact_password, schedule_defaults
from gnomon.config.settings import Settings
from gnomon.errors import Unavailable
from gnomon.ports.coordination import HintTopic
from gnomon.ports.execution import Gate
from gnomon.ports.runtime import Events
from gnomon.runners.registry import Functions
from gnomon.services.loop import run_loop
from gnomon.services.maintenance.audit_sealer import AuditSealer
from gnomon.services.operations.launcher import Launcher
from gnomon.services.scheduling.elector import Elector
from gnomon.services.scheduling.registrar import Registrar
from gnomon.services.scheduling.ticker import Ticker, TickerHealth

#: How often a process that stands by asks for the right to schedule.
_STANDBY_SECONDS = 0.5
#: How long what was decided just now may keep everybody busy.
_BURST_SECONDS = 0.1
#: How often to look at a server for what others have written there.
_POLL_SECONDS = 1.0


class Node:
    """One process's share: a store, a registrar for operators, and the services that decide, dispatch and execute."""

    def __init__(  # noqa: PLR0913 - the choices that a process has
        self,
        store: SqlStore,
        settings: Settings,
        *,
        lock: FileLock | None,
        events: Events,
        functions: Functions | None = None,
        imports: Sequence[str] = (),
        dispatches: bool = False,
        gate: Gate | None = None,
    ) -> None:
        clock, ids = StoreSyncedClock(), RandomIds()
        self.store, self.settings, self._lock = store, settings, lock
        #: On a server, set by its clock, as all are who share it; on a file it is the machine's.
        self.clock = clock
        self.gate = gate or build_gate(settings)
        self._hints = attach_hints(store, settings, events)
        self.observability = Observability(store, settings, clock, events)
        self.events = events = EventTap(self.observability.events)
        holder = ids.new("node", clock.now())
        # By the machine's own clock, whatever others go by: it says how wrong that is.
        self._elector = Elector(store, SystemClock(), events, settings.leader, holder=holder, alone=lock is not None)
        self.set_clock = partial(sync_clock, clock, store, events, node=holder)
        self.ticker = Ticker(store, self._elector, clock, events, settings.ticker)
        self.registrar = Registrar(
            store, store, clock, ids, defaults=schedule_defaults(settings), tzdata=tzdata_version()
        )
        self.coordination = Coordination(store, settings, clock, events, holder=holder, alone=lock is not None)
        self.maintenance = Maintenance(store, self.coordination.singletons, settings, clock, events, holder=holder)
        self.maintenance.pinger.deciding = lambda: self.ticker.health is TickerHealth.OK
        events.listener = self.maintenance.pinger.heard
        self.local_execution = (
            None if functions is None else LocalExecution(store, settings, clock, events, functions, imports, self.gate)
        )
        self.remote_dispatch = (
            RemoteDispatch(store, settings, clock, events, self.gate)
            if dispatches and self.local_execution is None
            else None
        )
        self.launcher = Launcher(store, store, store, store, clock, ids)
        doers = self.local_execution or self.remote_dispatch
        backoffs = {} if doers is None else doers.backoffs
        self.observability.health.attach(self.ticker, self._elector, backoffs, partial(free_bytes, settings))
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
        gate: Gate | None = None,
    ) -> Self:
        """A node on the store that the settings name. With functions it executes, too; else it may dispatch.

        Without a gate it has the one that the settings ask for.
        """
        path = sqlite_path(settings.database.url)
        if path is not None:
            store, lock = await open_sqlite(path), FileLock(path)
        else:
            store, lock = await open_server_store(settings.database), None
        node = cls(
            store,
            settings,
            lock=lock,
            events=events or LoggedEvents(),
            functions=functions,
            imports=imports,
            dispatches=dispatches,
            gate=gate,
        )
        if lock is None:
            await node.set_clock()
        return node

    async def run(self, stop: asyncio.Event) -> None:
        """Do our share until told to stop; on a file that another process has, stand by until it is free."""
        if not await self._acquire_file_lock(stop):
            return
        database = redact_password(self.settings.database.url)
        self.events.emit("scheduling", database=database)
        self.scheduling = True
        sealer = AuditSealer(self.store, self.clock, self.events)
        sealer.busy = lambda: self.local_execution is None or self.local_execution.worker.in_hand > 0
        self.coordination.assign_singleton_leases(self.local_execution or self.remote_dispatch, sealer)
        services = [
            run_loop("ticker", self.ticker.step, stop=stop, wake=self.wake, events=self.events),
            run_loop("audit_sealer", sealer.step, stop=stop, events=self.events),
            *self.maintenance.services(stop),
        ]
        if self._lock is None:
            services.append(run_loop("clock", self.set_clock, stop=stop, events=self.events))
        services += await self._execution_loops(stop)
        self.observability.health.active = True
        if self._hints is not None:
            await self._hints.listen(self.heard)
        try:
            await asyncio.gather(*services)
        finally:
            self.scheduling = False
            self.launcher.write_and_admit = None
            await self._shut_down()

    async def _execution_loops(self, stop: asyncio.Event) -> list[Coroutine[None, None, None]]:
        """The loops of those who bring tasks to their end, here or elsewhere; everybody knows of them."""
        if self.local_execution is not None:
            self.ticker.on_runs_created = self.local_execution.dispatch.set
            self.maintenance.run_repairer.on_ready = self.local_execution.dispatch.set
            self.local_execution.runner.on_start = self.maintenance.pinger.started
            # Tasks that the gate allows at once are passed on in the commit that creates them.
            self.ticker.write_and_admit = self.local_execution.dispatcher.write_and_admit
            # On a file that is ours alone, whatever others had in hand died with them.
            await self.local_execution.begin(alone=self._lock is not None)
            # Who only stands by must not hand anything over to itself.
            self.launcher.write_and_admit = self.local_execution.dispatcher.write_and_admit
            return [*self.local_execution.services(stop), self._watch(stop)]
        if self.remote_dispatch is None:
            return []
        self.ticker.on_runs_created = self.remote_dispatch.dispatch.set
        self.remote_dispatch.dispatcher.yield_to_ticker = lambda: self.ticker.behind
        self.maintenance.run_repairer.on_ready = self.remote_dispatch.dispatch.set
        self.ticker.write_and_admit = self.launcher.write_and_admit = self.remote_dispatch.dispatcher.write_and_admit
        services = [*self.remote_dispatch.services(stop), self._watch(stop)]
        if self.settings.nats.url:
            from gnomon.app.fleet import run_nats_dispatch

            services.append(run_nats_dispatch(self, self.remote_dispatch, stop))
        return services

    @property
    def busy(self) -> bool:
        """Whether it has something in hand that others should give way to."""
        return self.ticker.seconds_since_decision < _BURST_SECONDS or (
            self.local_execution is not None and self.local_execution.worker.in_hand > 0
        )

    def heard(self, topic: HintTopic) -> None:
        """Another process says that there may be something to look at."""
        if topic is HintTopic.SHARDS:
            self._elector.check_soon()
            self.wake.set()
        elif topic is HintTopic.CHANGES:
            self.check_soon()
        elif topic is HintTopic.WORK and self.local_execution is not None:
            self.local_execution.work.set()
        elif topic is HintTopic.READY and (doers := self.local_execution or self.remote_dispatch) is not None:
            doers.dispatch.set()
        elif topic is HintTopic.WORKERS and (doers := self.local_execution or self.remote_dispatch) is not None:
            doers.workers_changed()

    def check_soon(self) -> None:
        """Someone may have written something: look at all of it."""
        self.wake.set()
        for others in (self.local_execution, self.remote_dispatch):
            if others is not None:
                others.check_soon()

    async def _watch(self, stop: asyncio.Event) -> None:
        """Whatever others write is noticed soon: at once on a file, by looking now and then on a server."""
        path = sqlite_path(self.settings.database.url)
        if path is not None:
            await CommitWatcher(path).watch(self.check_soon, stop)
        while not stop.is_set():
            self.check_soon()
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), _POLL_SECONDS)

    async def _shut_down(self) -> None:
        """Others decide from now on, and what runs has ended; if the store is away, our leases end by themselves."""
        try:
            # First, because what runs may take its time.
            for part in (self._elector.stop, self.coordination.release_singletons, self._drain):
                with self._report_unavailable():
                    await part()
        finally:
            if self._lock is not None:
                self._lock.release()

    async def _drain(self) -> None:
        doers = self.local_execution or self.remote_dispatch
        if doers is not None:
            doers.dispatcher.close()
        if self.local_execution is not None:
            await self.local_execution.worker.drain()
        await self.maintenance.pinger.drain()

    @contextmanager
    def _report_unavailable(self) -> Iterator[None]:
        try:
            yield
        except Unavailable as error:
            self.events.emit("store_unavailable", error=str(error))

    async def _acquire_file_lock(self, stop: asyncio.Event) -> bool:
        told = False
        while not stop.is_set():
            if self._lock is None or self._lock.try_acquire():
                return True
            if not told:
                self.events.emit("standing_by", database=redact_password(self.settings.database.url))
                told = True
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), _STANDBY_SECONDS)
        return False

    async def close(self) -> None:
        """Let go of the store."""
        if self._hints is not None:
            await self._hints.close()
        await self.coordination.close()
        if self.local_execution is not None:
            self.local_execution.load_meter.close()
        await self.store.close()
