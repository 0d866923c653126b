"""A worker that knows nothing but NATS: what `gnomon worker` runs where there is no address of a database."""

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from msgspec import Struct

from gnomon.adapters.host import LoadMeter, RandomIds
from gnomon.adapters.nats.connection import connect
from gnomon.adapters.nats.queue import NatsWorkerSide
from gnomon.adapters.structured_log import LoggedEvents
from gnomon.adapters.synced_clock import GuidedClock
from gnomon.app.server import import_modules
from gnomon.config.settings import Settings
from gnomon.core.subjects import FIELD
from gnomon.errors import UsageError
from gnomon.ports.runtime import Events
from gnomon.runners.registry import FUNCTIONS, Functions
from gnomon.runners.runner import FunctionRunner
from gnomon.runners.secrets import SecretSource
from gnomon.services.loop import keep_stepping
from gnomon.services.remote.remote_worker import FieldWorker


class Fielding(Struct, frozen=True, kw_only=True):
    """What to work with."""

    settings: Settings
    #: Modules that register functions when they are imported.
    imports: Sequence[str] = ()
    functions: Functions = FUNCTIONS
    events: Events | None = None


async def work_over_nats(
    plan: Fielding, stop: asyncio.Event, *, ready: Callable[[FieldWorker], None] = lambda _: None
) -> None:
    """Execute what comes over NATS until told to stop; then what runs has ended one way or another, and is reported.

    UsageError if no address of NATS is given, Unavailable if it cannot be reached at the start.
    """
    settings, events = plan.settings, plan.events or LoggedEvents()
    if not settings.nats.url:
        raise UsageError("a worker without a database needs nats.url: where NATS is")
    import_modules(plan.imports)
    clock, pool, meter = GuidedClock(), settings.worker.pool, LoadMeter()
    name = RandomIds().new(FIELD, clock.now())
    client = await connect(settings.nats, events, name=name)
    try:
        side = NatsWorkerSide(client, settings.nats, worker=name, pool=pool)
        wake = asyncio.Event()
        runner = _runner(plan, partial(_wake_from_afar, asyncio.get_running_loop(), wake))
        worker = FieldWorker(side, runner, clock, events, settings=settings, worker=name)
        worker.wake, worker.presence.measure = wake, meter.load
        worker.heart.on_time = partial(_set_clock, clock, events, name)
        ready(worker)
        loops = [keep_stepping(step, stop=stop, wake=woken, events=events) for step, woken in worker.services()]
        await asyncio.gather(*loops)
        await worker.drain()
    finally:
        meter.close()
        with suppress(Exception):  # whatever is wrong with the connection, it is let go of
            await client.flush(timeout=1)
            await client.close()


def _set_clock(clock: GuidedClock, events: Events, worker: str, theirs_at: int, asked_at: int) -> None:
    wrong = clock.hear(theirs_at, asked_at=asked_at)
    if wrong:
        events.emit("clock_corrected", worker=worker, wrong_ms=wrong)


def _runner(plan: Fielding, on_finished: Callable[[], object]) -> FunctionRunner:
    settings = plan.settings
    return FunctionRunner(
        plan.functions,
        settings.worker,
        default_timeout_ms=settings.execution.default_timeout_ms,
        secrets=SecretSource(settings.secrets, os.environ),
        shell=settings.shell,
        on_finished=on_finished,
        imports=tuple(plan.imports),
    )


def _wake_from_afar(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    with suppress(RuntimeError):  # the loop is closed, and nobody waits any more
        loop.call_soon_threadsafe(event.set)
