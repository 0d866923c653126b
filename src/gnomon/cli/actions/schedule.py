"""`gnomon schedule`: the coming fires of all jobs in order of time."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from heapq import merge
from itertools import islice
from pathlib import Path

from gnomon.app.files import read_schedules_of_file
from gnomon.cli.output import Format, print_data, print_table
from gnomon.cli.target import Target, echo, send
from gnomon.client import requests
from gnomon.core.cron import Cron
from gnomon.core.explain.phrases import pluralized
from gnomon.core.instants import in_zone, instant_of, ms_of
from gnomon.core.jobs.job import Job
from gnomon.core.ledger.ticks import Ticks
from gnomon.core.responses.jobs import PlannedFire


@dataclass(frozen=True, slots=True)
class UpcomingFires:
    """The next fires of some jobs, earliest first."""

    jobs: int
    until: datetime
    fires: tuple[tuple[datetime, Job], ...]
    more: bool


def upcoming(file: Path, *, now: datetime, hours: int, limit: int) -> UpcomingFires:
    """The fires of the next hours, `limit` at most."""
    jobs = read_schedules_of_file(file, now=ms_of(now))
    until = _later(now, hours)
    lines = [[(fire, job) for fire in islice(_fires(job, now, until), limit + 1)] for job in jobs]
    fires = tuple(islice(merge(*lines, key=lambda line: line[0]), limit + 1))
    return UpcomingFires(len(jobs), until, fires[:limit], more=len(fires) > limit)


def show(found: UpcomingFires, form: Format) -> None:
    """Print the fires."""
    if form is not Format.TABLE:
        print_data([_as_data(fire, job) for fire, job in found.fires], form)
        return
    if not found.fires:
        sys.stdout.write(
            f"{pluralized(found.jobs, 'job')}, none of which fires before {found.until:%Y-%m-%d %H:%M UTC}\n"
        )
        return
    rows = [
        [f"{fire:%a %Y-%m-%d %H:%M:%S}", _local(fire, job), job.name, job.spec.trigger.describe()]
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


def _fires(job: Job, now: datetime, until: datetime) -> Iterator[datetime]:
    """The planned times of the job up to `until`; none if it is not enabled."""
    ticks = Ticks(job.name, job.spec)
    planned = ticks.after(ms_of(now)) if job.enabled else None
    while planned is not None and instant_of(planned) <= until:
        yield instant_of(planned)
        planned = ticks.after(planned)


def _zone(job: Job) -> str:
    return job.spec.trigger.timezone if isinstance(job.spec.trigger, Cron) else "UTC"


def _local(fire: datetime, job: Job) -> str:
    return f"{in_zone(fire, _zone(job)):%a %H:%M %Z}"


def _as_data(fire: datetime, job: Job) -> dict[str, object]:
    return {
        "job": job.name,
        "utc": fire.astimezone(UTC),
        "local": in_zone(fire, _zone(job)).isoformat(),
        "timezone": _zone(job),
        "schedule": job.spec.trigger.describe(),
    }


def show_upcoming(target: Target, form: Format, *, since: datetime, hours: int, limit: int) -> None:
    """Print the fires of registered jobs in the hours after `since`, `limit` at most."""
    found = send(target, requests.planned(hours=hours, since=since, page=limit + 1)).items
    fires = found[:limit]
    if form is not Format.TABLE:
        print_data(fires, form)
        return
    if not fires:
        echo(f"nothing fires before {since + timedelta(hours=hours):%Y-%m-%d %H:%M UTC}")
        return
    print_table(["utc", "local", "job", "schedule"], [_row(fire) for fire in fires])
    if len(found) > limit:
        echo("... and more: -n shows a longer list, --hours looks further")


def _row(fire: PlannedFire) -> list[str]:
    local = in_zone(fire.utc, fire.timezone)
    return [f"{fire.utc:%a %Y-%m-%d %H:%M:%S}", f"{local:%a %H:%M %Z}", fire.job, fire.schedule]
