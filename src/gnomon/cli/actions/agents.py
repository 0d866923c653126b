"""`gnomon agents`: print the usage of agents."""

from gnomon.app.gateway import Gateway
from gnomon.cli.output import Format, print_data, print_table
from gnomon.cli.target import Target, echo, with_gateway
from gnomon.client import requests
from gnomon.core.agents.rules import MICROS, money
from gnomon.core.responses.agents import AgentUsageReport


def usage(days: int, target: Target, form: Format) -> None:
    """Print the usage of agents by day and model."""

    async def work(gateway: Gateway) -> AgentUsageReport:
        return await gateway.send(requests.agent_usage(days=days))

    found = with_gateway(target, work)
    if form is not Format.TABLE:
        print_data(found, form)
        return
    if not found.days:
        echo("no agents have run")
        return
    rows = [
        [
            one.day.isoformat(),
            one.model or "none",
            str(one.attempts),
            str(one.requests),
            str(one.input_tokens),
            str(one.output_tokens),
            amount_text(one.cost),
        ]
        for one in found.days
    ]
    print_table(["day", "model", "attempts", "requests", "tokens read", "tokens written", "cost"], rows)
    limit = "" if found.max_cost_per_day is None else f" of {amount_text(found.max_cost_per_day)}"
    echo(f"today: {amount_text(found.cost_today)}{limit}; all days: {amount_text(sum(one.cost for one in found.days))}")


def count_text(count: int | None) -> str:
    """A number of tokens as it is printed; empty if there is none."""
    return "" if count is None else f"{count:,}"


def amount_text(cost: float | None) -> str:
    """The cost of agents as it is printed; empty if there is none."""
    return "" if cost is None else money(round(cost * MICROS))
