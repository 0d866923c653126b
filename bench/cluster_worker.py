"""The worker of the cluster benchmark, in a process of its own: `python cluster_worker.py nats|postgres`."""

import asyncio
import os
import signal
import sys
from time import time

from gnomon.adapters.system import SystemClock
from gnomon.crew import Crew
from gnomon.fielding import Fielding, work_over_nats
from gnomon.office import open_server
from gnomon.services.looping import keep_stepping
from gnomon.settings import load
from nodes import FUNCTIONS, NoEvents


@FUNCTIONS.function("stamp")
async def stamp() -> float:
    """Says when it began."""
    return time()


async def main() -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    settings = load(environment=os.environ)
    print("working", flush=True)
    if sys.argv[1] == "nats":
        await work_over_nats(Fielding(settings=settings, functions=FUNCTIONS, events=NoEvents()), stop)
        return
    store = await open_server(settings.database)
    crew = Crew(store, settings, SystemClock(), NoEvents(), FUNCTIONS, ())
    await asyncio.gather(keep_stepping(crew.worker.step, stop=stop, wake=crew.work), _look(crew, stop))
    await crew.worker.drain()
    await store.close()


async def _look(crew: Crew, stop: asyncio.Event) -> None:
    while not stop.is_set():
        crew.look()
        await asyncio.sleep(0.05)


if __name__ == "__main__":
    sys.setswitchinterval(0.0005)
    if os.environ.get("GNOMON_PROFILE"):
        import cProfile

        profiler = cProfile.Profile()
        profiler.runcall(asyncio.run, main())
        profiler.dump_stats(os.environ["GNOMON_PROFILE"])
    else:
        asyncio.run(main())
