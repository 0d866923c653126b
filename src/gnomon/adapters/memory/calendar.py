"""Numbers of ticks by time, of the store in memory."""

from collections import Counter
from collections.abc import Sequence

from gnomon.adapters.memory.state import MemoryTables
from gnomon.core.ledger.calendar import CellCount
from gnomon.core.model import Reason, ScheduleUid, Tick, TickKind, TickStatus
from gnomon.ports.calendar import CellRange


class MemoryTickCalendar:
    """Implements TickCalendar."""

    def __init__(self, state: MemoryTables) -> None:
        self._state = state

    async def counts(self, cells: Sequence[CellRange]) -> Sequence[CellCount]:
        """See TickCalendar.counts."""
        asked: dict[ScheduleUid, list[CellRange]] = {}
        for cell in cells:
            asked.setdefault(cell.uid, []).append(cell)
        found = Counter[tuple[ScheduleUid, int, TickKind, Reason, TickStatus]]()
        for (uid, at), tick in self._state.ticks.items():
            made = tick.decision
            if made.count > 1:
                continue
            for cell in asked.get(uid, ()):
                if cell.from_at <= at < cell.until_at:
                    found[uid, cell.column, made.kind, made.reason, tick.status] += 1
        return [CellCount(*key, count) for key, count in sorted(found.items())]

    async def ranges(self, uids: Sequence[ScheduleUid], *, since: int, until: int) -> Sequence[Tick]:
        """See TickCalendar.ranges."""
        wanted = set(uids)
        return [
            tick
            for (uid, at), tick in sorted(self._state.ticks.items())
            if uid in wanted and tick.decision.count > 1 and tick.decision.last_at >= since and at < until
        ]
