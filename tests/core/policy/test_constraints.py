"""Constraints tighten a step and never loosen it."""

import pytest
from msgspec.structs import replace

from gnomon.core.agents.spec import AgentSpec
from gnomon.core.policy.constraints import Constraints, constrained_step, unenforceable
from gnomon.core.runs.workflow import AGENT, HTTP, SHELL, Isolation, RetryPolicy, Step

FUNCTION = Step(name="main", function="reports.make", timeout_ms=60_000, retry=RetryPolicy(max_attempts=5))
COMMAND = Step(name="main", function=SHELL, command="make report")
CALL = Step(name="main", function=HTTP, input={"url": "https://example.com"})


def test_a_step_without_constraints_is_unchanged() -> None:
    assert constrained_step(FUNCTION, None) is FUNCTION
    assert constrained_step(FUNCTION, Constraints(max_output_bytes=10, max_concurrent=2)) is FUNCTION


@pytest.mark.parametrize(("limit", "timeout"), [(1_000, 1_000), (90_000, 60_000)])
def test_the_shorter_time_counts(limit: int, timeout: int) -> None:
    assert constrained_step(FUNCTION, Constraints(max_runtime_ms=limit)).timeout_ms == timeout
    assert constrained_step(COMMAND, Constraints(max_runtime_ms=limit)).timeout_ms == limit


@pytest.mark.parametrize(("limit", "attempts"), [(2, 2), (9, 5)])
def test_the_smaller_number_of_attempts_counts(limit: int, attempts: int) -> None:
    limited = constrained_step(FUNCTION, Constraints(max_attempts=limit)).retry

    assert limited is not None
    assert limited.max_attempts == attempts


def test_a_step_without_retries_gets_none() -> None:
    limited = constrained_step(COMMAND, Constraints(max_attempts=4)).retry

    assert limited is not None
    assert limited.max_attempts == 1


def test_a_limit_of_attempts_lets_no_agent_repeat_its_changes() -> None:
    """A step with a retry may repeat what its tools have changed."""
    changing = Step(name="main", function=AGENT, agent=AgentSpec(tools=("write_file",)))

    assert constrained_step(changing, Constraints(max_attempts=4)).retry is None
    several = replace(changing, retry=RetryPolicy(max_attempts=9))
    assert constrained_step(several, Constraints(max_attempts=4)).retry == RetryPolicy(max_attempts=4)


@pytest.mark.parametrize("wide", [AgentSpec(network=True), AgentSpec(network=("api.example.com",))])
def test_the_tools_of_an_agent_lose_their_network(wide: AgentSpec) -> None:
    agent = Step(name="main", function=AGENT, agent=wide)
    limited = constrained_step(agent, Constraints(network=False))

    assert unenforceable(agent, Constraints(network=False)) is None
    assert limited.agent == AgentSpec(network=False)


def test_isolation_is_for_functions_and_the_network_for_commands() -> None:
    boxed = Constraints(isolation=Isolation.PROCESS, network=False)

    assert constrained_step(FUNCTION, boxed).isolation is Isolation.PROCESS
    assert constrained_step(COMMAND, boxed).isolation is Isolation.NONE
    assert constrained_step(COMMAND, boxed).network is False


@pytest.mark.parametrize(
    ("step", "text"),
    [(FUNCTION, "the function reports.make"), (CALL, "an HTTP call")],
)
def test_the_network_of_anything_but_a_command_cannot_be_cut(step: Step, text: str) -> None:
    reason = unenforceable(step, Constraints(network=False))

    assert reason == f"network: false can only be enforced on commands, and this is {text}"
    assert unenforceable(COMMAND, Constraints(network=False)) is None
    assert unenforceable(step, Constraints(max_attempts=1)) is None


def test_only_the_limits_that_are_set_are_shown() -> None:
    assert Constraints(max_attempts=2, network=False).as_data() == {"max_attempts": 2, "network": False}
