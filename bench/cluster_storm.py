"""Very many schedules due in the same second: time until all are decided and ended, and API latency meanwhile."""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from time import perf_counter, time
from typing import NamedTuple

import aiohttp
import asyncpg

from cluster_setup import worker, worker_settings
from gnomon.app.operations import Operations
from gnomon.config.settings import load
from gnomon.core.jobs.job import read_job
from gnomon.core.jobs.schedule_fields import Defaults

_QUESTIONS = ("/v1/jobs?limit=100", "/v1/executions?limit=100", "/v1/jobs/job-000007")
_PER_SECOND = 20
_QUIET_SECONDS = 3


#: Both read an index, or the first row found, so that polling costs little.
_DECIDED = "SELECT NOT EXISTS (SELECT FROM schedule WHERE next_fire_at <= $1)"
_OVER = "SELECT NOT EXISTS (SELECT FROM run WHERE completed_at IS NULL)"


class Storm(NamedTuple):
    """Seconds until all was decided and ended, and API latencies in milliseconds before and meanwhile.

    Ticks that were not decided within their grace have not run.
    """

    runs: int
    decided: float
    over: float
    before: list[float]
    answers: list[float]


@contextlib.contextmanager
def served(environment: dict[str, str]) -> Iterator[str]:
    """Start a `gnomon server`; yield its address."""
    command = [sys.executable, "-m", "gnomon", "server", "--port", "0"]
    reported = {
        **os.environ,
        **environment,
        "GNOMON_AUTH__VERIFY_TOKENS": "false",
        "GNOMON_AUTH__ACCEPT_UNVERIFIED": "true",
        "GNOMON_METRICS__ENABLED": "false",
        "PYTHONUNBUFFERED": "1",
    }
    with subprocess.Popen(command, env=reported, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - our own program
        assert process.stdout is not None
        address = next(line.split()[-1] for line in process.stdout if "answering on" in line)
        # Its output of each run is discarded.
        reading = asyncio.get_running_loop().run_in_executor(None, process.stdout.read)
        try:
            yield address
        finally:
            process.terminate()
            process.wait(60)
            del reading


async def storm(shape: str, count: int, slots: int) -> Storm:
    """Measure the storm, from the moment that all are due."""
    async with worker_settings(shape, slots, used=False) as (url, bus, reported):
        due = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=10 + count // 2000)
        await _register(url, count, due)
        assert time() < due.timestamp() - _QUIET_SECONDS - 2, "registering took too long"
        scheduling = {"GNOMON_DATABASE__URL": url} | ({} if bus is None else {"GNOMON_NATS__URL": bus.url})
        with served(scheduling) as address, worker(shape, reported):
            return await _watched(url, address, due.timestamp())


async def _register(url: str, count: int, due: datetime) -> None:
    cron = f"{due.second} {due.minute} {due.hour} * * *"
    said = [{"name": f"job-{number:06}", "function": "note", "schedule": cron} for number in range(count)]
    async with Operations.open(load(flags={"database.url": url})) as operations:
        now = round(time() * 1000)
        await operations.jobs.apply([read_job(one, Defaults(), now=now) for one in said], actor="bench")


async def _watched(url: str, address: str, due: float) -> Storm:
    stop = asyncio.Event()
    asking = asyncio.create_task(_asked(address, stop))
    conn = await asyncpg.connect(url)
    try:
        await asyncio.sleep(due - time())
        decided = await _until(conn, _DECIDED, round(due * 1000)) - due
        over = await _until(conn, _OVER) - due
        runs = await conn.fetchval("SELECT count(*) FROM run")
    finally:
        stop.set()
        took = await asking
        await conn.close()
    before = [spent for moment, spent in took if due - _QUIET_SECONDS <= moment < due]
    return Storm(runs, decided, over, before or [float("nan")], [spent for moment, spent in took if moment >= due])


async def _until(conn: "asyncpg.Connection[asyncpg.Record]", question: str, *given: int) -> float:
    """Wait until the condition holds; return the time."""
    while not await conn.fetchval(question, *given):
        await asyncio.sleep(0.25)
    return time()


async def _asked(address: str, stop: asyncio.Event) -> list[tuple[float, float]]:
    """The send time of each request, independent of earlier ones, and its latency in milliseconds."""
    took: list[tuple[float, float]] = []
    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:

        async def ask(path: str) -> None:
            moment, began = time(), perf_counter()
            async with session.get(address + path) as answer:
                await answer.read()
                assert answer.status == 200, answer.status
            took.append((moment, (perf_counter() - began) * 1000))

        number = 0
        while not stop.is_set():
            group.create_task(ask(_QUESTIONS[number % len(_QUESTIONS)]))
            number += 1
            await asyncio.sleep(1 / _PER_SECOND)
    return took
