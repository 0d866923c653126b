"""Agents: their usage."""

from typing import Annotated

from msgspec import Meta, Struct

from gnomon.api.examples import AGENT_USAGE
from gnomon.api.route import READ_DEFAULTS, ApiCall, ApiRoute, Reply
from gnomon.core.agents.usage import day_of
from gnomon.core.responses.agents import AgentUsageReport
from gnomon.services.operations.presenters.agents import agent_usage

_MOST_DAYS = 366
_USUAL_DAYS = 7
#: How many jobs are shown by their cost.
_MOST_JOBS = 100


class AgentUsageQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The query of the usage of agents."""

    days: Annotated[int, Meta(ge=1, le=_MOST_DAYS, description="How many days, today included, in UTC.")] = _USUAL_DAYS


async def usage(call: ApiCall) -> Reply:
    """Show what agents have used, by day and model and by job, and the limit of a day."""
    query: AgentUsageQuery = call.query
    service = call.services.agent_usage
    found = await service.days(query.days, tenant=call.tenant)
    jobs = await service.jobs(query.days, limit=_MOST_JOBS, tenant=call.tenant)
    return Reply(
        body=agent_usage(found, jobs, today=day_of(call.services.clock.now()), daily_limit=service.daily_limit)
    )


ROUTES = (
    ApiRoute(
        path="/v1/agents/usage",
        name="show_agent_usage",
        handle=usage,
        query=AgentUsageQuery,
        answer=AgentUsageReport,
        example=AGENT_USAGE,
        **READ_DEFAULTS,
    ),
)
