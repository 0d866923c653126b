"""Reading the schedules out of a jobs file."""

from dataclasses import dataclass
from datetime import date
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnomon.core.cron import Cron, Dst
from gnomon.core.parsing import parse_schedule
from gnomon.core.triggers import At, Every
from gnomon.errors import CronError, UsageError

if TYPE_CHECKING:
    from yaml import MarkedYAMLError

#: All that a job may say. Most of it is for those who run it; a misspelt key must not be lost in silence.
_KEYS = (
    *"name description schedule timezone dst start_at end_at jitter catchup overlap enabled".split(),
    *"function input input_schema timeout retry lock dead_letter delivery retention tags dag".split(),
)


class JobsFileError(UsageError):
    """A jobs file was refused: which file, which place in it, and why."""

    code = "bad_jobs_file"

    def __init__(self, file: Path, place: str, reason: str) -> None:
        super().__init__(f"{file}: {place}: {reason}" if place else f"{file}: {reason}")
        self.file, self.place, self.reason = file, place, reason


@dataclass(frozen=True, slots=True)
class ScheduledJob:
    """A job's name and when it fires."""

    name: str
    trigger: Cron | Every | At


def read_jobs(file: Path) -> list[ScheduledJob]:
    """Every job of the file, or JobsFileError for the first that is wrong."""
    jobs = _loaded(file)
    if not isinstance(jobs, dict) or not isinstance(jobs.get("jobs"), list):
        raise JobsFileError(file, "", 'must be a mapping with a list under "jobs"')
    found: dict[str, ScheduledJob] = {}
    for index, job in enumerate(jobs["jobs"]):
        scheduled = _job(file, f"jobs[{index}]", job)
        if scheduled.name in found:
            raise JobsFileError(file, f"jobs[{index}].name", f'"{scheduled.name}" is already the name of another job')
        found[scheduled.name] = scheduled
    return list(found.values())


def _loaded(file: Path) -> Any:  # noqa: ANN401 - what YAML gives is not known before it is checked
    import yaml

    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise JobsFileError(file, "", f"cannot be read: {error}") from None
    try:
        return yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        raise JobsFileError(file, *_place_and_reason(error, text)) from None
    except yaml.YAMLError as error:
        raise JobsFileError(file, "", f"is not YAML: {' '.join(str(error).split())}") from None
    except ValueError as error:
        why = str(error).partition(":")[0]
        reason = f"has a value that YAML takes for a date or a number, but that is none ({why}): quote it"
        raise JobsFileError(file, "", reason) from None
    except RecursionError:
        raise JobsFileError(file, "", "is nested too deeply") from None


def _place_and_reason(error: "MarkedYAMLError", text: str) -> tuple[str, str]:
    mark = error.problem_mark or error.context_mark
    place = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    marks = [mark.index for mark in (error.problem_mark, error.context_mark) if mark]
    special = next((text[index] for index in marks if text[index : index + 1] in ("@", "*", "`", "%")), None)
    hint = f": a value that begins with {special} must be quoted" if special else ""
    return place, f"is not YAML: {error.problem or error.context}{hint}"


def _job(file: Path, place: str, job: object) -> ScheduledJob:
    if not isinstance(job, dict):
        raise JobsFileError(file, place, "must be a mapping")
    for key in job:
        if key not in _KEYS:
            near = get_close_matches(str(key), _KEYS, n=1)
            hint = f", did you mean {near[0]}?" if near else f"; known are {', '.join(_KEYS)}"
            raise JobsFileError(file, f"{place}.{key}", f"is not known{hint}")
    name = _text(file, place, job, "name")
    text = _text(file, place, job, "schedule")
    zone = _text(file, place, job, "timezone") if "timezone" in job else None
    try:
        dst = Dst(**job["dst"]) if "dst" in job else None
        return ScheduledJob(name, parse_schedule(text, timezone=zone, dst=dst))
    except CronError as error:
        raise JobsFileError(file, f"{place} ({name})", str(error)) from None
    except TypeError:
        raise JobsFileError(file, f"{place}.dst", "must be a mapping with gap and fold") from None


def _text(file: Path, place: str, job: dict[object, object], key: str) -> str:
    value = job.get(key)
    if not isinstance(value, str) or not value:
        given = f"{value}: quote it" if isinstance(value, date) else repr(value)
        raise JobsFileError(file, f"{place}.{key}", f"must be a text, not {given}" if key in job else "is missing")
    return value
