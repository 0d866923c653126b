"""`gnomon jobs backfill` and `gnomon jobs backfills`: planned times of the past that are run after all."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import NamedTuple

from gnomon.app.gateway import Door
from gnomon.cli.inputs import start_of
from gnomon.cli.output import Format, moment, print_data, print_list
from gnomon.cli.target import Where, answer_to, at_door, page_of, say, some_of
from gnomon.client import requests
from gnomon.core.responses import BackfillDetail, BackfillPreview

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
    key: str | None = None

    async def bounds(self, door: Door) -> tuple[datetime, datetime, str]:
        """The instants, and the zone that they were read in."""
        zone = (await door.ask(requests.job(self.job, coming=0, last=0))).timezone
        first = start_of(self.first, timezone=zone, option="--from")
        return first, start_of(self.last, timezone=zone, option="--to"), zone


def preview(wanted: Wanted, where: Where, form: Format) -> None:
    """Say what a backfill would run."""

    async def work(door: Door) -> tuple[BackfillPreview, str]:
        first, last, zone = await wanted.bounds(door)
        return await door.ask(requests.preview_backfill(wanted.job, first, last, again=wanted.again)), zone

    found, zone = at_door(where, work)
    if form is not Format.TABLE:
        print_data(found, form)
        return
    for at in found.to_run[:_SHOWN]:
        say(moment(at, zone))
    if len(found.to_run) > _SHOWN:
        say(f"... and {len(found.to_run) - _SHOWN} more")
    say(f"{len(found.to_run)} would run, {found.had_a_run} had a run before")


def backfill(wanted: Wanted, where: Where, form: Format, *, parallel: int, detach: bool) -> bool:
    """Start a backfill, and wait for its end unless told otherwise; False if some of it did not succeed."""

    async def work(door: Door) -> BackfillDetail:
        first, last, _ = await wanted.bounds(door)
        started = await door.ask(
            requests.backfill(wanted.job, first, last, max_parallel=parallel, again=wanted.again, key=wanted.key)
        )
        if form is Format.TABLE:
            say(f"{started.backfill_id} has {_times(started.planned)} to run")
            sys.stdout.flush()
        if detach:
            return started
        if not (await door.ask(requests.workers())).items:
            sys.stderr.write("no worker is alive: it begins as soon as gnomon up runs\n")
            return started
        return await _ended(door, started)

    try:
        done = at_door(where, work)
    except KeyboardInterrupt:
        sys.stderr.write("it goes on without this command: gnomon jobs backfills shows it\n")
        return False
    if form is not Format.TABLE:
        print_data(done, form)
    elif done.ended_at is not None:
        say(_told(done))
    return not done.failed and done.state != "cancelled"


async def _ended(door: Door, started: BackfillDetail) -> BackfillDetail:
    with _shown(started) as show:
        while True:
            seen = await door.ask(requests.backfill_state(started.backfill_id))
            show(seen)
            if seen.ended_at is not None:
                return seen
            await asyncio.sleep(_LOOK)


@contextmanager
def _shown(started: BackfillDetail) -> Iterator[Callable[[BackfillDetail], None]]:
    """A bar on a terminal, and nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(started.job, total=started.planned)
        yield lambda seen: bar.update(task, completed=_over(seen))


def cancel(backfill_id: str, where: Where, form: Format) -> None:
    """Let nothing more of a backfill start."""
    done = answer_to(where, requests.cancel_backfill(backfill_id))
    if form is not Format.TABLE:
        print_data(done, form)
    else:
        say(_told(done))


def list_backfills(job: str | None, limit: int, where: Where, form: Format) -> None:
    """List backfills."""

    async def work(door: Door) -> list[BackfillDetail]:
        return await some_of(door, requests.backfills(job=job, page=page_of(limit)), limit)

    found = at_door(where, work)
    columns = ["backfill", "job", "from", "to", "state", "done", "ran", "skipped", "failed"]
    print_list(found, form, columns, _row, none="no backfills")


def _row(one: BackfillDetail) -> list[str]:
    return [
        one.backfill_id,
        one.job,
        moment(one.from_at),
        moment(one.until_at),
        one.state,
        f"{_over(one)}/{one.planned}",
        str(one.fired),
        str(one.skipped),
        str(one.failed),
    ]


def _told(one: BackfillDetail) -> str:
    ran = f"{one.fired} ran, {one.skipped} had a run before, {one.failed} failed"
    going = f", {one.under_way} still under way" if one.under_way else ""
    return f"{one.backfill_id} of {one.job} is {one.state}: {ran}{going}"


def _over(one: BackfillDetail) -> int:
    return one.fired + one.skipped - one.under_way


def _times(count: int) -> str:
    return "1 planned time" if count == 1 else f"{count} planned times"
