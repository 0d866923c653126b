"""The health of a node whose parts live in memory, with a store that can be made to fail."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest
from msgspec.structs import replace

from contracts.store import NOON
from gnomon.adapters.memory import MemoryStore
from gnomon.config.sections import LeaderSettings, TickerSettings
from gnomon.core.health import ComponentStatus, HealthCondition, NodeHealth
from gnomon.core.model import RunId, ScheduleUid
from gnomon.errors import StoreUnavailable
from gnomon.ports.maintenance import HeldTasks, MarksAhead, StoreStats
from gnomon.services.loop import Backoff
from gnomon.services.observability.health import HealthMonitor, StepFailures
from gnomon.services.scheduling.elector import Elector
from gnomon.services.scheduling.ticker import Ticker
from gnomon.testing.clock import Recorder, VirtualClock

WELL = StoreStats(
    store_at=NOON,
    schema=3,
    jobs=1,
    due=0,
    oldest_due_at=None,
    overdue=0,
    ready_since_at=None,
    workers=1,
    shards=256,
    holders=1,
    unresolved=0,
)


class FakeStatsReader:
    """Finds what it is told to, or fails as it is told to."""

    def __init__(self) -> None:
        self.finds: StoreStats | Exception = WELL
        self.looks = 0
        #: Set to let looks end.
        self.answers = asyncio.Event()
        self.answers.set()

    async def held_tasks(self) -> HeldTasks:
        return HeldTasks()

    async def marks_ahead(self) -> MarksAhead:
        return MarksAhead(0)

    async def read(self, now: int, *, overdue_before: int, max_jobs: int, stale_before: int = 0) -> StoreStats:
        del now, overdue_before, max_jobs, stale_before
        self.looks += 1
        await self.answers.wait()
        if isinstance(self.finds, Exception):
            raise self.finds
        return self.finds

    async def steps(self, runs: Sequence[RunId]) -> Mapping[RunId, Sequence[tuple[str, str]]]:
        del runs
        return {}

    async def last_successes(self, uids: Sequence[ScheduleUid]) -> Mapping[ScheduleUid, int]:
        del uids
        return {}


class HealthFixture:
    """A node's parts and their health."""

    def __init__(self, *, active: bool = True) -> None:
        self.clock = VirtualClock(NOON)
        self.store = MemoryStore(self.clock.now)
        events = Recorder()
        self.elector = Elector(self.store.shards, self.clock, events, LeaderSettings(), holder="node")
        self.ticker = Ticker(
            self.store.ledger, self.elector, self.clock, events, TickerSettings(), on_runs_created=lambda: None
        )
        self.dispatcher = Backoff(events, "dispatcher")
        self.stats_reader = FakeStatsReader()
        self.free: int | None = None
        self.failures = StepFailures(self.clock)
        self.monitor = HealthMonitor(
            self.stats_reader,
            self.clock,
            failures=self.failures,
            tick_ms=1000,
            max_jobs=0,
            ticker=self.ticker,
            elector=self.elector,
            backoffs=lambda: {"dispatcher": self.dispatcher},
            free_bytes=lambda: self.free,
        )
        if active:
            self.monitor.started()

    async def step(self) -> None:
        await self.ticker.step()

    async def report(self, *, after_ms: int = 1000) -> NodeHealth:
        self.clock.advance(after_ms)
        return await self.monitor.report()

    async def condition(self, name: str, *, after_ms: int = 1000) -> HealthCondition:
        return {one.name: one.condition for one in (await self.report(after_ms=after_ms)).components}[name]


@pytest.fixture
async def fixture() -> HealthFixture:
    made = HealthFixture()
    await made.step()
    return made


@pytest.mark.req("Z-11")
async def test_a_node_that_does_its_work_is_well(fixture: HealthFixture) -> None:
    report = await fixture.report()

    assert (report.condition, report.ready, report.alive) == (HealthCondition.OK, True, True)
    assert {one.name for one in report.components} == {
        "store",
        "ledger",
        "disk",
        "elector",
        "ticker",
        "tasks",
        "dispatcher",
    }


