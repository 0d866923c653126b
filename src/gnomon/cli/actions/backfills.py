"""`gnomon jobs backfill` and `gnomon jobs backfills`: run past planned times that had no run."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import NamedTuple

from gnomon.app.gateway import Gateway
from gnomon.cli.inputs import parse_end, parse_start
from gnomon.cli.output import Format, format_instant, print_data, print_list
from gnomon.cli.target import Target, echo, list_all, page_size, send, with_gateway
from gnomon.client import requests
from gnomon.core.explain.phrases import pluralized
from gnomon.core.responses.backfills import BackfillDetail, BackfillPreview
from gnomon.errors import NotFound

#: The interval between two polls of the progress.
_POLL_SECONDS = 0.3
#: The number of planned times that a preview lists.
_SHOWN = 20


class BackfillOptions(NamedTuple):
    """A job and a range of planned times, as given on the command line."""

    job: str
    first: str
    last: str
    again: bool
    key: str | None = None

    async def bounds(self, gateway: Gateway) -> tuple[datetime, datetime, str]:
        """The bounds as instants, and the job's time zone, in which they were read."""
        zone = (await gateway.send(requests.job(self.job, coming=0, last=0))).timezone
        first = parse_start(self.first, timezone=zone, option="--from")
        return first, parse_end(self.last, timezone=zone), zone


def preview(options: BackfillOptions, target: Target, form: Format) -> None:
    """Print the planned times that a backfill would run."""

    async def work(gateway: Gateway) -> tuple[BackfillPreview, str]:
        first, last, zone = await options.bounds(gateway)
        return await gateway.send(requests.preview_backfill(options.job, first, last, again=options.again)), zone

    found, zone = with_gateway(target, work)
    if form is not Format.TABLE:
        print_data(found, form)
        return
    for at in found.to_run[:_SHOWN]:
        echo(format_instant(at, zone))
    if len(found.to_run) > _SHOWN:
        echo(f"... and {len(found.to_run) - _SHOWN} more")
    echo(f"{len(found.to_run)} would run, {found.had_a_run} had a run before")


def backfill(options: BackfillOptions, target: Target, form: Format, *, parallel: int, detach: bool) -> bool:
    """Start a backfill and, unless `detach`, wait for its end; return whether no run failed and none was cancelled."""

    async def work(gateway: Gateway) -> BackfillDetail:
        first, last, _ = await options.bounds(gateway)
        started = await gateway.send(
            requests.backfill(options.job, first, last, max_parallel=parallel, again=options.again, key=options.key)
        )
        if form is Format.TABLE:
            echo(f"{started.backfill_id} has {pluralized(started.planned, 'planned time')} to run")
            sys.stdout.flush()
        if detach:
            return started
        if not (await gateway.send(requests.workers())).items:
            sys.stderr.write("no worker is alive: the backfill starts when one is\n")
            return started
        return await _wait_until_ended(gateway, started)

    try:
        done = with_gateway(target, work)
    except KeyboardInterrupt:
        sys.stderr.write("the backfill continues: gnomon jobs backfills shows its progress\n")
        return False
    if form is not Format.TABLE:
        print_data(done, form)
    elif done.ended_at is not None:
        echo(_summary(done))
    return not done.failed and done.state != "cancelled"


async def _wait_until_ended(gateway: Gateway, started: BackfillDetail) -> BackfillDetail:
    with _progress(started) as show:
        while True:
            seen = await gateway.send(requests.backfill_state(started.backfill_id))
            show(seen)
            if seen.ended_at is not None:
                return seen
            await asyncio.sleep(_POLL_SECONDS)


@contextmanager
def _progress(started: BackfillDetail) -> Iterator[Callable[[BackfillDetail], None]]:
    """Show a progress bar if standard error is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(started.job, total=started.planned)
        yield lambda seen: bar.update(task, completed=_completed_count(seen))


def cancel(backfill_id: str, target: Target, form: Format) -> None:
    """Cancel a backfill: no more of its runs start."""
    done = send(target, requests.cancel_backfill(backfill_id))
    if form is not Format.TABLE:
        print_data(done, form)
    else:
        echo(_summary(done))


def list_backfills(job: str | None, limit: int, target: Target, form: Format) -> None:
    """Print backfills, newest first."""

    async def work(gateway: Gateway) -> tuple[list[BackfillDetail], dict[str, str]]:
        found = await list_all(gateway, requests.backfills(job=job, page=page_size(limit)), limit)
        names = dict.fromkeys(one.job for one in found) if form is Format.TABLE else ()
        return found, {name: await _zone_of(gateway, name) for name in names}

    found, zones = with_gateway(target, work)
    columns = ["backfill", "job", "from", "to", "state", "done", "ran", "skipped", "failed"]
    print_list(found, form, columns, lambda one: _row(one, zones[one.job]), none="no backfills")


async def _zone_of(gateway: Gateway, name: str) -> str:
    """The time zone of a job; UTC if it is deleted."""
    try:
        return (await gateway.send(requests.job(name, coming=0, last=0))).timezone
    except NotFound:
        return "UTC"


def _row(one: BackfillDetail, zone: str) -> list[str]:
    return [
        one.backfill_id,
        one.job,
        format_instant(one.from_at, zone),
        format_instant(one.until_at, zone),
        one.state,
        f"{_completed_count(one)}/{one.planned}",
        str(one.fired),
        str(one.skipped),
        str(one.failed),
    ]


def _summary(one: BackfillDetail) -> str:
    ran = f"{one.fired} ran, {one.skipped} had a run before, {one.failed} failed"
    going = f", {one.under_way} still under way" if one.under_way else ""
    return f"{one.backfill_id} of {one.job} is {one.state}: {ran}{going}"


def _completed_count(one: BackfillDetail) -> int:
    return one.fired + one.skipped - one.under_way
