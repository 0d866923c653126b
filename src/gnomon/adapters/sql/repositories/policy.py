"""The parts of the SQL store about the policy: its versions, the rulings, and approvals."""

from collections.abc import Collection, Sequence

from gnomon.adapters.sql import (
    approval_votes,
    approvals,
    held_outputs,
    late_checks,
    output_rulings,
    policies,
    policy_shadows,
    rulings,
)
from gnomon.adapters.sql.transactions import Transactions
from gnomon.core.approvals.model import Approval, Vote
from gnomon.core.model import RunId, TaskId
from gnomon.core.output_policy.late import LateCheck, LateResult
from gnomon.core.output_policy.ruling import HeldDecision, HeldOutput, StoredOutputRuling
from gnomon.core.policy.past_tasks import PastTask
from gnomon.core.policy.ruling import TaskRulings
from gnomon.core.policy.shadow import PolicyShadow, ShadowCounts, ShadowDifference
from gnomon.core.policy.version import PolicyVersion
from gnomon.ports.approvals import ApprovalFilter, Reopened, ReopenPosition, Resumed
from gnomon.ports.output_policy import HeldOutputQuery


class SqlPolicies:
    """Implements Policies."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def add(self, body: str, *, author: str, now: int, expected: int | None = None) -> PolicyVersion:
        """See Policies.add."""
        return await self._transactions.write(lambda conn: policies.add(conn, body, author, now, expected))

    async def newest(self) -> PolicyVersion | None:
        """See Policies.newest."""
        return await self._transactions.read(policies.newest)

    async def newest_number(self) -> int:
        """See Policies.newest_number."""
        return await self._transactions.read(policies.newest_number)

    async def find(self, version: int) -> PolicyVersion | None:
        """See Policies.find."""
        return await self._transactions.read(lambda conn: policies.find(conn, version))

    async def page(self, *, before: int | None, limit: int) -> Sequence[PolicyVersion]:
        """See Policies.page."""
        return await self._transactions.read(lambda conn: policies.page(conn, before, limit))


class SqlPolicyShadows:
    """Implements PolicyShadows."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def start(self, body: str, *, author: str, now: int) -> PolicyShadow:
        """See PolicyShadows.start."""
        return await self._transactions.write(lambda conn: policy_shadows.start(conn, body, author, now))

    async def stop(self, *, actor: str, now: int) -> PolicyShadow:
        """See PolicyShadows.stop."""
        return await self._transactions.write(lambda conn: policy_shadows.stop(conn, actor, now))

    async def promote(self, *, actor: str, now: int, expected: int | None = None) -> PolicyVersion:
        """See PolicyShadows.promote."""
        return await self._transactions.write(lambda conn: policy_shadows.promote(conn, actor, now, expected))

    async def newest(self) -> PolicyShadow | None:
        """See PolicyShadows.newest."""
        return await self._transactions.read(policy_shadows.newest)

    async def running_number(self) -> int:
        """See PolicyShadows.running_number."""
        return await self._transactions.read(policy_shadows.running_number)

    async def count(self, number: int, counts: ShadowCounts) -> bool:
        """See PolicyShadows.count."""
        return await self._transactions.write(lambda conn: policy_shadows.count(conn, number, counts))

    async def differences(self, *, limit: int) -> Sequence[ShadowDifference]:
        """See PolicyShadows.differences."""
        return await self._transactions.read(lambda conn: policy_shadows.differences(conn, limit))


class SqlRulings:
    """Implements Rulings."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def of_tasks(self, run_id: RunId, *, after: str = "", limit: int) -> Sequence[TaskRulings]:
        """See Rulings.of_tasks."""
        return await self._transactions.read(lambda conn: rulings.of_tasks(conn, run_id, after, limit))

    async def ruled_runs(self, runs: Sequence[RunId]) -> Collection[RunId]:
        """See Rulings.ruled_runs."""
        return await self._transactions.read(lambda conn: rulings.ruled_runs(conn, runs))

    async def past_tasks(self, *, after: str = "", limit: int) -> Sequence[PastTask]:
        """See Rulings.past_tasks."""
        return await self._transactions.read(lambda conn: rulings.past_tasks(conn, after, limit))


class SqlOutputRulings:
    """Implements OutputRulings."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def of_task(self, tenant: str, task_id: TaskId) -> StoredOutputRuling | None:
        """See OutputRulings.of_task."""
        return await self._transactions.read(lambda conn: output_rulings.of_task(conn, tenant, task_id))

    async def is_exempt(self, tenant: str, content_digest: str) -> bool:
        """See OutputRulings.is_exempt."""
        return await self._transactions.read(lambda conn: output_rulings.is_exempt(conn, tenant, content_digest))


