"""One node: the process that decides ticks on a store, and dispatches or executes the tasks that they make."""

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Self

from gnomon.adapters.host import RandomIds, SystemClock
from gnomon.adapters.sql.connect import sqlite_path
from gnomon.adapters.sql.sqlite import CommitWatcher, FileLock
from gnomon.adapters.structured_log import LoggedEvents
from gnomon.adapters.synced_clock import StoreSyncedClock
from gnomon.app.coordination import ClockSynchronizer, Coordination
from gnomon.app.execution import ExecutionServices, LocalExecution, NodeContext, RemoteDispatch, WakeUps
from gnomon.app.gate import (
    build_gate,
    build_output_judge,
    build_output_policy,
    build_shadow_policy,
    build_stored_policy,
    build_task_policy,
    open_kernel,
    open_output_kernel,
)
from gnomon.app.maintenance import Maintenance, build_announcer, build_pinger
from gnomon.app.observability import EventObservers, Observability, SchedulerParts
from gnomon.app.scheduling import SchedulingServices
from gnomon.app.settings import redact_password
from gnomon.app.stores import ConnectedStore
from gnomon.config.settings import Settings
from gnomon.core import component_names
from gnomon.errors import Unavailable
from gnomon.ports.change_log import ChangeLog
from gnomon.ports.commit_observer import CommitObserver
from gnomon.ports.coordination import HintTopic
from gnomon.ports.execution import Gate
from gnomon.ports.runtime import Events
from gnomon.runners.registry import Functions
from gnomon.services.loop import run_loop
from gnomon.services.maintenance.announcer import AnnouncementSignal
from gnomon.services.observability.change_stream import ChangeObserver, ChangeStream
from gnomon.services.observability.outbox_reader import OutboxReader
from gnomon.services.observed_events import ObservedEvents
from gnomon.services.scheduling.ticker import TickerHealth

#: How often a standby process tries to get the lock of the database file.
_STANDBY_SECONDS = 0.5
#: How long after a decision the node counts as busy.
_BURST_SECONDS = 0.1
#: How often to look at a database server for writes of other processes.
_POLL_SECONDS = 1.0


