"""`gnomon simulate`: run the jobs of a file on a simulated clock and report the load."""

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
from msgspec import Struct

from gnomon.app.operations import Operations
from gnomon.app.policy import jobs_held_by_file, jobs_held_by_policy
from gnomon.cli.actions.jobs import read_files
from gnomon.cli.output import (
    Format,
    format_duration,
    format_instant,
    format_iso,
    print_data,
    print_table,
    printable,
    supports_unicode,
)
from gnomon.cli.target import Target, echo, with_operations
from gnomon.config.settings import Settings
from gnomon.core.cron import Cron, known_zone
from gnomon.core.cron.clock_changes import clock_changes
from gnomon.core.durations import duration_ms, duration_text
from gnomon.core.explain.phrases import pluralized
from gnomon.core.instants import EPOCH, in_zone, instant_of, ms_of
from gnomon.core.jobs.job import Job
from gnomon.core.model import DAY_MS, Reason, RunStatus, TickKind
from gnomon.core.responses.policy import JobPolicy, StepRuling
from gnomon.core.time_expressions import outages
from gnomon.errors import FieldError, UsageError
from gnomon.testing.dry_run import (
    ClockChangeImpact,
    Collision,
    JobLoad,
    LoadReport,
    OutageImpact,
    ScheduleDryRun,
    SimulationReport,
)

#: The shades of the heat map, from the quietest hour to the busiest.
_SHADES, _PLAIN_SHADES = "·░▒▓█", ".:+*#"
#: The number of collisions in the text report, and of job names in each.
_SHOWN, _NAMES = 5, 8
#: The number of newest runs of a job from which its run time is taken.
_RUNS = 100
_LONGEST_MS = 366 * DAY_MS


class SimulateOptions(Struct, frozen=True, kw_only=True):
    """The arguments of `gnomon simulate`."""

    files: list[Path]
    target: Target
    days: int
    start_at: int
    zone: str
    durations: tuple[str, ...] = ()
    durations_from: str | None = None
    outages: tuple[str, ...] = ()
    #: The policy file by which the jobs are judged, or the database with the policy.
    policy: Path | None = None
    policy_from: str | None = None


def simulated(options: SimulateOptions) -> SimulationReport:
    """Simulate the jobs of the files and return the report; show a progress bar on a terminal."""
    known_zone(options.zone)
    if options.policy is not None and options.policy_from is not None:
        raise UsageError("--policy and --policy-from contradict each other: say one of them")
    until = options.start_at + options.days * DAY_MS
    down = outages(options.outages, zone=options.zone, after=options.start_at, until=until, field="--outage")
    jobs = read_files(options.files, options.target, now=options.start_at)
    given, usual = _parse_durations(options.durations, jobs)
    recorded = (
        {} if options.durations_from is None else _recorded_durations(options.durations_from, options.target, jobs)
    )
    expected = dict.fromkeys((job.name for job in jobs), usual) | recorded | given
    allowed = dict(_timeouts(jobs, options.target.settings()))
    durations = {name: min(lasts, allowed.get(name, lasts)) for name, lasts in expected.items()}
    held = _held_jobs(options, jobs)
    dry_run = ScheduleDryRun(jobs, start_at=options.start_at, zone=options.zone)

    async def run(progress: Callable[[int], None]) -> LoadReport:
        return await dry_run.run(until, durations=durations, outages=down, progress=progress)

    with _progress(options.start_at, until) as progress:
        loads = asyncio.run(run(progress))
    return SimulationReport(
        from_at=options.start_at,
        until_at=until,
        loads=loads,
        disabled_jobs=tuple(job.name for job in jobs if not job.enabled),
        odd_days=tuple(_find_clock_changes(jobs, options.start_at, until)),
        ended_early={name: lasts for name, lasts in expected.items() if lasts > durations[name]},
        held_jobs=tuple(held),
    )


