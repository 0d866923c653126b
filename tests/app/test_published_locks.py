"""A running scheduler shows the lock of a job in Redis or NATS while its run is active."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from nats.js.errors import NotFoundError

from gnomon.adapters.nats.connection import connect
from gnomon.adapters.redis.connection import create_client
from gnomon.app.server import BackgroundScheduler, ServerOptions
from gnomon.config import sections
from gnomon.config.settings import load
from gnomon.runners.registry import Functions
from gnomon.testing.clock import Recorder
from support.effort import thorough
from support.nats_redis_servers import Nats, Redis

pytestmark = pytest.mark.req("H-06")
KEY = "scheduler.lock.locked"


async def in_redis(server: Redis) -> str | None:
    client = create_client(sections.RedisSettings(url=server.url))
    try:
        found = await client.get(f"gnomon:{KEY}")
    finally:
        await client.aclose()
    return None if found is None else str(found)


async def in_nats(server: Nats) -> str | None:
    client = await connect(sections.NatsSettings(url=server.url), Recorder(), name="reader")
    try:
        bucket = await client.jetstream().key_value("gnomon_leases")
        return ((await bucket.get(KEY)).value or b"").decode() or None
    except NotFoundError:
        return None
    finally:
        await client.close()


async def until(condition: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(30):
        while not await condition():  # noqa: ASYNC110 - the keeper tells nobody
            await asyncio.sleep(0.1)


@pytest.mark.parametrize(
    ("service", "setting", "read"), [(Redis, "redis.url", in_redis), thorough(Nats, "nats.url", in_nats)]
)
async def test_the_lock_of_a_running_job_is_shown_until_its_run_is_over(
    tmp_path: Path,
    service: type[Redis | Nats],
    setting: str,
    read: Callable[[Any], Awaitable[str | None]],
) -> None:
    begun, may_end = threading.Event(), threading.Event()
    functions = Functions()

    def work() -> None:
        begun.set()
        may_end.wait(60)

    functions.add(work, "work")
    file = tmp_path / "jobs.yaml"
    file.write_text("jobs:\n  - {name: locked, function: work, every: 1s, lock: true}\n")
    with service() as server:
        flags = {"database.url": f"sqlite:///{tmp_path / 'gnomon.db'}", setting: server.url, "metrics.port": 0}
        options = ServerOptions(settings=load(flags=flags), jobs_files=(file,), functions=functions, events=Recorder())
        scheduler = await asyncio.to_thread(BackgroundScheduler, options)
        try:
            await until(lambda: asyncio.to_thread(begun.wait, 0.1))
            await until(lambda: read(server))
            may_end.set()

            async def gone() -> bool:
                return await read(server) is None

            await until(gone)
        finally:
            may_end.set()
            await asyncio.to_thread(scheduler.stop)
