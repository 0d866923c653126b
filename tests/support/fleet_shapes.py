"""The three shapes of a deployment: one process on a file, workers on PostgreSQL, and workers over NATS."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

from gnomon.adapters.sql.connect import open_store
from gnomon.adapters.sql.store import SqlStore
from support.fleet_topologies import Topology, running_topology
from support.gnomon_processes import GnomonProcess, up
from support.postgres_server import postgres
from support.sqlite_files import new_sqlite_file


class Shape:
    """How the processes of a fleet are started."""

    def __init__(self, url: str, jobs: Path, stack: ExitStack, topology: Topology | None, **more: str) -> None:
        self._url, self._jobs = url, jobs
        #: Whether a second scheduler would wait for the first one.
        self.alone = topology is None
        # However often a killed process has had a task in hand, it is tried again.
        self._environment = {"GNOMON_EXECUTION__MAX_LOSSES": "100", **more}
        self._running = None
        if topology is not None:
            self._running = stack.enter_context(running_topology(topology, url, **self._environment))
            stack.enter_context(self._running.worker())

    @contextmanager
    def scheduler(self) -> Iterator[GnomonProcess]:
        if self._running is None:
            with up(self._url, "--jobs", str(self._jobs), environment=self._environment) as running:
                yield running
        else:
            with self._running.server("--jobs", str(self._jobs)) as running:
                yield running


SHAPES = {"sqlite": None, "postgresql": Topology(), "postgresql nats": Topology(nats=True)}


@asynccontextmanager
async def running_shape(
    name: str, jobs: str, folder: Path, **environment: str
) -> AsyncIterator[tuple[Shape, SqlStore]]:
    file = folder / "jobs.yaml"
    file.write_text(jobs)
    async with AsyncExitStack() as stack:
        if name == "sqlite":
            new_sqlite_file(folder / "gnomon.db")
            url = f"sqlite:///{folder / 'gnomon.db'}"
        else:
            url = await stack.enter_async_context(postgres(18).database())
        store = await open_store(url)
        stack.push_async_callback(store.close)
        with ExitStack() as processes:
            yield Shape(url, file, processes, SHAPES[name], **environment), store
