"""A whole fleet for fault tests: servers, workers, shared services and proxies between them, under load.

Every process logs to a file, so that none of them waits for a reader.
"""

import asyncio
import contextlib
import itertools
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gnomon.adapters.host import RandomIds, SystemClock
from gnomon.adapters.sql.connect import open_postgres, open_store
from gnomon.adapters.sql.schema import shard
from gnomon.adapters.sql.store import SqlStore
from gnomon.core.model import Overlap, Run, RunId
from gnomon.errors import Unavailable
from gnomon.services.operations.launcher import Launcher
from gnomon.services.operations.schedules import ScheduleService
from support.effect_functions import Effect, read_effects
from support.fault_proxy import FaultProxy
from support.fleet_processes import all_runs
from support.gnomon_processes import TESTS
from support.nats_redis_servers import Nats, Redis
from support.nats_users import PASSWORDS, NatsCluster, nats_with_users
from support.pooler import Pooler
from support.postgres_server import Postgres

#: A fault that lasts longer than this costs leases.
LEASE_MS = 2_000
PAST_LEASE_SECONDS = 3.0
#: Short leases, so that losses are noticed soon; and no worker counts as overloaded, however busy the machine is.
_QUICK = {
    "GNOMON_WORKER__LEASE_MS": str(LEASE_MS),
    "GNOMON_WORKER__POLL_SECS": "5",
    "GNOMON_RECONCILER__POLL_MS": "300",
    "GNOMON_RECONCILER__PENDING_MS": "3000",
    "GNOMON_RECONCILER__SETTLED_MS": "3000",
    "GNOMON_LEADER__TTL_MS": str(LEASE_MS),
    "GNOMON_LEADER__RENEW_INTERVAL_MS": "500",
    "GNOMON_LEADER__CLAIM_INTERVAL_MS": "200",
    "GNOMON_DATABASE__MAX_CONNECTIONS": "4",
    "GNOMON_DATABASE__PATIENCE_MS": "1500",
    "GNOMON_NATS__TIMEOUT_MS": "1000",
    "GNOMON_REDIS__TIMEOUT_MS": "300",
    "GNOMON_ROUTING__OVERLOAD_PERCENT": "100000",
    "GNOMON_METRICS__ENABLED": "false",
    "GNOMON_AUTH__VERIFY_TOKENS": "false",
    "GNOMON_AUTH__ACCEPT_UNVERIFIED": "true",
    "PYTHONUNBUFFERED": "1",
}
_JOBS = """
jobs:
  - {name: every-second, function: effects/coroutine, schedule: "* * * * * *", overlap: allow, catchup: all}
  - {name: quick, function: effects/coroutine, overlap: allow}
  - {name: slow, function: effects/thread, overlap: allow, input: {seconds: 0.2}}
  - {name: once, function: effects/thread, overlap: allow, delivery: at_most_once, dead_letter: true}
  - name: graph
    overlap: allow
    dag:
      - {step: extract, function: effects/coroutine}
      - {step: left, function: effects/thread, depends_on: [extract]}
      - {step: right, function: effects/coroutine, depends_on: [extract]}
      - {step: load, function: effects/coroutine, depends_on: [left, right]}
"""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """The jobs of a fleet, whose functions are those of `support.effect_functions`."""

    #: The jobs file.
    file: str
    #: The jobs that are triggered.
    triggered: tuple[str, ...]
    #: The jobs with ticks, which are paused in the end.
    ticking: tuple[str, ...]
    #: The jobs with retries, and how many attempts each may have.
    max_attempts: Mapping[str, int] = field(default_factory=dict)
    #: How long a failed task of a job with one retry waits for it.
    retry_delays_ms: Mapping[str, int] = field(default_factory=dict)
    #: The jobs whose failures leave a dead letter; the others leave one only if they took down their workers.
    dead_letters: frozenset[str] = frozenset()
    #: The jobs that start once at most.
    at_most_once: frozenset[str] = frozenset()
    #: The jobs that admit one run at a time, and how.
    one_at_a_time: Mapping[str, Overlap] = field(default_factory=dict)
    #: Settings of every process.
    settings: Mapping[str, str] = field(default_factory=dict)


#: A tenth of the shipped configuration, because leases are shorter, too.
_QUICK_PINGS = 'ping_interval: "1s"\nping_max: 2\n'
TICKING_JOB = "every-second"
ONE_SCHEDULE = Workload(
    file=_JOBS,
    triggered=("quick", "slow", "once", "graph"),
    ticking=(TICKING_JOB,),
    at_most_once=frozenset({"once"}),
    dead_letters=frozenset({"once"}),
)
#: A process logs one of these once it has started.
READY = ("answering on", "works for the pool", "Ctrl-C stops", "standing by")
#: Between two processes that use the clock of the store.
_CLOCKS_DIFFER_MS = 1_000


