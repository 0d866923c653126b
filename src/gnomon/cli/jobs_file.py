"""Reading the schedules out of a jobs file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnomon.core.cron import Cron, Dst
from gnomon.core.parsing import parse_schedule
from gnomon.core.triggers import At, Every
from gnomon.errors import CronError, UsageError


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
        return yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise JobsFileError(file, "", f"cannot be read: {error}") from None
    except yaml.YAMLError as error:
        raise JobsFileError(file, "", f"is not YAML: {error}") from None


def _job(file: Path, place: str, job: object) -> ScheduledJob:
    if not isinstance(job, dict):
        raise JobsFileError(file, place, "must be a mapping")
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
        shown = "is missing" if key not in job else f"must be a text, not {value!r}"
        raise JobsFileError(file, f"{place}.{key}", shown)
    return value
