"""Everything in one process: what `gnomon up` and `gnomon.run()` start."""

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


#: How soon after the start all has been made that lasts, and how often garbage is looked for among the rest of it.
_GC_FREEZE_SECONDS, _COLLECT_SECONDS = 5.0, 60.0
#: After how many new objects the young are looked at, how many of these looks later the older, and then all.
_GC_THRESHOLDS = (2_000, 5, 1_000)


class ServerOptions(Struct, frozen=True, kw_only=True):
    """What to serve."""

    settings: Settings
    #: Where jobs are written; watched while we run.
    jobs_files: Sequence[Path] = ()
    #: Modules that register functions when they are imported.
    imports: Sequence[str] = ()
    functions: Functions = FUNCTIONS
    events: Events | None = None
    #: Refuse to start if the port for metrics cannot be had, instead of doing without.
    strict: bool = False
    #: Answer requests over HTTP, too.
    api: bool = False
    #: Execute tasks; otherwise only decide them and let others execute.
    executes: bool = True


async def serve(plan: ServerOptions, stop: asyncio.Event, *, ready: Callable[[Node], None] = lambda _: None) -> None:
    """Schedule and execute until told to stop. What was asked for wrongly is refused before anything starts."""
    import_modules(plan.imports)
    files = [_watch_jobs_file(plan, file) for file in plan.jobs_files]
    jobs = await _read_all_jobs(plan, files)
    facing = _open_http_api(plan)
    with nullcontext() if facing is None else closing(facing):
        create_database_in_child(plan.settings.database.url)
        node = await _open_node(plan, facing)
        try:
            keepers = await _register_jobs(plan, node, files, jobs)
            # Thousands of jobs are no longer needed.
            del jobs
            watched = [("jobs_file_sync", one.step) for one in keepers]
            watched += [("pools_file_sync", one.step) for one in await _start_pools_sync(plan, node)]
            async with observed(node, stop, strict=plan.strict):
                with serving(plan.settings):
                    ready(node)
                    services = [run_loop(name, step, stop=stop, events=node.events) for name, step in watched]
                    if facing is not None:
                        services.append(facing.serve(node, stop))
                    # First, so that it knows the file before anybody is told that we have begun.
                    guard = _watch_database_file(plan.settings, node.events, stop)
                    await asyncio.gather(guard, node.run(stop), *services)
        finally:
            await node.close()


def _open_http_api(plan: ServerOptions) -> "HttpApi | None":
    """Where requests come in, if any may; UsageError if the address is taken."""
    if not plan.api:
        return None
    from gnomon.adapters.structured_log import LoggedEvents
    from gnomon.app.http_api import HttpApi

    return HttpApi(plan.settings, plan.events or LoggedEvents())


async def _open_node(plan: ServerOptions, facing: "HttpApi | None") -> Node:
    changes = None if facing is None else facing.change_stream
    return await Node.open(
        plan.settings,
        events=changes or plan.events,
        functions=plan.functions if plan.executes else None,
        imports=tuple(plan.imports),
        dispatches=not plan.executes,
        changes=changes,
        address=None if facing is None else facing.address,
    )


async def _read_all_jobs(plan: ServerOptions, files: Sequence[WatchedFile[list[Job]]]) -> Mapping[str, list[Job]]:
    """Every job by where it stands: beside its function, or in a file. UsageError if anything is wrong with any."""
    declared = read_declared_jobs(plan.functions.jobs, plan.settings, now=SystemClock().now())
    found = {"the program": declared, **{file.name: await file.read() for file in files}}
    reject_duplicate_jobs(found)
    return found


