"""How long a page takes while the scheduler is busy, with little history and with much."""

import argparse
import asyncio
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, sleep, time

import aiohttp

from gnomon.core.jobs import read_job
from gnomon.core.requests import Defaults
from gnomon.office import Office
from gnomon.settings import Settings, load
from report import keep, table

_CONNECTIONS = 32
_WARM_SECONDS = 3
_BEAT = "import gnomon\n\n\n@gnomon.function('beat')\nasync def beat(): pass\n"
#: What is asked for, again and again.
_QUESTIONS = {
    "100 of all jobs": "/v1/jobs?limit=100",
    "100 of all executions": "/v1/executions?limit=100",
    "100 from deep in the history": "/v1/executions?limit=100&until={middle}",
    "those that failed": "/v1/executions?limit=100&status=failed",
    "100 of all jobs, each another page": "/v1/jobs?limit=100",
    "100 of all executions, each another page": "/v1/executions?limit=100",
}
#: Whoever asks for the same at once shares an answer, so that this is asked for, too.
_OWN_PAGES = ("100 of all jobs, each another page", "100 of all executions, each another page")
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
    """A file with so many jobs, some that fire every second, and so much history."""
    said = [{"name": f"job-{n:05}", "function": "beat", "schedule": "0 3 29 2 *"} for n in range(jobs)]
    said += [
        {"name": f"beat-{n:05}", "function": "beat", "schedule": "* * * * * *", "overlap": "allow"}
        for n in range(fires)
    ]
    async with Office.open(settings) as office:
        now = int(time() * 1000)
        await office.jobs.apply([read_job(one, Defaults(), now=now) for one in said], actor="bench")
        template = (await office.launcher.trigger("job-00000", actor="bench")).run_id
        await office.executions.cancel(template, actor="bench")
    with sqlite3.connect(path) as file:
        columns = [row[1] for row in file.execute("PRAGMA table_info(run)")]
        values = ", ".join(_CHANGED.get(column, column) for column in columns)
        file.execute(_COPIES.format(columns=", ".join(columns), values=values), (executions, template))


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a scheduler on the file."""
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
            yield address
        finally:
            process.terminate()
            process.communicate()


async def pages(address: str, path: str) -> list[str]:
    """The addresses of a page for each connection, one after the other."""
    found = [path]
    async with aiohttp.ClientSession() as session:
        while len(found) < _CONNECTIONS:
            async with session.get(address + found[-1]) as answer:
                found.append((await answer.json())["next"])
    return found


async def asked(address: str, paths: list[str], seconds: float) -> list[float]:
    """How long each answer took, in milliseconds, while so many asked at once, all for one page or each for its own."""
    took: list[float] = []
    until = perf_counter() + seconds
    connector = aiohttp.TCPConnector(limit=_CONNECTIONS)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def keep_asking(path: str) -> None:
            while perf_counter() < until:
                began = perf_counter()
                async with session.get(address + path) as answer:
                    await answer.read()
                    assert answer.status == 200
                took.append((perf_counter() - began) * 1000)

        await asyncio.gather(*(keep_asking(paths[number % len(paths)]) for number in range(_CONNECTIONS)))
    return sorted(took)


def lateness(path: Path, since: int) -> float:
    """By how many milliseconds the latest of a hundred starts was late, of those planned since then."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as file:
        query = "SELECT started_at - planned_at FROM run WHERE schedule_id LIKE 'beat-%' AND started_at IS NOT NULL"
        late = sorted(row[0] for row in file.execute(f"{query} AND planned_at > ?", (since,)))
    return float(late[len(late) * 99 // 100]) if late else float("nan")


def measure(jobs: int, fires: int, executions: int, seconds: float) -> tuple[list[list[str]], float]:
    """A row for each question, and how late fires were."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "gnomon.db"
        settings = load(flags={"database.url": f"sqlite:///{path}"})
        asyncio.run(fill(settings, path, jobs=jobs, fires=fires, executions=executions))
        middle = int(time() * 1000) - executions // 2
        with served(folder) as address:
            # What was due while nobody was there is made up for first, and late for another reason.
            sleep(_WARM_SECONDS)
            since = int(time() * 1000)
            for question, where in _QUESTIONS.items():
                page = where.format(middle=middle)
                paths = asyncio.run(pages(address, page)) if question in _OWN_PAGES else [page]
                took = asyncio.run(asked(address, paths, seconds))
                rate, p50, p99 = len(took) / seconds, took[len(took) // 2], took[len(took) * 99 // 100]
                rows.append([question, f"{executions:,}", f"{rate:,.0f}", f"{p50:.1f} ms", f"{p99:.1f} ms"])
        return rows, lateness(path, since)


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--jobs", type=int, default=10_000)
    arguments.add_argument("--fires", type=int, default=500)
    arguments.add_argument("--executions", type=int, default=1_000_000)
    arguments.add_argument("--seconds", type=float, default=5.0)
    given = arguments.parse_args()
    rows, late = [], 0.0
    for executions in (given.executions // 100, given.executions):
        more, late = measure(given.jobs, given.fires, executions, given.seconds)
        rows += more
    told = table(["asked for", "executions kept", "answers a second", "p50", "p99"], rows)
    keep(
        "API: pages while the scheduler is busy",
        f"{_CONNECTIONS} connections, {given.jobs:,} jobs, {given.fires} fires a second on the same node; "
        f"of the fires, p99 began {late:.0f} ms late.\n\n{told}",
    )


if __name__ == "__main__":
    main()
