"""The budget of the changes that models make."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gnomon.core.commands.rules import CommandRules
from gnomon.core.jobs.origins import OriginKind
from gnomon.errors import ActionBudgetSpent, Refused, UsageError
from gnomon.ports.actions import ActionCounts
from gnomon.ports.runtime import Clock, Ids


class ModelActions:
    """Counts each change of a model as an action of its tenant, as the start of a guarded command is one."""

    def __init__(
        self, rules: CommandRules, actions: ActionCounts, clock: Clock, ids: Ids, *, reserved: bool = False
    ) -> None:
        """`reserved` says that they are counted already, with the attempt of the agent that makes the changes."""
        self._rules, self._reserved = rules, reserved
        self._actions = actions
        self._clock, self._ids = clock, ids

    @asynccontextmanager
    async def change(self, *, tenant: str) -> AsyncIterator[None]:
        """Count the change that is made inside; ActionBudgetSpent if the tenant has none left within the hour.

        A change that is refused costs nothing. One that may have been made counts.
        """
        limit = None if self._reserved else self._rules.action_limit(OriginKind.MCP.value)
        if limit is None:
            yield
            return
        now = self._clock.now()
        action_id = self._ids.new("act", now)
        if not await self._actions.count(action_id, tenant, limit=limit, now=now):
            raise ActionBudgetSpent(limit)
        try:
            yield
        except (UsageError, Refused):
            await self._actions.give_back(action_id)
            raise
