"""Rare executions are found among many, a bounded number at a time."""

from collections.abc import Sequence

import pytest

from contracts.store import HOUR, NOON
from gnomon.adapters.memory import MemoryStore
from gnomon.core.instants import FOREVER
from gnomon.core.jobs.job import read_job
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.model import RunStatus, TickKind
from gnomon.ports.runs import RunQuery
from gnomon.services.operations.executions import SearchService
from gnomon.services.operations.jobs import JobService, TickQuery
from gnomon.services.operations.launcher import Launcher
from gnomon.testing.clock import CountedIds, VirtualClock

JOBS = {"rare": ["x"], **{f"usual-{number}": [] for number in range(9)}}


class SearchFixture:
    """Ten jobs and ten runs, of which the first is the only one with its tag, and the only one that is over."""

    def __init__(self) -> None:
        self.clock = VirtualClock(NOON)
        self.store = store = MemoryStore(self.clock.now)
        ids = CountedIds()
        self.job_service = JobService(store.jobs, store.schedules, store.history, self.clock, ids)
        self.launcher = Launcher(store.runs, store.executions, store.jobs, store.schedules, self.clock, ids)
        self.search = SearchService(
            store.executions,
            store.run_tasks,
            store.jobs,
            self.job_service,
            announcements=store.announcements,
            tick_history=store.tick_history,
            scan_limit=3,
        )

    async def fill(self) -> str:
        runs = []
        for name, tags in JOBS.items():
            said = {"name": name, "function": "f", "overlap": "allow", "tags": tags}
            await self.job_service.apply([read_job(said, Defaults(), now=NOON)], actor="ada")
            runs.append((await self.launcher.trigger(name, actor="ada")).run_id)
            self.clock.advance(1)
        await self.store.runs.cancel(runs[0], reason="no", now=self.clock.now())
        return runs[0]

    async def swallow_ticks(self, name: str, *, hours: int, tags: Sequence[str] = ()) -> None:
        """An hourly job that was paused for so long: one tick stands for all planned times."""
        said = {"name": name, "function": "f", "schedule": "0 * * * *", "tags": list(tags)}
        await self.job_service.apply([read_job(said, Defaults(), now=self.clock.now())], actor="ada")
        await self.job_service.pause(name, actor="ada")
        self.clock.advance(hours * HOUR)
        await self.job_service.resume(name, actor="ada")


@pytest.fixture
async def library() -> SearchFixture:
    return SearchFixture()


@pytest.mark.parametrize(("status", "tag"), [(RunStatus.CANCELLED, None), (None, "x")], ids=["status", "tag"])
async def test_a_rare_execution_is_found_page_after_short_page(
    library: SearchFixture, status: RunStatus | None, tag: str | None
) -> None:
    rare = await library.fill()
    found, pages, after = [], 0, None
    while True:
        page = await library.search.executions(RunQuery(limit=5, after=after, status=status), tag=tag)
        found += [one.run.run_id for one in page.items]
        pages, after = pages + 1, page.after
        if after is None:
            break

    assert found == [rare]
    assert pages == 4


async def test_filters_with_an_index_need_no_search(library: SearchFixture) -> None:
    await library.fill()

    page = await library.search.executions(RunQuery(limit=100))

    assert (len(page.items), page.after) == (10, None)


async def test_a_ledger_is_looked_through_a_stretch_at_a_time(
    library: SearchFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gnomon.services.operations.jobs._SCAN_LIMIT", 2)
    monkeypatch.setattr("gnomon.services.operations.jobs._PAGE", 1)
    job = read_job({"name": "beat", "function": "f", "schedule": "* * * * *"}, Defaults(), now=NOON)
    await library.job_service.apply([job], actor="ada")
    for _ in range(3):
        await library.job_service.pause("beat", actor="ada")
        library.clock.advance(60_000)
        await library.job_service.resume("beat", actor="ada")

    first = await library.job_service.ledger("beat", TickQuery(kind=TickKind.FIRED))
    rest = await library.job_service.ledger("beat", TickQuery(kind=TickKind.FIRED, before=first.before or 0))

    assert (first.ticks, first.before) == ([], NOON + 2 * 60_000)
    assert (rest.ticks, rest.before) == ([], None)


async def test_of_the_ledgers_of_many_jobs_only_so_many_decisions_are_looked_at_for_one_page(
    library: SearchFixture,
) -> None:
    for number in range(6):
        said = {"name": f"job-{number}", "function": "f", "schedule": "0 * * * *"}
        await library.job_service.apply([read_job(said, Defaults(), now=NOON)], actor="ada")
        await library.job_service.pause(f"job-{number}", actor="ada")
    library.clock.advance(5 * 3_600_000)
    for number in range(6):
        await library.job_service.resume(f"job-{number}", actor="ada")

    pages, after = 0, None
    while pages == 0 or after is not None:
        page = await library.search.ticks(TickQuery(kind=TickKind.FIRED), after=after, tenant="default")
        assert page.items == []
        pages, after = pages + 1, page.after

    assert pages == 3


async def test_the_ledgers_of_jobs_with_a_tag_are_looked_through_a_few_decisions_for_one_page(
    library: SearchFixture,
) -> None:
    for number in range(6):
        await library.swallow_ticks(f"job-{number}", hours=5, tags=["slow"])

    pages, after = 0, None
    while pages == 0 or after is not None:
        page = await library.search.ticks_by_job(
            TickQuery(kind=TickKind.FIRED), after=after, tag="slow", tenant="default"
        )
        assert page.items == []
        pages, after = pages + 1, page.after

    assert pages == 3


async def test_a_list_of_ticks_includes_those_that_begin_before_its_time_and_reach_into_it(
    library: SearchFixture,
) -> None:
    for name in ("one", "two", "three"):
        await library.swallow_ticks(name, hours=2)
    [last, *_] = (await library.search.ticks(TickQuery(), after=None, tenant="default")).items
    since = last.decision.last_at

    async def listed(limit: int, *, before: int = FOREVER, kind: TickKind | None = None) -> list[tuple[str, int]]:
        found, after = list[tuple[str, int]](), None
        while True:
            query = TickQuery(since=since, before=before, kind=kind, limit=limit)
            page = await library.search.ticks(query, after=after, tenant="default")
            assert len(page.items) <= limit
            found += [(one.schedule_id, one.decision.count) for one in page.items]
            if (after := page.after) is None:
                return found

    assert (last.schedule_id, last.decision.count) == ("three", 2)
    assert last.decision.planned_at < since
    assert await listed(10) == await listed(1) == [("three", 2)]
    assert await listed(10, before=last.decision.planned_at) == []
    assert await listed(10, kind=TickKind.FIRED) == []
    since -= 2 * HOUR
    assert await listed(10) == await listed(1) == [("three", 2), ("two", 2)]
    since = NOON
    assert await listed(10) == await listed(1) == await listed(2) == [("three", 2), ("two", 2), ("one", 2)]
