"""The actions of models and agents, which count towards the same hourly budgets of tenants as guarded commands.

Every method is one transaction.
"""

from typing import Protocol


class ActionCounts(Protocol):
    """Counts the actions of tenants that are no tasks. `PendingTasks.admit` counts those that are."""

    async def count(self, action_id: str, tenant: str, *, limit: int, now: int) -> bool:
        """Count the action, unless the tenant has spent its limit within the last hour; return whether it counts."""
        ...

    async def reserve(self, task_id: str, number: int, tenant: str, *, count: int, limit: int, now: int) -> bool:
        """Count so many actions of an agent, for one attempt at its task; return whether they count.

        They do not if the tenant would exceed its limit within the last hour. A repetition counts once, and the end of
        the attempt gives back those that the agent has not taken.
        """
        ...

    async def give_back(self, action_id: str) -> None:
        """Forget the action: it was not taken."""
        ...
