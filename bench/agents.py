"""Agents: the start of their process, cold and warm, and how much Gnomon adds to the time of a turn.

A server of the tests stands for the provider. A turn is a request to it with a call of a tool. The library alone, which
is the baseline of a turn, asks the same server in a process of its own, and its tool lists the same folder.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from gnomon.core.agents.spec import AgentBudget, AgentSpec
from gnomon.core.model import Result
from gnomon.core.runs.workflow import AGENT
from report import table, write_section
from runners.runner_harness import assignment
from runners.test_agents import AgentHarness, agents
from support.model_servers import openai_calls, openai_text

STARTS, ROUNDS, TURNS = 5, 5, 50
AT_ONCE = 5
MOST_CALLS = 10_000
#: The goals of the first request, in seconds, and of a turn, in milliseconds.
GOAL_START, GOAL_TURN = 2.0, 5.0
_ALONE = "--alone"


async def first_request(tried: AgentHarness, count: int) -> float:
    """The seconds from the start of so many runs at once until the first request of the last of them."""
    before = len(tried.server.requests)
    tried.server.replies = [openai_text("Done.") for _ in range(count)]
    held = [
        assignment(AGENT, {"prompt": "x"}, agent=AgentSpec(model="openai:small"), input={"prompt": "x"})
        for _ in range(count)
    ]
    began = time.monotonic()
    tried.harness.runner.start(held)
    await tried.server.until(before + count)
    spent = time.monotonic() - began
    for one in held:
        assert (await tried.harness.outcome(one)).result is Result.SUCCEEDED
    return spent


def script_turns(tried: AgentHarness, turns: int) -> None:
    """Have the provider call a tool so many times, and end."""
    tried.server.replies = [openai_calls(("list_files", {})) for _ in range(turns)] + [openai_text("Done.")]


async def seconds_of_a_run(tried: AgentHarness, turns: int) -> float:
    """The seconds that a run with so many calls of a tool takes."""
    script_turns(tried, turns)
    budget = AgentBudget(requests=MOST_CALLS, tool_calls=MOST_CALLS)
    began = time.monotonic()
    done = await tried.run(spec={"tools": ("list_files",), "budget": budget}, timeout_ms=600_000)
    assert done.result is Result.SUCCEEDED, done
    return time.monotonic() - began


async def seconds_alone(tried: AgentHarness, turns: int) -> float:
    """The same by the library of models alone."""
    script_turns(tried, turns)
    program = [sys.executable, __file__, _ALONE, tried.server.url("/v1"), str(tried.workspace)]
    running = await asyncio.create_subprocess_exec(*program, stdout=subprocess.PIPE)
    said, _ = await running.communicate()
    assert running.returncode == 0
    return float(said)


async def run_alone(url: str, folder: str) -> float:
    """Ask until there is an answer; the seconds of the run, without the start of the process."""
    from openai import AsyncOpenAI
    from pydantic_ai import Agent, UsageLimits
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    def list_files() -> str:
        return "\n".join(sorted(os.listdir(folder)))  # noqa: PTH208 - names alone

    client = AsyncOpenAI(api_key="none", base_url=url, max_retries=0)
    agent = Agent(OpenAIChatModel("small", provider=OpenAIProvider(openai_client=client)), tools=[list_files])
    began = time.monotonic()
    await agent.run("Sum up.", usage_limits=UsageLimits(request_limit=None))
    return time.monotonic() - began


async def turns_of(tried: AgentHarness) -> tuple[list[float], list[float]]:
    """The milliseconds of a turn in Gnomon, and by the library alone, of each round."""
    ours, alone = list[float](), list[float]()
    for _ in range(ROUNDS):
        ours.append((await seconds_of_a_run(tried, TURNS) - await seconds_of_a_run(tried, 0)) / TURNS * 1000)
        alone.append((await seconds_alone(tried, TURNS) - await seconds_alone(tried, 0)) / TURNS * 1000)
    return ours, alone


async def cold_start(count: int) -> float:
    """The first request of the first runs of a worker: the library is not loaded yet."""
    with tempfile.TemporaryDirectory() as folder:
        async with agents(Path(folder)) as tried:
            return await first_request(tried, count)


async def measured() -> list[list[str]]:
    """The rows of the table."""
    cold = {count: [await cold_start(count) for _ in range(STARTS)] for count in (1, AT_ONCE)}
    with tempfile.TemporaryDirectory() as folder:
        async with agents(Path(folder)) as tried:
            await first_request(tried, 1)
            warm = {count: [await first_request(tried, count) for _ in range(STARTS)] for count in (1, AT_ONCE)}
            ours, alone = await turns_of(tried)
    added = median(one - other for one, other in zip(ours, alone, strict=True))
    start = f"at most {GOAL_START:g} s"
    return [
        _row("first request of the first run of a worker (cold)", cold[1], "s", start),
        _row(f"the same, the last of {AT_ONCE} runs at once", cold[AT_ONCE], "s", start),
        _row("first request of a later run (warm)", warm[1], "s", start),
        _row(f"the same, the last of {AT_ONCE} runs at once", warm[AT_ONCE], "s", start),
        _row(f"a turn, of {TURNS}", ours, "ms", ""),
        _row("a turn of the library alone", alone, "ms", ""),
        ["**Gnomon adds to a turn**", f"{added:.2f} ms", "", f"at most {GOAL_TURN:g} ms"],
    ]


def _row(name: str, values: Sequence[float], unit: str, goal: str) -> list[str]:
    return [name, f"{median(values):.2f} {unit}", f"{max(values):.2f} {unit}", goal]


def main() -> None:
    if _ALONE in sys.argv:
        print(asyncio.run(run_alone(*sys.argv[2:])))
        return
    rows = asyncio.run(measured())
    note = (
        "The worker and the stand-in of the provider share this process, in the runs of both kinds. "
        f"{STARTS} starts, and {ROUNDS} rounds of turns."
    )
    write_section("Agents", f"{table(['what', 'median', 'longest', 'goal'], rows)}\n\n{note}")


if __name__ == "__main__":
    main()
