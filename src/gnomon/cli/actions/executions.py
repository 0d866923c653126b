"""`gnomon executions`: list, show, follow and cancel executions."""

import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from gnomon.app.gateway import Gateway
from gnomon.cli.actions.agents import amount_text, count_text
from gnomon.cli.actions.announcements import announced_text, announcement_line
from gnomon.cli.actions.graph_drawing import draw, state_of
from gnomon.cli.ids import execution_of
from gnomon.cli.inputs import parse_bounds
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
)
from gnomon.cli.target import Target, echo, list_all, page_size, with_gateway, zone_of_job
from gnomon.client import requests
from gnomon.client.transport import poll_until_done
from gnomon.core.model import ENGINE, RunSource
from gnomon.core.responses.executions import (
    AttemptDetail,
    Ended,
    Execution,
    ExecutionDetail,
    ItemDetail,
    LogEntry,
    RollbackStarted,
    Started,
    StepDetail,
    WorkDetail,
)
from gnomon.core.responses.why import WhyAttempt
from gnomon.core.runs.launch import CancelOutcome, LaunchOutcome
from gnomon.core.runs.rollback import CAUSE_TEXTS, RollbackCause, is_compensation, undone_step
from gnomon.core.runs.states import TaskState
from gnomon.errors import UsageError

NO_WORKER = "no worker is alive: gnomon up and gnomon worker start one"
_SKIPPED = "skipped"
#: The number of failed steps and items whose attempts are printed below the graph.
_MOST_FAILURES = 20
#: A line may arrive this much later than lines with a later timestamp; so far back each poll of the log starts.
_LATE = timedelta(seconds=30)


def list_executions(filters: Mapping[str, str | None], limit: int, target: Target, form: Format) -> None:
    """Print executions, newest first, or the ticks that had none."""

    async def work(gateway: Gateway) -> tuple[list[Execution], str | None]:
        zone = await zone_of_job(gateway, filters["job"])
        bounded = {**filters, **parse_bounds(filters, zone)}
        return await list_all(gateway, requests.executions(page=page_size(limit), **bounded), limit), zone

    runs, zone = with_gateway(target, work)
    if filters["status"] == _SKIPPED:
        columns = ["job", "planned", "count", "why"]
        print_list(runs, form, columns, lambda run: _skipped_row(run, zone), none="no ticks without an execution")
        return
    columns = ["execution", "job", "trigger", "status", "planned", "took", "error"]
    announced = any(run.announced is not None for run in runs)
    costly = any(run.cost is not None for run in runs)
    columns += (["announced"] if announced else []) + (["tokens", "cost"] if costly else [])
    print_list(
        runs, form, columns, lambda run: _row(run, zone, announced=announced, costly=costly), none="no executions"
    )


def _row(run: Execution, zone: str | None, *, announced: bool, costly: bool) -> list[str]:
    return [
        run.execution_id,
        run.job,
        trigger_text(run.trigger),
        run.status,
        format_instant(run.planned_at, zone),
        format_duration(run.duration_ms),
        first_line(run.error),
        *([announced_text(run.announced)] if announced else []),
        *([count_text(run.tokens), amount_text(run.cost)] if costly else []),
    ]


def _skipped_row(tick: Execution, zone: str | None) -> list[str]:
    return [
        tick.job,
        format_instant(tick.planned_at, zone),
        str(tick.count),
        (tick.reason or "").replace("_", " "),
    ]


def show(given: str | None, job: str | None, target: Target, form: Format) -> None:
    """Print an execution with its steps and attempts."""

    async def work(gateway: Gateway) -> tuple[ExecutionDetail, str | None]:
        found = await gateway.send(requests.execution(await execution_of(gateway, given, job=job)))
        return found, await zone_of_job(gateway, found.job) if form is Format.TABLE else None

    found, zone = with_gateway(target, work)
    if form is not Format.TABLE:
        print_data(found, form)
        return
    echo("\n".join(format_fields(_fields(found, zone))))
    echo("")
    # A step without `when` belongs to a workflow version that is gone: the order of the steps is unknown.
    drawn = [one for one in found.steps if one.when is not None]
    if len(drawn) < len(found.steps) or (len(drawn) == 1 and drawn[0].items is None):
        _print_attempts(found.steps, zone)
        return
    draw(drawn)
    # The graph has the number of attempts; the table below it has the errors of steps that were retried.
    tried = [(step.step, one) for step in drawn for one in (step, *(step.items or []))]
    failed = [(name, one) for name, one in tried if any(a.error and a.worker != ENGINE for a in one.attempts)]
    if failed:
        echo("")
        _print_rows(failed[:_MOST_FAILURES], zone)


