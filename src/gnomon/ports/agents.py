"""The usage and the sessions of agents. The transactions that end attempts write to both."""

from collections.abc import Sequence
from typing import Protocol

from gnomon.core.agents.sessions import SessionSummary, StoredTurn
from gnomon.core.agents.usage import AgentUsageDay, AgentUsageJob, AgentUsageTotal


class AgentUsages(Protocol):
    """The usage of agents."""

    async def cost_since(self, tenant: str, since: int) -> int:
        """The cost of the attempts of a tenant that ended since then or still run, in millionths."""
        ...

    async def by_day(self, tenant: str, *, since: int) -> Sequence[AgentUsageDay]:
        """The usage since then by day and model, newest day first, models by name."""
        ...

    async def by_job(self, tenant: str, *, since: int, limit: int) -> Sequence[AgentUsageJob]:
        """The usage since then of the jobs that have cost most, the dearest first, and by name."""
        ...

    async def of_runs(self, tenant: str, run_ids: Sequence[str]) -> dict[str, AgentUsageTotal]:
        """The usage of those of these runs that had agents."""
        ...

    async def of_job(self, tenant: str, job: str, *, since: int) -> AgentUsageTotal:
        """The usage of all runs of the job since then."""
        ...


class AgentSessions(Protocol):
    """The sessions of agents. The transactions that end attempts append to them."""

    async def acquire(self, tenant: str, session: str, task_id: str, *, now: int) -> bool:
        """Make the task the holder of the session; False while another one holds it, whose task may still run.

        Idempotent. No method releases a session: the end of the holder's attempt does.
        """
        ...

    async def turns(self, tenant: str, session: str, *, limit: int) -> Sequence[StoredTurn]:
        """The newest turns of a session, newest first."""
        ...

    async def list_sessions(self, tenant: str, *, limit: int) -> Sequence[SessionSummary]:
        """The sessions with history, by name."""
        ...

    async def clear(self, tenant: str, session: str, *, actor: str, now: int) -> int:
        """Forget the history of a session, and write that to the audit trail; return the number of its turns."""
        ...
