"""Reading the field `agent` of a job or a step: the prompt, the model, the tools and the budget of an agent."""

import re
from collections.abc import Mapping
from typing import Any

from gnomon.core.agents.rules import MICROS
from gnomon.core.agents.spec import (
    FUNCTION_PREFIX,
    ISOLATED,
    SERVER_PREFIX,
    TOOLS,
    VERB_PREFIX,
    AgentBudget,
    AgentSpec,
    ToolName,
    model_tool_name,
)
from gnomon.core.durations import duration_text
from gnomon.core.jobs.fields import FUNCTION, NAME, FieldReader, is_storable
from gnomon.core.jobs.inputs import read_schema
from gnomon.core.model import DAY_MS
from gnomon.core.runs.expressions import SECRET_BEGINS, references
from gnomon.core.spelling import nearest
from gnomon.errors import FieldError

AGENT_FIELDS = (
    "prompt", "instructions", "model", "fallbacks", "session", "tools", "budget", "output_schema", "network",
)  # fmt: skip
BUDGET_FIELDS = ("tokens", "cost", "requests", "tool_calls", "actions", "time")
LONGEST_PROMPT = 32_768
LONGEST_MODEL = 200
MOST_FALLBACKS, MOST_TOOLS, MOST_HOSTS = 10, 100, 100
MOST_TOKENS, MOST_COST, MOST_REQUESTS, MOST_CALLS = 10**9, 10**6, 10_000, 10_000
LONGEST_TIME_MS = 30 * DAY_MS
#: A provider that the settings name, and the name of a model there.
MODEL = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}:[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}")
#: A server of the settings, and the name of a tool there.
SERVER_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
SERVER_TOOL = re.compile(rf"{SERVER_PREFIX}{SERVER_NAME.pattern}/[A-Za-z0-9_.:/-]{{1,128}}")
#: A host name or an address, or all hosts below a domain.
HOST = re.compile(r"(\*\.)?[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


def read_agent(fields: FieldReader) -> tuple[AgentSpec, dict[str, Any]]:
    """The agent of a step, and the input of the step: its prompt. FieldError names the first wrong field by its path.

    Whether the models, prices and servers that it names exist is not known here.
    """
    tools = _tools(fields)
    spec = AgentSpec(
        instructions=_instructions(fields),
        model=_model(fields.at("model"), fields["model"]) if "model" in fields else "",
        fallbacks=_fallbacks(fields),
        session=_session(fields),
        tools=tools,
        budget=_budget(fields),
        output_schema=_output_schema(fields),
        network=_network(fields, tools),
    )
    return spec, {"prompt": _words(fields, "prompt", fields.required("prompt"))}


def _instructions(fields: FieldReader) -> str:
    if "instructions" not in fields:
        return ""
    text = _words(fields, "instructions", fields["instructions"])
    if any(references(text)):
        raise fields.refused(
            "instructions", "refers to data, which must not instruct: put the reference into the prompt"
        )
    return text


def _words(fields: FieldReader, field: str, value: object) -> str:
    """A text for the model."""
    if not isinstance(value, str):
        raise fields.refused(field, "must be a text")
    if not value.strip():
        raise fields.refused(field, "is empty")
    if len(value) > LONGEST_PROMPT:
        raise fields.refused(field, f"has {len(value)} characters; at most {LONGEST_PROMPT} are allowed")
    if not is_storable(value):
        raise fields.refused(field, "has a character that no store can hold")
    if SECRET_BEGINS.search(value):
        raise fields.refused(field, "names a secret, which the provider of the model would learn: give it to a tool")
    return value


def _model(path: str, value: object) -> str:
    if not isinstance(value, str) or not MODEL.fullmatch(value):
        raise FieldError(path, value, "must be provider:name, such as openai:gpt-5-mini")
    return value


def _fallbacks(fields: FieldReader) -> tuple[str, ...]:
    found: list[str] = []
    for path, value in fields.entries("fallbacks", most=MOST_FALLBACKS):
        model = _model(path, value)
        if model in found or ("model" in fields and model == fields["model"]):
            raise FieldError(path, value, "is named a second time")
        found.append(model)
    return tuple(found)


def _session(fields: FieldReader) -> str:
    session = fields["session"] if "session" in fields else ISOLATED  # noqa: SIM401 - a reader has no get
    if not isinstance(session, str) or not NAME.fullmatch(session) or ".." in session:
        reason = "must be isolated, main, or a name of a-z, 0-9, dot, dash and underscore: a session is no path"
        raise fields.refused("session", reason)
    return session


def _tools(fields: FieldReader) -> tuple[str, ...]:
    #: The tools by the names that the model sees.
    found: dict[str, str] = {}
    for path, value in fields.entries("tools", most=MOST_TOOLS):
        tool = _tool(path, value)
        name = model_tool_name(tool)
        if found.get(name) == tool:
            raise FieldError(path, value, "is named a second time")
        if name in found:
            raise FieldError(path, value, f"has the same name for the model as {found[name]}: {name}")
        found[name] = tool
    return tuple(found.values())


def _tool(path: str, value: object) -> str:
    if isinstance(value, str) and value.startswith(FUNCTION_PREFIX):
        if not FUNCTION.fullmatch(value.removeprefix(FUNCTION_PREFIX)):
            raise FieldError(path, value, f"must be {FUNCTION_PREFIX}NAME, with the name of a registered function")
        return value
    if isinstance(value, str) and value.startswith(SERVER_PREFIX):
        if not SERVER_TOOL.fullmatch(value):
            raise FieldError(path, value, f"must be {SERVER_PREFIX}SERVER/TOOL, with a server of agents.servers")
        return value
    if not isinstance(value, str) or value not in TOOLS:
        meant = nearest(value, list(TOOLS)) if isinstance(value, str) else None
        verbs = f"the verbs of the scheduler, such as {VERB_PREFIX}list_jobs"
        known = f"the tools are {', '.join(ToolName)}, {FUNCTION_PREFIX}NAME, {SERVER_PREFIX}SERVER/TOOL, and {verbs}"
        hint = f"did you mean {meant}?" if meant else known
        raise FieldError(path, value, f"is no tool: {hint}")
    return str(value)


def _network(fields: FieldReader, tools: tuple[str, ...]) -> bool | tuple[str, ...]:
    value = fields["network"] if "network" in fields else False  # noqa: SIM401
    network = value if isinstance(value, bool) else _hosts(fields)
    if ToolName.HTTP_GET in tools and not network:
        raise fields.refused(
            "network", "is missing for the tool http_get: list the hosts that it may reach, or say true"
        )
    return network


def _hosts(fields: FieldReader) -> tuple[str, ...]:
    if not isinstance(fields["network"], list | tuple):
        raise fields.refused("network", "must be true, false or a list of hosts")
    hosts: dict[str, None] = {}
    for path, value in fields.entries("network", most=MOST_HOSTS):
        if not isinstance(value, str) or not HOST.fullmatch(value.lower()):
            raise FieldError(path, value, "must be a host such as api.example.com or *.example.com, without a port")
        hosts[value.lower()] = None
    return tuple(hosts)


def _budget(fields: FieldReader) -> AgentBudget:
    if "budget" not in fields:
        return AgentBudget()
    budget = FieldReader(fields["budget"], BUDGET_FIELDS, path=fields.at("budget"))
    usual = AgentBudget()
    cost = budget.number("cost", 0, low=1 / MICROS, high=MOST_COST) if "cost" in budget else None
    return AgentBudget(
        tokens=budget.whole("tokens", 1, low=1, high=MOST_TOKENS) if "tokens" in budget else None,
        cost_micros=None if cost is None else round(cost * MICROS),
        requests=budget.whole("requests", usual.requests, low=1, high=MOST_REQUESTS),
        tool_calls=budget.whole("tool_calls", usual.tool_calls, low=1, high=MOST_CALLS),
        actions=budget.whole("actions", usual.actions, low=1, high=MOST_CALLS),
        time_ms=budget.duration("time", 0, low=1, high=LONGEST_TIME_MS) or None,
    )


def _output_schema(fields: FieldReader) -> dict[str, Any] | None:
    if "output_schema" not in fields:
        return None
    if not isinstance(fields["output_schema"], Mapping):
        raise fields.refused("output_schema", "must be a JSON Schema")
    schema = read_schema(fields.at("output_schema"), fields["output_schema"])
    if schema.get("type") != "object":
        raise fields.refused("output_schema", "must describe an object: say type: object")
    return schema


def agent_as_data(spec: AgentSpec, given: Mapping[str, Any]) -> dict[str, Any]:
    """The value of the field `agent` that defines this agent."""
    usual = AgentSpec()
    data: dict[str, Any] = {"prompt": given["prompt"]}
    for field in AGENT_FIELDS[1:]:
        value = getattr(spec, field)
        if value != getattr(usual, field):
            data[field] = _budget_as_data(value) if field == "budget" else list(value) if _is_list(value) else value
    return data


def _is_list(value: object) -> bool:
    return isinstance(value, tuple)


def _budget_as_data(budget: AgentBudget) -> dict[str, Any]:
    usual, data = AgentBudget(), dict[str, Any]()
    for field in BUDGET_FIELDS:
        name = {"cost": "cost_micros", "time": "time_ms"}.get(field, field)
        value = getattr(budget, name)
        if value != getattr(usual, name):
            data[field] = value / MICROS if field == "cost" else duration_text(value) if field == "time" else value
    return data
