"""A step with items is asked about once, with all of its items, and each item passes only as it was approved."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from gnomon.core.approvals.model import Approval, Vote, VoteKind
from gnomon.core.ids import item_id
from gnomon.core.model import Result, Run, Task
from gnomon.core.runs.states import TaskState
from gnomon.core.runs.workflow import RetryPolicy, Workflow
from support.policy_harness import PolicyHarness, function
from support.rulings import rulings_of

PAYMENTS = """
rules:
  - id: payments
    match: {risk_tags: [money]}
    decision: require_approval
    reason: money moves
default_decision: allow
"""
LARGE = """
rules:
  - id: large
    match: {risk_tags: [money]}
    when: input.amount > 10
    decision: require_approval
default_decision: allow
"""


def payments(amounts: list[int], **step: Any) -> Workflow:  # noqa: ANN401 - fields of a step
    return function(foreach=amounts, input={"amount": "${item}"}, risk_tags=("money",), **step)


class ItemHarness(PolicyHarness):
    """A harness whose tasks are items of one step."""

    async def settled(self) -> None:
        """Run the services until the questions about items are answered, and the answers are written."""
        for _ in range(4):
            await self.run_until_idle()
            for _ in range(30):
                await asyncio.sleep(0)

    async def asked(self, body: str, definition: Workflow) -> Run:
        await self.apply(body)
        run = await self.launched(definition)
        await self.settled()
        return run

    async def step_and_items(self, run: Run) -> tuple[Task, list[Task]]:
        found = sorted(await self.store.history.tasks([run]), key=lambda one: one.task_id)
        return found[0], found[1:]

    async def approvals(self, run: Run) -> list[Approval]:
        step, _ = await self.step_and_items(run)
        return list(await self.store.approvals.of_task(step.task_id))

    async def vote(self, run: Run, kind: VoteKind = VoteKind.APPROVE) -> None:
        one = (await self.approvals(run))[-1]
        cast = Vote(voter="dora", kind=kind, at=self.clock.now(), reason="")
        await self.store.approvals.vote("default", one.approval_id, cast, digest=one.digest)
        await self.settled()


@pytest.mark.req("R-03")
async def test_a_step_is_asked_about_once_with_all_of_its_items() -> None:
    harness = ItemHarness()

    run = await harness.asked(PAYMENTS, payments([1, 50, 5]))

    step, items = await harness.step_and_items(run)
    [one] = await harness.approvals(run)
    assert (step.state, items) == (TaskState.APPROVAL_REQUIRED, [])
    assert one.request is not None
    assert (one.request.items, len(one.request.item_digests), one.request.item) == (3, 96, None)
    assert not harness.runner.started


@pytest.mark.req("R-03")
async def test_the_items_pass_under_the_approval_of_their_step() -> None:
    harness = ItemHarness()
    run = await harness.asked(PAYMENTS, payments([1, 50, 5]))

    await harness.vote(run)

    step, items = await harness.step_and_items(run)
    assert [one.state for one in (step, *items)] == [TaskState.RUNNING] * 4
    assert len(harness.runner.started) == 3
    said = [(one.decision, one.ruled_by, one.reason) for one in await rulings_of(harness.store, run.run_id)]
    assert said == [
        ("require_approval", "policy", "money moves"),
        *[("allow", "approval", "approved by dora")] * 4,
    ]
    assert len(harness.tables.approvals) == 1


@pytest.mark.req("R-03")
async def test_a_step_whose_items_are_rejected_ends_with_one_dead_letter() -> None:
    harness = ItemHarness()
    run = await harness.asked(PAYMENTS, payments([1, 50, 5]))

    await harness.vote(run, VoteKind.REJECT)

    step, items = await harness.step_and_items(run)
    [letter] = await harness.store.dead_letters.page("default")
    assert (step.state, items, letter.reason) == (TaskState.DENIED, [], "approval_rejected")


@pytest.mark.req("R-03")
async def test_an_item_that_was_changed_in_the_store_after_the_votes_is_denied_alone() -> None:
    harness = ItemHarness()
    run = await harness.asked(PAYMENTS, payments([1, 50, 5], max_parallel=1))
    await harness.vote(run)
    step, _ = await harness.step_and_items(run)
    harness.tables.payloads[item_id(step.task_id, 1), "input"] = b'{"amount": 5000}'

    for _ in range(3):
        harness.runner.end_all()
        await harness.settled()

    _, items = await harness.step_and_items(run)
    assert [one.state for one in items] == [TaskState.SUCCEEDED, TaskState.DENIED, TaskState.SUCCEEDED]
    assert "its definition or input is not what dora approved" in (items[1].note or "")


@pytest.mark.req("R-03")
async def test_items_that_were_changed_in_the_store_before_they_exist_deny_the_step() -> None:
    harness = ItemHarness()
    definition = function(foreach="${input.amounts}", input={"amount": "${item}"}, risk_tags=("money",))
    await harness.apply(PAYMENTS)
    run = await harness.launched(definition, b'{"amounts": [1, 2]}')
    await harness.settled()
    harness.tables.payloads[run.run_id, "input"] = b'{"amounts": [1, 2000]}'

    await harness.vote(run)

    step, items = await harness.step_and_items(run)
    assert (step.state, items) == (TaskState.DENIED, [])
    assert "its definition or input is not what dora approved" in (step.note or "")


@pytest.mark.req("R-03")
async def test_one_item_about_which_a_rule_asks_makes_the_whole_step_wait() -> None:
    harness = ItemHarness()

    run = await harness.asked(LARGE, payments([*range(10)] * 20 + [50]))
    step, items = await harness.step_and_items(run)
    assert (step.state, items) == (TaskState.APPROVAL_REQUIRED, [])
    await harness.vote(run)

    _, items = await harness.step_and_items(run)
    assert len(items) == 201
    rulings = await rulings_of(harness.store, run.run_id)
    assert [one.ruled_by for one in rulings if one.task_id == items[200].task_id] == ["approval"]
    assert [one.ruled_by for one in rulings if one.task_id == items[0].task_id] == ["policy"]


async def test_a_step_of_which_no_item_needs_an_approval_does_not_wait() -> None:
    harness = ItemHarness()

    run = await harness.asked(LARGE, payments([1, 2, 3]))

    _, items = await harness.step_and_items(run)
    assert [one.state for one in items] == [TaskState.RUNNING] * 3
    assert not harness.tables.approvals


@pytest.mark.req("R-08")
async def test_an_item_that_is_retried_is_not_asked_for_again() -> None:
    harness = ItemHarness()
    run = await harness.asked(PAYMENTS, payments([1], retry=RetryPolicy(max_attempts=3, initial_delay_ms=1, jitter=0)))
    await harness.vote(run)

    harness.runner.end_all(Result.FAILED, error="no")
    await harness.settled()
    harness.clock.advance(1)
    await harness.settled()

    _, [item] = await harness.step_and_items(run)
    assert (item.state, item.fence) == (TaskState.RUNNING, 2)
    assert len(harness.tables.approvals) == 1


@pytest.mark.req("R-03")
async def test_another_process_knows_the_approval_of_the_step() -> None:
    harness = ItemHarness()
    run = await harness.asked(PAYMENTS, payments([1, 2], max_parallel=1))
    await harness.vote(run)
    harness.gate = harness.new_gate()
    harness.dispatcher = harness.new_dispatcher()

    harness.runner.end_all()
    await harness.settled()

    _, items = await harness.step_and_items(run)
    assert [one.state for one in items] == [TaskState.SUCCEEDED, TaskState.RUNNING]


@pytest.mark.req("R-03")
async def test_a_rule_that_has_changed_asks_again_about_the_items_that_are_left() -> None:
    harness = ItemHarness()
    run = await harness.asked(PAYMENTS, payments([1, 2], max_parallel=1))
    await harness.vote(run)
    await harness.apply(PAYMENTS.replace("money moves", "much money moves"))

    harness.runner.end_all()
    await harness.settled()

    _, items = await harness.step_and_items(run)
    assert [one.state for one in items] == [TaskState.SUCCEEDED, TaskState.APPROVAL_REQUIRED]


async def test_many_items_are_looked_at_in_slices() -> None:
    harness = ItemHarness()
    await harness.apply(PAYMENTS)
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(count_turns())
    run = await harness.launched(payments(list(range(1000))))
    await harness.run_until_idle()
    before = turns
    for _ in range(100):
        await asyncio.sleep(0)
    await harness.run_until_idle()
    beside.cancel()

    [one] = await harness.approvals(run)
    assert one.request is not None
    assert one.request.items == 1000
    # The loop had other turns while the digests of a thousand items were computed.
    assert turns - before >= 1000 // 50


async def test_the_approval_in_a_list_comes_without_the_digests_of_items() -> None:
    harness = ItemHarness()
    run = await harness.asked(PAYMENTS, payments([1, 2]))

    [one] = await harness.approvals(run)
    found = await harness.store.approvals.find("default", one.approval_id)
    assert one.request is not None
    assert found == replace(one, request=replace(one.request, item_digests=b""))
