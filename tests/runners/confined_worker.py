"""A worker that runs one confined command: `python confined_worker.py WORKSPACE COMMAND` prints its outcome."""

import asyncio
import sys

import msgspec

from gnomon.config.sections import ShellSettings
from gnomon.core.commands.sandbox import SandboxMode
from gnomon.core.runs.workflow import SHELL
from gnomon.runners.registry import Functions
from runners.runner_harness import open_runner


async def main() -> None:
    workspace, command = sys.argv[1:]
    async with open_runner(Functions(), shell=ShellSettings(workspace=workspace)) as harness:
        outcome = await harness.run(SHELL, command=command, sandbox=SandboxMode.REQUIRED, network=False)
    reported = {"result": outcome.result, "error": outcome.error, "logs": outcome.logs}
    sys.stdout.buffer.write(msgspec.json.encode(reported))


if __name__ == "__main__":
    asyncio.run(main())
