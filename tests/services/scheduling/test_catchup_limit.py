"""A change after an outage: overdue ticks start within the limit in force, in order, and none is lost."""

from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from contracts.store import HOUR, MINUTE, NOON
from gnomon.adapters.memory import MemoryStore
from gnomon.app.operations import Operations
from gnomon.config.sections import LeaderSettings, TickerSettings
from gnomon.config.settings import Settings
from gnomon.core.instants import FOREVER
from gnomon.core.jobs.job import read_job
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.ledger.plan import CatchupLimit
from gnomon.core.model import Run
from gnomon.ports.store import Store
from gnomon.services.operations.job_changes import Prune
from gnomon.services.operations.jobs import JobService
from gnomon.services.operations.schedules import ScheduleService
from gnomon.services.operations.workflows import WorkflowService
from gnomon.services.scheduling.elector import Elector
from gnomon.services.scheduling.ticker import Ticker
from gnomon.testing.clock import CountedIds, Recorder, VirtualClock
from support.sqlite_files import open_new_sqlite

OUTAGE_SECONDS = 720
LIMIT = CatchupLimit(ticks=100, interval_ms=1000)


class Started(NamedTuple):
    """A run and the time at which it may start."""

    at: int
    planned_at: int


class Scheduler:
    """The services on one store: operators and, once it runs again, the ticker."""

    def __init__(self, store: Store, clock: VirtualClock) -> None:
        self.store, self.clock, ids = store, clock, CountedIds()
        self.schedules = ScheduleService(store.schedules, store.history, clock, ids, catchup_limit=LIMIT)
        self.jobs = JobService(store.jobs, store.schedules, store.history, clock, ids, catchup_limit=LIMIT)
        self.workflows = WorkflowService(store.jobs, store.schedules, clock, ids, catchup_limit=LIMIT)
        self._events = Recorder()
        self._elector = Elector(store.shards, clock, self._events, LeaderSettings(), holder="node", alone=True)
        self._ticker = Ticker(
            store.ledger,
            self._elector,
            clock,
            self._events,
            TickerSettings(),
            catchup_limit=LIMIT,
            on_runs_created=lambda: None,
        )

    def job(self, **changes: Any) -> Any:  # noqa: ANN401 - a job as data
        """A job that starts each second, and catches up on every one that was missed."""
        data = {"name": "beat", "schedule": "* * * * * *", "overlap": "allow", "catchup": "all", "command": "true"}
        # Registered by a program with another limit: the limit in force is that of the settings now.
        return read_job(data | changes, Defaults(catchup_cap=10_000), now=self.clock.now())

    async def run_for(self, ms: int) -> None:
        """Let the ticker decide what comes due in this time."""
        until = self.clock.now() + ms
        while (left := until - self.clock.now()) > 0:
            self.clock.advance(min(left, max(0, round(await self._ticker.step() * 1000))))

    async def started(self) -> list[Started]:
        """All runs of ticks, in the order of their planned times, and when each may start."""
        uids = [one.uid for one in await self.store.schedules.page("default", after="", limit=10)]
        for name in ("beat", "flow.beat"):
            uids += [one.schedule.uid for one in await self.store.history.deleted("default", name, limit=10)]
        ticks = [one for uid in uids for one in await self.store.history.ticks(uid, before=FOREVER, limit=10_000)]
        runs = [await self.store.executions.find_run(one.run_id) for one in ticks if one.run_id is not None]
        return sorted((_started(run) for run in runs if run is not None), key=lambda one: one.planned_at)


def _started(run: Run) -> Started:
    return Started(max(run.fire_at, run.created_at), run.planned_at)


async def edit(there: Scheduler) -> None:
    await there.jobs.apply([there.job(timeout="30s", timezone="Europe/Berlin")], actor="ada")


async def another_policy(there: Scheduler) -> None:
    await there.jobs.apply([there.job(catchup="none")], actor="ada")


async def registration(there: Scheduler) -> None:
    request = {"schedule_id": "beat", "schedule": "*/2 * * * * *", "workflow_id": "beat", "overlap": "allow"}
    await there.schedules.upsert(request | {"catchup": "all"}, actor="ada")


async def pause(there: Scheduler) -> None:
    await there.schedules.pause("beat", actor="ada")


