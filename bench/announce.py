"""Announcements: how fast they are sent to a local server, and what one that never answers costs the starts of jobs."""

import argparse
import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import time
from typing import Any

from gnomon.app.node import Node
from gnomon.core.announcements.model import AnnouncementState
from gnomon.core.jobs.job import Job, read_job
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.ports.announcements import AnnouncementQuery
from node_setup import FUNCTIONS, STARTED_AT, job_service_of, node_on, quantiles
from report import table, write_section

#: When each body of the measured job began, in seconds since 1970.
_MEASURED: list[float] = []
#: A server in a process of its own: it answers, or never does.
_SERVER = """
import asyncio, sys
from aiohttp import web

async def answer(request):
    await request.read()
    if sys.argv[1] == "silent":
        await asyncio.Event().wait()
    return web.json_response({"ok": True})

async def serve():
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()

asyncio.run(serve())
"""
_KINDS: dict[str, dict[str, Any]] = {
    "slack, one recipient": {"kind": "slack", "token": "t", "to": "C1"},
    "webhook, of 50 jobs": {"kind": "webhook", "secret": "s"},
}


@FUNCTIONS.function("measure")
async def measure() -> None:
    """Records that it began."""
    _MEASURED.append(time())


@asynccontextmanager
async def service(behaviour: str) -> AsyncIterator[str]:
    """The address of a server that is `good` or `silent`."""
    command = [sys.executable, "-c", _SERVER, behaviour]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220, S603 - our own server
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.wait()


@asynccontextmanager
async def running(node: Node) -> AsyncIterator[None]:
    """The node, scheduling."""
    stop = asyncio.Event()
    task = asyncio.create_task(node.run(stop))
    yield
    stop.set()
    await task


def job(name: str, **fields: Any) -> Job:  # noqa: ANN401 - fields of a job
    """A job with these fields."""
    definition = {"name": name, "function": "note", "overlap": "allow"} | fields
    return read_job(definition, Defaults(), now=round(time() * 1000))


async def pending(node: Node) -> int:
    """The number of announcements that are not sent yet."""
    return len(await node.store.announcements.page(AnnouncementQuery(state=AnnouncementState.PENDING, limit=1000)))


async def running_all(kind: str, database: str, count: int, *, announce: bool) -> float:
    """Seconds from the first of so many runs to the last end, and to the last announcement that was sent."""
    async with service("good") as url, node_on(database, channels={"ops": {**_KINDS[kind], "url": url}}) as node:
        reported: dict[str, Any] = {"announce": {"channel": "ops", "text": "${job.name} ended"}} if announce else {}
        await job_service_of(node).apply([job(f"job-{number}", **reported) for number in range(50)], actor="bench")
        async with running(node):
            # The imports of the first request are not measured.
            await node.launcher.trigger("job-0", actor="bench")
            while not STARTED_AT or await pending(node):
                await asyncio.sleep(0.05)
            began = time()
            for number in range(count):
                await node.launcher.trigger(f"job-{number % 50}", actor="bench")
            while len(STARTED_AT) <= count or await pending(node):
                await asyncio.sleep(0.05)
            return time() - began


async def lateness(seconds: int, *, announce: bool) -> list[float]:
    """Milliseconds from each planned second to a body, beside ten jobs a second that announce to a silent server."""
    _MEASURED.clear()
    hook = {"kind": "webhook", "secret": "s"}
    async with service("silent") as url, node_on("SQLite", channels={"ops": {**hook, "url": url}}) as node:
        fields: dict[str, Any] = {"announce": {"channel": "ops", "text": "over"}} if announce else {}
        others = [job(f"beside-{number}", every="1s", **fields) for number in range(10)]
        measured = job("measured", function="measure", schedule="* * * * * *")
        await job_service_of(node).apply([*others, measured], actor="bench")
        async with running(node):
            while len(_MEASURED) <= seconds:
                await asyncio.sleep(0.1)
        return [begun % 1 * 1000 for begun in _MEASURED[1:]]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--count", type=int, default=1000)
    options.add_argument("--seconds", type=int, default=30)
    chosen = options.parse_args()
    sys.setswitchinterval(0.0005)
    rows = []
    for database in ("SQLite", "PostgreSQL"):
        for kind in _KINDS:
            alone, both = (
                asyncio.run(running_all(kind, database, chosen.count, announce=announce)) for announce in (False, True)
            )
            rows.append([f"{kind}, on {database}", f"{alone:.1f} s", f"{both:.1f} s", f"{both - alone:.1f} s"])
    sent = table([f"{chosen.count:,} runs", "ended after", "and announced after", "the announcements"], rows)
    late = [
        [name, quantiles(asyncio.run(lateness(chosen.seconds, announce=announce)))]
        for name, announce in (("no announcements", False), ("a server that never answers", True))
    ]
    note = (
        "From the first of the runs to the last end, and to the last answer of a server on the same machine."
        f" Below: from the planned second to the beginning of a body, over {chosen.seconds} seconds,"
        " beside ten jobs a second."
    )
    write_section("Announcements", f"{sent}\n\n{table(['beside', 'late by'], late)}\n\n{note}")


if __name__ == "__main__":
    main()
