"""A worker that knows nothing but NATS: what `gnomon worker` runs where there is no address of a database."""

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from msgspec import Struct

from gnomon.adapters.host import LoadSampler, RandomIds
from gnomon.adapters.nats.connection import connect
from gnomon.adapters.nats.queue import NatsWorkerBus
from gnomon.adapters.structured_log import LoggedEvents
from gnomon.adapters.synced_clock import StoreSyncedClock
from gnomon.app.server import import_modules
from gnomon.config.settings import Settings
from gnomon.core.subjects import REMOTE_WORKER_PREFIX
from gnomon.errors import UsageError
from gnomon.ports.runtime import Events
from gnomon.runners.registry import FUNCTIONS, Functions
from gnomon.runners.runner import FunctionRunner
from gnomon.runners.secrets import SecretSource
from gnomon.services.loop import run_loop
from gnomon.services.remote.remote_worker import RemoteWorker


class RemoteWorkerOptions(Struct, frozen=True, kw_only=True):
    """What to work with."""

    settings: Settings
    #: Modules that register functions when they are imported.
    imports: Sequence[str] = ()
    functions: Functions = FUNCTIONS
    events: Events | None = None


async def run_remote_worker(
    plan: RemoteWorkerOptions, stop: asyncio.Event, *, ready: Callable[[RemoteWorker], None] = lambda _: None
) -> None:
    """Execute what comes over NATS until told to stop; then what runs has ended one way or another, and is reported.

    UsageError if no address of NATS is given, Unavailable if it cannot be reached at the start.
    """
    settings, events = plan.settings, plan.events or LoggedEvents()
    if not settings.nats.url:
        raise UsageError("a worker without a database needs nats.url: where NATS is")
    import_modules(plan.imports)
    clock, pool, meter = StoreSyncedClock(), settings.worker.pool, LoadSampler()
    name = RandomIds().new(REMOTE_WORKER_PREFIX, clock.now())
    client = await connect(settings.nats, events, name=name)
    try:
        side = NatsWorkerBus(client, settings.nats, worker=name, pool=pool)
        wake = asyncio.Event()
        runner = _build_runner(plan, partial(_set_threadsafe, asyncio.get_running_loop(), wake))
        worker = RemoteWorker(side, runner, clock, events, settings=settings, worker=name)
        worker.wake, worker.registration.measure = wake, meter.load
        worker.heartbeat.on_server_time = partial(_set_clock, clock, events, name)
        ready(worker)
        loops = [run_loop(name, step, stop=stop, wake=woken, events=events) for name, step, woken in worker.services()]
        await asyncio.gather(*loops)
        await worker.drain()
    finally:
        meter.close()
        with suppress(Exception):  # whatever is wrong with the connection, it is let go of
            await client.flush(timeout=1)
            await client.close()


def _set_clock(clock: StoreSyncedClock, events: Events, worker: str, theirs_at: int, asked_at: int) -> None:
    wrong = clock.synchronize(theirs_at, asked_at=asked_at)
    if wrong:
        events.emit("clock_corrected", worker=worker, wrong_ms=wrong)


def _build_runner(plan: RemoteWorkerOptions, on_finished: Callable[[], object]) -> FunctionRunner:
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


def _set_threadsafe(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    with suppress(RuntimeError):  # the loop is closed, and nobody waits any more
        loop.call_soon_threadsafe(event.set)