async def pause_in_the_file(there: Scheduler) -> None:
    await there.jobs.apply([there.job(enabled=False)], actor="ada")


async def skip(there: Scheduler) -> None:
    await there.schedules.skip("beat", there.clock.now() + MINUTE, actor="ada")


async def deletion(there: Scheduler) -> None:
    await there.schedules.delete("beat", actor="ada")


async def pruning(there: Scheduler) -> None:
    await there.jobs.apply([], actor="ada", prune=Prune())


CHANGES: dict[str, Callable[[Scheduler], Awaitable[None]]] = {
    "an edit": edit,
    "an edit to another catch-up policy": another_policy,
    "a registration": registration,
    "a pause": pause,
    "a pause in the file": pause_in_the_file,
    "a skipped tick": skip,
    "a deletion": deletion,
    "pruning": pruning,
}


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(NOON)


@pytest.fixture(params=["memory", "sqlite"])
async def there(request: pytest.FixtureRequest, clock: VirtualClock, tmp_path: Path) -> AsyncIterator[Scheduler]:
    if request.param == "memory":
        yield Scheduler(MemoryStore(clock.now), clock)
        return
    store = await open_new_sqlite(tmp_path / "gnomon.db", now=clock.now)
    yield Scheduler(store, clock)
    await store.close()


def most_at_once(started: list[Started]) -> int:
    """The most starts within one interval of the ticker."""
    times = sorted(one.at for one in started)
    return max(sum(first <= at < first + LIMIT.interval_ms for at in times) for first in times)


def assert_in_order(started: list[Started]) -> None:
    """A run starts no sooner than the one that was planned before it."""
    assert [(one, other) for one, other in pairwise(started) if one.at > other.at] == []