def _print_attempts(steps: Sequence[StepDetail], zone: str | None) -> None:
    _print_rows([(step.step, step) for step in steps], zone)


def _print_rows(tried: Sequence[tuple[str, WorkDetail]], zone: str | None) -> None:
    rows = [row for name, one in tried for row in _step_rows(name, one, zone)]
    print_table(["step", "state", "attempt", "worker", "started", "took", "ended", "error"], rows)


def cancel(given: str | None, job: str | None, target: Target, form: Format) -> None:
    """Cancel an execution."""

    async def work(gateway: Gateway) -> Ended:
        return await gateway.send(requests.cancel(await execution_of(gateway, given, job=job)))

    done = with_gateway(target, work)
    if form is not Format.TABLE:
        print_data(done, form)
    elif done.became == CancelOutcome.CANCELLED:
        echo(f"{done.execution_id} is cancelled")
    else:
        echo(f"{done.execution_id} is stopping")


def roll_back(given: str | None, job: str | None, reason: str, target: Target, form: Format) -> None:
    """Roll an execution back."""

    async def work(gateway: Gateway) -> RollbackStarted:
        return await gateway.send(requests.roll_back(await execution_of(gateway, given, job=job), reason=reason))

    done = with_gateway(target, work)
    if form is not Format.TABLE:
        print_data(done, form)
    else:
        echo(f"{done.execution_id} is being rolled back: see gnomon executions show {done.execution_id}")


def logs(given: str | None, job: str | None, target: Target, form: Format, *, follow: bool) -> None:
    """Print the log of an execution; with `follow`, until it has completed."""
    if follow and form is not Format.TABLE:
        raise UsageError("--follow prints lines: it cannot be used with -o")
    if follow:
        with_gateway(target, lambda gateway: _follow(gateway, given, job))
        return

    async def work(gateway: Gateway) -> list[LogEntry]:
        execution_id = await execution_of(gateway, given, job=job)
        entries = await list_all(gateway, requests.logs(execution_id))
        if form is not Format.TABLE:
            return entries
        return sorted([*entries, *_error_lines(await gateway.send(requests.execution(execution_id)))], key=_logged_at)

    entries = with_gateway(target, work)
    if form is not Format.TABLE:
        print_data(entries, form)
    else:
        _print_log_lines(entries)


def _error_lines(run: ExecutionDetail) -> list[LogEntry]:
    """The errors of its attempts as lines of its log."""
    tried = [(step.step, one) for step in run.steps for one in (step, *(step.items or []))]
    return [
        LogEntry(at=attempt.ended_at, level="error", step=step, item=_item_of(one), line=0, text=text)
        for step, one in tried
        for attempt in one.attempts
        if attempt.error and attempt.ended_at is not None
        for text in f"attempt {attempt.attempt} {attempt.result}: {attempt.error}".splitlines()
    ]


def _item_of(one: WorkDetail) -> int | None:
    """The number of an item; None for a step."""
    return one.item if isinstance(one, ItemDetail) else None


def _logged_at(entry: LogEntry) -> datetime:
    return entry.at


async def _follow(gateway: Gateway, given: str | None, job: str | None) -> None:
    execution_id = await execution_of(gateway, given, job=job)
    seen: set[tuple[str, int | None, int]] = set()
    errors = 0
    since: datetime | None = None
    async for run in poll_until_done(gateway.send, requests.execution(execution_id)):
        entries = await list_all(gateway, requests.logs(execution_id, since=since))
        fresh = [one for one in entries if (one.step, one.item, one.line) not in seen]
        seen.update((one.step, one.item, one.line) for one in fresh)
        since = entries[-1].at - _LATE if entries else since
        failed = sorted(_error_lines(run), key=_logged_at)
        _print_log_lines(sorted([*fresh, *failed[errors:]], key=_logged_at))
        errors = len(failed)


def _print_log_lines(entries: Sequence[LogEntry]) -> None:
    for one in entries:
        source = one.step if one.item is None else f"{one.step}[{one.item}]"
        clock = one.at.isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "Z")
        echo(printable(f"{clock}  {one.level:<7}  {source}  {one.text}"))
    sys.stdout.flush()


async def accepted_text(gateway: Gateway, done: Started) -> str:
    """The effect of a request for an execution, which begins only when a worker takes it."""
    text = f"{done.execution_id} {became_text(done.became)}"
    return text if await any_worker(gateway) else f"{text}; {NO_WORKER}"


