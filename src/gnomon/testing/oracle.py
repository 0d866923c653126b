"""Planned times for the checker: a scanner for cron, a grid for intervals. It uses none of Gnomon's triggers."""

from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from functools import cache

from gnomon.core.model import Spec
from gnomon.core.triggers import At, Every, OnDemand, OnEvent
from gnomon.testing.scanner import scan

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY = 86_400_000
#: Scans cover whole ranges, so that many histories share one.
STRETCH = 4 * DAY
_WITH_SECONDS = 6


def planned(spec: Spec, after: int, until: int) -> list[int]:
    """The planned times after `after` and up to `until`: those of the trigger, and those of moved ticks."""
    moved = [one.moved_to for one in spec.exceptions if one.moved_to is not None and after < one.moved_to <= until]
    return sorted([*_triggered(spec, after, until), *moved]) if moved else _triggered(spec, after, until)


def _triggered(spec: Spec, after: int, until: int) -> list[int]:
    """The planned times of the trigger inside the schedule's active window."""
    low = after if spec.start_at is None else max(after, spec.start_at - 1)
    high = until if spec.end_at is None else min(until, spec.end_at - 1)
    if low >= high:
        return []
    if isinstance(spec.trigger, Every):
        period = spec.trigger.period // timedelta(milliseconds=1)
        anchor = (spec.trigger.anchor - EPOCH) // timedelta(milliseconds=1)
        first = max(0, -(-(low + 1 - anchor) // period))
        return list(range(anchor + first * period, high + 1, period))
    if isinstance(spec.trigger, At):
        at = (spec.trigger.instant - EPOCH) // timedelta(milliseconds=1)
        return [at] if low < at <= high else []
    if isinstance(spec.trigger, OnDemand | OnEvent):
        return []
    cron = spec.trigger
    # An expression of six fields has seconds: scan every second, in shorter ranges.
    step, stretch = (1, DAY) if len(cron.expression.split()) == _WITH_SECONDS else (60, STRETCH)
    found: list[int] = []
    for start in range(low // stretch * stretch, high + 1, stretch):
        times = _scanned(cron.expression, cron.timezone, cron.dst.gap, cron.dst.fold, start, start + stretch, step)
        found += times[bisect_right(times, low) : bisect_right(times, high)]
    return found


@cache
def _scanned(text: str, zone: str, gap: str, fold: str, start: int, end: int, step: int) -> tuple[int, ...]:
    since, until = EPOCH + timedelta(milliseconds=start), EPOCH + timedelta(milliseconds=end)
    fires = scan(text, zone, since, until, gap=gap, fold=fold, step=step)
    return tuple((fire - EPOCH) // timedelta(milliseconds=1) for fire in fires)
