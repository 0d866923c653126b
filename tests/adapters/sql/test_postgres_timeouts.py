"""Nobody waits for ever: not for a lock, not for a node that hangs, not for a server that does not answer."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager

import asyncpg
import pytest
import sqlalchemy as sa
from msgspec.structs import replace
from sqlalchemy.util import await_only

from contracts.store import MINUTE, NOON, minutely
from gnomon.adapters.sql import SqlStore, open_postgres
from gnomon.adapters.sql.schema import node
from gnomon.core.ids import SHARDS
from gnomon.core.ledger.plan import plan
from gnomon.errors import StoreUnavailable
from gnomon.ports.ledger import ShardRenewal
from support.fault_proxy import FaultProxy, WireFault
from support.postgres_server import Postgres, postgres

PATIENCE_MS = 300
#: The error of the server, well before the connection's own limit.
ENDED_BY_SERVER = re.compile("due to (lock|statement) timeout")
NOW = NOON + MINUTE
LIMITS = ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout")


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with postgres(18).database() as url:
        yield url


@pytest.fixture(params=[True, False], ids=["direct", "behind a pooler"])
async def store(request: pytest.FixtureRequest, url: str) -> AsyncIterator[SqlStore]:
    """An impatient one, on one connection, with a schedule in it."""
    store = await open_postgres(url, statement_cache=request.param, pool_size=1, patience_ms=PATIENCE_MS)
    await store.schedules.add([minutely()], actor="ada", tzdata="")
    yield store
    await store.close()


@pytest.fixture(scope="module")
def mortal() -> Iterator[Postgres]:
    """A server of its own, to be frozen."""
    with Postgres(18) as server:
        yield server


@asynccontextmanager
async def held(url: str, table: str) -> AsyncIterator[None]:
    """Somebody has locked every row of the table and does nothing more."""
    conn = await asyncpg.connect(url)
    try:
        async with conn.transaction():
            await conn.fetch(f"SELECT 1 FROM {table} FOR UPDATE")  # noqa: S608 - our own name
            yield
    finally:
        await conn.close()


def limits(conn: sa.Connection) -> list[str]:
    return [conn.exec_driver_sql(f"SHOW {name}").scalar_one() for name in LIMITS]


@pytest.mark.parametrize("table", ["schedule", "shard"])
async def test_a_lock_that_somebody_holds_is_not_waited_for_for_ever(store: SqlStore, url: str, table: str) -> None:
    terms = await store.shards.claim("node", ttl_ms=60_000, limit=SHARDS)
    verdict = plan(minutely(), now=NOW)
    async with held(url, table):
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match=ENDED_BY_SERVER):
            await store.ledger.decide([verdict], now=NOW, terms=terms)
        assert time.monotonic() - began >= PATIENCE_MS / 1000
        assert await store.schedules.find("default", "report") == minutely()  # a reader does not wait

    assert await store.ledger.decide([verdict], now=NOW, terms=terms) == {minutely().uid}


async def test_a_change_does_not_wait_for_ever_either(store: SqlStore, url: str) -> None:
    before = minutely()
    verdict, changed = plan(before, now=NOON), replace(before, paused_at=NOON, revision=2)
    async with held(url, "schedule"):
        with pytest.raises(StoreUnavailable, match=ENDED_BY_SERVER):
            await store.schedules.change(verdict, changed, now=NOON, actor="ada", tzdata="")

    assert await store.schedules.change(verdict, changed, now=NOON, actor="ada", tzdata="")


async def test_coalesced_writes_share_one_timeout(store: SqlStore) -> None:
    def fails(conn: sa.Connection) -> list[str]:
        conn.exec_driver_sql("SELECT 1 / 0")
        return []

    jobs = [fails, limits, limits]
    _, *found = await asyncio.gather(*(store.transactions.write(job) for job in jobs), return_exceptions=True)

    assert found == [[f"{PATIENCE_MS // 3}ms", f"{PATIENCE_MS}ms", f"{PATIENCE_MS}ms"]] * 2


async def test_many_who_wait_for_one_lock_hold_up_nobody_else(store: SqlStore, url: str) -> None:
    terms = await store.shards.claim("node", ttl_ms=60_000, limit=SHARDS)
    verdict = plan(minutely(), now=NOW)
    async with held(url, "schedule"):
        *waited, attended = await asyncio.gather(
            *(store.ledger.decide([verdict], now=NOW, terms=terms) for _ in range(30)),
            store.shards.renew("node", ttl_ms=1000),
            return_exceptions=True,
        )

    assert all(isinstance(one, StoreUnavailable) and ENDED_BY_SERVER.search(str(one)) for one in waited), waited
    assert isinstance(attended, ShardRenewal)
    assert attended.nodes == 1


async def test_a_statement_that_takes_too_long_is_ended(store: SqlStore) -> None:
    with pytest.raises(StoreUnavailable, match="due to statement timeout"):
        await store.transactions.write(lambda conn: conn.exec_driver_sql("SELECT pg_sleep(30)"))

    assert await store.schedules.find("default", "report") == minutely()


async def test_a_node_that_hangs_in_a_transaction_loses_it_and_its_locks(store: SqlStore, url: str) -> None:
    begun, let_go = asyncio.Event(), asyncio.Event()

    def hangs(conn: sa.Connection) -> None:
        conn.execute(sa.insert(node), {"holder": "node", "seen_until": 1})
        begun.set()
        await_only(let_go.wait())
        conn.execute(sa.select(node.c.holder))

    other = await open_postgres(url)
    hanging = asyncio.create_task(store.transactions.write(hangs))
    await begun.wait()
    seen = await other.shards.renew("node", ttl_ms=1000)  # the same row, while the other still hangs

    assert seen.nodes == 1
    let_go.set()
    with pytest.raises(StoreUnavailable):
        await hanging
    assert await store.schedules.find("default", "report") == minutely()
    await other.close()


@pytest.mark.guarantee("C1", "C7")
async def test_a_node_that_vanishes_in_the_middle_of_a_message_loses_its_locks(url: str) -> None:
    address = sa.make_url(url)
    assert address.port is not None
    other = await open_postgres(url)
    with FaultProxy(address.port) as wire:
        behind = address.set(port=wire.port).render_as_string(hide_password=False)
        vanishing = await open_postgres(behind, pool_size=1, patience_ms=PATIENCE_MS)

        def vanishes(conn: sa.Connection) -> None:
            conn.execute(sa.insert(node), {"holder": "node", "seen_until": 1})
            wire.black_hole(WireFault.MUTE)
            # The driver asks what kind of answers there are, and never hears it: the server waits for the rest.
            conn.exec_driver_sql("SELECT 1 AS something_new")

        gone = asyncio.create_task(vanishing.transactions.write(vanishes))
        await until_waiting(other)
        wire.black_hole(WireFault.DEAF)

        assert (await other.shards.renew("node", ttl_ms=1000)).nodes == 1  # the same row
        with pytest.raises(StoreUnavailable):
            await gone
    await vanishing.close()
    await other.close()


async def until_waiting(store: SqlStore) -> None:
    """Somebody's transaction waits for the rest of a message."""
    asked = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND wait_event = 'ClientRead'"
    while not await store.transactions.read(lambda conn: conn.exec_driver_sql(asked).scalar_one()):  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.01)


