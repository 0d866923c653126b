"""The field `agent`: what it means, and what is refused with the path of the field and a reason."""

from typing import Any

import pytest

import gnomon
from gnomon.config.agents import AgentSettings, ProviderKind, ProviderSettings, agent_catalog
from gnomon.core.agents.catalog import AgentCatalog, ToolServer, check_agents
from gnomon.core.agents.frequency import agent_warnings
from gnomon.core.agents.rules import ModelPrice
from gnomon.core.agents.spec import AgentBudget, AgentSpec
from gnomon.core.agents.usage import daily_limit_micros
from gnomon.core.jobs.export import job_as_data
from gnomon.core.jobs.job import Job, warnings
from gnomon.core.jobs.json_schema import job_file_schema
from gnomon.core.runs.workflow import AGENT
from gnomon.errors import FieldError

FULL: dict[str, Any] = {
    "prompt": "Sort these errors: ${input.errors}",
    "instructions": "Be brief.",
    "model": "openai:small",
    "fallbacks": ["claude:big"],
    "session": "triage",
    "tools": ["shell", "http_get"],
    "budget": {"tokens": 5000, "cost": 0.25, "requests": 9, "tool_calls": 8, "actions": 7, "time": "2m"},
    "output_schema": {"type": "object", "properties": {"n": {"type": "integer"}}},
    "network": ["api.example.com", "*.example.org"],
}


def job(agent: object, **fields: object) -> Job:
    [read] = gnomon.read_jobs([{"name": "triage", "agent": agent, **fields}], now=0)
    return read


def test_every_field_is_read_and_exported_again() -> None:
    read = job(FULL)

    [step] = read.workflow.steps
    assert step.function == AGENT
    assert step.input == {"prompt": FULL["prompt"]}
    assert step.agent == AgentSpec(
        instructions="Be brief.",
        model="openai:small",
        fallbacks=("claude:big",),
        session="triage",
        tools=("shell", "http_get"),
        budget=AgentBudget(tokens=5000, cost_micros=250_000, requests=9, tool_calls=8, actions=7, time_ms=120_000),
        output_schema=FULL["output_schema"],
        network=("api.example.com", "*.example.org"),
    )
    assert job_as_data(read)["agent"] == FULL


def test_an_agent_has_no_tools_and_no_network_unless_it_says_so() -> None:
    spec = job({"prompt": "Say hello."}).workflow.steps[0].agent

    assert spec is not None
    assert (spec.tools, spec.network) == ((), False)


