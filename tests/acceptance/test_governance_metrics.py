"""The metrics of policy, approvals, breakers and shadow: each moves in every shape of a deployment, and by how much."""

from pathlib import Path

import pytest

from gnomon.adapters.host import SystemClock
from gnomon.core.approvals.model import ApprovalStatus, Vote, VoteKind
from gnomon.ports.approvals import ApprovalFilter
from support.observed_deployments import SHAPES, Served, shaped

JOBS = """
jobs:
  - {name: forbidden, function: fine, topic: secrets, overlap: allow}
  - {name: asks, function: fine, overlap: allow}
  - {name: free, function: fine, overlap: allow}
  - {name: breaks, function: fails, overlap: allow, breaker: {name: stripe, failures: 1, open: 1h}}
"""
POLICY = """
default_decision: allow
rules:
  - {id: no-secrets, match: {topics: [secrets]}, decision: deny}
  - {id: second-person, match: {jobs: [asks]}, decision: require_approval}
"""
SHADOW = "default_decision: deny"


@pytest.mark.req("R-19")
@pytest.mark.parametrize(
    "shape", ["sqlite", *(pytest.param(shape, marks=pytest.mark.thorough) for shape in SHAPES if shape != "sqlite")]
)
async def test_tasks_that_the_policy_holds_back_are_counted_in_every_shape(shape: str, tmp_path: Path) -> None:
    async with shaped(shape, tmp_path, jobs=JOBS) as one:
        policies, shadows = one.node.store.policies, one.node.store.policy_shadows
        await policies.add(POLICY, author="ada", now=SystemClock().now())

        async def in_force() -> int:
            return (await one.counted("events", "event"))["policy_in_force",]

        await one.until(in_force)
        for _ in range(2):
            await one.trigger("forbidden")
        await one.trigger("asks")
        await one.trigger("breaks")
        await one.until(lambda: rejected(one))
        await shadows.start(SHADOW, author="ada", now=SystemClock().now())

        async def judged() -> bool:
            await one.trigger("free")
            return (await one.counted("policy_shadow_rulings", "result"))["different",] > 0

        await one.until(judged)
        await one.all_ended()

        assert await one.counted("safety_denied", "topic") == {("secrets",): 2}
        assert await one.counted("approvals", "outcome") == {("asked",): 1, ("rejected",): 1}
        assert await one.counted("breaker_changes", "state") == {("open",): 1}
        denied = await one.counted("jobs_completed", "job", "topic", "status")
        assert denied["forbidden", "secrets", "failed"] == 2
        assert await one.counted("dispatch_latency_seconds", "topic") == await one.counted("jobs_dispatched", "topic")
        assert set(await one.counted("jobs_dispatched", "topic")) == {("fine",), ("fails",)}


async def rejected(one: Served) -> bool:
    """Reject what waits; whether something did."""
    approvals = one.node.store.approvals
    wanted = ApprovalFilter(tenant="default", status=ApprovalStatus.WAITING)
    waiting = await approvals.page(wanted, before=None, limit=5)
    for found in waiting:
        vote = Vote(voter="bob", kind=VoteKind.REJECT, at=SystemClock().now())
        await approvals.vote("default", found.approval_id, vote, digest=found.digest)
    return bool(waiting)
