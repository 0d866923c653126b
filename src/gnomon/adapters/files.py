"""Files: jobs files, configuration, pool tables, and YAML manifests of other programs.

Errors name the file, the line and the field. A file is opened once and checked through that handle; its size is
limited.
"""

import hashlib
import os
import stat
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

import yaml

from gnomon.adapters.host import gc_paused
from gnomon.adapters.yaml_parser import YamlDocumentError, YamlNode, compose
from gnomon.core.jobs.fields import key_text
from gnomon.core.jobs.job import JOB_FIELDS, Job, read_job, read_job_timing
from gnomon.core.jobs.routing_fields import read_pools
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.runs.routing import Pools
from gnomon.errors import CronError, FieldError, FileError, JobsFileError

_DEEPEST = 64


class _Loader(yaml.SafeLoader):
    """Loads plain data without aliases: an alias could make a small file a very large one."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:  # noqa: ANN401 - as the library has it
        """See the library."""
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        if self.check_event(yaml.AliasEvent):
            raise yaml.MarkedYAMLError(problem="has an alias, and none is read here", problem_mark=mark)
        self.depth += 1
        if self.depth > _DEEPEST:
            raise yaml.MarkedYAMLError(problem=f"is nested more than {_DEEPEST} deep", problem_mark=mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def read_manifest(name: str, text: str) -> list[Any]:
    """The documents of the text; FileError names the line that is not YAML."""
    try:
        return list(yaml.load_all(text, _Loader))
    except yaml.MarkedYAMLError as error:
        _refuse(name, error)
    except (yaml.YAMLError, ValueError, OverflowError, TypeError) as error:
        raise FileError(name, f"is no YAML: {error}") from None


def _refuse(name: str, error: yaml.MarkedYAMLError) -> NoReturn:
    mark = error.problem_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (None, None)
    raise FileError(name, f"is no YAML: {error.problem}", line=line, column=column) from None


_LARGEST_FILE = 8 * 2**20
#: Fields in which a date need not be quoted.
_INSTANTS = ("at", "start_at", "end_at", "delay_until")


class JobsFile:
    """The jobs of a file as plain data, with the position of each key and value."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._root = compose_file(path, JobsFileError, instants=_INSTANTS, showing=True)
        self._check_top()
        #: Each job as plain data.
        self.mappings: list[dict[str, Any]] = [job.to_data() for job in self._entries()]

    def jobs(self, read: Callable[[Mapping[str, Any]], Job]) -> list[Job]:
        """All jobs, each converted by `read`; JobsFileError for the first that is wrong."""
        found: dict[str, Job] = {}
        for index, fields in enumerate(self.mappings):
            self._check_keys(index, fields)
            job = self._read(index, fields, read)
            if job.name in found:
                first = self._root.position_of(f"jobs[{list(found).index(job.name)}].name").line
                reason = f'"{job.name}" is already the name of another job, in line {first}'
                self._refuse(reason, f"jobs[{index}].name")
            found[job.name] = job
        return list(found.values())

    def _read(self, index: int, fields: Mapping[str, Any], read: Callable[[Mapping[str, Any]], Job]) -> Job:
        try:
            return read(fields)
        except FieldError as error:
            self._refuse(error_sentence(error), f"jobs[{index}].{error.field}")
        except CronError as error:
            line, column = self._root.position_of(f"jobs[{index}].schedule")
            job = f"jobs[{index}] ({fields['name']})"
            raise JobsFileError(self.path, str(error), line=line, column=column, field=job) from None

    def _check_keys(self, index: int, fields: Mapping[str, Any]) -> None:
        for key in fields:
            if key not in JOB_FIELDS:
                near = get_close_matches(str(key), JOB_FIELDS, n=1)
                hint = f", did you mean {near[0]}?" if near else f"; known are {', '.join(JOB_FIELDS)}"
                self._refuse(f"is not known{hint}", f"jobs[{index}].{key_text(key)}")

    def _check_top(self) -> None:
        top = self._root.value
        for key in top if isinstance(top, dict) else ():
            if key != "jobs":
                near = get_close_matches(str(key), ["jobs"])
                self._refuse("is not known" + (", did you mean jobs?" if near else ""), key_text(key))
        if not isinstance(top, dict) or "jobs" not in top or not isinstance(top["jobs"][1].value, list):
            self._refuse('must be a mapping with a list under "jobs"', "")
        for index, job in enumerate(self._entries()):
            if not isinstance(job.value, dict):
                self._refuse("must be a mapping", f"jobs[{index}]")

    def _entries(self) -> list[YamlNode]:
        entries: list[YamlNode] = self._root.value["jobs"][1].value
        return entries

    def _refuse(self, reason: str, field: str) -> NoReturn:
        line, column = self._root.position_of(field)
        raise JobsFileError(self.path, reason, line=line, column=column, field=field)


