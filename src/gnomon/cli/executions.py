"""`gnomon executions`: what ran, how it went, and ending it."""

import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from gnomon.app import Office
from gnomon.cli.drawing import draw, state_of
from gnomon.cli.offices import Where, actor, in_office, say
from gnomon.cli.output import Format, print_data, print_table, visible
from gnomon.cli.readable import facts, first_line, iso, moment, span
from gnomon.core.instants import instant_of
from gnomon.core.launching import Cancelling
from gnomon.core.model import ENGINE, Attempt, LogLine, Run, RunStatus, TaskId, Tick
from gnomon.errors import UsageError
from gnomon.services.answering import execution, execution_detail, log_entry, took
from gnomon.services.executions import ExecutionView, StepView

_SKIPPED = "skipped"
#: Of how many steps and items it is told what went wrong.
_MOST_FAILURES = 20


def list_executions(job: str | None, status: str | None, limit: int, where: Where, form: Format) -> None:
    """List runs, the newest first; or the ticks of a job that had none."""
    if status == _SKIPPED:
        _list_skipped(job, limit, where, form)
        return
    wanted = None if status is None else RunStatus(status)
    runs = in_office(where, lambda office: office.executions.page(job=job, status=wanted, limit=limit))
    if form is not Format.TABLE:
        print_data([execution(run) for run in runs], form)
        return
    if not runs:
        say("no executions")
        return
    rows = [
        [
            run.run_id,
            run.schedule_id or run.workflow_id,
            run.source,
            run.status,
            moment(run.planned_at),
            span(took(run)),
            first_line(run.error),
        ]
        for run in runs
    ]
    print_table(["execution", "job", "trigger", "status", "planned", "took", "error"], rows)


def _list_skipped(job: str | None, limit: int, where: Where, form: Format) -> None:
    if job is None:
        raise UsageError("--status skipped lists the ticks of one job that had no execution: name it with --job")
    ticks = in_office(where, lambda office: office.jobs.skipped(job, limit=limit))
    if form is not Format.TABLE:
        print_data([_skipped_data(tick) for tick in ticks], form)
        return
    if not ticks:
        say("no ticks without an execution")
        return
    rows = [
        [moment(t.decision.planned_at), str(t.decision.count), t.decision.kind, t.decision.reason.replace("_", " ")]
        for t in ticks
    ]
    print_table(["planned", "count", "became", "why"], rows)


def show(execution_id: str, where: Where, form: Format) -> None:
    """Show a run with its steps and attempts."""
    view = in_office(where, lambda office: office.executions.get(execution_id))
    if form is not Format.TABLE:
        print_data(execution_detail(view), form)
        return
    say("\n".join(facts(_told(view))))
    say("")
    if view.workflow is None or view.workflow.lone:
        _print_attempts(view.steps)
        return
    draw(view, view.workflow)
    # The graph says how often each step was tried; why it was tried again is told of those that were.
    failed = [step for step in view.steps if any(one.error and one.worker != ENGINE for one in step.attempts)]
    if failed:
        say("")
        _print_attempts(failed[:_MOST_FAILURES])


def _print_attempts(steps: Sequence[StepView]) -> None:
    rows = [row for step in steps for row in _step_rows(step)]
    print_table(["step", "state", "attempt", "worker", "started", "took", "ended", "error"], rows)


def cancel(execution_id: str, where: Where, form: Format) -> None:
    """End a run."""
    became = in_office(where, lambda office: office.executions.cancel(execution_id, actor=actor()))
    if form is not Format.TABLE:
        print_data({"execution_id": execution_id, "became": became.value}, form)
    elif became is Cancelling.CANCELLED:
        say(f"{execution_id} is cancelled")
    else:
        say(f"{execution_id} has been asked to stop")


def logs(execution_id: str, where: Where, form: Format, *, follow: bool) -> None:
    """Print what a run has said; with `follow`, go on until it is over."""
    if form is Format.TABLE:
        in_office(where, lambda office: _follow(office, execution_id) if follow else _print_new(office, execution_id))
        return
    if follow:
        raise UsageError("--follow prints lines: leave -o away")
    said, _ = in_office(where, lambda office: office.executions.logs(execution_id))
    print_data([log_entry(one) for one in said], form)


async def _follow(office: Office, execution_id: str) -> None:
    seen: dict[TaskId, int] = {}
    async for _ in office.executions.looks(execution_id):
        seen = await _print_new(office, execution_id, seen)


async def _print_new(office: Office, execution_id: str, seen: dict[TaskId, int] | None = None) -> dict[TaskId, int]:
    said, now_seen = await office.executions.logs(execution_id, seen=seen)
    for one in said:
        who = one.step if one.item is None else f"{one.step}[{one.item}]"
        say(visible(f"{_clock(one.line)}  {one.line.level:<7}  {who}  {one.line.text}"))
    sys.stdout.flush()
    return now_seen


def _clock(line: LogLine) -> str:
    return instant_of(line.at).isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "Z")


def sentence(run: Run) -> str:
    """How a run went, in one line."""
    how = f"{run.run_id} {run.status}"
    lasted = took(run)
    how += f" in {span(lasted)}" if lasted is not None else ""
    return visible(f"{how}: {first_line(run.error, 200)}" if run.error else how)


def attempt_took(attempt: Attempt) -> str:
    """How long an attempt that has ended went on."""
    if attempt.started_at is None or attempt.ended_at is None:
        return ""
    return span(max(0, attempt.ended_at - attempt.started_at))


def _told(view: ExecutionView) -> list[tuple[str, str]]:
    run = view.run
    given = (msgspec.json.encode(view.workflow.input) if view.workflow else None) if view.input is None else view.input
    asked = f", asked to stop {moment(run.cancel_requested_at)}" if run.cancel_requested_at and not run.over else ""
    told = [
        ("execution", run.run_id),
        ("job", f"{run.schedule_id or run.workflow_id} (version {run.workflow_version})"),
        ("status", ("waiting in the queue" if run.queued else run.status.value) + asked),
        ("trigger", f"{run.source} for {run.user_id}" if run.user_id else run.source.value),
        ("planned", moment(run.planned_at)),
        ("started", moment(run.started_at)),
        ("completed", moment(run.completed_at)),
        ("took", span(took(run))),
        ("error", run.error or ""),
        ("key", run.idempotency_key or ""),
        ("replay of", run.replay_of or ""),
        ("part of", run.parent_task or ""),
        ("input", first_line((given or b"").decode(), 200)),
    ]
    return told + [
        (f"output {one.task.step}", first_line(one.output.decode(), 200))
        for one in view.steps
        if one.output and one.task.parent is None
    ]


def _step_rows(step: StepView) -> list[list[str]]:
    task = step.task
    state, name = state_of(task), task.step if task.item is None else f"{task.step}[{task.item}]"
    if not step.attempts:
        return [[name, state, "", "", "", "", "", first_line(task.note)]]
    return [
        [
            name if index == 0 else "",
            state if index == 0 else "",
            str(attempt.number),
            attempt.worker,
            moment(attempt.started_at),
            attempt_took(attempt),
            "" if attempt.result is None else attempt.result.value,
            first_line(attempt.error),
        ]
        for index, attempt in enumerate(step.attempts)
    ]


def _skipped_data(tick: Tick) -> dict[str, Any]:
    return {
        "job": tick.schedule_id,
        "trigger": "cron",
        "status": _SKIPPED,
        "planned_at": iso(tick.decision.planned_at),
        "last_at": iso(tick.decision.last_at),
        "count": tick.decision.count,
        "kind": tick.decision.kind.value,
        "reason": tick.decision.reason.value,
    }
