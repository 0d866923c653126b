"""Remote workers over NATS, as a server sees them: a task publisher and a result consumer on one connection."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from gnomon.adapters.host import RandomIds
from gnomon.adapters.payload_cipher import build_cipher
from gnomon.app.execution import NodeContext, RemoteDispatch
from gnomon.app.gate import held_output_cipher
from gnomon.core import component_names
from gnomon.core.runs.outcomes import Assignment
from gnomon.core.subjects import DEFAULT_POOL
from gnomon.errors import Unavailable
from gnomon.services.execution.workflow_cache import WorkflowCache
from gnomon.services.loop import Backoff, run_loop
from gnomon.services.observed_events import ThrottledEvents
from gnomon.services.remote.result_consumer import ResultConsumer
from gnomon.services.remote.task_publisher import TaskPublisher

if TYPE_CHECKING:
    from nats.aio.client import Client

    from gnomon.adapters.nats.queue import NatsServerBus


class NatsDispatch:
    """Sends the tasks of a node to remote workers, and writes down what they report."""

    def __init__(
        self,
        context: NodeContext,
        *,
        dispatch: RemoteDispatch,
        on_started: Callable[[Sequence[Assignment]], None],
    ) -> None:
        """`on_started` is called with the assignments that workers have started."""
        self._context = context
        self._settings, self._events = context.settings, context.events
        self._dispatch = dispatch
        self._on_started = on_started

    async def run(self, stop: asyncio.Event) -> None:
        """Connect, then send tasks and consume reports until `stop` is set.

        While NATS cannot be reached, everything else goes on, and workers that share the store take tasks there.
        """
        client = await self._connect_with_retry(stop)
        if client is None:
            return
        from gnomon.adapters.nats.queue import NatsServerBus

        lease_ms = self._settings.worker.lease_ms
        # Workers cause these events: without a limit, one could fill the log.
        throttled = ThrottledEvents(self._events, self._context.clock)
        bus = NatsServerBus(client, self._settings.nats, throttled, ack_wait_ms=lease_ms)
        publisher, consumer = self._build(bus)
        self._dispatch.connect(bus, publisher, consumer)
        try:
            with suppress(Unavailable):  # the publisher tries again
                await bus.prepare([DEFAULT_POOL])
            await consumer.answer()
            await asyncio.gather(
                run_loop(
                    component_names.TASK_PUBLISHER, publisher.step, stop=stop, wake=publisher.wake, events=self._events
                ),
                run_loop(component_names.RESULT_CONSUMER, consumer.step, stop=stop, events=self._events),
                run_loop(
                    component_names.RESULT_CONSUMER,
                    consumer.write_released,
                    stop=stop,
                    wake=consumer.wake,
                    events=self._events,
                ),
            )
        finally:
            consumer.close()
            with suppress(Exception):  # the connection is given up, whatever is wrong with it
                await bus.close()
                await client.close()

    def _build(self, bus: "NatsServerBus") -> tuple[TaskPublisher, ResultConsumer]:
        context, dispatch = self._context, self._dispatch
        store, settings, clock, events = context.store, context.settings, context.clock, context.events
        workflow_cache, cipher = WorkflowCache(store.jobs), build_cipher(settings.payload.keys)
        publisher = TaskPublisher(
            store,
            workflow_cache,
            bus,
            clock,
            events,
            settings=settings,
            name=RandomIds().new(component_names.TASK_PUBLISHER, clock.now()),
            wake_dispatcher=dispatch.local_dispatch.wake,
            cipher=cipher,
            held_cipher=held_output_cipher(settings),
        )
        consumer = ResultConsumer(
            store,
            workflow_cache,
            bus,
            context.gate,
            context.coordination.deduplicator,
            clock,
            events,
            settings=settings,
            publisher=publisher,
            dispatch=dispatch.local_dispatch,
            on_started=self._on_started,
            on_workers_changed=dispatch.workers_changed,
            output_policy=context.output_policy,
            cipher=cipher,
        )
        return publisher, consumer

    async def _connect_with_retry(self, stop: asyncio.Event) -> "Client | None":
        from gnomon.adapters.nats.connection import connect

        backoff = Backoff(self._events, component_names.NATS_DISPATCH)
        while not stop.is_set():
            connecting = asyncio.ensure_future(connect(self._settings.nats, self._events, name="gnomon server"))
            await _wait_first(connecting, stop)
            if not connecting.done():
                connecting.cancel()
                break
            try:
                return connecting.result()
            except Unavailable as error:
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), backoff.failed(error))
        return None


async def _wait_first(connecting: "asyncio.Future[Client]", stop: asyncio.Event) -> None:
    """Return as soon as the connection is made or has failed, or `stop` is set."""
    stopping = asyncio.ensure_future(stop.wait())
    either: list[asyncio.Future[Any]] = [connecting, stopping]
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
