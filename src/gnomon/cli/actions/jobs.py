"""`gnomon jobs`: validate, apply, inspect, run, pause, resume, skip and delete jobs."""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from gnomon.app.files import read_jobs_file, read_jobs_with_source
from gnomon.app.gate import command_rules
from gnomon.app.gateway import Gateway
from gnomon.app.runner import imported_functions
from gnomon.cli.actions.agents import amount_text, count_text
from gnomon.cli.actions.executions import NO_WORKER, accepted_text, any_worker, summary_text
from gnomon.cli.inputs import JobsSource, jobs_files, json_option, parse_start
from gnomon.cli.output import (
    Format,
    first_line,
    format_duration,
    format_fields,
    format_instant,
    format_instant_in,
    print_data,
    print_list,
    print_table,
    printable,
    progress_spinner,
    show_errors,
)
from gnomon.cli.reader_zone import reader_zone
from gnomon.cli.target import Target, echo, list_all, page_size, send, with_gateway
from gnomon.client import requests
from gnomon.client.transport import ApiRequest, wait_until_done
from gnomon.core.durations import duration_ms
from gnomon.core.explain.phrases import pluralized
from gnomon.core.instants import ms_of
from gnomon.core.jobs.function_check import unknown_functions
from gnomon.core.jobs.job import Job, warnings
from gnomon.core.jobs.json_schema import job_file_schema
from gnomon.core.jobs.origins import origin_text
from gnomon.core.ledger.edits import ResumePolicy
from gnomon.core.model import RunStatus
from gnomon.core.responses.executions import Execution, ExecutionDetail
from gnomon.core.responses.jobs import JobDetail, JobResumed, JobSummary, LedgerTick, TickMoved
from gnomon.core.runs.http_calls import usual_method
from gnomon.errors import FieldError, FileError, GnomonError, JobsFileError, UsageError
from gnomon.services.maintenance.file_sync import reject_duplicate_jobs
from gnomon.services.operations.job_changes import JobChange, Prune

_CHOICES = "skip, latest, all, since INSTANT or spread SPAN"


def validate(files: list[Path], imports: list[str], target: Target, form: Format) -> bool:
    """Check all files and print warnings about fields that may not have the intended effect.

    The errors of all files are printed; return whether there are none. With `imports`, the functions that jobs call
    must be those of these modules. With `form`, one file is an object, and several are a list of them.
    """
    found, wrong = _read_all(jobs_files(files), target)
    wrong += _unknown_functions(found, imports)
    wrong += _outside_workspace(found, target)
    if wrong:
        show_errors(wrong)
        return False
    if form is not Format.TABLE:
        objects = [
            {"file": file, "jobs": [job.name for job in jobs], "warnings": dict(_warnings_by_job(jobs))}
            for file, jobs in found.items()
        ]
        print_data(objects[0] if len(objects) == 1 else objects, form)
        return True
    for file, jobs in found.items():
        print_warnings(jobs)
        echo(f"{file}: {pluralized(len(jobs), 'job')}, nothing wrong")
    return True


def _read_all(files: list[JobsSource], target: Target) -> tuple[dict[str, list[Job]], list[GnomonError]]:
    """The jobs by file, and the errors of all files."""
    found: dict[str, list[Job]] = {}
    wrong: list[GnomonError] = []
    settings, now = target.settings(), ms_of(parse_start(None))
    for file in files:
        try:
            found[str(file.path)] = read_jobs_file(file.path, settings, now=now, content=file.content)
        except JobsFileError as error:
            wrong += [error, *error.more]
        except FileError as error:
            wrong.append(error)
    try:
        reject_duplicate_jobs(found)
    except UsageError as error:
        wrong.append(error)
    return found, wrong


def _unknown_functions(found: Mapping[str, list[Job]], imports: list[str]) -> list[GnomonError]:
    """The errors of jobs that call functions which these modules do not register; none without modules."""
    if not imports:
        return []
    known = imported_functions(imports)
    return [
        FileError(file, f"the function {one.function!r} of {', '.join(one.jobs)} is not registered{_meant(one.meant)}")
        for file, jobs in found.items()
        for one in unknown_functions(jobs, known)
    ]


