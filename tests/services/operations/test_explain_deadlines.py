"""Deadlines in the answers of `why`: of a task that waits, of one that runs, and of one that was ended."""

import pytest

from contracts.store import NOON
from gnomon.adapters.memory import MemoryStore
from gnomon.core.runs.admission import GateDecision, GateVerdict
from gnomon.testing.clock import VirtualClock
from support.why_scenario import WhyScenario

pytestmark = pytest.mark.req("R-07")

MINUTE = 60_000


@pytest.fixture
def scenario() -> WhyScenario:
    clock = VirtualClock(NOON)
    return WhyScenario(MemoryStore(clock.now), clock)


async def test_a_running_task_says_when_it_is_ended(scenario: WhyScenario) -> None:
    await scenario.job(deadline="10m")
    await scenario.run_until("12:01")
    await scenario.run_until_idle()

    lines = await scenario.reported("12:01")

    assert lines[-1].endswith("If it is not over by 12:11, its deadline, it is ended.")


async def test_a_task_that_waits_for_an_approval_says_when_it_is_ended(scenario: WhyScenario) -> None:
    await scenario.job(schedule=None, dag=[{"step": "pay", "function": "reports.make", "deadline": "10m"}])
    scenario.set_gate_decision(GateDecision(GateVerdict.ASK, "a second person"))
    await scenario.trigger()
    while not await scenario.harness.dispatcher.step():
        pass

    lines = await scenario.reported()

    assert any("waits for an approval: a second person. If it is not over by 12:10" in line for line in lines)


async def test_a_run_that_was_ended_names_its_deadline(scenario: WhyScenario) -> None:
    await scenario.job(deadline="10m")
    scenario.set_worker_functions("other")
    await scenario.run_until("12:01")
    scenario.clock.advance(10 * MINUTE)
    await scenario.harness.deadline_enforcer.step()

    [line, *_] = await scenario.reported("12:01")

    assert "Its run run_12:01 failed at 12:11" in line
    assert "its deadline passed at 2026-03-02T12:11:00.000+00:00" in line
