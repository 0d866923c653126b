"""Changes of the clocks around a moment, and what they do to a schedule's ticks."""

from gnomon.core.cron import Cron
from gnomon.core.cron.changes import ClockChange, clock_changes
from gnomon.core.instants import instant_of, ms_of
from gnomon.core.model import DAY_MS, MINUTE_MS, SECOND_MS

#: No clock that is put back shows a time again for longer than this.
_REACH_MS = DAY_MS // 12


def change_at(trigger: object, at: int) -> ClockChange | None:
    """The newest change of a schedule's clocks shortly before, or in the minute that begins then."""
    if not isinstance(trigger, Cron):
        return None
    reach = instant_of(at - _REACH_MS), instant_of(at + MINUTE_MS)
    return next(reversed(list(clock_changes(trigger, after=reach[0], until=reach[1]))), None)


def made_up_at(trigger: object, at: int) -> int | None:
    """When the ticks fire that the change around that moment skips: the next whole minute, if they do at all."""
    change = change_at(trigger, at)
    if change is None or change.effect != "made_up":
        return None
    return ms_of(change.at) + -change.at.second % 60 * SECOND_MS


def repeated(change: ClockChange) -> tuple[int, int]:
    """From when to when clocks show times for the second time; nothing, if they were put forward."""
    walls = change.instead_of.replace(tzinfo=None) - change.at.replace(tzinfo=None)
    began = ms_of(change.at)
    return began, began + max(0, walls.days * DAY_MS + walls.seconds * SECOND_MS)
