"""A server in this process and a worker in one of its own, on PostgreSQL alone or with NATS between them."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nats

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from gnomon.app.node import Node
from gnomon.config.settings import load
from gnomon.core.jobs.job import read_job
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.model import RunId, RunSource
from gnomon.core.runs.launch import LaunchRequest, new_requested_run
from gnomon.core.subjects import WORK_SUBJECTS
from node_setup import NullEvents, job_service_of
from resource_usage import ResourceUsage
from support.nats_redis_servers import Nats
from support.postgres_server import postgres

NOW = 1_772_452_800_000
SHAPES = {"alone": "PostgreSQL 18 alone", "nats": "PostgreSQL 18 and NATS"}
_BATCH = 1000
_WORKER = Path(__file__).parent / "cluster_worker.py"


@dataclass(frozen=True)
class Cluster:
    """A running cluster, with its process ids."""

    node: Node
    account: ResourceUsage
    pids: dict[str, int]
    bus: Nats | None = None


@contextlib.contextmanager
def worker(kind: str, environment: dict[str, str]) -> Iterator["subprocess.Popen[str]"]:
    """Start a worker process; yield it once it runs."""
    command = [sys.executable, str(_WORKER), kind]
    process = subprocess.Popen(command, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own script
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)
        process.stdout.close()


@contextlib.asynccontextmanager
async def worker_settings(
    shape: str, slots: int, *, used: bool = True
) -> AsyncIterator[tuple[str, Nats | None, dict[str, str]]]:
    """The address of a database, NATS if there is one, and the settings of a worker for them.

    A reused database contains dead rows, like a production database that is never vacuumed.
    """
    async with postgres(18).database() if used else _new_database() as url:
        with Nats() if shape == "nats" else contextlib.nullcontext() as bus:
            reported = {"GNOMON_WORKER__SLOTS": str(slots)}
            reported |= {"GNOMON_DATABASE__URL": url} if bus is None else {"GNOMON_NATS__URL": bus.url}
            yield url, bus, reported


@contextlib.asynccontextmanager
async def _new_database() -> AsyncIterator[str]:
    yield await postgres(18).fresh()


@contextlib.asynccontextmanager
async def with_account(url: str, *, logged: bool) -> AsyncIterator[ResourceUsage]:
    """The resource usage of a database, with statement logging if wanted."""
    account = ResourceUsage(postgres(18), url)
    if logged:
        await account.log_everything()
    try:
        yield account
    finally:
        await account.log_nothing()


@contextlib.asynccontextmanager
async def cluster(shape: str, *, slots: int, logged: bool = False) -> AsyncIterator[Cluster]:
    """Start a server that does not execute, and a worker; yield them once the worker is registered."""
    async with worker_settings(shape, slots) as (url, bus, reported), with_account(url, logged=logged) as account:
        settings = {"database.url": url, "worker.slots": slots, "metrics.enabled": False}
        if bus is not None:
            settings["nats.url"] = bus.url
        node = await Node.open(load(flags=settings), events=NullEvents(), dispatches=True)
        stop = asyncio.Event()
        running = asyncio.create_task(node.run(stop))
        with worker(shape, reported) as process:
            try:
                await wait_until_known(node.store)
                pids = {"server": os.getpid(), "worker": process.pid, "PostgreSQL": postgres(18).pid}
                yield Cluster(node, account, pids if bus is None else {**pids, "NATS": bus.pid}, bus)
            finally:
                stop.set()
                await running
                await node.close()


@contextlib.asynccontextmanager
async def recorded_messages(bus: Nats | None) -> AsyncIterator[list[bytes]]:
    """Record the messages to workers on the bus meanwhile; none without a bus."""
    heard: list[bytes] = []
    if bus is None:
        yield heard
        return

    async def hear(message: Any) -> None:  # noqa: ANN401 - the client's own
        heard.append(message.data)

    client = await nats.connect(bus.url)
    await client.subscribe(WORK_SUBJECTS, cb=hear)
    try:
        yield heard
    finally:
        await client.close()


async def wait_until_known(store: Any) -> None:  # noqa: ANN401 - a store of any kind
    """Wait until a worker is registered."""
    while not await store.workers.alive():
        await asyncio.sleep(0.02)


async def register(node: Node, function: str, jobs: int = 1) -> list[str]:
    """Register so many jobs that call the function; return their names."""
    names = [f"note-{number:03}" for number in range(jobs)]
    said = [{"name": name, "function": function, "overlap": "allow"} for name in names]
    await job_service_of(node).apply([read_job(one, Defaults(), now=NOW) for one in said], actor="bench")
    return names


async def launch_runs(node: Node, jobs: list[str], count: int, mark: str = "") -> list[RunId]:
    """Launch so many runs, a thousand at a time, of one job after the other."""
    schedules = [await node.store.schedules.find("default", name) for name in jobs]
    asked: list[RunId] = []
    for lot, first in enumerate(range(0, count, _BATCH)):
        schedule = schedules[lot % len(schedules)]
        assert schedule is not None
        names = [RunId(f"run_{mark or count:0>8}{number:08}") for number in range(first, min(count, first + _BATCH))]
        runs = [new_requested_run(name, schedule, source=RunSource.API, now=NOW) for name in names]
        await node.store.runs.launch([LaunchRequest(run=run, first_steps=("main",)) for run in runs], now=NOW)
        node.check_soon()
        asked += names
    return asked


async def trigger_runs(node: Node, job: str, count: int) -> list[RunId]:
    """Trigger so many runs concurrently, each by itself, as clients of the API do."""
    asking = (node.launcher.trigger(job, actor="bench", source=RunSource.API) for _ in range(count))
    return [done.run_id for done in await asyncio.gather(*asking)]


async def until_over(node: Node, jobs: list[str]) -> None:
    """Wait until none of these runs is under way."""
    for name in jobs:
        while (found := await node.store.schedules.find("default", name)) and found.active_runs:
            await asyncio.sleep(0.02)
