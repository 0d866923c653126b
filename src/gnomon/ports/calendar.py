"""Numbers of ticks by time, for calendars of many jobs."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from gnomon.core.ledger.calendar import CellCount
from gnomon.core.model import ScheduleUid, Tick


class CellRange(Struct, frozen=True):
    """The time of one column in the ledger of one schedule; the end is not in it."""

    uid: ScheduleUid
    column: int
    from_at: int
    until_at: int


class TickCalendar(Protocol):
    """Counts ticks by schedule and column."""

    async def counts(self, cells: Sequence[CellRange]) -> Sequence[CellCount]:
        """The ticks in these cells by decision and status, without rows that stand for several ticks."""
        ...

    async def ranges(self, uids: Sequence[ScheduleUid], *, since: int, until: int) -> Sequence[Tick]:
        """The rows that stand for several ticks, of which some may be in this time."""
        ...
