"""`gnomon jobs resume`: letting a job go on, and what becomes of the runs that its pause swallowed."""

import sys
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

from gnomon.app.gateway import Gateway
from gnomon.app.operations import read_jobs_file, read_jobs_with_source
from gnomon.cli.actions.executions import summary_text
from gnomon.cli.inputs import json_option, parse_start
from gnomon.cli.output import (
    Format,
    first_line,
    format_duration,
    format_fields,
    format_instant,
    print_data,
    print_list,
    print_table,
    printable,
    progress_spinner,
)
from gnomon.cli.target import Target, echo, list_all, page_size, send, with_gateway
from gnomon.client import requests
from gnomon.client.transport import ApiRequest, wait_until_done
from gnomon.core.durations import duration_ms
from gnomon.core.instants import ms_of
from gnomon.core.jobs.job import Job, warnings
from gnomon.core.jobs.json_schema import job_file_schema
from gnomon.core.ledger.edits import ResumePolicy
from gnomon.core.model import RunStatus
from gnomon.core.responses import Execution, ExecutionDetail, JobDetail, JobResumed, JobSummary, LedgerTick, TickMoved
from gnomon.errors import FieldError
from gnomon.services.maintenance.file_sync import reject_duplicate_jobs
from gnomon.services.operations.job_changes import JobChange, Prune
from gnomon.services.operations.presenters import timezone_of

_CHOICES = "skip, latest, all, since INSTANT or spread SPAN"


def resume(name: str, missed: str, value: str | None, target: Target, form: Format) -> None:
    """Let a job go on."""

    async def work(gateway: Gateway) -> JobResumed:
        zone = (await gateway.send(requests.job(name, coming=0, last=0))).timezone
        return await gateway.send(_resume_request(name, missed, value, zone))

    done = with_gateway(target, work)
    if form is not Format.TABLE:
        print_data(done, form)
        return
    coming = format_instant(next(iter(done.next_runs), None), done.timezone)
    echo(f"{name} goes on; its next run is at {coming}" if coming else f"{name} goes on; nothing is planned")
    _print_missed(name, done)


def _resume_request(name: str, missed: str, value: str | None, zone: str) -> ApiRequest[JobResumed]:
    word, _, rest = missed.strip().partition(" ")
    given = value if value is not None else rest.strip() or None
    if word not in list(ResumePolicy) or (rest and value is not None):
        raise FieldError("--missed", missed, f"is none of {_CHOICES}")
    if (given is not None) != (word in (ResumePolicy.SINCE, ResumePolicy.SPREAD)):
        raise FieldError("--missed", missed if given is None else f"{word} {given}", f"is none of {_CHOICES}")
    if word == ResumePolicy.SINCE:
        since = parse_start(given, timezone=zone, option="--missed since")
        return requests.resume(name, missed=word, since=since)
    if word == ResumePolicy.SPREAD:
        duration_ms("--missed spread", given)
    return requests.resume(name, missed=word, over=given)


def _print_missed(name: str, done: JobResumed) -> None:
    gone, zone = done.swallowed, done.timezone
    if gone.first_at is None or gone.last_at is None:
        return
    first, last = format_instant(gone.first_at, zone), format_instant(gone.last_at, zone)
    runs = "1 run" if gone.count == 1 else f"{gone.count} runs"
    echo(f"the pause swallowed {runs}" + (f", from {first} to {last}" if gone.count > 1 else f", at {first}"))
    if done.runs:
        left = gone.count - done.runs
        echo(f"{done.runs} of them will take place after all" + (f"; {left} will not" if left else ""))
    else:
        bounds = f"--from {gone.first_at.isoformat()} --to {gone.last_at.isoformat()}"
        echo(f"to run them: gnomon jobs backfill {name} {bounds}")


def skip(name: str, at: str, move_to: str | None, target: Target, form: Format, *, undo: bool) -> None:
    """Skip or move a coming tick, or take that back."""

    async def work(gateway: Gateway) -> tuple[JobDetail, str]:
        zone = (await gateway.send(requests.job(name, coming=0, last=0))).timezone
        planned = parse_start(at, timezone=zone, option="--at")
        moved = None if move_to is None else parse_start(move_to, timezone=zone, option="--move-to")
        if undo:
            done = await gateway.send(requests.unskip(name, planned))
            return done, f"fires at {format_instant(planned, zone)} after all"
        done = await gateway.send(requests.skip(name, planned, move_to=moved))
        return done, exception_text(TickMoved(planned_at=planned, moved_to=moved), zone)

    done, told = with_gateway(target, work)
    echo(f"{name}: {told}") if form is Format.TABLE else print_data(done, form)


