"""Backfills: planned times of the past have one run each, in their order, and no more at once than was said."""

from typing import Any

import pytest

from contracts.store import HOUR, MINUTE, NOON, minutely
from gnomon.adapters.memory import MemoryStore
from gnomon.core.cron import Cron
from gnomon.core.ids import SHARDS
from gnomon.core.ledger.plan import plan
from gnomon.core.model import Overlap, Run, RunSource, Schedule
from gnomon.core.runs.backfill import BackfillBatch, BatchOutcome, OpenBackfill
from gnomon.errors import FieldError, NotFound, StoreUnavailable, UsageError
from gnomon.ports.runs import RunQuery
from gnomon.services.coordination import AlwaysHeldSingleton
from gnomon.services.maintenance.backfiller import Backfiller
from gnomon.services.operations.backfills import BackfillService, Preview
from gnomon.services.operations.schedules import ScheduleService
from gnomon.testing.clock import CountedIds, Recorder, VirtualClock
from support.task_steps import finish_run

HOURS = [NOON - hours * HOUR for hours in range(5, 0, -1)]


class BackfillFixture:
    """An hourly job, whoever asks for backfills of it, and whoever carries them out."""

    def __init__(self) -> None:
        self.clock = VirtualClock(NOON)
        self.store = MemoryStore(self.clock.now)
        self.events = Recorder()
        self.backfill_service = BackfillService(self.store.backfills, self.store.schedules, self.clock, CountedIds())
        self.schedules = ScheduleService(self.store.schedules, self.store.history, self.clock, CountedIds())
        self.backfiller = self.another()

    def another(self) -> Backfiller:
        return Backfiller(
            self.store.backfills,
            self.store.history,
            self.clock,
            self.events,
            lease=AlwaysHeldSingleton(),
            on_ready=lambda: None,
        )

    async def job(self, **changes: Any) -> Schedule:  # noqa: ANN401 - any field of the spec
        schedule = minutely(trigger=Cron("0 * * * *"), **changes)
        await self.store.schedules.add([schedule], actor="ada", tzdata="")
        return schedule

    async def under_way(self) -> list[Run]:
        runs = [run for run in await self.store.executions.list_runs(RunQuery()) if not run.over]
        return sorted(runs, key=lambda run: run.planned_at)

    async def go(self) -> list[int]:
        """Step until there is nothing to do at once; the planned times of what is then under way."""
        while not await self.backfiller.step():
            pass
        return [run.planned_at for run in await self.under_way()]

    async def ran(self) -> list[int]:
        """All that runs until the end, in order."""
        order: list[int] = []
        while planned := await self.go():
            order += planned
            for run in await self.under_way():
                assert await finish_run(self.store, run, now=self.clock.now())
        return order


@pytest.fixture
def at() -> BackfillFixture:
    return BackfillFixture()


async def test_planned_times_run_one_after_the_other_in_their_order(at: BackfillFixture) -> None:
    await at.job()
    asked = (await at.backfill_service.start("report", HOURS[0], HOURS[-1], actor="ada")).backfill

    assert await at.go() == HOURS[:1]
    assert await at.ran() == HOURS

    reported = await at.backfill_service.get(asked.backfill_id)
    assert (asked.planned, reported.fired, reported.skipped, reported.under_way) == (5, 5, 0, 0)
    assert reported.backfill.ended_at == NOON
    assert "backfill_ended" in at.events.names()


async def test_no_more_are_under_way_than_was_said(at: BackfillFixture) -> None:
    await at.job()
    await at.backfill_service.start("report", HOURS[0], HOURS[-1], actor="ada", max_parallel=3)

    assert await at.go() == HOURS[:3]
    assert await at.go() == HOURS[:3]
    await finish_run(at.store, (await at.under_way())[1], now=NOON)

    assert await at.go() == [HOURS[0], HOURS[2], HOURS[3]]


@pytest.mark.parametrize("overlap", Overlap)
async def test_runs_of_the_past_start_beside_others_and_are_in_flight(at: BackfillFixture, overlap: Overlap) -> None:
    await at.job(overlap=overlap)
    await at.backfill_service.start("report", HOURS[0], HOURS[-1], actor="ada", max_parallel=2)

    await at.go()

    schedule = (await at.schedules.get("report")).schedule
    assert (schedule.active_runs, schedule.queued_runs) == (2, 0)
    assert {run.source for run in await at.under_way()} == {RunSource.BACKFILL}


async def test_a_tick_that_had_a_run_is_not_backfilled(at: BackfillFixture) -> None:
    schedule = await at.job(mark=HOURS[2] - MINUTE)
    terms = await at.store.shards.claim("node", ttl_ms=1000, limit=SHARDS)
    await at.store.ledger.decide([plan(schedule, now=HOURS[2])], now=HOURS[2], terms=terms)
    for run in await at.under_way():
        await finish_run(at.store, run, now=NOON)
    await at.backfill_service.start("report", HOURS[0], HOURS[1], actor="ada")
    await at.ran()

    assert await at.backfill_service.preview("report", HOURS[0], HOURS[2]) == Preview((), 3)
    asked = (await at.backfill_service.start("report", HOURS[0], HOURS[2], actor="ada")).backfill

    assert await at.ran() == []
    reported = await at.backfill_service.get(asked.backfill_id)
    assert (reported.fired, reported.skipped) == (0, 3)


