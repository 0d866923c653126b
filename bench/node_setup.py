"""A node for measurements: real store, real clock, functions that only record when they began."""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import time

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from gnomon.adapters.host import RandomIds, SystemClock
from gnomon.app.node import Node
from gnomon.config.settings import load
from gnomon.ports.runtime import Events
from gnomon.runners.registry import Functions
from gnomon.services.operations.jobs import JobService
from gnomon.services.operations.launcher import Launcher
from support.postgres_server import postgres

FUNCTIONS = Functions()
#: When each body began, in seconds since 1970, and what it was planned for.
STARTED_AT: list[float] = []
PLANNED_AT: list[float] = []


class StepEvents:
    """Collects the events of steps, which are emitted after the commit."""

    def __init__(self) -> None:
        self._succeeded: dict[tuple[object, object], asyncio.Event] = {}

    def emit(self, name: str, **facts: object) -> None:
        """See Events.emit."""
        if name == "task_succeeded":
            self._of(facts["run"], facts["step"]).set()

    async def succeeded(self, run_id: str, step: str) -> None:
        """Wait until the step of the run has succeeded and is committed."""
        await self._of(run_id, step).wait()

    def _of(self, run: object, step: object) -> asyncio.Event:
        return self._succeeded.setdefault((run, step), asyncio.Event())


class NullEvents:
    """Discards all events."""

    def emit(self, name: str, **facts: object) -> None:
        """See Events.emit."""


@FUNCTIONS.function("note")
async def note() -> None:
    """The smallest body: it only records that it began."""
    STARTED_AT.append(time())


@asynccontextmanager
async def node_on(kind: str, events: Events | None = None, **flags: object) -> AsyncIterator[Node]:
    """A node on a fresh SQLite file or PostgreSQL database, and its event sink."""
    STARTED_AT.clear()
    if kind == "SQLite":
        with tempfile.TemporaryDirectory() as folder:
            async with _opened(f"sqlite:///{folder}/gnomon.db", flags, events) as node:
                yield node
    else:
        async with postgres(18).database() as url, _opened(url, flags, events) as node:
            yield node


@asynccontextmanager
async def _opened(url: str, flags: dict[str, object], events: Events | None) -> AsyncIterator[Node]:
    settings = load(flags={"database.url": url, **{name.replace("__", "."): value for name, value in flags.items()}})
    node = await Node.open(settings, events=events or NullEvents(), functions=FUNCTIONS)
    try:
        yield node
    finally:
        await node.close()


def job_service_of(node: Node) -> JobService:
    """The job service of the node."""
    return JobService(node.store.jobs, node.store.schedules, node.store.history, SystemClock(), RandomIds())


def launcher_of(node: Node) -> Launcher:
    """The launcher of the node."""
    return node.launcher


def quantiles(values: list[float], unit: str = "ms") -> str:
    """Median, 99th percentile and the worst."""
    ordered = sorted(values)
    middle, p99 = ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return f"p50 {middle:.1f} {unit}, p99 {p99:.1f} {unit}, worst {ordered[-1]:.1f} {unit}"


@FUNCTIONS.function("note-any")
async def note_any(**given: object) -> None:
    """The same for a body with an input."""
    del given
    STARTED_AT.append(time())
