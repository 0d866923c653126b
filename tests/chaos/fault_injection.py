"""Faults for a fleet: each is injected, lasts long enough to matter, and is ended again.

A killed process is replaced by a new one, as by a supervisor.
"""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext

from gnomon.adapters.nats.connection import connect
from gnomon.adapters.redis.connection import create_client
from gnomon.config.sections import NatsSettings, RedisSettings
from gnomon.core import subjects
from gnomon.testing.clock import Recorder
from support.chaos_fleet import PAST_LEASE_SECONDS, ChaosFleet, LoggedProcess, wait_until
from support.fault_proxy import WireFault as Wire
from support.nats_redis_servers import Nats
from support.nats_users import PASSWORDS, NatsCluster
from support.postgres_small_disk import PostgresOnSmallDisk

# ---- processes -----------------------------------------------------------------------------------


async def restart(chaos_run: ChaosFleet, *victims: LoggedProcess) -> None:
    """Start new processes in place of those that have ended."""
    servers = set(chaos_run.servers)
    await chaos_run.ready([chaos_run.start_server() if one in servers else chaos_run.start_worker() for one in victims])


async def a_server_killed(chaos_run: ChaosFleet) -> None:
    chaos_run.servers[0].kill()
    await chaos_run.wait_until_decided(PAST_LEASE_SECONDS)
    await restart(chaos_run, chaos_run.servers[0])


async def a_worker_killed(chaos_run: ChaosFleet) -> None:
    await chaos_run.wait_for_effects_of(chaos_run.workers[0])
    chaos_run.workers[0].kill()
    await chaos_run.wait_for_effects()
    await restart(chaos_run, chaos_run.workers[0])


async def all_killed(chaos_run: ChaosFleet, *, servers: bool, workers: bool) -> None:
    victims = [*(chaos_run.servers if servers else []), *(chaos_run.workers if workers else [])]
    for victim in victims:
        victim.kill()
    await asyncio.sleep(PAST_LEASE_SECONDS)
    await restart(chaos_run, *victims)


async def servers_vanish(chaos_run: ChaosFleet) -> None:
    """Make the machines of servers vanish: for PostgreSQL and NATS their connections stay open."""
    victims = list(chaos_run.servers)
    for name, between in chaos_run.proxies.items():
        if name.startswith("server-"):
            between.black_hole(Wire.DEAF)
    for victim in victims:
        victim.kill()
    chaos_run.direct = True
    await restart(chaos_run, *victims)


async def a_server_stopped(chaos_run: ChaosFleet) -> None:
    chaos_run.servers[0].signal(signal.SIGTERM)
    assert await chaos_run.servers[0].ended() == 0
    await chaos_run.wait_until_decided()
    await restart(chaos_run, chaos_run.servers[0])


async def a_worker_stopped(chaos_run: ChaosFleet) -> None:
    await chaos_run.wait_for_effects_of(chaos_run.workers[0])
    chaos_run.workers[0].signal(signal.SIGTERM)
    assert await chaos_run.workers[0].ended() == 0
    await chaos_run.wait_for_effects()
    await restart(chaos_run, chaos_run.workers[0])


async def a_server_frozen(chaos_run: ChaosFleet) -> None:
    with chaos_run.servers[0].frozen():
        await chaos_run.wait_until_decided(PAST_LEASE_SECONDS)


async def a_worker_frozen(chaos_run: ChaosFleet) -> None:
    await chaos_run.wait_for_effects_of(chaos_run.workers[0])
    with chaos_run.workers[0].frozen():
        await chaos_run.wait_until_decided(PAST_LEASE_SECONDS)


async def all_frozen(chaos_run: ChaosFleet) -> None:
    with contextlib.ExitStack() as stack:
        for proc in [*chaos_run.servers, *chaos_run.workers]:
            stack.enter_context(proc.frozen())
        await asyncio.sleep(PAST_LEASE_SECONDS)


async def a_server_stutters(chaos_run: ChaosFleet) -> None:
    """Let a server run only a tenth of the time."""
    for _ in range(12):
        with chaos_run.servers[0].frozen():
            await asyncio.sleep(0.45)
        await asyncio.sleep(0.05)


