"""A lease that is renewed while somebody else finds that it is over."""

import asyncio

import pytest
import sqlalchemy as sa
from msgspec.structs import replace
from sqlalchemy.util import await_only

from contracts.store import NOON, minutely
from gnomon.adapters.sql import SqlStore, open_postgres, tasks
from gnomon.core.model import Result, RunId, RunSource
from gnomon.core.runs.launch import LaunchRequest, new_requested_run
from support.fleet_processes import wait_until
from support.postgres_server import postgres
from support.task_steps import LEASE, completion_of, take_task


async def someone_waits(store: SqlStore) -> bool:
    """Whether a transaction waits for another."""
    waiting = sa.text("SELECT count(*) FROM pg_locks WHERE NOT granted")
    return bool(await store.transactions.read(lambda conn: conn.execute(waiting).scalar_one()))


@pytest.mark.guarantee("S9", "C4")
async def test_a_worker_whose_attempt_is_just_being_given_up_hears_that_it_is_lost() -> None:
    async with postgres(18).database() as url:
        one, other = await open_postgres(url), await open_postgres(url)
        wanted = new_requested_run(RunId("run_a"), minutely(), source=RunSource.API, now=NOON)
        run = replace(wanted, schedule_uid=None, schedule_id=None)
        await one.runs.launch([LaunchRequest(run=run, first_steps=("main",))], now=NOON)
        taken = await take_task(one, "w1", run, now=NOON)
        held = taken.task.task_id, taken.task.fence
        given_up, go = asyncio.Event(), asyncio.Event()

        def give_up(conn: sa.Connection) -> None:
            assert tasks.report(conn, [completion_of(taken, Result.LOST, now=NOON)])
            given_up.set()
            await_only(go.wait())

        giving_up = asyncio.create_task(one.transactions.write(give_up))
        await given_up.wait()
        renewing = asyncio.create_task(other.attempts.renew("w1", [held], lease_ms=LEASE))
        await wait_until(lambda: someone_waits(one))
        go.set()
        await giving_up

        assert (await renewing).lost == {held}
        await asyncio.gather(one.close(), other.close())
