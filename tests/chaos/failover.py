"""PostgreSQL is lost for good, and a standby takes its place."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from gnomon.adapters.host import SystemClock
from gnomon.adapters.sql.connect import open_postgres
from support.chaos_fleet import PAST_LEASE_SECONDS, ChaosFleet
from support.postgres_standby import Standby


async def with_synchronous_standby(chaos_run: ChaosFleet) -> None:
    """Fail over to a synchronous standby: every confirmed write is there."""
    async with _standby(chaos_run) as standby:
        await standby.make_synchronous()
        await chaos_run.wait_for_effects()
        chaos_run.pg.kill()
        await _promote(chaos_run, standby)


async def with_lost_tail(chaos_run: ChaosFleet) -> None:
    """Fail over to a standby that lags: the last writes are lost, so work may be repeated and last runs be missing."""
    async with _standby(chaos_run) as standby:
        promised = set(chaos_run.promised)
        since = SystemClock().now()
        await standby.wait_until_caught_up()
        standby.stop()
        await chaos_run.wait_for_effects(40)
        await asyncio.sleep(PAST_LEASE_SECONDS / 2)
        chaos_run.pg.kill()
        standby.start()
        chaos_run.forgotten = since, SystemClock().now()
        await _promote(chaos_run, standby)
        chaos_run.promised &= promised


@contextlib.asynccontextmanager
async def _standby(chaos_run: ChaosFleet) -> AsyncIterator[Standby]:
    standby = chaos_run.standby = Standby(18, chaos_run.pg)
    standby.start()
    await standby.wait_until_caught_up()
    yield standby


async def _promote(chaos_run: ChaosFleet, standby: Standby) -> None:
    """Promote the standby and send all connections to it."""
    await standby.promote()
    for name in ("server-db", "worker-db"):
        chaos_run.proxies[name].retarget(standby.port)
    before, database = chaos_run.store, standby.url(chaos_run.database.rpartition("/")[2])
    chaos_run.postgres, chaos_run.database = standby, database
    chaos_run.store = await open_postgres(database, pool_size=2, patience_ms=1500)
    await before.close()
