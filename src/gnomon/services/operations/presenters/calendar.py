"""Presents the calendar."""

from gnomon.core.instants import in_zone, instant_of
from gnomon.core.ledger.calendar import CellKind, Column
from gnomon.core.ledger.ticks import ticks_of
from gnomon.core.responses.calendar import CalendarCell, CalendarColumn, CalendarJob
from gnomon.services.operations.calendar import JobCells
from gnomon.services.operations.presenters.common import optional_instant

_HOUR_MS = 3_600_000


def calendar_column(column: Column, timezone: str) -> CalendarColumn:
    """An hour or a day."""
    return CalendarColumn(
        from_at=instant_of(column.from_at),
        until_at=instant_of(column.until_at),
        local=in_zone(instant_of(column.from_at), timezone).isoformat(),
        hours=(column.until_at - column.from_at) / _HOUR_MS,
        clock_change=column.clock_change // 60,
    )


def calendar_job(row: JobCells) -> CalendarJob:
    """A job with its cells."""
    schedule = row.schedule
    paused = schedule.paused_at is not None
    return CalendarJob(
        job=schedule.schedule_id,
        timezone=schedule.spec.timezone,
        paused=paused,
        decided_until=instant_of(schedule.mark_at),
        next_run_at=None if paused else optional_instant(ticks_of(schedule).unskipped.after(schedule.mark_at)),
        cells=[
            CalendarCell(column=number, counts={kind.value: cell[kind] for kind in CellKind if cell.get(kind)})
            for number, cell in sorted(row.cells.items())
        ],
    )
