"""The cleaner: what is old goes, archived first, and nothing else does."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from contracts.store import NOON, minutely
from gnomon.adapters.archive import FolderArchive, read_archive
from gnomon.adapters.memory import MemoryStore
from gnomon.adapters.memory.maintenance import MemoryRetention
from gnomon.adapters.memory.rules import MemoryRules
from gnomon.adapters.memory.state import MemoryTables
from gnomon.config.settings import load
from gnomon.core.ids import SHARDS
from gnomon.core.ledger.edits import verdict_before_edit
from gnomon.core.ledger.plan import plan
from gnomon.core.model import DAY_MS, Run, RunId, RunSource, Schedule
from gnomon.core.runs.launch import LaunchRequest, new_requested_run
from gnomon.core.triggers import OnDemand
from gnomon.errors import ArchiveUnavailable
from gnomon.ports.maintenance import Archive, ArchiveRecord, RetentionBatch, RetentionKind
from gnomon.ports.schedules import JobChangeset, ScheduleEdit
from gnomon.services.coordination import AlwaysHeldSingleton, SingletonLease
from gnomon.services.maintenance.cleaner import Cleaner
from gnomon.testing.clock import Recorder, VirtualClock
from support.task_steps import finish_run, workflow


class FillableArchive:
    """An archive that may be full."""

    def __init__(self) -> None:
        self.kept: list[ArchiveRecord] = []
        self.full = False

    async def keep(self, records: Sequence[ArchiveRecord]) -> None:
        if self.full:
            raise ArchiveUnavailable("full")
        self.kept += records


class CountingRetention(MemoryRetention):
    """Counts the tasks that go in each transaction."""

    def __init__(self, state: MemoryTables, rules: MemoryRules) -> None:
        super().__init__(state, rules)
        self.removed: list[int] = []

    async def remove(self, batch: RetentionBatch, *, limit: int) -> bool:
        before = len(self._state.tasks)
        done = await super().remove(batch, limit=limit)
        self.removed.append(before - len(self._state.tasks))
        return done


class CleanerFixture:
    """A cleaner on a memory store, with jobs whose runs end at once."""

    def __init__(self, archive: Archive | None = None, *, portion: int = 100) -> None:
        self.clock = VirtualClock(NOON)
        self.store = MemoryStore(self.clock.now)
        self.store.retention = self.retention = CountingRetention(self.store.state, self.store.rules)
        self.events = Recorder()
        self.fillable_archive = FillableArchive()
        self.archive = archive or self.fillable_archive
        self.settings = load(flags={"cleaner.dedupe": "1d", "cleaner.portion": portion})
        self.cleaner = self.another("a")

    def another(self, holder: str) -> Cleaner:
        store = self.store
        return Cleaner(
            store.retention,
            store.jobs,
            self.archive,
            self.clock,
            self.events,
            settings=self.settings,
            lease=SingletonLease(store.singletons, self.clock, "cleaner", holder, ttl_ms=160_000),
            store_now=store.now,
        )

    async def job(self, name: str = "report", **changes: Any) -> Schedule:  # noqa: ANN401
        made = minutely(name, trigger=OnDemand())
        made = replace(made, spec=replace(made.spec, workflow_id=name), next_fire_at=None)
        request = JobChangeset(workflows=[workflow(name, **changes)], added=[made])
        assert await self.store.jobs.apply(request, now=self.clock.now(), actor="ada", tzdata="")
        return made

    async def run(self, job: Schedule, name: str) -> Run:
        run = new_requested_run(RunId(f"run_{name}"), job, source=RunSource.MANUAL, now=self.clock.now())
        await self.store.runs.launch([LaunchRequest(run=run, first_steps=("main",))], now=self.clock.now())
        await finish_run(self.store, run, now=self.clock.now())
        return run

    async def left(self, *runs: Run) -> list[str]:
        return [run.run_id for run in runs if await self.store.executions.find_run(run.run_id)]

    async def pass_(self) -> None:
        """Steps until the cleaner has been through everything."""
        while await self.cleaner.step() < self.settings.cleaner.poll_ms / 1000:
            pass


@pytest.mark.req("H-11")
@pytest.mark.guarantee("S16", "S19")
async def test_a_node_whose_clock_is_far_ahead_removes_nothing_that_the_store_does_not_call_old() -> None:
    home = CleanerFixture()
    run = await home.run(await home.job(), "young")
    ahead = VirtualClock(NOON + 365 * DAY_MS)
    lease = AlwaysHeldSingleton()
    cleaner = Cleaner(
        home.store.retention,
        home.store.jobs,
        home.archive,
        ahead,
        home.events,
        settings=home.settings,
        lease=lease,
        store_now=home.store.now,
    )

    done = await cleaner.clean()

    assert (dict(done.gone), await home.left(run)) == ({}, [run.run_id])


@pytest.mark.req("H-11")
@pytest.mark.req("Z-09")
async def test_runs_are_kept_for_ninety_days_unless_their_job_says_something_else() -> None:
    home = CleanerFixture()
    usual, short = await home.job(), await home.job("short", retention_days=7)
    runs = [await home.run(usual, "a"), await home.run(short, "b")]
    home.clock.advance(8 * DAY_MS)
    runs.append(await home.run(short, "c"))

    await home.pass_()
    assert await home.left(*runs) == ["run_a", "run_c"]
    home.clock.advance(83 * DAY_MS)
    await home.pass_()
    assert await home.left(*runs) == []


@pytest.mark.req("Z-09")
async def test_a_job_may_keep_its_newest_runs_only() -> None:
    home = CleanerFixture()
    usual, short = await home.job(), await home.job("short", retention_runs=2, retention_days=7)
    theirs = [await home.run(usual, f"u{n}") for n in range(4)]
    runs = []
    for n in range(4):
        home.clock.advance(1000)
        runs.append(await home.run(short, f"s{n}"))

    await home.pass_()
    assert await home.left(*runs, *theirs) == ["run_s2", "run_s3", "run_u0", "run_u1", "run_u2", "run_u3"]
    assert {record.table for record in home.fillable_archive.kept} == {"run", "task", "attempt"}
    home.clock.advance(8 * DAY_MS)
    await home.pass_()
    assert await home.left(*runs) == [], "the days count besides"


@pytest.mark.req("H-11")
async def test_the_retention_that_a_job_says_now_counts_for_all_of_its_runs() -> None:
    home = CleanerFixture()
    job = await home.job()
    run = await home.run(job, "a")
    shorter = JobChangeset(workflows=[workflow("report", version=2, retention_days=1)])
    assert await home.store.jobs.apply(shorter, now=NOON, actor="ada", tzdata="")
    home.clock.advance(2 * DAY_MS)

    await home.pass_()

    assert await home.left(run) == []


@pytest.mark.req("H-11")
async def test_nothing_is_removed_that_could_not_be_archived() -> None:
    home = CleanerFixture()
    run = await home.run(await home.job(), "a")
    home.clock.advance(91 * DAY_MS)
    home.fillable_archive.full = True

    assert await home.cleaner.step() < 1
    assert await home.left(run) == ["run_a"]
    assert home.events.names() == ["store_unavailable"]
    home.fillable_archive.full = False
    await home.pass_()
    assert await home.left(run) == []
    assert {record.table for record in home.fillable_archive.kept} == {"run", "task", "attempt"}


async def test_records_archived_but_not_removed_are_archived_again_and_read_once(tmp_path: Path) -> None:
    home = CleanerFixture(FolderArchive(tmp_path))
    run = await home.run(await home.job(), "a")
    home.clock.advance(91 * DAY_MS)
    interrupted = home.another("b")

    async def dies(*_: object, **__: object) -> bool:
        raise KeyboardInterrupt

    remove, home.store.retention.remove = home.store.retention.remove, dies  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        await interrupted.clean()
    home.store.retention.remove = remove  # type: ignore[method-assign]
    home.clock.advance(10 * 60_000)
    await home.pass_()

    assert await home.left(run) == []
    assert sorted(row["table"] for row in read_archive(tmp_path)) == ["attempt", "run", "task"]


async def test_a_dry_pass_says_what_would_go_and_lets_nothing_go() -> None:
    home = CleanerFixture()
    run = await home.run(await home.job(), "a")
    home.clock.advance(91 * DAY_MS)

    done = await home.cleaner.clean(dry=True)

    assert (done.gone, done.rows) == ({RetentionKind.RUNS: 1}, {"run": 1, "task": 1, "attempt": 1})
    assert (await home.left(run), home.fillable_archive.kept) == (["run_a"], [])


async def test_a_pass_announces_what_it_let_go() -> None:
    home = CleanerFixture()
    job = await home.job()
    for name in "abc":
        await home.run(job, name)
    home.clock.advance(91 * DAY_MS)

    await home.pass_()

    assert home.events.seen == [("history_cleaned", {"runs": 3})]


async def test_one_of_several_cleans_at_a_time() -> None:
    home = CleanerFixture()
    run = await home.run(await home.job(), "a")
    home.clock.advance(91 * DAY_MS)
    assert await home.store.singletons.acquire_singleton("cleaner", "another node", ttl_ms=60_000)

    assert await home.cleaner.step() == home.settings.cleaner.poll_ms / 1000
    assert await home.left(run) == ["run_a"]
    home.clock.advance(60_000)
    await home.pass_()
    assert await home.left(run) == []


async def test_a_node_that_lost_its_right_while_it_archived_removes_nothing() -> None:
    home = CleanerFixture()
    run = await home.run(await home.job(), "a")
    home.clock.advance(91 * DAY_MS)
    original = home.fillable_archive.keep

    async def slow(records: Sequence[ArchiveRecord]) -> None:
        home.clock.advance(10 * 60_000)
        assert await home.store.singletons.acquire_singleton("cleaner", "b", ttl_ms=160_000)
        await original(records)

    home.fillable_archive.keep = slow  # type: ignore[method-assign]
    await home.cleaner.step()

    assert await home.left(run) == ["run_a"]


async def test_a_version_of_a_workflow_goes_after_its_last_run_and_the_newest_stays() -> None:
    home = CleanerFixture()
    job = await home.job()
    run = await home.run(job, "a")
    home.clock.advance(DAY_MS)
    changed = replace(job, spec=replace(job.spec, workflow_version=2), revision=2)
    edit = ScheduleEdit(verdict_before_edit(job, now=home.clock.now()), changed)
    newer = JobChangeset(workflows=[workflow("report", version=2)], edits=[edit])
    assert await home.store.jobs.apply(newer, now=home.clock.now(), actor="ada", tzdata="")
    last = await home.run(changed, "b")
    versions = home.store.jobs

    async def left() -> list[int]:
        return [version for version in (1, 2) if await versions.workflow("default", "report", version)]

    home.clock.advance(89 * DAY_MS)
    await home.pass_()
    assert (await home.left(run, last), await left()) == (["run_a", "run_b"], [1, 2])
    home.clock.advance(2 * DAY_MS)
    await home.pass_()
    assert (await home.left(run, last), await left()) == ([], [2])
    assert {record.table for record in home.fillable_archive.kept} >= {"workflow"}


async def test_a_tick_goes_in_the_same_pass_as_its_run() -> None:
    home = CleanerFixture()
    made = minutely()
    await home.store.schedules.add([made], actor="ada", tzdata="")
    terms = await home.store.shards.claim("node", ttl_ms=1000, limit=SHARDS)
    for minute in (1, 2):
        found = await home.store.schedules.find("default", "report")
        assert found is not None
        home.clock.advance(60_000)
        now = NOON + minute * 60_000
        await home.store.ledger.decide([plan(found, now=now)], now=now, terms=terms)
        [run] = [one for one in await home.store.history.runs(made.uid, before=now + 1, limit=10) if not one.over]
        await finish_run(home.store, run, now=now)
    home.clock.advance(91 * DAY_MS)

    assert (await home.cleaner.clean()).gone == {RetentionKind.RUNS: 2, RetentionKind.TICKS: 1}


async def test_many_old_rows_go_in_transactions_of_a_portion_each() -> None:
    home = CleanerFixture(portion=10)
    job = await home.job()
    for number in range(35):
        await home.run(job, f"{number:03}")
    home.clock.advance(91 * DAY_MS)

    await home.pass_()

    assert home.retention.removed == [10, 10, 10, 5]