def _outside_workspace(found: Mapping[str, list[Job]], target: Target) -> list[GnomonError]:
    """The errors of commands in folders outside of the workspace; none for a server, whose settings are not here."""
    if target.remote_server() is not None:
        return []
    rules, wrong = command_rules(target.settings()), list[GnomonError]()
    for file, jobs in found.items():
        for job in jobs:
            try:
                rules.refuse_outside(job.workflow)
            except FieldError as error:
                wrong.append(FileError(file, f"{job.name}: {error}"))
    return wrong


def _meant(name: str | None) -> str:
    return f"; did you mean {name}?" if name else ""


def apply(
    files: list[Path], target: Target, form: Format, *, prune: Prune | None = None, planned: str | None = None
) -> None:
    """Create or update the jobs of the files; `planned` is the digest of the plan that is to be carried out."""
    written = read_definitions(files, target, guarded=True)
    jobs, tag = [job for job, _ in written], prune.tag if prune else None
    place = target.place()
    request = requests.apply(
        [definition for _, definition in written], prune=prune is not None and tag is None, prune_tag=tag, plan=planned
    )
    with progress_spinner(f"applying {pluralized(len(jobs), 'job')}"):
        done = send(target, request, make=True).items
    print_warnings(jobs)
    print_further_warnings(jobs, {one.job: one.warnings for one in done})
    if form is not Format.TABLE:
        print_data(done, form)
        return
    zones = {job.name: job.spec.timezone for job in jobs}
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
    summary = ", ".join(f"{counts[change]} {change}" for change in JobChange if counts[change]) or "no jobs"
    echo(f"{summary} {place}")


def prune_selection(tag: str | None, *, everything: bool) -> Prune | None:
    """The jobs to delete because they are in none of the files; None for none."""
    return Prune(tag) if everything or tag is not None else None


def read_files(files: list[Path], target: Target, *, now: int | None = None) -> list[Job]:
    """The jobs of all files, read as of `now`; UsageError if two files define the same job."""
    return [job for job, _ in read_definitions(files, target, now=now)]


def read_definitions(
    files: list[Path], target: Target, *, now: int | None = None, guarded: bool = False
) -> list[tuple[Job, dict[str, Any]]]:
    """The jobs of all files, each with its source definition; see read_files and read_jobs_file."""
    at, settings = ms_of(parse_start(None)) if now is None else now, target.settings()
    found = {
        str(file.path): read_jobs_with_source(file.path, settings, now=at, guarded=guarded, content=file.content)
        for file in jobs_files(files)
    }
    reject_duplicate_jobs({file: [job for job, _ in written] for file, written in found.items()})
    return [one for written in found.values() for one in written]


def _warnings_by_job(jobs: list[Job]) -> list[tuple[str, list[str]]]:
    return [(job.name, found) for job in jobs if (found := warnings(job))]


def print_warnings(jobs: list[Job]) -> None:
    """Print the warnings about the jobs."""
    for name, found in _warnings_by_job(jobs):
        _print_warnings(name, found)


def print_further_warnings(jobs: list[Job], answered: Mapping[str, Sequence[str]]) -> None:
    """Print the warnings of the server about the jobs that `print_warnings` has not printed."""
    printed = dict(_warnings_by_job(jobs))
    for name, found in answered.items():
        _print_warnings(name, [warning for warning in found if warning not in printed.get(name, ())])


def _print_warnings(name: str, found: Sequence[str]) -> None:
    for warning in found:
        sys.stderr.write(printable(f"warning: {name}: {warning}") + "\n")


def list_jobs(target: Target, form: Format, *, order: str | None = None, **filters: str | None) -> None:
    """Print jobs and their next run; filters are q, tag and state."""

    async def work(gateway: Gateway) -> list[JobSummary]:
        return await list_all(gateway, requests.jobs(**filters, order=order, page=page_size()))

    found = with_gateway(target, work)
    given = {name for name, value in filters.items() if value is not None}
    none = "no jobs: gnomon jobs apply -f FILE registers them" if not given else "no jobs match"
    if given == {"tag"}:
        none = "no jobs with that tag"
    print_list(found, form, ["job", "state", "schedule", "next run", "from"], _row, none)


