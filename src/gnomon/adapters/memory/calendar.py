"""Numbers of ticks by time, of the store in memory. It counts them anew each time, and keeps no sums."""

from collections import Counter
from collections.abc import Sequence

from gnomon.adapters.memory.state import MemoryTables
from gnomon.core.ledger.calendar import CellCount, CellKind, cell_kind
from gnomon.core.ledger.tick_sums import QUARTER_MS, CellRange
from gnomon.core.model import ScheduleUid, Tick
from gnomon.ports.calendar import DayPosition, SumProgress


class MemoryTickCalendar:
    """Implements TickCalendar."""

    def __init__(self, state: MemoryTables) -> None:
        self._state = state

    async def counts(self, cells: Sequence[CellRange]) -> Sequence[CellCount]:
        """See TickCalendar.counts."""
        asked: dict[ScheduleUid, list[CellRange]] = {}
        for cell in cells:
            asked.setdefault(cell.uid, []).append(cell)
        found = Counter[tuple[ScheduleUid, int, CellKind]]()
        for (uid, at), tick in self._state.ticks.items():
            if _is_range(tick):
                continue
            made = tick.decision
            for cell in asked.get(uid, ()):
                if cell.from_at <= at < cell.until_at:
                    found[uid, cell.column, cell_kind(made.kind, made.reason, tick.status)] += made.count
        return [CellCount(*key, count) for key, count in sorted(found.items())]

    async def ranges(self, uids: Sequence[ScheduleUid], *, since: int, until: int) -> Sequence[Tick]:
        """See TickCalendar.ranges."""
        wanted = set(uids)
        return [
            tick
            for (uid, at), tick in sorted(self._state.ticks.items())
            if uid in wanted and _is_range(tick) and tick.decision.last_at >= since and at < until
        ]

    async def sum_up(self, *, after: str) -> SumProgress:
        """See TickCalendar.sum_up."""
        del after
        return SumProgress(None, 0)

    async def sum_ended(self, *, after: DayPosition) -> DayPosition | None:
        """See TickCalendar.sum_ended."""
        del after
        return None


def _is_range(tick: Tick) -> bool:
    return tick.decision.planned_at // QUARTER_MS != tick.decision.last_at // QUARTER_MS
