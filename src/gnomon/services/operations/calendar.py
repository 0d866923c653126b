"""The ledger of many jobs as a calendar: what was decided, and what is planned."""

from collections.abc import Collection, Generator, Mapping, Sequence

from msgspec import Struct

from gnomon.core.jobs.fields import printable, schedule_name
from gnomon.core.ledger.calendar import (
    CellCount,
    Cells,
    Column,
    ColumnSpan,
    add,
    add_planned,
    add_range,
    columns,
)
from gnomon.core.ledger.tick_sums import CellRange
from gnomon.core.model import Schedule, ScheduleUid, Spec, Tick
from gnomon.core.timezones import nearest_zone, zone
from gnomon.errors import FieldError, NotFound
from gnomon.ports.calendar import TickCalendar
from gnomon.ports.runtime import Clock
from gnomon.ports.schedules import Jobs, ScheduleHistory, Schedules
from gnomon.services.execution.workflow_cache import WorkflowCache
from gnomon.services.loop import ComputeQueue

#: The columns of a calendar without bounds, on each side of the present.
_USUAL = {ColumnSpan.HOUR: 24, ColumnSpan.DAY: 14}
#: The jobs that are looked at for one page of those with a tag, and at once.
_SCAN_LIMIT, _BATCH = 1000, 100


class CalendarQuery(Struct, frozen=True, kw_only=True):
    """The time, the zone and the jobs of a calendar."""

    tenant: str
    #: None for a few hours or days before now, and after.
    from_at: int | None = None
    until_at: int | None = None
    by: ColumnSpan = ColumnSpan.HOUR
    timezone: str = "UTC"
    job: str | None = None
    tag: str | None = None
    #: Only jobs whose names come after this.
    after: str = ""
    limit: int = 50


class JobCells(Struct, frozen=True):
    """A job, and its cells by column."""

    schedule: Schedule
    cells: Cells


class CalendarView(Struct, frozen=True, kw_only=True):
    """A page of a calendar."""

    now: int
    by: ColumnSpan
    timezone: str
    columns: Sequence[Column]
    rows: Sequence[JobCells]
    #: The name of the job after which the next page starts; None after the last.
    after: str | None


class _JobPage(Struct, frozen=True):
    schedules: Sequence[Schedule]
    after: str | None


