"""Behind a pooler that deals out sessions by the transaction."""

from collections.abc import Iterator

import asyncpg
import pytest
from sqlalchemy.exc import DBAPIError

from gnomon.adapters.sql import open_postgres
from support.pooler import Pooler
from support.postgres_server import postgres

pytestmark = pytest.mark.guarantee("C13")


@pytest.fixture
def pooler() -> Iterator[Pooler]:
    with Pooler(postgres(18).port, sessions=2) as pooler:
        yield pooler


async def test_every_transaction_has_another_session_and_each_has_one(pooler: Pooler) -> None:
    async with postgres(18).database() as url:
        conn = await asyncpg.connect(pooler.through(url), statement_cache_size=0)
        alone = [await conn.fetchval("SELECT pg_backend_pid()") for _ in range(2)]
        async with conn.transaction():
            together = [await conn.fetchval("SELECT pg_backend_pid()") for _ in range(2)]
        await conn.close()

    assert alone[0] != alone[1]
    assert together[0] == together[1]


async def test_session_state_reaches_another_client_of_the_pooler(pooler: Pooler) -> None:
    async with postgres(18).database() as url:
        conn = await asyncpg.connect(pooler.through(url), statement_cache_size=0)
        await conn.execute("SET application_name = 'left'")
        found = [await conn.fetchval("SHOW application_name") for _ in range(2)]
        await conn.close()

    assert sorted(found) == ["", "left"]


async def asked_often(url: str) -> None:
    store = await open_postgres(url, pool_size=1)
    try:
        for _ in range(10):
            await store.schedules.find("default", "anything")
    finally:
        await store.close()


async def test_a_store_that_keeps_statements_does_not_get_far(pooler: Pooler) -> None:
    async with postgres(18).database() as url:
        with pytest.raises(DBAPIError, match=r"prepared statement .* does not exist"):
            await asked_often(pooler.through(url))
