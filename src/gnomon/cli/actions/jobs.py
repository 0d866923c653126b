"""`gnomon jobs resume`: letting a job go on, and what becomes of the runs that its pause swallowed."""

import sys
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

from gnomon.app.gateway import Door
from gnomon.app.operations import read_jobs_as_written, read_jobs_file
from gnomon.cli.actions.executions import sentence
from gnomon.cli.inputs import json_given, start_of
from gnomon.cli.output import (
    Format,
    facts,
    first_line,
    moment,
    print_data,
    print_list,
    print_table,
    span,
    visible,
    working,
)
from gnomon.cli.target import Where, answer_to, at_door, looks, page_of, say, some_of
from gnomon.client import requests
from gnomon.client.transport import Ask
from gnomon.core.durations import duration_ms
from gnomon.core.instants import ms_of
from gnomon.core.jobs.job import Job, warnings
from gnomon.core.jobs.json_schema import job_file_schema
from gnomon.core.ledger.edits import Missed
from gnomon.core.model import RunStatus
from gnomon.core.responses import Execution, ExecutionDetail, JobDetail, JobResumed, JobSummary, LedgerTick, TickMoved
from gnomon.errors import FieldError
from gnomon.services.maintenance.file_sync import refuse_doubles
from gnomon.services.operations.job_changes import Change, Prune
from gnomon.services.operations.presenters import zone_of

_CHOICES = "skip, latest, all, since INSTANT or spread SPAN"


def resume(name: str, missed: str, value: str | None, where: Where, form: Format) -> None:
    """Let a job go on."""

    async def work(door: Door) -> JobResumed:
        zone = (await door.ask(requests.job(name, coming=0, last=0))).timezone
        return await door.ask(_wish(name, missed, value, zone))

    done = at_door(where, work)
    if form is not Format.TABLE:
        print_data(done, form)
        return
    coming = moment(next(iter(done.next_runs), None), done.timezone)
    say(f"{name} goes on; its next run is at {coming}" if coming else f"{name} goes on; nothing is planned")
    _tell_swallowed(name, done)


def _wish(name: str, missed: str, value: str | None, zone: str) -> Ask[JobResumed]:
    word, _, rest = missed.strip().partition(" ")
    given = value if value is not None else rest.strip() or None
    if word not in list(Missed) or (rest and value is not None):
        raise FieldError("--missed", missed, f"is none of {_CHOICES}")
    if (given is not None) != (word in (Missed.SINCE, Missed.SPREAD)):
        raise FieldError("--missed", missed if given is None else f"{word} {given}", f"is none of {_CHOICES}")
    if word == Missed.SINCE:
        since = start_of(given, timezone=zone, option="--missed since")
        return requests.resume(name, missed=word, since=since)
    if word == Missed.SPREAD:
        duration_ms("--missed spread", given)
    return requests.resume(name, missed=word, over=given)


def _tell_swallowed(name: str, done: JobResumed) -> None:
    gone, zone = done.swallowed, done.timezone
    if gone.first_at is None or gone.last_at is None:
        return
    first, last = moment(gone.first_at, zone), moment(gone.last_at, zone)
    runs = "1 run" if gone.count == 1 else f"{gone.count} runs"
    say(f"the pause swallowed {runs}" + (f", from {first} to {last}" if gone.count > 1 else f", at {first}"))
    if done.runs:
        left = gone.count - done.runs
        say(f"{done.runs} of them will take place after all" + (f"; {left} will not" if left else ""))
    else:
        bounds = f"--from {gone.first_at.isoformat()} --to {gone.last_at.isoformat()}"
        say(f"to run them: gnomon jobs backfill {name} {bounds}")


def skip(name: str, at: str, move_to: str | None, where: Where, form: Format, *, undo: bool) -> None:
    """Skip or move a coming tick, or take that back."""

    async def work(door: Door) -> tuple[JobDetail, str]:
        zone = (await door.ask(requests.job(name, coming=0, last=0))).timezone
        planned = start_of(at, timezone=zone, option="--at")
        moved = None if move_to is None else start_of(move_to, timezone=zone, option="--move-to")
        if undo:
            done = await door.ask(requests.unskip(name, planned))
            return done, f"fires at {moment(planned, zone)} after all"
        done = await door.ask(requests.skip(name, planned, move_to=moved))
        return done, exception_text(TickMoved(planned_at=planned, moved_to=moved), zone)

    done, told = at_door(where, work)
    say(f"{name}: {told}") if form is Format.TABLE else print_data(done, form)


def exception_text(one: TickMoved, zone: str) -> str:
    """The exception in words."""
    if one.moved_to is None:
        return f"{moment(one.planned_at, zone)} is skipped"
    return f"{moment(one.planned_at, zone)} is moved to {moment(one.moved_to, zone)}"


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
    written = read_written(files, where)
    jobs, tag = [job for job, _ in written], prune.tag if prune else None
    ask = requests.apply([said for _, said in written], prune=prune is not None and tag is None, prune_tag=tag)
    with working(f"applying {_counted(len(jobs))}"):
        done = answer_to(where, ask, make=True).items
    _warn(jobs)
    if form is not Format.TABLE:
        print_data(done, form)
        return
    zones = {job.name: zone_of(job.spec) for job in jobs}
    rows = [
        [one.job, one.change, str(one.version), one.cron or "", moment(one.next_run_at, zones.get(one.job, "UTC"))]
        for one in done
        if one.change != Change.UNCHANGED
    ]
    if rows:
        print_table(["job", "change", "version", "cron", "next run"], rows)
    counts = Counter(one.change for one in done)
    say(", ".join(f"{counts[change]} {change}" for change in Change if counts[change]) or "no jobs")


