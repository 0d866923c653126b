"""The run repairer: one node at a time continues stuck runs, within its limits."""

import pytest

from contracts.store import MINUTE
from gnomon.adapters.memory import MemoryStore
from gnomon.adapters.memory.maintenance import MemoryInvariants
from gnomon.config.sections import ReconcilerSettings
from gnomon.core.invariants import StuckReason
from gnomon.core.model import RunId, RunStatus
from gnomon.errors import StoreUnavailable
from gnomon.ports.maintenance import OpenRunPosition, StuckRunsPage
from gnomon.services.coordination import SingletonLease
from gnomon.services.maintenance.run_repairer import RunRepairer
from gnomon.testing.clock import VirtualClock
from support.execution import ExecutionHarness
from support.row_editing import memory_row_editor

SETTINGS = ReconcilerSettings(poll_ms=30_000, batch=2, max_iterations=2, settled_ms=MINUTE)


class WeakInvariants(MemoryInvariants):
    """A store that is away for a few questions."""

    away = 0
    asked = 0

    async def stuck_runs(self, *, before_at: int, after: OpenRunPosition, limit: int) -> StuckRunsPage:
        self.asked += 1
        if self.away:
            self.away -= 1
            raise StoreUnavailable("away")
        return await super().stuck_runs(before_at=before_at, after=after, limit=limit)


class RepairFixture:
    """A harness, and a run repairer beside it."""

    def __init__(self) -> None:
        self.clock = VirtualClock(1_772_452_800_000)
        self.store = MemoryStore(self.clock.now)
        self.store.invariants = self.weak = WeakInvariants(self.store.state, self.store.rules)
        self.plant = memory_row_editor(self.store)
        self.harness = ExecutionHarness(store=self.store, clock=self.clock)
        self.woken: list[bool] = []
        self.repairer = self.another("a")

    def another(self, holder: str) -> RunRepairer:
        return RunRepairer(
            self.store.invariants,
            self.clock,
            self.harness.events,
            SETTINGS,
            lease=SingletonLease(self.store.singletons, self.clock, "mender", holder, ttl_ms=2 * SETTINGS.poll_ms),
            on_ready=lambda: self.woken.append(True),
        )

    async def broken(self, *names: str) -> None:
        """Runs whose only task is over, though they are not."""
        job = await self.store.schedules.find("default", "report") or await self.harness.job()
        for name in names:
            await self.harness.run(job, name)
            await self.plant("task", "run_id", f"run_{name}", "state", "SUCCEEDED")

    async def open(self) -> list[str]:
        found = [await self.store.executions.find_run(RunId(f"run_{name}")) for name in "abcdef"]
        return [run.run_id for run in found if run is not None and not run.over]


@pytest.mark.req("R-07")
async def test_a_stuck_run_is_repaired_and_that_is_reported_and_counted() -> None:
    fixture = RepairFixture()
    await fixture.broken("a")
    fixture.clock.advance(2 * MINUTE)

    assert await fixture.repairer.step() == 30

    run = await fixture.store.executions.find_run(RunId("run_a"))
    assert run is not None
    assert run.status is RunStatus.COMPLETED
    assert fixture.harness.events.seen == [("run_mended", {"run": "run_a", "ailment": StuckReason.NOT_ENDED})]
    assert (fixture.repairer.repaired[StuckReason.NOT_ENDED], fixture.woken) == (1, [True])


async def test_a_run_that_was_just_made_is_left_alone() -> None:
    fixture = RepairFixture()
    await fixture.broken("a")

    await fixture.repairer.step()

    assert await fixture.open() == ["run_a"]


@pytest.mark.req("R-07")
async def test_a_check_covers_a_page_and_the_next_one_continues_there() -> None:
    fixture = RepairFixture()
    for name in "abcdef":
        await fixture.broken(name)
        fixture.clock.advance(1)
    fixture.clock.advance(2 * MINUTE)

    await fixture.repairer.step()
    assert (fixture.weak.asked, await fixture.open()) == (2, ["run_e", "run_f"])
    await fixture.repairer.step()
    assert await fixture.open() == []


@pytest.mark.req("R-07")
async def test_one_node_mends_until_it_is_silent_for_two_looks() -> None:
    fixture = RepairFixture()
    other = fixture.another("b")
    await fixture.repairer.step()
    await fixture.broken("a")
    fixture.clock.advance(2 * MINUTE - 1 - MINUTE)

    await other.step()
    assert fixture.weak.asked == 1
    fixture.clock.advance(MINUTE)
    await other.step()
    assert await fixture.open() == []


async def test_a_store_that_is_away_is_asked_again_a_few_times() -> None:
    fixture = RepairFixture()
    await fixture.broken("a")
    fixture.clock.advance(2 * MINUTE)
    fixture.weak.away = 3

    assert await fixture.repairer.step() == 30
    assert await fixture.open() == []
    assert fixture.harness.events.names() == ["store_unavailable"] * 3 + ["run_mended"]
