"""`gnomon jobs`: what runs and when."""

import sys
from collections import Counter
from pathlib import Path

from gnomon.app import Office, read_jobs_file
from gnomon.cli.executions import sentence
from gnomon.cli.given import json_given
from gnomon.cli.offices import Where, actor, in_office, say
from gnomon.cli.output import Format, print_data, print_table, visible
from gnomon.cli.readable import facts, first_line, iso, moment, span, state_of, zone_of
from gnomon.cli.starts import start_of
from gnomon.core.instants import ms_of
from gnomon.core.job_schema import job_file_schema
from gnomon.core.jobs import Job, warnings
from gnomon.core.model import Run, RunStatus, Tick
from gnomon.core.workflow import Workflow
from gnomon.services.answering import (
    execution,
    functions_of,
    job_applied,
    job_detail,
    job_summary,
    next_run_at,
    started,
)
from gnomon.services.applying import Change, Prune
from gnomon.services.jobs import Applied, JobView
from gnomon.services.jobs_keeper import refuse_doubles

_PAGE = 1000


def validate(file: Path, where: Where, form: Format) -> None:
    """Say whether a file could be applied, and what in it may not do what was meant."""
    jobs = _read(file, where)
    if form is not Format.TABLE:
        print_data({"file": str(file), "jobs": [job.name for job in jobs], "warnings": dict(_warned(jobs))}, form)
        return
    _warn(jobs)
    say(f"{file}: {_counted(len(jobs))}, nothing wrong")


def apply(files: list[Path], where: Where, form: Format, *, prune: Prune | None = None) -> None:
    """Make the jobs of the files stand as they are written."""
    jobs = read_files(files, where)

    async def work(office: Office) -> list[Applied]:
        return await office.jobs.apply(jobs, actor=actor(), prune=prune)

    done = in_office(where, work, make=True)
    _warn(jobs)
    if form is not Format.TABLE:
        print_data([job_applied(one) for one in done], form)
        return
    zones = {job.name: zone_of(job.spec) for job in jobs}
    rows = [
        [one.name, one.change, str(one.version), moment(one.next_run_at, zones.get(one.name, "UTC"))]
        for one in done
        if one.change is not Change.UNCHANGED
    ]
    if rows:
        print_table(["job", "change", "version", "next run"], rows)
    counts = Counter(one.change for one in done)
    say(", ".join(f"{counts[change]} {change}" for change in Change if counts[change]) or "no jobs")


def list_jobs(where: Where, form: Format) -> None:
    """List every job with when it runs next."""

    async def work(office: Office) -> list[JobView]:
        found: list[JobView] = []
        while page := await office.jobs.page(after=found[-1].schedule.schedule_id if found else "", limit=_PAGE):
            found += page
        return found

    found = in_office(where, work)
    if form is not Format.TABLE:
        print_data([job_summary(view) for view in found], form)
        return
    if not found:
        say("no jobs: gnomon jobs apply -f FILE registers them")
        return
    rows = [
        [
            view.schedule.schedule_id,
            state_of(view.schedule),
            view.schedule.spec.trigger.describe(),
            moment(next_run_at(view), zone_of(view.schedule.spec)),
        ]
        for view in found
    ]
    print_table(["job", "state", "schedule", "next run"], rows)


def show(name: str, where: Where, form: Format) -> None:
    """Show all there is to know about a job."""
    view = in_office(where, lambda office: office.jobs.get(name))
    if form is Format.TABLE:
        _show_text(view)
    else:
        print_data(job_detail(view), form)


def trigger(
    name: str, given: str | None, where: Where, form: Format, *, key: str | None, force: bool, wait: bool
) -> bool:
    """Start a run of a job, and wait for its end if asked to; False if that was not well."""
    wanted = json_given("--input", given)

    async def work(office: Office) -> Run | None:
        done = await office.launcher.trigger(name, actor=actor(), input=wanted, key=key, force=force)
        if form is Format.TABLE:
            say(f"{done.run_id} {done.became}")
            sys.stdout.flush()
        elif not wait:
            print_data(started(done), form)
        return await office.executions.finished(done.run_id) if wait else None

    run = in_office(where, work)
    if run is None:
        return True
    if form is Format.TABLE:
        say(sentence(run))
    else:
        print_data(execution(run), form)
    return run.status is RunStatus.COMPLETED


def pause(name: str, where: Where) -> None:
    """Let a job rest."""
    in_office(where, lambda office: office.jobs.pause(name, actor=actor()))
    say(f"{name} is paused")


