"""Presents the usage and the sessions of agents."""

from collections.abc import Sequence

import msgspec

from gnomon.core.agents.rules import MICROS
from gnomon.core.agents.sessions import SessionSummary, StoredTurn
from gnomon.core.agents.usage import AgentUsageDay, AgentUsageJob
from gnomon.core.instants import instant_of
from gnomon.core.payloads import is_sealed
from gnomon.core.responses.agents import AgentJobUsage, AgentUsage, AgentUsageReport, SessionListed, SessionTurnShown


def agent_usage(
    days: Sequence[AgentUsageDay], jobs: Sequence[AgentUsageJob], *, today: int, daily_limit: int | None
) -> AgentUsageReport:
    """The usage of agents by day and model, and by job, and the limit of a day."""
    return AgentUsageReport(
        days=[_agent_usage_of(one) for one in days],
        jobs=[_job_usage_of(one) for one in jobs],
        cost_today=sum(one.spent.cost_micros for one in days if one.day == today) / MICROS,
        max_cost_per_day=None if daily_limit is None else daily_limit / MICROS,
    )


def session_listed(one: SessionSummary) -> SessionListed:
    """A session of agents."""
    return SessionListed(session=one.session, turns=one.turns, tokens=one.tokens, updated_at=instant_of(one.updated_at))


def session_turn_shown(one: StoredTurn) -> SessionTurnShown:
    """The messages of one run in a session; none, if they are encrypted with a key that is not here."""
    return SessionTurnShown(
        number=one.number,
        job=one.job,
        execution_id=one.run_id,
        ended_at=instant_of(one.at),
        tokens=one.tokens,
        messages=[] if is_sealed(one.messages) else msgspec.json.decode(one.messages),
    )


def _job_usage_of(one: AgentUsageJob) -> AgentJobUsage:
    spent = one.spent
    return AgentJobUsage(
        job=one.job,
        attempts=one.attempts,
        requests=spent.requests,
        input_tokens=spent.input_tokens,
        output_tokens=spent.output_tokens,
        cost=spent.cost_micros / MICROS,
    )


def _agent_usage_of(one: AgentUsageDay) -> AgentUsage:
    spent = one.spent
    return AgentUsage(
        day=instant_of(one.day).date(),
        model=one.model,
        attempts=one.attempts,
        requests=spent.requests,
        input_tokens=spent.input_tokens,
        output_tokens=spent.output_tokens,
        cost=spent.cost_micros / MICROS,
        tool_calls=spent.tool_calls,
        actions=spent.actions,
    )