def _row(one: JobSummary) -> list[str]:
    return [one.job, one.state, one.schedule, format_instant(one.next_run_at, one.timezone), _from(one)]


def _from(one: JobSummary) -> str:
    """Where the definition comes from, and whether its commands are approved."""
    return f"{_origin(one)}, approved" if one.approved else _origin(one)


def _origin(one: JobSummary) -> str:
    """Where the definition comes from, and whether it is still there."""
    return f"{origin_text(one.origin)} (no longer declared)" if one.orphaned else origin_text(one.origin)


def show(name: str, target: Target, form: Format) -> None:
    """Print a job."""
    found = send(target, requests.job(name))
    if form is Format.TABLE:
        _show_text(found)
    else:
        print_data(found, form)


def _show_text(found: JobDetail) -> None:
    definition = found.definition or {}
    fields = [
        ("job", found.job),
        ("about", definition.get("description", "")),
        ("state", found.state),
        ("schedule", found.schedule),
        ("zone", found.timezone),
        ("policies", f"overlap {definition['overlap']}, catch-up {definition['catchup']}" if definition else ""),
        ("functions", ", ".join(found.functions) if definition else "not registered"),
        ("commands", "\n".join(_commands(definition))),
        ("calls", "\n".join(_calls(definition))),
        ("agents", _agents(found)),
        ("version", f"{found.version} (revision {found.revision} of the schedule)"),
        ("from", _origin(found)),
        ("approved", _approval(found)),
        ("tags", ", ".join(found.tags)),
        ("under way", ", ".join(found.executions)),
        ("exceptions", "\n".join(exception_text(one, found.timezone) for one in found.exceptions)),
    ]
    if found.lock is not None:
        since = format_instant(found.lock.acquired_at, found.timezone)
        fields.append(("lock", f"{found.lock.key} since {since}, for {format_duration(found.lock.ttl_ms)}"))
    echo("\n".join(format_fields(fields)))
    if found.next_runs:
        echo("")
        title = "next runs, if it were not paused" if found.paused else "next runs"
        _print_times(title, found.next_runs, found.timezone)
    if found.last_ticks:
        echo("")
        rows = [_tick_row(tick, found.timezone) for tick in found.last_ticks]
        print_table(["last ticks", "became", "why", "count", "execution"], rows)


def _agents(found: JobDetail) -> str:
    """The usage of the agents of a job in words; empty if it has none."""
    used = found.agents
    if used is None:
        return ""
    tokens = count_text(used.input_tokens + used.output_tokens)
    counts = f"{used.attempts} attempts, {used.requests} requests, {tokens} tokens"
    return f"{counts}, cost {amount_text(used.cost)} in {used.days} days"


def _approval(found: JobDetail) -> str:
    """The approval of the commands of a job in words; empty if they have none."""
    if found.approval is None:
        return ""
    since = format_instant(found.approval.approved_at, found.timezone)
    return f"by {found.approval.approved_by} since {since}" + (
        f": {found.approval.reason}" if found.approval.reason else ""
    )


def _commands(definition: dict[str, Any]) -> list[str]:
    """The shell commands of the steps, each truncated to one line."""
    return [first_line(step["command"], 90) for step in definition.get("dag", [definition]) if "command" in step]


def _calls(definition: dict[str, Any]) -> list[str]:
    """The HTTP calls of the steps: method and URL."""
    calls = [step["http"] for step in definition.get("dag", [definition]) if "http" in step]
    return [f"{usual_method(call)} {first_line(call['url'], 90)}" for call in calls]


def _tick_row(tick: LedgerTick, zone: str) -> list[str]:
    return [
        format_instant(tick.planned_at, zone),
        tick.kind,
        tick.reason.replace("_", " "),
        str(tick.count),
        tick.execution_id or "",
    ]


def coming(name: str, count: int, target: Target, form: Format) -> None:
    """Print the next planned times of a job."""
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


