"""A task that needs an approval starts with its votes, and with nothing else."""

from typing import Any

import pytest
from msgspec.structs import replace

from contracts.store import HOUR
from gnomon.core.approvals.model import Approval, ApprovalStatus, Vote, VoteKind
from gnomon.core.model import Result, Run, Task
from gnomon.core.runs.states import TaskState
from gnomon.core.runs.workflow import RetryPolicy, RoutingRequirements
from gnomon.services.coordination import AlwaysHeldSingleton
from gnomon.services.execution.workflow_cache import WorkflowCache
from gnomon.services.maintenance.approval_updater import ApprovalUpdater
from support.policy_harness import PolicyHarness, function
from support.rulings import rulings_of

PAYMENTS = """
rules:
  - id: payments
    match: {risk_tags: [money]}
    decision: require_approval
    reason: money moves
    approval: {groups: [finance], quorum: 2, expires: 1h}
default_decision: allow
"""


class ApprovalHarness(PolicyHarness):
    """A harness with a policy, voters, and the updater of approvals."""

    def __init__(self, **security: Any) -> None:  # noqa: ANN401 - settings
        super().__init__(**security)
        self.updater = ApprovalUpdater(
            self.store.approval_upkeep,
            self.clock,
            self.policy_events,
            lease=AlwaysHeldSingleton(),
            policies=self.store.policies,
            on_ready=lambda: None,
            refresh_seconds=1.0,
        )

    async def asked(self, body: str = PAYMENTS, **step: Any) -> Run:  # noqa: ANN401 - fields of a step
        """A run whose task asks for an approval."""
        await self.apply(body)
        run = await self.launched(function(risk_tags=("money",), **step))
        await self.run_until_idle()
        return run

    async def approvals(self, run: Run) -> list[Approval]:
        return list(await self.store.approvals.of_task((await self.task(run)).task_id))

    async def vote(self, run: Run, voter: str, kind: VoteKind = VoteKind.APPROVE, reason: str = "") -> Approval:
        one = (await self.approvals(run))[-1]
        cast = Vote(voter=voter, kind=kind, at=self.clock.now(), reason=reason)
        return await self.store.approvals.vote(run.tenant, one.approval_id, cast, digest=one.digest)

    async def approved(self, run: Run) -> Task:
        """The task after both votes and the gate."""
        await self.vote(run, "carl")
        await self.vote(run, "dora")
        await self.run_until_idle()
        return await self.task(run)

    async def kept(self) -> None:
        self.clock.advance(2_000)
        await self.updater.step()
        await self.run_until_idle()


@pytest.mark.req("R-03")
async def test_a_task_starts_with_its_votes_and_the_ruling_names_who_gave_them() -> None:
    harness = ApprovalHarness()
    run = await harness.asked()
    waiting = await harness.task(run)
    assert (waiting.state, waiting.note) == (
        TaskState.APPROVAL_REQUIRED,
        "rule payments of policy 1 asks for it (money moves)",
    )
    assert not harness.runner.started

    task = await harness.approved(run)

    rulings = await rulings_of(harness.store, run.run_id)
    assert task.state is TaskState.RUNNING
    assert [(one.decision, one.ruled_by, one.reason) for one in rulings] == [
        ("require_approval", "policy", "money moves"),
        ("allow", "approval", "approved by carl and dora"),
    ]
    assert rulings[0].digest == rulings[1].digest


@pytest.mark.req("R-03")
async def test_an_override_is_a_ruling_with_its_reason() -> None:
    harness = ApprovalHarness()
    run = await harness.asked()

    await harness.vote(run, "olga", VoteKind.OVERRIDE, "the bank closes")
    await harness.run_until_idle()

    assert (await harness.task(run)).state is TaskState.RUNNING
    last = (await rulings_of(harness.store, run.run_id))[-1]
    assert (last.decision, last.ruled_by, last.reason) == ("allow", "override", "overridden by olga: the bank closes")


@pytest.mark.req("R-03")
async def test_a_retry_is_not_asked_for_again() -> None:
    harness = ApprovalHarness()
    run = await harness.asked(retry=RetryPolicy(max_attempts=3, initial_delay_ms=1, jitter=0))
    await harness.approved(run)

    harness.runner.end_all(Result.FAILED, error="no")
    await harness.run_until_idle()
    harness.clock.advance(1)
    await harness.run_until_idle()

    task = await harness.task(run)
    assert (task.state, task.fence) == (TaskState.RUNNING, 2)
    assert len(await harness.approvals(run)) == 1


