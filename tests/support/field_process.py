"""A worker that knows only NATS, in a process of its own, to be killed. Settings come from the environment.

`python field_process.py MODULE...` imports the modules, says "working" once it runs, and drains on SIGTERM.
"""

import asyncio
import os
import signal
import sys

from gnomon.adapters.console import ConsoleEvents
from gnomon.fielding import Fielding, work_over_nats
from gnomon.serving import import_modules, quick_switches
from gnomon.settings import load


async def main() -> None:
    imports = sys.argv[1:]
    import_modules(imports)
    quick_switches()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    plan = Fielding(settings=load(environment=os.environ), imports=imports, events=ConsoleEvents(sys.stdout))
    await work_over_nats(plan, stop)


if __name__ == "__main__":
    asyncio.run(main())