@pytest.mark.req("Z-11")
async def test_a_query_that_fails_makes_the_store_ill_and_the_node_unready(fixture: HealthFixture) -> None:
    fixture.stats_reader.finds = StoreUnavailable("no route to it")

    report = await fixture.report()

    [store] = [one for one in report.components if one.name == "store"]
    assert (store.condition, store.message) == (HealthCondition.ERROR, "no route to it")
    assert (report.ready, report.alive) == (False, True)


async def test_a_failure_that_nobody_foresaw_makes_the_store_ill_without_its_words(fixture: HealthFixture) -> None:
    fixture.stats_reader.finds = RuntimeError("password=hunter2")

    [store] = [one for one in (await fixture.report()).components if one.name == "store"]

    assert store.condition is HealthCondition.ERROR
    assert "hunter2" not in store.message


async def test_a_store_that_answers_again_is_well_again(fixture: HealthFixture) -> None:
    fixture.stats_reader.finds = StoreUnavailable("away")
    await fixture.report()
    fixture.stats_reader.finds = WELL

    assert (await fixture.report()).ready


async def test_however_many_ask_the_store_is_looked_at_once_a_second(fixture: HealthFixture) -> None:
    fixture.clock.advance(5000)
    await asyncio.gather(*(fixture.monitor.report() for _ in range(50)))
    await fixture.report(after_ms=900)

    assert fixture.stats_reader.looks == 1


@pytest.mark.req("Z-11")
async def test_a_service_that_cannot_reach_the_store_is_ill_until_it_can(fixture: HealthFixture) -> None:
    fixture.dispatcher.failed(StoreUnavailable("away"))
    assert await fixture.condition("dispatcher") is HealthCondition.ERROR

    fixture.dispatcher.worked()
    assert await fixture.condition("dispatcher") is HealthCondition.OK


async def test_a_step_that_failed_as_none_should_makes_its_service_ill_for_a_while(fixture: HealthFixture) -> None:
    fixture.failures.on_event("step_failed", {"step": "dispatcher", "error": "KeyError('x')"})
    assert await fixture.condition("dispatcher") is HealthCondition.ERROR

    await fixture.step()
    assert await fixture.condition("dispatcher", after_ms=10_000) is HealthCondition.OK


@pytest.mark.req("Z-11")
async def test_a_job_that_fails_makes_nobody_ill(fixture: HealthFixture) -> None:
    fixture.failures.on_event("task_failed", {"job": "report", "error": "no"})
    fixture.failures.on_event("dead_letter", {"job": "report"})

    assert (await fixture.report()).condition is HealthCondition.OK


@pytest.mark.req("Z-11")
@pytest.mark.guarantee("S21")
async def test_a_mark_that_does_not_move_turns_the_ledger_red_within_two_ticks_and_five_seconds(
    fixture: HealthFixture,
) -> None:
    due = {**{name: getattr(WELL, name) for name in WELL.__struct_fields__}, "due": 1, "overdue": 1}
    fixture.stats_reader.finds = StoreStats(**{**due, "oldest_due_at": NOON})
    seen = []
    for _ in range(9):
        await fixture.step()
        seen.append(await fixture.condition("ledger"))

    assert seen == [HealthCondition.OK] * 8 + [HealthCondition.ERROR]


@pytest.mark.req("Z-11")
async def test_a_server_without_any_worker_turns_red_after_a_minute_and_stays_ready(fixture: HealthFixture) -> None:
    fixture.stats_reader.finds = replace(WELL, workers=0)
    seen = [await fixture.condition("tasks") for _ in range(61)]
    report = await fixture.report()

    assert set(seen) == {HealthCondition.OK}
    assert (report.condition, report.ready) == (HealthCondition.ERROR, True)
    assert [one.message for one in report.components if one.name == "tasks"] == ["no worker is alive"]

    fixture.stats_reader.finds = WELL
    assert await fixture.condition("tasks") is HealthCondition.OK


