"""`gnomon cron`: add, list, change, run and remove commands under a schedule."""

import sys
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec

from gnomon.app.gateway import Gateway
from gnomon.cli.actions.executions import NO_WORKER, any_worker, summary_text, trigger_text
from gnomon.cli.inputs import json_option, parse_start
from gnomon.cli.output import (
    Format,
    first_line,
    format_duration,
    format_instant,
    print_data,
    print_list,
    printable,
)
from gnomon.cli.target import Target, echo, list_all, page_size, with_gateway
from gnomon.client import requests
from gnomon.client.transport import wait_until_done
from gnomon.core.cron import known_zone
from gnomon.core.explain.phrases import pluralized
from gnomon.core.jobs.cron_jobs import (
    CRON_TAG,
    CronDefaults,
    CronKind,
    CronUpdate,
    cron_job,
    delay_ms,
    delivery_fields,
    expression_fields,
    generated_name,
    instant_fields,
    interval_fields,
    kind_of,
    resolved_name,
)
from gnomon.core.jobs.origins import OriginKind, origin_text
from gnomon.core.model import RunStatus
from gnomon.core.responses.executions import Execution, ExecutionDetail
from gnomon.core.responses.jobs import JobApplied, JobDetail, JobResumed, JobSummary
from gnomon.errors import FieldError, NameTaken, NotFound, UsageError
from gnomon.services.operations.job_changes import JobChange

#: How many characters of an output a list of runs shows.
_LONGEST_SHOWN = 500
#: How many names are tried if others register jobs at the same time.
_TRIES = 10


class NewJob(NamedTuple):
    """The command of a new job, its name and its delivery if given, and whether it is kept after its only run."""

    command: str
    name: str | None = None
    #: In JSON, or the name of a file behind an @.
    delivery: str | None = None
    keep: bool = True


# ---- adding --------------------------------------------------------------------------------------


def add(expression: str, timezone: str | None, new: NewJob, target: Target, form: Format) -> None:
    """Add a job that runs by a schedule."""
    _add(expression_fields("EXPRESSION", expression, timezone), new, target, form)


def add_at(instant: str, timezone: str | None, new: NewJob, target: Target, form: Format) -> None:
    """Add a job that runs once, at an instant."""
    _add(_instant_fields("INSTANT", instant, timezone), new, target, form)


def add_every(interval: str, new: NewJob, target: Target, form: Format) -> None:
    """Add a job that runs at an interval."""
    _add(interval_fields("MILLISECONDS", interval), new, target, form)


def once(delay: str, new: NewJob, target: Target, form: Format) -> None:
    """Add a job that runs once, after a delay."""
    at = parse_start(None) + timedelta(milliseconds=delay_ms("DELAY", delay))
    _add({CronKind.AT.value: at.isoformat()}, new, target, form)


def _instant_fields(option: str, text: str, timezone: str | None) -> dict[str, Any]:
    if timezone is not None:
        known_zone(timezone)
    at = parse_start(text, timezone=timezone, option=option)
    return instant_fields(option, text, at, now=parse_start(None))


def _add(schedule: Mapping[str, Any], new: NewJob, target: Target, form: Format) -> None:
    keep = new.keep or CronKind.AT.value not in schedule
    defaults = _defaults(target)
    announce = _announce_fields(new.delivery)

    def definition(name: str) -> dict[str, Any]:
        return cron_job(name, new.command, schedule, defaults, keep=keep, announce=announce)

    async def work(gateway: Gateway) -> JobApplied:
        if new.name is not None:
            done = await gateway.send(requests.register(definition(new.name)))
            if done.change == JobChange.UNCHANGED:
                raise NameTaken("job", new.name)
            return done
        taken = {one.job for one in await list_all(gateway, requests.jobs(page=page_size()))}
        for _ in range(_TRIES):
            name = generated_name(new.command, taken)
            taken.add(name)
            try:
                done = await gateway.send(requests.register(definition(name)))
            except NameTaken:
                continue
            if done.change != JobChange.UNCHANGED:
                return done
        raise NameTaken("job", name)

    done = with_gateway(target, work, make=True, origin=OriginKind.CRON)
    if form is not Format.TABLE:
        print_data(done, form)
        return
    _print_warnings(done)
    zone = schedule.get("timezone", "UTC")
    echo(printable(f"{done.job} is added; its next run is at {format_instant(done.next_run_at, zone)}"))


