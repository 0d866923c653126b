"""Deployments of every shape with jobs of every kind, whose metrics are scraped."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import sqlalchemy as sa
from msgspec.structs import replace
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

import gnomon
from gnomon.app.node import Node
from gnomon.app.remote_worker import RemoteWorkerOptions, run_remote_worker
from gnomon.app.server import ServerOptions, serve
from gnomon.app.worker import WorkerOptions, run_worker
from gnomon.config.settings import Settings, load
from gnomon.runners.registry import Functions
from gnomon.testing.clock import Recorder
from support.nats_users import PASSWORDS, nats_with_users
from support.postgres_server import postgres
from support.row_editing import transactions_of

PREFIX = "hanzo_scheduler_"
CANARY = "correct-horse-battery"
JOBS = """
jobs:
  - {name: beat, function: fine, every: 200ms}
  - {name: fails, function: fails, topic: failures, overlap: allow, dead_letter: true,
     retry: {max_attempts: 3, initial_delay: 10ms}, input: {token: correct-horse-battery}}
  - {name: slow, function: slow, every: 200ms, overlap: skip, lock: true}
  - {name: lost, function: nowhere, overlap: allow}
  - {name: replaced, function: slow, overlap: replace}
  - {name: in-line, function: slow, overlap: queue}
  - name: waits
    overlap: allow
    dag:
      - {step: later, delay: 1h}
      - {step: after, function: fine, depends_on: [later]}
  - name: stuck
    overlap: allow
    dag:
      - {step: each, function: fails, foreach: [1, 2], retry: {max_attempts: 5, initial_delay: 1h}}
  - name: graph
    overlap: allow
    dag:
      - {step: first, function: fine}
      - {step: bad, function: fails, depends_on: [first]}
      - {step: never, function: fine, depends_on: [bad]}
  - name: wide
    overlap: allow
    dag:
      - {step: list, function: three}
      - {step: each, function: fine-any, depends_on: [list], foreach: "${steps.list.output}"}
      - {step: inner, workflow: beat, depends_on: [each]}
"""


def functions(release: asyncio.Event) -> Functions:
    """Bodies of every kind; the slow ones end when they are told, however long that takes."""
    made = Functions()

    @made.function("fine")
    async def fine() -> None:
        """Ends well."""

    @made.function("fine-any")
    async def fine_any(**given: object) -> None:
        """Ends well, whatever it is given."""
        del given

    @made.function("three")
    async def three() -> list[int]:
        return [1, 2, 3]

    @made.function("fails")
    async def fails(**given: object) -> None:
        raise RuntimeError(f"no: {given}")

    @made.function("slow")
    async def slow(ctx: gnomon.Context) -> None:
        # It runs on a loop of its own, to which the event of ours means nothing.
        while not release.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        del ctx

    return made


class Served:
    """A server that runs, perhaps with a worker beside it, and where it can be looked at."""

    def __init__(self, node: Node, events: Recorder, release: asyncio.Event, *, alone: bool = True) -> None:
        self.node = node
        self.release = release
        #: Whether the server executes tasks itself; otherwise `no_worker` stops its worker.
        self.alone = alone
        self.no_worker = asyncio.Event()
        [shown] = [facts for name, facts in events.seen if name == "metrics_shown"]
        self._address = f"http://127.0.0.1:{shown['port']}"

    async def get(self, path: str) -> tuple[int, str]:
        """The page of the address, and its status."""

        def asked() -> tuple[int, str]:
            try:
                with urlopen(self._address + path, timeout=10) as answer:  # noqa: S310 - our own server
                    return answer.status, answer.read().decode()
            except HTTPError as error:
                with error:
                    return error.code, error.read().decode()

        return await asyncio.to_thread(asked)

    async def families(self) -> dict[str, Metric]:
        """The scraped page, read by Prometheus's own parser."""
        status, text = await self.get("/metrics")
        assert status == 200
        return {family.name: family for family in text_string_to_metric_families(text)}

    async def whole_families(self) -> dict[str, Metric]:
        """The scraped page, with the figures of the store: on a busy machine it may not answer a scrape in time."""
        async with asyncio.timeout(30):
            while not (found := await self.families())[PREFIX + "workers_alive"].samples:
                continue
        return found

    async def counted(self, name: str, *labels: str) -> Counter[tuple[str, ...]]:
        """The numbers of a counter by some of its labels, without those that are nought."""
        found: Counter[tuple[str, ...]] = Counter()
        for sample in (await self.families())[PREFIX + name].samples:
            if sample.name.endswith(("_total", "_count")):
                found[tuple(sample.labels[label] for label in labels)] += int(sample.value)
        return +found

    async def counted_workers(self) -> int:
        """How many workers are alive; on a busy machine the store may not answer in time, and nothing is shown."""
        return sum(int(sample.value) for sample in (await self.families())[PREFIX + "workers_alive"].samples)

    async def rows(self, query: str) -> Counter[tuple[str, ...]]:
        """The counts of the rows: the last column is the number."""

        def read(conn: sa.Connection) -> list[Any]:
            return list(conn.execute(sa.text(query)))

        found = await transactions_of(self.node.store).read(read)
        return +Counter({tuple(map(str, labels)): int(count or 0) for *labels, count in found})

    async def until(self, condition: Callable[[], Awaitable[object]]) -> None:
        """Wait for what the node does: there is nothing to await."""
        async with asyncio.timeout(30):
            while not await condition():  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    async def trigger(self, job: str) -> str:
        """A run that someone asked for."""
        done = await self.node.launcher.trigger(job, actor="ada")
        self.node.check_soon()
        return done.run_id

    async def rest(self) -> None:
        """No tick comes any more, and all runs are over."""
        for job in ("beat", "slow"):
            await self.node.schedules.pause(job, actor="ada")
        await self.all_ended()

    async def all_ended(self) -> None:
        """All runs are over, and what they left is counted."""
        self.release.set()
        self.node.check_soon()

        async def over() -> bool:
            return not await self.rows("SELECT 'open', count(*) FROM run WHERE completed_at IS NULL")

        await self.until(over)
        await self.reported()
        # Commits of a worker are counted at the next step of the server.
        await self.until(lambda: self._nothing_left("metrics_outbox"))

    async def _nothing_left(self, table: str) -> bool:
        return not await self.rows(f"SELECT 'left', count(*) FROM {table}")  # noqa: S608 - our own name

    async def reported(self) -> None:
        """The counters include every commit so far: commits are reported in the order in which they were written."""
        await transactions_of(self.node.store).write(lambda _: None)


