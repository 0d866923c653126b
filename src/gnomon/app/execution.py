"""Those who bring tasks to workers elsewhere: gatherer, backfiller, dispatcher and reconciler, but no worker."""

import asyncio
import os
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial

from gnomon.adapters.gate import OpenGate
from gnomon.adapters.host import LoadMeter, RandomIds
from gnomon.adapters.sql.store import SqlStore
from gnomon.config.settings import Settings
from gnomon.ports.runtime import Clock, Events
from gnomon.runners.registry import Functions
from gnomon.runners.runner import AnnouncingRunner, FunctionRunner
from gnomon.runners.secrets import SecretSource
from gnomon.services.execution.admission_cache import NobodyBeside
from gnomon.services.execution.dispatcher import Dispatcher
from gnomon.services.execution.reconciler import Reconciler
from gnomon.services.execution.worker import Worker
from gnomon.services.execution.workflow_cache import Shelf
from gnomon.services.loop import Backoff, keep_stepping
from gnomon.services.maintenance.backfiller import Backfiller
from gnomon.services.operations.events import Gatherer


class Bureau:
    """What a scheduler does about tasks that it does not execute."""

    def __init__(self, store: SqlStore, settings: Settings, clock: Clock, events: Events) -> None:
        self._events = events
        #: Set to say that tasks may be ready.
        self.dispatch = asyncio.Event()
        #: Set to say that there may be events that wait for others, and a backfill or room for more of one.
        self.gather, self.backfill = asyncio.Event(), asyncio.Event()
        shelf = Shelf(store)
        self.dispatcher = Dispatcher(store, shelf, OpenGate(), clock, events, settings)
        self.dispatcher.on_left = self.dispatch.set
        self.dispatcher.backlog = NobodyBeside()
        self.reconciler = Reconciler(store, shelf, clock, events, settings)
        self.reconciler.on_ready = self.dispatch.set
        self.gatherer = Gatherer(store, clock, events)
        self.backfiller = Backfiller(store, store, clock, events)
        self.gatherer.on_ready = self.backfiller.on_ready = self.dispatch.set

    @property
    def backoffs(self) -> Mapping[str, Backoff]:
        """How each of them stands with the store."""
        return {type(one).__name__.lower(): one.backoff for one in (self.dispatcher, self.reconciler, self.gatherer)}

    def services(self, stop: asyncio.Event) -> list[Coroutine[None, None, None]]:
        """The loops, until told to stop."""
        return [
            keep_stepping(self.dispatcher.step, stop=stop, wake=self.dispatch, events=self._events),
            keep_stepping(self.reconciler.step, stop=stop, events=self._events),
            keep_stepping(self.gatherer.step, stop=stop, wake=self.gather, events=self._events),
            keep_stepping(self.backfiller.step, stop=stop, wake=self.backfill, events=self._events),
        ]

    def newcomer(self) -> None:
        """Somebody may have come who can take what nobody could."""
        self.dispatcher.try_again()
        self.dispatch.set()

    def look(self) -> None:
        """Someone may have written something: look at all of it."""
        self.dispatch.set()
        self.gather.set()
        self.backfill.set()


