"""`gnomon jobs plan`: what applying a file would do, in fields and in fires."""

import asyncio
import json
import sys
from collections.abc import Iterable
from pathlib import Path

from gnomon.app.gateway import Who, nowhere
from gnomon.cli.actions.jobs import read_written
from gnomon.cli.output import Format, moment, print_data, visible, working
from gnomon.cli.target import Where, actor, answer_to, say
from gnomon.client import requests
from gnomon.client.transport import Ask
from gnomon.core.ledger.forecast import Fate
from gnomon.core.responses import JobPlan, JobsPlanned, PlannedChange, PlannedField
from gnomon.errors import FieldError, NoDatabase
from gnomon.services.operations.job_changes import Change, Prune

#: How many fires of a job a person reads, if nobody says.
_FEW = 5
#: What was to be told by the exit code is there.
EXIT_FOUND = 3
_JOB_WORDS = frozenset(change.value for change in Change) - {Change.UNCHANGED.value}
_WORDS = sorted(_JOB_WORDS | {fate.value for fate in Fate})
_SIGNS = {Change.CREATED: "+", Change.CHANGED: "~", Change.UNCHANGED: "=", Change.REMOVED: "-"}
_SAID = {Fate.ADDED: "added", Fate.REMOVED: "gone", Fate.MOVED: "moved"}


def words(said: Iterable[str]) -> frozenset[str]:
    """What `--fail-on` names; FieldError for a word that means nothing."""
    found = frozenset(word.strip() for text in said for word in text.split(","))
    for word in found:
        if word not in _WORDS:
            raise FieldError("--fail-on", word, f"must be some of {', '.join(_WORDS)}")
    return found


def plan(
    files: list[Path],
    where: Where,
    form: Format,
    *,
    days: int,
    prune: Prune | None = None,
    limit: int | None = None,
) -> frozenset[str]:
    """Print what would become of the jobs, and of their fires; which words for `--fail-on` that comes to."""
    written, tag = read_written(files, where), prune.tag if prune else None
    shown = (_FEW if form is Format.TABLE else None) if limit is None else limit
    everything = prune is not None and tag is None
    said = [said for _, said in written]
    ask = requests.plan(said, days=days, prune=everything, prune_tag=tag, fires=shown)
    with working(f"planning {len(said)} jobs"):
        planned = _planned(ask, where)
    if form is Format.TABLE:
        _show(planned, days=days)
    else:
        print_data(planned, form)
    found = {change for change, count in planned.jobs.items() if count} & _JOB_WORDS
    return frozenset(found | {fate.value for fate in Fate if planned.fires[fate.value]})


def _planned(ask: Ask[JobsPlanned], where: Where) -> JobsPlanned:
    try:
        return answer_to(where, ask)
    except NoDatabase:
        sys.stderr.write("there is no database yet: every job would be new\n")

    async def new() -> JobsPlanned:
        async with nowhere(Who(actor())) as door:
            return await door.ask(ask)

    return asyncio.run(new())


def _show(planned: JobsPlanned, *, days: int) -> None:
    for one in planned.plan:
        if one.change != Change.UNCHANGED or one.stays_paused:
            say("\n".join(visible(line) for line in _lines(one, planned)))
    changes = [f"{planned.jobs[change]} {change}" for change in Change if planned.jobs[change]]
    say(", ".join(changes) or "no jobs")
    fires = [f"{planned.fires[fate]} {_SAID[fate]}" for fate in Fate if planned.fires[fate]]
    fires.append(f"{planned.fires['same']} as before")
    say(f"fires of the next {days} days: {', '.join(fires)}")


def _lines(one: JobPlan, planned: JobsPlanned) -> Iterable[str]:
    yield f"{_SIGNS[Change(one.change)]} {one.job}: {one.change}{_remark(one)}"
    for field in one.fields:
        yield f"    {_field(field)}"
    yield from (f"    {line}" for line in _fires(one, planned))
    for day in one.clock_changes:
        yield f"    * {moment(day.at, one.timezone)}: {day.what}"


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
    fates = {Fate.ADDED: fires.added, Fate.REMOVED: fires.removed, Fate.MOVED: fires.moved}
    counts = [f"{fates[fate]} {_SAID[fate]}" for fate in Fate if fates[fate]]
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
        compared = moment(fires.compared_until, zone)
        yield f"    compared until {compared}; in all {fires.before} before, {fires.after} after"


def _fire(change: PlannedChange, zone: str) -> str:
    if change.fate == Fate.MOVED:
        return f"{moment(change.before, zone)} -> {moment(change.after, zone)}"
    return f"+ {moment(change.after, zone)}" if change.fate == Fate.ADDED else f"- {moment(change.before, zone)}"