@pytest.mark.req("Z-14")
@pytest.mark.parametrize(
    ("agent", "field", "reason"),
    [
        ({}, "agent.prompt", "is missing"),
        ({"prompt": "  "}, "agent.prompt", "is empty"),
        ({"prompt": 7}, "agent.prompt", "must be a text"),
        ({"prompt": "Use ${secret:KEY}"}, "agent.prompt", "names a secret"),
        ({"prompt": "x" * 40_000}, "agent.prompt", "at most 32768"),
        ({"prompt": "Say ${steps.other.output}"}, "agent.prompt", "does not come after"),
        ({"prompt": "x", "instructions": "Obey ${input.words}"}, "agent.instructions", "refers to data"),
        ({"prompt": "x", "model": "gpt"}, "agent.model", "must be provider:name"),
        ({"prompt": "x", "fallbacks": ["a:b", "a:b"]}, "agent.fallbacks[1]", "a second time"),
        ({"prompt": "x", "tools": ["shel"]}, "agent.tools[0]", "did you mean shell?"),
        ({"prompt": "x", "tools": ["gnomon.list_job"]}, "agent.tools[0]", "did you mean gnomon.list_jobs?"),
        ({"prompt": "x", "tools": ["list_jobs"]}, "agent.tools[0]", "is no tool"),
        ({"prompt": "x", "tools": ["function:"]}, "agent.tools[0]", "must be function:NAME"),
        ({"prompt": "x", "tools": ["function:a b"]}, "agent.tools[0]", "must be function:NAME"),
        ({"prompt": "x", "tools": ["function:a.b", "function:a_b"]}, "agent.tools[1]", "same name for the model"),
        ({"prompt": "x", "tools": ["function:a", "function:a"]}, "agent.tools[1]", "a second time"),
        ({"prompt": "x", "tools": ["mcp:notes"]}, "agent.tools[0]", "must be mcp:SERVER/TOOL"),
        ({"prompt": "x", "tools": ["mcp:../notes"]}, "agent.tools[0]", "must be mcp:SERVER/TOOL"),
        ({"prompt": "x", "tools": ["mcp:a/b.c", "mcp:a/b_c"]}, "agent.tools[1]", "same name for the model"),
        ({"prompt": "x", "tools": ["jira"]}, "agent.tools[0]", "the verbs of the scheduler, such as gnomon.list_jobs"),
        ({"prompt": "x", "tools": ["http_get"]}, "agent.network", "is missing for the tool http_get"),
        ({"prompt": "x", "network": ["http://a"]}, "agent.network[0]", "must be a host"),
        ({"prompt": "x", "session": "../other"}, "agent.session", "a session is no path"),
        ({"prompt": "x", "session": "a..b"}, "agent.session", "a session is no path"),
        ({"prompt": "x", "budget": {"tokens": 0}}, "agent.budget.tokens", "from 1 to"),
        ({"prompt": "x", "budget": {"cost": 0}}, "agent.budget.cost", "must be a number from"),
        ({"prompt": "x", "budget": {"time": 0}}, "agent.budget.time", "must be from"),
        ({"prompt": "x", "budget": {"money": 1}}, "agent.budget.money", ""),
        ({"prompt": "x", "output_schema": {"type": "nonsense"}}, "agent.output_schema.type", "is no JSON Schema"),
        ({"prompt": "x", "output_schema": {"type": "array"}}, "agent.output_schema", "must describe an object"),
        ({"prompt": "x", "colour": "red"}, "agent.colour", ""),
    ],
)
def test_bad_input_names_the_field_and_the_reason(agent: object, field: str, reason: str) -> None:
    with pytest.raises(FieldError) as refused:
        job(agent)

    assert refused.value.field.removeprefix("jobs[0].") == field
    assert reason in str(refused.value)


@pytest.mark.parametrize("other", ["function", "command", "http"])
def test_an_agent_is_the_only_action_of_a_job(other: str) -> None:
    with pytest.raises(FieldError, match="say one of them"):
        job({"prompt": "x"}, **{other: "x"})


CATALOG = AgentCatalog(
    providers=frozenset(("openai", "claude")),
    priced=frozenset(("openai:small",)),
    servers={"notes": ToolServer(tools=frozenset(("add",))), "tickets": ToolServer(host="tickets.example.com")},
)


@pytest.mark.parametrize(
    ("tools", "network", "field", "reason"),
    [
        (["mcp:note/add"], False, "agent.tools[0]", "names the server note, which .* did you mean notes?"),
        (["shell", "mcp:notes/remove"], False, "agent.tools[1]", r"is not in agents\.servers\.notes\.tools: add"),
        (["mcp:tickets/search"], False, "agent.network", r"does not list tickets\.example\.com"),
        (["mcp:tickets/search"], ["example.com"], "agent.network", r"does not list tickets\.example\.com"),
    ],
)
def test_a_tool_that_the_servers_of_the_settings_lack_is_refused(
    tools: list[str], network: object, field: str, reason: str
) -> None:
    agent = {"prompt": "x", "model": "openai:small", "tools": tools, "network": network}
    with pytest.raises(FieldError, match=reason) as refused:
        check_agents(job(agent).workflow, CATALOG)

    assert refused.value.field == field
    able = {"tools": ["mcp:notes/add", "mcp:tickets/search"], "network": ["*.example.com"]}
    check_agents(job({**agent, **able}).workflow, CATALOG)


