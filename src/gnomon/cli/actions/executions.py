"""`gnomon executions`: list, show, follow and cancel executions."""

import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from gnomon.app.gateway import Gateway
from gnomon.cli.actions.graph_drawing import draw, state_of
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
from gnomon.cli.target import Target, echo, list_all, page_size, send, with_gateway
from gnomon.client import requests
from gnomon.client.transport import poll_until_done
from gnomon.core.model import ENGINE, TickStatus
from gnomon.core.responses import (
    AttemptDetail,
    Execution,
    ExecutionDetail,
    ItemDetail,
    LedgerTick,
    LogEntry,
    StepDetail,
    WhyAttempt,
    WorkDetail,
)
from gnomon.core.runs.launch import CancelOutcome
from gnomon.errors import UsageError

_SKIPPED = "skipped"
#: The number of failed steps and items whose attempts are printed below the graph.
_MOST_FAILURES = 20
#: A line may arrive this much later than lines with a later timestamp; so far back each poll of the log starts.
_LATE = timedelta(seconds=30)


def list_executions(filters: Mapping[str, str | None], limit: int, target: Target, form: Format) -> None:
    """Print executions, newest first, or the ticks of a job that had no execution."""
    if filters["status"] == _SKIPPED:
        _list_skipped(filters, limit, target, form)
        return

    async def work(gateway: Gateway) -> list[Execution]:
        return await list_all(gateway, requests.executions(page=page_size(limit), **filters), limit)

    runs = with_gateway(target, work)
    columns = ["execution", "job", "trigger", "status", "planned", "took", "error"]
    print_list(runs, form, columns, _row, none="no executions")


def _row(run: Execution) -> list[str]:
    return [
        run.execution_id,
        run.job,
        run.trigger,
        run.status,
        format_instant(run.planned_at),
        format_duration(run.duration_ms),
        first_line(run.error),
    ]


def _list_skipped(filters: Mapping[str, str | None], limit: int, target: Target, form: Format) -> None:
    job, period = filters["job"], {field: filters[field] for field in ("since", "until")}
    if job is None:
        raise UsageError("--status skipped lists the ticks of one job that had no execution: name the job with --job")
    if filters["trigger"] is not None or filters["tag"] is not None:
        raise UsageError("--status skipped lists ticks: it cannot be used with --trigger or --tag")

    async def work(gateway: Gateway) -> list[LedgerTick]:
        return await list_all(
            gateway, requests.ticks(job, status=TickStatus.SKIPPED, page=page_size(limit), **period), limit
        )

    ticks = with_gateway(target, work)
    if form is not Format.TABLE:
        print_data([_skipped_data(tick) for tick in ticks], form)
        return
    if not ticks:
        echo("no ticks without an execution")
        return
    rows = [[format_instant(t.planned_at), str(t.count), t.kind, t.reason.replace("_", " ")] for t in ticks]
    print_table(["planned", "count", "became", "why"], rows)


def show(execution_id: str, target: Target, form: Format) -> None:
    """Print an execution with its steps and attempts."""
    found = send(target, requests.execution(execution_id))
    if form is not Format.TABLE:
        print_data(found, form)
        return
    echo("\n".join(format_fields(_fields(found))))
    echo("")
    # A step without `when` belongs to a workflow version that is gone: the order of the steps is unknown.
    drawn = [one for one in found.steps if one.when is not None]
    if len(drawn) < len(found.steps) or (len(drawn) == 1 and drawn[0].items is None):
        _print_attempts(found.steps)
        return
    draw(drawn)
    # The graph has the number of attempts; the table below it has the errors of steps that were retried.
    tried = [(step.step, one) for step in drawn for one in (step, *(step.items or []))]
    failed = [(name, one) for name, one in tried if any(a.error and a.worker != ENGINE for a in one.attempts)]
    if failed:
        echo("")
        _print_rows(failed[:_MOST_FAILURES])


def _print_attempts(steps: Sequence[StepDetail]) -> None:
    _print_rows([(step.step, step) for step in steps])


def _print_rows(tried: Sequence[tuple[str, WorkDetail]]) -> None:
    rows = [row for name, one in tried for row in _step_rows(name, one)]
    print_table(["step", "state", "attempt", "worker", "started", "took", "ended", "error"], rows)