#: Starts the worker of a server: its options are the settings, the functions, and the event that stops it.
WorkerBeside = Callable[[Settings, Functions, asyncio.Event], Awaitable[None]]


async def on_the_database(settings: Settings, functions: Functions, stop: asyncio.Event) -> None:
    await run_worker(WorkerOptions(settings=settings, functions=functions, events=Recorder()), stop)


async def another_server_has_one(settings: Settings, functions: Functions, stop: asyncio.Event) -> None:
    """No worker of its own: the tasks go to that of another server."""
    del settings, functions
    await stop.wait()


async def over_nats(settings: Settings, functions: Functions, stop: asyncio.Event) -> None:
    nats = replace(settings.nats, user="worker", password=PASSWORDS["worker"])
    without_database = replace(settings, nats=nats, database=replace(settings.database, url="sqlite:///nowhere.db"))
    await run_remote_worker(
        RemoteWorkerOptions(settings=without_database, functions=functions, events=Recorder()), stop
    )


@asynccontextmanager
async def served(
    url: str, folder: Path, *, worker: WorkerBeside | None = None, jobs: str = JOBS, **flags: object
) -> AsyncIterator[Served]:
    """A server that executes tasks itself, or has a worker beside it."""
    file = folder / "jobs.yaml"
    file.write_text(jobs)
    events, release, stop = Recorder(), asyncio.Event(), asyncio.Event()
    up: asyncio.Future[Node] = asyncio.get_running_loop().create_future()
    said = {"database.url": url, "metrics.port": 0, "worker.drain_ms": 0, "execution.max_routings": 1}
    settings = load(flags={**said, **{name.replace("__", "."): value for name, value in flags.items()}})
    made = functions(release)
    plan = ServerOptions(
        settings=settings,
        jobs_files=[file],
        functions=made if worker is None else Functions(),
        events=events,
        executes=worker is None,
    )
    running = asyncio.create_task(serve(plan, stop, ready=up.set_result))
    beside: list[asyncio.Task[None]] = []
    try:
        running.add_done_callback(lambda _: up.done() or up.cancel())
        one = Served(await up, events, release, alone=worker is None)
        if worker is not None:
            beside = [asyncio.ensure_future(worker(settings, made, one.no_worker))]
            # Without the worker nothing could be routed.
            await one.until(one.counted_workers)
        yield one
    finally:
        release.set()
        if beside:
            one.no_worker.set()
            await beside[0]
        stop.set()
        await running


@asynccontextmanager
async def shaped(shape: str, folder: Path, **options: Any) -> AsyncIterator[Served]:  # noqa: ANN401 - of a server
    """A deployment of this shape."""
    if shape == "sqlite":
        async with served(f"sqlite:///{folder}/gnomon.db", folder, **options) as one:
            yield one
        return
    async with postgres(18).database() as url:
        if shape == "postgres":
            async with served(url, folder, **options) as one:
                yield one
        elif shape == "postgres and workers":
            async with served(url, folder, worker=on_the_database, **options) as one:
                yield one
        else:
            with nats_with_users() as nats:
                said = {"nats__url": nats.url, "nats__user": "scheduler", "nats__password": PASSWORDS["scheduler"]}
                async with served(url, folder, worker=over_nats, **said, **options) as one:
                    yield one


#: The shapes of a deployment: one process; servers and workers on a database; workers over NATS.
SHAPES = ["sqlite", "postgres and workers", "postgres and nats"]
