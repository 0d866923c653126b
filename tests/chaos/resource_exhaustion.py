"""Faults of shared services that stay alive: exhausted resources, and two lease stores that disagree."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import asyncpg

from chaos.fault_injection import admin_client, restart
from gnomon.core import subjects
from support.chaos_fleet import LEASE_MS, PAST_LEASE_SECONDS, ChaosFleet, wait_until

#: More connections than PostgreSQL allows.
_CONNECTIONS = 100
_A_FEW = 1
_TERMS = "SELECT shard, term FROM shard ORDER BY shard"


async def no_connection_left(chaos_run: ChaosFleet) -> None:
    """Other clients take every free connection; leaders keep theirs and continue to lead."""
    async with _connections_exhausted(chaos_run) as stranger:
        before = await stranger.fetch(_TERMS)
        await chaos_run.wait_until_decided(PAST_LEASE_SECONDS + LEASE_MS / 1000)
        assert await stranger.fetch(_TERMS) == before


@contextlib.asynccontextmanager
async def _connections_exhausted(chaos_run: ChaosFleet) -> AsyncIterator[asyncpg.Connection]:
    """Hold all free connections; yield one of them."""
    async with contextlib.AsyncExitStack() as stack:
        one = await asyncpg.connect(chaos_run.database)
        stack.push_async_callback(one.close)
        with contextlib.suppress(asyncpg.TooManyConnectionsError):
            for _ in range(_CONNECTIONS):
                stack.push_async_callback((await asyncpg.connect(chaos_run.database)).close)
            raise AssertionError("there is no end of connections")
        yield one


async def stream_full(chaos_run: ChaosFleet, stream: str) -> None:
    """Limit the stream to very few messages, so that it refuses more."""
    async with admin_client(chaos_run) as client:
        js = client.jetstream()
        config = (await js.stream_info(stream)).config
        limit = config.max_msgs
        config.max_msgs = _A_FEW
        await js.update_stream(config)
        await asyncio.sleep(PAST_LEASE_SECONDS)
        config.max_msgs = limit
        await js.update_stream(config)


async def redelivered_forever(chaos_run: ChaosFleet) -> None:
    """Another client takes work and returns it at once, until it reaches the limit of deliveries.

    All workers are frozen meanwhile.
    """
    async with admin_client(chaos_run) as client:
        js = client.jetstream()
        stranger = await js.pull_subscribe_bind(durable=subjects.consumer_name(), stream=subjects.WORK)

        async def buried() -> bool:
            with contextlib.suppress(TimeoutError):
                for message in await stranger.fetch(20, timeout=0.2):
                    await message.nak()
            return (await js.stream_info(subjects.DEAD)).state.messages > 0

        with contextlib.ExitStack() as stack:
            for worker in chaos_run.workers:
                stack.enter_context(worker.frozen())
            await wait_until(buried)
        await stranger.unsubscribe()


async def duplicate_worker_ids(chaos_run: ChaosFleet) -> None:
    """Two servers with different lease stores both believe that they lead; then one of them ends."""
    await chaos_run.wait_until_decided(PAST_LEASE_SECONDS)
    chaos_run.servers[0].kill()
    await chaos_run.wait_until_decided(PAST_LEASE_SECONDS)
    await restart(chaos_run, chaos_run.servers[0])
