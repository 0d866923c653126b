"""The sessions of agents for operators: list them, show their turns, and clear them."""

from collections.abc import Sequence

from gnomon.core.agents.sessions import SessionSummary, StoredTurn
from gnomon.core.jobs.fields import page_limit, printable, schedule_name
from gnomon.errors import NotFound
from gnomon.ports.agents import AgentSessions
from gnomon.ports.runtime import Clock


class AgentSessionService:
    """Lists, shows and clears sessions."""

    def __init__(self, sessions: AgentSessions, clock: Clock) -> None:
        self._sessions = sessions
        self._clock = clock

    async def list_sessions(self, *, limit: int = 1000, tenant: str = "default") -> Sequence[SessionSummary]:
        """The sessions with history, by name."""
        return await self._sessions.list_sessions(schedule_name("tenant", tenant), limit=page_limit(limit))

    async def turns(self, session: str, *, limit: int = 20, tenant: str = "default") -> Sequence[StoredTurn]:
        """The newest turns of a session, newest first; NotFound if it has none."""
        schedule_name("session", session)
        found = await self._sessions.turns(schedule_name("tenant", tenant), session, limit=page_limit(limit))
        if not found:
            raise NotFound("session", session)
        return found

    async def clear(self, session: str, *, actor: str, tenant: str = "default") -> int:
        """Forget the history of a session; return the number of its turns. NotFound if it has none."""
        schedule_name("session", session)
        printable("actor", actor)
        count = await self._sessions.clear(schedule_name("tenant", tenant), session, actor=actor, now=self._clock.now())
        if not count:
            raise NotFound("session", session)
        return count
