"""The dashboard while the scheduler is busy: how long its pages take, what they weigh, and what they cost others.

Readers look at each page in turn, once a second each, as pages with live parts ask for these. Pages are measured with
little history and with much: their cost must not grow with it.
"""

import argparse
import asyncio
import os
import re
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from time import perf_counter, sleep, thread_time, time
from typing import Any, NamedTuple
from unittest.mock import patch
from urllib.parse import urlsplit

import aiohttp
from msgspec.structs import replace

from api import PollingClient, lateness, served
from gnomon.adapters.auth.fallback_authenticators import AnonymousAdminAuthenticator, RejectingAuthenticator
from gnomon.api.app import create_app
from gnomon.app.auth import IssuerSessions
from gnomon.app.files import read_jobs_text
from gnomon.app.gateway import services_without_scheduler
from gnomon.app.operations import Operations
from gnomon.config.settings import Settings, load
from gnomon.ui.handlers import Dashboard
from gnomon.ui.pages import PAGES
from report import print_section, table, write_section
from ui_history import fill

_READERS = 32
_EVERY_SECONDS = 1.0
_WARM_SECONDS = 3
_GZIP = "Accept-Encoding: gzip\r\n"
#: The pages of the menu, and others that read more or differently.
_OTHERS = {
    "Calendar by day": "/ui/calendar?by=day",
    "Calendar of a tag": "/ui/calendar?tag=team-3",
    "Jobs by text": "/ui/jobs?q=report",
    "Jobs by tag": "/ui/jobs?tag=team-3",
    "Jobs that fail": "/ui/jobs?state=failing",
    "Jobs by next run": "/ui/jobs?order=next",
    "Jobs by last tick": "/ui/jobs?order=last",
    "A job": "/ui/jobs/beat-00000",
    "Executions of a job": "/ui/jobs/job-00000?tab=executions",
    "Ticks that were late": "/ui/ticks?reason=late",
    "Ticks that a reason has none of": "/ui/ticks?reason=queue_full",
    "Executions that failed": "/ui/executions?status=failed",
    "An execution": "/ui/executions/{execution}",
    "Why, at a time": "/ui/why?job=job-00000",
    "Dead letters of a job": "/ui/dead-letters?job=job-00050",
    "Search": "/ui/search?q=report",
}
_QUESTIONS = {page.title: page.path for page in PAGES if page.in_menu} | _OTHERS
#: Only a running scheduler knows its health.
_NOT_WITHOUT_SCHEDULER = ("/ui/health",)
_PAGE_COLUMNS = (
    "page",
    "address",
    "executions kept",
    "p50",
    "p99",
    "p99 of fires late by",
    "holds the loop",
    "first visit",
    "elements",
)
_UNSEEN_COLUMNS = ("when", "executions kept", "processor", "memory", "p99 of fires late by")
_ELEMENT = re.compile(rb"<[a-zA-Z]")
_ASSET = re.compile(rb'(?:href|src)="(/ui/static/[^"]+)"')


class ServerUsage(NamedTuple):
    """The resources that a process has used so far."""

    cpu_seconds: float
    resident_mb: float


class PageWeight(NamedTuple):
    """The bytes that a first visit fetches, and the number of elements of the page."""

    wire_bytes: int
    elements: int