class CalendarService:
    """Counts the ticks of jobs by hour or day."""

    def __init__(
        self,
        schedules: Schedules,
        history: ScheduleHistory,
        calendar: TickCalendar,
        jobs: Jobs,
        clock: Clock,
        *,
        compute: ComputeQueue,
    ) -> None:
        self._schedules, self._history, self._calendar = schedules, history, calendar
        self._workflow_cache = WorkflowCache(jobs)
        self._clock, self._compute = clock, compute

    async def read(self, query: CalendarQuery) -> CalendarView:
        """A page of the calendar, of jobs by name."""
        now = self._clock.now()
        shown = self._columns(query, now)
        page = await self._page(query)
        cells: dict[ScheduleUid, Cells] = {one.uid: {} for one in page.schedules}
        found = await self._calendar.counts([one for schedule in page.schedules for one in _decided(schedule, shown)])
        since, until = shown[0].from_at, shown[-1].until_at
        marks = {one.uid: one.mark_at for one in page.schedules}
        ranges = await self._calendar.ranges(list(cells), since=since, until=until)
        several = [tick for tick in ranges if tick.decision.planned_at <= marks[tick.uid]]
        specs = await self._specs(page.schedules, several)
        await self._compute.run(_count(cells, shown, page.schedules, found, several, specs))
        rows = [JobCells(one, cells[one.uid]) for one in page.schedules]
        return CalendarView(now=now, by=query.by, timezone=query.timezone, columns=shown, rows=rows, after=page.after)

    def _columns(self, query: CalendarQuery, now: int) -> Sequence[Column]:
        place = zone(query.timezone)
        if place is None:
            near = nearest_zone(query.timezone)
            hint = "" if near is None else f"; did you mean {near}?"
            raise FieldError("tz", query.timezone, f"is not an IANA time zone{hint}")
        unit = query.by.seconds * 1000
        side = _USUAL[query.by] * unit
        # As many columns wherever in its column the present lies.
        span = 2 * side - unit + 1
        from_at, until_at = query.from_at, query.until_at
        if from_at is None:
            from_at = now - side + unit if until_at is None else until_at - span
        return columns(from_at, from_at + span if until_at is None else until_at, query.by, place)

    async def _page(self, query: CalendarQuery) -> _JobPage:
        tenant = schedule_name("tenant", query.tenant)
        if query.job is not None:
            found = await self._schedules.find(tenant, schedule_name("job", query.job))
            if found is None:
                raise NotFound("job", query.job)
            return _JobPage(await self._tagged([found], query.tag), None)
        after, matches = query.after, list[Schedule]()
        for _ in range(1 if query.tag is None else _SCAN_LIMIT // _BATCH):
            size = query.limit if query.tag is None else _BATCH
            page = await self._schedules.page(tenant, after=after, limit=size)
            for schedule in await self._tagged(page, query.tag):
                matches.append(schedule)
                if len(matches) == query.limit:
                    return _JobPage(matches, schedule.schedule_id)
            if len(page) < size:
                return _JobPage(matches, None)
            after = page[-1].schedule_id
        return _JobPage(matches, after)

    async def _tagged(self, schedules: Sequence[Schedule], tag: str | None) -> Sequence[Schedule]:
        if tag is None:
            return schedules
        printable("tag", tag)
        keys = [(one.tenant, one.spec.workflow_id, one.spec.workflow_version) for one in schedules]
        workflows = await self._workflow_cache.get_many(keys)
        found = [workflows.get(key) for key in keys]
        pairs = zip(schedules, found, strict=True)
        return [schedule for schedule, workflow in pairs if workflow is not None and tag in workflow.tags]

    async def _specs(
        self, schedules: Sequence[Schedule], several: Collection[Tick]
    ) -> Mapping[ScheduleUid, Mapping[int, Spec]]:
        """The specs by which these rows were decided, by schedule and revision."""
        current = {one.uid: one for one in schedules}
        found: dict[ScheduleUid, Mapping[int, Spec]] = {uid: {one.revision: one.spec} for uid, one in current.items()}
        for uid in {tick.uid for tick in several if tick.revision != current[tick.uid].revision}:
            found[uid] = {one.revision: one.schedule.spec for one in await self._history.revisions(uid)}
        return found


def _decided(schedule: Schedule, shown: Sequence[Column]) -> list[CellRange]:
    """The cells in which the schedule has decided ticks, without those that are decided after it was read."""
    correction, end = schedule.mark_correction, schedule.mark_at + 1
    found = [
        CellRange(schedule.uid, number, one.from_at, min(one.until_at, end))
        for number, one in enumerate(shown)
        if one.from_at < end
    ]
    # Decided ticks that the mark has yet to pass.
    ahead = () if correction is None else [at for at in correction.decided if at >= end]
    return found + [
        CellRange(schedule.uid, number, at, at + 1)
        for at in ahead
        for number, one in enumerate(shown)
        if one.from_at <= at < one.until_at
    ]


def _count(
    cells: Mapping[ScheduleUid, Cells],
    shown: Sequence[Column],
    schedules: Sequence[Schedule],
    found: Sequence[CellCount],
    several: Sequence[Tick],
    specs: Mapping[ScheduleUid, Mapping[int, Spec]],
) -> Generator[None, None, None]:
    for one in found:
        add(cells[one.uid], one.column, one.kind, one.count)
        yield
    for tick in several:
        yield from add_range(cells[tick.uid], shown, tick, specs[tick.uid])
    for schedule in schedules:
        yield from add_planned(cells[schedule.uid], shown, schedule)
    yield