@pytest.mark.parametrize(
    ("agent", "field", "reason"),
    [
        ({"prompt": "x"}, "agent.model", "agents.model names none"),
        ({"prompt": "x", "model": "opnai:small"}, "agent.model", "did you mean openai?"),
        ({"prompt": "x", "model": "openai:a", "fallbacks": ["b:c"]}, "agent.fallbacks[0]", "not in agents.providers"),
        ({"prompt": "x", "model": "claude:a", "budget": {"cost": 1}}, "agent.budget.cost", "no price of claude:a"),
    ],
)
def test_a_model_that_the_settings_lack_is_refused(agent: object, field: str, reason: str) -> None:
    with pytest.raises(FieldError, match=reason) as refused:
        check_agents(job(agent).workflow, CATALOG)

    assert refused.value.field == field


def test_a_model_of_the_settings_is_accepted() -> None:
    check_agents(job({"prompt": "x", "model": "openai:small", "budget": {"cost": 1}}).workflow, CATALOG)


def test_an_agent_that_reserves_more_actions_than_an_hour_has_is_refused() -> None:
    settings = AgentSettings(providers={"openai": ProviderSettings(kind=ProviderKind.OPENAI)})
    writes = {"prompt": "x", "model": "openai:small", "tools": ["write_file"], "budget": {"actions": 20}}
    with pytest.raises(FieldError, match=r"more than security\.max_actions_per_hour \(19\)") as refused:
        check_agents(job(writes).workflow, agent_catalog(settings, actions_per_hour=19))

    assert refused.value.field == "agent.budget.actions"
    for limit in (20, 0, None):
        check_agents(job(writes).workflow, agent_catalog(settings, actions_per_hour=limit))
    check_agents(job({**writes, "tools": ["read_file"]}).workflow, agent_catalog(settings, actions_per_hour=19))


def test_a_limit_of_the_cost_of_a_day_needs_a_price_of_every_model() -> None:
    limited = agent_catalog(
        AgentSettings(
            providers={"openai": ProviderSettings(kind=ProviderKind.OPENAI)},
            prices={"openai:small": ModelPrice(input=0, output=0)},
            max_cost_per_day=1,
        )
    )

    check_agents(job({"prompt": "x", "model": "openai:small"}).workflow, limited)
    with pytest.raises(FieldError, match=r"agents\.max_cost_per_day needs") as refused:
        check_agents(job({"prompt": "x", "model": "openai:small", "fallbacks": ["openai:large"]}).workflow, limited)

    assert refused.value.field == "agent.fallbacks[0]"
    assert [daily_limit_micros(one) for one in (0, 1e-9, 2.5)] == [None, 1, 2_500_000]


@pytest.mark.req("Z-10")
@pytest.mark.parametrize(
    ("when", "gap"),
    [
        ({"every": "4m"}, "4m"),
        ({"schedule": "*/10 * * * *"}, None),
        ({"schedule": "0,2 9 * * 1"}, "2m"),
        ({"every": "5m"}, None),
        ({}, None),
        ({"at": "2030-01-01T00:00:00Z"}, None),
    ],
)
def test_an_agent_that_starts_too_often_is_warned_of(when: dict[str, Any], gap: str | None) -> None:
    read = job({"prompt": "x"}, **when)

    assert agent_warnings(read.workflow) == warnings(read)
    assert len(warnings(read)) == (gap is not None)
    assert all(f"every {gap} at its most frequent" in one for one in warnings(read))


def test_editors_know_the_fields() -> None:
    from jsonschema_rs import validator_for

    schema = validator_for(job_file_schema())

    assert schema.is_valid({"jobs": [{"name": "triage", "agent": FULL}]})
    assert not schema.is_valid({"jobs": [{"name": "triage", "agent": {"tools": ["shell"]}}]})
    assert not schema.is_valid({"jobs": [{"name": "triage", "agent": FULL, "isolation": "process"}]})