class Node:
    """One scheduler process: a store, the services for operators, and those that decide, dispatch and execute."""

    def __init__(  # noqa: PLR0913 - all of its collaborators
        self,
        opened: ConnectedStore,
        settings: Settings,
        *,
        lock: FileLock | None,
        events: Events,
        functions: Functions | None = None,
        imports: Sequence[str] = (),
        dispatches: bool = False,
        gate: Gate | None = None,
        address: str | None = None,
        announcements: AnnouncementSignal | None = None,
    ) -> None:
        """`lock`: the lock of the SQLite file; None for a database server. Writes of the store set `announcements`.

        The other arguments are those of `open`.
        """
        store, alone = opened.store, lock is not None
        self.store, self.settings = store, settings
        self._opened, self._lock = opened, lock
        #: On a server, synchronized with its clock, as in all processes that share it; on a file, the machine's.
        self.clock = clock = StoreSyncedClock()
        self._wake_ups = WakeUps()
        observers = EventObservers(clock, events, opened.metrics)
        self._pinger = build_pinger(store, settings, clock, observers.events, deciding=self._is_deciding)
        self.events: Events = ObservedEvents(observers.events, [self._pinger.heard])
        holder = RandomIds().new("node", clock.now())
        self.clock_sync = ClockSynchronizer(clock, store, self.events, node=holder)
        self.coordination = Coordination(store, settings, clock, self.events, holder=holder, alone=alone)
        policy = build_stored_policy(settings, store, self.events)
        self._kernel = open_kernel(settings)
        task_policy = build_task_policy(settings, store, clock, self.events, policy, self._kernel)
        shadow = build_shadow_policy(store, clock, self.events)
        output_policy = build_output_policy(settings, store, clock, policy)
        self._output_kernel = open_output_kernel(settings)
        self._context = NodeContext(
            store=store,
            settings=settings,
            clock=clock,
            events=self.events,
            gate=gate or build_gate(settings, store, clock, task_policy, shadow),
            policy=policy,
            shadow=shadow,
            output_policy=output_policy,
            output_judge=build_output_judge(settings, store, clock, self.events, output_policy, self._output_kernel),
            coordination=self.coordination,
            wake_ups=self._wake_ups,
        )
        self.execution = self._build_execution(functions, imports, dispatches=dispatches)
        scheduling = self._build_scheduling(holder, alone=alone)
        self._elector, self.ticker = scheduling.elector, scheduling.ticker
        self.schedules, self.launcher, self.compute = scheduling.schedules, scheduling.launcher, scheduling.compute
        self._announcements = announcements or AnnouncementSignal()
        self._announcer = build_announcer(
            self._context, holder=holder, signal=self._announcements, metrics=observers.metrics
        )
        self._maintenance = Maintenance(
            self._context,
            busy=lambda: self.local_execution is None or self.local_execution.worker.in_hand > 0,
        )
        self.observability = self._build_observability(observers, runs_commands=functions is not None)
        #: The address of its HTTP API, if it has one.
        self.address = address
        #: Whether it runs its services and does not stand by.
        self.scheduling = False

    def _build_scheduling(self, holder: str, *, alone: bool) -> SchedulingServices:
        return SchedulingServices(
            self._context,
            holder=holder,
            alone=alone,
            clock_sync=self.clock_sync,
            write_and_admit=None if self.execution is None else self.execution.write_and_admit,
            busy=lambda: self.busy,
        )

    def _build_observability(self, observers: EventObservers, *, runs_commands: bool) -> Observability:
        return Observability(
            self.store,
            self.settings,
            self.clock,
            observers,
            backoffs=lambda: {} if self.execution is None else self.execution.backoffs,
            statuses=lambda: {component_names.ANNOUNCER: self._announcer.status},
            server=SchedulerParts(self.ticker, self._elector, self._outbox_reader(self._opened)),
            runs_commands=runs_commands,
        )

    def _outbox_reader(self, opened: ConnectedStore) -> OutboxReader:
        count = None if opened.metrics is None else opened.metrics.count_changes
        lease = self.coordination.singleton(component_names.METRICS)
        return OutboxReader(opened.outbox, lease, count=count, active=lambda: self.scheduling)

    def _build_execution(
        self, functions: Functions | None, imports: Sequence[str], *, dispatches: bool
    ) -> ExecutionServices | None:
        if functions is not None:
            return LocalExecution(
                self._context,
                functions=functions,
                imports=imports,
                on_started=self._pinger.started,
                alone=self._lock is not None,
            )
        if not dispatches:
            return None
        return RemoteDispatch(self._context, ticker_behind=lambda: self.ticker.behind)

    @classmethod
    async def open(  # noqa: PLR0913 - the choices that a process has
        cls,
        settings: Settings,
        *,
        events: Events | None = None,
        functions: Functions | None = None,
        imports: Sequence[str] = (),
        dispatches: bool = False,
        gate: Gate | None = None,
        changes: ChangeStream | None = None,
        address: str | None = None,
    ) -> Self:
        """A node on the store that the settings name.

        With `functions` it executes tasks; otherwise, with `dispatches`, it dispatches them to other processes.
        Without `gate` it has the one that the settings ask for.
        `changes` is the stream of changes that clients of its API follow, at `address`.
        """
        events = events or LoggedEvents()
        path = sqlite_path(settings.database.url)
        announcements = AnnouncementSignal()
        observers: list[CommitObserver] = [announcements]
        if changes is not None:
            observers.append(ChangeObserver(changes, SystemClock()))
        opened = await ConnectedStore.open(settings, events, create=True, observers=observers)
        node = cls(
            opened,
            settings,
            lock=None if path is None else FileLock(path),
            events=events,
            functions=functions,
            imports=imports,
            dispatches=dispatches,
            gate=gate,
            address=address,
            announcements=announcements,
        )
        if path is None:
            await node.clock_sync.step()
        return node

    @property
    def change_log(self) -> ChangeLog | None:
        """The changes that other processes commit; None if no other process has the store."""
        return self._opened.changes

    @property
    def origin(self) -> str:
        """The name of this process in the log of changes."""
        return self._opened.origin

    @property
    def local_execution(self) -> LocalExecution | None:
        """The services that execute tasks in this process, if it does."""
        return self.execution if isinstance(self.execution, LocalExecution) else None

    async def run(self, stop: asyncio.Event) -> None:
        """Run all services until `stop` is set; stand by while another process has the database file."""
        if not await self._acquire_file_lock(stop):
            return
        self.events.emit("scheduling", database=redact_password(self.settings.database.url))
        self.scheduling = True
        loops = [
            run_loop(component_names.TICKER, self.ticker.step, stop=stop, wake=self._wake_ups.tick, events=self.events),
            run_loop(component_names.PINGER, self._pinger.step, stop=stop, wake=self._pinger.wake, events=self.events),
            run_loop(
                component_names.ANNOUNCER,
                self._announcer.step,
                stop=stop,
                wake=self._announcements.wake,
                events=self.events,
            ),
            *self._maintenance.loops(stop),
        ]
        if self._lock is None:
            loops.append(
                run_loop(component_names.CLOCK_SYNCHRONIZER, self.clock_sync.step, stop=stop, events=self.events)
            )
        loops += await self._execution_loops(stop)
        self.observability.health.started()
        if self._opened.hints is not None:
            await self._opened.hints.listen(self.heard)
        try:
            await asyncio.gather(*loops)
        finally:
            self.scheduling = False
            if self.execution is not None:
                self.execution.end()
            await self._shut_down()

    async def _execution_loops(self, stop: asyncio.Event) -> list[Coroutine[None, None, None]]:
        if self.execution is None:
            return []
        await self.execution.begin()
        loops = [*self.execution.loops(stop), self._watch(stop)]
        if isinstance(self.execution, RemoteDispatch) and self.settings.nats.url:
            from gnomon.app.fleet import NatsDispatch

            nats = NatsDispatch(self._context, dispatch=self.execution, on_started=self._pinger.started)
            loops.append(nats.run(stop))
        return loops

    def _is_deciding(self) -> bool:
        return self.ticker.health is TickerHealth.OK

    @property
    def busy(self) -> bool:
        """Whether it decides or executes something, so that requests should wait."""
        return self.ticker.seconds_since_decision < _BURST_SECONDS or (
            self.local_execution is not None and self.local_execution.worker.in_hand > 0
        )

    def heard(self, topic: HintTopic) -> None:
        """Look soon at what another process has hinted at."""
        if topic is HintTopic.SHARDS:
            self._elector.check_soon()
            self._wake_ups.tick.set()
        elif topic is HintTopic.CHANGES:
            self.check_soon()
        elif topic is HintTopic.ANNOUNCEMENTS:
            self._announcements.wake.set()
        elif topic is HintTopic.WORK:
            self._wake_ups.work.set()
        elif topic is HintTopic.READY:
            self._wake_ups.dispatch.set()
        elif topic is HintTopic.WORKERS and self.execution is not None:
            self.execution.workers_changed()

    def check_soon(self) -> None:
        """Look at everything soon: another process, or a request, may have written something."""
        self._wake_ups.tick.set()
        self._announcements.wake.set()
        if self.execution is not None:
            self.execution.check_soon()

    async def _watch(self, stop: asyncio.Event) -> None:
        """Notice the writes of other processes: at once on a file, by polling on a server."""
        path = sqlite_path(self.settings.database.url)
        if path is not None:
            await CommitWatcher(path).watch(self.check_soon, stop)
        while not stop.is_set():
            self.check_soon()
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), _POLL_SECONDS)

    async def _shut_down(self) -> None:
        """Give up shards and leases, then drain; if the store is unavailable, leases end by themselves."""
        try:
            # Shards and leases first, because attempts that run may take their time.
            for part in (self._elector.stop, self.coordination.release_singletons, self._drain):
                with self._report_unavailable():
                    await part()
        finally:
            if self._lock is not None:
                self._lock.release()

    async def _drain(self) -> None:
        if self.local_execution is not None:
            await self.local_execution.worker.drain()
        await self._pinger.drain()
        await self._announcer.drain()

    @contextmanager
    def _report_unavailable(self) -> Iterator[None]:
        try:
            yield
        except Unavailable as error:
            self.events.emit("store_unavailable", error=str(error))

    async def _acquire_file_lock(self, stop: asyncio.Event) -> bool:
        announced = False
        while not stop.is_set():
            if self._lock is None or self._lock.try_acquire():
                return True
            if not announced:
                self.events.emit("standing_by", database=redact_password(self.settings.database.url))
                announced = True
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), _STANDBY_SECONDS)
        return False

    async def close(self) -> None:
        """Close every connection."""
        for kernel in (self._kernel, self._output_kernel):
            if kernel is not None:
                await kernel.close()
        await self.coordination.close()
        if self.local_execution is not None:
            self.local_execution.close()
        await self._opened.close()
