"""Those who bring tasks to workers elsewhere: gatherer, dispatcher and reconciler, without a worker of their own."""

import asyncio
from collections.abc import Coroutine

from gnomon.adapters.gates import OpenGate
from gnomon.adapters.sql.store import SqlStore
from gnomon.ports.clock import Clock
from gnomon.ports.events import Events
from gnomon.services.dispatcher import Dispatcher
from gnomon.services.listening import Gatherer
from gnomon.services.looping import keep_stepping
from gnomon.services.reconciler import Reconciler
from gnomon.services.shelf import Shelf
from gnomon.settings import Settings


class Bureau:
    """What a scheduler does about tasks that it does not execute."""

    def __init__(self, store: SqlStore, settings: Settings, clock: Clock, events: Events) -> None:
        self._events = events
        #: Set to say that tasks may be ready, and that there may be events that wait for others.
        self.dispatch, self.gather = asyncio.Event(), asyncio.Event()
        shelf = Shelf(store)
        self.dispatcher = Dispatcher(store, shelf, OpenGate(), clock, events, settings)
        self.dispatcher.on_left = self.dispatch.set
        self.reconciler = Reconciler(store, shelf, clock, events, settings)
        self.reconciler.on_ready = self.dispatch.set
        self.gatherer = Gatherer(store, clock, events)
        self.gatherer.on_ready = self.dispatch.set

    def services(self, stop: asyncio.Event) -> list[Coroutine[None, None, None]]:
        """The loops, until told to stop."""
        return [
            keep_stepping(self.dispatcher.step, stop=stop, wake=self.dispatch, events=self._events),
            keep_stepping(self.reconciler.step, stop=stop, events=self._events),
            keep_stepping(self.gatherer.step, stop=stop, wake=self.gather, events=self._events),
        ]

    def look(self) -> None:
        """Someone may have written something: look at all of it."""
        self.dispatch.set()
        self.gather.set()