def _held_jobs(options: SimulateOptions, jobs: Sequence[Job]) -> list[JobPolicy]:
    """The jobs of which the policy would hold back a step of the next run."""
    if options.policy is not None:
        return jobs_held_by_file(options.policy, jobs, now=options.start_at)
    if options.policy_from is None:
        return []
    target = Target(options.policy_from, options.target.config)
    return with_operations(target, lambda operations: jobs_held_by_policy(operations, jobs))


def _parse_durations(texts: Sequence[str], jobs: Sequence[Job]) -> tuple[dict[str, int], int]:
    """The run time of each named job in milliseconds, and that of all others."""
    found, usual, names = dict[str, int](), 0, {job.name for job in jobs}
    for text in texts:
        name, equals, span = text.rpartition("=")
        lasts = duration_ms("--duration", span.strip(), high=_LONGEST_MS)
        if not equals:
            usual = lasts
        elif name.strip() not in names:
            raise FieldError("--duration", name.strip(), "is no job of the file")
        else:
            found[name.strip()] = lasts
    return found, usual


def _recorded_durations(database: str, target: Target, jobs: Sequence[Job]) -> dict[str, int]:
    """The median run time of the newest completed runs of each job, in milliseconds."""

    async def work(operations: Operations) -> dict[str, int]:
        found = {}
        for job in jobs:
            runs = await operations.executions.page(job=job.name, status=RunStatus.COMPLETED, limit=_RUNS)
            lasted = [one.completed_at - one.started_at for one in runs if one.completed_at and one.started_at]
            if lasted:
                found[job.name] = max(0, round(median(lasted)))
        return found

    return with_operations(Target(database, target.config), work)


def _timeouts(jobs: Sequence[Job], settings: Settings) -> Iterator[tuple[str, int]]:
    """The timeout of each job that has a single step, or its deadline if that is shorter, in milliseconds."""
    for job in jobs:
        if job.workflow.is_single_step:
            [step] = job.workflow.steps
            usual = settings.shell.timeout_ms if step.is_command else settings.execution.default_timeout_ms
            spans = (step.timeout_ms or usual, job.workflow.deadline_ms, step.deadline_ms)
            yield job.name, min(one for one in spans if one is not None)


def _find_clock_changes(jobs: Sequence[Job], start_at: int, until: int) -> Iterator[ClockChangeImpact]:
    """The clock changes that affect a job, oldest first, with their effect and the affected jobs."""
    found: dict[tuple[int, str, str], list[str]] = {}
    for job in jobs:
        if job.enabled and isinstance(job.spec.trigger, Cron):
            for change in clock_changes(job.spec.trigger, after=instant_of(start_at), until=instant_of(until)):
                if change.effect != "none":
                    key = ms_of(change.at), job.spec.trigger.timezone, change.describe()
                    found.setdefault(key, []).append(job.name)
    for (at, zone, what), names in sorted(found.items()):
        yield ClockChangeImpact(at=at, zone=zone, what=what, jobs=tuple(names))


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


def show(found: SimulationReport, form: Format) -> None:
    """Print the report."""
    if form is Format.TABLE:
        print_report(found)
    else:
        print_data(as_data(found), form)


def print_report(found: SimulationReport) -> None:
    """Print the report as text."""
    loads = found.loads
    runs = sum(job.runs for job in loads.jobs.values())
    days = round((found.until_at - found.from_at) / 86_400_000)
    counts = f"{pluralized(len(loads.jobs), 'job')}, {pluralized(runs, 'run')}"
    echo(f"{pluralized(days, 'day')} from {format_instant(found.from_at, loads.zone)}: {counts}")
    if found.disabled_jobs:
        echo(printable(f"not enabled: {', '.join(found.disabled_jobs)}"))
    if runs:
        echo("")
        _print_heat(found)
    if not loads.jobs:
        return
    echo("")
    _print_jobs(loads)
    for lines in (
        _collisions(loads),
        _overlaps(loads),
        _ended_early(found),
        _outages(found),
        _clock_change_lines(found),
        _held_job_lines(found),
    ):
        printed = [printable(line) for line in lines]
        if printed:
            echo("\n".join(["", *printed]))


# ---- the heat map --------------------------------------------------------------------------------


