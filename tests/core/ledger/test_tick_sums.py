"""Cells as sums and as stretches to count: together they are the cells, and no quarter is in both."""

import random

import pytest

from gnomon.core.ledger.calendar import CellKind
from gnomon.core.ledger.tick_sums import QUARTER_MS, QUARTERS, CellRange, DaySums, split
from gnomon.core.model import DAY_MS, ScheduleUid

UID = ScheduleUid("sch_report")


def sums_of(rng: random.Random) -> DaySums:
    """Sums of a day of which some quarters are open: a known quarter has as many ticks as its number and one."""
    found = DaySums()
    for quarter in range(rng.randrange(1, QUARTERS + 1)):
        found.set(quarter, {CellKind.FIRED: quarter + 1}, known=rng.random() < 0.8)
    return found


@pytest.mark.parametrize("seed", range(20))
def test_sums_and_stretches_make_up_a_cell(seed: int) -> None:
    rng = random.Random(seed)
    days = {(UID, day): sums_of(rng) for day in (100, 101, 103)}
    begin = 100 * DAY_MS + rng.randrange(DAY_MS)
    cells = [CellRange(UID, 0, begin, begin + rng.randrange(1, 4 * DAY_MS))]
    known = {
        day * QUARTERS + quarter
        for (_, day), sums in days.items()
        for quarter in range(sums.known_until)
        if quarter not in sums.open
    }
    whole = [
        quarter
        for quarter in sorted(known)
        if quarter * QUARTER_MS >= cells[0].from_at and (quarter + 1) * QUARTER_MS <= cells[0].until_at
    ]

    found = split(cells, days)

    assert sum(one.count for one in found.counts) == sum(quarter % QUARTERS + 1 for quarter in whole)
    counted = sum(one.until_at - one.from_at for one in found.rest)
    assert counted + len(whole) * QUARTER_MS == cells[0].until_at - cells[0].from_at
    for one in found.rest:
        assert cells[0].from_at <= one.from_at < one.until_at <= cells[0].until_at
        assert not any(
            one.from_at < (quarter + 1) * QUARTER_MS and quarter * QUARTER_MS < one.until_at for quarter in whole
        )


def test_a_quarter_that_is_forgotten_has_no_sums() -> None:
    sums = DaySums()
    for quarter in range(4):
        sums.set(quarter, {CellKind.FIRED: 3}, known=True)

    sums.forget([1, 2, 9])

    assert list(sums.known(0, QUARTERS)) == [(0, 1), (3, 4)]
    assert sums.counts[CellKind.FIRED][:5] == [3, 0, 0, 3, 0]
    assert not sums.is_empty
