"""The usage of agents: a record of each attempt, and sums by day and model."""

from msgspec import Struct

from gnomon.core.agents.rules import MICROS, AgentSpending, money
from gnomon.core.model import DAY_MS

#: The rules that refuse an agent.
DAILY_COST_RULE, PRICE_RULE = "daily_cost", "price"


class AgentUsageDay(Struct, frozen=True, kw_only=True):
    """The usage of one model by a tenant within a day in UTC."""

    #: The beginning of the day.
    day: int
    #: The model that answered last; empty if none has answered.
    model: str
    attempts: int
    spent: AgentSpending


class AgentUsageJob(Struct, frozen=True, kw_only=True):
    """The usage of the agents of one job."""

    job: str
    attempts: int
    #: No model: there may have been several.
    spent: AgentSpending


class AgentUsageTotal(Struct, frozen=True, kw_only=True):
    """The usage of several attempts together."""

    attempts: int = 0
    #: No model: there may have been several.
    spent: AgentSpending = AgentSpending()


def day_of(at: int) -> int:
    """The beginning of the day in UTC."""
    return at - at % DAY_MS


def daily_limit_micros(max_cost_per_day: float) -> int | None:
    """The limit of a day; None for none. The smallest limit is no missing one."""
    return max(1, round(max_cost_per_day * MICROS)) if max_cost_per_day > 0 else None


def day_is_spent_text(spent: int, limit: int) -> str:
    """The reason that refuses an agent once the day's cost is reached."""
    return f"agents.max_cost_per_day is reached: {money(spent)} of {money(limit)} were spent today (UTC)"
