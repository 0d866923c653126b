"""No-op jobs with pgqueuer: `python pgqueuer_jobs.py URL COUNT` prints how many a second go from asking to their end.

One process asks, in lots of a thousand, and one works, in batches of a hundred, which is where it is fastest; both with
uvloop, as its own command has it. It keeps a line of history for each job.
"""

import asyncio
import json
import subprocess
import sys
import time

import asyncpg
import uvloop
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.qm import QueueManager
from pgqueuer.queries import Queries

_LOT = 1000


async def work(url: str) -> None:
    """Work until told to stop."""
    manager = QueueManager(Queries(AsyncpgDriver(await asyncpg.connect(url))))

    @manager.entrypoint("note")
    async def note(job: Job) -> None:
        """Does nothing."""

    print("working", flush=True)
    await manager.run(batch_size=100)


async def ask(url: str, count: int) -> float:
    """Jobs a second, from the first that is asked for to the end of the last."""
    conn = await asyncpg.connect(url)
    queries = Queries(AsyncpgDriver(conn))
    await queries.install()
    command = [sys.executable, __file__, url, "work"]
    worker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220, S603 - our own script, before anything is measured
    try:
        worker.stdout.readline()
        await _through(conn, queries, 200)
        began = time.perf_counter()
        await _through(conn, queries, count)
        return count / (time.perf_counter() - began)
    finally:
        worker.kill()
        worker.wait()
        await queries.uninstall()
        await conn.close()


async def _through(conn: asyncpg.Connection, queries: Queries, count: int) -> None:
    for first in range(0, count, _LOT):
        lot = min(_LOT, count - first)
        await queries.enqueue(["note"] * lot, [None] * lot, [0] * lot)
    while await conn.fetchval("SELECT EXISTS (SELECT 1 FROM pgqueuer)"):
        await asyncio.sleep(0.02)


if __name__ == "__main__":
    if sys.argv[2] == "work":
        uvloop.run(work(sys.argv[1]))
    else:
        json.dump({"rate": uvloop.run(ask(sys.argv[1], int(sys.argv[2])))}, sys.stdout)
