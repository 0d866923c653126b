"""The worker of the cluster benchmark, in a process of its own: `python cluster_worker.py nats|alone`."""

import asyncio
import os
import signal
import sys
from time import time

from gnomon.app.remote_worker import RemoteWorkerOptions, run_remote_worker
from gnomon.app.worker import WorkerOptions, run_worker
from gnomon.config.settings import load
from node_setup import FUNCTIONS, NullEvents


@FUNCTIONS.function("stamp")
async def stamp() -> float:
    """Records when it began."""
    return time()


async def main() -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    settings = load(environment=os.environ)
    print("working", flush=True)
    if sys.argv[1] == "nats":
        await run_remote_worker(RemoteWorkerOptions(settings=settings, functions=FUNCTIONS, events=NullEvents()), stop)
    else:
        await run_worker(WorkerOptions(settings=settings, functions=FUNCTIONS, events=NullEvents()), stop)


if __name__ == "__main__":
    sys.setswitchinterval(0.0005)
    if os.environ.get("GNOMON_PROFILE"):
        import cProfile

        profiler = cProfile.Profile()
        profiler.runcall(asyncio.run, main())
        profiler.dump_stats(os.environ["GNOMON_PROFILE"])
    else:
        asyncio.run(main())
