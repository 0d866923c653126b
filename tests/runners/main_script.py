"""A script whose function runs in a process of its own: `python main_script.py`. Prints the outcome."""

import asyncio
import json
import os

from gnomon.core.runs.workflow import Isolation
from gnomon.runners.registry import FUNCTIONS, function
from runners.runner_harness import open_runner


@function
def double(number: int) -> list[int]:
    return [2 * number, os.getpid()]


async def main() -> None:
    async with open_runner(FUNCTIONS) as harness:
        outcome = await harness.run("double", {"number": 21}, isolation=Isolation.PROCESS)
        said = [line.text for line in outcome.logs]
        print(json.dumps([outcome.result, (outcome.output or b"").decode(), os.getpid(), said]))  # noqa: T201 - read by a test


if __name__ == "__main__":
    asyncio.run(main())
