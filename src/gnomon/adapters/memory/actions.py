"""The actions of models in memory. No method awaits, so each one is a transaction."""

from gnomon.adapters.memory.state import MemoryTables
from gnomon.core.commands.actions import ACTION_WINDOW_MS
from gnomon.core.model import TaskId

#: An action that is no task has no attempts.
_ONLY = 0


class MemoryActionCounts:
    """Implements ActionCounts."""

    def __init__(self, state: MemoryTables) -> None:
        self._state = state

    async def count(self, action_id: str, tenant: str, *, limit: int, now: int) -> bool:
        """See ActionCounts.count."""
        since = now - ACTION_WINDOW_MS
        spent = sum(of_tenant == tenant and at > since for of_tenant, at in self._state.actions.values())
        if spent >= limit:
            return False
        self._state.actions[TaskId(action_id), _ONLY] = tenant, now
        return True

    async def reserve(self, task_id: str, number: int, tenant: str, *, count: int, limit: int, now: int) -> bool:
        """See ActionCounts.reserve."""
        actions, since = self._state.actions, now - ACTION_WINDOW_MS
        for held in [held for held in actions if held[0].startswith(f"{task_id}.") and held[1] == number]:
            del actions[held]
        spent = sum(of_tenant == tenant and at > since for of_tenant, at in actions.values())
        if spent + count > limit:
            return False
        for place in range(count):
            actions[TaskId(f"{task_id}.{place:05}"), number] = tenant, now
        return True

    async def give_back(self, action_id: str) -> None:
        """See ActionCounts.give_back."""
        self._state.actions.pop((TaskId(action_id), _ONLY), None)