def _print_times(title: str, times: list[datetime], zone: str) -> None:
    rows = [[format_instant(at, zone), format_instant_in(at, "UTC")] for at in times]
    # In UTC the second column would repeat the first.
    in_utc = reader_zone(zone) == "UTC"
    print_table([title], [row[:1] for row in rows]) if in_utc else print_table([title, "utc"], rows)


def trigger(  # noqa: PLR0913 - the options of the command
    name: str,
    given: str | None,
    target: Target,
    form: Format,
    *,
    key: str | None,
    force: bool,
    wait: bool,
    deadline: str | None = None,
) -> bool:
    """Start a run of a job; with `wait`, return whether it completed."""
    job_input = json_option("--input", given)

    async def work(gateway: Gateway) -> ExecutionDetail | None:
        done = await gateway.send(requests.trigger(name, job_input, key=key, force=force, deadline=deadline))
        if form is Format.TABLE:
            echo(await accepted_text(gateway, done))
            sys.stdout.flush()
        elif not wait:
            print_data(done, form)
        elif not await any_worker(gateway):
            sys.stderr.write(f"{NO_WORKER}\n")
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
    """Pause a job."""
    done = send(target, requests.pause(name))
    echo(f"{name} is paused") if form is Format.TABLE else print_data(done, form)


def resume(name: str, missed: str, value: str | None, target: Target, form: Format) -> None:
    """Resume a job and print how many runs its pause skipped."""

    async def work(gateway: Gateway) -> JobResumed:
        zone = (await gateway.send(requests.job(name, coming=0, last=0))).timezone
        return await gateway.send(_resume_request(name, missed, value, zone))

    done = with_gateway(target, work)
    if form is not Format.TABLE:
        print_data(done, form)
        return
    coming = format_instant(next(iter(done.next_runs), None), done.timezone)
    echo(f"{name} is resumed; its next run is at {coming}" if coming else f"{name} is resumed; nothing is planned")
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
    missed, zone = done.swallowed, done.timezone
    if missed.first_at is None or missed.last_at is None:
        return
    first, last = format_instant(missed.first_at, zone), format_instant(missed.last_at, zone)
    echo(
        f"{pluralized(missed.count, 'run')} missed during the pause"
        + (f", from {first} to {last}" if missed.count > 1 else f", at {first}")
    )
    if done.runs:
        left = missed.count - done.runs
        echo(f"{done.runs} of them will run" + (f"; {left} will not" if left else ""))
    else:
        bounds = f"--from {missed.first_at.isoformat()} --to {missed.last_at.isoformat()}"
        echo(f"to run them: gnomon jobs backfill {name} {bounds}")


def skip(name: str, at: str, move_to: str | None, target: Target, form: Format, *, undo: bool) -> None:
    """Skip or move a coming tick, or undo that."""

    async def work(gateway: Gateway) -> tuple[JobDetail, str]:
        zone = (await gateway.send(requests.job(name, coming=0, last=0))).timezone
        planned = parse_start(at, timezone=zone, option="--at")
        moved = None if move_to is None else parse_start(move_to, timezone=zone, option="--move-to")
        if undo:
            done = await gateway.send(requests.unskip(name, planned))
            return done, f"fires at {format_instant(planned, zone)} again"
        done = await gateway.send(requests.skip(name, planned, move_to=moved))
        return done, exception_text(TickMoved(planned_at=planned, moved_to=moved), zone)

    done, effect = with_gateway(target, work)
    echo(f"{name}: {effect}") if form is Format.TABLE else print_data(done, form)


def exception_text(one: TickMoved, zone: str) -> str:
    """The exception as a sentence."""
    if one.moved_to is None:
        return f"{format_instant(one.planned_at, zone)} is skipped"
    return f"{format_instant(one.planned_at, zone)} is moved to {format_instant(one.moved_to, zone)}"


def delete(name: str, target: Target, form: Format) -> None:
    """Delete a job."""
    send(target, requests.delete(name))
    if form is Format.TABLE:
        echo(f"{name} is deleted; its history stays")
    else:
        print_data({"job": name, "deleted": True}, form)


def schema(form: Format) -> None:
    """Print the JSON Schema of a jobs file."""
    print_data(job_file_schema(), Format.JSON if form is Format.TABLE else form)
