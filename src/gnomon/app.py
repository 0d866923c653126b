"""The only place that knows everybody: it builds the parts and hands them to each other."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Self, TextIO

from gnomon.adapters.console import ConsoleEvents
from gnomon.adapters.logs import LoggedEvents
from gnomon.adapters.manifests import read_manifest
from gnomon.adapters.sql.opening import migrate, open_postgres, open_sqlite, sqlite_path
from gnomon.adapters.sql.sqlite import FileLock
from gnomon.adapters.sql.store import SqlStore
from gnomon.adapters.sql.watching import FileWatch
from gnomon.adapters.system import RandomIds, SystemClock, tzdata_version
from gnomon.adapters.yaml_files import read_fires, read_jobs, read_mapping, read_text
from gnomon.bureau import Bureau
from gnomon.core.jobs import Job, read_job
from gnomon.core.requests import Defaults
from gnomon.crew import Crew
from gnomon.errors import NoDatabase, Unavailable
from gnomon.housekeeping import Housekeeping, OverheardEvents, archive_of, cleaner_of
from gnomon.ports.clock import Clock
from gnomon.ports.events import Events
from gnomon.runners.registry import Functions
from gnomon.services.dead_letters import DeadLetterOffice
from gnomon.services.elector import Elector
from gnomon.services.executions import ExecutionBook
from gnomon.services.explaining import Explainer
from gnomon.services.jobs import JobBook
from gnomon.services.launcher import Launcher
from gnomon.services.listening import Announcer
from gnomon.services.looping import keep_stepping
from gnomon.services.planning import Planner
from gnomon.services.registrar import Registrar
from gnomon.services.ticker import Health, Ticker
from gnomon.services.workflows import WorkflowStore
from gnomon.settings import Database, Settings, load

#: How often a process that stands by asks for the right to schedule.
_STANDBY_SECONDS = 0.5
#: How soon a write by another process is noticed.
_FILE_SECONDS = 0.1
_SERVER_SECONDS = 1.0


class Node:
    """One process's share: a store, a registrar for operators, and the services that decide, dispatch and execute."""

    def __init__(
        self,
        store: SqlStore,
        settings: Settings,
        *,
        lock: FileLock | None,
        events: Events,
        functions: Functions | None = None,
        imports: Sequence[str] = (),
        dispatches: bool = False,
    ) -> None:
        clock: Clock = SystemClock()
        ids = RandomIds()
        self.store = store
        self.settings = settings
        self._lock = lock
        self.events = events = OverheardEvents(events)
        holder = ids.new("node", clock.now())
        self._elector = Elector(store, clock, events, settings.leader, holder=holder, alone=lock is not None)
        self.ticker = Ticker(store, self._elector, clock, events, settings.ticker)
        self.registrar = Registrar(store, store, clock, ids, defaults=defaults_of(settings), tzdata=tzdata_version())
        self.housekeeping = Housekeeping(store, settings, clock, events, holder=holder)
        self.housekeeping.pinger.deciding = lambda: self.ticker.health is Health.OK
        events.listener = self.housekeeping.pinger.heard
        self.crew = None if functions is None else Crew(store, settings, clock, events, functions, imports)
        self.bureau = Bureau(store, settings, clock, events) if dispatches and self.crew is None else None
        self.launcher = Launcher(store, store, store, store, clock, ids)
        if self.crew is not None:
            self.launcher.hand_over = self.crew.dispatcher.hand_over
        #: Where it answers requests, if it does.
        self.address: str | None = None
        #: Whether it does its share, and does not stand by.
        self.scheduling = False
        #: Set it to say that there may be something new to decide.
        self.wake = asyncio.Event()

    @classmethod
    async def open(
        cls,
        settings: Settings,
        *,
        events: Events | None = None,
        functions: Functions | None = None,
        imports: Sequence[str] = (),
        dispatches: bool = False,
    ) -> Self:
        """A node on the store that the settings name. With functions it executes, too; else it may dispatch."""
        path = sqlite_path(settings.database.url)
        if path is not None:
            store, lock = await open_sqlite(path), FileLock(path)
        else:
            store, lock = await _open_server(settings.database), None
        events = events or LoggedEvents()
        return cls(
            store,
            settings,
            lock=lock,
            events=events,
            functions=functions,
            imports=imports,
            dispatches=dispatches,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Do our share until told to stop; on a file that another process has, stand by until it is free."""
        if not await self._may_schedule(stop):
            return
        database = hidden_password(self.settings.database.url)
        self.events.emit("scheduling", database=database)
        self.scheduling = True
        services = [keep_stepping(self.ticker.step, stop=stop, wake=self.wake, events=self.events)]
        services += self.housekeeping.services(stop)
        if self.crew is not None:
            self.ticker.on_fired = self.crew.dispatch.set
            self.housekeeping.mender.on_ready = self.crew.dispatch.set
            self.crew.runner.on_start = self.housekeeping.pinger.started
            # The gate is open, so what is decided can be passed on without asking anybody.
            self.ticker.hand_over = self.crew.dispatcher.hand_over
            # On a file that is ours alone, whatever others had in hand died with them.
            await self.crew.begin(alone=self._lock is not None)
            services += [*self.crew.services(stop), self._watch(stop)]
        if self.bureau is not None:
            self.ticker.on_fired = self.bureau.dispatch.set
            services += [*self.bureau.services(stop), self._watch(stop)]
        try:
            await asyncio.gather(*services)
        finally:
            self.scheduling = False
            await self._hand_over()

    def look(self) -> None:
        """Someone may have written something: look at all of it."""
        self.wake.set()
        for others in (self.crew, self.bureau):
            if others is not None:
                others.look()

    async def _watch(self, stop: asyncio.Event) -> None:
        """Whatever others write is noticed soon: at once on a file, by looking now and then on a server."""
        path = sqlite_path(self.settings.database.url)
        watch = None if path is None else FileWatch(path)
        while not stop.is_set():
            if watch is None or watch.changed():
                self.look()
            pause = _SERVER_SECONDS if watch is None else _FILE_SECONDS
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), pause)
        if watch is not None:
            watch.close()

    async def _hand_over(self) -> None:
        """What runs has ended, and others may go on at once; if the store is away, once our leases have ended."""
        try:
            if self.crew is not None:
                await self.crew.worker.drain()
            await self.housekeeping.pinger.drain()
            await self._elector.stop()
        except Unavailable as error:
            self.events.emit("store_unavailable", error=str(error))
        finally:
            if self._lock is not None:
                self._lock.release()

    async def _may_schedule(self, stop: asyncio.Event) -> bool:
        told = False
        while not stop.is_set():
            if self._lock is None or self._lock.try_acquire():
                return True
            if not told:
                self.events.emit("standing_by", database=hidden_password(self.settings.database.url))
                told = True
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), _STANDBY_SECONDS)
        return False

    async def close(self) -> None:
        """Let go of the store."""
        await self.store.close()


def hidden_password(url: str) -> str:
    """The address of a database without what nobody else should read."""
    before, at, after = url.rpartition("@")
    scheme, mark, user = before.partition("://")
    return f"{scheme}{mark}{user.partition(':')[0]}{at}{after}" if at else url


async def _open_server(database: Database) -> SqlStore:
    return await open_postgres(
        database.url,
        statement_cache=database.statement_cache,
        pool_size=database.max_connections,
        patience_ms=database.patience_ms,
    )


async def migrate_database(settings: Settings) -> str:
    """The database of the settings has the newest schema; its revision comes back."""
    return await migrate(settings.database.url)


def read_jobs_file(path: Path, settings: Settings | None = None, *, now: int, only_fires: bool = False) -> list[Job]:
    """Every job of the file; JobsFileError for the first that is wrong. For its fires a job need not be complete."""
    read = read_fires if only_fires else read_jobs
    return read(path, defaults_of(settings or Settings()), now=now)


def read_settings(
    config: Path | None,
    *,
    flags: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """The settings of a configuration file, if there is one, the environment and the flags."""
    return load(flags=flags, environment=environment, file=None if config is None else read_mapping(config))


def read_foreign(path: Path) -> str:
    """The text of another scheduler's file; FileError if it cannot be read."""
    return read_text(path)


def read_documents(name: str, text: str) -> list[Any]:
    """The documents of another scheduler's YAML; FileError if it is none."""
    return read_manifest(name, text)


def console_events(stream: TextIO) -> Events:
    """Events as lines for a person."""
    return ConsoleEvents(stream)


def read_declared_jobs(declared: Sequence[Mapping[str, Any]], settings: Settings, *, now: int) -> list[Job]:
    """The jobs that were written beside their functions; FieldError for the first that is wrong."""
    return [read_job(said, defaults_of(settings), now=now) for said in declared]


def database_url(place: str) -> str:
    """The address of a database that was named by its address or by the path of a file."""
    return place if "://" in place else f"sqlite:///{place}"


def defaults_of(settings: Settings) -> Defaults:
    """What counts where a job says nothing."""
    ticker = settings.ticker
    return Defaults(
        overlap=ticker.default_overlap,
        catchup=ticker.default_catchup,
        jitter_ms=ticker.default_jitter_ms,
        lookahead_ms=ticker.lookahead_ms,
        catchup_cap=ticker.max_catchup_per_tick,
    )


def archives(settings: Settings) -> bool:
    """Whether it was said where history is kept before it is removed, or that it need not be."""
    return archive_of(settings) is not None


class Office:
    """What operators work with: books of jobs, executions, events and dead letters, and a launcher, on one store."""

    def __init__(self, store: SqlStore, settings: Settings) -> None:
        clock, ids = SystemClock(), RandomIds()
        timeout = settings.execution.default_timeout_ms
        self.store = store
        self.jobs = JobBook(store, store, store, clock, ids, tzdata=tzdata_version(), default_timeout_ms=timeout)
        self.planner = Planner(self.jobs, store, clock)
        self.launcher = Launcher(store, store, store, store, clock, ids)
        self.executions = ExecutionBook(store, store, store, store, clock)
        self.workflows = WorkflowStore(
            store, store, clock, ids, defaults=defaults_of(settings), tzdata=tzdata_version()
        )
        self.events = Announcer(store, clock, ids)
        self.dead_letters = DeadLetterOffice(store, store, self.launcher, clock)
        self.explainer = Explainer(store, store, store, store, store, store, clock)
        self.cleaner = cleaner_of(store, settings, clock, LoggedEvents(), holder=ids.new("office", clock.now()))

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: Settings, *, make: bool = True) -> AsyncIterator[Self]:
        """An office on the store that the settings name. A file is made only if `make` says so."""
        path = sqlite_path(settings.database.url)
        if path is not None and not make:
            _refuse_missing(path)
        store = await (_open_server(settings.database) if path is None else open_sqlite(path))
        try:
            yield cls(store, settings)
        finally:
            await store.close()


def _refuse_missing(path: str) -> None:
    if not Path(path).exists():
        raise NoDatabase(path)


def planner_on_nothing() -> Planner:
    """A planner where no job stands yet."""
    from gnomon.adapters.memory import MemoryStore

    clock = SystemClock()
    store = MemoryStore(clock.now)
    return Planner(JobBook(store, store, store, clock, RandomIds()), store, clock)
