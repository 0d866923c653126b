"""Planned times for the checker: the scanner for cron, a grid for intervals. No trigger of gnomon is asked."""

from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from functools import cache

from gnomon.core.model import Spec
from gnomon.core.triggers import At, Every
from gnomon.testing.scanner import scan

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY = 86_400_000
#: Scans cover whole stretches, so that many histories share one.
STRETCH = 4 * DAY


def planned(spec: Spec, after: int, until: int) -> list[int]:
    """The planned times after `after` and up to `until`, inside the schedule's active window."""
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
    cron = spec.trigger
    found: list[int] = []
    for stretch in range(low // STRETCH, high // STRETCH + 1):
        times = _scanned(cron.expression, cron.timezone, cron.dst.gap, cron.dst.fold, stretch)
        found += times[bisect_right(times, low) : bisect_right(times, high)]
    return found


@cache
def _scanned(text: str, zone: str, gap: str, fold: str, stretch: int) -> tuple[int, ...]:
    start = EPOCH + timedelta(milliseconds=stretch * STRETCH)
    end = start + timedelta(milliseconds=STRETCH)
    fires = scan(text, zone, start, end, gap=gap, fold=fold)
    return tuple((fire - EPOCH) // timedelta(milliseconds=1) for fire in fires)
