"""`gnomon executions`: what ran, how it went, and ending it."""

import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from gnomon.app.gateway import Door
from gnomon.cli.actions.graph_drawing import draw, state_of
from gnomon.cli.output import Format, facts, first_line, moment, print_data, print_list, print_table, span, visible
from gnomon.cli.target import Where, answer_to, at_door, looks, page_of, say, some_of
from gnomon.client import requests
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
from gnomon.core.runs.launch import Cancelling
from gnomon.errors import UsageError

_SKIPPED = "skipped"
#: Of how many steps and items it is told what went wrong.
_MOST_FAILURES = 20
#: How much later than others a line may come in, with what it said in between.
_LATE = timedelta(seconds=30)


def list_executions(asked: Mapping[str, str | None], limit: int, where: Where, form: Format) -> None:
    """List runs, the newest first; or the ticks of a job that had none."""
    if asked["status"] == _SKIPPED:
        _list_skipped(asked, limit, where, form)
        return

    async def work(door: Door) -> list[Execution]:
        return await some_of(door, requests.executions(page=page_of(limit), **asked), limit)

    runs = at_door(where, work)
    columns = ["execution", "job", "trigger", "status", "planned", "took", "error"]
    print_list(runs, form, columns, _row, none="no executions")


def _row(run: Execution) -> list[str]:
    return [
        run.execution_id,
        run.job,
        run.trigger,
        run.status,
        moment(run.planned_at),
        span(run.duration_ms),
        first_line(run.error),
    ]


def _list_skipped(asked: Mapping[str, str | None], limit: int, where: Where, form: Format) -> None:
    job, within = asked["job"], {field: asked[field] for field in ("since", "until")}
    if job is None:
        raise UsageError("--status skipped lists the ticks of one job that had no execution: name it with --job")
    if asked["trigger"] is not None or asked["tag"] is not None:
        raise UsageError("--status skipped lists ticks: --trigger and --tag are of executions")

    async def work(door: Door) -> list[LedgerTick]:
        return await some_of(door, requests.ticks(job, status=TickStatus.SKIPPED, page=page_of(limit), **within), limit)

    ticks = at_door(where, work)
    if form is not Format.TABLE:
        print_data([_skipped_data(tick) for tick in ticks], form)
        return
    if not ticks:
        say("no ticks without an execution")
        return
    rows = [[moment(t.planned_at), str(t.count), t.kind, t.reason.replace("_", " ")] for t in ticks]
    print_table(["planned", "count", "became", "why"], rows)


def show(execution_id: str, where: Where, form: Format) -> None:
    """Show a run with its steps and attempts."""
    found = answer_to(where, requests.execution(execution_id))
    if form is not Format.TABLE:
        print_data(found, form)
        return
    say("\n".join(facts(_told(found))))
    say("")
    # Without the workflow it is not known what comes after what.
    drawn = [one for one in found.steps if one.when is not None]
    if len(drawn) < len(found.steps) or (len(drawn) == 1 and drawn[0].items is None):
        _print_attempts(found.steps)
        return
    draw(drawn)
    # The graph says how often each step was tried; why it was tried again is told of those that were.
    tried = [(step.step, one) for step in drawn for one in (step, *(step.items or []))]
    failed = [(name, one) for name, one in tried if any(a.error and a.worker != ENGINE for a in one.attempts)]
    if failed:
        say("")
        _print_rows(failed[:_MOST_FAILURES])


def _print_attempts(steps: Sequence[StepDetail]) -> None:
    _print_rows([(step.step, step) for step in steps])


def _print_rows(tried: Sequence[tuple[str, WorkDetail]]) -> None:
    rows = [row for name, one in tried for row in _step_rows(name, one)]
    print_table(["step", "state", "attempt", "worker", "started", "took", "ended", "error"], rows)