def exception_text(one: TickMoved, zone: str) -> str:
    """The exception in words."""
    if one.moved_to is None:
        return f"{format_instant(one.planned_at, zone)} is skipped"
    return f"{format_instant(one.planned_at, zone)} is moved to {format_instant(one.moved_to, zone)}"


def validate(file: Path, target: Target, form: Format) -> None:
    """Say whether a file could be applied, and what in it may not do what was meant."""
    jobs = _read(file, target)
    if form is not Format.TABLE:
        print_data(
            {"file": str(file), "jobs": [job.name for job in jobs], "warnings": dict(_warnings_by_job(jobs))}, form
        )
        return
    _warn(jobs)
    echo(f"{file}: {_counted(len(jobs))}, nothing wrong")


def apply(files: list[Path], target: Target, form: Format, *, prune: Prune | None = None) -> None:
    """Make the jobs of the files stand as they are written."""
    written = read_definitions(files, target)
    jobs, tag = [job for job, _ in written], prune.tag if prune else None
    request = requests.apply([said for _, said in written], prune=prune is not None and tag is None, prune_tag=tag)
    with progress_spinner(f"applying {_counted(len(jobs))}"):
        done = send(target, request, make=True).items
    _warn(jobs)
    if form is not Format.TABLE:
        print_data(done, form)
        return
    zones = {job.name: timezone_of(job.spec) for job in jobs}
    rows = [
        [
            one.job,
            one.change,
            str(one.version),
            one.cron or "",
            format_instant(one.next_run_at, zones.get(one.job, "UTC")),
        ]
        for one in done
        if one.change != JobChange.UNCHANGED
    ]
    if rows:
        print_table(["job", "change", "version", "cron", "next run"], rows)
    counts = Counter(one.change for one in done)
    echo(", ".join(f"{counts[change]} {change}" for change in JobChange if counts[change]) or "no jobs")


def list_jobs(tag: str | None, target: Target, form: Format) -> None:
    """List every job, or those with a tag, with when it runs next."""

    async def work(gateway: Gateway) -> list[JobSummary]:
        return await list_all(gateway, requests.jobs(tag=tag, page=page_size()))

    found = with_gateway(target, work)
    none = "no jobs: gnomon jobs apply -f FILE registers them" if tag is None else "no jobs with that tag"
    print_list(found, form, ["job", "state", "schedule", "next run"], _row, none)


def _row(one: JobSummary) -> list[str]:
    return [one.job, one.state, one.schedule, format_instant(one.next_run_at, one.timezone)]


def show(name: str, target: Target, form: Format) -> None:
    """Show all there is to know about a job."""
    found = send(target, requests.job(name))
    if form is Format.TABLE:
        _show_text(found)
    else:
        print_data(found, form)


def trigger(
    name: str, given: str | None, target: Target, form: Format, *, key: str | None, force: bool, wait: bool
) -> bool:
    """Start a run of a job, and wait for its end if asked to; False if that was not well."""
    wanted = json_option("--input", given)

    async def work(gateway: Gateway) -> ExecutionDetail | None:
        done = await gateway.send(requests.trigger(name, wanted, key=key, force=force))
        if form is Format.TABLE:
            echo(f"{done.execution_id} {done.became}")
            sys.stdout.flush()
        elif not wait:
            print_data(done, form)
        return await wait_until_done(gateway.send, requests.execution(done.execution_id)) if wait else None

    run = with_gateway(target, work)
    if run is None:
        return True
    if form is Format.TABLE:
        echo(summary_text(run))
    else:
        print_data(Execution(**{field: getattr(run, field) for field in Execution.__struct_fields__}), form)
    return run.status == RunStatus.COMPLETED


def pause(name: str, target: Target, form: Format) -> None:
    """Let a job rest."""
    done = send(target, requests.pause(name))
    echo(f"{name} is paused") if form is Format.TABLE else print_data(done, form)


def delete(name: str, target: Target, form: Format) -> None:
    """End a job."""
    send(target, requests.delete(name))
    if form is Format.TABLE:
        echo(f"{name} is deleted; its history stays")
    else:
        print_data({"job": name, "deleted": True}, form)


