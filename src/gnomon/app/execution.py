"""Those who bring tasks to workers elsewhere: gatherer, backfiller, dispatcher and reconciler, but no worker."""

import asyncio
import os
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial

from gnomon.adapters.host import LoadSampler, RandomIds
from gnomon.adapters.sql.store import SqlStore
from gnomon.config.settings import Settings
from gnomon.ports.execution import Gate
from gnomon.ports.runtime import Clock, Events
from gnomon.runners.registry import Functions
from gnomon.runners.runner import FunctionRunner, NotifyingRunner
from gnomon.runners.secrets import SecretSource
from gnomon.services.execution.admission_cache import NoAdmissionCache
from gnomon.services.execution.dispatcher import Dispatcher
from gnomon.services.execution.reconciler import Reconciler
from gnomon.services.execution.worker import Worker
from gnomon.services.execution.workflow_cache import WorkflowCache
from gnomon.services.loop import Backoff, run_loop
from gnomon.services.maintenance.backfiller import Backfiller
from gnomon.services.operations.events import EventBatcher


class RemoteDispatch:
    """What a scheduler does about tasks that it does not execute."""

    def __init__(self, store: SqlStore, settings: Settings, clock: Clock, events: Events, gate: Gate) -> None:
        self._events = events
        #: Set to say that tasks may be ready.
        self.dispatch = asyncio.Event()
        #: Set to say that there may be events that wait for others, and a backfill or room for more of one.
        self.gather, self.backfill = asyncio.Event(), asyncio.Event()
        shelf = WorkflowCache(store)
        self.dispatcher = Dispatcher(store, shelf, gate, clock, events, settings)
        self.dispatcher.on_unadmitted = self.dispatch.set
        self.dispatcher.admission_cache = NoAdmissionCache()
        self.reconciler = Reconciler(store, shelf, clock, events, settings)
        self.reconciler.on_ready = self.dispatch.set
        self.gatherer = EventBatcher(store, clock, events)
        self.backfiller = Backfiller(store, store, clock, events)
        self.gatherer.on_ready = self.backfiller.on_ready = self.dispatch.set

    @property
    def backoffs(self) -> Mapping[str, Backoff]:
        """How each of them stands with the store."""
        return {
            "dispatcher": self.dispatcher.backoff,
            "reconciler": self.reconciler.backoff,
            "gatherer": self.gatherer.backoff,
        }

    def services(self, stop: asyncio.Event) -> list[Coroutine[None, None, None]]:
        """The loops, until told to stop."""
        return [
            run_loop("dispatcher", self.dispatcher.step, stop=stop, wake=self.dispatch, events=self._events),
            run_loop("reconciler", self.reconciler.step, stop=stop, events=self._events),
            run_loop("gatherer", self.gatherer.step, stop=stop, wake=self.gather, events=self._events),
            run_loop("backfiller", self.backfiller.step, stop=stop, wake=self.backfill, events=self._events),
        ]

    def workers_changed(self) -> None:
        """Somebody may have come who can take what nobody could."""
        self.dispatcher.retry_unroutable()
        self.dispatch.set()

    def check_soon(self) -> None:
        """Someone may have written something: look at all of it."""
        self.dispatch.set()
        self.gather.set()
        self.backfill.set()


