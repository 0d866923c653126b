"""Very many schedules due in the same second: how soon all is decided and over, and how the API is meanwhile."""

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


#: Both are told by an index, or by the first row that is found: asking often costs those who work little.
_DECIDED = "SELECT NOT EXISTS (SELECT FROM schedule WHERE next_fire_at <= $1)"
_OVER = "SELECT NOT EXISTS (SELECT FROM run WHERE completed_at IS NULL)"


class Storm(NamedTuple):
    """After how many seconds all was decided and over, and how many milliseconds answers took before and meanwhile.

    What could not be decided within its grace has not been run.
    """

    runs: int
    decided: float
    over: float
    before: list[float]
    answers: list[float]


@contextlib.contextmanager
def served(environment: dict[str, str]) -> Iterator[str]:
    """The address of a `gnomon server`."""
    command = [sys.executable, "-m", "gnomon", "server", "--port", "0"]
    told = {
        **os.environ,
        **environment,
        "GNOMON_AUTH__VERIFY_TOKENS": "false",
        "GNOMON_AUTH__ACCEPT_UNVERIFIED": "true",
        "GNOMON_METRICS__ENABLED": "false",
        "PYTHONUNBUFFERED": "1",
    }
    with subprocess.Popen(command, env=told, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - our own program
        assert process.stdout is not None
        address = next(line.split()[-1] for line in process.stdout if "answering on" in line)
        # What it says of each run is read by nobody.
        reading = asyncio.get_running_loop().run_in_executor(None, process.stdout.read)
        try:
            yield address
        finally:
            process.terminate()
            process.wait(60)
            del reading


async def storm(shape: str, count: int, slots: int) -> Storm:
    """The storm, from the moment that all are due."""
    async with worker_settings(shape, slots, used=False) as (url, bus, told):
        due = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=10 + count // 2000)
        await _register(url, count, due)
        assert time() < due.timestamp() - _QUIET_SECONDS - 2, "registering took too long"
        scheduling = {"GNOMON_DATABASE__URL": url} | ({} if bus is None else {"GNOMON_NATS__URL": bus.url})
        with served(scheduling) as address, worker(shape, told):
            return await _watched(url, address, due.timestamp())


async def _register(url: str, count: int, due: datetime) -> None:
    cron = f"{due.second} {due.minute} {due.hour} * * *"
    said = [{"name": f"job-{number:06}", "function": "note", "schedule": cron} for number in range(count)]
    async with Operations.open(load(flags={"database.url": url})) as office:
        now = round(time() * 1000)
        await office.jobs.apply([read_job(one, Defaults(), now=now) for one in said], actor="bench")


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
    """When it was so."""
    while not await conn.fetchval(question, *given):
        await asyncio.sleep(0.25)
    return time()


async def _asked(address: str, stop: asyncio.Event) -> list[tuple[float, float]]:
    """When each request was sent, whatever had become of those before it, and how many milliseconds it took."""
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