@dataclass(frozen=True, kw_only=True)
class ChaosTopology:
    """The services besides PostgreSQL, and the number of gnomon processes."""

    nats: bool = False
    cluster: bool = False
    redis: bool = False
    #: A pooler gives each transaction another session of PostgreSQL.
    pooled: bool = False
    #: Every other server uses a second Redis, independent of the first.
    split: bool = False
    servers: int = 2
    workers: int = 2
    #: By how much the clocks of servers are wrong, in milliseconds.
    skews: Sequence[int] = ()
    #: The same of workers.
    worker_skews: Sequence[int] = ()
    #: All of it on one SQLite file: servers execute, too, and all but one stand by.
    sqlite: bool = False
    #: The clock of each server can be set while it runs.
    settable_clocks: bool = False

    @property
    def bus(self) -> bool:
        """Whether workers are reached over NATS."""
        return self.nats or self.cluster

    @property
    def skew_ms(self) -> int:
        """By how much timestamps of two processes at one moment may differ, however wrong their machines' clocks are.

        All of them use the clock of the store, with a tolerance of half a second each.
        """
        return _CLOCKS_DIFFER_MS if any((*self.skews, *self.worker_skews)) else 0


class LoggedProcess:
    """A gnomon process and its log file."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.log = log
        path = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))
        with log.open("wb") as said:
            self._process = subprocess.Popen(
                command,
                cwd=TESTS,
                env={**os.environ, "PYTHONPATH": path, **environment},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def has_logged(self, *texts: str) -> bool:
        """Whether it has logged one of these texts; it must not have ended before."""
        said = self.log.read_text()
        assert self.runs or any(text in said for text in texts), said[-3000:]
        return any(text in said for text in texts)

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        self.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.signal(signal.SIGCONT)

    async def ended(self) -> int:
        """Wait until it ends by itself; return its exit code."""
        while self.runs:  # noqa: ASYNC110 - a process that ends sets no event of ours
            await asyncio.sleep(0.02)
        return self._process.returncode


@dataclass(kw_only=True)
class ChaosFleet:
    """The running fleet, its proxies, and the records for the checker."""

    folder: Path
    shape: ChaosTopology
    workload: Workload
    #: None on a file.
    postgres: Postgres | None
    database: str
    store: SqlStore
    nats: Nats | NatsCluster | None = None
    redis: Redis | None = None
    other_redis: Redis | None = None
    #: The proxies by client and server: "server-db", "worker-db", "server-nats", "worker-nats", "server-redis".
    proxies: dict[str, FaultProxy] = field(default_factory=dict)
    servers: list[LoggedProcess] = field(default_factory=list)
    workers: list[LoggedProcess] = field(default_factory=list)
    #: Processes started from now on connect directly, without proxies.
    direct: bool = False
    #: The period whose writes were lost: bodies that began in it may have begun again.
    forgotten: tuple[int, int] = (0, 0)
    #: The defect that is planted in every process; none if it is empty.
    defect: str = ""
    #: The standby that may replace PostgreSQL.
    standby: Postgres | None = None
    #: Runs that the API has confirmed.
    promised: set[RunId] = field(default_factory=set)
    #: The times at which faults were in force, in milliseconds.
    fault_windows: list[tuple[int, int]] = field(default_factory=list)
    #: The observed holders by shard and term.
    holders: dict[tuple[int, int], set[str]] = field(default_factory=lambda: defaultdict(set))
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def pg(self) -> Postgres:
        """The PostgreSQL of this fleet, which is not on a file."""
        assert self.postgres is not None
        return self.postgres

    # ---- processes ---------------------------------------------------------------------------

    def start_server(self, *, skew_ms: int = 0) -> LoggedProcess:
        """Start a server; on a file, a process that also executes."""
        command = [
            *self._program(skew_ms, self.clock_file(len(self.servers))),
            "server",
            "--database",
            self._url("server-db"),
            "--port",
            "0",
        ]
        if self.shape.sqlite:
            command[command.index("server")] = "up"
            command += ["--import", "support.effect_functions", "--slots", "20"]
        proc = self._start([*command, "--jobs", str(self.folder / "jobs.yaml")], "server")
        self.servers.append(proc)
        return proc

    def start_worker(self, *, skew_ms: int = 0) -> LoggedProcess:
        command = [*self._program(skew_ms), "worker", "--import", "support.effect_functions", "--slots", "20"]
        # Over the bus it has no database: the address comes from the environment.
        command += [] if self.shape.bus else ["--database", self._url("worker-db")]
        proc = self._start(command, "worker")
        self.workers.append(proc)
        return proc

    def clock_file(self, number: int) -> Path:
        """The file with the offset of the clock of the server with that number."""
        return self.folder / f"clock{number}"

    def _program(self, skew_ms: int, clock: Path | None = None) -> list[str]:
        """The command of `gnomon`, with a planted defect, a clock that can be set, or a clock that is wrong."""
        if self.defect:
            return [sys.executable, str(TESTS / "support" / "defective_process.py"), self.defect]
        if self.shape.settable_clocks and clock is not None:
            return [sys.executable, str(TESTS / "support" / "settable_clock_process.py"), str(clock)]
        if skew_ms:
            return [sys.executable, str(TESTS / "support" / "skewed_clock_process.py"), str(skew_ms)]
        return [sys.executable, "-m", "gnomon"]

    def _start(self, command: Sequence[str], role: str) -> LoggedProcess:
        return LoggedProcess(command, self._environment(role), self.folder / f"{role}{next(self._numbers)}.log")

    def _environment(self, role: str) -> dict[str, str]:
        said = {
            **_QUICK,
            **self.workload.settings,
            "GNOMON_WITNESS": str(self.folder / "witness"),
            "GNOMON_WORKER__SLOTS": "20",
        }
        if self.shape.pooled:
            said["GNOMON_DATABASE__STATEMENT_CACHE"] = "false"
        if self.nats is not None:
            user = "scheduler" if role == "server" else "worker"
            wire = None if self.direct else self.proxies.get(f"{role}-nats")
            said["GNOMON_NATS__URL"] = self.nats.url if wire is None else f"nats://127.0.0.1:{wire.port}"
            said |= {"GNOMON_NATS__USER": user, "GNOMON_NATS__PASSWORD": PASSWORDS[user]}
            said["GNOMON_NATS__REPLICAS"] = "3" if self.shape.cluster else "1"
        if self.redis is not None and role == "server":
            said["GNOMON_REDIS__URL"] = self._redis_url(self.redis)
        return said

    def _redis_url(self, first: Redis) -> str:
        if self.other_redis is not None:
            return (first, self.other_redis)[len(self.servers) % 2].url
        return f"redis://127.0.0.1:{self.proxies['server-redis'].port}/0"

    def _url(self, wire: str) -> str:
        if self.direct or self.shape.sqlite:
            return self.database
        return self.database.replace(f":{self.pg.port}/", f":{self.proxies[wire].port}/")

    async def ready(self, procs: Sequence[LoggedProcess]) -> None:
        """Wait until all processes have started."""
        await wait_until(lambda: _all_say(procs, *READY))

    async def all_known(self) -> bool:
        """Whether all workers are registered."""
        return self.shape.sqlite or len(await self.store.workers.alive()) == len(self.workers)

    # ---- load --------------------------------------------------------------------------------

    async def trigger_runs(self, count: int = 1) -> None:
        """Trigger runs of every job; remember those that were confirmed."""
        launcher = Launcher(
            self.store.runs, self.store.executions, self.store.jobs, self.store.schedules, SystemClock(), RandomIds()
        )
        for job in self.workload.triggered * count:
            with contextlib.suppress(Unavailable):
                done = await launcher.trigger(job, actor="test", key=f"wish {next(self._numbers)}")
                self.promised.add(done.run_id)

    async def generate_load(self, stop: asyncio.Event) -> None:
        """Generate a little load until `stop` is set, and record the holders of shards meanwhile."""
        while not stop.is_set():
            await self.trigger_runs()
            with contextlib.suppress(Unavailable):
                await self.record_shard_holders()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), 0.2)

    async def record_shard_holders(self) -> None:
        for row in await self.store.transactions.read(lambda conn: list(conn.execute(shard.select()))):
            if row.holder is not None:
                self.holders[row.shard, row.term].add(row.holder)

    # ---- waiting -----------------------------------------------------------------------------

    def effects(self) -> list[Effect]:
        return read_effects(self.folder / "witness")

    async def wait_for_effects(self, count: int = 20) -> None:
        """Wait until so many more bodies have begun or ended."""
        wanted = len(self.effects()) + count
        await wait_until(lambda: _as_condition(len(self.effects()) >= wanted))

    async def wait_for_effects_of(self, proc: LoggedProcess) -> None:
        """Wait until the process has started a body."""
        await wait_until(lambda: _as_condition(any(one.pid == proc.pid for one in self.effects())))

    async def wait_until_decided(self, seconds: float = 1) -> None:
        """Wait until all ticks up to that time from now are decided."""
        moment = SystemClock().now() + round(seconds * 1000)

        async def is_decided() -> bool:
            found = [await self.store.schedules.find("default", name) for name in self.workload.ticking]
            return all(one is not None and (one.paused_at is not None or one.mark_at >= moment) for one in found)

        await wait_until(is_decided)

    async def runs(self) -> list[Run]:
        return await all_runs(self.store)

    async def drain(self) -> None:
        """Pause all jobs and wait until every run has ended."""
        await wait_until(self._paused)

        async def over() -> bool:
            return all(run.over for run in await self.runs())

        await wait_until(over)

    async def _paused(self) -> bool:
        schedules = ScheduleService(self.store.schedules, self.store.history, SystemClock(), RandomIds())
        for name in self.workload.ticking:
            await schedules.pause(name, actor="test")
        return True

    async def stop_processes(self) -> None:
        """Stop every process that still runs, gracefully."""
        running = [proc for proc in [*self.workers, *self.servers] if proc.runs]
        for proc in running:
            proc.signal(signal.SIGTERM)
        for proc in running:
            assert await proc.ended() == 0, proc.log.read_text()[-3000:]


async def _all_say(procs: Sequence[LoggedProcess], *texts: str) -> bool:
    return all(proc.has_logged(*texts) for proc in procs)


async def _as_condition(answer: bool) -> bool:  # noqa: FBT001 - a condition as such
    return answer


async def wait_until(condition: Callable[[], Awaitable[bool]], *, within: float = 180) -> None:
    """Wait for a condition that other processes bring about; an unavailable store counts as not yet."""
    deadline = time.monotonic() + within
    while True:
        with contextlib.suppress(Unavailable):
            if await condition():
                return
        assert time.monotonic() < deadline, "it did not come to that"
        await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def chaos_fleet(
    folder: Path,
    shape: ChaosTopology,
    pg: Postgres | None,
    database: str,
    *,
    workload: Workload = ONE_SCHEDULE,
    defect: str = "",
) -> AsyncIterator[ChaosFleet]:
    """Start a fleet of that topology; yield it once all of it runs, and remove it at the end."""
    (folder / "jobs.yaml").write_text(workload.file)
    if pg is None:
        store = await open_store(database)
    else:
        store = await open_postgres(database, pool_size=2, patience_ms=1500)
    chaos_run = ChaosFleet(
        folder=folder, shape=shape, workload=workload, postgres=pg, database=database, store=store, defect=defect
    )
    with contextlib.ExitStack() as stack:
        if shape.cluster:
            chaos_run.nats = stack.enter_context(NatsCluster())
        elif shape.nats:
            chaos_run.nats = stack.enter_context(nats_with_users(_QUICK_PINGS))
        if shape.redis:
            chaos_run.redis = stack.enter_context(Redis())
        if shape.split:
            chaos_run.other_redis = stack.enter_context(Redis())
        for name, port in _endpoints(chaos_run, stack).items():
            chaos_run.proxies[name] = stack.enter_context(FaultProxy(port))
        try:
            skews = [*shape.skews, *[0] * shape.servers][: shape.servers]
            worker_skews = [*shape.worker_skews, *[0] * shape.workers][: shape.workers]
            # All at once, as when a whole site comes up: the first process creates the streams and registers the jobs.
            servers = [chaos_run.start_server(skew_ms=skew) for skew in skews]
            await chaos_run.ready([*servers, *(chaos_run.start_worker(skew_ms=skew) for skew in worker_skews)])
            # A run that is triggered before a worker is known waits until its next try.
            await wait_until(chaos_run.all_known)
            yield chaos_run
        finally:
            for proc in [*chaos_run.servers, *chaos_run.workers]:
                proc.kill()
            await chaos_run.store.close()
            if chaos_run.standby is not None:
                chaos_run.standby.remove()


def _endpoints(chaos_run: ChaosFleet, stack: contextlib.ExitStack) -> dict[str, int]:
    ends: dict[str, int] = {}
    if chaos_run.postgres is not None:
        port = chaos_run.postgres.port
        ends["server-db"] = stack.enter_context(Pooler(port)).port if chaos_run.shape.pooled else port
        ends["worker-db"] = ends["server-db"]
    if isinstance(chaos_run.nats, Nats):
        ends |= {"server-nats": chaos_run.nats.port, "worker-nats": chaos_run.nats.port}
    if chaos_run.redis is not None:
        ends["server-redis"] = chaos_run.redis.port
    return ends
