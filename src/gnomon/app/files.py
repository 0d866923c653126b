"""Reading files: jobs, and the configuration of other schedulers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gnomon.adapters.files import (
    read_job_schedules,
    read_jobs_with_positions,
    read_manifest,
    read_text,
)
from gnomon.adapters.files import read_jobs as read_complete_jobs
from gnomon.adapters.host import SystemClock
from gnomon.app.settings import schedule_defaults
from gnomon.config.settings import Settings
from gnomon.core.jobs.job import Job, read_job


def read_jobs_file(path: Path, settings: Settings | None = None, *, now: int, only_fires: bool = False) -> list[Job]:
    """The jobs of the file; JobsFileError for the first error. With `only_fires`, a job needs only its schedule."""
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
    """The jobs of the file, each with its definition as written; JobsFileError for the first error."""
    return read_jobs_with_positions(path, schedule_defaults(settings), now=now)


def read_declared_jobs(declared: Sequence[Mapping[str, Any]], settings: Settings, *, now: int) -> list[Job]:
    """The jobs that are declared beside their functions; FieldError for the first error."""
    return [read_job(definition, schedule_defaults(settings), now=now) for definition in declared]


def read_import_file(path: Path) -> str:
    """The text of another scheduler's file; FileError if it cannot be read."""
    return read_text(path)


def read_yaml_documents(name: str, text: str) -> list[Any]:
    """The documents of another scheduler's YAML; FileError if it cannot be parsed."""
    return read_manifest(name, text)
