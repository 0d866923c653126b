"""A whole scheduler in one process, as `gnomon up`, `gnomon server` and `gnomon.run()` start it."""

import asyncio
import gc
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
from gnomon.adapters.sql.database_file import DatabaseFileMonitor
from gnomon.app.files import read_declared_jobs, read_jobs_file
from gnomon.app.gate import build_command_policy, offered_agents
from gnomon.app.local_user import local_user
from gnomon.app.node import Node
from gnomon.app.observability import observed
from gnomon.app.runner import import_modules
from gnomon.app.settings import catchup_limit, serving
from gnomon.app.stores import create_database_in_child
from gnomon.config.channels import channel_rules
from gnomon.config.settings import Settings
from gnomon.core import component_names
from gnomon.core.jobs.function_check import unknown_functions
from gnomon.core.jobs.job import Job
from gnomon.core.jobs.origins import file_of_origin, origin_of_file, origin_of_module, with_origin
from gnomon.ports.runtime import Events
from gnomon.runners.open_files import raise_open_files_limit
from gnomon.runners.process_memory import forbid_memory_reads
from gnomon.runners.registry import FUNCTIONS, Functions
from gnomon.services.loop import run_loop
from gnomon.services.maintenance.file_sync import (
    JobsFileSync,
    PoolsFileSync,
    WatchedFile,
    announce_undeclared,
    announce_warnings,
    reject_duplicate_jobs,
)
from gnomon.services.operations.job_changes import Declaration
from gnomon.services.operations.jobs import JobService

if TYPE_CHECKING:
    from gnomon.app.http_api import HttpApi


#: How soon after the start all lasting objects exist and are frozen, and how often all others are collected.
_GC_FREEZE_SECONDS, _COLLECT_SECONDS = 5.0, 60.0
#: After how many new objects the youngest generation is collected, after how many of these the next, and then all.
_GC_THRESHOLDS = (2_000, 5, 1_000)
#: While the process starts, nearly all new objects last.
_GC_THRESHOLDS_OF_START = (50_000, 5, 1_000)


#: How many unknown functions, and jobs of each, are named at the start.
_MOST_UNKNOWN = 10
#: The place of the jobs that imported modules declare.
_PROGRAM = "the program"


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
    #: Delete the jobs that these files and modules have declared before and do not declare now.
    prune: bool = False
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
            await _announce_unknown_functions(options, node, jobs)
            # The parsed jobs, perhaps thousands, are no longer needed.
            del jobs
            watched = [(component_names.JOBS_FILE_SYNC, one.step) for one in syncs]
            watched += [(component_names.POOLS_FILE_SYNC, one.step) for one in await _start_pools_sync(options, node)]
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
        events=options.events,
        functions=options.functions if options.executes else None,
        imports=tuple(options.imports),
        dispatches=not options.executes,
        changes=changes,
        address=None if http_api is None else http_api.address,
    )


async def _read_all_jobs(options: ServerOptions, files: Sequence[WatchedFile[list[Job]]]) -> Mapping[str, list[Job]]:
    """All jobs by where they are defined: in the program, or in a file. UsageError for the first error."""
    declared = read_declared_jobs(options.functions.declared, options.settings, now=SystemClock().now())
    found = {_PROGRAM: declared, **{file.name: await file.read() for file in files}}
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
        command_tenants=options.settings.shell.tenants,
        channels=channel_rules(options.settings.channels),
        agents=offered_agents(options.settings),
        command_policy=build_command_policy(options.settings, node.store, node.clock),
        catchup_limit=catchup_limit(options.settings),
    )
    all_jobs = [job for some in jobs.values() for job in some]
    done = await jobs_service.apply(all_jobs, actor=local_user(), declaration=_declaration(options, all_jobs))
    applied = {one.name: one for one in done}
    announce_undeclared(done, node.events)
    announce_warnings(jobs[_PROGRAM], done, node.events)
    syncs = []
    for path, file in zip(options.jobs_files, files, strict=True):
        declaration = Declaration(frozenset([_file_origin(path)]), prune=options.prune, has_gone=_has_gone)
        sync = JobsFileSync(file, jobs_service, node.events, actor=local_user(), declaration=declaration)
        sync.announce(jobs[file.name], [applied[job.name] for job in jobs[file.name]])
        syncs.append(sync)
    return syncs


async def _announce_unknown_functions(options: ServerOptions, node: Node, jobs: Mapping[str, Sequence[Job]]) -> None:
    """Warn of functions that neither this process nor a live worker has; a server alone cannot know them."""
    workers = await node.store.workers.alive()
    if not options.executes and not workers:
        return
    here = options.functions if options.executes else ()
    known = {*here, *(function for worker in workers for function in worker.functions)}
    for one in unknown_functions((job for some in jobs.values() for job in some), known)[:_MOST_UNKNOWN]:
        names = ", ".join(one.jobs[:_MOST_UNKNOWN])
        node.events.emit("functions_unknown", function=one.function, jobs=names, meant=one.meant)


def _declaration(options: ServerOptions, jobs: Sequence[Job]) -> Declaration:
    """The origins whose jobs this process knows completely: its files and modules, and where it found a job."""
    named = [*map(_file_origin, options.jobs_files), *map(origin_of_module, options.imports)]
    origins = frozenset([*named, *(job.spec.origin for job in jobs)])
    return Declaration(origins, prune=options.prune, has_gone=_has_gone)


def _has_gone(origin: str) -> bool:
    """Whether the jobs come from a file that is not there any more."""
    path = file_of_origin(origin)
    return path is not None and not os.path.lexists(path)


def _file_origin(file: Path) -> str:
    # Links are not followed: a mounted configuration is a link, to another folder with each version.
    return origin_of_file(os.path.abspath(file))  # noqa: PTH100 - `Path.absolute` keeps `..`


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
        await run_loop(
            component_names.DATABASE_FILE_MONITOR, DatabaseFileMonitor(path, events).step, stop=stop, events=events
        )


def _watch_jobs_file(options: ServerOptions, file: Path) -> WatchedFile[list[Job]]:
    def read() -> list[Job]:
        found = read_jobs_file(file, options.settings, now=SystemClock().now(), guarded=True)
        return with_origin(found, _file_origin(file))

    return WatchedFile(str(file), stamp=partial(_file_stamp, file), digest=partial(file_digest, file), read=read)


def _file_stamp(file: Path) -> object:
    try:
        found = file.stat()
    except OSError as error:
        return str(error)
    # The mode and the group, too: a file that was refused for them is read again once they are repaired.
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode, found.st_gid


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


def raise_limits() -> None:
    """Let this process open as many files as it may; the processes that it starts get the limit it was started with."""
    raise_open_files_limit()


def protect_process() -> None:
    """Keep the environment and memory of this process, which hold credentials, from commands of the same user."""
    forbid_memory_reads()


def tune_gc(after: float = _GC_FREEZE_SECONDS, every: float = _COLLECT_SECONDS) -> None:
    """Run a full garbage collection once a minute, and never on the objects of the start.

    Each one stops the process for up to 0.1 s, and Python would run several per second in a storm of ticks.
    """
    loop = asyncio.get_running_loop()
    gc.set_threshold(*_GC_THRESHOLDS_OF_START)

    def freeze() -> None:
        gc.freeze()
        gc.set_threshold(*_GC_THRESHOLDS)

    loop.call_later(after, freeze)

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