class LocalExecution:
    """Those who bring tasks to their end: gatherer, backfiller, dispatcher, worker, reconciler, and what wakes them."""

    def __init__(
        self,
        store: SqlStore,
        settings: Settings,
        clock: Clock,
        events: Events,
        functions: Functions,
        imports: Sequence[str],
        gate: Gate,
    ) -> None:
        self._events = events
        self._alone = False
        #: Set to say that tasks may be ready, and that there may be something to take or to report.
        self.dispatch, self.work = asyncio.Event(), asyncio.Event()
        #: Set to say that there may be events that wait for others, and a backfill or room for more of one.
        self.gather, self.backfill = asyncio.Event(), asyncio.Event()
        shelf = WorkflowCache(store)
        runner = self.runner = build_runner(functions, settings, imports, wake=self.work)
        self.dispatcher = Dispatcher(store, shelf, gate, clock, events, settings)
        self.dispatcher.on_scheduled = self.work.set
        name = RandomIds().new("worker", clock.now())
        self.worker = Worker(store, shelf, runner, gate, clock, events, settings=settings, worker=name)
        self.load_meter = LoadSampler()
        self.worker.registration.measure = self.load_meter.load
        self.dispatcher.on_unadmitted = self.dispatch.set
        self._wire_dispatcher_and_worker()
        self.worker.on_taken = self.work.set
        self.worker.on_ready = self.dispatch.set
        self.reconciler = Reconciler(store, shelf, clock, events, settings)
        self.reconciler.on_ready = self.dispatch.set
        self.reconciler.own = name
        self.gatherer = EventBatcher(store, clock, events)
        self.backfiller = Backfiller(store, store, clock, events)
        self.gatherer.on_ready = self.backfiller.on_ready = self.dispatch.set

    @property
    def backoffs(self) -> Mapping[str, Backoff]:
        """How each of them stands with the store."""
        return {
            "dispatcher": self.dispatcher.backoff,
            "worker": self.worker.backoff,
            "reconciler": self.reconciler.backoff,
            "gatherer": self.gatherer.backoff,
        }

    def _wire_dispatcher_and_worker(self) -> None:
        """Dispatcher and worker know of each other: what one has let through the other need not look for."""
        dispatcher, worker = self.dispatcher, self.worker
        dispatcher.take_with_commit = worker.take_with_admission
        dispatcher.admission_cache = worker.admission_cache
        worker.admission_cache.on_low = self.dispatch.set
        # Tasks that the gate allows at once are passed on in the commit that creates them.
        worker.write_and_admit = dispatcher.write_and_admit

    async def _work(self) -> float:
        """A step of the worker; what has ended may have made room for more of a backfill."""
        wait = await self.worker.step()
        if self.backfiller.busy:
            self.backfill.set()
        return wait

    async def begin(self, *, alone: bool) -> None:
        """The worker is known, and what others left behind, if nobody else can be alive, is taken up again."""
        self._alone = self.worker.registration.alone = self.worker.admission_cache.sole_dispatcher = alone
        await self.worker.step()
        self.workers_changed()
        if alone:
            await self.reconciler.recover(alive={self.worker.worker})

    def services(self, stop: asyncio.Event) -> list[Coroutine[None, None, None]]:
        """The loops, until told to stop."""
        # Nobody else could be given what is ours if we are alone.
        watching = [] if self._alone else [run_loop("worker", self.worker.watch_lease, stop=stop, events=self._events)]
        return [
            *watching,
            run_loop("dispatcher", self.dispatcher.step, stop=stop, wake=self.dispatch, events=self._events),
            run_loop("worker", self._work, stop=stop, wake=self.work, events=self._events),
            run_loop("reconciler", self.reconciler.step, stop=stop, events=self._events),
            run_loop("gatherer", self.gatherer.step, stop=stop, wake=self.gather, events=self._events),
            run_loop("backfiller", self.backfiller.step, stop=stop, wake=self.backfill, events=self._events),
        ]

    def workers_changed(self) -> None:
        """Somebody may have come who can take what nobody could."""
        self.dispatcher.retry_unroutable()
        self.dispatch.set()

    def check_soon(self) -> None:
        """Someone may have written something: look at all of it."""
        self.worker.check_soon()
        self.gather.set()
        self.backfill.set()
        self.dispatch.set()
        if self.worker.in_hand or not self._alone:
            # Alone, there is nothing to take but what our own dispatcher admits, and that says so.
            self.work.set()


def build_runner(
    functions: Functions, settings: Settings, imports: Sequence[str], *, wake: asyncio.Event
) -> NotifyingRunner:
    """What runs functions and commands in this process; the event is set when one has ended."""
    return NotifyingRunner(
        FunctionRunner(
            functions,
            settings.worker,
            default_timeout_ms=settings.execution.default_timeout_ms,
            secrets=SecretSource(settings.secrets, os.environ),
            shell=settings.shell,
            on_finished=partial(_set_threadsafe, asyncio.get_running_loop(), wake),
            imports=imports,
        )
    )


def _set_threadsafe(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    with suppress(RuntimeError):  # the loop is closed, and nobody waits any more
        loop.call_soon_threadsafe(event.set)
