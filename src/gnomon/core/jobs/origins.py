"""Where the definition of a job comes from: a file, a module, the API, a tool, or the command line.

An origin is stored as a text: its kind, and its name after a colon, as in `file:/etc/gnomon/jobs.yaml`. The origin of a
job that was registered before origins were stored is empty.
"""

from collections.abc import Sequence
from enum import StrEnum

from msgspec.structs import replace

from gnomon.core.jobs.job import Job


class OriginKind(StrEnum):
    """The kinds of places that definitions come from."""

    #: A jobs file that a scheduler watches.
    FILE = "file"
    #: Code that a scheduler imports or runs.
    IMPORT = "import"
    API = "api"
    #: A `gnomon jobs` command on the database itself.
    CLI = "cli"
    #: A `gnomon cron` command: programs add jobs by it, too.
    CRON = "cron"
    #: A tool that a model has called.
    MCP = "mcp"


#: Their authors have a shell of the machine anyway.
_ON_THE_MACHINE = (OriginKind.FILE, OriginKind.IMPORT, OriginKind.CLI)


def origin_of_file(path: str) -> str:
    """The origin of the jobs of a watched file."""
    return f"{OriginKind.FILE}:{path}"


def file_of_origin(origin: str) -> str | None:
    """The path of the file that the jobs of this origin come from; None if they come from no file."""
    kind, _, path = origin.partition(":")
    return path if kind == OriginKind.FILE else None


def origin_of_module(module: str) -> str:
    """The origin of the jobs that importing this module declares."""
    return f"{OriginKind.IMPORT}:{module}"


def declares(origin: str) -> bool:
    """Whether its jobs are declared again at each start, so that one which is missing is not wanted any more."""
    return origin.partition(":")[0] in (OriginKind.FILE, OriginKind.IMPORT)


def on_the_machine(origin: str) -> bool:
    """Whether only a person with a shell of the machine can have written the definition."""
    return origin.partition(":")[0] in _ON_THE_MACHINE


def kept_origin(current: str, given: str, *, changed: bool) -> str:
    """The origin of commands that are stored with one origin, and that another one now defines in the same words.

    A place on the machine takes over a definition that came from another one. The other way round, a request takes
    over a job that it changes in any other respect; one that only repeats a job takes nothing.
    """
    if on_the_machine(current) == on_the_machine(given):
        return current
    return given if changed or on_the_machine(given) else current


def with_origin(jobs: Sequence[Job], origin: str) -> list[Job]:
    """The jobs as definitions of this origin."""
    return [
        replace(job, spec=replace(job.spec, origin=origin), workflow=replace(job.workflow, origin=origin))
        for job in jobs
    ]


def origin_text(origin: str) -> str:
    """The origin as people read it."""
    kind, _, name = origin.partition(":")
    return f"{kind} {name}".rstrip() if origin else "unknown"
