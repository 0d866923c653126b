"""PostgreSQL is lost for good, and another one that followed it takes its place."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from gnomon.adapters.host import SystemClock
from gnomon.adapters.sql.connect import open_postgres
from support.standby import Standby
from support.trial import PAST_LEASE, Trial


async def agreed(trial: Trial) -> None:
    """Whatever anybody was told is there."""
    async with _standby(trial) as standby:
        await standby.agree()
        await trial.some_work()
        trial.pg.kill()
        await _taken_over(trial, standby)


async def with_lost_tail(trial: Trial) -> None:
    """What was done last is forgotten: it may be done again, and what was promised last may be missing."""
    async with _standby(trial) as standby:
        promised = set(trial.promised)
        since = SystemClock().now()
        await standby.followed()
        standby.stop()
        await trial.some_work(40)
        await asyncio.sleep(PAST_LEASE / 2)
        trial.pg.kill()
        standby.start()
        trial.forgotten = since, SystemClock().now()
        await _taken_over(trial, standby)
        trial.promised &= promised


@contextlib.asynccontextmanager
async def _standby(trial: Trial) -> AsyncIterator[Standby]:
    standby = trial.standby = Standby(18, trial.pg)
    standby.start()
    await standby.followed()
    yield standby


async def _taken_over(trial: Trial, standby: Standby) -> None:
    """Whoever looks for the database finds the other one."""
    await standby.promote()
    for name in ("server-db", "worker-db"):
        trial.wires[name].lead_to(standby.port)
    before, database = trial.store, standby.url(trial.database.rpartition("/")[2])
    trial.pg, trial.database = standby, database
    trial.store = await open_postgres(database, pool_size=2, patience_ms=1500)
    await before.close()