async def test_behind_a_pooler_the_limits_end_with_the_transaction(url: str) -> None:
    store = await open_postgres(url, statement_cache=False, pool_size=1, patience_ms=PATIENCE_MS)

    assert await store.transactions.write(limits) == [f"{PATIENCE_MS}ms"] * 3
    assert await store.transactions.read(limits) == ["0"] * 3
    await store.close()


async def test_on_a_connection_of_our_own_whoever_reads_has_limits_too(url: str) -> None:
    store = await open_postgres(url, pool_size=1, patience_ms=PATIENCE_MS)

    assert await store.transactions.write(limits) == [f"{PATIENCE_MS}ms"] * 3
    assert await store.transactions.read(limits) == [f"{PATIENCE_MS}ms"] * 3
    await store.close()


async def test_a_connection_that_others_have_in_use_is_not_waited_for_for_ever(url: str) -> None:
    store = await open_postgres(url, pool_size=1, patience_ms=PATIENCE_MS)
    begun, go = asyncio.Event(), asyncio.Event()

    def rests(conn: sa.Connection) -> None:
        conn.exec_driver_sql("SELECT 1")
        begun.set()
        await_only(go.wait())

    resting = asyncio.create_task(store.transactions.read(rests))
    await begun.wait()
    with pytest.raises(StoreUnavailable, match="limit"):
        await asyncio.wait_for(store.schedules.find("default", "report"), timeout=60)
    go.set()
    await resting
    assert await store.schedules.find("default", "report") is None
    await store.close()


async def test_a_server_that_does_not_answer_is_unavailable_until_it_does(mortal: Postgres) -> None:
    store = await open_postgres(await mortal.empty(), patience_ms=PATIENCE_MS)
    await store.schedules.add([minutely("before")], actor="ada", tzdata="")

    with ExitStack() as frozen:

        def freezes(conn: sa.Connection) -> None:
            conn.execute(sa.insert(node), {"holder": "half", "seen_until": 1})
            frozen.enter_context(mortal.frozen())
            conn.execute(sa.insert(node), {"holder": "other half", "seen_until": 1})

        with pytest.raises(StoreUnavailable):
            await store.transactions.write(freezes)
        for asked in (
            store.schedules.find("default", "before"),
            store.schedules.add([minutely("during")], actor="ada", tzdata=""),
        ):
            with pytest.raises(StoreUnavailable):
                await asked

    assert await store.schedules.add([minutely("after")], actor="ada", tzdata="") == frozenset()
    assert [found.schedule_id for found in await store.schedules.page("default", after="", limit=9)] == [
        "after",
        "before",
    ]
    assert await store.transactions.read(lambda conn: conn.scalar(sa.select(sa.func.count()).select_from(node))) == 0
    await store.close()


async def test_a_migration_has_no_statement_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    from gnomon.adapters.sql import migrator

    upgrade = migrator.upgrade

    def slow(conn: sa.Connection) -> str:
        conn.exec_driver_sql(f"SELECT pg_sleep({3 * PATIENCE_MS / 1000})")
        return upgrade(conn)

    monkeypatch.setattr(migrator, "upgrade", slow)
    store = await open_postgres(await postgres(18).empty(), patience_ms=PATIENCE_MS)

    assert await store.schedules.page("default", after="", limit=1) == []
    await store.close()
