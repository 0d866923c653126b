"""A worker to be killed: `python owner_process.py FILE [COMMAND | --daemon]`.

Its isolated function notes its number in the file, or that of a daemon; with a command, that is run instead.
"""

import asyncio
import sys

from gnomon.core.runs.workflow import SHELL, Isolation
from runners.process_functions import FUNCTIONS
from runners.runner_harness import open_runner


async def main() -> None:
    async with open_runner(FUNCTIONS) as harness:
        if sys.argv[2:] == ["--daemon"]:
            await harness.run("daemonizes", {"file": sys.argv[1], "how": "waits"}, isolation=Isolation.PROCESS)
        elif len(sys.argv) > 2:
            await harness.run(SHELL, command=sys.argv[2])
        await harness.run("traps", {"file": sys.argv[1]}, isolation=Isolation.PROCESS)


if __name__ == "__main__":
    asyncio.run(main())
