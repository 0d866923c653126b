"""What can be done to a fleet: it is hurt, that lasts for as long as it takes to matter, and it heals.

Whoever was killed is followed by another, as on a machine where somebody minds them.
"""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext

from gnomon.adapters.nats.connection import connect
from gnomon.adapters.redis.connection import client_of
from gnomon.config.sections import Nats as NatsSettings
from gnomon.config.sections import Redis as RedisSettings
from gnomon.core import subjects
from gnomon.testing.clock import Recorder
from support.bus_servers import Nats
from support.proxy import Fault as Wire
from support.scoped import PASSWORDS, NatsCluster
from support.small_disk import PostgresOnSmallDisk
from support.trial import PAST_LEASE, Proc, Trial, until

# ---- processes -----------------------------------------------------------------------------------


async def replaced(trial: Trial, *victims: Proc) -> None:
    """Others are there in the place of those that have ended."""
    servers = set(trial.servers)
    await trial.ready([trial.start_server() if one in servers else trial.start_worker() for one in victims])


async def a_server_killed(trial: Trial) -> None:
    trial.servers[0].kill()
    await trial.decided(PAST_LEASE)
    await replaced(trial, trial.servers[0])


async def a_worker_killed(trial: Trial) -> None:
    await trial.work_of(trial.workers[0])
    trial.workers[0].kill()
    await trial.some_work()
    await replaced(trial, trial.workers[0])


async def all_killed(trial: Trial, *, servers: bool, workers: bool) -> None:
    victims = [*(trial.servers if servers else []), *(trial.workers if workers else [])]
    for victim in victims:
        victim.kill()
    await asyncio.sleep(PAST_LEASE)
    await replaced(trial, *victims)


async def servers_vanish(trial: Trial) -> None:
    """Their machines are gone: nobody tells PostgreSQL and NATS, for whom their connections go on for ever."""
    victims = list(trial.servers)
    for name, between in trial.wires.items():
        if name.startswith("server-"):
            between.swallow(Wire.DEAF)
    for victim in victims:
        victim.kill()
    trial.direct = True
    await replaced(trial, *victims)


async def a_server_stopped(trial: Trial) -> None:
    trial.servers[0].signal(signal.SIGTERM)
    assert await trial.servers[0].ended() == 0
    await trial.decided()
    await replaced(trial, trial.servers[0])


async def a_worker_stopped(trial: Trial) -> None:
    await trial.work_of(trial.workers[0])
    trial.workers[0].signal(signal.SIGTERM)
    assert await trial.workers[0].ended() == 0
    await trial.some_work()
    await replaced(trial, trial.workers[0])


async def a_server_frozen(trial: Trial) -> None:
    with trial.servers[0].frozen():
        await trial.decided(PAST_LEASE)


async def a_worker_frozen(trial: Trial) -> None:
    await trial.work_of(trial.workers[0])
    with trial.workers[0].frozen():
        await trial.decided(PAST_LEASE)


async def all_frozen(trial: Trial) -> None:
    with contextlib.ExitStack() as stack:
        for proc in [*trial.servers, *trial.workers]:
            stack.enter_context(proc.frozen())
        await asyncio.sleep(PAST_LEASE)


async def a_server_stutters(trial: Trial) -> None:
    """It does something a tenth of the time."""
    for _ in range(12):
        with trial.servers[0].frozen():
            await asyncio.sleep(0.45)
        await asyncio.sleep(0.05)


async def a_server_killed_again_and_again(trial: Trial) -> None:
    for _ in range(3):
        trial.servers[-1].kill()
        await replaced(trial, trial.servers[-1])


# ---- PostgreSQL ----------------------------------------------------------------------------------


async def pg_killed(trial: Trial) -> None:
    trial.pg.kill()
    await asyncio.sleep(1)  # the moment at which it comes back must be any
    trial.pg.start()


async def pg_stopped(trial: Trial) -> None:
    trial.pg.stop()
    await asyncio.sleep(PAST_LEASE)
    trial.pg.start()


async def pg_frozen(trial: Trial) -> None:
    with trial.pg.frozen():
        await asyncio.sleep(PAST_LEASE)


async def pg_hangs_up(trial: Trial) -> None:
    hang_up = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
    for _ in range(5):
        await trial.pg.run(hang_up, url=trial.database)
        await asyncio.sleep(0.4)


async def pg_read_only(trial: Trial) -> None:
    name = trial.database.rpartition("/")[2]
    for value in ("on", "off"):
        await trial.pg.run(f"ALTER DATABASE {name} SET default_transaction_read_only = {value}")
        await pg_hangs_up(trial)


async def pg_locked(trial: Trial) -> None:
    import asyncpg

    conn = await asyncpg.connect(trial.database)
    try:
        async with conn.transaction():
            await conn.execute("LOCK TABLE schedule, task, attempt IN ACCESS EXCLUSIVE MODE")
            await asyncio.sleep(PAST_LEASE)
    finally:
        await conn.close()


async def pg_full(trial: Trial) -> None:
    """Nothing more can be written to its disk, until there is room again."""
    assert isinstance(trial.pg, PostgresOnSmallDisk)
    with trial.pg.full():
        await asyncio.sleep(PAST_LEASE)


# ---- wires ---------------------------------------------------------------------------------------


