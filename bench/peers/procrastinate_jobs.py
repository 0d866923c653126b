"""No-op jobs with procrastinate: `python procrastinate_jobs.py URL COUNT` prints how many a second go to their end.

One process asks, in lots of a thousand, and one works on five at once, which is where it is fastest. It keeps the row
of each job, and its changes of state.
"""

import asyncio
import json
import subprocess
import sys
import time

from procrastinate import App, PsycopgConnector

_LOT = 1000
_LEFT = "SELECT count(*) AS left FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"
app = App(connector=PsycopgConnector(conninfo=sys.argv[1]))


@app.task(name="note")
async def note() -> None:
    """Does nothing."""


async def work() -> None:
    """Work until told to stop."""
    async with app.open_async():
        print("working", flush=True)
        await app.run_worker_async(concurrency=5)


async def ask(count: int) -> float:
    """Jobs a second, from the first that is asked for to the end of the last."""
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        command = [sys.executable, __file__, sys.argv[1], "work"]
        worker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220, S603 - our own script, before anything is measured
        try:
            worker.stdout.readline()
            await _through(100)
            began = time.perf_counter()
            await _through(count)
            return count / (time.perf_counter() - began)
        finally:
            worker.kill()
            worker.wait()


async def _through(count: int) -> None:
    for first in range(0, count, _LOT):
        await note.batch_defer_async(*({} for _ in range(min(_LOT, count - first))))
    while (await app.connector.execute_query_one_async(_LEFT))["left"]:
        await asyncio.sleep(0.1)


if __name__ == "__main__":
    if sys.argv[2] == "work":
        asyncio.run(work())
    else:
        json.dump({"rate": asyncio.run(ask(int(sys.argv[2])))}, sys.stdout)
