"""`gnomon jobs plan`: the fields and fires that applying a file would change."""

import asyncio
import json
import sys
from collections.abc import Iterable
from pathlib import Path

from gnomon.app.gateway import RequestActor, open_empty
from gnomon.app.local_user import local_user
from gnomon.cli.actions.jobs import print_further_warnings, print_warnings, read_definitions
from gnomon.cli.output import Format, format_instant, print_data, printable, progress_spinner
from gnomon.cli.target import Target, echo, send
from gnomon.client import requests
from gnomon.client.transport import ApiRequest
from gnomon.core.explain.phrases import pluralized
from gnomon.core.ledger.forecast import FireChangeKind
from gnomon.core.responses.plans import JobPlan, JobsPlanned, PlannedChange, PlannedField
from gnomon.core.responses.policy import StepRuling
from gnomon.errors import FieldError, NoDatabase
from gnomon.services.operations.job_changes import PLANNED_CHANGES, JobChange, Prune

#: The default number of fires per job in the text output.
_MAX_LISTED = 5
#: The exit code if the plan has something that `--fail-on` names.
EXIT_FOUND = 3
_JOB_WORDS = frozenset(change.value for change in PLANNED_CHANGES) - {JobChange.UNCHANGED.value}
_WORDS = sorted(_JOB_WORDS | {fate.value for fate in FireChangeKind})
_SIGNS = {
    JobChange.CREATED: "+",
    JobChange.CHANGED: "~",
    JobChange.UNCHANGED: "=",
    JobChange.REMOVED: "-",
    JobChange.FINISHED: "=",
}
_CHANGE_TEXT = {FireChangeKind.ADDED: "added", FireChangeKind.REMOVED: "gone", FireChangeKind.MOVED: "moved"}


def parse_fail_on(values: Iterable[str]) -> frozenset[str]:
    """The words of `--fail-on`; FieldError for an unknown one."""
    found = frozenset(word.strip() for text in values for word in text.split(","))
    for word in found:
        if word not in _WORDS:
            raise FieldError("--fail-on", word, f"must be one or more of {', '.join(_WORDS)}")
    return found


def plan(
    files: list[Path],
    target: Target,
    form: Format,
    *,
    days: int,
    prune: Prune | None = None,
    limit: int | None = None,
) -> frozenset[str]:
    """Print the plan; return the words of `--fail-on` that apply to it."""
    written, tag = read_definitions(files, target), prune.tag if prune else None
    shown = (_MAX_LISTED if form is Format.TABLE else None) if limit is None else limit
    everything = prune is not None and tag is None
    jobs = [job for job, _ in written]
    print_warnings(jobs)
    definitions = [definition for _, definition in written]
    request = requests.plan(definitions, days=days, prune=everything, prune_tag=tag, fires=shown)
    with progress_spinner(f"planning {pluralized(len(definitions), 'job')}"):
        planned = _planned(request, target)
    print_further_warnings(jobs, {one.job: one.warnings for one in planned.plan})
    if form is Format.TABLE:
        _print_plan(planned, days=days)
    else:
        print_data(planned, form)
    found = {change for change, count in planned.jobs.items() if count} & _JOB_WORDS
    return frozenset(found | {fate.value for fate in FireChangeKind if planned.fires[fate.value]})


def _planned(request: ApiRequest[JobsPlanned], target: Target) -> JobsPlanned:
    try:
        return send(target, request)
    except NoDatabase:
        sys.stderr.write("there is no database yet: every job would be new\n")

    async def new() -> JobsPlanned:
        async with open_empty(target.settings(), RequestActor(local_user())) as gateway:
            return await gateway.send(request)

    return asyncio.run(new())


def _print_plan(planned: JobsPlanned, *, days: int) -> None:
    for one in planned.plan:
        if one.change != JobChange.UNCHANGED or one.stays_paused:
            echo("\n".join(printable(line) for line in _lines(one, planned)))
    changes = [f"{planned.jobs[change]} {change}" for change in PLANNED_CHANGES if planned.jobs[change]]
    echo(", ".join(changes) or "no jobs")
    fires = [f"{planned.fires[fate]} {_CHANGE_TEXT[fate]}" for fate in FireChangeKind if planned.fires[fate]]
    fires.append(f"{planned.fires['same']} as before")
    echo(f"fires of the next {days} days: {', '.join(fires)}")


def _lines(one: JobPlan, planned: JobsPlanned) -> Iterable[str]:
    yield f"{_SIGNS[JobChange(one.change)]} {one.job}: {one.change}{_remark(one)}"
    for field in one.fields:
        yield f"    {_field(field)}"
    yield from (f"    {line}" for line in _fires(one, planned))
    for step in one.policy:
        yield f"    policy, next run: {_held(step)}"
    for day in one.clock_changes:
        yield f"    * {format_instant(day.at, one.timezone)}: {day.what}"


def _held(step: StepRuling) -> str:
    if step.decision is None:
        return f"the input of step {step.step} decides by which rule it may run: {', '.join(step.rules)}"
    because = f" ({step.reason})" if step.reason else ""
    return f"step {step.step}: {step.decision} by {step.rule}{because}"


def _remark(one: JobPlan) -> str:
    remarks = ["stays paused"] if one.stays_paused else []
    remarks += [f"{one.under_way} under way to the end"] if one.under_way else []
    remarks += [f"{one.queued} waiting cancelled"] if one.queued else []
    return f" ({', '.join(remarks)})" if remarks else ""


def _field(change: PlannedField) -> str:
    return f"{change.field}: {_value(change.before)} -> {_value(change.after)}"


def _value(value: object) -> str:
    if value is None:
        return "nothing"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _fires(one: JobPlan, planned: JobsPlanned) -> Iterable[str]:
    fires, zone = one.fires, one.timezone
    fates = {
        FireChangeKind.ADDED: fires.added,
        FireChangeKind.REMOVED: fires.removed,
        FireChangeKind.MOVED: fires.moved,
    }
    counts = [f"{fates[fate]} {_CHANGE_TEXT[fate]}" for fate in FireChangeKind if fates[fate]]
    if not counts:
        if fires.after:
            yield f"fires: {fires.after} as before"
        return
    yield f"fires: {', '.join(counts)}, {fires.same} as before"
    for change in fires.changes:
        yield f"  {'*' if change.clock_change else ' '} {_fire(change, zone)}"
    hidden = sum(fates.values()) - len(fires.changes)
    if hidden:
        yield f"    ... and {hidden} more: -n shows them"
    if fires.compared_until < planned.until_at:
        compared = format_instant(fires.compared_until, zone)
        yield f"    compared until {compared}; in all {fires.before} before, {fires.after} after"


def _fire(change: PlannedChange, zone: str) -> str:
    if change.fate == FireChangeKind.MOVED:
        return f"{format_instant(change.before, zone)} -> {format_instant(change.after, zone)}"
    return (
        f"+ {format_instant(change.after, zone)}"
        if change.fate == FireChangeKind.ADDED
        else f"- {format_instant(change.before, zone)}"
    )
