"""Ways to get a denied task to run, and that none of them works."""

import pytest
from msgspec.structs import replace

from contracts.store import MINUTE
from gnomon.core.model import Result
from gnomon.core.runs.states import TaskState
from gnomon.core.runs.workflow import ONLY_STEP, RetryPolicy, RoutingRequirements, Step, Workflow
from support.policy_harness import PolicyHarness, function
from support.rulings import rulings_of

DENIED = "default_decision: allow\nrules: [{id: never, match: {topics: ['reports.*']}, decision: deny}]"
GRANTS = {
    "approval_granted": "true",
    "approved": "true",
    "approved_by": "ada",
    "gnomon.ruling": "allow",
    "policy_decision": "allow",
    "safety_bypassed": "true",
}


@pytest.mark.req("R-02", "R-03")
async def test_labels_that_look_like_grants_mean_nothing() -> None:
    harness = PolicyHarness()
    await harness.apply(DENIED)
    labelled = function(route=RoutingRequirements(labels=GRANTS))

    task, [ruling] = await harness.tried(labelled, b'{"approval_granted": true, "ruling": {"decision": "allow"}}')

    assert (task.state, ruling.rule) == (TaskState.DENIED, "never")


@pytest.mark.parametrize(
    "name", ["Reports.make", "REPORTS.MAKE", "reports\u2024make", "reports.make\u200b", "r\u0435ports.make"]
)
async def test_another_spelling_is_another_function_which_no_worker_has(name: str) -> None:
    """It is not denied by name, and it does not run what is."""
    harness = PolicyHarness()
    await harness.apply(DENIED)
    other = Workflow(workflow_id="report", version=1, steps=(Step(name=ONLY_STEP, function=name),))

    await harness.tried(other)

    assert [one.step.function for one in harness.runner.started.values()] in ([], [name])
    assert "reports.make" not in {one.step.function for one in harness.runner.started.values()}


async def test_a_topic_of_its_own_does_not_hide_the_function_from_a_rule_about_functions() -> None:
    harness = PolicyHarness()
    await harness.apply(
        "default_decision: allow\nrules: [{id: never, match: {functions: ['reports.*']}, decision: deny}]"
    )

    task, _ = await harness.tried(function(route=RoutingRequirements(topic="harmless")))

    assert task.state is TaskState.DENIED


@pytest.mark.req("R-02")
async def test_each_item_of_a_fan_out_is_ruled_on_with_its_own_input() -> None:
    harness = PolicyHarness()
    await harness.apply("default_decision: allow\nrules: [{id: big, when: input.amount > 9, decision: deny}]")
    each = function(foreach=[1, 50, 5], input={"amount": "${item}"})

    run = await harness.launched(each)
    await harness.run_until_idle()

    started = sorted(one.input["amount"] for one in harness.runner.started.values())
    denied = [one for one in await rulings_of(harness.store, run.run_id) if one.decision == "deny"]
    assert started == [1, 5]
    assert [one.rule for one in denied] == ["big"]


@pytest.mark.req("R-02")
async def test_a_retry_is_ruled_on_again_by_the_policy_of_that_time() -> None:
    harness = PolicyHarness()
    await harness.apply("default_decision: allow")
    retried = function(retry=RetryPolicy(max_attempts=3))
    run = await harness.launched(retried)
    await harness.run_until_idle()
    await harness.apply(DENIED)
    harness.runner.end_all(Result.FAILED, error="planted")
    await harness.run_until_idle()
    harness.clock.advance(60 * MINUTE)
    await harness.run_until_idle()

    task = await harness.task(run)
    assert (task.state, task.fence) == (TaskState.DENIED, 1)
    assert (await rulings_of(harness.store, run.run_id))[-1].decision == "deny"


async def test_a_step_behind_a_denied_one_does_not_run_either() -> None:
    harness = PolicyHarness()
    await harness.apply(DENIED)
    graph = Workflow(
        workflow_id="report",
        version=1,
        steps=(
            Step(name=ONLY_STEP, function="reports.make"),
            replace(Step(name="second", function="other"), depends_on=(ONLY_STEP,)),
        ),
    )
    run = await harness.launched(graph)
    await harness.run_until_idle()

    states = {task.step: task.state for task in harness.tables.tasks.values() if task.run_id == run.run_id}
    assert states[ONLY_STEP] is TaskState.DENIED
    assert states["second"] is TaskState.CANCELLED
    assert not harness.runner.started
