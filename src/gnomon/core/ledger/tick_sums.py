"""Sums of the ticks of one schedule, so that a calendar need not count them one by one.

A row has the sums of one day in UTC, by quarter of an hour: offsets of time zones are multiples of that. A quarter is
*known* if every tick in it is decided and has ended, so that its sums do not change any more. The ticks of all other
quarters are counted. Sums are therefore never wrong: they only may be missing.

Days with few ticks have no row. Rows of the ledger that stand for several ticks are summed if they begin and end in one
quarter; the few others are counted by themselves.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from gnomon.core.ledger.calendar import CellCount, CellKind
from gnomon.core.model import DAY_MS, MINUTE_MS, ScheduleUid

QUARTER_MS = 15 * MINUTE_MS
QUARTERS = DAY_MS // QUARTER_MS
#: A day with so many ticks in a quarter has sums.
DENSE = 2


class CellRange(Struct, frozen=True):
    """The time of one column in the ledger of one schedule; the end is not in it."""

    uid: ScheduleUid
    column: int
    from_at: int
    until_at: int


class DaySums(Struct):
    """The sums of one day by kind and quarter."""

    #: Every quarter before this one is known, but for those in `open`.
    known_until: int = 0
    open: list[int] = []
    counts: dict[CellKind, list[int]] = {}

    def set(self, quarter: int, found: Mapping[CellKind, int], *, known: bool) -> None:
        """Set the sums of a quarter, or forget them until its ticks have ended."""
        for kind, numbers in self.counts.items():
            numbers[quarter] = found.get(kind, 0) if known else 0
        if known:
            for kind in found.keys() - self.counts.keys():
                self.counts[kind] = [0] * QUARTERS
                self.counts[kind][quarter] = found[kind]
        others = [one for one in self.open if one != quarter]
        self.open = others if known else sorted((*others, quarter))
        self.known_until = max(self.known_until, quarter + 1)

    def forget(self, quarters: Sequence[int]) -> None:
        """Forget the sums of these quarters."""
        for quarter in quarters:
            if quarter < self.known_until:
                self.set(quarter, {}, known=False)

    @property
    def is_empty(self) -> bool:
        """Whether all is known, and there is nothing."""
        return not self.open and not any(map(any, self.counts.values()))

    def known(self, first: int, end: int) -> Iterator[tuple[int, int]]:
        """The known stretches among these quarters; the end is not in them."""
        end = min(end, self.known_until)
        for stop in (*(one for one in self.open if first <= one < end), end):
            if first < stop:
                yield first, stop
            first = stop + 1


class SplitCells(NamedTuple):
    """Cells as sums that are known, and as stretches of which the ticks have to be counted."""

    counts: list[CellCount]
    rest: list[CellRange]


def split(cells: Sequence[CellRange], days: Mapping[tuple[ScheduleUid, int], DaySums]) -> SplitCells:
    """The sums of these cells, as far as they are known, and the rest."""
    counts: list[CellCount] = []
    rest: list[CellRange] = []
    for cell in cells:
        at = cell.from_at
        totals: dict[CellKind, int] = {}
        for begin, end, sums, first in _known_in(cell, days):
            if at < begin:
                rest.append(CellRange(cell.uid, cell.column, at, begin))
            last = first + (end - begin) // QUARTER_MS
            for kind, numbers in sums.counts.items():
                totals[kind] = totals.get(kind, 0) + sum(numbers[first:last])
            at = end
        if at < cell.until_at:
            rest.append(CellRange(cell.uid, cell.column, at, cell.until_at))
        counts += [CellCount(cell.uid, cell.column, kind, count) for kind, count in totals.items() if count]
    return SplitCells(counts, rest)


def _known_in(
    cell: CellRange, days: Mapping[tuple[ScheduleUid, int], DaySums]
) -> Iterator[tuple[int, int, DaySums, int]]:
    """The known stretches of a cell, each with the sums of its day and its first quarter."""
    for day in range(cell.from_at // DAY_MS, (cell.until_at - 1) // DAY_MS + 1):
        sums = days.get((cell.uid, day))
        if sums is None:
            continue
        midnight = day * DAY_MS
        first = max(0, -(-(cell.from_at - midnight) // QUARTER_MS))
        end = min(QUARTERS, (cell.until_at - midnight) // QUARTER_MS)
        for begin, stop in sums.known(first, end):
            yield midnight + begin * QUARTER_MS, midnight + stop * QUARTER_MS, sums, begin
