"""`gnomon jobs backfill` and `gnomon jobs backfills`: planned times of the past that are run after all."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from gnomon.cli.offices import Where, actor, in_office, say
from gnomon.cli.output import Format, print_data, print_table
from gnomon.cli.readable import iso, moment, zone_of
from gnomon.cli.starts import start_of
from gnomon.core.backfilling import Backfill, Progress
from gnomon.core.instants import ms_of
from gnomon.office import Office
from gnomon.services.backfills import Preview

#: How often progress is looked at, in seconds.
_LOOK = 0.3
#: Of how many planned times a preview tells each.
_SHOWN = 20


class Wanted(NamedTuple):
    """Which planned times of which job, as they were typed."""

    job: str
    first: str
    last: str
    again: bool

    async def bounds(self, office: Office) -> tuple[int, int, str]:
        """The instants, and the zone that they were read in."""
        zone = zone_of((await office.jobs.get(self.job, coming=0, last=0)).schedule.spec)
        first = start_of(self.first, timezone=zone, option="--from")
        return ms_of(first), ms_of(start_of(self.last, timezone=zone, option="--to")), zone


def preview(wanted: Wanted, where: Where, form: Format) -> None:
    """Say what a backfill would run."""

    async def work(office: Office) -> tuple[Preview, str]:
        first, last, zone = await wanted.bounds(office)
        return await office.backfills.preview(wanted.job, first, last, again=wanted.again), zone

    found, zone = in_office(where, work)
    if form is not Format.TABLE:
        print_data({"job": wanted.job, "to_run": [iso(at) for at in found.to_run], "had_a_run": found.had}, form)
        return
    for at in found.to_run[:_SHOWN]:
        say(moment(at, zone))
    if len(found.to_run) > _SHOWN:
        say(f"... and {len(found.to_run) - _SHOWN} more")
    say(f"{len(found.to_run)} would run, {found.had} had a run before")


def backfill(wanted: Wanted, where: Where, form: Format, *, parallel: int, detach: bool) -> bool:
    """Start a backfill, and wait for its end unless told otherwise; False if some of it did not succeed."""

    async def work(office: Office) -> Progress:
        first, last, _ = await wanted.bounds(office)
        start = office.backfills.start
        started = await start(wanted.job, first, last, actor=actor(), max_parallel=parallel, again=wanted.again)
        if form is Format.TABLE:
            say(f"{started.backfill_id} has {_times(started.planned)} to run")
            sys.stdout.flush()
        if detach:
            return Progress(backfill=started)
        if not await office.store.workers():
            sys.stderr.write("no worker is alive: it begins as soon as gnomon up runs\n")
            return Progress(backfill=started)
        return await _ended(office, started)

    try:
        done = in_office(where, work)
    except KeyboardInterrupt:
        sys.stderr.write("it goes on without this command: gnomon jobs backfills shows it\n")
        return False
    if form is not Format.TABLE:
        print_data(_data(done), form)
    elif done.backfill.ended_at is not None:
        say(_told(done))
    return not done.failed and not done.backfill.cancelled


async def _ended(office: Office, started: Backfill) -> Progress:
    with _shown(started) as show:
        while True:
            seen = await office.backfills.get(started.backfill_id)
            show(seen)
            if seen.backfill.ended_at is not None:
                return seen
            await asyncio.sleep(_LOOK)


@contextmanager
def _shown(started: Backfill) -> Iterator[Callable[[Progress], None]]:
    """A bar on a terminal, and nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(started.schedule_id, total=started.planned)
        yield lambda seen: bar.update(task, completed=_over(seen))


def cancel(backfill_id: str, where: Where, form: Format) -> None:
    """Let nothing more of a backfill start."""
    done = in_office(where, lambda office: office.backfills.cancel(backfill_id))
    if form is not Format.TABLE:
        print_data(_data(done), form)
    else:
        say(_told(done))


def list_backfills(job: str | None, limit: int, where: Where, form: Format) -> None:
    """List backfills."""
    found = in_office(where, lambda office: office.backfills.page(job=job, limit=limit))
    if form is not Format.TABLE:
        print_data([_data(one) for one in found], form)
        return
    if not found:
        say("no backfills")
        return
    columns = ["backfill", "job", "from", "to", "state", "done", "ran", "skipped", "failed"]
    print_table(columns, [_row(one) for one in found])


def _row(one: Progress) -> list[str]:
    asked = one.backfill
    return [
        asked.backfill_id,
        asked.schedule_id,
        moment(asked.from_at),
        moment(asked.until_at),
        _state(asked),
        f"{_over(one)}/{asked.planned}",
        str(one.fired),
        str(one.skipped),
        str(one.failed),
    ]


def _told(one: Progress) -> str:
    asked = one.backfill
    ran = f"{one.fired} ran, {one.skipped} had a run before, {one.failed} failed"
    going = f", {one.under_way} still under way" if one.under_way else ""
    return f"{asked.backfill_id} of {asked.schedule_id} is {_state(asked)}: {ran}{going}"


def _state(asked: Backfill) -> str:
    return "cancelled" if asked.cancelled else "under way" if asked.ended_at is None else "done"


def _over(one: Progress) -> int:
    return one.fired + one.skipped - one.under_way


def _times(count: int) -> str:
    return "1 planned time" if count == 1 else f"{count} planned times"


def _data(one: Progress) -> dict[str, Any]:
    asked = one.backfill
    return {
        "backfill_id": asked.backfill_id,
        "job": asked.schedule_id,
        "from": iso(asked.from_at),
        "to": iso(asked.until_at),
        "state": _state(asked),
        "max_parallel": asked.max_parallel,
        "again": asked.again,
        "planned": asked.planned,
        "fired": one.fired,
        "skipped": one.skipped,
        "under_way": one.under_way,
        "failed": one.failed,
        "created_at": iso(asked.created_at),
        "actor": asked.actor,
        "ended_at": iso(asked.ended_at),
    }
