"""What operators work with: settings and files as they are read, and the books on one store."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self, TextIO

from gnomon.adapters.event_sinks import ConsoleEvents, JsonEvents
from gnomon.adapters.files import (
    read_job_schedules,
    read_jobs_with_positions,
    read_manifest,
    read_mapping,
    read_text,
)
from gnomon.adapters.files import read_jobs as read_complete_jobs
from gnomon.adapters.host import RandomIds, SystemClock, tzdata_version
from gnomon.adapters.structured_log import LoggedEvents
from gnomon.app.maintenance import build_cleaner, open_archive
from gnomon.app.stores import ConnectedStore, open_store
from gnomon.config.settings import Settings, load, load_with_origins
from gnomon.core.jobs.job import Job, read_job
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.ports.runtime import Clock, Events
from gnomon.ports.store import Store
from gnomon.services.coordination import SoleNode
from gnomon.services.operations.audit import AuditService
from gnomon.services.operations.backfills import BackfillService
from gnomon.services.operations.dead_letters import DeadLetterService
from gnomon.services.operations.events import EventService
from gnomon.services.operations.executions import ExecutionService
from gnomon.services.operations.explain import Explainer
from gnomon.services.operations.job_plan import Planner
from gnomon.services.operations.jobs import JobService
from gnomon.services.operations.launcher import Launcher
from gnomon.services.operations.workflows import WorkflowService
from gnomon.services.telemetry import NullEvents


def read_jobs_file(path: Path, settings: Settings | None = None, *, now: int, only_fires: bool = False) -> list[Job]:
    """Every job of the file; JobsFileError for the first that is wrong. For its fires a job need not be complete."""
    read = read_job_schedules if only_fires else read_complete_jobs
    return read(path, schedule_defaults(settings or Settings()), now=now)


def read_jobs(
    source: str | Path | Sequence[Mapping[str, Any]], settings: Settings | None = None, *, now: int | None = None
) -> list[Job]:
    """The jobs of a jobs file (a path) or of definitions (mappings with the fields of a jobs file).

    JobsFileError for the first error in a file, FieldError for the first error in a definition. `now` is the time that
    relative instants count from, in milliseconds since 1970; the system clock's if not given.
    """
    settings, now = settings or Settings(), SystemClock().now() if now is None else now
    if isinstance(source, str | Path):
        return read_jobs_file(Path(source), settings, now=now)
    return read_declared_jobs(source, settings, now=now)


def read_jobs_with_source(path: Path, settings: Settings, *, now: int) -> list[tuple[Job, dict[str, Any]]]:
    """Every job of the file, with what was written; JobsFileError for the first that is wrong."""
    return read_jobs_with_positions(path, schedule_defaults(settings), now=now)


def load_settings(
    config: str | Path | None = None,
    *,
    flags: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """The settings of a configuration file, environment variables and flags; later sources win.

    `flags` are named `section.key`. The process environment is not read: pass `os.environ` as `environment` to use it.
    FieldError names the setting that is wrong, FileError the file that cannot be read.
    """
    file = None if config is None else read_mapping(Path(config))
    return load(flags=flags, environment=environment, file=file)


def read_import_file(path: Path) -> str:
    """The text of another scheduler's file; FileError if it cannot be read."""
    return read_text(path)


def read_yaml_documents(name: str, text: str) -> list[Any]:
    """The documents of another scheduler's YAML; FileError if it is none."""
    return read_manifest(name, text)


def read_settings_with_origins(
    config: Path | None, *, flags: Mapping[str, object], environment: Mapping[str, str]
) -> tuple[Settings, Mapping[str, str]]:
    """The same settings, and where each was said that is no default."""
    file = None if config is None else read_mapping(config)
    return load_with_origins(flags=flags, environment=environment, file=file)


def console_events(stream: TextIO, *, quiet: bool = False) -> Events:
    """Events as lines for a person; or, if nobody looks, as JSON for a program."""
    return JsonEvents(stream) if quiet else ConsoleEvents(stream)


def read_declared_jobs(declared: Sequence[Mapping[str, Any]], settings: Settings, *, now: int) -> list[Job]:
    """The jobs that were written beside their functions; FieldError for the first that is wrong."""
    return [read_job(said, schedule_defaults(settings), now=now) for said in declared]


def database_url(place: str) -> str:
    """The address of a database that was named by its address or by the path of a file."""
    return place if "://" in place else f"sqlite:///{place}"


def schedule_defaults(settings: Settings) -> Defaults:
    """What counts where a job says nothing."""
    ticker = settings.ticker
    return Defaults(
        overlap=ticker.default_overlap,
        catchup=ticker.default_catchup,
        jitter_ms=ticker.default_jitter_ms,
        lookahead_ms=ticker.lookahead_ms,
        catchup_cap=ticker.max_catchup_per_tick,
    )


def archive_configured(settings: Settings) -> bool:
    """Whether it was said where history is kept before it is removed, or that it need not be."""
    return open_archive(settings) is not None


class Operations:
    """What operators work with: books of jobs, executions, events and dead letters, and a launcher, on one store."""

    def __init__(self, store: Store, settings: Settings, *, clock: Clock | None = None) -> None:
        clock, ids = clock or SystemClock(), RandomIds()
        timeout = settings.execution.default_timeout_ms
        self.store, self.clock = store, clock
        self.jobs = JobService(
            store.jobs, store.schedules, store.history, clock, ids, tzdata=tzdata_version(), default_timeout_ms=timeout
        )
        self.planner = Planner(self.jobs, store.jobs, clock)
        self.launcher = Launcher(store.runs, store.executions, store.jobs, store.schedules, clock, ids)
        self.executions = ExecutionService(store.runs, store.executions, store.history, store.jobs, clock)
        self.workflows = WorkflowService(
            store.jobs, store.schedules, clock, ids, defaults=schedule_defaults(settings), tzdata=tzdata_version()
        )
        self.events = EventService(store.events, clock, ids)
        self.backfills = BackfillService(store.backfills, store.schedules, clock, ids)
        self.audit = AuditService(store.audit)
        self.dead_letters = DeadLetterService(store.dead_letters, store.executions, self.launcher, clock)
        removing = settings if archive_configured(settings) else None
        self.explainer = Explainer(store, clock, settings=removing)
        self.cleaner = build_cleaner(store, settings, clock, LoggedEvents(), lease=SoleNode())

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: Settings, *, make: bool = True) -> AsyncIterator[Self]:
        """An office on the store that the settings name. A file is made only if `make` says so."""
        opened = ConnectedStore.observed(await open_store(settings, create=make), settings, NullEvents())
        try:
            yield cls(opened.store, settings)
        finally:
            await opened.close()