async def a_server_killed_again_and_again(chaos_run: ChaosFleet) -> None:
    for _ in range(3):
        chaos_run.servers[-1].kill()
        await restart(chaos_run, chaos_run.servers[-1])


# ---- PostgreSQL ----------------------------------------------------------------------------------


async def pg_killed(chaos_run: ChaosFleet) -> None:
    chaos_run.pg.kill()
    await asyncio.sleep(1)  # the moment at which it comes back must be any
    chaos_run.pg.start()


async def pg_stopped(chaos_run: ChaosFleet) -> None:
    chaos_run.pg.stop()
    await asyncio.sleep(PAST_LEASE_SECONDS)
    chaos_run.pg.start()


async def pg_frozen(chaos_run: ChaosFleet) -> None:
    with chaos_run.pg.frozen():
        await asyncio.sleep(PAST_LEASE_SECONDS)


async def pg_hangs_up(chaos_run: ChaosFleet) -> None:
    hang_up = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
    for _ in range(5):
        await chaos_run.pg.run(hang_up, url=chaos_run.database)
        await asyncio.sleep(0.4)


async def pg_read_only(chaos_run: ChaosFleet) -> None:
    name = chaos_run.database.rpartition("/")[2]
    for value in ("on", "off"):
        await chaos_run.pg.run(f"ALTER DATABASE {name} SET default_transaction_read_only = {value}")
        await pg_hangs_up(chaos_run)


async def pg_locked(chaos_run: ChaosFleet) -> None:
    import asyncpg

    conn = await asyncpg.connect(chaos_run.database)
    try:
        async with conn.transaction():
            await conn.execute("LOCK TABLE schedule, task, attempt IN ACCESS EXCLUSIVE MODE")
            await asyncio.sleep(PAST_LEASE_SECONDS)
    finally:
        await conn.close()


async def pg_full(chaos_run: ChaosFleet) -> None:
    """Fill the disk of PostgreSQL for a while."""
    assert isinstance(chaos_run.pg, PostgresOnSmallDisk)
    with chaos_run.pg.full():
        await asyncio.sleep(PAST_LEASE_SECONDS)


# ---- connections ---------------------------------------------------------------------------------


async def wire_fault(chaos_run: ChaosFleet, name: str, fault: Wire) -> None:
    if fault is Wire.CUT:
        chaos_run.proxies[name].cut()
    else:
        chaos_run.proxies[name].black_hole(fault)
    await asyncio.sleep(PAST_LEASE_SECONDS)
    chaos_run.proxies[name].restore()


async def slow_wire(chaos_run: ChaosFleet, name: str, seconds: float) -> None:
    chaos_run.proxies[name].slow_down(seconds)
    await asyncio.sleep(PAST_LEASE_SECONDS)
    chaos_run.proxies[name].slow_down(0)


# ---- NATS ----------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def admin_client(chaos_run: ChaosFleet) -> AsyncIterator[Client]:
    """A connection with all permissions."""
    assert chaos_run.nats is not None
    settings = NatsSettings(url=chaos_run.nats.url, user="admin", password=PASSWORDS["admin"])
    client = await connect(settings, Recorder(), name="admin")
    try:
        yield client
    finally:
        await client.close()


async def nats_killed(chaos_run: ChaosFleet) -> None:
    assert isinstance(chaos_run.nats, Nats)
    chaos_run.nats.kill()
    await asyncio.sleep(0.5)  # the moment at which it comes back must be any
    chaos_run.nats.start()


async def nats_stopped(chaos_run: ChaosFleet) -> None:
    assert isinstance(chaos_run.nats, Nats)
    chaos_run.nats.stop()
    await asyncio.sleep(PAST_LEASE_SECONDS)
    chaos_run.nats.start()


async def nats_frozen(chaos_run: ChaosFleet) -> None:
    assert isinstance(chaos_run.nats, Nats)
    with chaos_run.nats.frozen():
        await asyncio.sleep(PAST_LEASE_SECONDS)


async def nats_wiped(chaos_run: ChaosFleet) -> None:
    """Kill NATS and start it again without its data."""
    assert isinstance(chaos_run.nats, Nats)
    chaos_run.nats.remove()
    chaos_run.nats.start()


