"""The way to workers over NATS, as a server has it: courier and collector on one connection."""

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from gnomon.adapters.gate import OpenGate
from gnomon.adapters.host import RandomIds
from gnomon.core.subjects import DEFAULT_POOL
from gnomon.errors import Unavailable
from gnomon.services.execution.workflow_cache import Shelf
from gnomon.services.loop import Backoff, keep_stepping
from gnomon.services.remote.result_consumer import Collector
from gnomon.services.remote.task_publisher import Courier

if TYPE_CHECKING:
    from nats.aio.client import Client

    from gnomon.adapters.nats.queue import NatsServerSide
    from gnomon.app.execution import Bureau
    from gnomon.app.node import Node


async def serve_fleet(node: "Node", bureau: "Bureau", stop: asyncio.Event) -> None:
    """Tasks go to workers over NATS, and what came of them is written down, until told to stop.

    While NATS cannot be reached, all else goes on, and workers that have the database take what there is.
    """
    client = await _connected(node, stop)
    if client is None:
        return
    from gnomon.adapters.nats.queue import NatsServerSide

    settings, events = node.settings, node.events
    side = NatsServerSide(client, settings.nats, events, ack_wait_ms=settings.worker.lease_ms)
    courier, collector = _introduced(node, bureau, side)
    try:
        with suppress(Unavailable):  # the courier goes on trying
            await side.prepare([DEFAULT_POOL])
        await collector.answer()
        await asyncio.gather(
            keep_stepping(courier.step, stop=stop, wake=courier.wake, events=events),
            keep_stepping(collector.step, stop=stop, events=events),
        )
    finally:
        with suppress(Exception):  # whatever is wrong with the connection, it is let go of
            await side.close()
            await client.close()


async def _connected(node: "Node", stop: asyncio.Event) -> "Client | None":
    from gnomon.adapters.nats.connection import connect

    backoff = Backoff(node.events, "fleet")
    while not stop.is_set():
        connecting = asyncio.ensure_future(connect(node.settings.nats, node.events, name="gnomon server"))
        await _first_of(connecting, stop)
        if not connecting.done():
            connecting.cancel()
            break
        try:
            return connecting.result()
        except Unavailable as error:
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), backoff.failed(error))
    return None


async def _first_of(done: "asyncio.Future[Client]", stop: asyncio.Event) -> None:
    """Whichever comes first."""
    stopping = asyncio.ensure_future(stop.wait())
    either: list[asyncio.Future[Any]] = [done, stopping]
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()


def _newcomer(courier: Courier, bureau: "Bureau") -> None:
    """A worker has come, or is another than it was: there may be room, and what nobody could take."""
    courier.look()
    bureau.newcomer()


def _introduced(node: "Node", bureau: "Bureau", side: "NatsServerSide") -> tuple[Courier, Collector]:
    """Both, and everybody who has to know of them."""
    clock, shelf = node.clock, Shelf(node.store)
    name = RandomIds().new("courier", clock.now())
    courier = Courier(node.store, shelf, side, clock, node.events, settings=node.settings, courier=name)
    guard = node.commons.guard
    collector = Collector(node.store, shelf, side, OpenGate(), guard, clock, node.events, settings=node.settings)
    collector.sent = courier.sent
    collector.on_ended = courier.returned
    collector.on_worker = partial(_newcomer, courier, bureau)
    collector.on_trouble = courier.doubt
    collector.on_ready = bureau.dispatch.set
    bureau.reconciler.hear_out = side.caught_up
    collector.on_started = node.housekeeping.pinger.started
    dispatcher = bureau.dispatcher
    dispatcher.backlog = courier.backlog
    dispatcher.on_scheduled = courier.scheduled
    dispatcher.router.on_choosy = courier.choosy
    dispatcher.meanwhile = courier.take_along
    courier.backlog.on_low = bureau.dispatch.set
    # The gate is open, so that the next step can be passed on without asking anybody.
    collector.hand_over = node.ticker.hand_over = node.launcher.hand_over = dispatcher.hand_over
    node.instruments.vitals.attach_more({"courier": courier.backoff, "collector": collector.backoff})
    return courier, collector
