"""Budgets of the policy, from the file to the task that waits for the next window."""

import pytest
from msgspec.structs import replace

from contracts.store import HOUR, NOON
from gnomon.core.announcements.model import AnnounceMoment, AnnounceRule
from gnomon.core.approvals.model import Vote, VoteKind
from gnomon.core.model import Result, RunStatus
from gnomon.core.runs.states import WaitReason
from gnomon.core.runs.workflow import RetryPolicy
from gnomon.services.operations.explain import Explainer
from support.policy_harness import PolicyHarness, command, function

HOURLY = """
default_decision: allow
budgets:
  - {id: hourly, limit: 2, per: 1h, by: [job], match: {functions: [reports.make]}%s}
"""


@pytest.mark.req("R-02", "R-04")
async def test_tasks_beyond_a_budget_wait_for_its_next_window_and_retries_count() -> None:
    harness = PolicyHarness()
    await harness.apply(HOURLY % "")
    job = await harness.job(function(retry=RetryPolicy(max_attempts=3, initial_delay_ms=10, jitter=0)))
    run = await harness.run(job)
    await harness.run_until_idle()
    for _ in range(2):
        harness.runner.end_all(Result.FAILED)
        await harness.run_until_idle()
        harness.clock.advance(1000)
        await harness.run_until_idle()

    task = await harness.task(run)
    assert (task.state, task.wait_reason, task.attempts, task.routings) == ("PENDING", WaitReason.POLICY, 2, 0)
    assert task.note == "budget hourly of policy 1 puts it off (2 tasks per 1h are spent or reserved (job report))"
    assert task.available_at == NOON + HOUR
    harness.clock.advance(HOUR)
    await harness.run_until_idle()
    harness.runner.end_all()
    await harness.run_until_idle()
    assert (await harness.now(run)).status is RunStatus.COMPLETED


async def test_a_denial_by_a_budget_ends_the_task_with_a_dead_letter() -> None:
    harness = PolicyHarness()
    await harness.apply(HOURLY % ", over: deny")
    job = await harness.job(function())
    runs = [await harness.run(job, str(number)) for number in range(3)]
    await harness.run_until_idle()

    states = [(await harness.task(run)).state for run in runs]
    [letter] = await harness.store.dead_letters.page("default")
    assert sorted(states) == ["DENIED", "RUNNING", "RUNNING"]
    assert letter.reason == "safety_denied"


@pytest.mark.req("R-03")
async def test_people_let_a_task_exceed_a_budget_and_why_says_so() -> None:
    harness = PolicyHarness()
    await harness.apply(HOURLY % ", over: require_approval, approval: {quorum: 2, self: true}")
    announced = (AnnounceRule(channel="ops", on=(AnnounceMoment.APPROVAL,)),)
    job = await harness.job(replace(function(), announce=announced))
    runs = [await harness.run(job, str(number)) for number in range(3)]
    await harness.run_until_idle()
    assert [one.moment for one in harness.tables.announcements.values()] == ["approval"]
    [waits] = [run for run in runs if (await harness.task(run)).state == "APPROVAL_REQUIRED"]
    explainer = Explainer(harness.store, harness.clock)
    asked = " ".join(one.sentence for one in (await explainer.last(job.schedule_id, 3)).explanations)
    for voter in ("bob", "eve"):
        [approval] = await harness.store.approvals.of_task((await harness.task(waits)).task_id)
        vote = Vote(voter=voter, kind=VoteKind.APPROVE, at=harness.clock.now())
        await harness.store.approvals.vote("default", approval.approval_id, vote, digest=approval.digest)
    await harness.run_until_idle()

    assert "Budget hourly of policy 1 has asked for an approval of it since 12:00" in asked
    assert (await harness.task(waits)).state == "RUNNING"
    answer = " ".join(one.sentence for one in (await explainer.last(job.schedule_id, 3)).explanations)
    assert "approved by bob and eve, beyond budget hourly" in answer


