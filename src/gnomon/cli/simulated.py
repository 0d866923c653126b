"""What a simulation has shown: as a heat map and lines for people, as data for machines."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import date, timedelta
from typing import Any

from gnomon.cli.offices import say
from gnomon.cli.output import in_zone, print_table, speaks_unicode, visible
from gnomon.cli.readable import iso, moment, span
from gnomon.core.durations import duration_text
from gnomon.core.instants import EPOCH, instant_of
from gnomon.core.model import Reason, TickKind
from gnomon.testing.loads import Aftermath, Collision, JobLoad, Loads, Simulated

#: From a quiet hour to the busiest.
_SHADES, _PLAIN_SHADES = "·░▒▓█", ".:+*#"
#: How many collisions, and how many names of each, a person reads.
_SHOWN, _NAMES = 5, 8


def print_report(found: Simulated) -> None:
    """Print what a person wants to see."""
    loads = found.loads
    runs = sum(job.runs for job in loads.jobs.values())
    days = round((found.until_at - found.from_at) / 86_400_000)
    say(f"{days} days from {moment(found.from_at, loads.zone)}: {len(loads.jobs)} jobs, {runs} runs")
    if found.resting:
        say(visible(f"not enabled: {', '.join(found.resting)}"))
    if runs:
        say("")
        _print_heat(found)
    if not loads.jobs:
        return
    say("")
    _print_jobs(loads)
    for lines in (_collisions(loads), _overlaps(loads), _ended_early(found), _outages(loads), _odd_days(found)):
        told = [visible(line) for line in lines]
        if told:
            say("\n".join(["", *told]))


# ---- the heat map --------------------------------------------------------------------------------


def _print_heat(found: Simulated) -> None:
    loads, odd = found.loads, {_local_day(one.at, found.loads.zone) for one in found.odd_days}
    days = loads.days()
    most = max(max(hours) for hours in days.values())
    say(f"{'':<16}0     6     12    18      runs")
    for day in range(min(days), max(days) + 1):
        hours = days.get(day, [0] * 24)
        text = "".join(_shade(count, most) for count in hours)
        said = EPOCH.date() + timedelta(days=day)
        say(f"{said:%a %Y-%m-%d} {'*' if said in odd else ' '}{text}  {sum(hours):>6}")
    shades = _SHADES if speaks_unicode() else _PLAIN_SHADES
    say(f"{'':<16}{shades[0]} up to {max(1, most // 5)} runs in an hour, {shades[-1]} up to {most}; {loads.zone}")


def _shade(count: int, most: int) -> str:
    shades = _SHADES if speaks_unicode() else _PLAIN_SHADES
    return shades[min(len(shades) - 1, count * len(shades) // (most + 1))] if count else " "


def _local_day(at: int, zone: str) -> date:
    return in_zone(instant_of(at), zone).date()


# ---- lines ---------------------------------------------------------------------------------------


def _print_jobs(loads: Loads) -> None:
    columns = ["job", "ticks", "runs", "skipped", "queued", "coalesced", "missed", "lasts"]
    rows = [
        [
            job.name,
            str(job.planned),
            str(job.runs),
            *(_some(job.of(kind)) for kind in (TickKind.SKIPPED, TickKind.QUEUED, TickKind.COALESCED, TickKind.MISSED)),
            span(job.lasts_ms) if job.lasts_ms else "",
        ]
        for job in sorted(loads.jobs.values(), key=lambda job: (-job.runs, job.name))
    ]
    print_table(columns, rows)


def _some(count: int) -> str:
    return str(count) if count else ""


def _collisions(loads: Loads) -> Iterable[str]:
    if not loads.colliding_minutes:
        yield "no two jobs start in the same minute"
        return
    minutes, seconds = loads.colliding_minutes, loads.colliding_seconds
    yield f"in {minutes} minutes several jobs start, in {seconds} of their seconds at once; the most:"
    for one in loads.collisions[:_SHOWN]:
        yield f"  {moment(one.at, loads.zone)}  {len(one.jobs)}: {_names(one)}"


def _names(collision: Collision) -> str:
    more = len(collision.jobs) - _NAMES
    return ", ".join(collision.jobs[:_NAMES]) + (f" and {more} more" if more > 0 else "")


def _overlaps(loads: Loads) -> Iterable[str]:
    for job in loads.jobs.values():
        told = _overlap_words(job)
        if told:
            yield f"{job.name} is not over when it is due again: {', '.join(told)}"


def _overlap_words(job: JobLoad) -> list[str]:
    skipped = job.ticks[TickKind.SKIPPED, Reason.OVERLAP]
    full, waited = job.ticks[TickKind.SKIPPED, Reason.QUEUE_FULL], job.ticks[TickKind.QUEUED, Reason.BEHIND_A_RUN]
    told = [f"{skipped} ticks skipped"] if skipped else []
    told += [f"{waited} queued, at most {job.most_waiting} at once"] if waited else []
    told += [f"{full} skipped because the queue was full"] if full else []
    told += [f"{job.replaced} runs replaced"] if job.replaced else []
    told += [f"{job.beside} runs beside another"] if job.beside else []
    return told


def _ended_early(found: Simulated) -> Iterable[str]:
    for name, lasts in found.ended_early.items():
        if name in found.loads.jobs:
            timeout = span(found.loads.jobs[name].lasts_ms)
            yield f"{name} is said to last {span(lasts)}, but its timeout ends it after {timeout}"


def _outages(loads: Loads) -> Iterable[str]:
    for one in loads.aftermaths:
        outage = one.outage
        lasts = duration_text(outage.until_at - outage.from_at)
        yield f"down for {lasts} from {moment(outage.from_at, loads.zone)}"
        yield from (f"  {name}: {what}" for name, what in _fates(one).items())
        if not one.ticks:
            yield "  nothing was due"


def _fates(one: Aftermath) -> Mapping[str, str]:
    found: dict[str, list[str]] = {}
    for (name, kind, reason), count in one.ticks.items():
        found.setdefault(name, []).append(f"{count} {kind} ({reason.value.replace('_', ' ')})")
    return {name: ", ".join(told) for name, told in sorted(found.items())}


def _odd_days(found: Simulated) -> Iterable[str]:
    for day in found.odd_days:
        yield f"* {moment(day.at, day.zone)} {day.zone}: {day.what}"
        yield f"  {', '.join(day.jobs)}"


# ---- for machines --------------------------------------------------------------------------------


def as_data(found: Simulated) -> dict[str, Any]:
    """The same as plain data."""
    loads = found.loads
    return {
        "from": iso(found.from_at),
        "until": iso(found.until_at),
        "timezone": loads.zone,
        "runs": sum(job.runs for job in loads.jobs.values()),
        "not_enabled": list(found.resting),
        "days": [
            {"day": str(EPOCH.date() + timedelta(days=day)), "runs": sum(hours), "hours": hours}
            for day, hours in loads.days().items()
        ],
        "jobs": [_job_data(job) for job in loads.jobs.values()],
        "collisions": {
            "minutes": loads.colliding_minutes,
            "seconds": loads.colliding_seconds,
            "worst": [{"at": iso(one.at), "jobs": list(one.jobs)} for one in loads.collisions],
        },
        "outages": [_outage_data(one) for one in loads.aftermaths],
        "ended_by_timeout": [{"job": name, "said_ms": lasts} for name, lasts in found.ended_early.items()],
        "clock_changes": [
            {"at": iso(day.at), "timezone": day.zone, "what": day.what, "jobs": list(day.jobs)}
            for day in found.odd_days
        ],
    }


def _job_data(job: JobLoad) -> dict[str, Any]:
    return {
        "job": job.name,
        "ticks": job.planned,
        "runs": job.runs,
        "lasts_ms": job.lasts_ms,
        "decisions": _decisions(job.ticks),
        "runs_beside_another": job.beside,
        "runs_replaced": job.replaced,
        "most_waiting": job.most_waiting,
    }


def _decisions(ticks: Counter[tuple[TickKind, Reason]]) -> list[dict[str, Any]]:
    return [
        {"kind": kind.value, "reason": reason.value, "count": count} for (kind, reason), count in sorted(ticks.items())
    ]


def _outage_data(one: Aftermath) -> dict[str, Any]:
    return {
        "from": iso(one.outage.from_at),
        "until": iso(one.outage.until_at),
        "decisions": [
            {"job": name, "kind": kind.value, "reason": reason.value, "count": count}
            for (name, kind, reason), count in sorted(one.ticks.items())
        ],
    }
