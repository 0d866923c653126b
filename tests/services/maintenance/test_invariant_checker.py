"""The invariant checker: violations are found, repaired where that is safe, and announced."""

from typing import Any

import pytest
from msgspec.structs import replace

from contracts.store import MINUTE, NOON, TTL, minutely
from gnomon.adapters.memory import MemoryStore
from gnomon.config.sections import WatchdogSettings
from gnomon.core.cron import Cron
from gnomon.core.ids import SHARDS
from gnomon.core.invariants import Invariant
from gnomon.core.model import RunId, RunSource, Schedule
from gnomon.core.runs.launch import LaunchRequest, new_requested_run
from gnomon.services.coordination import SingletonLease
from gnomon.services.maintenance.invariant_checker import InvariantChecker
from gnomon.testing.clock import Recorder, VirtualClock
from support.row_editing import memory_row_editor
from support.task_steps import take_task

SETTINGS = WatchdogSettings(poll_ms=30_000, batch=2, late_ms=30_000, orphan_ms=MINUTE)


def lease(store: MemoryStore, clock: VirtualClock, holder: str) -> SingletonLease:
    return SingletonLease(store.singletons, clock, "warden", holder, ttl_ms=2 * SETTINGS.poll_ms)


class InvariantFixture:
    """An invariant checker on a store that can be tampered with."""

    def __init__(self) -> None:
        self.clock = VirtualClock(NOON)
        self.store = MemoryStore(self.clock.now)
        self.plant = memory_row_editor(self.store)
        self.events = Recorder()
        self.checker = InvariantChecker(
            self.store.invariants, self.clock, self.events, SETTINGS, lease=lease(self.store, self.clock, "a")
        )

    async def schedule(self, name: str = "report", **changes: Any) -> Schedule:  # noqa: ANN401
        made = minutely(name, **changes)
        await self.store.schedules.add([made], actor="ada", tzdata="")
        return made


async def test_all_is_well_while_nothing_is_wrong() -> None:
    fixture = InvariantFixture()
    await fixture.schedule()

    assert await fixture.checker.step() == 30
    assert fixture.events.seen == []
    assert sum(fixture.checker.failures.values()) == 0


async def test_a_schedule_that_is_neither_paused_nor_finished_gets_its_next_fire() -> None:
    fixture = InvariantFixture()
    lost, _ = await fixture.schedule(), await fixture.schedule("over", end_at=NOON - MINUTE)
    await fixture.plant("schedule", "uid", lost.uid, "next_fire_at", None)

    await fixture.checker.step()

    assert await fixture.store.schedules.find("default", "report") == lost
    facts = {"vital": Invariant.NEXT_FIRE, "schedule": "report", "next_fire_at": NOON + MINUTE}
    assert fixture.events.seen == [("vital_repaired", facts)]
    assert (fixture.checker.failures[Invariant.NEXT_FIRE], fixture.checker.repairs[Invariant.NEXT_FIRE]) == (1, 1)
    await fixture.checker.step()
    assert len(fixture.events.seen) == 1


async def test_many_schedules_are_looked_at_some_in_each_look() -> None:
    fixture = InvariantFixture()
    for name in "abcde":
        made = await fixture.schedule(name)
        await fixture.plant("schedule", "uid", made.uid, "active_runs", 3)

    await fixture.checker.step()
    assert fixture.checker.repairs[Invariant.COUNTS] == 2
    await fixture.checker.step()
    await fixture.checker.step()
    assert fixture.checker.repairs[Invariant.COUNTS] == 5
    await fixture.checker.step()
    assert fixture.checker.repairs[Invariant.COUNTS] == 5


@pytest.mark.guarantee("S21")
async def test_counts_that_are_wrong_are_put_right_and_shown() -> None:
    fixture = InvariantFixture()
    made = await fixture.schedule()
    await fixture.plant("schedule", "uid", made.uid, "queued_runs", 1)

    await fixture.checker.step()

    facts = {"vital": Invariant.COUNTS, "schedule": "report", "counted": (0, 1), "found": (0, 0)}
    assert fixture.events.seen == [("vital_repaired", facts)]


async def test_an_attempt_that_nobody_ends_is_announced_once_and_so_is_its_end() -> None:
    fixture = InvariantFixture()
    made = replace(await fixture.schedule(trigger=Cron("0 0 1 1 *")))
    run = new_requested_run(RunId("run_a"), made, source=RunSource.MANUAL, now=NOON)
    await fixture.store.runs.launch([LaunchRequest(run=run, first_steps=("main",))], now=NOON)
    taken = await take_task(fixture.store, "w1", run, now=NOON)
    fixture.clock.advance(5 * MINUTE)

    await fixture.checker.step()
    await fixture.checker.step()

    facts = {"vital": Invariant.OWNERS, "tasks": [taken.task.task_id], "workers": ["w1"]}
    assert fixture.events.seen == [("vital_failed", facts)]
    assert fixture.checker.failing == {Invariant.OWNERS}
    await fixture.store.attempts.renew("w1", [(taken.task.task_id, 1)], lease_ms=MINUTE)
    await fixture.checker.step()
    assert fixture.events.seen[1:] == [("vital_recovered", {"vital": Invariant.OWNERS})]
    assert fixture.checker.failing == set()


@pytest.mark.guarantee("S21")
@pytest.mark.parametrize("led", [True, False])
async def test_a_mark_that_does_not_move_is_announced_at_the_second_look(*, led: bool) -> None:
    fixture = InvariantFixture()
    await fixture.schedule()
    fixture.clock.advance(MINUTE + 30_001)
    if led:
        await fixture.store.shards.claim("node", ttl_ms=TTL, limit=SHARDS)

    await fixture.checker.step()
    assert fixture.events.seen == []
    await fixture.checker.step()

    facts = {"vital": Invariant.MARKS, "schedule": "report", "due_at": NOON + MINUTE, "led": led}
    assert fixture.events.seen == [("vital_failed", facts)]


async def test_a_tick_that_has_just_come_due_is_no_reason_for_alarm() -> None:
    fixture = InvariantFixture()
    await fixture.schedule()
    fixture.clock.advance(MINUTE + 30_000)

    await fixture.checker.step()
    await fixture.checker.step()

    assert fixture.events.seen == []


async def test_one_node_checks_invariants_until_it_is_silent() -> None:
    fixture = InvariantFixture()
    other = InvariantChecker(
        fixture.store.invariants,
        fixture.clock,
        fixture.events,
        SETTINGS,
        lease=lease(fixture.store, fixture.clock, "b"),
    )
    await fixture.checker.step()
    made = await fixture.schedule()
    await fixture.plant("schedule", "uid", made.uid, "active_runs", 3)

    await other.step()
    assert fixture.events.seen == []
    fixture.clock.advance(MINUTE)
    await other.step()
    assert fixture.events.names() == ["vital_repaired"]
