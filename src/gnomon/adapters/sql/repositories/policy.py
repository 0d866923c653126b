"""The parts of the SQL store about the policy: its versions, and the rulings."""

from collections.abc import Collection, Sequence

from gnomon.adapters.sql import policies, policy_shadows, rulings
from gnomon.adapters.sql.transactions import Transactions
from gnomon.core.model import RunId
from gnomon.core.policy.past_tasks import PastTask
from gnomon.core.policy.ruling import TaskRulings
from gnomon.core.policy.shadow import PolicyShadow, ShadowCounts, ShadowDifference
from gnomon.core.policy.version import PolicyVersion


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
