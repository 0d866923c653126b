"""Files: jobs files, configuration, pool tables, and YAML manifests of other programs.

Errors name the file, the line and the field. Files that grant permissions are guarded: see guarded_files.py.
"""

import hashlib
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NoReturn

import yaml

from gnomon.adapters.guarded_files import read_file
from gnomon.adapters.host import gc_paused
from gnomon.adapters.yaml_parser import YamlDocumentError, YamlNode, compose
from gnomon.core.jobs.fields import key_text
from gnomon.core.jobs.job import JOB_FIELDS, Job, read_job, read_job_timing
from gnomon.core.jobs.mistakes import mistakes
from gnomon.core.jobs.routing_fields import read_pools
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.jobs.synonyms import NO_FIELD, unknown_field
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
    except (yaml.YAMLError, ValueError, ArithmeticError, TypeError, LookupError, AttributeError) as error:
        # The parser fails with any of these if a tag does not fit its value, such as `!!int ''`.
        raise FileError(name, f"is no YAML: {error}") from None


def _refuse(name: str, error: yaml.MarkedYAMLError) -> NoReturn:
    mark = error.problem_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (None, None)
    raise FileError(name, f"is no YAML: {error.problem}", line=line, column=column) from None


_LARGEST_FILE = 8 * 2**20
#: After so many mistakes, the rest of a file is not looked at.
_MOST_MISTAKES = 100
#: Fields in which a date need not be quoted.
_INSTANTS = ("at", "start_at", "end_at", "delay_until")
#: The paths of fields that are true or false.
_FLAGS = re.compile(r"jobs\[[0-9]+\]\.(?:enabled|lock|dead_letter|delete_after_run|on\.each)")


class JobsFile:
    """The jobs of a file as plain data, with the position of each key and value."""

    def __init__(self, path: Path, *, guarded: bool = False, content: bytes | None = None) -> None:
        """`content` is that of the file, if it has been read already."""
        self.path = path
        self._root = compose_file(
            path, JobsFileError, guarded=guarded, instants=_INSTANTS, flags=_FLAGS, showing=True, content=content
        )
        self._check_top()
        #: Each job as plain data.
        self.mappings: list[dict[str, Any]] = [job.to_data() for job in self._entries()]

    def jobs(self, read: Callable[[Mapping[str, Any]], Job]) -> list[Job]:
        """All jobs, each converted by `read`; JobsFileError if any is wrong, with all mistakes of the file."""
        found: dict[str, Job] = {}
        places: dict[str, int] = {}
        wrong: list[JobsFileError] = []
        for index, fields in enumerate(self.mappings):
            if len(wrong) >= _MOST_MISTAKES:
                break
            name = fields.get("name")
            if isinstance(name, str) and places.setdefault(name, index) != index:
                line = self._root.position_of(f"jobs[{places[name]}].name").line
                reason = f'"{name}" is already the name of another job, in line {line}'
                wrong.append(self._error(reason, f"jobs[{index}].name"))
            try:
                self._check_keys(index, fields)
                job = read(fields)
            except (FieldError, JobsFileError, CronError):
                wrong += self._mistakes(index, fields, read)
            else:
                found[job.name] = job
        if wrong:
            first, *others = wrong
            first.add(others)
            raise first
        return list(found.values())

    def _mistakes(
        self, index: int, fields: Mapping[str, Any], read: Callable[[Mapping[str, Any]], Job]
    ) -> list[JobsFileError]:
        """The errors of a job that is wrong, by their position."""
        known = {key: value for key, value in fields.items() if key in JOB_FIELDS}
        found = [self._unknown_key(index, key) for key in fields if key not in known]
        try:
            errors = mistakes(known, read)
        except CronError as error:
            line, column = self._root.position_of(f"jobs[{index}].schedule")
            job = f"jobs[{index}] ({fields['name']})"
            found.append(JobsFileError(self.path, str(error), line=line, column=column, field=job))
        else:
            found += [self._error(error_sentence(one), f"jobs[{index}].{one.field}") for one in errors]
        return sorted(found, key=lambda error: (error.line or 0, error.column or 0))

    def _check_keys(self, index: int, fields: Mapping[str, Any]) -> None:
        for key in fields:
            if key not in JOB_FIELDS:
                raise self._unknown_key(index, key)

    def _unknown_key(self, index: int, key: object) -> JobsFileError:
        reason = unknown_field(key, JOB_FIELDS)
        known = f"; known are {', '.join(JOB_FIELDS)}" if reason == NO_FIELD else ""
        return self._error(reason + known, f"jobs[{index}].{key_text(key)}")

    def _check_top(self) -> None:
        top = self._root.value
        for key in top if isinstance(top, dict) else ():
            if key != "jobs":
                self._refuse(unknown_field(key, ["jobs"]), key_text(key))
        if not isinstance(top, dict) or "jobs" not in top or not isinstance(top["jobs"][1].value, list):
            self._refuse('must be a mapping with a list under "jobs"', "")
        for index, job in enumerate(self._entries()):
            if not isinstance(job.value, dict):
                self._refuse("must be a mapping", f"jobs[{index}]")

    def _entries(self) -> list[YamlNode]:
        entries: list[YamlNode] = self._root.value["jobs"][1].value
        return entries

    def _refuse(self, reason: str, field: str) -> NoReturn:
        raise self._error(reason, field)

    def _error(self, reason: str, field: str) -> JobsFileError:
        line, column = self._root.position_of(field)
        return JobsFileError(self.path, reason, line=line, column=column, field=field)