def read_jobs(path: Path, defaults: Defaults, *, now: int) -> list[Job]:
    """Every job of the file; JobsFileError names the file, the line and the field of the first that is wrong."""
    with gc_paused():
        return JobsFile(path).jobs(lambda fields: read_job(fields, defaults, now=now))


def read_jobs_with_positions(path: Path, defaults: Defaults, *, now: int) -> list[tuple[Job, dict[str, Any]]]:
    """Every job of the file, each with its fields as written; raises as read_jobs does."""
    with gc_paused():
        file = JobsFile(path)
        return list(zip(file.jobs(lambda fields: read_job(fields, defaults, now=now)), file.mappings, strict=True))


def read_job_schedules(path: Path, defaults: Defaults, *, now: int) -> list[Job]:
    """Every job of the file; of a job that is not complete, only its name and when it fires."""
    with gc_paused():
        return JobsFile(path).jobs(lambda fields: read_job_timing(fields, defaults, now=now))


def read_mapping(path: Path) -> Mapping[str, Any]:
    """The content of a configuration file; FileError if it is not a mapping."""
    root = compose_file(path, FileError, guarded=True)
    if root.value is None:
        return {}
    if not isinstance(root.value, dict):
        raise FileError(path, "must be a mapping of sections", line=root.place.line, column=root.place.column)
    data: Mapping[str, Any] = root.to_data()
    return data


def read_text(path: Path) -> str:
    """The text of any other file; FileError if it cannot be read."""
    try:
        return _content(path).decode()
    except (OSError, UnicodeDecodeError) as problem:
        raise FileError(path, f"cannot be read: {_why(problem)}") from None


def error_sentence(error: FieldError) -> str:
    """The error as a clause that follows the name of the field."""
    value = str(error).removeprefix(f"{error.field}: ").removesuffix(f" {error.reason}")
    if error.reason == "is missing":
        return error.reason
    return f"{error.reason}, not {value}" if error.reason.startswith("must be") else f"{value} {error.reason}"


def compose_file(
    path: Path,
    error: Callable[..., FileError],
    *,
    instants: Collection[str] = (),
    showing: bool = False,
    guarded: bool = False,
) -> YamlNode:
    """The content of a file with the position of each key and value; raises `error` if it cannot be read.

    A `guarded` file is one that grants permissions: it is refused if it is writable by everybody.
    """
    try:
        return compose(_content(path, guarded=guarded).decode(), instants=instants, showing=showing)
    except (OSError, UnicodeDecodeError) as problem:
        raise error(path, f"cannot be read: {_why(problem)}") from None
    except YamlDocumentError as refusal:
        line, column = refusal.place or (None, None)
        raise error(path, refusal.reason, line=line, column=column, field=refusal.path) from None


def file_digest(path: Path) -> str:
    """A text that changes when the content of the file changes, or the reason why it cannot be read."""
    try:
        return hashlib.sha256(_content(path)).hexdigest()
    except OSError as problem:
        return _why(problem)


def _content(path: Path, *, guarded: bool = False) -> bytes:
    """The content of the file, checked and read through one handle, so that it cannot be swapped in between."""
    with open(path, "rb", opener=_opened) as file:
        mode = os.fstat(file.fileno()).st_mode
        if not stat.S_ISREG(mode):
            raise OSError("it is no regular file")
        if guarded and mode & stat.S_IWOTH:
            raise OSError(f"everybody may write to it: chmod o-w {path}")
        content = file.read(_LARGEST_FILE + 1)
    if len(content) > _LARGEST_FILE:
        raise OSError(f"it has more than {_LARGEST_FILE // 2**20} MiB")
    return content


def _opened(path: str, flags: int) -> int:
    # Opening a pipe without a writer must not block.
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def _why(problem: OSError | UnicodeDecodeError) -> str:
    if isinstance(problem, UnicodeDecodeError):
        return f"it is not UTF-8 at byte {problem.start}"
    return problem.strerror or str(problem)


def read_pools_file(path: Path) -> Pools:
    """The pool table in the file; FileError names the file, the line and the field of the first error."""
    root = compose_file(path, FileError, showing=True)
    try:
        return read_pools(root.to_data())
    except FieldError as error:
        line, column = root.position_of(error.field)
        raise FileError(path, error_sentence(error), line=line, column=column, field=error.field) from None
