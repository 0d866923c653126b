"""`gnomon simulate`: the jobs of a file on a clock of their own, and what there is to see."""

import asyncio
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from msgspec import Struct

from gnomon.cli.jobs import read_files
from gnomon.cli.offices import Where, in_office
from gnomon.cli.output import Format, print_data
from gnomon.cli.simulated import as_data, print_report
from gnomon.core.cron import Cron, known_zone
from gnomon.core.cron.clock_changes import clock_changes
from gnomon.core.durations import duration_ms
from gnomon.core.instants import instant_of, ms_of
from gnomon.core.jobs.job import Job
from gnomon.core.model import DAY_MS, RunStatus
from gnomon.core.time_expressions import outages
from gnomon.errors import FieldError
from gnomon.office import Office
from gnomon.settings import Settings
from gnomon.testing.loads import Loads, OddDay, Simulated
from gnomon.testing.rehearsal import Rehearsal

#: From how many of the newest runs of a job it is told how long they last.
_RUNS = 100
_LONGEST_MS = 366 * DAY_MS


class Wanted(Struct, frozen=True, kw_only=True):
    """What was typed."""

    files: list[Path]
    where: Where
    days: int
    start_at: int
    zone: str
    durations: tuple[str, ...] = ()
    durations_from: str | None = None
    outages: tuple[str, ...] = ()


def simulated(wanted: Wanted) -> Simulated:
    """What the rehearsal of the files has shown. A progress bar tells whoever waits at a terminal how far it is."""
    known_zone(wanted.zone)
    until = wanted.start_at + wanted.days * DAY_MS
    pretended = outages(wanted.outages, zone=wanted.zone, after=wanted.start_at, until=until, field="--outage")
    jobs = read_files(wanted.files, wanted.where, now=wanted.start_at)
    given, usual = _given(wanted.durations, jobs)
    recorded = {} if wanted.durations_from is None else _recorded(wanted.durations_from, wanted.where, jobs)
    said = dict.fromkeys((job.name for job in jobs), usual) | recorded | given
    allowed = dict(_allowed(jobs, wanted.where.settings()))
    durations = {name: min(lasts, allowed.get(name, lasts)) for name, lasts in said.items()}
    rehearsal = Rehearsal(jobs, start_at=wanted.start_at, zone=wanted.zone)

    async def played(progress: Callable[[int], None]) -> Loads:
        return await rehearsal.run(until, durations=durations, outages=pretended, progress=progress)

    with _progress(wanted.start_at, until) as progress:
        loads = asyncio.run(played(progress))
    return Simulated(
        from_at=wanted.start_at,
        until_at=until,
        loads=loads,
        resting=tuple(job.name for job in jobs if not job.enabled),
        odd_days=tuple(_odd_days(jobs, wanted.start_at, until)),
        ended_early={name: lasts for name, lasts in said.items() if lasts > durations[name]},
    )


def show(found: Simulated, form: Format) -> None:
    """Print it."""
    if form is Format.TABLE:
        print_report(found)
    else:
        print_data(as_data(found), form)


def _given(said: Sequence[str], jobs: Sequence[Job]) -> tuple[dict[str, int], int]:
    """How long the runs of each named job last, and those of all others."""
    found, usual, names = dict[str, int](), 0, {job.name for job in jobs}
    for text in said:
        name, equals, span = text.rpartition("=")
        lasts = duration_ms("--duration", span.strip(), high=_LONGEST_MS)
        if not equals:
            usual = lasts
        elif name.strip() not in names:
            raise FieldError("--duration", name.strip(), "is no job of the file")
        else:
            found[name.strip()] = lasts
    return found, usual


def _recorded(database: str, where: Where, jobs: Sequence[Job]) -> dict[str, int]:
    """How long the runs of each job lasted that ended well: as long as half of them, at most."""

    async def work(office: Office) -> dict[str, int]:
        found = {}
        for job in jobs:
            runs = await office.executions.page(job=job.name, status=RunStatus.COMPLETED, limit=_RUNS)
            lasted = [one.completed_at - one.started_at for one in runs if one.completed_at and one.started_at]
            if lasted:
                found[job.name] = max(0, round(median(lasted)))
        return found

    return in_office(Where(database, where.config), work)


def _allowed(jobs: Sequence[Job], settings: Settings) -> Iterator[tuple[str, int]]:
    """How long runs of jobs with one step may last before their timeout ends them."""
    for job in jobs:
        if job.workflow.lone:
            [step] = job.workflow.steps
            usual = settings.shell.timeout_ms if step.is_command else settings.execution.default_timeout_ms
            yield job.name, step.timeout_ms or usual


def _odd_days(jobs: Sequence[Job], start_at: int, until: int) -> Iterator[OddDay]:
    """The clock changes that some job notices, oldest first, with what they do to whom."""
    found: dict[tuple[int, str, str], list[str]] = {}
    for job in jobs:
        if job.enabled and isinstance(job.spec.trigger, Cron):
            for change in clock_changes(job.spec.trigger, after=instant_of(start_at), until=instant_of(until)):
                if change.effect != "none":
                    key = ms_of(change.at), job.spec.trigger.timezone, change.describe()
                    found.setdefault(key, []).append(job.name)
    for (at, zone, what), names in sorted(found.items()):
        yield OddDay(at=at, zone=zone, what=what, jobs=tuple(names))


@contextmanager
def _progress(start_at: int, until: int) -> Iterator[Callable[[int], None]]:
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("simulating {task.fields[day]}"), BarColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        shown = bar.add_task("", total=until - start_at, day="")
        yield lambda now: bar.update(shown, completed=now - start_at, day=f"{instant_of(now):%Y-%m-%d}")