class SqlHeldOutputs:
    """Implements HeldOutputs."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def page(self, query: HeldOutputQuery) -> Sequence[HeldOutput]:
        """See HeldOutputs.page."""
        return await self._transactions.read(lambda conn: held_outputs.page(conn, query))

    async def find(self, tenant: str, task_id: TaskId) -> HeldOutput | None:
        """See HeldOutputs.find."""
        return await self._transactions.read(lambda conn: held_outputs.find(conn, tenant, task_id))

    async def look(self, tenant: str, task_id: TaskId, looked: HeldDecision) -> HeldOutput:
        """See HeldOutputs.look."""
        return await self._transactions.write(lambda conn: held_outputs.look(conn, tenant, task_id, looked))

    async def release(self, tenant: str, task_id: TaskId, output: bytes, decided: HeldDecision) -> bool:
        """See HeldOutputs.release."""
        return await self._transactions.write(lambda conn: held_outputs.release(conn, tenant, task_id, output, decided))

    async def discard(self, tenant: str, task_id: TaskId, decided: HeldDecision) -> None:
        """See HeldOutputs.discard."""
        await self._transactions.write(lambda conn: held_outputs.discard(conn, tenant, task_id, decided))


class SqlLateChecks:
    """Implements LateChecks."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def oldest(self, limit: int) -> Sequence[LateCheck]:
        """See LateChecks.oldest."""
        return await self._transactions.read(lambda conn: late_checks.oldest(conn, limit))

    async def settle(self, check: LateCheck, result: LateResult, *, now: int) -> bool:
        """See LateChecks.settle."""
        return await self._transactions.write(lambda conn: late_checks.settle(conn, check, result, now))


class SqlApprovals:
    """Implements Approvals and ApprovalUpkeep."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def ask(self, asked: Approval, *, actor: str, now: int) -> Approval:
        """See Approvals.ask."""
        return await self._transactions.write(lambda conn: approvals.ask(conn, asked, actor, now))

    async def revoke(self, tenant: str, approval_id: str, *, actor: str, now: int) -> Approval:
        """See Approvals.revoke."""
        return await self._transactions.write(lambda conn: approvals.revoke(conn, tenant, approval_id, actor, now))

    async def standing(self, tenant: str, subjects: Collection[str]) -> Sequence[Approval]:
        """See Approvals.standing."""
        return await self._transactions.read(lambda conn: approvals.standing(conn, tenant, subjects))

    async def of_task(self, task_id: TaskId) -> Sequence[Approval]:
        """See Approvals.of_task."""
        return await self._transactions.read(lambda conn: approvals.of_task(conn, task_id))

    async def find(self, tenant: str, approval_id: str) -> Approval | None:
        """See Approvals.find."""
        return await self._transactions.read(lambda conn: approvals.find(conn, tenant, approval_id))

    async def page(self, wanted: ApprovalFilter, *, before: str | None, limit: int) -> Sequence[Approval]:
        """See Approvals.page."""
        return await self._transactions.read(lambda conn: approvals.page(conn, wanted, before, limit))

    async def vote(self, tenant: str, approval_id: str, vote: Vote, *, digest: str) -> Approval:
        """See Approvals.vote."""
        return await self._transactions.write(lambda conn: approval_votes.vote(conn, tenant, approval_id, vote, digest))

    async def authors(self, approval: Approval) -> frozenset[str]:
        """See Approvals.authors."""
        return await self._transactions.read(lambda conn: approvals.authors(conn, approval))

    async def next_expiry(self) -> int | None:
        """See ApprovalUpkeep.next_expiry."""
        return await self._transactions.read(approval_votes.next_expiry)

    async def expire(self, *, now: int, limit: int) -> int:
        """See ApprovalUpkeep.expire."""
        # By the clock of the store, too: a node whose clock is ahead ends nothing early.
        return await self._transactions.write(
            lambda conn: approval_votes.expire(conn, min(now, self._transactions.now(conn)), limit)
        )

    async def reopen(self, version: int, *, after: ReopenPosition | None, now: int, limit: int) -> Reopened:
        """See ApprovalUpkeep.reopen."""
        return await self._transactions.write(lambda conn: approval_votes.reopen(conn, version, after, now, limit))

    async def resume(self, *, after: TaskId, now: int, limit: int) -> Resumed:
        """See ApprovalUpkeep.resume."""
        found = await self._transactions.read(lambda conn: approval_votes.awaiting_tasks(conn, after, limit))
        if not found.unasked:
            return Resumed(tasks=0, after=found.after)
        tasks = await self._transactions.write(lambda conn: approval_votes.resume(conn, found.unasked, now))
        return Resumed(tasks=tasks, after=found.after)