async def test_a_retry_of_an_approved_task_is_not_asked_about_again() -> None:
    harness = PolicyHarness()
    await harness.apply(HOURLY % ", over: require_approval")
    job = await harness.job(function(retry=RetryPolicy(max_attempts=5, initial_delay_ms=10, jitter=0)))
    run = await harness.run(job)
    states = []
    for _ in range(5):
        await harness.run_until_idle()
        task = await harness.task(run)
        states.append(task.state)
        if task.state == "APPROVAL_REQUIRED":
            [approval] = await harness.store.approvals.of_task(task.task_id)
            vote = Vote(voter="bob", kind=VoteKind.APPROVE, at=harness.clock.now())
            await harness.store.approvals.vote("default", approval.approval_id, vote, digest=approval.digest)
        harness.runner.end_all(Result.FAILED)
        await harness.run_until_idle()
        harness.clock.advance(1_000)

    assert states == ["RUNNING", "RUNNING", "APPROVAL_REQUIRED", "RUNNING", "RUNNING"]


async def test_a_task_that_was_put_off_before_may_be_approved_beyond_a_budget() -> None:
    harness = PolicyHarness()
    await harness.apply(HOURLY % "")
    job = await harness.job(function())
    runs = [await harness.run(job, str(number)) for number in range(3)]
    await harness.run_until_idle()
    await harness.apply(HOURLY % ", over: require_approval")
    harness.clock.advance(HOUR - 1)
    await harness.run_until_idle()
    extra = [await harness.run(job, str(number)) for number in range(3, 6)]
    harness.clock.advance(1)
    await harness.run_until_idle()

    waiting = [task for run in (*runs, *extra) if (task := await harness.task(run)).state == "APPROVAL_REQUIRED"]
    assert len(waiting) == 2
    for task in waiting:
        assert [one.status for one in await harness.store.approvals.of_task(task.task_id)] == ["waiting"]


async def test_a_budget_of_actions_counts_commands_and_no_functions() -> None:
    harness = PolicyHarness()
    await harness.apply("default_decision: allow\nbudgets: [{id: acts, limit: 1, per: 1d, meter: actions}]")

    first, _ = await harness.tried(command("echo one"))
    second, [ruling] = await harness.tried(command("echo two"))
    free, _ = await harness.tried(function())

    assert [one.state for one in (first, second, free)] == ["RUNNING", "PENDING", "RUNNING"]
    assert (ruling.rule, ruling.ruled_by) == ("acts", "budgets")
    assert ruling.reason == "1 actions per 1d are spent or reserved (all tasks)"


@pytest.mark.req("R-02")
async def test_why_names_the_budget() -> None:
    harness = PolicyHarness()
    await harness.apply(HOURLY % "")
    job = await harness.job(function())
    for number in range(3):
        await harness.run(job, str(number))
    await harness.run_until_idle()

    answer = await Explainer(harness.store, harness.clock).last(job.schedule_id, 3)

    [waiting] = [one for one in answer.explanations if "waits at the gate" in " ".join(one.waits)]
    assert waiting.waits[0].startswith("It waits at the gate: budget hourly of policy 1 puts it off")
    assert "Budget hourly of policy 1 has put it off 1 time since 12:00" in waiting.sentence


@pytest.mark.parametrize(
    ("by", "started"),
    [("[]", 2), ("[job]", 4), ("[tenant]", 2), ("[step, function]", 2)],
)
async def test_a_budget_is_divided_by_the_facts_that_it_names(by: str, started: int) -> None:
    harness = PolicyHarness()
    await harness.apply(f"default_decision: allow\nbudgets: [{{id: b, limit: 2, per: 1h, by: {by}}}]")
    for name in ("one", "two"):
        job = await harness.job(replace(function(), workflow_id=name), name=name, workflow_id=name)
        for number in range(3):
            await harness.run(job, f"{name}-{number}")

    await harness.run_until_idle()

    assert len(harness.runner.started) == started
