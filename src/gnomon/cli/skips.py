"""`gnomon jobs skip`: exceptions for single ticks, and how they read."""

from gnomon.cli.offices import Where, actor, in_office, say
from gnomon.cli.readable import moment, zone_of
from gnomon.cli.starts import start_of
from gnomon.core.instants import ms_of
from gnomon.core.model import TickException
from gnomon.office import Office


def skip(name: str, at: str, move_to: str | None, where: Where, *, undo: bool) -> None:
    """Skip or move a coming tick, or take that back."""

    async def work(office: Office) -> str:
        zone = zone_of((await office.jobs.get(name, coming=0, last=0)).schedule.spec)
        planned_at = ms_of(start_of(at, timezone=zone, option="--at"))
        moved_to = None if move_to is None else ms_of(start_of(move_to, timezone=zone, option="--move-to"))
        if undo:
            await office.jobs.undo_skip(name, planned_at, actor=actor())
            return f"fires at {moment(planned_at, zone)} after all"
        await office.jobs.skip(name, planned_at, move_to=moved_to, actor=actor())
        return exception_text(TickException(planned_at, moved_to), zone)

    say(f"{name}: {in_office(where, work)}")


def exception_text(one: TickException, zone: str) -> str:
    """The exception in words."""
    if one.moved_to is None:
        return f"{moment(one.planned_at, zone)} is skipped"
    return f"{moment(one.planned_at, zone)} is moved to {moment(one.moved_to, zone)}"
