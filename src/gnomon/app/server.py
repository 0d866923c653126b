"""A whole scheduler in one process, as `gnomon up`, `gnomon server` and `gnomon.run()` start it."""

import asyncio
import gc
import getpass
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from msgspec import Struct

from gnomon.adapters.files import file_digest, read_pools_file
from gnomon.adapters.host import RandomIds, SystemClock, tzdata_version
from gnomon.adapters.sql.connect import sqlite_path
from gnomon.adapters.sql.sqlite import DatabaseFileMonitor
from gnomon.app.files import read_declared_jobs, read_jobs_file
from gnomon.app.node import Node
from gnomon.app.observability import observed
from gnomon.app.runner import import_modules
from gnomon.app.settings import serving
from gnomon.app.stores import create_database_in_child
from gnomon.config.settings import Settings
from gnomon.core.jobs.job import Job
from gnomon.ports.runtime import Events
from gnomon.runners.registry import FUNCTIONS, Functions
from gnomon.services.loop import run_loop
from gnomon.services.maintenance.file_sync import JobsFileSync, PoolsFileSync, WatchedFile, reject_duplicate_jobs
from gnomon.services.operations.jobs import JobService

if TYPE_CHECKING:
    from gnomon.app.http_api import HttpApi


#: How soon after the start all lasting objects exist and are frozen, and how often all others are collected.
_GC_FREEZE_SECONDS, _COLLECT_SECONDS = 5.0, 60.0
#: After how many new objects the youngest generation is collected, after how many of these the next, and then all.
_GC_THRESHOLDS = (2_000, 5, 1_000)


class ServerOptions(Struct, frozen=True, kw_only=True):
    """The options of a scheduler process."""

    settings: Settings
    #: Jobs files; they are watched while the process runs.
    jobs_files: Sequence[Path] = ()
    #: Modules that register functions when they are imported.
    imports: Sequence[str] = ()
    functions: Functions = FUNCTIONS
    events: Events | None = None
    #: Refuse to start if the port for metrics is in use, instead of running without metrics.
    strict: bool = False
    #: Serve the HTTP API.
    api: bool = False
    #: Execute tasks; otherwise only decide ticks and dispatch tasks to other processes.
    executes: bool = True


async def serve(options: ServerOptions, stop: asyncio.Event, *, ready: Callable[[Node], None] = lambda _: None) -> None:
    """Schedule and execute until `stop` is set. Wrong options are refused before anything starts."""
    import_modules(options.imports)
    files = [_watch_jobs_file(options, file) for file in options.jobs_files]
    jobs = await _read_all_jobs(options, files)
    http_api = _open_http_api(options)
    with nullcontext() if http_api is None else closing(http_api):
        create_database_in_child(options.settings.database.url)
        node = await _open_node(options, http_api)
        try:
            syncs = await _register_jobs(options, node, files, jobs)
            # The parsed jobs, perhaps thousands, are no longer needed.
            del jobs
            watched = [("jobs_file_sync", one.step) for one in syncs]
            watched += [("pools_file_sync", one.step) for one in await _start_pools_sync(options, node)]
            async with observed(node, stop, strict=options.strict):
                with serving(options.settings):
                    ready(node)
                    services = [run_loop(name, step, stop=stop, events=node.events) for name, step in watched]
                    if http_api is not None:
                        services.append(http_api.serve(node, stop))
                    # First, so that it knows the file before the start is announced.
                    guard = _watch_database_file(options.settings, node.events, stop)
                    await asyncio.gather(guard, node.run(stop), *services)
        finally:
            await node.close()


def _open_http_api(options: ServerOptions) -> "HttpApi | None":
    """The HTTP API, if the options ask for one; UsageError if its address is in use."""
    if not options.api:
        return None
    from gnomon.adapters.structured_log import LoggedEvents
    from gnomon.app.http_api import HttpApi

    return HttpApi(options.settings, options.events or LoggedEvents())


async def _open_node(options: ServerOptions, http_api: "HttpApi | None") -> Node:
    changes = None if http_api is None else http_api.change_stream
    return await Node.open(
        options.settings,
        events=changes or options.events,
        functions=options.functions if options.executes else None,
        imports=tuple(options.imports),
        dispatches=not options.executes,
        changes=changes,
        address=None if http_api is None else http_api.address,
    )


async def _read_all_jobs(options: ServerOptions, files: Sequence[WatchedFile[list[Job]]]) -> Mapping[str, list[Job]]:
    """All jobs by where they are defined: in the program, or in a file. UsageError for the first error."""
    declared = read_declared_jobs(options.functions.jobs, options.settings, now=SystemClock().now())
    found = {"the program": declared, **{file.name: await file.read() for file in files}}
    reject_duplicate_jobs(found)
    return found


