"""How long a page takes while the scheduler is busy, with little history and with much."""

import argparse
import asyncio
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter, sleep, time
from typing import NamedTuple, cast

import aiohttp

from gnomon.app.operations import Operations
from gnomon.config.settings import Settings, load
from gnomon.core.jobs.job import read_job
from gnomon.core.jobs.schedule_fields import Defaults
from report import table, write_section

_CONNECTIONS = 32
_WARM_SECONDS = 3
_BEAT = "import gnomon\n\n\n@gnomon.function('beat')\nasync def beat(): pass\n"
#: The pages to request.
_QUESTIONS = {
    "100 of all jobs": "/v1/jobs?limit=100",
    "100 of all executions": "/v1/executions?limit=100",
    "100 from deep in the history": "/v1/executions?limit=100&until={middle}",
    "those that failed": "/v1/executions?limit=100&status=failed",
    "100 of all jobs, each another page": "/v1/jobs?limit=100",
    "100 of all executions, each another page": "/v1/executions?limit=100",
}
#: Concurrent requests for the same page share a response, so different pages are requested, too.
_OWN_PAGES = ("100 of all jobs, each another page", "100 of all executions, each another page")
#: How often each connection sends a request: as often as possible, or at a rate.
_PACES = {"at once again": 0.0, "4 times a second": 0.25}
_COPIES = """
WITH RECURSIVE number(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM number WHERE n < ? - 1)
INSERT INTO run ({columns}) SELECT {values} FROM number, run WHERE run.run_id = ?
"""
_CHANGED = {
    "run_id": "'run_' || printf('%012x', n)",
    "schedule_id": "'job-' || printf('%05d', n % 10000)",
    "status": "'completed'",
    "created_at": "created_at - n - 1",
    "completed_at": "created_at - n - 1",
}


async def fill(settings: Settings, path: Path, *, jobs: int, fires: int, executions: int) -> None:
    """Create a database with so many jobs, some that fire every second, and so much history."""
    said = [{"name": f"job-{n:05}", "function": "beat", "schedule": "0 3 29 2 *"} for n in range(jobs)]
    said += [
        {"name": f"beat-{n:05}", "function": "beat", "schedule": "* * * * * *", "overlap": "allow"}
        for n in range(fires)
    ]
    async with Operations.open(settings) as operations:
        now = int(time() * 1000)
        await operations.jobs.apply([read_job(one, Defaults(), now=now) for one in said], actor="bench")
        template = (await operations.launcher.trigger("job-00000", actor="bench")).run_id
        await operations.executions.cancel(template, actor="bench")
    with sqlite3.connect(path) as file:
        columns = [row[1] for row in file.execute("PRAGMA table_info(run)")]
        values = ", ".join(_CHANGED.get(column, column) for column in columns)
        file.execute(_COPIES.format(columns=", ".join(columns), values=values), (executions, template))


class ServedNode(NamedTuple):
    """A scheduler in a process of its own."""

    address: str
    pid: int


@contextmanager
def served(folder: Path) -> Iterator[ServedNode]:
    """Start a scheduler on the file."""
    (folder / "beat.py").write_text(_BEAT)
    command = [sys.executable, "-m", "gnomon", "up", "--database", "gnomon.db", "--import", "beat", "--port", "0"]
    environment = {
        **os.environ,
        "GNOMON_AUTH__VERIFY_TOKENS": "false",
        "GNOMON_AUTH__ACCEPT_UNVERIFIED": "true",
        "GNOMON_METRICS__PORT": "0",
        "PYTHONUNBUFFERED": "1",
    }
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - our own program
        assert process.stdout is not None
        address = next(line.split()[-1] for line in process.stdout if "answering on" in line)
        try:
            yield ServedNode(address, process.pid)
        finally:
            process.terminate()
            process.communicate()


async def pages(address: str, path: str) -> list[str]:
    """The first pages of a list, at most one for each connection."""
    found: list[str] = []
    following: str | None = path
    async with aiohttp.ClientSession() as session:
        while following is not None and len(found) < _CONNECTIONS:
            found.append(following)
            async with session.get(address + following) as answer:
                following = (await answer.json())["next"]
    return found