def list_jobs(tag: str | None, where: Where, form: Format) -> None:
    """List every job, or those with a tag, with when it runs next."""

    async def work(door: Door) -> list[JobSummary]:
        return await some_of(door, requests.jobs(tag=tag, page=page_of()))

    found = at_door(where, work)
    none = "no jobs: gnomon jobs apply -f FILE registers them" if tag is None else "no jobs with that tag"
    print_list(found, form, ["job", "state", "schedule", "next run"], _row, none)


def _row(one: JobSummary) -> list[str]:
    return [one.job, one.state, one.schedule, moment(one.next_run_at, one.timezone)]


def show(name: str, where: Where, form: Format) -> None:
    """Show all there is to know about a job."""
    found = answer_to(where, requests.job(name))
    if form is Format.TABLE:
        _show_text(found)
    else:
        print_data(found, form)


def trigger(
    name: str, given: str | None, where: Where, form: Format, *, key: str | None, force: bool, wait: bool
) -> bool:
    """Start a run of a job, and wait for its end if asked to; False if that was not well."""
    wanted = json_given("--input", given)

    async def work(door: Door) -> ExecutionDetail | None:
        done = await door.ask(requests.trigger(name, wanted, key=key, force=force))
        if form is Format.TABLE:
            say(f"{done.execution_id} {done.became}")
            sys.stdout.flush()
        elif not wait:
            print_data(done, form)
        seen = [one async for one in looks(door, requests.execution(done.execution_id))] if wait else []
        return seen[-1] if seen else None

    run = at_door(where, work)
    if run is None:
        return True
    if form is Format.TABLE:
        say(sentence(run))
    else:
        print_data(Execution(**{field: getattr(run, field) for field in Execution.__struct_fields__}), form)
    return run.status == RunStatus.COMPLETED


def pause(name: str, where: Where, form: Format) -> None:
    """Let a job rest."""
    done = answer_to(where, requests.pause(name))
    say(f"{name} is paused") if form is Format.TABLE else print_data(done, form)


def delete(name: str, where: Where, form: Format) -> None:
    """End a job."""
    answer_to(where, requests.delete(name))
    if form is Format.TABLE:
        say(f"{name} is deleted; its history stays")
    else:
        print_data({"job": name, "deleted": True}, form)


def coming(name: str, count: int, where: Where, form: Format) -> None:
    """List the next planned times of a job."""
    found = answer_to(where, requests.job(name, coming=count, last=0))
    if form is not Format.TABLE:
        data = {"job": name, "timezone": found.timezone, "paused": found.paused}
        print_data(data | {"next_runs": found.next_runs}, form)
        return
    if found.paused:
        say(f"{name} is paused; if it were not:")
    if not found.next_runs:
        say("nothing is planned")
        return
    _print_times("next runs", found.next_runs, found.timezone)


def schema(form: Format) -> None:
    """Print the JSON Schema of a file of jobs, for editors."""
    print_data(job_file_schema(), Format.JSON if form is Format.TABLE else form)


def to_prune(tag: str | None, *, everything: bool) -> Prune | None:
    """What was typed about jobs that no file names."""
    return Prune(tag) if everything or tag is not None else None


def read_files(files: list[Path], where: Where, *, now: int | None = None) -> list[Job]:
    """The jobs of all files, read as they are at some time or now; UsageError if one stands in two of them."""
    return [job for job, _ in read_written(files, where, now=now)]


def read_written(files: list[Path], where: Where, *, now: int | None = None) -> list[tuple[Job, dict[str, Any]]]:
    """The same, each with what was written."""
    at, settings = ms_of(start_of(None)) if now is None else now, where.settings()
    found = {str(file): read_jobs_as_written(file, settings, now=at) for file in files}
    refuse_doubles({file: [job for job, _ in written] for file, written in found.items()})
    return [one for written in found.values() for one in written]


def _read(file: Path, where: Where) -> list[Job]:
    return read_jobs_file(file, where.settings(), now=ms_of(start_of(None)))


def _warned(jobs: list[Job]) -> list[tuple[str, list[str]]]:
    return [(job.name, found) for job in jobs if (found := warnings(job))]


def _warn(jobs: list[Job]) -> None:
    for name, found in _warned(jobs):
        for warning in found:
            sys.stderr.write(visible(f"warning: {name}: {warning}") + "\n")


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
        since = moment(found.lock.acquired_at, found.timezone)
        told.append(("lock", f"{found.lock.key} since {since}, for {span(found.lock.ttl_ms)}"))
    say("\n".join(facts(told)))
    if found.next_runs:
        say("")
        title = "next runs, if it were not paused" if found.paused else "next runs"
        _print_times(title, found.next_runs, found.timezone)
    if found.last_ticks:
        say("")
        rows = [_tick_row(tick, found.timezone) for tick in found.last_ticks]
        print_table(["last ticks", "became", "why", "count", "execution"], rows)


def _print_times(title: str, times: list[datetime], zone: str) -> None:
    rows = [[moment(at, zone), moment(at)] for at in times]
    # Where local time is UTC, once is enough.
    print_table([title], [row[:1] for row in rows]) if zone == "UTC" else print_table([title, "utc"], rows)


def _tick_row(tick: LedgerTick, zone: str) -> list[str]:
    return [
        moment(tick.planned_at, zone),
        tick.kind,
        tick.reason.replace("_", " "),
        str(tick.count),
        tick.execution_id or "",
    ]
