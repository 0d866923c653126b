"""`gnomon jobs plan`: what applying a file would do, in fields and in fires."""

import asyncio
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from gnomon.app import Office, planner_on_nothing
from gnomon.cli.jobs import read_files
from gnomon.cli.offices import Where, in_office, say
from gnomon.cli.output import Format, print_data, visible
from gnomon.cli.readable import iso, moment, zone_of
from gnomon.core.fire_diff import MOST_WALKED, Fate, FireChange, FireDiff
from gnomon.core.model import DAY_MS
from gnomon.core.planning import FieldChange, OddDay, is_odd
from gnomon.errors import FieldError, NoDatabase
from gnomon.services.applying import Change, Prune
from gnomon.services.planning import JobsPlan, PlannedJob

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
    jobs = read_files(files, where)

    async def work(office: Office) -> JobsPlan:
        return await office.planner.plan(jobs, ahead_ms=days * DAY_MS, prune=prune)

    try:
        planned = in_office(where, work)
    except NoDatabase:
        sys.stderr.write("there is no database yet: every job would be new\n")
        planned = asyncio.run(planner_on_nothing().plan(jobs, ahead_ms=days * DAY_MS, prune=prune))
    if form is Format.TABLE:
        _show(planned, days=days, limit=_FEW if limit is None else limit)
    else:
        print_data(_as_data(planned, MOST_WALKED if limit is None else limit), form)
    found = {one.change.value for one in planned.jobs} & _JOB_WORDS
    return frozenset(found | {fate.value for fate in Fate if planned.fires(fate)})


# ---- for people ----------------------------------------------------------------------------------


def _show(planned: JobsPlan, *, days: int, limit: int) -> None:
    for one in planned.jobs:
        if one.change is not Change.UNCHANGED or one.forecast.stays_paused:
            say("\n".join(visible(line) for line in _lines(one, planned.until_at, limit)))
    changes = [f"{planned.count(change)} {change}" for change in Change if planned.count(change)]
    say(", ".join(changes) or "no jobs")
    fires = [f"{planned.fires(fate)} {_SAID[fate]}" for fate in Fate if planned.fires(fate)]
    same = sum(one.forecast.fires.same for one in planned.jobs)
    say(f"fires of the next {days} days: {', '.join((*fires, f'{same} as before'))}")


def _lines(one: PlannedJob, until_at: int, limit: int) -> Iterable[str]:
    yield f"{_SIGNS[one.change]} {one.forecast.name}: {one.change}{_remark(one)}"
    for field in one.forecast.fields:
        yield f"    {_field(field)}"
    yield from (f"    {line}" for line in _fires(one, until_at, limit))
    zone = zone_of(one.job.spec)
    for day in one.forecast.odd_days:
        yield f"    * {moment(round(day.at.timestamp() * 1000), zone)}: {day.what}"


def _remark(one: PlannedJob) -> str:
    remarks = []
    if one.forecast.stays_paused:
        remarks.append("stays paused")
    standing = one.standing
    if one.change is Change.REMOVED and standing is not None:
        remarks += [f"{standing.active_runs} under way to the end"] if standing.active_runs else []
        remarks += [f"{standing.queued_runs} waiting cancelled"] if standing.queued_runs else []
    return f" ({', '.join(remarks)})" if remarks else ""


def _field(change: FieldChange) -> str:
    return f"{change.field}: {_value(change.before)} -> {_value(change.after)}"


def _value(value: object) -> str:
    if value is None:
        return "nothing"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _fires(one: PlannedJob, until_at: int, limit: int) -> Iterable[str]:
    diff, zone, days = one.forecast.fires, zone_of(one.job.spec), one.forecast.odd_days
    counts = [f"{diff.count(fate)} {_SAID[fate]}" for fate in Fate if diff.count(fate)]
    if not counts:
        if diff.after:
            yield f"fires: {diff.after} as before"
        return
    yield f"fires: {', '.join(counts)}, {diff.same} as before"
    for change in _chosen(diff, days, limit):
        mark = "*" if any(is_odd(change, day) for day in days) else " "
        yield f"  {mark} {_fire(change, zone)}"
    hidden = sum(diff.counts.values()) - len(_chosen(diff, days, limit))
    if hidden:
        yield f"    ... and {hidden} more: -n shows them"
    if diff.compared_until < until_at:
        yield f"    compared until {moment(diff.compared_until, zone)}; in all {diff.before} before, {diff.after} after"


def _chosen(diff: FireDiff, days: Sequence[OddDay], limit: int) -> list[FireChange]:
    """The first few, and those on days when clocks are changed."""
    first = diff.changes[:limit]
    odd = [change for change in diff.changes[limit:] if any(is_odd(change, day) for day in days)][:limit]
    return [*first, *odd]


def _fire(change: FireChange, zone: str) -> str:
    if change.fate is Fate.MOVED:
        return f"{moment(change.before_at, zone)} -> {moment(change.after_at, zone)}"
    sign = "+" if change.fate is Fate.ADDED else "-"
    return f"{sign} {moment(change.at, zone)}"


# ---- for machines --------------------------------------------------------------------------------


def _as_data(planned: JobsPlan, limit: int) -> dict[str, Any]:
    return {
        "from": iso(planned.from_at),
        "until": iso(planned.until_at),
        "jobs": {change.value: planned.count(change) for change in Change},
        "fires": {fate.value: planned.fires(fate) for fate in Fate}
        | {"same": sum(one.forecast.fires.same for one in planned.jobs)},
        "plan": [_job_data(one, limit) for one in planned.jobs],
    }


def _job_data(one: PlannedJob, limit: int) -> dict[str, Any]:
    told, diff = one.forecast, one.forecast.fires
    return {
        "job": told.name,
        "change": one.change.value,
        "stays_paused": told.stays_paused,
        "timezone": zone_of(one.job.spec),
        "fields": [{"field": f.field, "before": f.before, "after": f.after} for f in told.fields],
        "fires": {
            "before": diff.before,
            "after": diff.after,
            "same": diff.same,
            **{fate.value: diff.count(fate) for fate in Fate},
            "compared_until": iso(diff.compared_until),
            "changes": [_fire_data(change, told.odd_days) for change in _chosen(diff, told.odd_days, limit)],
        },
        "clock_changes": [{"at": day.at.isoformat(), "timezone": day.zone, "what": day.what} for day in told.odd_days],
    }


def _fire_data(change: FireChange, days: Sequence[OddDay]) -> dict[str, Any]:
    return {
        "fate": change.fate.value,
        "before": iso(change.before_at),
        "after": iso(change.after_at),
        "clock_change": any(is_odd(change, day) for day in days),
    }