def coming(name: str, count: int, target: Target, form: Format) -> None:
    """List the next planned times of a job."""
    found = send(target, requests.job(name, coming=count, last=0))
    if form is not Format.TABLE:
        data = {"job": name, "timezone": found.timezone, "paused": found.paused}
        print_data(data | {"next_runs": found.next_runs}, form)
        return
    if found.paused:
        echo(f"{name} is paused; if it were not:")
    if not found.next_runs:
        echo("nothing is planned")
        return
    _print_times("next runs", found.next_runs, found.timezone)


def schema(form: Format) -> None:
    """Print the JSON Schema of a file of jobs, for editors."""
    print_data(job_file_schema(), Format.JSON if form is Format.TABLE else form)


def prune_selection(tag: str | None, *, everything: bool) -> Prune | None:
    """What was typed about jobs that no file names."""
    return Prune(tag) if everything or tag is not None else None


def read_files(files: list[Path], target: Target, *, now: int | None = None) -> list[Job]:
    """The jobs of all files, read as they are at some time or now; UsageError if one stands in two of them."""
    return [job for job, _ in read_definitions(files, target, now=now)]


def read_definitions(files: list[Path], target: Target, *, now: int | None = None) -> list[tuple[Job, dict[str, Any]]]:
    """The same, each with what was written."""
    at, settings = ms_of(parse_start(None)) if now is None else now, target.settings()
    found = {str(file): read_jobs_with_source(file, settings, now=at) for file in files}
    reject_duplicate_jobs({file: [job for job, _ in written] for file, written in found.items()})
    return [one for written in found.values() for one in written]


def _read(file: Path, target: Target) -> list[Job]:
    return read_jobs_file(file, target.settings(), now=ms_of(parse_start(None)))


def _warnings_by_job(jobs: list[Job]) -> list[tuple[str, list[str]]]:
    return [(job.name, found) for job in jobs if (found := warnings(job))]


def _warn(jobs: list[Job]) -> None:
    for name, found in _warnings_by_job(jobs):
        for warning in found:
            sys.stderr.write(printable(f"warning: {name}: {warning}") + "\n")


def _counted(jobs: int) -> str:
    return "1 job" if jobs == 1 else f"{jobs} jobs"


def _commands(definition: dict[str, Any]) -> list[str]:
    """What the steps have a shell run, as far as one line shows it."""
    return [first_line(step["command"], 90) for step in definition.get("dag", [definition]) if "command" in step]


def _show_text(found: JobDetail) -> None:
    said = found.definition or {}
    told = [
        ("job", found.job),
        ("about", said.get("description", "")),
        ("state", found.state),
        ("schedule", found.schedule),
        ("zone", found.timezone),
        ("policies", f"overlap {said['overlap']}, catch-up {said['catchup']}" if said else ""),
        ("functions", ", ".join(found.functions) if said else "not registered"),
        ("commands", "\n".join(_commands(said))),
        ("version", f"{found.version} (revision {found.revision} of the schedule)"),
        ("tags", ", ".join(found.tags)),
        ("under way", ", ".join(found.executions)),
        ("exceptions", "\n".join(exception_text(one, found.timezone) for one in found.exceptions)),
    ]
    if found.lock is not None:
        since = format_instant(found.lock.acquired_at, found.timezone)
        told.append(("lock", f"{found.lock.key} since {since}, for {format_duration(found.lock.ttl_ms)}"))
    echo("\n".join(format_fields(told)))
    if found.next_runs:
        echo("")
        title = "next runs, if it were not paused" if found.paused else "next runs"
        _print_times(title, found.next_runs, found.timezone)
    if found.last_ticks:
        echo("")
        rows = [_tick_row(tick, found.timezone) for tick in found.last_ticks]
        print_table(["last ticks", "became", "why", "count", "execution"], rows)


def _print_times(title: str, times: list[datetime], zone: str) -> None:
    rows = [[format_instant(at, zone), format_instant(at)] for at in times]
    # Where local time is UTC, once is enough.
    print_table([title], [row[:1] for row in rows]) if zone == "UTC" else print_table([title, "utc"], rows)


def _tick_row(tick: LedgerTick, zone: str) -> list[str]:
    return [
        format_instant(tick.planned_at, zone),
        tick.kind,
        tick.reason.replace("_", " "),
        str(tick.count),
        tick.execution_id or "",
    ]
