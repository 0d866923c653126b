"""The table of faults for a fleet under load, each with its number in the documented matrix of faults."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from chaos import failover, resource_exhaustion
from chaos import fault_injection as do
from gnomon.adapters.nats.leases import BUCKET
from gnomon.core.subjects import REPORTS, SCHEDULERS, WORK, consumer_name
from support.chaos_fleet import ChaosFleet, ChaosTopology
from support.fault_proxy import WireFault as Wire

PG = ChaosTopology()
BUS = ChaosTopology(nats=True)
SHARED = ChaosTopology(redis=True)
CLUSTER = ChaosTopology(cluster=True)
POOLED = ChaosTopology(pooled=True)
SPLIT = ChaosTopology(redis=True, split=True)
_HOUR = 3_600_000
InjectFault = Callable[[ChaosFleet], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class FaultCase:
    """One fault."""

    name: str
    #: Its number in the matrix of faults; several, if it covers them together.
    number: str
    shape: ChaosTopology
    hurt: InjectFault
    #: Guarantees besides those that every test checks.
    proves: tuple[str, ...]
    #: Whether it is among the few that every run of the tests includes.
    short: bool = False
    #: Needs a disk that can be filled, which only root can mount.
    small_disk: bool = False
    #: Needs a server of its own, because it does not come back.
    own_pg: bool = False


def _processes(shape: ChaosTopology, where: str) -> list[FaultCase]:
    """Faults of gnomon processes, in every topology."""
    rows: list[tuple[str, str, InjectFault, tuple[str, ...]]] = [
        ("a server is killed", "F01 F02", do.a_server_killed, ("C1", "C3")),
        ("a server is killed again and again", "F12", do.a_server_killed_again_and_again, ("S10", "S17")),
        ("all servers are killed", "F11", partial(do.all_killed, servers=True, workers=False), ("C2", "S10")),
        ("the machines of all servers vanish", "F11 F41", do.servers_vanish, ("C2", "C7")),
        ("a server stops", "F06", do.a_server_stopped, ("S26",)),
        ("a server is frozen past its leases", "F08", do.a_server_frozen, ("C3", "C4")),
        ("a server stutters", "F10 F17", do.a_server_stutters, ("C3", "S17")),
        ("a worker is killed", "F03 F04", do.a_worker_killed, ("S4", "S5", "S18")),
        ("all workers are killed", "F05", partial(do.all_killed, servers=False, workers=True), ("S4", "S5")),
        ("all of it is killed", "F11", partial(do.all_killed, servers=True, workers=True), ("C2", "S5")),
        ("all of it is frozen", "F08 F09", do.all_frozen, ("C4", "S17")),
        ("a worker stops", "F06", do.a_worker_stopped, ("S26",)),
        ("a worker is frozen past its lease", "F09 F56", do.a_worker_frozen, ("C4", "S7", "S9")),
    ]
    return [
        FaultCase(name=f"{name} {where}", number=number, shape=shape, hurt=hurt, proves=proves)
        for name, number, hurt, proves in rows
    ]


def _database(shape: ChaosTopology, where: str, *, short: frozenset[str] = frozenset()) -> list[FaultCase]:
    """Faults of PostgreSQL."""
    rows = [
        ("PostgreSQL is killed", "F40", do.pg_killed, ("C7", "C8")),
        ("PostgreSQL is stopped for longer than leases last", "F40 F41", do.pg_stopped, ("C7", "S10")),
        ("PostgreSQL is frozen past all leases", "F41", do.pg_frozen, ("C4", "C7")),
        ("PostgreSQL hangs up again and again", "F47", do.pg_hangs_up, ("C8", "S17")),
        ("PostgreSQL writes nothing for a while", "F37", do.pg_read_only, ("C7",)),
        ("tables are locked for longer than leases last", "F49", do.pg_locked, ("C7", "S10")),
    ]
    return [
        FaultCase(name=f"{name} {where}", number=number, shape=shape, hurt=hurt, proves=proves, short=name in short)
        for name, number, hurt, proves in rows
    ]


def _wires(
    shape: ChaosTopology, wire: str, number: str, *, slow: float, short: frozenset[str] = frozenset()
) -> list[FaultCase]:
    """Faults of a connection."""
    between = f"the wire {wire}"
    rows = [
        (f"{between} is cut", partial(do.wire_fault, name=wire, fault=Wire.CUT)),
        (f"{between} carries nothing", partial(do.wire_fault, name=wire, fault=Wire.DEAF)),
        (f"{between} loses answers", partial(do.wire_fault, name=wire, fault=Wire.MUTE)),
        (f"{between} loses questions", partial(do.wire_fault, name=wire, fault=Wire.UNHEARD)),
        (f"{between} is slow", partial(do.slow_wire, name=wire, seconds=slow)),
    ]
    proves = {"db": ("C4", "C7", "C8"), "nats": ("C4", "C5"), "redis": ("C6",)}[wire.partition("-")[2]]
    return [
        FaultCase(name=name, number=number, shape=shape, hurt=hurt, proves=proves, short=name in short)
        for name, hurt in rows
    ]


def _bus() -> list[FaultCase]:
    """Faults of NATS and its stored messages."""
    rows: list[tuple[str, str, InjectFault]] = [
        ("NATS is killed", "F52", do.nats_killed),
        ("NATS is stopped for longer than leases last", "F61", do.nats_stopped),
        ("NATS is frozen past all leases", "F61", do.nats_frozen),
        ("NATS comes back with nothing", "F58", do.nats_wiped),
        ("the stream of work is deleted", "F57", partial(do.stream_deleted, stream=WORK)),
        ("the stream of reports is deleted", "F57", partial(do.stream_deleted, stream=REPORTS)),
        ("the consumer of work is deleted", "F57", partial(do.consumer_deleted, stream=WORK, consumer=consumer_name())),
        (
            "the consumer of reports is deleted",
            "F57",
            partial(do.consumer_deleted, stream=REPORTS, consumer=SCHEDULERS),
        ),
        ("work is purged", "F57", partial(do.stream_purged, stream=WORK)),
        ("reports are purged", "F57", partial(do.stream_purged, stream=REPORTS)),
        ("the bucket of leases is deleted", "F59", partial(do.stream_deleted, stream=f"KV_{BUCKET}")),
        (
            "every message is doubled and comes again in the opposite order",
            "F53 F54",
            do.messages_duplicated_and_reordered,
        ),
        ("the stream of work is full", "F60", partial(resource_exhaustion.stream_full, stream=WORK)),
        ("the stream of reports is full", "F60", partial(resource_exhaustion.stream_full, stream=REPORTS)),
        ("work is given back until nobody may have it", "F60", resource_exhaustion.redelivered_forever),
    ]
    short = {"every message is doubled and comes again in the opposite order"}
    return [
        FaultCase(name=name, number=number, shape=BUS, hurt=hurt, proves=("C5", "S5", "S9"), short=name in short)
        for name, number, hurt in rows
    ]


def _cluster() -> list[FaultCase]:
    rows: list[tuple[str, InjectFault]] = [
        ("a cluster of NATS loses its first server", partial(do.cluster_loses, number=0)),
        ("a cluster of NATS loses its last server", partial(do.cluster_loses, number=2)),
        ("a server of a cluster of NATS is frozen", do.cluster_freezes),
    ]
    return [FaultCase(name=name, number="F52", shape=CLUSTER, hurt=hurt, proves=("C1", "C5")) for name, hurt in rows]


def _redis() -> list[FaultCase]:
    rows = [
        ("Redis forgets everything again and again", "F62", do.redis_flushed),
        ("Redis is killed", "F63", do.redis_killed),
        ("Redis goes and does not come back", "F63", do.redis_gone),
        ("Redis is frozen", "F64", do.redis_frozen),
    ]
    return [
        FaultCase(name=name, number=number, shape=SHARED, hurt=hurt, proves=("C1", "C6")) for name, number, hurt in rows
    ]


def _clocks_of_workers() -> list[FaultCase]:
    """An hour ahead and an hour behind: a worker gets durations, never deadlines."""
    return [
        FaultCase(
            name=f"the clocks of workers are two hours apart, and one is frozen past its lease {where}",
            number="F09 F24",
            shape=ChaosTopology(nats=nats, worker_skews=(_HOUR, -_HOUR)),
            hurt=do.a_worker_frozen,
            proves=("C4", "C10", "S16"),
        )
        for nats, where in ((False, "on PostgreSQL"), (True, "over NATS"))
    ]


def _failing_over() -> list[FaultCase]:
    rows = [
        (
            "PostgreSQL is lost, and one that agreed to everything takes its place",
            "F45",
            failover.with_synchronous_standby,
        ),
        ("PostgreSQL is lost with all that was done last", "F46", failover.with_lost_tail),
    ]
    return [
        FaultCase(name=name, number=number, shape=PG, hurt=hurt, proves=("C9", "S15"), own_pg=True)
        for name, number, hurt in rows
    ]


def _pooled() -> list[FaultCase]:
    """Behind a pooler in transaction mode."""
    rows = [
        ("a server is killed", "F01 F48", do.a_server_killed),
        ("a worker is frozen past its lease", "F09 F48", do.a_worker_frozen),
        ("PostgreSQL is killed", "F40 F48", do.pg_killed),
        ("PostgreSQL hangs up again and again", "F47 F48", do.pg_hangs_up),
    ]
    return [
        FaultCase(name=f"{name} behind a pooler", number=number, shape=POOLED, hurt=hurt, proves=("C7", "C13"))
        for name, number, hurt in rows
    ]


def _others() -> list[FaultCase]:
    return [
        FaultCase(
            name="strangers take all connections of PostgreSQL",
            number="F51",
            shape=PG,
            hurt=resource_exhaustion.no_connection_left,
            proves=("C3", "C7"),
        ),
        FaultCase(
            name="servers ask two Redis that know nothing of each other",
            number="F65",
            shape=SPLIT,
            hurt=resource_exhaustion.duplicate_worker_ids,
            proves=("C3", "C6"),
        ),
        FaultCase(
            name="the disk of PostgreSQL is full",
            number="F31",
            shape=PG,
            hurt=do.pg_full,
            proves=("C7", "E4"),
            small_disk=True,
        ),
        FaultCase(
            name="the clocks of servers differ by twenty seconds",
            number="F24",
            shape=ChaosTopology(skews=(10_000, -10_000)),
            hurt=do.clocks_differ,
            proves=("C10", "S16"),
        ),
        FaultCase(
            name="a server whose clock is far off does not lead",
            number="F25",
            shape=ChaosTopology(skews=(0, 45_000)),
            hurt=do.skewed_server_does_not_lead,
            proves=("C10",),
        ),
    ]


FAULTS = [
    *_processes(PG, "on PostgreSQL"),
    *_processes(BUS, "over NATS"),
    *_database(PG, "under workers", short=frozenset({"PostgreSQL is killed"})),
    *_database(BUS, "beside NATS"),
    *_wires(PG, "server-db", "F41 F42 F44", slow=0.3, short=frozenset({"the wire server-db loses answers"})),
    *_wires(PG, "worker-db", "F41 F42 F44", slow=0.3),
    *_wires(BUS, "server-nats", "F61", slow=0.5),
    *_wires(BUS, "worker-nats", "F54 F56 F61", slow=0.5),
    *_wires(SHARED, "server-redis", "F64", slow=5),
    *_bus(),
    *_cluster(),
    *_redis(),
    *_failing_over(),
    *_pooled(),
    *_clocks_of_workers(),
    *_others(),
]
