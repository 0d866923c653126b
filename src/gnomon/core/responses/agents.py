"""Responses about agents: their usage and their sessions."""

from datetime import date, datetime
from typing import Any

from gnomon.core.responses.base import Response


class AgentUsage(Response, frozen=True, kw_only=True):
    """The usage of one model within a day in UTC."""

    day: date
    #: The model that answered last; empty if none has answered.
    model: str
    attempts: int
    requests: int
    input_tokens: int
    output_tokens: int
    #: In the currency of the prices.
    cost: float
    tool_calls: int
    actions: int


class AgentJobUsage(Response, frozen=True, kw_only=True):
    """The usage of the agents of one job."""

    job: str
    attempts: int
    requests: int
    input_tokens: int
    output_tokens: int
    #: In the currency of the prices.
    cost: float


class SessionListed(Response, frozen=True, kw_only=True):
    """A session of agents."""

    session: str
    #: The runs whose messages it holds, and about how many tokens these have.
    turns: int
    tokens: int
    updated_at: datetime


class SessionTurnShown(Response, frozen=True, kw_only=True):
    """The messages of one run in a session."""

    #: Counts from 1 within the session.
    number: int
    job: str
    execution_id: str
    ended_at: datetime
    tokens: int
    #: As the library of models writes them.
    messages: list[dict[str, Any]]


class SessionCleared(Response, frozen=True, kw_only=True):
    """The result of a request to clear a session."""

    session: str
    turns: int


class AgentUsageReport(Response, frozen=True, kw_only=True):
    """The usage of agents, newest day first."""

    days: list[AgentUsage]
    #: The jobs that have cost most in these days, the dearest first; at most a hundred.
    jobs: list[AgentJobUsage] = []
    cost_today: float
    #: The limit of a day; None for none.
    max_cost_per_day: float | None
