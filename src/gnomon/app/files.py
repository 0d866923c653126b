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
from gnomon.core.jobs.origins import origin_of_module, with_origin
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.errors import DeclaredJobError, FieldError
from gnomon.runners.registry import DeclaredJob

#: The name in errors of a file of which there is only the text.
_PASTED = "jobs file"


def read_jobs_file(
    path: Path,
    settings: Settings | None = None,
    *,
    now: int,
    guarded: bool = False,
    content: bytes | None = None,
) -> list[Job]:
    """The jobs of the file; JobsFileError for the first error.

    With `guarded` a file that others may write to is refused: its jobs are about to be registered. `content` is that of
    the file, if it has been read already.
    """
    return read_complete_jobs(
        path, schedule_defaults(settings or Settings()), now=now, guarded=guarded, content=content
    )


def read_schedules_of_file(path: Path, *, now: int) -> list[Job]:
    """The jobs of the file, of which only the schedules need be complete; JobsFileError for the first error."""
    return read_job_schedules(path, schedule_defaults(Settings()), now=now)


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
    return [read_job(definition, schedule_defaults(settings), now=now) for definition in source]


def read_jobs_with_source(
    path: Path, settings: Settings, *, now: int, guarded: bool, content: bytes | None = None
) -> list[tuple[Job, dict[str, Any]]]:
    """The jobs of the file, each with its definition as written; see read_jobs_file."""
    return read_jobs_with_positions(path, schedule_defaults(settings), now=now, guarded=guarded, content=content)


def read_jobs_text(text: str, now: int, *, settings: Settings) -> list[dict[str, Any]]:
    """The definitions of the jobs of a file with this text, as written; JobsFileError names the lines of mistakes."""
    found = read_jobs_with_source(Path(_PASTED), settings, now=now, guarded=False, content=text.encode())
    return [definition for _, definition in found]


def read_declared_jobs(declared: Sequence[DeclaredJob], settings: Settings, *, now: int) -> list[Job]:
    """The jobs that are declared beside their functions; DeclaredJobError for the first error."""
    return [_read_declared(one, schedule_defaults(settings), now) for one in declared]


def _read_declared(declared: DeclaredJob, defaults: Defaults, now: int) -> Job:
    try:
        job = read_job(declared.definition, defaults, now=now)
    except FieldError as error:
        raise DeclaredJobError(declared.definition["name"], declared.place, error) from None
    [read] = with_origin([job], origin_of_module(declared.module))
    return read


def read_import_file(path: Path) -> str:
    """The text of another scheduler's file; FileError if it cannot be read."""
    return read_text(path)


def read_yaml_documents(name: str, text: str) -> list[Any]:
    """The documents of another scheduler's YAML; FileError if it cannot be parsed."""
    return read_manifest(name, text)
