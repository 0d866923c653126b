"""The check of agents against the settings: the providers and the prices that exist."""

from collections.abc import Mapping

from msgspec import Struct

from gnomon.core.agents.rules import MICROS, may_reach, models_of
from gnomon.core.agents.spec import SERVER_PREFIX, AgentSpec, server_tool
from gnomon.core.policy.budgets import COST_MICROS
from gnomon.core.runs.workflow import ONLY_STEP, Step, Workflow
from gnomon.core.spelling import nearest
from gnomon.errors import FieldError


class ToolServer(Struct, frozen=True, kw_only=True):
    """A server with tools, as the check of jobs sees it."""

    #: The host of its URL; empty for a program.
    host: str = ""
    #: The tools that jobs may list; empty for all.
    tools: frozenset[str] = frozenset()


class AgentCatalog(Struct, frozen=True, kw_only=True):
    """The models that the settings offer."""

    #: The model of agents that name none; empty if they must.
    default_model: str = ""
    providers: frozenset[str] = frozenset()
    #: The models with a price.
    priced: frozenset[str] = frozenset()
    #: Whether the cost of a day is limited, so that every model needs a price.
    has_daily_limit: bool = False
    servers: Mapping[str, ToolServer] = {}
    #: How many actions of a tenant may count within an hour; None for any number.
    actions_per_hour: int | None = None


def check_agents(workflow: Workflow, catalog: AgentCatalog | None, *, list_field: str = "dag") -> None:
    """Raise FieldError for an agent that the settings never let start: they lack its models, prices, tools or actions.

    Without a catalog nothing is known.

    `list_field` is the name of the field with the steps of the definition.
    """
    if catalog is None:
        return
    for number, step in enumerate(workflow.steps):
        if step.agent is not None:
            _check_agent(f"{_prefix(workflow, step, list_field, number)}agent", step.agent, catalog)


def _prefix(workflow: Workflow, step: Step, list_field: str, number: int) -> str:
    alone = len(workflow.steps) == 1 and step.name == ONLY_STEP
    return "" if alone else f"{list_field}[{number}]."


def _check_agent(path: str, spec: AgentSpec, catalog: AgentCatalog) -> None:
    if not spec.model and not catalog.default_model:
        raise FieldError(f"{path}.model", "", "is missing, and agents.model names none")
    fields = [f"{path}.model", *(f"{path}.fallbacks[{number}]" for number in range(len(spec.fallbacks)))]
    models_in_order = (spec.model or catalog.default_model, *spec.fallbacks)
    for field, model in zip(fields, models_in_order, strict=True):
        provider = model.partition(":")[0]
        if provider not in catalog.providers:
            near = nearest(provider, sorted(catalog.providers))
            hint = f"; did you mean {near}?" if near else ""
            raise FieldError(field, model, f"names the provider {provider}, which is not in agents.providers{hint}")
    check_servers(path, spec, catalog)
    # Without any actions in an hour nothing starts for now, which says nothing about the job.
    if catalog.actions_per_hour and spec.reserved_actions > catalog.actions_per_hour:
        reason = f"is more than security.max_actions_per_hour ({catalog.actions_per_hour}): it would never be admitted"
        raise FieldError(f"{path}.budget.actions", spec.reserved_actions, reason)
    unpriced = _unpriced(spec, catalog)
    if spec.budget.cost_micros is not None and unpriced:
        reason = f"cannot be kept: agents.prices has no price of {', '.join(unpriced)}"
        raise FieldError(f"{path}.budget.cost", spec.budget.cost_micros / MICROS, reason)
    for field, model in zip(fields, models_in_order, strict=True):
        if catalog.has_daily_limit and model in unpriced:
            raise FieldError(field, model, "has no price in agents.prices, which agents.max_cost_per_day needs")


def check_servers(path: str, spec: AgentSpec, catalog: AgentCatalog) -> None:
    """Raise FieldError for a tool of a server that the settings do not have, or whose host the agent may not reach."""
    for number, tool in enumerate(spec.tools):
        if not tool.startswith(SERVER_PREFIX):
            continue
        field, (name, own_name) = f"{path}.tools[{number}]", server_tool(tool)
        server = catalog.servers.get(name)
        if server is None:
            near = nearest(name, sorted(catalog.servers))
            hint = f"; did you mean {near}?" if near else ""
            raise FieldError(field, tool, f"names the server {name}, which is not in agents.servers{hint}")
        if server.tools and own_name not in server.tools:
            raise FieldError(field, tool, f"is not in agents.servers.{name}.tools: {', '.join(sorted(server.tools))}")
        if server.host and not may_reach(spec.network, server.host):
            raise FieldError(f"{path}.network", spec.network, f"does not list {server.host}, which has the tool {tool}")


def price_refusal(spec: AgentSpec, catalog: AgentCatalog, *, by_policy: bool = False) -> str | None:
    """Why an agent that was added earlier must not start: a limit of its cost cannot be kept any more. None: it may.

    `by_policy` says whether a budget of the policy limits its cost.
    """
    limits = ["budget.cost"] if spec.budget.cost_micros is not None else []
    limits += [f"the budget of {COST_MICROS} of the policy"] if by_policy else []
    limits += ["agents.max_cost_per_day"] if catalog.has_daily_limit else []
    unpriced = _unpriced(spec, catalog) if limits else []
    if not unpriced:
        return None
    return f"agents.prices has no price of {', '.join(unpriced)} any more, which {' and '.join(limits)} needs"


def _unpriced(spec: AgentSpec, catalog: AgentCatalog) -> list[str]:
    return [model for model in models_of(spec, catalog.default_model) if model not in catalog.priced]