def _print_warnings(done: JobApplied) -> None:
    for warning in done.warnings:
        sys.stderr.write(printable(f"warning: {done.job}: {warning}") + "\n")


def _announce_fields(delivery: str | None) -> dict[str, Any]:
    return {} if delivery is None else delivery_fields("--delivery", json_option("--delivery", delivery))


def _defaults(target: Target) -> CronDefaults:
    cron = target.settings().cron
    return CronDefaults(**{field: getattr(cron, field) for field in CronDefaults.__struct_fields__})


# ---- listing and changing ------------------------------------------------------------------------


async def _jobs(gateway: Gateway) -> list[JobSummary]:
    return await list_all(gateway, requests.jobs(tag=CRON_TAG, page=page_size()))


async def _named(gateway: Gateway, given: str) -> str:
    """The full name of a cron job; a UsageError names the origin of a job of another kind."""
    try:
        return resolved_name(given, [one.job for one in await _jobs(gateway)])
    except NotFound:
        other = await _other_job(gateway, given)
        if other is None:
            raise
        reason = f"{given} is no job of gnomon cron: it comes from {origin_text(other.origin)}; use gnomon jobs"
        raise UsageError(reason) from None


async def _other_job(gateway: Gateway, name: str) -> JobDetail | None:
    try:
        return await gateway.send(requests.job(name, coming=0, last=0))
    except (NotFound, FieldError):
        return None


def list_jobs(target: Target, form: Format) -> None:
    """Print the jobs, by their next run; those without one come last, by name."""
    found = with_gateway(target, _jobs)
    found.sort(key=lambda one: (one.next_run_at is None, one.next_run_at or one.updated_at, one.job))
    none = 'no jobs: gnomon cron add "*/5 * * * *" COMMAND adds one'
    print_list(found, form, ["job", "state", "schedule", "next run"], _row, none)


def _row(one: JobSummary) -> list[str]:
    return [one.job, one.state, one.schedule, format_instant(one.next_run_at, one.timezone)]


def update(given: str, wanted: CronUpdate, target: Target, form: Format) -> None:
    """Change the schedule, the command or the delivery of a job."""

    async def work(gateway: Gateway) -> tuple[JobDetail, JobApplied]:
        name = await _named(gateway, given)
        before = await gateway.send(requests.job(name, coming=0, last=0))
        definition = dict(before.definition or {})
        kind = kind_of(definition)
        wanted.check(name, kind)
        kept = {field: value for field, value in definition.items() if wanted.delivery is None or field != "announce"}
        changed = {**kept, **_changes(wanted, definition), **_announce_fields(wanted.delivery)}
        return before, await gateway.send(requests.update(name, changed, etag=before.etag))

    before, done = with_gateway(target, work, origin=OriginKind.CRON)
    if form is not Format.TABLE:
        print_data(done, form)
        return
    _print_warnings(done)
    if done.change == JobChange.UNCHANGED:
        echo(f"{done.job} is unchanged: it was so already")
    elif before.paused:
        echo(f"{done.job} is changed, and paused: gnomon cron resume {done.job} starts it")
    else:
        zone = wanted.timezone or before.timezone
        echo(f"{done.job} is changed; its next run is at {format_instant(done.next_run_at, zone)}")


def _changes(wanted: CronUpdate, definition: Mapping[str, Any]) -> dict[str, Any]:
    changes: dict[str, Any] = {} if wanted.command is None else {"command": wanted.command}
    if wanted.at is not None:
        return changes | _instant_fields("--at", wanted.at, wanted.timezone)
    if wanted.every is not None:
        return changes | interval_fields("--every", wanted.every)
    if wanted.expression is not None or wanted.timezone is not None:
        expression = wanted.expression or definition[CronKind.CRON.value]
        zone = wanted.timezone or definition.get("timezone")
        changes |= expression_fields("--expression", expression, zone)
    return changes


def remove(given: str, target: Target, form: Format) -> None:
    """Delete a job."""

    async def work(gateway: Gateway) -> str:
        name = await _named(gateway, given)
        await gateway.send(requests.delete(name))
        return name

    name = with_gateway(target, work)
    echo(f"{name} is removed; its history stays") if form is Format.TABLE else print_data({"job": name}, form)


