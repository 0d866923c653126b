"""Those who bring tasks to workers elsewhere: gatherer, backfiller, dispatcher and reconciler, but no worker."""

import asyncio
from collections.abc import Coroutine, Mapping

from gnomon.adapters.gate import OpenGate
from gnomon.adapters.sql.store import SqlStore
from gnomon.ports.runtime import Clock, Events
from gnomon.services.execution.admission_cache import NobodyBeside
from gnomon.services.execution.dispatcher import Dispatcher
from gnomon.services.execution.reconciler import Reconciler
from gnomon.services.execution.workflow_cache import Shelf
from gnomon.services.loop import Backoff, keep_stepping
from gnomon.services.maintenance.backfiller import Backfiller
from gnomon.services.operations.events import Gatherer
from gnomon.settings import Settings


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
