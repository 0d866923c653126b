"""A write of one process wakes the others at once: none of them polls before the test is over."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from gnomon.adapters.host import SystemClock
from gnomon.app import node as node_module
from gnomon.app import worker as worker_module
from gnomon.app.node import Node
from gnomon.app.operations import Operations
from gnomon.app.settings import schedule_defaults
from gnomon.app.worker import WorkerOptions, WorkerProcess
from gnomon.config.settings import Settings, load
from gnomon.core.jobs.job import read_job
from gnomon.ports.coordination import HintTopic
from gnomon.runners.registry import Functions
from gnomon.testing.clock import Recorder
from support.nats_redis_servers import Nats
from support.postgres_server import postgres

pytestmark = [pytest.mark.guarantee("C5"), pytest.mark.timeout(60)]
#: Sooner than anyone would look without being told: workers and dispatchers every ten seconds, tickers never.
SOON = 8.0
PATIENT = {"ticker.tick_ms": 60_000, "worker.poll_secs": 10}


@pytest.fixture(autouse=True)
def _nobody_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_module, "_POLL_SECONDS", 3600.0)
    monkeypatch.setattr(worker_module, "_POLL_SECONDS", 3600.0)


@pytest.fixture(scope="module")
def nats() -> Iterator[Nats]:
    with Nats() as server:
        yield server


@pytest.fixture(params=["postgresql", "nats"])
async def settings(request: pytest.FixtureRequest) -> AsyncIterator[Settings]:
    bus = (
        {}
        if request.param == "postgresql"
        else {"nats.url": request.getfixturevalue("nats").url, "nats.timeout_ms": 10_000}
    )
    async with postgres(18).database() as url:
        # With a bus nobody listens to PostgreSQL, as behind a pooler.
        yield load(flags={"database.url": url, "database.statement_cache": not bus, **PATIENT, **bus})


class CallCounter:
    """A function, and how often it was called."""

    def __init__(self) -> None:
        self.functions = Functions()
        self.called = asyncio.Condition()
        self.calls = 0
        self.functions.function("greet")(self._greet)

    async def _greet(self) -> None:
        async with self.called:
            self.calls += 1
            self.called.notify_all()

    async def until(self, calls: int) -> None:
        async with asyncio.timeout(SOON), self.called:
            await self.called.wait_for(lambda: self.calls >= calls)


@asynccontextmanager
async def running(node: Node | WorkerProcess) -> AsyncIterator[Node | WorkerProcess]:
    """The node runs, has every shard or none left to take, and hears others."""
    hears = asyncio.Event()
    heard = node.heard

    def hear(topic: HintTopic) -> None:
        heard(topic)
        hears.set()

    node.heard = hear  # type: ignore[method-assign]
    stop = asyncio.Event()
    task = asyncio.create_task(node.run(stop))
    await hears.wait()
    try:
        yield node
    finally:
        stop.set()
        await task
        await node.close()


async def test_jobs_that_operations_registers_and_triggers_run_at_once(settings: Settings) -> None:
    witness = CallCounter()
    node = await Node.open(settings, events=Recorder(), functions=witness.functions)
    async with running(node), Operations.open(settings) as operations:
        job = read_job(
            {"name": "greet", "function": "greet", "overlap": "allow"},
            schedule_defaults(settings),
            now=SystemClock().now(),
        )
        await operations.jobs.apply([job], actor="ada")
        for count in range(1, 4):
            await operations.launcher.trigger("greet", actor="ada")
            await witness.until(count)


async def test_a_schedule_that_operations_registers_fires_on_time(settings: Settings) -> None:
    witness = CallCounter()
    node = await Node.open(settings, events=Recorder(), functions=witness.functions)
    async with running(node), Operations.open(settings) as operations:
        said = {"name": "greet", "function": "greet", "schedule": "* * * * * *", "overlap": "allow"}
        await operations.jobs.apply([read_job(said, schedule_defaults(settings), now=SystemClock().now())], actor="ada")
        await witness.until(2)


async def test_tasks_that_a_server_admits_are_taken_by_a_remote_worker_at_once(settings: Settings) -> None:
    witness = CallCounter()
    server = await Node.open(settings, events=Recorder(), dispatches=True)
    async with running(server), Operations.open(settings) as operations:
        worker = await Node.open(settings, events=Recorder(), functions=witness.functions)
        assert worker.local_execution is not None
        async with running(worker):
            said = {"name": "greet", "function": "greet"}
            await operations.jobs.apply(
                [read_job(said, schedule_defaults(settings), now=SystemClock().now())], actor="ada"
            )
            await operations.launcher.trigger("greet", actor="ada")
            await witness.until(1)


async def test_a_process_that_only_executes_takes_at_once_what_a_server_lets_through_and_wakes_it_for_what_follows(
    settings: Settings,
) -> None:
    witness = CallCounter()
    server = await Node.open(settings, events=Recorder(), dispatches=True)
    shop = await WorkerProcess.open(WorkerOptions(settings=settings, functions=witness.functions, events=Recorder()))
    async with running(server), running(shop), Operations.open(settings) as operations:
        steps = [{"step": "first", "function": "greet"}, {"step": "last", "function": "greet", "depends_on": ["first"]}]
        said = {"name": "twice", "dag": steps}
        await operations.jobs.apply([read_job(said, schedule_defaults(settings), now=SystemClock().now())], actor="ada")
        await operations.launcher.trigger("twice", actor="ada")
        await witness.until(2)