def cancel(execution_id: str, target: Target, form: Format) -> None:
    """Cancel an execution."""
    done = send(target, requests.cancel(execution_id))
    if form is not Format.TABLE:
        print_data(done, form)
    elif done.became == CancelOutcome.CANCELLED:
        echo(f"{execution_id} is cancelled")
    else:
        echo(f"{execution_id} is stopping")


def logs(execution_id: str, target: Target, form: Format, *, follow: bool) -> None:
    """Print the log of an execution; with `follow`, until it has completed."""
    if follow and form is not Format.TABLE:
        raise UsageError("--follow prints lines: it cannot be used with -o")
    if follow:
        with_gateway(target, lambda gateway: _follow(gateway, execution_id))
        return

    async def work(gateway: Gateway) -> list[LogEntry]:
        return await list_all(gateway, requests.logs(execution_id))

    entries = with_gateway(target, work)
    if form is not Format.TABLE:
        print_data(entries, form)
    else:
        _print_log_lines(entries)


async def _follow(gateway: Gateway, execution_id: str) -> None:
    seen: set[tuple[str, int | None, int]] = set()
    since: datetime | None = None
    async for _ in poll_until_done(gateway.send, requests.execution(execution_id)):
        entries = await list_all(gateway, requests.logs(execution_id, since=since))
        fresh = [one for one in entries if (one.step, one.item, one.line) not in seen]
        seen.update((one.step, one.item, one.line) for one in fresh)
        since = entries[-1].at - _LATE if entries else since
        _print_log_lines(fresh)


def _print_log_lines(entries: Sequence[LogEntry]) -> None:
    for one in entries:
        source = one.step if one.item is None else f"{one.step}[{one.item}]"
        clock = one.at.isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "Z")
        echo(printable(f"{clock}  {one.level:<7}  {source}  {one.text}"))
    sys.stdout.flush()


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


def _fields(run: ExecutionDetail) -> list[tuple[str, str]]:
    stopping = run.cancel_requested_at is not None and run.completed_at is None
    stop = f", stop requested {format_instant(run.cancel_requested_at)}" if stopping else ""
    given = "" if run.input is None else msgspec.json.encode(run.input).decode()
    fields = [
        ("execution", run.execution_id),
        ("job", f"{run.job} (version {run.version})"),
        ("status", ("waiting in the queue" if run.queued else run.status) + stop),
        ("trigger", f"{run.trigger} for {run.user_id}" if run.user_id else run.trigger),
        ("planned", format_instant(run.planned_at)),
        ("started", format_instant(run.started_at)),
        ("completed", format_instant(run.completed_at)),
        ("took", format_duration(run.duration_ms)),
        ("error", run.error or ""),
        ("key", run.key or ""),
        ("replay of", run.replay_of or ""),
        ("part of", run.parent_task or ""),
        ("input", first_line(given, 200)),
    ]
    return fields + [
        (f"output {one.step}", first_line(msgspec.json.encode(one.output).decode(), 200))
        for one in run.steps
        if one.output is not None
    ]


def _step_rows(step: str, one: WorkDetail) -> list[list[str]]:
    state, item = state_of(one), one.item if isinstance(one, ItemDetail) else None
    name = step if item is None else f"{step}[{item}]"
    if not one.attempts:
        return [[name, state, "", "", "", "", "", first_line(one.note)]]
    rows = [
        [
            name if index == 0 else "",
            state if index == 0 else "",
            str(attempt.attempt),
            attempt.worker,
            format_instant(attempt.started_at),
            attempt_took(attempt),
            attempt.result or "",
            first_line(attempt.error),
        ]
        for index, attempt in enumerate(one.attempts)
    ]
    if one.note and one.waits_for is not None:
        rows.append(["", "", "", "", "", "", "", first_line(one.note)])
    return rows


def _skipped_data(tick: LedgerTick) -> dict[str, Any]:
    return {
        "job": tick.job,
        "trigger": "cron",
        "status": _SKIPPED,
        "planned_at": tick.planned_at,
        "last_at": tick.last_at,
        "count": tick.count,
        "kind": tick.kind,
        "reason": tick.reason,
    }
