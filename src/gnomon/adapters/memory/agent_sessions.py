"""The sessions of agents in memory. No method awaits half-way, so each one is a transaction."""

from collections.abc import Sequence

from gnomon.adapters.memory.state import MemoryTables
from gnomon.core.agents.sessions import ADMISSION_MS, SessionSummary, StoredTurn
from gnomon.core.audit import session_cleared_entry
from gnomon.core.model import TaskId
from gnomon.core.runs.states import TaskState

_IN_FLIGHT = frozenset((TaskState.SCHEDULED, TaskState.DISPATCHED, TaskState.RUNNING))


class MemoryAgentSessions:
    """Implements AgentSessions."""

    def __init__(self, state: MemoryTables) -> None:
        self._state = state

    async def acquire(self, tenant: str, session: str, task_id: str, *, now: int) -> bool:
        """See AgentSessions.acquire."""
        holder, held_at = self._state.session_holders.get((tenant, session), (task_id, now))
        if holder != task_id and (task := self._state.tasks.get(TaskId(holder))) is not None:
            admitting = task.state is TaskState.PENDING and held_at > now - ADMISSION_MS
            if admitting or task.state in _IN_FLIGHT:
                return False
        self._state.session_holders[tenant, session] = task_id, now
        return True

    async def turns(self, tenant: str, session: str, *, limit: int) -> Sequence[StoredTurn]:
        """See AgentSessions.turns."""
        return list(reversed(self._state.session_turns.get((tenant, session), {}).values()))[:limit]

    async def list_sessions(self, tenant: str, *, limit: int) -> Sequence[SessionSummary]:
        """See AgentSessions.list_sessions."""
        found = sorted(
            (name, turns) for (of, name), turns in self._state.session_turns.items() if of == tenant and turns
        )
        return [
            SessionSummary(
                session=name,
                turns=len(turns),
                tokens=sum(one.tokens for one in turns.values()),
                updated_at=max(one.at for one in turns.values()),
            )
            for name, turns in found[:limit]
        ]

    async def clear(self, tenant: str, session: str, *, actor: str, now: int) -> int:
        """See AgentSessions.clear."""
        count = len(self._state.session_turns.pop((tenant, session), {}))
        if count:
            self._state.write_audit([session_cleared_entry(tenant, session, turns=count, actor=actor, now=now)])
        return count
