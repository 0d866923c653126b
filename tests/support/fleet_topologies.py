"""The topologies of a fleet: the same commands, with and without NATS and Redis."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from support.fleet_processes import QUICK, environment_of, run_process
from support.gnomon_processes import GnomonProcess
from support.nats_redis_servers import Nats, Redis
from support.nats_users import nats_with_users


@dataclass(frozen=True)
class Topology:
    """One way to set up servers and workers on a PostgreSQL database."""

    nats: bool = False
    redis: bool = False

    def __str__(self) -> str:
        return "postgresql" + (" nats" if self.nats else "") + (" redis" if self.redis else "")


TOPOLOGIES = [Topology(nats=nats, redis=redis) for nats in (False, True) for redis in (False, True)]


@dataclass
class RunningTopology:
    """A topology with its services running, and the commands that start processes."""

    shape: Topology
    url: str
    nats: Nats | None
    redis: Redis | None
    #: More options for all processes.
    more: Mapping[str, str]

    def _environment(self, user: str) -> dict[str, str]:
        bus = {} if self.nats is None else environment_of(self.nats, user)
        keeping = {} if self.redis is None else {"GNOMON_REDIS__URL": self.redis.url}
        busy = {"GNOMON_ROUTING__OVERLOAD_PERCENT": "100000", "GNOMON_METRICS__ENABLED": "false"}
        return {**QUICK, **busy, **bus, **keeping, **self.more}

    @contextmanager
    def server(self, *arguments: str) -> Iterator[GnomonProcess]:
        """`gnomon server`, once it runs."""
        command = [sys.executable, "-m", "gnomon", "server", "--database", self.url, "--port", "0", *arguments]
        with run_process(command, self._environment("scheduler"), "Ctrl-C stops") as running:
            yield running

    @contextmanager
    def worker(self, *arguments: str, **environment: str) -> Iterator[GnomonProcess]:
        """`gnomon worker`, once it runs: on the database, or over NATS without its address."""
        reported = {"--database", "--nats"} & set(arguments)
        place = ("--database", self.url) if self.nats is None and not reported else ()
        command = [sys.executable, "-m", "gnomon", "worker", *place, "--import", "support.witness", *arguments]
        with run_process(command, {**self._environment("worker"), **environment}, "Ctrl-C stops") as running:
            yield running


@contextmanager
def running_topology(shape: Topology, url: str, **environment: str) -> Iterator[RunningTopology]:
    """Start the services that the topology needs besides PostgreSQL."""
    with ExitStack() as stack:
        nats = stack.enter_context(nats_with_users()) if shape.nats else None
        redis = stack.enter_context(Redis()) if shape.redis else None
        yield RunningTopology(shape, url, nats, redis, environment)