@pytest.mark.req("Z-11")
async def test_tasks_that_no_worker_can_take_turn_a_server_red_after_a_minute(fixture: HealthFixture) -> None:
    stranded = replace(WELL, unroutable=2, unroutable_since_at=NOON, unroutable_reason="no_workers: none has 'f'")
    fixture.stats_reader.finds = stranded

    assert await fixture.condition("tasks", after_ms=60_000) is HealthCondition.OK
    [tasks] = [one for one in (await fixture.report()).components if one.name == "tasks"]
    assert (tasks.condition, tasks.message) == (HealthCondition.ERROR, "2 wait, the oldest for 61 s: none has 'f'")

    fixture.stats_reader.finds = replace(stranded, unroutable_reason="pool_overloaded: both workers are overloaded")
    assert await fixture.condition("tasks") is HealthCondition.OK


async def test_a_worker_without_a_store_is_ready_while_a_server_answers_it() -> None:
    clock, answers = VirtualClock(NOON), [HealthCondition.OK]
    health = HealthMonitor(
        None,
        clock,
        failures=StepFailures(clock),
        tick_ms=1000,
        max_jobs=0,
        backoffs=lambda: {"worker": Backoff(Recorder(), "worker")},
        link=lambda: ComponentStatus(answers[0]),
    )
    health.started()
    well = await health.report()
    answers[0] = HealthCondition.ERROR
    cut_off = await health.report()

    assert {one.name for one in well.components} == {"servers", "worker"}
    assert [(one.ready, one.alive) for one in (well, cut_off)] == [(True, True), (False, True)]


async def test_a_ticker_that_stands_still_is_ill_first_and_then_worth_a_new_process(fixture: HealthFixture) -> None:
    ill = await fixture.report(after_ms=8_000)
    dead = await fixture.report(after_ms=60_000)

    assert [one.condition for one in ill.components if one.name == "ticker"] == [HealthCondition.ERROR]
    assert (ill.alive, dead.alive) == (True, False)


async def test_a_node_that_stands_by_is_idle_ready_and_alive_however_long_it_waits() -> None:
    fixture = HealthFixture(active=False)
    await fixture.step()

    report = await fixture.report(after_ms=3_600_000)

    assert {one.name for one in report.components if one.condition is HealthCondition.IDLE} >= {
        "ticker",
        "elector",
        "dispatcher",
    }
    assert (report.condition, report.ready, report.alive) == (HealthCondition.OK, True, True)


async def test_a_node_that_is_stopping_is_not_ready(fixture: HealthFixture) -> None:
    fixture.monitor.stopping()

    report = await fixture.report()

    assert (report.ready, report.alive) == (False, True)


@pytest.mark.parametrize(
    ("free", "expected"), [(None, HealthCondition.IDLE), (2**30, HealthCondition.OK), (2**20, HealthCondition.ERROR)]
)
async def test_a_disk_that_is_nearly_full_is_ill(
    fixture: HealthFixture, free: int | None, expected: HealthCondition
) -> None:
    fixture.free = free

    assert await fixture.condition("disk") is expected


@pytest.mark.req("Z-11")
async def test_a_part_that_cannot_be_looked_at_is_ill_and_all_others_are_still_looked_at(
    fixture: HealthFixture,
) -> None:
    def broken() -> int | None:
        raise ValueError("secret")

    fixture.monitor._free_bytes = broken  # noqa: SLF001 - what no disk does

    report = await fixture.report()
    parts = {one.name: one for one in report.components}

    assert (parts["disk"].condition, parts["disk"].message) == (
        HealthCondition.ERROR,
        "cannot be looked at: ValueError",
    )
    assert parts["ticker"].condition is HealthCondition.OK


async def test_whether_a_process_is_worth_keeping_is_said_without_asking_the_store(fixture: HealthFixture) -> None:
    fixture.stats_reader.answers.clear()

    assert fixture.monitor.alive
    assert fixture.stats_reader.looks == 0


async def test_a_store_that_does_not_answer_in_time_is_ill(
    fixture: HealthFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gnomon.services.observability.health._TIMEOUT_SECONDS", 0.01)
    fixture.stats_reader.answers.clear()

    assert await fixture.condition("store") is HealthCondition.ERROR