async def _register_jobs(
    options: ServerOptions, node: Node, files: Sequence[WatchedFile[list[Job]]], jobs: Mapping[str, Sequence[Job]]
) -> list[JobsFileSync]:
    """Apply all jobs atomically; return the services that keep them in sync with their files."""
    jobs_service = JobService(
        node.store.jobs,
        node.store.schedules,
        node.store.history,
        node.clock,
        RandomIds(),
        tzdata=tzdata_version(),
        default_timeout_ms=options.settings.execution.default_timeout_ms,
    )
    all_jobs = [job for some in jobs.values() for job in some]
    applied = {one.name: one for one in await jobs_service.apply(all_jobs, actor=_os_user())}
    syncs = []
    for file in files:
        sync = JobsFileSync(file, jobs_service, node.events, actor=_os_user())
        sync.announce(applied[job.name] for job in jobs[file.name])
        syncs.append(sync)
    return syncs


async def _start_pools_sync(options: ServerOptions, node: Node) -> list[PoolsFileSync]:
    """Read the pools file, if there is one, and return the service that watches it; UsageError if it is wrong."""
    execution = node.execution
    if not options.settings.routing.pools_file or execution is None:
        return []
    file = Path(options.settings.routing.pools_file)
    read = partial(read_pools_file, file)
    watched_file = WatchedFile(
        str(file), stamp=partial(_file_stamp, file), digest=partial(file_digest, file), read=read
    )
    sync = PoolsFileSync(watched_file, execution.dispatcher.router, node.events, on_change=execution.workers_changed)
    await sync.read()
    return [sync]


async def _watch_database_file(settings: Settings, events: Events, stop: asyncio.Event) -> None:
    """Announce it if the database file is removed or replaced while the process runs."""
    path = sqlite_path(settings.database.url)
    if path is not None:
        await run_loop("database_file_monitor", DatabaseFileMonitor(path, events).step, stop=stop, events=events)


def _watch_jobs_file(options: ServerOptions, file: Path) -> WatchedFile[list[Job]]:
    def read() -> list[Job]:
        return read_jobs_file(file, options.settings, now=SystemClock().now())

    return WatchedFile(str(file), stamp=partial(_file_stamp, file), digest=partial(file_digest, file), read=read)


def _file_stamp(file: Path) -> object:
    try:
        found = file.stat()
    except OSError as error:
        return str(error)
    return found.st_mtime_ns, found.st_size, found.st_ino


def _os_user() -> str:
    """The actor of jobs from files and code: the user that runs this process."""
    with suppress(OSError, KeyError):
        return getpass.getuser()
    return "gnomon"


# ---- signals -------------------------------------------------------------------------------------


def stop_on_signals(stop: asyncio.Event, announce: Callable[[str], None]) -> None:
    """The first SIGTERM or SIGINT sets `stop`; the second ends the process at once."""
    loop = asyncio.get_running_loop()

    def received(number: int) -> None:
        if stop.is_set():
            os._exit(128 + number)
        stop.set()
        announce(signal.Signals(number).name)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, received, number)


def tune_thread_switching() -> None:
    """Switch threads sooner than by default: a function that computes then delays ticks by 0.5 ms, not by 5 ms."""
    sys.setswitchinterval(0.0005)


def tune_gc(after: float = _GC_FREEZE_SECONDS, every: float = _COLLECT_SECONDS) -> None:
    """Run a full garbage collection once a minute, and never on the objects of the start.

    Each one stops the process for up to 0.1 s, and Python would run several per second in a storm of ticks.
    """
    loop = asyncio.get_running_loop()
    gc.set_threshold(*_GC_THRESHOLDS)
    loop.call_later(after, gc.freeze)

    def collect() -> None:
        gc.collect()
        loop.call_later(every, collect)

    loop.call_later(every, collect)


# ---- inside another program ----------------------------------------------------------------------


class BackgroundScheduler:
    """A scheduler in a thread of its own. Use it as a context manager, or call `stop`."""

    def __init__(self, options: ServerOptions) -> None:
        #: The address of its HTTP API, if it has one.
        self.address: str | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._serve, args=(options,), name="gnomon", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            raise self._failure

    def _serve(self, options: ServerOptions) -> None:
        try:
            asyncio.run(self._main(options))
        except BaseException as error:  # noqa: BLE001 - the constructor or `stop` raises it
            self._failure = error
        finally:
            self._ready.set()

    async def _main(self, options: ServerOptions) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()

        def ready(node: Node) -> None:
            self.address = node.address
            self._ready.set()

        await serve(options, self._stop, ready=ready)

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Drain and stop the scheduler, and wait for that. Raises the error that ended it before, if there is one."""
        if self._loop is not None and self._stop is not None:
            with suppress(RuntimeError):  # it has ended already
                self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
