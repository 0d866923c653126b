"""A worker without a database: `gnomon worker` with NATS only."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from msgspec import Struct

from gnomon.adapters.host import LoadSampler, RandomIds
from gnomon.adapters.nats.connection import connect
from gnomon.adapters.nats.queue import NatsWorkerBus
from gnomon.adapters.structured_log import LoggedEvents
from gnomon.adapters.synced_clock import StoreSyncedClock
from gnomon.app.runner import build_runner, import_modules
from gnomon.config.settings import Settings
from gnomon.core.subjects import REMOTE_WORKER_PREFIX
from gnomon.errors import UsageError
from gnomon.ports.runtime import Events
from gnomon.runners.registry import FUNCTIONS, Functions
from gnomon.services.loop import run_loop
from gnomon.services.remote.remote_worker import RemoteWorker


class RemoteWorkerOptions(Struct, frozen=True, kw_only=True):
    """The options of `gnomon worker`."""

    settings: Settings
    #: Modules that register functions when they are imported.
    imports: Sequence[str] = ()
    functions: Functions = FUNCTIONS
    events: Events | None = None


async def run_remote_worker(
    options: RemoteWorkerOptions, stop: asyncio.Event, *, ready: Callable[[RemoteWorker], None] = lambda _: None
) -> None:
    """Execute the tasks that come over NATS until `stop` is set; then drain and report.

    UsageError if the settings have no `nats.url`, Unavailable if NATS cannot be reached at the start.
    """
    settings, events = options.settings, options.events or LoggedEvents()
    if not settings.nats.url:
        raise UsageError("a worker without a database needs nats.url: where NATS is")
    import_modules(options.imports)
    clock, load_sampler = StoreSyncedClock(), LoadSampler()
    name = RandomIds().new(REMOTE_WORKER_PREFIX, clock.now())
    client = await connect(settings.nats, events, name=name)
    try:
        wake = asyncio.Event()
        worker = RemoteWorker(
            NatsWorkerBus(client, settings.nats, worker=name, pool=settings.worker.pool),
            build_runner(options.functions, settings, options.imports, wake=wake),
            clock,
            events,
            settings=settings,
            worker=name,
            wake=wake,
            measure_load=load_sampler.load,
            on_server_time=partial(_set_clock, clock, events, name),
        )
        ready(worker)
        await asyncio.gather(
            *(run_loop(part, step, stop=stop, wake=woken, events=events) for part, step, woken in worker.loops())
        )
        await worker.drain()
    finally:
        load_sampler.close()
        with suppress(Exception):  # the connection is given up, whatever is wrong with it
            await client.flush(timeout=1)
            await client.close()


def _set_clock(clock: StoreSyncedClock, events: Events, worker: str, theirs_at: int, asked_at: int) -> None:
    wrong = clock.synchronize(theirs_at, asked_at=asked_at)
    if wrong:
        events.emit("clock_corrected", worker=worker, wrong_ms=wrong)
