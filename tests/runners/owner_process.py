"""A worker to be killed: `python owner_process.py FILE`. Its isolated function notes its number in the file."""

import asyncio
import sys

from gnomon.core.workflow import Isolation
from runners.hands import hands_on
from runners.isolated import FUNCTIONS


async def main() -> None:
    async with hands_on(FUNCTIONS) as hands:
        await hands.run("traps", {"file": sys.argv[1]}, isolation=Isolation.PROCESS)


if __name__ == "__main__":
    asyncio.run(main())
