"""The way to workers over NATS, as a server has it: courier and collector on one connection."""

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from gnomon.adapters.host import RandomIds
from gnomon.core.subjects import DEFAULT_POOL
from gnomon.errors import Unavailable
from gnomon.services.execution.workflow_cache import WorkflowCache
from gnomon.services.loop import Backoff, run_loop
from gnomon.services.remote.result_consumer import ResultConsumer
from gnomon.services.remote.task_publisher import TaskPublisher

if TYPE_CHECKING:
    from nats.aio.client import Client

    from gnomon.adapters.nats.queue import NatsServerBus
    from gnomon.app.execution import RemoteDispatch
    from gnomon.app.node import Node


async def run_nats_dispatch(node: "Node", bureau: "RemoteDispatch", stop: asyncio.Event) -> None:
    """Tasks go to workers over NATS, and what came of them is written down, until told to stop.

    While NATS cannot be reached, all else goes on, and workers that have the database take what there is.
    """
    client = await _connect_with_retry(node, stop)
    if client is None:
        return
    from gnomon.adapters.nats.queue import NatsServerBus

    settings, events = node.settings, node.events
    side = NatsServerBus(client, settings.nats, events, ack_wait_ms=settings.worker.lease_ms)
    courier, collector = _wire_publisher_and_consumer(node, bureau, side)
    try:
        with suppress(Unavailable):  # the courier goes on trying
            await side.prepare([DEFAULT_POOL])
        await collector.answer()
        await asyncio.gather(
            run_loop("courier", courier.step, stop=stop, wake=courier.wake, events=events),
            run_loop("collector", collector.step, stop=stop, events=events),
            run_loop("collector", collector.write_released, stop=stop, wake=collector.wake, events=events),
        )
    finally:
        collector.close()
        with suppress(Exception):  # whatever is wrong with the connection, it is let go of
            await side.close()
            await client.close()


async def _connect_with_retry(node: "Node", stop: asyncio.Event) -> "Client | None":
    from gnomon.adapters.nats.connection import connect

    backoff = Backoff(node.events, "fleet")
    while not stop.is_set():
        connecting = asyncio.ensure_future(connect(node.settings.nats, node.events, name="gnomon server"))
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


async def _wait_first(done: "asyncio.Future[Client]", stop: asyncio.Event) -> None:
    """Whichever comes first."""
    stopping = asyncio.ensure_future(stop.wait())
    either: list[asyncio.Future[Any]] = [done, stopping]
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()


def _on_worker_change(courier: TaskPublisher, bureau: "RemoteDispatch") -> None:
    """A worker has come, or is another than it was: there may be room, and what nobody could take."""
    courier.check_soon()
    bureau.workers_changed()


def _wire_publisher_and_consumer(
    node: "Node", bureau: "RemoteDispatch", side: "NatsServerBus"
) -> tuple[TaskPublisher, ResultConsumer]:
    """Both, and everybody who has to know of them."""
    clock, shelf = node.clock, WorkflowCache(node.store)
    name = RandomIds().new("courier", clock.now())
    courier = TaskPublisher(node.store, shelf, side, clock, node.events, settings=node.settings, courier=name)
    guard = node.coordination.deduplicator
    collector = ResultConsumer(node.store, shelf, side, node.gate, guard, clock, node.events, settings=node.settings)
    collector.sent = courier.sent
    collector.on_ended = courier.record_returned
    collector.on_workers_changed = partial(_on_worker_change, courier, bureau)
    collector.on_bus_unavailable = courier.rebuild_streams
    collector.on_ready = bureau.dispatch.set
    bureau.reconciler.await_reports = side.wait_caught_up
    collector.on_started = node.maintenance.pinger.started
    dispatcher = bureau.dispatcher
    dispatcher.admission_cache = courier.admission_cache
    dispatcher.on_scheduled = courier.on_admitted
    dispatcher.router.on_directed = courier.expect_directed_tasks
    dispatcher.take_with_commit = courier.take_with_admission
    courier.admission_cache.on_low = bureau.dispatch.set
    # Tasks that the gate allows at once are passed on in the commit that creates them.
    collector.write_and_admit = node.ticker.write_and_admit = node.launcher.write_and_admit = dispatcher.write_and_admit
    node.observability.health.attach_backoffs({"courier": courier.backoff, "collector": collector.backoff})
    return courier, collector