class Crew:
    """Those who bring tasks to their end: gatherer, backfiller, dispatcher, worker, reconciler, and what wakes them."""

    def __init__(
        self,
        store: SqlStore,
        settings: Settings,
        clock: Clock,
        events: Events,
        functions: Functions,
        imports: Sequence[str],
    ) -> None:
        self._events = events
        self._alone = False
        #: Set to say that tasks may be ready, and that there may be something to take or to report.
        self.dispatch, self.work = asyncio.Event(), asyncio.Event()
        #: Set to say that there may be events that wait for others, and a backfill or room for more of one.
        self.gather, self.backfill = asyncio.Event(), asyncio.Event()
        shelf, gate = Shelf(store), OpenGate()
        runner = self.runner = runner_of(functions, settings, imports, wake=self.work)
        self.dispatcher = Dispatcher(store, shelf, gate, clock, events, settings)
        self.dispatcher.on_scheduled = self.work.set
        name = RandomIds().new("worker", clock.now())
        self.worker = Worker(store, shelf, runner, gate, clock, events, settings=settings, worker=name)
        self.meter = LoadMeter()
        self.worker.presence.measure = self.meter.load
        self.dispatcher.on_left = self.dispatch.set
        self._introduce()
        self.worker.on_taken = self.work.set
        self.worker.on_ready = self.dispatch.set
        self.reconciler = Reconciler(store, shelf, clock, events, settings)
        self.reconciler.on_ready = self.dispatch.set
        self.reconciler.own = name
        self.gatherer = Gatherer(store, clock, events)
        self.backfiller = Backfiller(store, store, clock, events)
        self.gatherer.on_ready = self.backfiller.on_ready = self.dispatch.set

    @property
    def backoffs(self) -> Mapping[str, Backoff]:
        """How each of them stands with the store."""
        crew = (self.dispatcher, self.worker, self.reconciler, self.gatherer)
        return {type(one).__name__.lower(): one.backoff for one in crew}

    def _introduce(self) -> None:
        """Dispatcher and worker know of each other: what one has let through the other need not look for."""
        dispatcher, worker = self.dispatcher, self.worker
        dispatcher.meanwhile = worker.take_along
        dispatcher.backlog = worker.backlog
        worker.backlog.on_low = self.dispatch.set
        # The gate is open, so that the next step can be passed on without asking anybody.
        worker.hand_over = dispatcher.hand_over

    async def _work(self) -> float:
        """A step of the worker; what has ended may have made room for more of a backfill."""
        wait = await self.worker.step()
        if self.backfiller.busy:
            self.backfill.set()
        return wait

    async def begin(self, *, alone: bool) -> None:
        """The worker is known, and what others left behind, if nobody else can be alive, is taken up again."""
        self._alone = self.worker.presence.alone = self.worker.backlog.only_source = alone
        await self.worker.step()
        self.newcomer()
        if alone:
            await self.reconciler.recover(alive={self.worker.worker})

    def services(self, stop: asyncio.Event) -> list[Coroutine[None, None, None]]:
        """The loops, until told to stop."""
        # Nobody else could be given what is ours if we are alone.
        watching = [] if self._alone else [keep_stepping(self.worker.watch_lease, stop=stop, events=self._events)]
        return [
            *watching,
            keep_stepping(self.dispatcher.step, stop=stop, wake=self.dispatch, events=self._events),
            keep_stepping(self._work, stop=stop, wake=self.work, events=self._events),
            keep_stepping(self.reconciler.step, stop=stop, events=self._events),
            keep_stepping(self.gatherer.step, stop=stop, wake=self.gather, events=self._events),
            keep_stepping(self.backfiller.step, stop=stop, wake=self.backfill, events=self._events),
        ]

    def newcomer(self) -> None:
        """Somebody may have come who can take what nobody could."""
        self.dispatcher.try_again()
        self.dispatch.set()

    def look(self) -> None:
        """Someone may have written something: look at all of it."""
        self.worker.look()
        self.gather.set()
        self.backfill.set()
        self.dispatch.set()
        if self.worker.in_hand or not self._alone:
            # Alone, there is nothing to take but what our own dispatcher admits, and that says so.
            self.work.set()


def runner_of(
    functions: Functions, settings: Settings, imports: Sequence[str], *, wake: asyncio.Event
) -> AnnouncingRunner:
    """What runs functions and commands in this process; the event is set when one has ended."""
    return AnnouncingRunner(
        FunctionRunner(
            functions,
            settings.worker,
            default_timeout_ms=settings.execution.default_timeout_ms,
            secrets=SecretSource(settings.secrets, os.environ),
            shell=settings.shell,
            on_finished=partial(_wake_from_afar, asyncio.get_running_loop(), wake),
            imports=imports,
        )
    )


def _wake_from_afar(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    with suppress(RuntimeError):  # the loop is closed, and nobody waits any more
        loop.call_soon_threadsafe(event.set)
