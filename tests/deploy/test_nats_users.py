"""The users of the shipped configuration of NATS: a server may do all that servers share, and a worker none of it."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from nats.aio.client import Client

from gnomon.adapters.nats.connection import connect
from gnomon.adapters.nats.hints import NatsHints
from gnomon.adapters.nats.leases import NatsLeases
from gnomon.config.sections import NatsSettings as Settings
from gnomon.core.nats_permissions import server_permissions
from gnomon.errors import Unavailable
from gnomon.ports.coordination import HintTopic
from gnomon.testing.clock import Recorder
from support.nats_redis_servers import Nats
from support.nats_users import PASSWORDS, nats_with_users

pytestmark = pytest.mark.req("H-21")


@pytest.fixture(scope="module")
def nats() -> Iterator[Nats]:
    with nats_with_users() as running:
        yield running


def settings_of(nats: Nats, user: str) -> Settings:
    return Settings(url=nats.url, user=user, password=PASSWORDS[user], timeout_ms=1000)


@pytest.fixture
async def clients(nats: Nats) -> AsyncIterator[dict[str, Client]]:
    both = {user: await connect(settings_of(nats, user), Recorder(), name=user) for user in ("scheduler", "worker")}
    yield both
    for client in both.values():
        await client.close()


def test_enrolled_servers_have_the_permissions_of_the_shipped_user() -> None:
    shipped = (Path(__file__).parents[2] / "deploy" / "nats" / "nats.conf").read_text()
    publish, subscribe = shipped.split("user: worker")[0].split("publish:")[1].split("subscribe:")
    allowed = [re.findall(r'"([^"]+)"', re.sub(r"#.*", "", part)) for part in (publish, subscribe)]

    ours = server_permissions()
    assert [sorted(part) for part in allowed] == [sorted(ours.publish), sorted(ours.subscribe)]


@pytest.mark.req("R-15")
async def test_a_server_takes_renews_and_gives_up_leases(nats: Nats, clients: dict[str, Client]) -> None:
    leases = NatsLeases(clients["scheduler"], settings_of(nats, "scheduler"))

    token = await leases.acquire("turn", "one", ttl_ms=30_000)
    assert token is not None
    assert await leases.acquire("turn", "another", ttl_ms=30_000) is None
    renewed = await leases.renew("turn", token, ttl_ms=30_000)
    assert renewed is not None
    assert await leases.release("turn", renewed)


async def test_a_worker_takes_no_lease(nats: Nats, clients: dict[str, Client]) -> None:
    leases = NatsLeases(clients["worker"], settings_of(nats, "worker"))

    with pytest.raises(Unavailable):
        await leases.acquire("turn", "worker", ttl_ms=30_000)


async def test_servers_hear_each_others_hints(nats: Nats) -> None:
    one, other = (NatsHints(settings_of(nats, "scheduler"), Recorder()) for _ in range(2))
    heard = asyncio.Event()
    # A new listener gets a hint for every topic once, as any may have been missed.
    first = set(HintTopic)

    def hear(topic: HintTopic) -> None:
        if topic in first:
            first.discard(topic)
        else:
            heard.set()

    await one.listen(hear)
    while not heard.is_set():
        other.send(HintTopic.READY)
        await asyncio.sleep(0.01)
    await one.close()
    await other.close()
