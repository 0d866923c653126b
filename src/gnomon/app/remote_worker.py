"""A worker without a database: `gnomon worker` with NATS only."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Self

from msgspec import Struct

from gnomon.adapters.host import LoadSampler, RandomIds
from gnomon.adapters.nats.connection import connect
from gnomon.adapters.nats.credentials import read_credentials
from gnomon.adapters.nats.queue import NatsWorkerBus
from gnomon.adapters.payload_cipher import build_cipher
from gnomon.adapters.structured_log import LoggedEvents
from gnomon.adapters.synced_clock import StoreSyncedClock
from gnomon.app.extras import check_extras
from gnomon.app.observability import EventObservers, Observability, observed
from gnomon.app.runner import build_runner, import_modules
from gnomon.config.settings import Settings
from gnomon.core import component_names
from gnomon.core.health import ComponentStatus, HealthCondition
from gnomon.core.worker_ids import REMOTE_WORKER_PREFIX, checked_identity, checked_worker_id, is_remote
from gnomon.errors import FieldError, UsageError
from gnomon.ports.runtime import Clock, Events
from gnomon.runners.registry import FUNCTIONS, Functions
from gnomon.services.loop import run_loop
from gnomon.services.observability.metrics import MetricsRecorder
from gnomon.services.remote.progress_outbox import ProgressOutbox
from gnomon.services.remote.remote_worker import RemoteWorker


class RemoteWorkerOptions(Struct, frozen=True, kw_only=True):
    """The options of `gnomon worker`."""

    settings: Settings
    #: Modules that register functions when they are imported.
    imports: Sequence[str] = ()
    functions: Functions = FUNCTIONS
    events: Events | None = None
    #: Serve metrics and health probes on the port of the settings.
    metrics: bool = False


class RemoteWorkerProcess(Struct, frozen=True):
    """A worker over NATS that can be observed."""

    worker: RemoteWorker
    observability: Observability
    events: Events

    @classmethod
    def observing(cls, worker: RemoteWorker, settings: Settings, clock: Clock, observers: EventObservers) -> Self:
        """The process of the worker."""

        def link() -> ComponentStatus:
            if worker.heartbeat.trusted:
                return ComponentStatus(HealthCondition.OK)
            return ComponentStatus(HealthCondition.ERROR, "no server answers heartbeats")

        observability = Observability(
            None, settings, clock, observers, backoffs=lambda: {component_names.WORKER: worker.backoff}, link=link
        )
        observability.health.started()
        return cls(worker, observability, observers.events)


async def run_remote_worker(
    options: RemoteWorkerOptions, stop: asyncio.Event, *, ready: Callable[[RemoteWorker], None] = lambda _: None
) -> None:
    """Execute the tasks that come over NATS until `stop` is set; then drain and report.

    UsageError if the settings have no `nats.url`, Unavailable if NATS cannot be reached at the start.
    """
    settings = options.settings
    if not settings.nats.url:
        raise UsageError("a worker without a database needs nats.url: where NATS is")
    check_extras(settings)
    import_modules(options.imports)
    cipher = build_cipher(settings.payload.keys)
    clock, load_sampler = StoreSyncedClock(), LoadSampler()
    recorder = MetricsRecorder(max_jobs=0) if options.metrics else None
    observers = EventObservers(clock, options.events or LoggedEvents(), recorder)
    events = observers.events
    name = _worker_id(settings, RandomIds().new(REMOTE_WORKER_PREFIX, clock.now()))
    client = await connect(settings.nats, events, name=name)
    try:
        wake = asyncio.Event()
        progress = ProgressOutbox(wake)
        worker = RemoteWorker(
            NatsWorkerBus(client, settings.nats, worker=name, pool=settings.worker.pool),
            build_runner(
                options.functions, settings, options.imports, wake=wake, has_database=False, progress=progress
            ),
            clock,
            events,
            settings=settings,
            worker=name,
            wake=wake,
            measure_load=load_sampler.load,
            on_server_time=partial(_set_clock, clock, events, name),
            cipher=cipher,
            progress=progress,
        )
        process = RemoteWorkerProcess.observing(worker, settings, clock, observers)
        async with observed(process, stop, serve=options.metrics, doing="executing"):
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


def _worker_id(settings: Settings, random_id: str) -> str:
    """The id of this start: with credentials of an enrolled worker it begins with the identity that they name."""
    if not settings.nats.creds_file:
        return random_id
    identity = read_credentials(Path(settings.nats.creds_file)).name
    if not is_remote(identity) or "." not in identity:
        return random_id
    pool, _, name = identity.removeprefix(f"{REMOTE_WORKER_PREFIX}_").rpartition(".")
    if pool != settings.worker.pool:
        reason = f"is not the pool of {settings.nats.creds_file}: the worker {name} was enrolled for {pool!r}"
        raise FieldError("worker.pool", settings.worker.pool, reason)
    start = random_id.removeprefix(f"{REMOTE_WORKER_PREFIX}_")
    return checked_worker_id("nats.creds_file", f"{checked_identity(pool, name)}.{start}")


def _set_clock(clock: StoreSyncedClock, events: Events, worker: str, theirs_at: int, asked_at: int) -> None:
    wrong = clock.synchronize(theirs_at, asked_at=asked_at)
    if wrong:
        events.emit("clock_corrected", worker=worker, wrong_ms=wrong)