class PollingClient(asyncio.Protocol):
    """One connection that requests the same page again and again, and parses as little as possible.

    On a machine of two cores, a full client would compete with the server that it measures.
    """

    def __init__(self, path: str, every: float, until: float, took: list[float], headers: str = "") -> None:
        """`headers` are further ones of the request, each with its line end."""
        self._request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}\r\n".encode()
        self._every = every
        self._until = until
        self._took = took
        self._missing = 0
        self._head = b""
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first request."""
        self._transport = cast("asyncio.Transport", transport)
        self._ask()

    def _ask(self) -> None:
        self._began = perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Count the bytes of the response, and send the next request when it is complete."""
        if not self._missing:
            self._head += data
            end = self._head.find(b"\r\n\r\n")
            if end < 0:
                return
            assert self._head.startswith(b"HTTP/1.1 200"), self._head[:100]
            length = re.search(rb"content-length: (\d+)", self._head[:end])
            assert length is not None
            self._missing = end + 4 + int(length[1]) - len(self._head)
            self._head = b""
        else:
            self._missing -= len(data)
        if self._missing:
            return
        now = perf_counter()
        self._took.append((now - self._began) * 1000)
        if now < self._until:
            asyncio.get_running_loop().call_at(max(now, self._began + self._every), self._ask)
        else:
            self._transport.close()
            self.done.set_result(None)


async def asked(address: str, paths: list[str], seconds: float, every: float = 0.0) -> list[float]:
    """The latency of each response in milliseconds, with so many connections, all for one page or each for its own.

    They send the next request after each response, or every so many seconds.
    """
    took: list[float] = []
    host, port = address.removeprefix("http://").split(":")
    until, loop = perf_counter() + seconds, asyncio.get_running_loop()
    made = [
        await loop.create_connection(
            partial(PollingClient, paths[number % len(paths)], every, until, took), host, int(port)
        )
        for number in range(_CONNECTIONS)
    ]
    await asyncio.gather(*(one.done for _, one in made))
    return sorted(took)


def lateness(path: Path, since: int) -> float:
    """The 99th percentile of the lateness of starts since then, in milliseconds."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as file:
        query = "SELECT started_at - planned_at FROM run WHERE schedule_id LIKE 'beat-%' AND started_at IS NOT NULL"
        late = sorted(row[0] for row in file.execute(f"{query} AND planned_at > ?", (since,)))
    return float(late[len(late) * 99 // 100]) if late else float("nan")


def measure(jobs: int, fires: int, executions: int, seconds: float) -> list[list[str]]:
    """A row for each page, with the lateness of fires."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "gnomon.db"
        settings = load(flags={"database.url": f"sqlite:///{path}"})
        asyncio.run(fill(settings, path, jobs=jobs, fires=fires, executions=executions))
        middle = int(time() * 1000) - executions // 2
        with served(folder) as node:
            address = node.address
            # Ticks from before the start are caught up first, and are late for another reason.
            sleep(_WARM_SECONDS)
            for question, where in _QUESTIONS.items():
                page = where.format(middle=middle)
                paths = asyncio.run(pages(address, page)) if question in _OWN_PAGES else [page]
                for pace, every in _PACES.items():
                    since = int(time() * 1000)
                    took = asyncio.run(asked(address, paths, seconds, every))
                    rate, p50, p99 = len(took) / seconds, took[len(took) // 2], took[len(took) * 99 // 100]
                    said = [f"{rate:,.0f}", f"{p50:.1f} ms", f"{p99:.1f} ms", f"{lateness(path, since):.0f} ms"]
                    rows.append([question, f"{executions:,}", pace, *said])
        return rows


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--jobs", type=int, default=10_000)
    arguments.add_argument("--fires", type=int, default=500)
    arguments.add_argument("--executions", type=int, default=1_000_000)
    arguments.add_argument("--seconds", type=float, default=5.0)
    given = arguments.parse_args()
    rows = []
    for executions in (given.executions // 100, given.executions):
        rows += measure(given.jobs, given.fires, executions, given.seconds)
    reported = table(
        ["asked for", "executions kept", "again", "answers a second", "p50", "p99", "p99 of fires late by"], rows
    )
    write_section(
        "API: pages while the scheduler is busy",
        f"{_CONNECTIONS} connections, {given.jobs:,} jobs, {given.fires} fires at the same instant of every second on "
        f"the same node, whose bodies begin one after the other.\n\n{reported}",
    )


if __name__ == "__main__":
    main()