async def wire(trial: Trial, name: str, fault: Wire) -> None:
    if fault is Wire.CUT:
        trial.wires[name].cut()
    else:
        trial.wires[name].swallow(fault)
    await asyncio.sleep(PAST_LEASE)
    trial.wires[name].mend()


async def slow_wire(trial: Trial, name: str, seconds: float) -> None:
    trial.wires[name].slow_down(seconds)
    await asyncio.sleep(PAST_LEASE)
    trial.wires[name].slow_down(0)


# ---- NATS ----------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def administered(trial: Trial) -> AsyncIterator[Client]:
    """A connection of somebody who may do everything."""
    assert trial.nats is not None
    settings = NatsSettings(url=trial.nats.url, user="admin", password=PASSWORDS["admin"])
    client = await connect(settings, Recorder(), name="admin")
    try:
        yield client
    finally:
        await client.close()


async def nats_killed(trial: Trial) -> None:
    assert isinstance(trial.nats, Nats)
    trial.nats.kill()
    await asyncio.sleep(0.5)  # the moment at which it comes back must be any
    trial.nats.start()


async def nats_stopped(trial: Trial) -> None:
    assert isinstance(trial.nats, Nats)
    trial.nats.stop()
    await asyncio.sleep(PAST_LEASE)
    trial.nats.start()


async def nats_frozen(trial: Trial) -> None:
    assert isinstance(trial.nats, Nats)
    with trial.nats.frozen():
        await asyncio.sleep(PAST_LEASE)


async def nats_wiped(trial: Trial) -> None:
    """It is killed, and comes back with nothing."""
    assert isinstance(trial.nats, Nats)
    trial.nats.remove()
    trial.nats.start()


async def stream_deleted(trial: Trial, stream: str) -> None:
    async with administered(trial) as client:
        js = client.jetstream()
        await js.delete_stream(stream)
        await until(lambda: _is_there(js, stream))


async def _is_there(js: JetStreamContext, stream: str) -> bool:
    from nats.js.errors import NotFoundError

    try:
        await js.stream_info(stream)
    except NotFoundError:
        return False
    return True


async def consumer_deleted(trial: Trial, stream: str, consumer: str) -> None:
    async with administered(trial) as client:
        await client.jetstream().delete_consumer(stream, consumer)


async def stream_purged(trial: Trial, stream: str) -> None:
    async with administered(trial) as client:
        for _ in range(5):
            await client.jetstream().purge_stream(stream)
            await asyncio.sleep(0.1)


async def doubled_and_shuffled(trial: Trial) -> None:
    """Whatever is said comes once more at once; what is kept comes once more later, in the opposite order."""
    async with administered(trial) as client:
        heard: list[Msg] = []
        questions = tuple(subject.rstrip("*") for subject in (subjects.HEARTBEATS, subjects.GRANTS))

        async def again(message: Msg) -> None:
            if not message.headers or "Copy" not in message.headers:
                if not message.subject.startswith(questions):
                    heard.append(message)
                await client.publish(message.subject, message.data, reply=message.reply, headers=copied(message))

        for subject in (subjects.WORK_SUBJECTS, subjects.REPORT_SUBJECTS, subjects.HEARTBEATS, subjects.GRANTS):
            await client.subscribe(subject, cb=again)
        await asyncio.sleep(PAST_LEASE)
        for message in reversed(heard):
            await client.publish(message.subject, message.data, reply=message.reply, headers=copied(message))
        await client.flush()
        assert heard


def copied(message: Msg) -> dict[str, str]:
    """What was sent twice has the same name twice; only we can tell that it is a copy, and do not copy it again."""
    return {**(message.headers or {}), "Copy": "1"}


async def cluster_loses(trial: Trial, number: int) -> None:
    assert isinstance(trial.nats, NatsCluster)
    trial.nats.nodes[number].kill()
    await trial.some_work(100)
    trial.nats.nodes[number].start()


async def cluster_freezes(trial: Trial) -> None:
    assert isinstance(trial.nats, NatsCluster)
    with trial.nats.nodes[0].frozen():
        await asyncio.sleep(PAST_LEASE)


# ---- Redis ---------------------------------------------------------------------------------------


async def redis_flushed(trial: Trial) -> None:
    assert trial.redis is not None
    client = client_of(RedisSettings(url=trial.redis.url))
    for _ in range(10):
        await client.flushall()
        await asyncio.sleep(0.2)
    await client.aclose()


async def redis_killed(trial: Trial) -> None:
    assert trial.redis is not None
    trial.redis.kill()
    await trial.decided(PAST_LEASE)
    trial.redis.start()


async def redis_gone(trial: Trial) -> None:
    assert trial.redis is not None
    trial.redis.stop()
    await trial.decided(PAST_LEASE)


async def redis_frozen(trial: Trial) -> None:
    assert trial.redis is not None
    with trial.redis.frozen():
        await trial.decided(PAST_LEASE)


# ---- clocks --------------------------------------------------------------------------------------


async def clocks_differ(trial: Trial) -> None:
    await trial.decided(PAST_LEASE)


async def far_off_does_not_lead(trial: Trial) -> None:
    """Of two servers only the one leads whose clock is about right."""
    await trial.decided(PAST_LEASE)
    holders = {who for held in trial.holders.values() for who in held}
    assert len(holders) == 1, holders