def read_jobs(
    path: Path, defaults: Defaults, *, now: int, guarded: bool = False, content: bytes | None = None
) -> list[Job]:
    """Every job of the file; JobsFileError names the file, the line and the field of the first that is wrong.

    With `guarded` a file that others may write to is refused: its jobs are about to be registered. `content` is that of
    the file, if it has been read already.
    """
    with gc_paused():
        file = JobsFile(path, guarded=guarded, content=content)
        return file.jobs(lambda fields: read_job(fields, defaults, now=now))


def read_jobs_with_positions(
    path: Path, defaults: Defaults, *, now: int, guarded: bool, content: bytes | None = None
) -> list[tuple[Job, dict[str, Any]]]:
    """Every job of the file, each with its fields as written; raises as read_jobs does."""
    with gc_paused():
        file = JobsFile(path, guarded=guarded, content=content)
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


def read_text(path: Path, *, guarded: bool = False) -> str:
    """The text of any other file; FileError if it cannot be read, or is guarded and others may write to it."""
    try:
        return read_file(path, largest=_LARGEST_FILE, guarded=guarded).decode()
    except (OSError, UnicodeDecodeError) as problem:
        raise FileError(path, f"cannot be read: {_why(problem)}") from None


def error_sentence(error: FieldError) -> str:
    """The error as a clause that follows the name of the field."""
    value = str(error).removeprefix(f"{error.field}: ").removesuffix(f" {error.reason}")
    if error.reason == "is missing":
        return error.reason
    if not error.reason.startswith("must be"):
        return f"{value} {error.reason}"
    rule, mark, hint = error.reason.partition("; ")
    return f"{rule}, not {value}{mark}{hint}"


def compose_file(
    path: Path,
    error: Callable[..., FileError],
    *,
    guarded: bool,
    instants: Collection[str] = (),
    flags: re.Pattern[str] | None = None,
    showing: bool = False,
    content: bytes | None = None,
) -> YamlNode:
    """The content of a file with the position of each key and value; raises `error` if it cannot be read."""
    try:
        content = read_file(path, largest=_LARGEST_FILE, guarded=guarded) if content is None else content
        return compose(content.decode(), instants=instants, flags=flags, showing=showing)
    except (OSError, UnicodeDecodeError) as problem:
        raise error(path, f"cannot be read: {_why(problem)}") from None
    except YamlDocumentError as refusal:
        line, column = refusal.place or (None, None)
        raise error(path, refusal.reason, line=line, column=column, field=refusal.path) from None


def file_digest(path: Path) -> str:
    """A text that changes when the content of the file changes, or the reason why it cannot be read."""
    try:
        return hashlib.sha256(read_file(path, largest=_LARGEST_FILE, guarded=False)).hexdigest()
    except OSError as problem:
        return _why(problem)


def _why(problem: OSError | UnicodeDecodeError) -> str:
    if isinstance(problem, UnicodeDecodeError):
        return f"it is not UTF-8 at byte {problem.start}"
    return problem.strerror or str(problem)


def read_pools_file(path: Path) -> Pools:
    """The pool table in the file; FileError names the file, the line and the field of the first error."""
    root = compose_file(path, FileError, guarded=True, showing=True)
    try:
        return read_pools(root.to_data())
    except FieldError as error:
        line, column = root.position_of(error.field)
        raise FileError(path, error_sentence(error), line=line, column=column, field=error.field) from None
