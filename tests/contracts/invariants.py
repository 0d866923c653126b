"""The contract of stores for invariant checks: one suite, inherited by the tests of each adapter."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from contracts.store import HOUR, MINUTE, NOON, TTL, minutely
from gnomon.core.ids import SHARDS
from gnomon.core.instants import instant_of
from gnomon.core.model import Overlap, Run, RunId, RunSource, Schedule
from gnomon.core.runs.launch import LaunchRequest, new_requested_run
from gnomon.core.triggers import At, OnDemand
from gnomon.ports.store import Store
from support.row_editing import EditRow
from support.task_steps import LEASE, take_task

Advance = Callable[[int], None]


class InvariantContract:
    """Tests for any store. `store` is a fresh one, `advance` moves the clock that decides when leases expire."""

    async def watched(self, store: Store, name: str = "watched", **changes: Any) -> Schedule:  # noqa: ANN401
        made = minutely(name, **changes)
        await store.schedules.add([made], actor="ada", tzdata="")
        return made

    async def begun_run(self, store: Store, schedule: Schedule, name: str) -> Run:
        run = new_requested_run(RunId(f"run_{name}"), schedule, source=RunSource.MANUAL, now=NOON)
        await store.runs.launch([LaunchRequest(run=run, first_steps=("main",))], now=NOON)
        return run

    # ---- next fires --------------------------------------------------------------------------

    async def test_a_schedule_without_a_next_fire_is_found_and_given_one(self, store: Store, plant: EditRow) -> None:
        schedule = await self.watched(store)
        assert await store.invariants.schedules_without_next_fire(after="", limit=10) == []
        await plant("schedule", "uid", schedule.uid, "next_fire_at", None)

        [idle] = await store.invariants.schedules_without_next_fire(after="", limit=10)
        assert idle == replace(schedule, next_fire_at=None)
        assert await store.invariants.set_next_fire(idle, NOON + MINUTE)
        assert await store.schedules.find("default", "watched") == schedule
        assert not await store.invariants.set_next_fire(idle, NOON + HOUR)

    async def test_a_schedule_that_was_changed_meanwhile_is_left_alone(self, store: Store, plant: EditRow) -> None:
        schedule = await self.watched(store)
        await plant("schedule", "uid", schedule.uid, "next_fire_at", None)
        [idle] = await store.invariants.schedules_without_next_fire(after="", limit=10)
        await plant("schedule", "uid", schedule.uid, "mark_at", NOON + HOUR)

        assert not await store.invariants.set_next_fire(idle, NOON + MINUTE)

    async def test_those_that_are_paused_or_have_no_times_are_not_idle(self, store: Store) -> None:
        paused = replace(minutely("paused"), paused_at=NOON, next_fire_at=None)
        demand = replace(minutely("demand", trigger=OnDemand()), next_fire_at=None)
        once = replace(minutely("once", trigger=At(instant_of(NOON - HOUR))), next_fire_at=None)
        await store.schedules.add([paused, demand, once], actor="ada", tzdata="")

        assert [one.schedule_id for one in await store.invariants.schedules_without_next_fire(after="", limit=10)] == [
            "once"
        ]
        assert await store.invariants.schedules_without_next_fire(after=once.uid, limit=10) == []

    # ---- owners ------------------------------------------------------------------------------

    async def test_an_attempt_whose_lease_ended_long_ago_is_an_orphan(self, store: Store, advance: Advance) -> None:
        schedule = await self.watched(store)
        taken = await take_task(store, "w1", await self.begun_run(store, schedule, "a"), now=NOON)
        advance(LEASE + MINUTE)

        assert await store.invariants.orphaned_attempts(grace_ms=2 * MINUTE, limit=10) == []
        [orphan] = await store.invariants.orphaned_attempts(grace_ms=MINUTE // 2, limit=10)
        assert (orphan.task_id, orphan.worker) == (taken.task.task_id, "w1")

    # ---- marks -------------------------------------------------------------------------------

    async def test_the_schedule_that_is_due_first_is_shown_and_whether_anyone_decides_it(
        self, store: Store, advance: Advance
    ) -> None:
        assert await store.invariants.oldest_due() is None
        await self.watched(store, mark=NOON + HOUR)
        first = await self.watched(store, "first")

        overdue = await store.invariants.oldest_due()
        assert overdue is not None
        assert (overdue.uid, overdue.next_fire_at, overdue.led) == (first.uid, NOON + MINUTE, False)
        await store.shards.claim("node", ttl_ms=TTL, limit=SHARDS)
        overdue = await store.invariants.oldest_due()
        assert overdue is not None
        assert overdue.led
        advance(TTL + 1000)
        overdue = await store.invariants.oldest_due()
        assert overdue is not None
        assert not overdue.led

    # ---- counts ------------------------------------------------------------------------------

    @pytest.mark.guarantee("S21")
    async def test_runs_are_counted_as_they_are(self, store: Store) -> None:
        schedule = await self.watched(store, overlap=Overlap.QUEUE)
        for name in "abc":
            await self.begun_run(store, schedule, name)

        [counted] = await store.invariants.counted(after="", limit=10)
        assert (counted.active_runs, counted.queued_runs, counted.active, counted.queued) == (1, 2, 1, 2)
        assert not counted.mismatched
        assert await store.invariants.recount_runs([schedule.uid], now=NOON) == []

    @pytest.mark.guarantee("S21")
    async def test_a_count_that_is_wrong_is_put_right(self, store: Store, plant: EditRow) -> None:
        schedule = await self.watched(store, overlap=Overlap.QUEUE)
        for name in "ab":
            await self.begun_run(store, schedule, name)
        await plant("schedule", "uid", schedule.uid, "active_runs", 7)

        [counted] = await store.invariants.counted(after="", limit=10)
        assert counted.mismatched
        assert await store.invariants.recount_runs([schedule.uid], now=NOON) == [schedule.uid]
        found = await store.schedules.find("default", "watched")
        assert found is not None
        assert (found.active_runs, found.queued_runs) == (1, 1)

    @pytest.mark.guarantee("S21")
    async def test_a_run_that_waited_for_one_that_is_not_there_has_its_turn(self, store: Store, plant: EditRow) -> None:
        schedule = await self.watched(store, overlap=Overlap.QUEUE)
        await self.begun_run(store, schedule, "a")
        await self.begun_run(store, schedule, "b")
        await plant("task", "run_id", "run_a", None, None)
        await plant("run", "run_id", "run_a", None, None)

        assert await store.invariants.recount_runs([schedule.uid], now=NOON) == [schedule.uid]
        [counted] = await store.invariants.counted(after="", limit=10)
        assert (counted.active_runs, counted.queued_runs, counted.mismatched) == (1, 0, False)
        assert [one.run.run_id for one in await store.tasks.waiting(NOON, limit=10)] == ["run_b"]

    async def test_counts_come_in_pages_by_uid(self, store: Store) -> None:
        await self.watched(store, "b")
        first = await self.watched(store, "a")

        assert [one.schedule_id for one in await store.invariants.counted(after="", limit=1)] == ["a"]
        assert [one.schedule_id for one in await store.invariants.counted(after=first.uid, limit=1)] == ["b"]