def became_text(became: str) -> str:
    """The effect of a request for an execution, in a word."""
    return "accepted" if became == LaunchOutcome.STARTED else became


async def any_worker(gateway: Gateway) -> bool:
    """Whether a worker is alive."""
    return bool((await gateway.send(requests.workers())).items)


def trigger_text(trigger: str) -> str:
    """The trigger of an execution in words: the API says `cron` for every kind of schedule."""
    return "schedule" if trigger == RunSource.CRON else trigger


def summary_text(run: Execution) -> str:
    """The result of an execution in one line."""
    how = f"{run.execution_id} {run.status}"
    how += f" in {format_duration(run.duration_ms)}" if run.duration_ms is not None else ""
    return printable(f"{how}: {first_line(run.error, 200)}" if run.error else how)


def attempt_took(attempt: AttemptDetail | WhyAttempt) -> str:
    """The duration of a completed attempt; an empty string otherwise."""
    if attempt.started_at is None or attempt.ended_at is None:
        return ""
    return format_duration(max(0, round((attempt.ended_at - attempt.started_at) / timedelta(milliseconds=1))))


def _trigger(run: ExecutionDetail) -> str:
    by = f" by {run.actor}" if run.actor else ""
    on_behalf = f" for {run.user_id}" if run.user_id not in ("", run.actor) else ""
    return f"{trigger_text(run.trigger)}{by}{on_behalf}"


def _fields(run: ExecutionDetail, zone: str | None) -> list[tuple[str, str]]:
    stopping = run.cancel_requested_at is not None and run.completed_at is None
    stop = f", stop requested {format_instant(run.cancel_requested_at, zone)}" if stopping else ""
    given = "" if run.input is None else msgspec.json.encode(run.input).decode()
    fields = [
        ("execution", run.execution_id),
        ("job", f"{run.job} (version {run.version})"),
        ("status", ("waiting in the queue" if run.queued else run.status) + stop),
        ("trigger", _trigger(run)),
        ("planned", format_instant(run.planned_at, zone)),
        ("started", format_instant(run.started_at, zone)),
        ("completed", format_instant(run.completed_at, zone)),
        ("deadline", format_instant(run.deadline_at, zone)),
        ("took", format_duration(run.duration_ms)),
        ("tokens", count_text(run.tokens)),
        ("cost", amount_text(run.cost)),
        ("error", run.error or ""),
        ("rollback", _rollback_text(run)),
        *_directions(run),
        ("key", run.key or ""),
        ("replay of", run.replay_of or ""),
        ("part of", run.parent_task or ""),
        ("input", first_line(given, 200)),
        *(("announced", announcement_line(one)) for one in run.announcements),
    ]
    return fields + [
        (f"output {one.step}", first_line(msgspec.json.encode(one.output).decode(), 200))
        for one in run.steps
        if one.output is not None
    ]


def _directions(run: ExecutionDetail) -> list[tuple[str, str]]:
    """The steps in the order of their last attempts, and those that were undone after that, each with its state."""
    if run.rollback is None:
        return []
    ran = sorted((one for one in run.steps if one.attempts), key=lambda one: one.attempts[-1].dispatched_at)
    forward = [_with_state(one, one.step) for one in ran if not is_compensation(one.step)]
    backward = [_with_state(one, undone_step(one.step)) for one in ran if is_compensation(one.step)]
    return [("forward", first_line(" > ".join(forward), 500)), ("backward", first_line(" > ".join(backward), 500))]


def _with_state(step: StepDetail, name: str) -> str:
    return name if step.state == TaskState.SUCCEEDED else f"{name} ({step.state})"


def _rollback_text(run: ExecutionDetail) -> str:
    if run.rollback is None:
        return ""
    cause = RollbackCause(run.rollback_cause or RollbackCause.GAVE_UP)
    return f"{run.rollback}, because {CAUSE_TEXTS[cause]}"


def _step_rows(step: str, one: WorkDetail, zone: str | None) -> list[list[str]]:
    state, item = state_of(one), _item_of(one)
    name = step if item is None else f"{step}[{item}]"
    if not one.attempts:
        return [[name, state, "", "", "", "", "", first_line(one.note)]]
    rows = [
        [
            name if index == 0 else "",
            state if index == 0 else "",
            str(attempt.attempt),
            attempt.worker,
            format_instant(attempt.started_at, zone),
            attempt_took(attempt),
            attempt.result or "",
            first_line(attempt.error),
        ]
        for index, attempt in enumerate(one.attempts)
    ]
    if one.note and one.waits_for is not None:
        rows.append(["", "", "", "", "", "", "", first_line(one.note)])
    return rows
