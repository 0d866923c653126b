"""What can be too much for those that a fleet shares, though nobody has died: no room left, and no agreement."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import asyncpg

from chaos.hurting import administered, replaced
from gnomon.core import subjects
from support.trial import LEASE_MS, PAST_LEASE, Trial, until

#: More than PostgreSQL gives to all together.
_CROWD = 100
_A_FEW = 1
_TERMS = "SELECT shard, term FROM shard ORDER BY shard"


async def no_connection_left(trial: Trial) -> None:
    """Strangers take every connection that is to be had; those who lead have theirs, and go on leading."""
    async with _crowd(trial) as stranger:
        before = await stranger.fetch(_TERMS)
        await trial.decided(PAST_LEASE + LEASE_MS / 1000)
        assert await stranger.fetch(_TERMS) == before


@contextlib.asynccontextmanager
async def _crowd(trial: Trial) -> AsyncIterator[asyncpg.Connection]:
    """One of so many that there is room for nobody else."""
    async with contextlib.AsyncExitStack() as stack:
        one = await asyncpg.connect(trial.database)
        stack.push_async_callback(one.close)
        with contextlib.suppress(asyncpg.TooManyConnectionsError):
            for _ in range(_CROWD):
                stack.push_async_callback((await asyncpg.connect(trial.database)).close)
            raise AssertionError("there is no end of connections")
        yield one


async def stream_full(trial: Trial, stream: str) -> None:
    """The stream has room for hardly anything, and says so to everybody who has more."""
    async with administered(trial) as client:
        js = client.jetstream()
        config = (await js.stream_info(stream)).config
        room = config.max_msgs
        config.max_msgs = _A_FEW
        await js.update_stream(config)
        await asyncio.sleep(PAST_LEASE)
        config.max_msgs = room
        await js.update_stream(config)


async def given_back_for_ever(trial: Trial) -> None:
    """A stranger takes work and gives it back at once, until it was given to somebody as often as may be.

    Nobody else takes any meanwhile: all workers stand still.
    """
    async with administered(trial) as client:
        js = client.jetstream()
        stranger = await js.pull_subscribe_bind(durable=subjects.executors(), stream=subjects.WORK)

        async def buried() -> bool:
            with contextlib.suppress(TimeoutError):
                for message in await stranger.fetch(20, timeout=0.2):
                    await message.nak()
            return (await js.stream_info(subjects.DEAD)).state.messages > 0

        with contextlib.ExitStack() as stack:
            for worker in trial.workers:
                stack.enter_context(worker.frozen())
            await until(buried)
        await stranger.unsubscribe()


async def two_of_one(trial: Trial) -> None:
    """Servers that ask different keepers of leases both think that they lead; one of them then goes."""
    await trial.decided(PAST_LEASE)
    trial.servers[0].kill()
    await trial.decided(PAST_LEASE)
    await replaced(trial, trial.servers[0])
