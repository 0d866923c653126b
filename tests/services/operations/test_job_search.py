"""Jobs are found among many, a bounded number at a time."""

from collections.abc import Mapping, Sequence

import pytest

from contracts.store import NOON
from gnomon.adapters.memory import MemoryStore
from gnomon.core.jobs.job import read_job
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.model import Result, Schedule, ScheduleUid, Tick
from gnomon.ports.schedules import (
    RecentHistory,
    ScheduleOrder,
    SchedulePosition,
    TenantTickQuery,
    TickHistory,
    TickMark,
    TickPosition,
)
from gnomon.services.operations.job_search import JobFilter, JobSearchService, JobStateFilter
from gnomon.services.operations.jobs import JobService
from gnomon.testing.clock import CountedIds, VirtualClock
from support.why_scenario import WhyScenario


@pytest.fixture
async def search() -> JobSearchService:
    """Twelve jobs, of which a page of a search looks at three; the first and the last one have a tag."""
    clock = VirtualClock(NOON)
    store = MemoryStore(clock.now)
    jobs = JobService(store.jobs, store.schedules, store.history, clock, CountedIds())
    for number in range(12):
        said = {"name": f"job-{number:02}", "function": "f", "tags": ["x"] if number in (0, 11) else []}
        await jobs.apply([read_job(said, Defaults(), now=NOON)], actor="ada")
    return JobSearchService(jobs, store.schedules, store.tick_history, clock, scan_limit=3)


async def found(search: JobSearchService, filters: JobFilter, *, limit: int) -> tuple[list[str], int]:
    """All matches, and how many pages they took."""
    names, pages, after = list[str](), 0, None
    while True:
        page = await search.page(filters, tenant="default", after=after, limit=limit)
        names += [one.view.schedule.schedule_id for one in page.items]
        pages, after = pages + 1, page.after
        if after is None:
            return names, pages


@pytest.mark.parametrize("limit", [1, 2, 5])
async def test_a_rare_job_is_found_page_after_short_page(search: JobSearchService, limit: int) -> None:
    names, pages = await found(search, JobFilter(tag="x"), limit=limit)

    assert names == ["job-00", "job-11"]
    assert pages == 5


async def test_a_list_without_filters_needs_no_search(search: JobSearchService) -> None:
    names, pages = await found(search, JobFilter(), limit=100)

    assert (len(names), pages) == (12, 1)


@pytest.mark.parametrize("limit", [1, 2, 3, 5])
async def test_no_job_is_lost_or_repeated_between_pages(search: JobSearchService, limit: int) -> None:
    names, _ = await found(search, JobFilter(text="JOB", state=JobStateFilter.ACTIVE), limit=limit)

    assert names == [f"job-{number:02}" for number in range(12)]


async def test_only_the_named_jobs_are_found(search: JobSearchService) -> None:
    names, _ = await found(search, JobFilter(names=frozenset({"job-03", "job-07", "gone"})), limit=10)

    assert names == ["job-03", "job-07"]


async def test_a_position_of_one_order_begins_where_its_page_has_ended(search: JobSearchService) -> None:
    after: SchedulePosition | None = None
    names = list[str]()
    for _ in range(4):
        page = await search.page(JobFilter(), tenant="default", order=ScheduleOrder.LAST, after=after, limit=3)
        names += [one.view.schedule.schedule_id for one in page.items]
        after = page.after

    assert names == sorted(names)
    assert len(set(names)) == 12


# ---- failing jobs --------------------------------------------------------------------------------


class RecordedTickHistory(TickHistory):
    """A history of ticks that records of how many schedules how many ticks are read."""

    def __init__(self, real: TickHistory) -> None:
        self._real = real
        self.read = list[tuple[int, int]]()

    async def page(self, query: TenantTickQuery) -> Sequence[Tick]:
        return await self._real.page(query)

    async def position(self, query: TenantTickQuery, number: int) -> TickPosition | None:
        return await self._real.position(query, number)

    async def recent(self, schedules: Sequence[Schedule], *, each: int) -> Mapping[ScheduleUid, RecentHistory]:
        return await self._real.recent(schedules, each=each)

    async def newest(self, uids: Sequence[ScheduleUid], *, each: int) -> Mapping[ScheduleUid, Sequence[TickMark]]:
        self.read.append((len(uids), each))
        return await self._real.newest(uids, each=each)


async def test_more_than_the_newest_tick_is_read_only_of_a_job_whose_newest_execution_has_not_ended() -> None:
    clock = VirtualClock(NOON)
    store = MemoryStore(clock.now)
    scenario, ticks = WhyScenario(store, clock), RecordedTickHistory(store.tick_history)
    search = JobSearchService(scenario.jobs, store.schedules, ticks, clock)
    await scenario.job("1 12 * * *", name="ended")
    await scenario.job(name="fails", overlap="skip")
    await scenario.job(None, name="idle")
    await scenario.run_until("12:01")
    await scenario.run_to_end("12:01", Result.FAILED)
    await scenario.run_until("12:05")
    failing = JobFilter(state=JobStateFilter.FAILING)

    # The last ticks of the second job: skipped, and before these one that runs, and one that has failed.
    assert await found(search, failing, limit=10) == (["ended", "fails"], 1)
    assert ticks.read == [(3, 1), (1, 20)]

    await scenario.run_to_end("12:05", Result.SUCCEEDED)

    assert await found(search, failing, limit=10) == (["ended"], 1)
