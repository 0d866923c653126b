"""Responses of the calendar: jobs by hour or day."""

from datetime import datetime

from gnomon.core.responses.base import Page, Response


class CalendarColumn(Response, frozen=True, kw_only=True):
    """An hour or a day of the zone; the end is not in it."""

    from_at: datetime
    until_at: datetime
    #: Its begin by the clocks of the zone, with their offset.
    local: str
    #: How long it is: a day in which clocks change has 23 or 25 hours.
    hours: float
    #: By how many minutes clocks are put forward in it; negative if they are put back, 0 if they do not change.
    clock_change: int


class CalendarCell(Response, frozen=True, kw_only=True):
    """The ticks of a job in a column."""

    #: The number of the column, from 0.
    column: int
    #: How many ticks are `fired`, `failed`, `late`, `queued`, `skipped`, `coalesced`, `missed`, `coming` or `held`;
    #: without kinds of which there are none.
    counts: dict[str, int]


class CalendarJob(Response, frozen=True, kw_only=True):
    """A job with its cells, without those that are empty."""

    job: str
    #: The time zone of its schedule.
    timezone: str
    paused: bool
    #: Every tick up to here is decided.
    decided_until: datetime
    next_run_at: datetime | None
    cells: list[CalendarCell]


class Calendar(Page[CalendarJob], frozen=True, kw_only=True):
    """A page of the calendar."""

    now: datetime
    #: `hour` or `day`.
    by: str
    timezone: str
    columns: list[CalendarColumn]
