"""Agents: the time until the first request to a model, alone and five at once, and the time of a turn.

A server of the tests stands for the provider.
"""

import asyncio
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

ROUNDS, TURNS = 5, 100
MOST_CALLS = 10_000


async def first_requests(tried: AgentHarness, count: int) -> Sequence[float]:
    """The seconds from the start of so many runs at once until the first request of each."""
    before = len(tried.server.requests)
    tried.server.replies = [openai_text("Done.") for _ in range(count)]
    held = [
        assignment(AGENT, {"prompt": "x"}, agent=AgentSpec(model="openai:small"), input={"prompt": "x"})
        for _ in range(count)
    ]
    began, times = time.monotonic(), list[float]()
    tried.harness.runner.start(held)
    for number in range(count):
        await tried.server.until(before + number + 1)
        times.append(time.monotonic() - began)
    for one in held:
        assert (await tried.harness.outcome(one)).result is Result.SUCCEEDED
    return times


async def seconds_of_a_run(tried: AgentHarness, turns: int) -> float:
    """The seconds that a run with so many calls of a tool takes."""
    tried.server.replies = [openai_calls(("list_files", {})) for _ in range(turns)] + [openai_text("Done.")]
    budget = AgentBudget(requests=MOST_CALLS, tool_calls=MOST_CALLS)
    began = time.monotonic()
    done = await tried.run(spec={"tools": ("list_files",), "budget": budget}, timeout_ms=600_000)
    assert done.result is Result.SUCCEEDED, done
    return time.monotonic() - began


async def measured() -> list[list[str]]:
    """The rows of the table."""
    with tempfile.TemporaryDirectory() as folder:
        async with agents(Path(folder)) as tried:
            alone = [max(await first_requests(tried, 1)) for _ in range(ROUNDS)]
            five = [max(await first_requests(tried, 5)) for _ in range(ROUNDS)]
            idle = await seconds_of_a_run(tried, 0)
            whole = await seconds_of_a_run(tried, TURNS)
    return [
        ["first request, one run", f"{median(alone):.2f} s"],
        ["first request, the last of five runs at once", f"{median(five):.2f} s"],
        [f"one turn with a call of a tool, of {TURNS}", f"{(whole - idle) / TURNS * 1000:.1f} ms"],
    ]


def main() -> None:
    rows = asyncio.run(measured())
    note = "A turn includes the library of models, its HTTP client and the stand-in of the provider in this process."
    write_section("Agents", f"{table(['what', 'time'], rows)}\n\n{note}")


if __name__ == "__main__":
    main()
