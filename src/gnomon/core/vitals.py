"""What must hold all the time, whatever happens: if it does not, something is broken that nobody else would notice."""

from enum import StrEnum

from msgspec import Struct

from gnomon.core.model import Schedule, ScheduleUid, TaskId
from gnomon.core.ticks import Ticks


class Vital(StrEnum):
    """What must hold."""

    #: A schedule that is neither paused nor finished has a next fire.
    NEXT_FIRE = "next_fire"
    #: What is in hand is in the hands of someone alive.
    OWNERS = "owners"
    #: What is due is decided: the marks move.
    MARKS = "marks"
    #: As many runs are counted as there are.
    COUNTS = "counts"


class Counted(Struct, frozen=True, kw_only=True):
    """A schedule's runs that are not over: as they are counted, and as they are."""

    uid: ScheduleUid
    schedule_id: str
    active_runs: int
    queued_runs: int
    active: int
    queued: int

    @property
    def wrong(self) -> bool:
        """Whether that is not the same."""
        return (self.active_runs, self.queued_runs) != (self.active, self.queued)


class Orphan(Struct, frozen=True, kw_only=True):
    """An attempt whose lease ended long ago, and that nobody has ended."""

    task_id: TaskId
    worker: str
    lease_until: int


class Overdue(Struct, frozen=True, kw_only=True):
    """The schedule that has been due for longest."""

    uid: ScheduleUid
    schedule_id: str
    next_fire_at: int
    #: Whether someone has the shard that it is in.
    led: bool


def missing_fire(schedule: Schedule) -> int | None:
    """When the next tick of a schedule without a next fire is to fire; None if it is right that it has none."""
    if schedule.next_fire_at is not None or schedule.paused_at is not None:
        return None
    return Ticks(schedule.schedule_id, schedule.spec).next_fire_at(schedule.mark_at)


def too_late(overdue: Overdue | None, *, now: int, late_ms: int) -> bool:
    """Whether a tick has been due for longer than deciding it can take."""
    return overdue is not None and now - overdue.next_fire_at > late_ms