async def _register_jobs(
    plan: ServerOptions, node: Node, files: Sequence[WatchedFile[list[Job]]], jobs: Mapping[str, Sequence[Job]]
) -> list[JobsFileSync]:
    """All jobs stand as they were written, or none do; those who keep the files come back."""
    book = JobService(
        node.store.jobs,
        node.store.schedules,
        node.store.history,
        node.clock,
        RandomIds(),
        tzdata=tzdata_version(),
        default_timeout_ms=plan.settings.execution.default_timeout_ms,
    )
    all_jobs = [job for some in jobs.values() for job in some]
    applied = {one.name: one for one in await book.apply(all_jobs, actor=_os_user())}
    keepers = []
    for file in files:
        keeper = JobsFileSync(file, book, node.events, actor=_os_user())
        keeper.announce(applied[job.name] for job in jobs[file.name])
        keepers.append(keeper)
    return keepers


async def _start_pools_sync(plan: ServerOptions, node: Node) -> list[PoolsFileSync]:
    """Who keeps the table of pools, if there is one, which then counts; UsageError if it is wrong."""
    execution = node.execution
    if not plan.settings.routing.pools_file or execution is None:
        return []
    file = Path(plan.settings.routing.pools_file)
    read = partial(read_pools_file, file)
    watched_file = WatchedFile(
        str(file), stamp=partial(_file_stamp, file), digest=partial(file_digest, file), read=read
    )
    sync = PoolsFileSync(watched_file, execution.dispatcher.router, node.events, on_change=execution.workers_changed)
    await sync.read()
    return [sync]


async def _watch_database_file(settings: Settings, events: Events, stop: asyncio.Event) -> None:
    """Whoever takes the database file away from under us is told so."""
    path = sqlite_path(settings.database.url)
    if path is not None:
        await run_loop("database_file_monitor", DatabaseFileMonitor(path, events).step, stop=stop, events=events)


def _watch_jobs_file(plan: ServerOptions, file: Path) -> WatchedFile[list[Job]]:
    def read() -> list[Job]:
        return read_jobs_file(file, plan.settings, now=SystemClock().now())

    return WatchedFile(str(file), stamp=partial(_file_stamp, file), digest=partial(file_digest, file), read=read)


def _file_stamp(file: Path) -> object:
    try:
        found = file.stat()
    except OSError as error:
        return str(error)
    return found.st_mtime_ns, found.st_size, found.st_ino


def _os_user() -> str:
    """Who registers what stands in files and code: the user we run as."""
    with suppress(OSError, KeyError):
        return getpass.getuser()
    return "gnomon"


# ---- signals -------------------------------------------------------------------------------------


def stop_on_signals(stop: asyncio.Event, told: Callable[[str], None]) -> None:
    """The first SIGTERM or SIGINT sets `stop`; the second ends the process at once."""
    loop = asyncio.get_running_loop()

    def received(number: int) -> None:
        if stop.is_set():
            os._exit(128 + number)
        stop.set()
        told(signal.Signals(number).name)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, received, number)


def tune_thread_switching() -> None:
    """Threads hand over sooner than by default: a body that computes holds up the clock by half a ms, not by five."""
    sys.setswitchinterval(0.0005)


def tune_gc(after: float = _GC_FREEZE_SECONDS, every: float = _COLLECT_SECONDS) -> None:
    """Garbage is looked for among all that there is once a minute, and not in what was made at the start.

    Each such look holds up everybody for up to 0.1 s, and Python would take several in a second while much is due.
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
    """A scheduler on a thread of its own. Use it as a context manager, or stop it yourself."""

    def __init__(self, plan: ServerOptions) -> None:
        #: Where it answers requests, if it does.
        self.address: str | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._serve, args=(plan,), name="gnomon", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            raise self._failure

    def _serve(self, plan: ServerOptions) -> None:
        try:
            asyncio.run(self._main(plan))
        except BaseException as error:  # noqa: BLE001 - it is handed to whoever started us
            self._failure = error
        finally:
            self._ready.set()

    async def _main(self, plan: ServerOptions) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()

        def ready(node: Node) -> None:
            self.address = node.address
            self._ready.set()

        await serve(plan, self._stop, ready=ready)

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """What runs has ended one way or another, and everything is let go of. Raises what ended it before, if so."""
        if self._loop is not None and self._stop is not None:
            with suppress(RuntimeError):  # it is over already
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