@pytest.mark.req("C-06")
@pytest.mark.guarantee("S1", "S10")
@pytest.mark.parametrize("catchup", ["all", "spread"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_a_change_after_an_outage_starts_the_missed_ticks_within_the_limit_and_in_order(
    there: Scheduler, change: Callable[[Scheduler], Awaitable[None]], catchup: str
) -> None:
    await there.jobs.apply([there.job(catchup=catchup)], actor="ada")
    there.clock.advance(OUTAGE_SECONDS * 1000)
    back_at = there.clock.now()

    await change(there)
    await there.run_for(3 * MINUTE)

    started = await there.started()
    missed = [one for one in started if one.planned_at <= back_at]
    assert [one.planned_at for one in missed] == list(range(NOON + 1000, back_at + 1, 1000))
    assert most_at_once(missed) <= LIMIT.ticks
    assert_in_order(missed)
    assert missed[-1].at <= back_at + MINUTE


@pytest.mark.req("C-06")
@pytest.mark.parametrize("change", [edit, skip, registration])
async def test_the_ticks_after_a_change_start_after_the_missed_ones_and_within_the_limit(
    there: Scheduler, change: Callable[[Scheduler], Awaitable[None]]
) -> None:
    await there.jobs.apply([there.job()], actor="ada")
    there.clock.advance(OUTAGE_SECONDS * 1000)

    await change(there)
    await there.run_for(MINUTE)

    started = await there.started()
    assert started[-1].planned_at >= there.clock.now() - 3000
    assert most_at_once(started) <= LIMIT.ticks
    assert_in_order(started)


@pytest.mark.req("C-06")
@pytest.mark.parametrize("again_after_ms", [1, 300, 999])
async def test_a_change_while_the_ticker_catches_up_takes_no_starts_of_others(
    there: Scheduler, again_after_ms: int
) -> None:
    await there.jobs.apply([there.job()], actor="ada")
    there.clock.advance(OUTAGE_SECONDS * 1000)
    await there.run_for(again_after_ms)

    await pause(there)

    started = await there.started()
    assert len(started) == (there.clock.now() - NOON) // 1000
    assert most_at_once(started) <= LIMIT.ticks
    assert_in_order(started)


@pytest.mark.req("C-06")
async def test_another_policy_than_catching_up_on_all_ticks_waits_for_no_missed_tick(there: Scheduler) -> None:
    await there.jobs.apply([there.job()], actor="ada")
    there.clock.advance(OUTAGE_SECONDS * 1000)
    back_at = there.clock.now()

    await another_policy(there)
    await there.run_for(10_000)

    after = [one for one in await there.started() if one.planned_at > back_at]
    assert [one.planned_at for one in after] == list(range(back_at + 1000, there.clock.now() + 1, 1000))[: len(after)]
    assert len(after) >= 9
    assert all(one.at - one.planned_at < 1000 for one in after)


@pytest.mark.req("C-06")
async def test_the_ticks_after_an_edit_take_their_part_in_the_spread(there: Scheduler) -> None:
    await there.jobs.apply([there.job(catchup="spread")], actor="ada")
    there.clock.advance(OUTAGE_SECONDS * 1000)
    back_at = there.clock.now()

    await there.jobs.apply([there.job(catchup="spread", timezone="Europe/Berlin")], actor="ada")
    await there.run_for(2 * MINUTE)

    started = await there.started()
    assert_in_order(started)
    assert [one.planned_at for one in started if one.at <= back_at + MINUTE][-1] == back_at + MINUTE
    assert most_at_once(started) <= 15


@pytest.mark.req("C-06")
async def test_a_trigger_that_a_deployment_removes_starts_its_missed_ticks_within_the_limit(there: Scheduler) -> None:
    beat = {"type": "schedule_based", "id": "beat", "schedule": "* * * * * *", "overlap": "allow", "catchup": "all"}
    definition = {"workflow_id": "flow", "nodes": [{"id": "extract", "function": "etl.extract"}]}
    await there.workflows.deploy(definition | {"triggers": [beat]}, actor="ada")
    there.clock.advance(OUTAGE_SECONDS * 1000)

    await there.workflows.deploy(definition, actor="ada")

    started = await there.started()
    assert len(started) == OUTAGE_SECONDS
    assert most_at_once(started) <= LIMIT.ticks
    assert_in_order(started)


@pytest.mark.req("C-06")
async def test_a_daily_job_that_is_made_to_run_each_minute_waits_for_no_daily_tick(there: Scheduler) -> None:
    await there.jobs.apply([there.job(schedule="0 0 * * *")], actor="ada")
    there.clock.advance(HOUR)

    await there.jobs.apply([there.job(schedule="* * * * *")], actor="ada")

    [schedule] = await there.store.schedules.page("default", after="", limit=10)
    assert schedule.next_fire_at == there.clock.now() + MINUTE


@pytest.mark.req("C-06")
async def test_another_limit_in_the_settings_changes_no_job(there: Scheduler) -> None:
    await there.jobs.apply([there.job()], actor="ada")
    data = {"name": "beat", "schedule": "* * * * * *", "overlap": "allow", "catchup": "all", "command": "true"}

    [again] = await there.jobs.apply([read_job(data, Defaults(catchup_cap=7), now=there.clock.now())], actor="ada")

    assert again.change == "unchanged"


async def test_a_ticker_that_takes_over_in_the_middle_continues_the_change(there: Scheduler) -> None:
    """A process that ends while it decides overdue ticks leaves the rest to the ticker."""
    await there.jobs.apply([there.job()], actor="ada")
    there.clock.advance(OUTAGE_SECONDS * 1000)
    changed = 0
    write = there.store.schedules.change

    async def change(*arguments: Any, **others: Any) -> bool:  # noqa: ANN401 - as the port's
        nonlocal changed
        changed += 1
        if changed > 3:
            raise ConnectionError("the process was ended")
        return await write(*arguments, **others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(there.store.schedules, "change", change)
        with pytest.raises(ConnectionError):
            await pause(there)
    await there.run_for(30_000)

    started = await there.started()
    assert len(started) >= OUTAGE_SECONDS
    assert most_at_once(started) <= LIMIT.ticks
    assert_in_order(started)


@pytest.mark.req("C-06")
async def test_the_operations_of_a_program_use_the_limit_of_its_settings(clock: VirtualClock) -> None:
    store = MemoryStore(clock.now)
    settings = Settings(ticker=TickerSettings(max_catchup_per_tick=10, tick_ms=2000))
    operations, there = Operations(store, settings, clock=clock), Scheduler(store, clock)
    await there.jobs.apply([there.job()], actor="ada")
    clock.advance(35_000)

    await operations.jobs.pause("beat", actor="ada")

    ahead = [one.at - clock.now() for one in await there.started()]
    assert ahead == [0] * 10 + [2000] * 10 + [4000] * 10 + [6000] * 5
