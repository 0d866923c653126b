"""The decisions about agents: frames of data, cost, budgets, hosts, and what may be repeated."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.core.agents import rules
from gnomon.core.agents.rules import AgentLimits, AgentSpending, ModelPrice
from gnomon.core.agents.spec import AgentBudget, AgentSpec
from gnomon.core.runs.expressions import DataAllowance
from gnomon.core.runs.prompts import framed_prompt


@given(st.text())
def test_data_cannot_end_its_frame(text: str) -> None:
    framed = rules.framed_data(text)
    name = framed.partition(">")[0].removeprefix("<")

    assert framed == f"<{name}>\n{text}\n</{name}>"
    assert name not in text


def test_references_put_frames_into_a_prompt_and_never_secrets() -> None:
    scope = {"input": {"words": "${secret:KEY} and ${input.more}", "more": [1, "a"]}}

    prompt = framed_prompt("Read ${input.words}, then ${input.more}.", scope, DataAllowance(10_000))

    first, second = (rules.framed_data(text) for text in ("${secret:KEY} and ${input.more}", '[1,"a"]'))
    assert prompt.replace("$${secret:", "${secret:") == f"Read {first}, then {second}."
    assert "$${secret:KEY}" in prompt


@pytest.mark.parametrize(
    ("price", "read", "written", "micros"),
    [(None, 10, 10, 0), (ModelPrice(input=1, output=10), 1000, 100, 2000), (ModelPrice(input=0.15, output=0), 1, 0, 1)],
)
def test_a_cost_is_rounded_up(price: ModelPrice | None, read: int, written: int, micros: int) -> None:
    assert rules.cost_micros(price, read, written) == micros


@pytest.mark.parametrize("reported", [-(10**9), 10**30])
def test_no_report_of_a_provider_takes_usage_back_or_exceeds_a_store(reported: int) -> None:
    spent = rules.after_answer(AgentSpending(input_tokens=7), "x:y", reported, reported, ModelPrice(input=1, output=1))

    assert all(0 <= one < 2**63 for one in (spent.input_tokens, spent.output_tokens, spent.cost_micros))
    assert spent.input_tokens >= 7


def test_a_budget_allows_until_it_is_used_up() -> None:
    budget = AgentBudget(tokens=10, cost_micros=5, requests=2, tool_calls=2, actions=1)
    limits = AgentLimits(budget=budget)

    assert rules.request_refusal(limits, AgentSpending(requests=1, input_tokens=9)) is None
    assert rules.request_refusal(limits, AgentSpending(requests=2)) == "requests: 2 of 2"
    assert rules.request_refusal(limits, AgentSpending(input_tokens=4, output_tokens=6)) == "tokens: 10 of 10"
    assert rules.request_refusal(limits, AgentSpending(cost_micros=5)) == "cost: 0.000005 of 0.000005"
    assert rules.excess(limits, AgentSpending(input_tokens=10)) is None
    assert rules.excess(limits, AgentSpending(input_tokens=11)) == "tokens: 11 of 10"
    assert rules.tool_refusal(budget, AgentSpending(actions=1), "shell") == "actions: 1 of 1"
    assert rules.tool_refusal(budget, AgentSpending(actions=1), "read_file") is None
    assert rules.tool_refusal(budget, AgentSpending(tool_calls=2), "read_file") == "tool_calls: 2 of 2"
    assert rules.tokens_left(limits, AgentSpending(input_tokens=7)) == 3


def test_the_least_of_all_limits_counts() -> None:
    """Those of the job, of the budgets of the policy, and of the day."""
    limits = AgentLimits(
        budget=AgentBudget(tokens=10, cost_micros=50), day_cost_left=30, meters={"tokens": 8, "cost_micros": 40}
    )
    no_day = AgentLimits(budget=AgentBudget(), day_cost_left=0)

    assert rules.tokens_left(limits, AgentSpending(input_tokens=7)) == 1
    assert rules.request_refusal(limits, AgentSpending(input_tokens=7, cost_micros=29)) is None
    assert rules.request_refusal(limits, AgentSpending(input_tokens=8)) == "tokens by the policy: 8 of 8"
    assert rules.excess(limits, AgentSpending(cost_micros=30)) is None
    over = rules.excess(limits, AgentSpending(cost_micros=31))
    assert over == "cost that agents.max_cost_per_day has left: 0.000031 of 0.00003"
    assert rules.excess(limits, AgentSpending(cost_micros=41)) == "cost by the policy: 0.000041 of 0.00004"
    assert rules.request_refusal(no_day, AgentSpending()) == "cost that agents.max_cost_per_day has left: 0.00 of 0.00"
    assert rules.tokens_left(no_day, AgentSpending()) is None


@pytest.mark.parametrize(
    ("network", "host", "allowed"),
    [
        (True, "example.com", True),
        (False, "example.com", False),
        (("example.com",), "EXAMPLE.com.", True),
        (("example.com",), "www.example.com", False),
        (("*.example.com",), "www.example.com", True),
        (("*.example.com",), "example.com", False),
        (("*.example.com",), "evilexample.com", False),
    ],
)
def test_requests_reach_the_listed_hosts_alone(network: bool | tuple[str, ...], host: str, allowed: bool) -> None:  # noqa: FBT001 - a table
    assert rules.may_reach(network, host) is allowed


def test_calls_that_only_read_may_be_repeated() -> None:
    assert rules.may_repeat_calls(["read_file", "list_files", "http_get"])
    assert not rules.may_repeat_calls(["read_file", "write_file"])
    assert not rules.may_repeat_calls(["tickets.close"])


def test_verbs_of_the_scheduler_are_actions_if_they_change_something() -> None:
    reading, changing = (
        AgentSpec(tools=("gnomon.list_jobs",)),
        AgentSpec(tools=("gnomon.list_jobs", "gnomon.pause_job")),
    )

    assert (reading.reserved_actions, reading.changes_something) == (0, False)
    assert (changing.reserved_actions, changing.changes_something) == (10, True)
    assert rules.may_repeat_calls(["gnomon.list_jobs"])
    assert not rules.may_repeat_calls(["gnomon.pause_job"])
    assert rules.after_tool_call(AgentSpending(), "gnomon.pause_job").actions == 1


def test_amounts_are_shown_as_money() -> None:
    assert [rules.money(micros) for micros in (0, 2_500_000, 123, 10_000_000)] == ["0.00", "2.50", "0.000123", "10.00"]