def pause(given: str, target: Target, form: Format) -> None:
    """Pause a job."""

    async def work(gateway: Gateway) -> JobDetail:
        return await gateway.send(requests.pause(await _named(gateway, given)))

    done = with_gateway(target, work)
    echo(f"{done.job} is paused") if form is Format.TABLE else print_data(done, form)


def resume(given: str, target: Target, form: Format) -> None:
    """Resume a job; UsageError for one that runs once and whose time is over."""

    async def work(gateway: Gateway) -> tuple[str, JobResumed]:
        name = await _named(gateway, given)
        standing = await gateway.send(requests.job(name, coming=1, last=0))
        if CronKind.AT.value in (standing.definition or {}) and not standing.next_runs:
            raise UsageError(
                f"{name} runs once, and its time is over: give it another one with gnomon cron update {name} --at,"
                f" or run it with gnomon cron run {name}"
            )
        return name, await gateway.send(requests.resume(name))

    name, done = with_gateway(target, work)
    if form is not Format.TABLE:
        print_data(done, form)
        return
    echo(f"{name} is resumed; its next run is at {format_instant(next(iter(done.next_runs), None), done.timezone)}")
    if done.swallowed.count:
        echo(f"{pluralized(done.swallowed.count, 'run')} missed during the pause")


# ---- runs ----------------------------------------------------------------------------------------


class _ShownRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run as these commands show it."""

    job: str
    execution_id: str
    trigger: str
    status: str
    started_at: Any
    completed_at: Any
    duration_ms: int | None
    error: str | None
    output: str | None


def run(given: str, target: Target, form: Format) -> bool:
    """Run a job now and print its output; return whether it completed."""

    async def work(gateway: Gateway) -> ExecutionDetail:
        started = await gateway.send(requests.trigger(await _named(gateway, given), force=True))
        if not await any_worker(gateway):
            sys.stderr.write(f"{NO_WORKER}\n")
        return await wait_until_done(gateway.send, requests.execution(started.execution_id))

    found = with_gateway(target, work)
    shown = _shown_run(found)
    if form is Format.TABLE:
        echo(summary_text(found))
        for line in (shown.output or "").splitlines():
            echo(printable(line))
    else:
        print_data(shown, form)
    return found.status == RunStatus.COMPLETED


def runs(given: str, limit: int, target: Target, form: Format) -> None:
    """Print the runs of a job, newest first."""

    async def work(gateway: Gateway) -> tuple[list[_ShownRun], str | None]:
        name, zone = await _job_or_past(gateway, given)
        found = await list_all(gateway, requests.executions(page=page_size(limit), job=name), limit)
        details = [await gateway.send(requests.execution(one.execution_id)) for one in found]
        return [_shown_run(one, most=_LONGEST_SHOWN) for one in details], zone

    found, zone = with_gateway(target, work)
    columns = ["execution", "trigger", "status", "started", "took", "output"]
    print_list(found, form, columns, lambda one: _run_row(one, zone), none="no runs")


async def _job_or_past(gateway: Gateway, given: str) -> tuple[str, str | None]:
    """The name of a job, and its zone; also of one that was deleted after its run and has left history."""
    try:
        name = await _named(gateway, given)
    except NotFound:
        past: list[Execution] = await list_all(gateway, requests.executions(page=1, job=given), 1)
        if not past:
            raise
        return given, None
    return name, (await gateway.send(requests.job(name, coming=0, last=0))).timezone


def _shown_run(one: ExecutionDetail, *, most: int | None = None) -> _ShownRun:
    output = _output_text(one)
    if output is not None and most is not None and len(output) > most:
        output = f"{output[:most]}..."
    return _ShownRun(
        job=one.job,
        execution_id=one.execution_id,
        trigger=trigger_text(one.trigger),
        status=one.status,
        started_at=one.started_at,
        completed_at=one.completed_at,
        duration_ms=one.duration_ms,
        error=one.error,
        output=output,
    )


def _output_text(one: ExecutionDetail) -> str | None:
    """The output of a run as text: of a command, what it printed."""
    output = next((step.output for step in one.steps if step.output is not None), None)
    if output is None:
        return None
    if isinstance(output, dict) and isinstance(output.get("stdout"), str):
        return str(output["stdout"])
    return msgspec.json.encode(output).decode()


def _run_row(one: _ShownRun, zone: str | None) -> list[str]:
    return [
        one.execution_id,
        one.trigger,
        one.status,
        format_instant(one.started_at, zone),
        format_duration(one.duration_ms),
        first_line(one.error or one.output),
    ]
