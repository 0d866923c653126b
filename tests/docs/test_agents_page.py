"""The page about agents: its job and its settings are valid, its tables complete, and its job runs as described."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import gnomon
from gnomon.config.agents import ToolServerSettings, agent_catalog
from gnomon.config.settings import load
from gnomon.core.agents.catalog import check_agents
from gnomon.core.agents.spec import ToolName
from gnomon.core.jobs.agent_fields import AGENT_FIELDS, BUDGET_FIELDS
from gnomon.core.model import Result
from gnomon.core.policy.budgets import TOKENS
from gnomon.core.policy.reader import read_policy
from gnomon.core.runs.workflow import AGENT
from gnomon.core.verb_names import CHANGING_VERBS, READING_VERBS
from gnomon.runners.arguments import ArgumentBinder
from runners.test_agents import agents, output, steps
from support.model_servers import openai_calls

PAGE = (Path(__file__).parents[2] / "docs" / "agents.md").read_text()
JOBS, SETTINGS, SERVERS, WATCH, POLICY, NIGHTLY, LOCAL = (
    yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
)


def test_the_job_and_the_settings_of_the_page_fit_together() -> None:
    for job in gnomon.read_jobs([*JOBS["jobs"], *WATCH["jobs"]], now=0):
        check_agents(job.workflow, agent_catalog(load(file=SETTINGS).agents))
    [nightly] = gnomon.read_jobs(NIGHTLY["jobs"], now=0)
    check_agents(nightly.workflow, agent_catalog(load(file={"agents": LOCAL["agents"]}).agents))


def test_the_policy_of_the_page_limits_the_tokens_of_agents() -> None:
    [budget] = read_policy(POLICY).budgets

    assert (budget.meter, budget.reserve) == (TOKENS, 100_000)


def test_the_page_has_every_field_and_every_tool() -> None:
    described = re.findall(r"^\| `([a-z_]+)` \|", PAGE, re.MULTILINE)

    servers = ToolServerSettings.__struct_fields__
    assert sorted(described) == sorted((*AGENT_FIELDS, *BUDGET_FIELDS, *ToolName, *servers))


def test_the_servers_of_the_page_offer_the_tools_that_it_names() -> None:
    agent = {"prompt": "x", "model": "openai:small", "tools": ["mcp:tickets/search", "mcp:notes/add"]}
    [job] = gnomon.read_jobs([{"name": "x", "agent": {**agent, "network": ["tickets.example.com"]}}], now=0)
    settings = load(file={"agents": {**SETTINGS["agents"], **SERVERS["agents"]}})

    check_agents(job.workflow, agent_catalog(settings.agents))


@pytest.mark.parametrize(("effect", "names"), [("read", READING_VERBS), ("change something", CHANGING_VERBS)])
def test_the_page_has_every_verb(effect: str, names: tuple[str, ...]) -> None:
    [row] = re.findall(rf"^\| (`.*`) \| {effect}\b", PAGE, re.MULTILINE)

    assert row == ", ".join(f"`{name}`" for name in names)


def test_the_function_of_the_page_is_a_tool() -> None:
    [code] = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(code.replace('@gnomon.function("reports.totals")\n', ""), names)  # noqa: S102 - our own page
    schema = ArgumentBinder(names["totals"]).schema

    assert schema["properties"] == {"day": {"type": "string"}, "currency": {"type": "string"}}
    assert schema["required"] == ["day"]


@pytest.mark.timeout(60)
async def test_the_job_of_the_page_runs_as_described(tmp_path: Path) -> None:
    [job] = gnomon.read_jobs(JOBS["jobs"], now=0)
    [step] = job.workflow.steps
    answer = {"urgent": 2, "summary": "Two disks are full."}
    async with agents(tmp_path, prices=load(file=SETTINGS).agents.prices) as tried:
        (tried.workspace / "errors.log").write_text("disk full\n" * 2)
        tried.server.replies = [
            openai_calls(
                ("shell", {"command": "rm errors.log"}),
                ("read_file", {"path": "errors.log"}),
                ("read_file", {"path": "../gnomon.db"}),
            ),
            openai_calls(("final_result", {"urgent": -1, "summary": "?"})),
            openai_calls(("final_result", answer)),
        ]
        done = await tried.harness.run(AGENT, dict(step.input), agent=step.agent, input=step.input)

    assert done.result is Result.SUCCEEDED
    assert output(done) == answer
    shown = re.findall(r"^tool  (.*)$", PAGE, re.MULTILINE)
    assert [re.sub(r", \d+ ms$", "", line) for line in steps(done)] == [
        re.sub(r", \d+ ms$", "", line) for line in shown
    ]
