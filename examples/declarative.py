"""A program that runs its tasks until it is told to stop: `python examples/declarative.py`.

SIGTERM and Ctrl-C stop it. It waits for running tasks, but at most for GRACE seconds; a task that does not end in that
time is interrupted, and starts again at once when the program does. A second signal ends the program without waiting.
"""

import asyncio
import contextlib
import logging
import signal
from datetime import timedelta

from gnomon.declarative import Scheduler

GRACE = 20.0


async def report() -> None:
    """Print a line; an error would be logged, and the task tried again after its retry delay."""
    print("the report is written", flush=True)  # noqa: T201 - what the example shows


async def main() -> None:
    """Run the tasks until a signal arrives."""
    logging.basicConfig(level=logging.INFO)
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    scheduler = Scheduler("scheduler.db")
    await scheduler.initialize([("report", "* * * * *", report, timedelta(minutes=5))])
    await stop.wait()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.remove_signal_handler(number)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(scheduler.stop(), GRACE)


if __name__ == "__main__":
    asyncio.run(main())
