"""The contract of calendars, for any store: each cell has the ticks of ledger and schedule, one by one."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any, cast
from zoneinfo import ZoneInfo

import pytest
from msgspec.structs import replace

from contracts.store import HOUR, MINUTE, NOON, minutely
from gnomon.core.cron import Cron
from gnomon.core.ids import SHARDS
from gnomon.core.instants import FOREVER, ms_of
from gnomon.core.ledger.calendar import CellCount, CellKind, ColumnSpan
from gnomon.core.ledger.edits import edited_schedule, verdict_before_edit
from gnomon.core.ledger.plan import plan
from gnomon.core.ledger.tick_sums import CellRange
from gnomon.core.ledger.ticks import Ticks
from gnomon.core.model import Catchup, Overlap, Reason, Result, Schedule, TickException, TickKind, TickStatus
from gnomon.ports.calendar import TickCalendar
from gnomon.ports.store import Store
from gnomon.services.loop import ComputeQueue
from gnomon.services.operations.calendar import CalendarQuery, CalendarService, CalendarView
from gnomon.testing.clock import VirtualClock
from support.task_steps import finish_run, runs_of

#: Zones with a time shortly before clocks change, by these clocks.
ZONES = {
    "Europe/Berlin": "2026-03-29T01:10",
    "America/New_York": "2025-11-02T00:10",
    "Asia/Kathmandu": "2026-01-10T11:10",
    "Australia/Lord_Howe": "2025-10-05T01:10",
    "Pacific/Apia": "2011-12-29T22:10",
}


class CalendarContract:
    """Tests for any store. `store` is a fresh one."""

    async def story(self, store: Store, begin: int, timezone: str) -> list[Schedule]:
        """Schedules with ticks of every kind within a few hours after `begin`."""
        terms = await store.shards.claim("node", ttl_ms=10_000, limit=SHARDS, by_force=True)
        spans: dict[str, dict[str, Any]] = {
            "allows": {"overlap": Overlap.ALLOW},
            "skips": {"overlap": Overlap.SKIP},
            "queues": {"overlap": Overlap.QUEUE, "queue_limit": 3},
            "latest": {"overlap": Overlap.ALLOW, "catchup": Catchup.LATEST},
            "hourly": {"trigger": Cron("30 * * * *", timezone), "overlap": Overlap.ALLOW},
            "moved": {
                "overlap": Overlap.ALLOW,
                "exceptions": (
                    TickException(begin + 3 * MINUTE),
                    TickException(begin + 150 * MINUTE, begin + 150 * MINUTE + 5000),
                    TickException(begin + 400 * MINUTE),
                ),
            },
        }
        schedules = [minutely(name, mark=begin, **changes) for name, changes in spans.items()]
        await store.schedules.add(schedules, actor="ada", tzdata="")
        for minute in (1, 2, 3, 4, 5, 67, 68, 160, 200, 201):
            now = begin + minute * MINUTE + 2500 * (minute % 2)
            for one in schedules:
                current = await self.current_of(store, one)
                await store.ledger.decide([plan(current, now=now)], now=now, terms=terms)
        before = await self.current_of(store, schedules[3])
        verdict = verdict_before_edit(before, now=begin + 203 * MINUTE)
        spec = replace(before.spec, trigger=Cron("*/7 * * * *"))
        changed = edited_schedule(verdict, spec, now=begin + 203 * MINUTE)
        assert await store.schedules.change(verdict, changed, now=begin + 203 * MINUTE, actor="ada", tzdata="")
        runs = sorted(await runs_of(store, schedules[0]), key=lambda run: run.planned_at)
        for number, run in enumerate(runs[:4]):
            result = Result.FAILED if number % 2 else Result.SUCCEEDED
            await finish_run(store, run, result=result, now=begin + 210 * MINUTE)
        await store.runs.cancel(runs[4].run_id, reason="not needed", now=begin + 210 * MINUTE)
        return schedules

    async def current_of(self, store: Store, schedule: Schedule) -> Schedule:
        """The schedule as it is in the store."""
        found = await store.schedules.find(schedule.tenant, schedule.schedule_id)
        assert found is not None
        return found

    async def shown(self, store: Store, clock: VirtualClock, query: CalendarQuery) -> CalendarView:
        """The calendar of the store."""
        service = CalendarService(
            store.schedules, store.history, store.calendar, store.jobs, clock, compute=ComputeQueue()
        )
        return await service.read(query)

    async def expected(self, store: Store, schedule: Schedule, end: int) -> Counter[tuple[int, CellKind]]:
        """Every tick of the schedule up to `end`, one by one, with its kind."""
        current = await self.current_of(store, schedule)
        found = Counter[tuple[int, CellKind]]()
        specs = {one.revision: one.schedule.spec for one in await store.history.revisions(schedule.uid)}
        for tick in await store.history.ticks(schedule.uid, before=FOREVER, limit=10_000):
            made, ticks = tick.decision, Ticks(tick.schedule_id, specs[tick.revision]).unskipped
            at = made.planned_at
            for number in range(made.count):
                if number:
                    following = ticks.after(at)
                    assert following is not None
                    at = following
                found[at, _kind(tick.decision.kind, tick.decision.reason, tick.status)] += 1
            assert at == made.last_at
        ticks = Ticks(current.schedule_id, current.spec)
        coming = ticks.after(current.mark_at)
        while coming is not None and coming < end:
            held = coming in ticks.skipped or current.paused_at is not None
            found[coming, CellKind.HELD if held else CellKind.COMING] += 1
            coming = ticks.after(coming)
        return found

    @pytest.mark.req("H-25")
    @pytest.mark.parametrize("timezone", ZONES)
    @pytest.mark.parametrize("by", ColumnSpan)
    async def test_each_cell_has_the_ticks_of_the_ledger_and_of_the_schedule(
        self, store: Store, timezone: str, by: ColumnSpan
    ) -> None:
        begin = ms_of(datetime.fromisoformat(ZONES[timezone]).replace(tzinfo=ZoneInfo(timezone)))
        schedules = await self.story(store, begin, timezone)
        query = CalendarQuery(
            tenant="default",
            timezone=timezone,
            by=by,
            from_at=begin - HOUR,
            until_at=begin + 9 * HOUR,
        )

        view = await self.shown(store, VirtualClock(begin + 210 * MINUTE), query)

        first, end = view.columns[0].from_at, view.columns[-1].until_at
        seen = set[CellKind]()
        for row in view.rows:
            every = await self.expected(store, row.schedule, end)
            cells = Counter[tuple[int, CellKind]]()
            for (at, kind), count in every.items():
                for number, column in enumerate(view.columns):
                    if first <= at and column.from_at <= at < column.until_at:
                        cells[number, kind] += count
            shown = {(number, kind): count for number, cell in row.cells.items() for kind, count in cell.items()}
            assert shown == dict(cells), row.schedule.schedule_id
            seen |= {kind for _, kind in shown}
        assert len(view.rows) == len(schedules)
        assert seen == set(CellKind)

    async def test_ticks_that_are_decided_while_a_calendar_is_read_are_counted_once(self, store: Store) -> None:
        [schedule, *_] = await self.story(store, NOON, "UTC")
        terms = await store.shards.claim("node", ttl_ms=10_000, limit=SHARDS, by_force=True)
        current, now = await self.current_of(store, schedule), NOON + 230 * MINUTE

        class DecidesMeanwhile:
            """Decides ticks after the schedules were read."""

            async def counts(self, cells: Sequence[CellRange]) -> Sequence[CellCount]:
                await store.ledger.decide([plan(current, now=now)], now=now, terms=terms)
                return await store.calendar.counts(cells)

            def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the other methods
                return getattr(store.calendar, name)

        service = CalendarService(
            store.schedules,
            store.history,
            cast("TickCalendar", DecidesMeanwhile()),
            store.jobs,
            VirtualClock(now),
            compute=ComputeQueue(),
        )
        view = await service.read(CalendarQuery(tenant="default", job="allows", from_at=NOON, until_at=NOON + 5 * HOUR))

        [row] = view.rows
        assert (await self.current_of(store, schedule)).mark_at > current.mark_at
        # A tick each minute; the first column begins with the mark, up to which there are none.
        assert [sum(row.cells[number].values()) for number in range(5)] == [59, 60, 60, 60, 60]


def _kind(kind: TickKind, reason: Reason, status: TickStatus) -> CellKind:
    """The kind as the page on calendars describes it."""
    ran = kind in (TickKind.FIRED, TickKind.QUEUED)
    if ran and status is TickStatus.FAILED:
        return CellKind.FAILED
    if ran and status is TickStatus.SKIPPED:
        return CellKind.SKIPPED
    late = kind is TickKind.FIRED and reason in (Reason.LATE, Reason.CAUGHT_UP)
    return CellKind.LATE if late else CellKind(kind.value)
