"""Every server tells the followers of its stream what any process commits: other servers, workers and commands."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import gnomon
from gnomon.app.server import BackgroundScheduler, ServerOptions
from gnomon.config.settings import load
from gnomon.core.responses.system import StreamChange
from gnomon.runners.registry import Functions
from support.nats_redis_servers import Nats
from support.postgres_server import postgres

#: The slowest that a change may be told on a loaded machine; the promise is two seconds.
PATIENCE = 30.0
JOB = {"name": "greet", "command": "pwd", "overlap": "allow"}
#: The changes of an execution of the job. Those of different processes come in any order.
PUBLISHED = [("execution", "completed"), ("execution", "pending"), ("execution", "running"), ("task", "succeeded")]


class Follower:
    """The changes that one server publishes."""

    def __init__(self, address: str) -> None:
        self.client = gnomon.AsyncClient(address)
        self.heard: list[StreamChange] = []
        self._more = asyncio.Event()

    async def follow(self, opened: AsyncExitStack) -> None:
        """Follow from now on, until the stack is closed."""
        opened.push_async_callback(self.client.close)
        changes = await opened.enter_async_context(self.client.changes())
        listening = asyncio.create_task(self._listen(changes))
        opened.callback(listening.cancel)

    async def _listen(self, changes: AsyncIterator[StreamChange]) -> None:
        async for change in changes:
            self.heard.append(change)
            self._more.set()

    async def until_published(self, execution_id: str) -> list[tuple[str, object]]:
        """The changes of an execution, once as many were told as it has."""

        def ours() -> list[tuple[str, object]]:
            of_run = [one for one in self.heard if one.execution_id == execution_id]
            return [(one.kind, one.facts.get("status") or one.facts.get("became")) for one in of_run]

        async with asyncio.timeout(PATIENCE):
            while len(ours()) < len(PUBLISHED):
                self._more.clear()
                await self._more.wait()
        return sorted(ours())


def scheduler(url: str, *, executes: bool = True, **settings: Any) -> BackgroundScheduler:  # noqa: ANN401
    flags: dict[str, Any] = {
        "database.url": url,
        "server.port": 0,
        "metrics.enabled": False,
        "auth.verify_tokens": False,
        "auth.accept_unverified": True,
        **{name.replace("__", "."): value for name, value in settings.items()},
    }
    options = ServerOptions(settings=load(flags=flags), functions=Functions(), api=True, executes=executes)
    return BackgroundScheduler(options)


def command(url: str, *arguments: str) -> str:
    """The output of a command of another process."""
    done = subprocess.run(
        [sys.executable, "-m", "gnomon", *arguments, "--database", url],
        env={**os.environ, "GNOMON_METRICS__ENABLED": "false"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


async def published_everywhere(url: str, **settings: Any) -> None:  # noqa: ANN401
    """Start two servers; what either of them or a command commits is told by both."""
    async with AsyncExitStack() as opened:
        servers = [await asyncio.to_thread(scheduler, url, **settings) for _ in range(2)]
        for server in servers:
            opened.push_async_callback(asyncio.to_thread, server.stop)
        followers = [Follower(str(server.address)) for server in servers]
        for follower in followers:
            await follower.follow(opened)
        await followers[0].client.register(JOB)

        runs = [(await follower.client.trigger("greet")).execution_id for follower in followers]
        line = await asyncio.to_thread(command, url, "jobs", "trigger", "greet")
        runs.append(line.split()[0])

        for follower in followers:
            for run in runs:
                assert await follower.until_published(run) == PUBLISHED


@pytest.mark.req("H-12")
async def test_a_server_and_its_standby_on_a_file_stream_the_same_changes(tmp_path: Path) -> None:
    await published_everywhere(f"sqlite:///{tmp_path / 'gnomon.db'}")


@pytest.mark.req("H-12")
async def test_two_servers_on_postgresql_stream_the_same_changes() -> None:
    async with postgres(18).database() as url:
        await published_everywhere(url)


@pytest.mark.thorough
async def test_two_servers_with_nats_stream_the_same_changes() -> None:
    with Nats() as nats:
        async with postgres(18).database() as url:
            await published_everywhere(url, nats__url=nats.url)
