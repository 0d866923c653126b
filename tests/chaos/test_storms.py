"""Storms over a real fleet: faults in pairs, every policy, operators who change jobs, callers who repeat keys.

After each storm every tick has one decision that its policies allow, in time wherever there was no fault; every body
got the input on record; every retry, dead letter and overlap is justified; and every promise to a caller is kept.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from chaos.storms import Storm
from support.chaos_fleet import ChaosFleet, ChaosTopology, chaos_fleet
from support.fleet_checker import violations
from support.postgres_server import postgres
from support.storm_workload import EVERY_POLICY

FILE = ChaosTopology(sqlite=True, workers=0)
PG = ChaosTopology()
BUS = ChaosTopology(nats=True)
CLOCKS = ChaosTopology(settable_clocks=True)
#: Seed 0 is a short storm, for every run of the tests.
STORMS = [
    pytest.param(shape, seed, id=f"{name}-{seed}", marks=() if (name, seed) == ("sqlite", 0) else pytest.mark.thorough)
    for name, shape in (("sqlite", FILE), ("postgresql", PG), ("nats", BUS), ("clocks", CLOCKS))
    for seed in ((0, 1, 2) if shape.sqlite else (1, 2))
]


@asynccontextmanager
async def stormy_fleet(folder: Path, shape: ChaosTopology, *, defect: str = "") -> AsyncIterator[ChaosFleet]:
    """A running fleet of that topology, with jobs of every policy."""
    pg = None if shape.sqlite else postgres(18)
    database = f"sqlite:///{folder / 'gnomon.db'}" if pg is None else await pg.fresh()
    async with chaos_fleet(folder, shape, pg, database, workload=EVERY_POLICY, defect=defect) as fleet:
        yield fleet


@pytest.mark.guarantee(
    "S1", "S2", "S3", "S4", "S5", "S6", "S7", "S9", "S13", "S14", "S15", "S17", "S16", "C3", "C7", "C8", "C10"
)
@pytest.mark.req("C-05", "C-06", "C-07", "H-24", "H-08")
@pytest.mark.timeout(400)
@pytest.mark.parametrize(("shape", "seed"), STORMS)
async def test_a_storm_costs_time_and_breaks_no_promise(shape: ChaosTopology, seed: int, tmp_path: Path) -> None:
    async with stormy_fleet(tmp_path, shape) as fleet:
        storm = Storm(fleet, seed, windows=3 if seed else 1, quiet_seconds=5 if seed else 2)
        await storm.rage()
        await fleet.drain()
        await fleet.stop_processes()
        found = [*await violations(fleet, late_by=storm.late_by), *await storm.broken_promises()]
        assert not found, "\n".join(["", *found, f"faults in {fleet.fault_windows}"])
