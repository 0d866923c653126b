"""Tasks that name a breaker wait for it together, without attempts, in dispatcher and worker."""

import pytest

from gnomon.core.breakers import BreakerLimits, StepBreaker
from gnomon.core.model import Result, RunStatus
from gnomon.core.named_breakers import BreakerKey, BreakerUse, RequestOutcome
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.core.runs.workflow import RetryPolicy, Step, Workflow
from gnomon.services.operations.explain import Explainer
from support.execution import ExecutionHarness
from support.task_steps import workflow

pytestmark = pytest.mark.req("R-12")

STRIPE = StepBreaker(name="stripe", limits=BreakerLimits(failures=2, open_ms=60_000, probes=1, successes=1))
RETRY = RetryPolicy(max_attempts=3, initial_delay_ms=10, max_delay_ms=10, jitter=0)


async def failing(harness: ExecutionHarness) -> None:
    """Fail what has started, until nothing starts any more."""
    await harness.run_until_idle()
    while harness.runner.started:
        harness.runner.end_all(Result.FAILED, error="502")
        await harness.run_until_idle()
        harness.clock.advance(10)
        await harness.run_until_idle()


async def test_a_retry_waits_for_the_breaker_and_has_all_its_attempts_left() -> None:
    harness = ExecutionHarness()
    job = await harness.job(workflow(breaker=STRIPE, retry=RETRY))
    run = await harness.run(job)

    await failing(harness)

    [task] = await harness.store.history.tasks([run])
    assert (task.wait_reason, task.attempts) == (WaitReason.BREAKER, 2)
    harness.clock.advance(60_000)
    await harness.run_until_idle()
    harness.runner.end_all()
    await harness.run_until_idle()
    assert (await harness.now(run)).status is RunStatus.COMPLETED


@pytest.mark.req("R-04")
async def test_however_often_a_task_finds_its_breaker_open_it_does_not_fail() -> None:
    harness = ExecutionHarness()
    job = await harness.job(workflow(breaker=STRIPE))
    for name in ("a", "b"):
        await harness.run(job, name)
        await failing(harness)
    waiting = await harness.run(job, "c")
    breakers, key = harness.store.breakers, BreakerKey("default", "stripe")
    other = BreakerUse(key=key, limits=STRIPE.limits, user="other", request="elsewhere/1")

    for _ in range(60):
        await harness.run_until_idle()
        harness.clock.advance(60_000)
        assert (await breakers.request(other, now=harness.clock.now())).granted
        await breakers.record(other, RequestOutcome.FAILED, now=harness.clock.now())
    await harness.run_until_idle()

    [task] = await harness.store.history.tasks([waiting])
    assert (task.state, task.wait_reason) == (TaskState.PENDING, WaitReason.BREAKER)
    assert (task.routings, task.attempts, task.fence) == (0, 0, 0)
    assert task.available_at == harness.clock.now() + 60_000


async def test_jobs_that_name_the_same_breaker_wait_together_and_one_of_them_tries() -> None:
    harness = ExecutionHarness()
    pay = await harness.job(workflow("pay", breaker=STRIPE), workflow_id="pay", name="pay")
    refund = await harness.job(workflow("refund", breaker=STRIPE), workflow_id="refund", name="refund")
    for name in ("a", "b"):
        await harness.run(pay, name)
        await failing(harness)
    waiting = [await harness.run(refund, f"waiting-{number}") for number in range(3)]
    await harness.run_until_idle()
    assert not harness.runner.started

    harness.clock.advance(60_000)
    await harness.run_until_idle()
    assert len(harness.runner.started) == 1
    harness.runner.end_all()
    await harness.run_until_idle()
    harness.runner.end_all()
    await harness.run_until_idle()

    assert {(await harness.now(run)).status for run in waiting} == {RunStatus.COMPLETED}


async def test_steps_and_items_of_a_workflow_have_the_breaker_of_their_step() -> None:
    harness = ExecutionHarness()
    steps = (
        Step(name="list", function="reports.make"),
        Step(name="each", function="reports.make", depends_on=("list",), foreach=[1, 2, 3], breaker=STRIPE),
    )
    job = await harness.job(Workflow(workflow_id="report", version=1, steps=steps))
    run = await harness.run(job, first_steps=("list",))
    await harness.run_until_idle()
    harness.runner.end_all()
    await harness.run_until_idle()
    first, second, third = harness.runner.started
    for held in (first, second):
        harness.runner.end(held, Result.FAILED)
    harness.runner.end(third, Result.SNOOZED, snooze_ms=10)
    await harness.run_until_idle()
    harness.clock.advance(10)
    await harness.run_until_idle()

    waits = [task.wait_reason for task in await harness.store.history.tasks([run]) if task.task_id == third[0]]
    assert waits == [WaitReason.BREAKER]


async def test_why_says_that_a_task_waits_for_its_breaker() -> None:
    harness = ExecutionHarness()
    job = await harness.job(workflow(breaker=STRIPE), name="report")
    for name in ("a", "b"):
        await harness.run(job, name)
        await failing(harness)
    await harness.run(job, "c")
    await harness.run_until_idle()

    answer = await Explainer(harness.store, harness.clock).last("report", 1)

    [sentence] = answer.explanations[0].waits
    assert sentence.startswith("It waits: the breaker stripe is open after 2 failures in a row. It will be asked again")
