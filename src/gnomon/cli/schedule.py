"""`gnomon schedule`: the coming fires of many jobs on one time line."""

import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from heapq import merge
from itertools import islice
from pathlib import Path

from gnomon.cli.jobs_file import ScheduledJob, read_jobs
from gnomon.cli.output import Format, in_zone, print_data, print_table
from gnomon.core.cron import Cron
from gnomon.core.triggers import Every, fire_times


@dataclass(frozen=True, slots=True)
class Upcoming:
    """The next fires of some jobs, earliest first."""

    jobs: int
    until: datetime
    fires: tuple[tuple[datetime, ScheduledJob], ...]
    more: bool


def upcoming(file: Path, *, now: datetime, hours: int, limit: int) -> Upcoming:
    """The fires of the next hours, `limit` at most."""
    jobs = [_started(job, now) for job in read_jobs(file)]
    until = _later(now, hours)
    lines = [
        [(fire, job) for fire in islice(fire_times(job.trigger, after=now, until=until), limit + 1)] for job in jobs
    ]
    fires = tuple(islice(merge(*lines, key=lambda line: line[0]), limit + 1))
    return Upcoming(len(jobs), until, fires[:limit], more=len(fires) > limit)


def show(found: Upcoming, form: Format) -> None:
    """Print the fires."""
    if form is not Format.TABLE:
        print_data([_as_data(fire, job) for fire, job in found.fires], form)
        return
    if not found.fires:
        sys.stdout.write(f"{found.jobs} jobs, none of which fires before {found.until:%Y-%m-%d %H:%M UTC}\n")
        return
    rows = [
        [f"{fire:%a %Y-%m-%d %H:%M:%S}", _local(fire, job), job.name, job.trigger.describe()]
        for fire, job in found.fires
    ]
    print_table(["utc", "local", "job", "schedule"], rows)
    if found.more:
        sys.stdout.write("... and more: -n shows a longer list, --hours looks further\n")


def _later(now: datetime, hours: int) -> datetime:
    try:
        return now + timedelta(hours=hours)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def _started(job: ScheduledJob, now: datetime) -> ScheduledJob:
    """The job as if it were registered now: an interval counts from its registration."""
    return ScheduledJob(job.name, job.trigger.anchored(now)) if isinstance(job.trigger, Every) else job


def _zone(job: ScheduledJob) -> str:
    return job.trigger.timezone if isinstance(job.trigger, Cron) else "UTC"


def _local(fire: datetime, job: ScheduledJob) -> str:
    return f"{in_zone(fire, _zone(job)):%a %H:%M %Z}"


def _as_data(fire: datetime, job: ScheduledJob) -> dict[str, object]:
    return {
        "job": job.name,
        "utc": fire.isoformat(),
        "local": in_zone(fire, _zone(job)).isoformat(),
        "timezone": _zone(job),
        "schedule": job.trigger.describe(),
    }
