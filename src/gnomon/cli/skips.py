"""`gnomon jobs skip`: exceptions for single ticks, and how they read."""

from gnomon.cli.offices import Where, at_door, say
from gnomon.cli.output import Format, print_data
from gnomon.cli.readable import moment
from gnomon.cli.starts import start_of
from gnomon.client import requests
from gnomon.core.responses import JobDetail, TickMoved
from gnomon.doors import Door


def skip(name: str, at: str, move_to: str | None, where: Where, form: Format, *, undo: bool) -> None:
    """Skip or move a coming tick, or take that back."""

    async def work(door: Door) -> tuple[JobDetail, str]:
        zone = (await door.ask(requests.job(name, coming=0, last=0))).timezone
        planned = start_of(at, timezone=zone, option="--at")
        moved = None if move_to is None else start_of(move_to, timezone=zone, option="--move-to")
        if undo:
            done = await door.ask(requests.unskip(name, planned))
            return done, f"fires at {moment(planned, zone)} after all"
        done = await door.ask(requests.skip(name, planned, move_to=moved))
        return done, exception_text(TickMoved(planned_at=planned, moved_to=moved), zone)

    done, told = at_door(where, work)
    say(f"{name}: {told}") if form is Format.TABLE else print_data(done, form)


def exception_text(one: TickMoved, zone: str) -> str:
    """The exception in words."""
    if one.moved_to is None:
        return f"{moment(one.planned_at, zone)} is skipped"
    return f"{moment(one.planned_at, zone)} is moved to {moment(one.moved_to, zone)}"
