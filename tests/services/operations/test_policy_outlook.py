"""Plans, simulations and explanations of coming ticks say what the policy in force would hold back."""

import pytest

from contracts.store import NOON
from gnomon.adapters.memory import MemoryStore
from gnomon.adapters.policy_file import parse_policy
from gnomon.core.explain.rulings import COMING_SENTENCES, explain_coming_rulings
from gnomon.core.policy.ruling import PolicyDecision
from gnomon.core.runs.workflow import Step, Workflow
from gnomon.ports.policy import Policies
from gnomon.services.operations.policy_outlook import ExpectedRun, PolicyOutlook
from gnomon.testing.clock import VirtualClock

HOUR = 3_600_000
NIGHT = """
default_decision: allow
rules:
  - id: night
    match: { topics: [tidy], window: { cron: "0 22 * * *", lasts: 8h } }
    decision: deny
    reason: nobody watches
"""


async def sentences(body: str, *steps: Step, at: int = NOON, by_kernel: bool = False) -> list[str]:
    policies: Policies = MemoryStore(VirtualClock(NOON).now).policies
    if body:
        await policies.add(body, author="ada", now=NOON)
    outlook = PolicyOutlook(policies, parse=parse_policy, by_kernel=by_kernel)
    workflow = Workflow(workflow_id="tidy", version=1, steps=steps or (Step(name="main", function="tidy"),))
    [found] = await outlook.of([ExpectedRun(tenant="default", job="tidy", workflow=workflow, at=at)])
    return list(explain_coming_rulings(found.steps, found.version, alone=workflow.is_single_step))


@pytest.mark.req("R-02")
async def test_each_decision_that_holds_a_coming_run_back_has_a_sentence() -> None:
    assert set(COMING_SENTENCES) == set(PolicyDecision) - {PolicyDecision.ALLOW, PolicyDecision.ALLOW_WITH_CONSTRAINTS}
    assert await sentences("rules: [{id: a, decision: deny, reason: never}]") == [
        "Rule a of policy 1 would deny it: never."
    ]
    assert await sentences("rules: [{id: a, decision: throttle}]") == ["Rule a of policy 1 would put it off."]
    assert await sentences("default_decision: deny") == [
        "The default decision of policy 1 would deny it: no rule allows it."
    ]


async def test_there_is_nothing_to_say_about_a_run_that_is_allowed_or_without_a_policy() -> None:
    assert await sentences("default_decision: allow") == []
    assert await sentences("") == []
    assert await sentences("default_decision: deny", by_kernel=True) == []


async def test_a_window_counts_at_the_time_of_the_coming_run() -> None:
    assert await sentences(NIGHT, at=NOON) == []
    assert await sentences(NIGHT, at=NOON + 11 * HOUR) == ["Rule night of policy 1 would deny it: nobody watches."]


async def test_a_step_whose_input_only_a_run_has_is_not_guessed() -> None:
    rules = (
        "default_decision: allow\nrules: [{id: big, match: {topics: [pay]}, when: input.amount > 3, decision: deny}]"
    )
    steps = (
        Step(name="read", function="read"),
        Step(name="pay", function="pay", input={"amount": "${steps.read.output.amount}"}, depends_on=("read",)),
    )

    assert await sentences(rules, *steps) == [
        "The input of step pay decides by which rule of policy 1 it may run: big and default."
    ]
