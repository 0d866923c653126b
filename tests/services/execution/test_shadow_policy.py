"""A shadow of the policy judges beside the gate: it counts differences, and neither delays nor changes a task."""

from collections.abc import Sequence

import pytest

from contracts.store import NOON
from gnomon.adapters.memory import MemoryStore
from gnomon.adapters.policy_file import parse_policy
from gnomon.core.policy.compiled import CompiledPolicy
from gnomon.core.policy.shadow import PolicyShadow, ShadowDifference
from gnomon.core.policy.step_rules import StepRulesCache
from gnomon.core.runs.states import TaskState
from gnomon.errors import StoreUnavailable
from gnomon.ports.execution import Gate
from gnomon.services.execution.shadow_policy import ShadowedGate, ShadowPolicy
from gnomon.testing.clock import VirtualClock
from support.policy_harness import THROTTLE_MS, PolicyHarness, command, function

EVERYTHING = "rules: [{id: rest, decision: allow}]"
BY_AMOUNT = "rules: [{id: big, when: input.amount > 9, decision: deny}, {id: rest, decision: allow}]"


def compiled(shadow: PolicyShadow) -> CompiledPolicy:
    return CompiledPolicy(parse_policy(shadow.body), 0, throttle_ms=0)


class ShadowHarness(PolicyHarness):
    """A dispatcher whose gate is shadowed."""

    def outer_gate(self, gate: Gate, store: MemoryStore, clock: VirtualClock) -> Gate:
        self.rules: type[StepRulesCache] = StepRulesCache
        self.shadow = ShadowPolicy(
            store.policy_shadows, clock, self.policy_events, compile_shadow=lambda one: self.rules(compiled(one))
        )
        return ShadowedGate(gate, self.shadow)

    async def start(self, body: str) -> None:
        await self.store.policy_shadows.start(body, author="ada", now=self.clock.now())
        await self.shadow.step()

    async def counted(self) -> tuple[PolicyShadow, Sequence[ShadowDifference]]:
        await self.shadow.step()
        found = await self.store.policy_shadows.newest()
        assert found is not None
        return found, await self.store.policy_shadows.differences(limit=10)


@pytest.mark.req("R-02")
async def test_rulings_that_differ_from_those_in_force_are_counted_and_change_nothing() -> None:
    harness = ShadowHarness()
    await harness.apply(EVERYTHING)
    await harness.start(BY_AMOUNT)
    tasks = [(await harness.tried(function(), given))[0] for given in (b'{"amount": 5}', b'{"amount": 50}')]

    shadow, [one] = await harness.counted()

    assert [task.state for task in tasks] == [TaskState.RUNNING] * 2
    assert (shadow.same, shadow.different, shadow.not_judged) == (1, 1, 0)
    assert (one.job, one.before, one.before_rule, one.after, one.after_rule) == ("job2", "allow", "rest", "deny", "big")
    assert (one.count, one.first_at, one.run_id) == (1, NOON, tasks[1].run_id)
    judged = [facts for name, facts in harness.policy_events.seen if name == "policy_shadow_judged"]
    assert judged == [{"same": 1, "different": 1, "not_judged": 0}]


async def test_a_shadow_works_before_there_is_a_policy() -> None:
    harness = ShadowHarness()
    await harness.start("default_decision: deny")
    task, rulings = await harness.tried(function())

    _, [one] = await harness.counted()

    assert (task.state, rulings) == (TaskState.RUNNING, [])
    assert (one.before, one.before_rule, one.after) == ("allow", "", "deny")


async def test_a_task_that_is_throttled_again_and_again_counts_once() -> None:
    harness = ShadowHarness()
    await harness.apply("rules: [{id: slow, decision: throttle}]")
    await harness.start(EVERYTHING)
    await harness.tried(function())
    for _ in range(3):
        harness.clock.advance(THROTTLE_MS)
        await harness.run_until_idle()

    shadow, _ = await harness.counted()

    assert (shadow.same, shadow.different) == (0, 1)


async def test_a_command_that_its_own_policy_refuses_is_not_judged() -> None:
    harness = ShadowHarness()
    await harness.start("default_decision: deny")
    await harness.tried(command("rm -rf /"))

    shadow, _ = await harness.counted()

    assert (shadow.same, shadow.different, shadow.not_judged) == (0, 0, 0)


async def test_errors_of_the_shadow_cost_nothing_but_its_own_judgement() -> None:
    class Broken(StepRulesCache):
        def of(self, *_: object) -> object:  # type: ignore[override]
            raise RuntimeError("planted")

    harness = ShadowHarness()
    harness.rules = Broken
    await harness.start(EVERYTHING)
    task, _ = await harness.tried(function())

    shadow, _ = await harness.counted()

    assert task.state is TaskState.RUNNING
    assert (shadow.same, shadow.not_judged) == (0, 1)


async def test_counts_are_kept_while_the_store_is_away() -> None:
    harness = ShadowHarness()
    await harness.start(EVERYTHING)
    await harness.tried(function())
    shadows = harness.store.policy_shadows
    working, away = shadows.count, StoreUnavailable("planted")

    async def fails(*_: object) -> bool:
        raise away

    shadows.count = fails  # type: ignore[method-assign, assignment]
    await harness.shadow.step()
    shadows.count = working  # type: ignore[method-assign]
    shadow, _ = await harness.counted()

    assert shadow.same == 1


async def test_a_shadow_that_was_stopped_is_asked_no_more() -> None:
    harness = ShadowHarness()
    await harness.start(EVERYTHING)
    await harness.store.policy_shadows.stop(actor="ada", now=NOON)
    await harness.tried(function())
    await harness.shadow.step()

    assert not harness.shadow.running
    shadow, _ = await harness.counted()
    assert shadow.same == 0


async def test_more_tasks_than_can_be_judged_are_counted_as_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnomon.services.execution.shadow_policy._MOST_NOTED", 2)
    harness = ShadowHarness()
    await harness.start(EVERYTHING)
    for _ in range(5):
        await harness.tried(function())

    shadow, _ = await harness.counted()

    assert (shadow.same, shadow.not_judged) == (2, 3)


async def test_a_file_that_cannot_be_read_is_announced_and_judges_nothing() -> None:
    harness = ShadowHarness()
    await harness.start("rules: 3")
    task, _ = await harness.tried(function())

    assert task.state is TaskState.RUNNING
    assert "policy_shadow_unreadable" in harness.policy_events.names()
