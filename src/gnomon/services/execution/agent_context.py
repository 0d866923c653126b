"""The context of agents: the history of their session, and how much of the cost of the day is left."""

from msgspec.structs import replace

from gnomon.config.agents import AgentSettings
from gnomon.core.agents.sessions import MOST_TURNS, history_of
from gnomon.core.agents.spec import ISOLATED
from gnomon.core.agents.usage import daily_limit_micros, day_of
from gnomon.core.runs.outcomes import Assignment
from gnomon.ports.agents import AgentSessions, AgentUsages
from gnomon.ports.runtime import Clock


class AgentContext:
    """Gives assignments of agents their history, and a limit of their cost. Other assignments cost no lookup."""

    def __init__(self, sessions: AgentSessions, usages: AgentUsages, clock: Clock, settings: AgentSettings) -> None:
        self._sessions, self._usages = sessions, usages
        self._clock = clock
        self._most_tokens = settings.session_tokens
        self._day_limit = daily_limit_micros(settings.max_cost_per_day)

    async def completed(self, assignment: Assignment) -> Assignment:
        """The assignment as its worker gets it."""
        agent, tenant = assignment.step.agent, assignment.run.tenant
        if agent is None:
            return assignment
        if self._day_limit is not None:
            spent = await self._usages.cost_since(tenant, day_of(self._clock.now()))
            assignment = replace(assignment, day_cost_left=max(0, self._day_limit - spent))
        if agent.session == ISOLATED:
            return assignment
        turns = await self._sessions.turns(tenant, agent.session, limit=MOST_TURNS)
        return replace(assignment, history=history_of((one.messages for one in turns), most_tokens=self._most_tokens))
