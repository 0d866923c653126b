"""Every fault of the table, done to a real fleet under load: it costs time, and nothing is lost or done twice.

`make chaos` runs all of them, `make test` the short ones.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from chaos.fault_table import FAULTS, FaultCase
from support.chaos_fleet import chaos_fleet
from support.fleet_checker import violations
from support.postgres_server import Postgres, postgres
from support.postgres_small_disk import PostgresOnSmallDisk

#: The guarantees that are checked after every fault.
ALWAYS = ("S1", "S2", "S4", "S5", "S7", "S9", "S13", "S14", "S15", "S17", "C3")


def cases() -> list[object]:
    return [pytest.param(row, id=row.name, marks=marks_of(row)) for row in FAULTS]


def marks_of(row: FaultCase) -> list[pytest.MarkDecorator]:
    proves = pytest.mark.guarantee(*ALWAYS, *row.proves)
    return [proves] if row.short else [proves, pytest.mark.thorough]


@pytest.fixture
def pg(row: FaultCase) -> Postgres:
    if row.own_pg:
        return Postgres(18)
    if not row.small_disk:
        return postgres(18)
    if not PostgresOnSmallDisk.possible():
        pytest.skip("only root can have a disk that is full")
    return PostgresOnSmallDisk(18)


@pytest.fixture
async def database(pg: Postgres, row: FaultCase) -> AsyncIterator[str]:
    pg.start()
    try:
        yield await pg.fresh()
    finally:
        if row.small_disk or row.own_pg:
            pg.remove()


@pytest.mark.req("H-16", "R-15", "C-12")
@pytest.mark.timeout(400)
@pytest.mark.parametrize("row", cases())
async def test_a_fault_costs_time_and_nothing_else(row: FaultCase, pg: Postgres, database: str, tmp_path: Path) -> None:
    async with chaos_fleet(tmp_path, row.shape, pg, database) as trial:
        await trial.trigger_runs(10)
        enough = asyncio.Event()
        load = asyncio.create_task(trial.generate_load(enough))
        await trial.wait_for_effects()

        await row.hurt(trial)

        await trial.wait_until_decided()
        await trial.wait_for_effects()
        enough.set()
        await load
        await trial.drain()
        await trial.stop_processes()
        assert await violations(trial, skew_ms=row.shape.skew_ms) == []