def resume(name: str, where: Where) -> None:
    """Let a job go on."""

    async def work(office: Office) -> JobView:
        await office.jobs.resume(name, actor=actor())
        return await office.jobs.get(name, coming=1, last=0)

    view = in_office(where, work)
    coming = moment(next_run_at(view), zone_of(view.schedule.spec))
    say(f"{name} goes on; its next run is at {coming}" if coming else f"{name} goes on; nothing is planned")


def delete(name: str, where: Where) -> None:
    """End a job."""
    in_office(where, lambda office: office.jobs.delete(name, actor=actor()))
    say(f"{name} is deleted; its history stays")


def coming(name: str, count: int, where: Where, form: Format) -> None:
    """List the next planned times of a job."""
    view = in_office(where, lambda office: office.jobs.get(name, coming=count, last=0))
    zone = zone_of(view.schedule.spec)
    if form is not Format.TABLE:
        data = {"job": name, "timezone": zone, "paused": view.schedule.paused_at is not None}
        print_data(data | {"next_runs": [iso(at) for at in view.next_runs]}, form)
        return
    if view.schedule.paused_at is not None:
        say(f"{name} is paused; if it were not:")
    if not view.next_runs:
        say("nothing is planned")
        return
    _print_times("next runs", view)


def schema(form: Format) -> None:
    """Print the JSON Schema of a file of jobs, for editors."""
    print_data(job_file_schema(), Format.JSON if form is Format.TABLE else form)


def to_prune(tag: str | None, *, everything: bool) -> Prune | None:
    """What was typed about jobs that no file names."""
    return Prune(tag) if everything or tag is not None else None


def read_files(files: list[Path], where: Where, *, now: int | None = None) -> list[Job]:
    """The jobs of all files, read as they are at some time or now; UsageError if one stands in two of them."""
    found = {str(file): _read(file, where, now=now) for file in files}
    refuse_doubles(found)
    return [job for jobs in found.values() for job in jobs]


def _read(file: Path, where: Where, *, now: int | None = None) -> list[Job]:
    return read_jobs_file(file, where.settings(), now=ms_of(start_of(None)) if now is None else now)


def _warned(jobs: list[Job]) -> list[tuple[str, list[str]]]:
    return [(job.name, found) for job in jobs if (found := warnings(job))]


def _warn(jobs: list[Job]) -> None:
    for name, found in _warned(jobs):
        for warning in found:
            sys.stderr.write(visible(f"warning: {name}: {warning}") + "\n")


def _counted(jobs: int) -> str:
    return "1 job" if jobs == 1 else f"{jobs} jobs"


def _commands(workflow: Workflow) -> list[str]:
    """What the steps have a shell run, as far as one line shows it."""
    return [first_line(step.command, 90) for step in workflow.steps if step.command]


def _show_text(view: JobView) -> None:
    schedule, workflow, zone = view.schedule, view.workflow, zone_of(view.schedule.spec)
    told = [
        ("job", schedule.schedule_id),
        ("about", workflow.description if workflow else ""),
        ("state", state_of(schedule)),
        ("schedule", schedule.spec.trigger.describe()),
        ("zone", zone),
        ("policies", f"overlap {schedule.spec.overlap}, catch-up {schedule.spec.catchup}"),
        ("functions", ", ".join(functions_of(workflow)) if workflow else "not registered"),
        ("commands", "\n".join(_commands(workflow)) if workflow else ""),
        ("version", f"{schedule.spec.workflow_version} (revision {schedule.revision} of the schedule)"),
        ("tags", ", ".join(workflow.tags) if workflow else ""),
        ("under way", ", ".join(run.run_id for run in view.under_way)),
    ]
    if view.lock is not None:
        since = moment(view.lock.acquired_at, zone)
        told.append(("lock", f"{view.lock.key} since {since}, for {span(view.lock.ttl_ms)}"))
    say("\n".join(facts(told)))
    if view.next_runs:
        say("")
        _print_times("next runs" if schedule.paused_at is None else "next runs, if it were not paused", view)
    if view.last_ticks:
        say("")
        print_table(
            ["last ticks", "became", "why", "count", "execution"], [_tick_row(t, zone) for t in view.last_ticks]
        )


def _print_times(title: str, view: JobView) -> None:
    zone = zone_of(view.schedule.spec)
    rows = [[moment(at, zone), moment(at)] for at in view.next_runs]
    # Where local time is UTC, once is enough.
    print_table([title], [row[:1] for row in rows]) if zone == "UTC" else print_table([title, "utc"], rows)


def _tick_row(tick: Tick, zone: str) -> list[str]:
    decision = tick.decision
    return [
        moment(decision.planned_at, zone),
        decision.kind.value,
        decision.reason.value.replace("_", " "),
        str(decision.count),
        tick.run_id or "",
    ]