@pytest.mark.req("R-03")
async def test_another_run_of_the_same_job_is_asked_for_again() -> None:
    harness = ApprovalHarness()
    first = await harness.asked()
    await harness.approved(first)

    second = await harness.launched(function(risk_tags=("money",)))
    await harness.run_until_idle()

    assert (await harness.task(second)).state is TaskState.APPROVAL_REQUIRED


@pytest.mark.req("R-03")
async def test_an_input_that_was_changed_in_the_store_after_the_votes_is_denied() -> None:
    harness = ApprovalHarness()
    run = await harness.asked()
    await harness.vote(run, "carl")
    await harness.vote(run, "dora")
    harness.tables.payloads[run.run_id, "input"] = b'{"amount": 1000000}'

    await harness.run_until_idle()

    task = await harness.task(run)
    assert task.state is TaskState.DENIED
    assert "its definition or input is not what carl and dora approved" in (task.note or "")
    assert not harness.runner.started


@pytest.mark.req("R-03")
async def test_a_definition_that_was_changed_in_the_store_after_the_votes_is_denied() -> None:
    harness = ApprovalHarness()
    run = await harness.asked()
    await harness.vote(run, "carl")
    await harness.vote(run, "dora")
    versions = harness.tables.workflows[run.tenant, run.workflow_id]
    [step] = versions[-1].steps
    versions[-1] = replace(versions[-1], steps=(replace(step, input={"to": "me"}),))
    harness.workflow_cache = WorkflowCache(harness.store.jobs)
    harness.dispatcher = harness.new_dispatcher()

    await harness.run_until_idle()

    assert (await harness.task(run)).state is TaskState.DENIED


@pytest.mark.req("R-03")
async def test_labels_that_say_that_it_is_approved_mean_nothing() -> None:
    harness = ApprovalHarness()
    run = await harness.asked(route=RoutingRequirements(labels={"approval_granted": "true"}))

    assert (await harness.task(run)).state is TaskState.APPROVAL_REQUIRED


@pytest.mark.req("R-03")
async def test_a_new_policy_applies_to_what_waits() -> None:
    harness = ApprovalHarness()
    run = await harness.asked()
    await harness.vote(run, "carl")
    await harness.apply(f"{PAYMENTS}# the same rules, in another file\n")
    await harness.kept()

    [one] = await harness.approvals(run)
    assert one.request is not None
    assert (one.request.version, len(one.votes), one.status) == (2, 1, ApprovalStatus.WAITING)

    await harness.apply(PAYMENTS.replace("quorum: 2", "quorum: 3"))
    await harness.kept()
    old, new = await harness.approvals(run)
    assert (old.status, new.status, new.votes) == ("void", "waiting", ())
    assert (await harness.task(run)).state is TaskState.APPROVAL_REQUIRED

    await harness.apply("default_decision: deny")
    await harness.kept()
    assert (await harness.task(run)).state is TaskState.DENIED
    await harness.kept()
    assert [one.status for one in await harness.approvals(run)] == ["void", "void"]


@pytest.mark.req("R-03")
async def test_a_rule_that_has_changed_after_the_votes_asks_again() -> None:
    harness = ApprovalHarness()
    run = await harness.asked()
    await harness.vote(run, "carl")
    await harness.vote(run, "dora")
    harness.clock.advance(1)
    await harness.apply(PAYMENTS.replace("quorum: 2", "quorum: 3"))

    await harness.run_until_idle()

    assert (await harness.task(run)).state is TaskState.APPROVAL_REQUIRED
    assert [one.status for one in await harness.approvals(run)] == ["approved", "waiting"]


@pytest.mark.req("R-03")
async def test_an_approval_expires_in_time() -> None:
    harness = ApprovalHarness()
    run = await harness.asked()
    await harness.clock.sleep(HOUR / 1000 - 3)
    await harness.kept()
    assert (await harness.task(run)).state is TaskState.APPROVAL_REQUIRED

    await harness.clock.sleep(1)
    await harness.kept()

    assert (await harness.task(run)).state is TaskState.DENIED
    [letter] = await harness.store.dead_letters.page("default")
    assert letter.reason == "approval_expired"


async def test_nothing_waits_at_no_cost() -> None:
    harness = ApprovalHarness()

    assert await harness.updater.step() == 5.0
