"""The context of agents: the history of the session that an attempt belongs to."""

from msgspec.structs import replace

from gnomon.core.agents.sessions import MOST_TURNS, history_of
from gnomon.core.agents.spec import ISOLATED
from gnomon.core.runs.outcomes import Assignment
from gnomon.ports.agents import AgentSessions


class AgentContext:
    """Gives assignments of agents their history. Other assignments cost no lookup."""

    def __init__(self, sessions: AgentSessions, *, most_tokens: int) -> None:
        self._sessions = sessions
        self._most_tokens = most_tokens

    async def completed(self, assignment: Assignment) -> Assignment:
        """The assignment as its worker gets it."""
        agent = assignment.step.agent
        if agent is None or agent.session == ISOLATED:
            return assignment
        turns = await self._sessions.turns(assignment.run.tenant, agent.session, limit=MOST_TURNS)
        return replace(assignment, history=history_of((one.messages for one in turns), most_tokens=self._most_tokens))