def server_usage(pid: int) -> ServerUsage:
    """The processor time of a process, and its memory now."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    cpu_seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return ServerUsage(cpu_seconds, resident / 2**20)


def questions(path: Path) -> Mapping[str, str]:
    """The address of each page on this database."""
    with closing(sqlite3.connect(path)) as file:
        [execution] = file.execute("SELECT run_id FROM run WHERE status = 'failed' LIMIT 1").fetchone()
    return {name: address.format(execution=execution) for name, address in _QUESTIONS.items()}


# ---- readers of a server -------------------------------------------------------------------------


async def read_pages(address: str, paths: Sequence[str], seconds: float) -> list[float]:
    """The latency of each response in milliseconds, to readers that each ask for one of these pages once a second."""
    took: list[float] = []
    host, _, port = urlsplit(address).netloc.partition(":")
    loop, until, done = asyncio.get_running_loop(), perf_counter() + seconds, []
    for path in islice(cycle(paths), _READERS):
        connect = partial(PollingClient, path, _EVERY_SECONDS, until, took, _GZIP)
        done.append((await loop.create_connection(connect, host, int(port)))[1].done)
        # People do not look in step.
        await asyncio.sleep(min(_EVERY_SECONDS, seconds) / _READERS)
    await asyncio.gather(*done)
    return sorted(took)


async def weigh(address: str, path: str) -> PageWeight:
    """The weight of a page for a browser that sees it first."""
    async with aiohttp.ClientSession(auto_decompress=False, headers={"Accept-Encoding": "gzip"}) as packed:
        page = await _body(packed, address + path)
        async with aiohttp.ClientSession() as session:
            html = await _body(session, address + path)
        assets = [await _body(packed, address + name.decode()) for name in sorted(set(_ASSET.findall(html)))]
    return PageWeight(len(page) + sum(map(len, assets)), len(_ELEMENT.findall(html)))


async def _body(session: aiohttp.ClientSession, url: str) -> bytes:
    async with session.get(url) as answer:
        assert answer.status == 200, (url, answer.status)
        return await answer.read()


# ---- how long a page holds the event loop --------------------------------------------------------


@contextmanager
def _timed_callbacks() -> Iterator[list[float]]:
    """The processor time of each callback on event loops of this thread, in milliseconds."""
    took: list[float] = []
    run: Callable[[asyncio.Handle], None] = asyncio.Handle._run  # noqa: SLF001 - all callbacks pass here

    def timed(handle: asyncio.Handle) -> None:
        began = thread_time()
        run(handle)
        took.append((thread_time() - began) * 1000)

    with patch.object(asyncio.Handle, "_run", timed):
        yield took


async def longest_holds(settings: Settings, asked: Mapping[str, str]) -> Mapping[str, float]:
    """The longest time for which each page holds the event loop, in milliseconds of processor time.

    The least of three tries: what else runs on the machine is not the fault of a page.
    """
    async with Operations.open(settings) as operations:
        tokens = AnonymousAdminAuthenticator(RejectingAuthenticator())
        services = replace(services_without_scheduler(operations, settings), tokens=tokens)

        def fail(error: BaseException) -> None:
            raise error

        app = create_app(
            services,
            on_unexpected_error=fail,
            pages=lambda runner: Dashboard(
                runner,
                IssuerSessions(),
                settings.ui,
                read_jobs=partial(read_jobs_text, settings=settings),
                on_unexpected_error=fail,
            ).handlers(),
        )
        # The first page of a process compiles the templates.
        await _call(app, "/ui/")
        found = {}
        for name, path in asked.items():
            if path not in _NOT_WITHOUT_SCHEDULER:
                await _call(app, path)
                found[name] = min([await _longest_hold(app, path) for _ in range(3)])
        return found


async def _longest_hold(app: Any, path: str) -> float:  # noqa: ANN401 - an ASGI application
    with _timed_callbacks() as took:
        # A callback of its own, so that the time of this one does not count.
        await asyncio.create_task(_call(app, path))
    return max(took)


async def _call(app: Any, path: str) -> None:  # noqa: ANN401 - an ASGI application
    """Ask the application for a page, without a client that takes time of the same loop."""
    target, _, query = path.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": target,
        "raw_path": target.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(b"host", b"127.0.0.1"), (b"accept-encoding", b"gzip")],
        "server": ("127.0.0.1", 80),
        "client": ("127.0.0.1", 1),
        "state": {},
    }
    statuses = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    await app(scope, receive, send)
    assert statuses == [200], (path, statuses)


# ---- the measurement -----------------------------------------------------------------------------


class HistoryResult(NamedTuple):
    """The rows about pages, and about the server while nobody looks."""

    pages: list[list[str]]
    unseen: list[list[str]]


def measure(given: argparse.Namespace, executions: int) -> HistoryResult:
    """Measure every page with so much history."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "gnomon.db"
        settings = load(flags={"database.url": f"sqlite:///{path}"})
        asyncio.run(fill(settings, path, jobs=given.jobs, fires=given.fires, executions=executions))
        asked = questions(path)
        holds = asyncio.run(longest_holds(settings, asked))
        pages: list[list[str]] = []
        with served(folder) as node:
            # Ticks from before the start are caught up first, and are late for another reason.
            sleep(_WARM_SECONDS)
            before = _unseen("before the first page", node.pid, path, executions, given.seconds)
            weights = {title: asyncio.run(weigh(node.address, page)) for title, page in asked.items()}
            after = _unseen("after all pages", node.pid, path, executions, given.seconds)
            for title, page in [*asked.items(), ("each reader another page", "")]:
                since = int(time() * 1000)
                took = asyncio.run(read_pages(node.address, [page] if page else list(asked.values()), given.seconds))
                late, hold, weight = lateness(path, since), holds.get(title), weights.get(title)
                pages.append(
                    [
                        title,
                        f"`{_QUESTIONS.get(title, '')}`" if page else "",
                        f"{executions:,}",
                        f"{took[len(took) // 2]:.1f} ms",
                        f"{took[len(took) * 99 // 100]:.1f} ms",
                        f"{late:.0f} ms",
                        "" if hold is None else f"{hold:.1f} ms",
                        "" if weight is None else f"{weight.wire_bytes / 1024:.0f} KiB",
                        "" if weight is None else f"{weight.elements:,}",
                    ]
                )
        return HistoryResult(pages, [before, after])


def _unseen(when: str, pid: int, path: Path, executions: int, seconds: float) -> list[str]:
    """A row about the server while nobody looks at a page."""
    since, before = int(time() * 1000), server_usage(pid)
    sleep(seconds)
    after = server_usage(pid)
    share = (after.cpu_seconds - before.cpu_seconds) / seconds
    return [when, f"{executions:,}", f"{share:.0%}", f"{after.resident_mb:.0f} MiB", f"{lateness(path, since):.0f} ms"]


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--jobs", type=int, default=10_000)
    arguments.add_argument("--fires", type=int, default=500)
    arguments.add_argument("--executions", type=int, default=1_000_000)
    arguments.add_argument("--seconds", type=float, default=5.0)
    arguments.add_argument("--print-only", action="store_true", help="leave RESULTS.md as it is")
    given = arguments.parse_args()
    pages, unseen = [], []
    for executions in (given.executions // 100, given.executions):
        found = measure(given, executions)
        pages += found.pages
        unseen += found.unseen
    setting = (
        f"{_READERS} readers, each of whom asks once a second, {given.jobs:,} jobs, {given.fires} fires at the same "
        "instant of every second on the same node, a week of executions, and five jobs that fired every second of a "
        "day. A page holds the event loop for the processor time of its longest callback, without a scheduler beside "
        "it. A first visit fetches the page, its style and its script, packed with gzip."
    )
    body = "\n\n".join(
        (setting, table(_PAGE_COLUMNS, pages), "The same server while nobody looks:", table(_UNSEEN_COLUMNS, unseen))
    )
    (print_section if given.print_only else write_section)("Dashboard: pages while the scheduler is busy", body)


if __name__ == "__main__":
    main()
