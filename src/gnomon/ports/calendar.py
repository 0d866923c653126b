"""Numbers of ticks by time, for calendars of many jobs, and the sums that they are read from."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from gnomon.core.ledger.calendar import CellCount
from gnomon.core.ledger.tick_sums import CellRange
from gnomon.core.model import ScheduleUid, Tick

#: A schedule, and a day since 1970.
DayPosition = tuple[str, int]


class SumProgress(Struct, frozen=True):
    """How far ticks are summed up."""

    #: The schedule after which to go on; None if all were looked at.
    after: str | None
    #: How many ticks were counted; 0 if there was nothing to do.
    counted: int


class TickCalendar(Protocol):
    """Counts ticks by schedule and column."""

    async def counts(self, cells: Sequence[CellRange]) -> Sequence[CellCount]:
        """The ticks in these cells by kind, without the rows that `ranges` has."""
        ...

    async def ranges(self, uids: Sequence[ScheduleUid], *, since: int, until: int) -> Sequence[Tick]:
        """The rows that stand for ticks in several quarters of an hour, of which some may be in this time."""
        ...

    async def sum_up(self, *, after: str) -> SumProgress:
        """Sum up some ticks of the schedules that come after this one."""
        ...

    async def sum_ended(self, *, after: DayPosition) -> DayPosition | None:
        """Sum up ticks that have ended since, of some days after this one; return the position, None after the last."""
        ...
