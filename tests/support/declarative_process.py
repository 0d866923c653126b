"""A program with a declarative scheduler, for tests that kill it: run as a script with a file and a mode."""

import asyncio
import sys
from datetime import timedelta

from gnomon.declarative import Scheduler
from gnomon.declarative.events import Event


def tell(event: Event) -> None:
    sys.stdout.write(f"{event.name} {event.task or ''} {event.cause}\n")
    sys.stdout.flush()


async def forever() -> None:
    await asyncio.Event().wait()


async def main(path: str) -> None:
    scheduler = Scheduler(path, on_event=tell)
    await scheduler.initialize([("endless", "* * * * *", forever, timedelta(hours=1))])
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