def _print_heat(found: SimulationReport) -> None:
    loads, odd = found.loads, {_local_day(one.at, found.loads.zone) for one in found.odd_days}
    days = loads.days()
    most = max(max(hours) for hours in days.values())
    echo(f"{'':<16}0     6     12    18      runs")
    for day in range(min(days), max(days) + 1):
        hours = days.get(day, [0] * 24)
        text = "".join(_shade(count, most) for count in hours)
        date_shown = EPOCH.date() + timedelta(days=day)
        echo(f"{date_shown:%a %Y-%m-%d} {'*' if date_shown in odd else ' '}{text}  {sum(hours):>6}")
    shades = _SHADES if supports_unicode() else _PLAIN_SHADES
    few = pluralized(max(1, most // 5), "run")
    echo(f"{'':<16}{shades[0]} up to {few} in an hour, {shades[-1]} up to {most}; {loads.zone}")


def _shade(count: int, most: int) -> str:
    shades = _SHADES if supports_unicode() else _PLAIN_SHADES
    return shades[min(len(shades) - 1, count * len(shades) // (most + 1))] if count else " "


def _local_day(at: int, zone: str) -> date:
    return in_zone(instant_of(at), zone).date()


# ---- lines ---------------------------------------------------------------------------------------


def _print_jobs(loads: LoadReport) -> None:
    columns = ["job", "ticks", "runs", "skipped", "queued", "coalesced", "missed", "lasts"]
    rows = [
        [
            job.name,
            str(job.planned),
            str(job.runs),
            *(
                _count_text(job.of(kind))
                for kind in (TickKind.SKIPPED, TickKind.QUEUED, TickKind.COALESCED, TickKind.MISSED)
            ),
            format_duration(job.lasts_ms) if job.lasts_ms else "",
        ]
        for job in sorted(loads.jobs.values(), key=lambda job: (-job.runs, job.name))
    ]
    print_table(columns, rows)


def _count_text(count: int) -> str:
    return str(count) if count else ""


def _collisions(loads: LoadReport) -> Iterable[str]:
    if not loads.colliding_minutes:
        yield "no two jobs start in the same minute"
        return
    minutes, seconds = loads.colliding_minutes, loads.colliding_seconds
    yield f"in {minutes} minutes several jobs start, in {seconds} of their seconds at once; the most:"
    for one in loads.collisions[:_SHOWN]:
        yield f"  {format_instant(one.at, loads.zone)}  {len(one.jobs)}: {_names(one)}"


def _names(collision: Collision) -> str:
    more = len(collision.jobs) - _NAMES
    return ", ".join(collision.jobs[:_NAMES]) + (f" and {more} more" if more > 0 else "")


def _overlaps(loads: LoadReport) -> Iterable[str]:
    for job in loads.jobs.values():
        effects = _overlap_words(job)
        if effects:
            yield f"{job.name} still runs when it is due again: {', '.join(effects)}"


def _overlap_words(job: JobLoad) -> list[str]:
    skipped = job.ticks[TickKind.SKIPPED, Reason.OVERLAP]
    full, waited = job.ticks[TickKind.SKIPPED, Reason.QUEUE_FULL], job.ticks[TickKind.QUEUED, Reason.BEHIND_A_RUN]
    effects = [f"{pluralized(skipped, 'tick')} skipped"] if skipped else []
    effects += [f"{waited} queued, at most {job.most_waiting} at once"] if waited else []
    effects += [f"{full} skipped because the queue was full"] if full else []
    effects += [f"{pluralized(job.replaced, 'run')} replaced"] if job.replaced else []
    effects += [f"{pluralized(job.beside, 'run')} in parallel with another"] if job.beside else []
    return effects


def _ended_early(found: SimulationReport) -> Iterable[str]:
    for name, lasts in found.ended_early.items():
        if name in found.loads.jobs:
            timeout = format_duration(found.loads.jobs[name].lasts_ms)
            yield f"{name} takes {format_duration(lasts)}, but its timeout ends it after {timeout}"


def _outages(found: SimulationReport) -> Iterable[str]:
    loads = found.loads
    for one in loads.outage_impacts:
        outage = one.outage
        lasts = duration_text(outage.until_at - outage.from_at)
        yield f"down for {lasts} from {format_instant(outage.from_at, loads.zone)}"
        yield from (f"  {name}: {what}" for name, what in _outcomes_by_job(one).items())
        if outage.until_at >= found.until_at:
            yield "  it goes on to the end: what was due in it is not decided"
        elif not one.ticks:
            yield "  nothing was due"


def _outcomes_by_job(one: OutageImpact) -> Mapping[str, str]:
    found: dict[str, list[str]] = {}
    for (name, kind, reason), count in one.ticks.items():
        found.setdefault(name, []).append(f"{count} {kind} ({reason.value.replace('_', ' ')})")
    return {name: ", ".join(counts) for name, counts in sorted(found.items())}


def _clock_change_lines(found: SimulationReport) -> Iterable[str]:
    for day in found.odd_days:
        yield f"* {format_instant(day.at, day.zone)} {day.zone}: {day.what}"
        yield f"  {', '.join(day.jobs)}"


def _held_job_lines(found: SimulationReport) -> Iterable[str]:
    for job in found.held_jobs:
        policy = f"policy {job.version}" if job.version else "the policy file"
        yield f"{job.job} is held back by {policy}:"
        yield from (f"  {_held_step_text(step)}" for step in job.steps)


def _held_step_text(step: StepRuling) -> str:
    if step.decision is None:
        return f"{step.step}: its input decides by which rule it may run: {', '.join(step.rules)}"
    because = f" ({step.reason})" if step.reason else ""
    return f"{step.step}: {step.decision} by {step.rule}{because}"


# ---- for machines --------------------------------------------------------------------------------


def as_data(found: SimulationReport) -> dict[str, Any]:
    """The report as plain data."""
    loads = found.loads
    return {
        "from": format_iso(found.from_at),
        "until": format_iso(found.until_at),
        "timezone": loads.zone,
        "runs": sum(job.runs for job in loads.jobs.values()),
        "not_enabled": list(found.disabled_jobs),
        "days": [
            {"day": str(EPOCH.date() + timedelta(days=day)), "runs": sum(hours), "hours": hours}
            for day, hours in loads.days().items()
        ],
        "jobs": [_job_data(job) for job in loads.jobs.values()],
        "collisions": {
            "minutes": loads.colliding_minutes,
            "seconds": loads.colliding_seconds,
            "worst": [{"at": format_iso(one.at), "jobs": list(one.jobs)} for one in loads.collisions],
        },
        "outages": [_outage_data(one) for one in loads.outage_impacts],
        "ended_by_timeout": [{"job": name, "said_ms": lasts} for name, lasts in found.ended_early.items()],
        "clock_changes": [
            {"at": format_iso(day.at), "timezone": day.zone, "what": day.what, "jobs": list(day.jobs)}
            for day in found.odd_days
        ],
        "policy": [msgspec.to_builtins(job) for job in found.held_jobs],
    }


def _job_data(job: JobLoad) -> dict[str, Any]:
    return {
        "job": job.name,
        "ticks": job.planned,
        "runs": job.runs,
        "lasts_ms": job.lasts_ms,
        "decisions": _decisions(job.ticks),
        "runs_beside_another": job.beside,
        "runs_replaced": job.replaced,
        "most_waiting": job.most_waiting,
    }


def _decisions(ticks: Counter[tuple[TickKind, Reason]]) -> list[dict[str, Any]]:
    return [
        {"kind": kind.value, "reason": reason.value, "count": count} for (kind, reason), count in sorted(ticks.items())
    ]


def _outage_data(one: OutageImpact) -> dict[str, Any]:
    return {
        "from": format_iso(one.outage.from_at),
        "until": format_iso(one.outage.until_at),
        "decisions": [
            {"job": name, "kind": kind.value, "reason": reason.value, "count": count}
            for (name, kind, reason), count in sorted(one.ticks.items())
        ],
    }