async def test_a_tick_that_had_a_run_is_backfilled_on_request(at: BackfillFixture) -> None:
    await at.job()
    for again in (False, True, True):
        await at.backfill_service.start("report", HOURS[0], HOURS[1], actor="ada", again=again)
        assert await at.ran() == HOURS[:2]


async def test_another_node_continues_a_backfill(at: BackfillFixture) -> None:
    await at.job()
    await at.backfill_service.start("report", HOURS[0], HOURS[-1], actor="ada")
    await at.go()

    at.backfiller = at.another()

    assert await at.ran() == HOURS


async def test_an_edit_does_not_change_what_was_asked_for(at: BackfillFixture) -> None:
    await at.job()
    await at.backfill_service.start("report", HOURS[0], HOURS[-1], actor="ada")
    said = {"schedule_id": "report", "schedule": "30 * * * *", "workflow_id": "report"}
    await at.schedules.upsert(said, actor="eve")

    assert await at.ran() == HOURS


async def test_a_cancelled_backfill_starts_no_more_runs_and_its_active_ones_continue(at: BackfillFixture) -> None:
    await at.job()
    asked = (await at.backfill_service.start("report", HOURS[0], HOURS[-1], actor="ada")).backfill
    await at.go()

    reported = await at.backfill_service.cancel(asked.backfill_id, actor="ada")

    assert (reported.backfill.cancelled, reported.under_way) == (True, 1)
    assert await at.ran() == HOURS[:1]


async def test_with_its_job_a_backfill_is_gone(at: BackfillFixture) -> None:
    await at.job()
    asked = (await at.backfill_service.start("report", HOURS[0], HOURS[-1], actor="ada")).backfill
    await at.schedules.delete("report", actor="ada")

    assert await at.ran() == []

    assert (await at.backfill_service.get(asked.backfill_id)).backfill.cancelled
    assert "backfill_given_up" in at.events.names()


async def test_one_that_cannot_be_carried_out_holds_up_no_other(
    at: BackfillFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await at.job()
    broken = (await at.backfill_service.start("report", HOURS[0], HOURS[0], actor="ada")).backfill
    await at.backfill_service.start("report", HOURS[1], HOURS[1], actor="ada")
    carry_out = at.store.backfills.apply_batch

    async def fails_for_one(lot: BackfillBatch, *, now: int) -> BatchOutcome:
        if lot.backfill.backfill_id == broken.backfill_id:
            raise UsageError("cannot be read here")
        return await carry_out(lot, now=now)

    monkeypatch.setattr(at.store.backfills, "apply_batch", fails_for_one)

    assert await at.go() == HOURS[1:2]
    assert "backfill_broken" in at.events.names()


async def test_a_store_that_is_away_costs_time_and_nothing_else(
    at: BackfillFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await at.job()
    await at.backfill_service.start("report", HOURS[0], HOURS[-1], actor="ada")

    async def away(*, limit: int) -> list[OpenBackfill]:
        raise StoreUnavailable(f"no answer about {limit}")

    with monkeypatch.context() as broken:
        broken.setattr(at.store.backfills, "list_open", away)
        assert await at.backfiller.step() > 0

    assert await at.ran() == HOURS


# ---- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "last", "reason"),
    [
        (NOON - HOUR, NOON + 1, "is in the future"),
        (NOON, NOON - 1, "is after the end"),
        (NOON - HOUR + 1, NOON - 1, "has no planned time between it and the end"),
        (NOON - 100_001 * HOUR, NOON, "a range of 100002 planned times; the maximum is 100000"),
    ],
)
async def test_a_stretch_that_makes_no_sense_is_refused(
    at: BackfillFixture, first: int, last: int, reason: str
) -> None:
    await at.job()

    with pytest.raises(FieldError, match=reason):
        await at.backfill_service.start("report", first, last, actor="ada")

    assert await at.backfill_service.page() == []


async def test_ticks_of_a_pause_that_has_not_ended_are_not_backfilled(at: BackfillFixture) -> None:
    await at.job()
    await at.schedules.pause("report", actor="ada")
    at.clock.advance(2 * HOUR)

    with pytest.raises(FieldError, match="resume the job first"):
        await at.backfill_service.start("report", NOON + HOUR, NOON + 2 * HOUR, actor="ada")
    await at.schedules.resume("report", actor="ada")
    await at.backfill_service.start("report", NOON + HOUR, NOON + 2 * HOUR, actor="ada")

    assert await at.ran() == [NOON + HOUR, NOON + 2 * HOUR]


async def test_a_missing_backfill_is_reported(at: BackfillFixture) -> None:
    with pytest.raises(NotFound):
        await at.backfill_service.start("report", HOURS[0], HOURS[1], actor="ada")
    with pytest.raises(NotFound):
        await at.backfill_service.get("bf_1")


@pytest.mark.parametrize("parallel", [0, 1001])
async def test_a_number_of_runs_that_nobody_can_mean_is_refused(at: BackfillFixture, parallel: int) -> None:
    await at.job()

    with pytest.raises(FieldError, match="max_parallel"):
        await at.backfill_service.start("report", HOURS[0], HOURS[1], actor="ada", max_parallel=parallel)