def cancel(execution_id: str, where: Where, form: Format) -> None:
    """End a run."""
    done = answer_to(where, requests.cancel(execution_id))
    if form is not Format.TABLE:
        print_data(done, form)
    elif done.became == Cancelling.CANCELLED:
        say(f"{execution_id} is cancelled")
    else:
        say(f"{execution_id} has been asked to stop")


def logs(execution_id: str, where: Where, form: Format, *, follow: bool) -> None:
    """Print what a run has said; with `follow`, go on until it is over."""
    if follow and form is not Format.TABLE:
        raise UsageError("--follow prints lines: leave -o away")
    if follow:
        at_door(where, lambda door: _follow(door, execution_id))
        return

    async def work(door: Door) -> list[LogEntry]:
        return await some_of(door, requests.logs(execution_id))

    said = at_door(where, work)
    if form is not Format.TABLE:
        print_data(said, form)
    else:
        _print_lines(said)


async def _follow(door: Door, execution_id: str) -> None:
    seen: set[tuple[str, int | None, int]] = set()
    since: datetime | None = None
    async for _ in looks(door, requests.execution(execution_id)):
        said = await some_of(door, requests.logs(execution_id, since=since))
        fresh = [one for one in said if (one.step, one.item, one.line) not in seen]
        seen.update((one.step, one.item, one.line) for one in fresh)
        since = said[-1].at - _LATE if said else since
        _print_lines(fresh)


def _print_lines(said: Sequence[LogEntry]) -> None:
    for one in said:
        who = one.step if one.item is None else f"{one.step}[{one.item}]"
        clock = one.at.isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "Z")
        say(visible(f"{clock}  {one.level:<7}  {who}  {one.text}"))
    sys.stdout.flush()


def sentence(run: Execution) -> str:
    """How a run went, in one line."""
    how = f"{run.execution_id} {run.status}"
    how += f" in {span(run.duration_ms)}" if run.duration_ms is not None else ""
    return visible(f"{how}: {first_line(run.error, 200)}" if run.error else how)


def attempt_took(attempt: AttemptDetail | WhyAttempt) -> str:
    """How long an attempt that has ended went on."""
    if attempt.started_at is None or attempt.ended_at is None:
        return ""
    return span(max(0, round((attempt.ended_at - attempt.started_at) / timedelta(milliseconds=1))))


def _told(run: ExecutionDetail) -> list[tuple[str, str]]:
    stopping = run.cancel_requested_at is not None and run.completed_at is None
    asked = f", asked to stop {moment(run.cancel_requested_at)}" if stopping else ""
    given = "" if run.input is None else msgspec.json.encode(run.input).decode()
    told = [
        ("execution", run.execution_id),
        ("job", f"{run.job} (version {run.version})"),
        ("status", ("waiting in the queue" if run.queued else run.status) + asked),
        ("trigger", f"{run.trigger} for {run.user_id}" if run.user_id else run.trigger),
        ("planned", moment(run.planned_at)),
        ("started", moment(run.started_at)),
        ("completed", moment(run.completed_at)),
        ("took", span(run.duration_ms)),
        ("error", run.error or ""),
        ("key", run.key or ""),
        ("replay of", run.replay_of or ""),
        ("part of", run.parent_task or ""),
        ("input", first_line(given, 200)),
    ]
    return told + [
        (f"output {one.step}", first_line(msgspec.json.encode(one.output).decode(), 200))
        for one in run.steps
        if one.output is not None
    ]


def _step_rows(step: str, one: WorkDetail) -> list[list[str]]:
    state, item = state_of(one), one.item if isinstance(one, ItemDetail) else None
    name = step if item is None else f"{step}[{item}]"
    if not one.attempts:
        return [[name, state, "", "", "", "", "", first_line(one.note)]]
    return [
        [
            name if index == 0 else "",
            state if index == 0 else "",
            str(attempt.attempt),
            attempt.worker,
            moment(attempt.started_at),
            attempt_took(attempt),
            attempt.result or "",
            first_line(attempt.error),
        ]
        for index, attempt in enumerate(one.attempts)
    ]


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