async def stream_deleted(chaos_run: ChaosFleet, stream: str) -> None:
    async with admin_client(chaos_run) as client:
        js = client.jetstream()
        await js.delete_stream(stream)
        await wait_until(lambda: _is_there(js, stream))


async def _is_there(js: JetStreamContext, stream: str) -> bool:
    from nats.js.errors import NotFoundError

    try:
        await js.stream_info(stream)
    except NotFoundError:
        return False
    return True


async def consumer_deleted(chaos_run: ChaosFleet, stream: str, consumer: str) -> None:
    async with admin_client(chaos_run) as client:
        await client.jetstream().delete_consumer(stream, consumer)


async def stream_purged(chaos_run: ChaosFleet, stream: str) -> None:
    async with admin_client(chaos_run) as client:
        for _ in range(5):
            await client.jetstream().purge_stream(stream)
            await asyncio.sleep(0.1)


async def messages_duplicated_and_reordered(chaos_run: ChaosFleet) -> None:
    """Publish every message again at once, and stored ones once more later, in reverse order."""
    async with admin_client(chaos_run) as client:
        heard: list[Msg] = []
        questions = tuple(subject.rstrip("*") for subject in (subjects.HEARTBEATS, subjects.GRANTS))

        async def again(message: Msg) -> None:
            if not message.headers or "Copy" not in message.headers:
                if not message.subject.startswith(questions):
                    heard.append(message)
                await client.publish(
                    message.subject, message.data, reply=message.reply, headers=message_headers(message)
                )

        for subject in (subjects.WORK_SUBJECTS, subjects.REPORT_SUBJECTS, subjects.HEARTBEATS, subjects.GRANTS):
            await client.subscribe(subject, cb=again)
        await asyncio.sleep(PAST_LEASE_SECONDS)
        for message in reversed(heard):
            await client.publish(message.subject, message.data, reply=message.reply, headers=message_headers(message))
        await client.flush()
        assert heard


def message_headers(message: Msg) -> dict[str, str]:
    """The headers of a copy: the same message id, and a mark by which the test does not copy it again."""
    return {**(message.headers or {}), "Copy": "1"}


async def cluster_loses(chaos_run: ChaosFleet, number: int) -> None:
    assert isinstance(chaos_run.nats, NatsCluster)
    chaos_run.nats.nodes[number].kill()
    await chaos_run.wait_for_effects(100)
    chaos_run.nats.nodes[number].start()


async def cluster_freezes(chaos_run: ChaosFleet) -> None:
    assert isinstance(chaos_run.nats, NatsCluster)
    with chaos_run.nats.nodes[0].frozen():
        await asyncio.sleep(PAST_LEASE_SECONDS)


# ---- Redis ---------------------------------------------------------------------------------------


async def redis_flushed(chaos_run: ChaosFleet) -> None:
    assert chaos_run.redis is not None
    client = create_client(RedisSettings(url=chaos_run.redis.url))
    for _ in range(10):
        await client.flushall()
        await asyncio.sleep(0.2)
    await client.aclose()


async def redis_killed(chaos_run: ChaosFleet) -> None:
    assert chaos_run.redis is not None
    chaos_run.redis.kill()
    await chaos_run.wait_until_decided(PAST_LEASE_SECONDS)
    chaos_run.redis.start()


async def redis_gone(chaos_run: ChaosFleet) -> None:
    assert chaos_run.redis is not None
    chaos_run.redis.stop()
    await chaos_run.wait_until_decided(PAST_LEASE_SECONDS)


async def redis_frozen(chaos_run: ChaosFleet) -> None:
    assert chaos_run.redis is not None
    with chaos_run.redis.frozen():
        await chaos_run.wait_until_decided(PAST_LEASE_SECONDS)


# ---- clocks --------------------------------------------------------------------------------------


async def clocks_differ(chaos_run: ChaosFleet) -> None:
    await chaos_run.wait_until_decided(PAST_LEASE_SECONDS)


async def skewed_server_does_not_lead(chaos_run: ChaosFleet) -> None:
    """Check that of two servers only the one with a correct clock leads."""
    await chaos_run.wait_until_decided(PAST_LEASE_SECONDS)
    holders = {who for held in chaos_run.holders.values() for who in held}
    assert len(holders) == 1, holders
