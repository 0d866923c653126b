"""A look at the whole of a store costs no walk through what grows."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from contracts.store import MINUTE, NOON, minutely
from gnomon.adapters.sql import SqlStore, open_sqlite
from gnomon.adapters.sql.stats import read_stats
from gnomon.core.ids import SHARDS
from gnomon.core.ledger.plan import plan
from gnomon.core.model import RunId
from support.sqlite_files import new_sqlite_file

#: These have as many rows as there are shards, workers or numbers of a schema, or as a count has at most (anon_1).
SMALL = ("shard", "worker", "gnomon_meta", "sqlite_master", "anon_1")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    opened = await open_sqlite(str(new_sqlite_file(tmp_path / "gnomon.db")), now=lambda: NOON + MINUTE)
    await opened.schedules.add([minutely("early"), minutely("late")], actor="ada", tzdata="")
    yield opened
    await opened.close()


def plans(conn: sa.Connection) -> list[str]:
    driver = conn.connection.dbapi_connection
    assert driver is not None
    statements: list[str] = []
    driver.set_trace_callback(statements.append)
    try:
        read_stats(conn, NOON + MINUTE, NOON, NOON, 10)
    finally:
        driver.set_trace_callback(None)
    asked = [said for said in statements if said.lstrip().startswith("SELECT")]
    return [row[3] for said in asked for row in driver.execute(f"EXPLAIN QUERY PLAN {said}")]


async def test_nothing_that_grows_is_walked_through(store: SqlStore) -> None:
    steps = await store.transactions.write(plans)

    walks = [step for step in steps if step.startswith("SCAN") and "INDEX" not in step and "CONSTANT" not in step]
    assert steps
    assert [step for step in walks if step.split()[1] not in SMALL] == []


async def test_it_finds_what_is_due_who_holds_the_shards_and_the_first_jobs(store: SqlStore) -> None:
    await store.shards.claim("node", ttl_ms=1000, limit=SHARDS)
    now = NOON + MINUTE

    found = await store.stats.read(now, overdue_before=now - 1, max_jobs=1)

    assert (found.jobs, found.due, found.oldest_due_at, found.overdue) == (2, 2, now, 0)
    assert (found.shards, found.holders, found.store_at) == (SHARDS, 1, now)
    assert [one.job for one in found.job_stats] == ["early"]


async def test_a_run_of_one_step_has_none_to_count(store: SqlStore) -> None:
    terms = await store.shards.claim("node", ttl_ms=1000, limit=SHARDS)
    schedule = await store.schedules.find("default", "early")
    assert schedule is not None
    await store.ledger.decide([plan(schedule, now=NOON + MINUTE)], now=NOON + MINUTE, terms=terms)
    [run] = await store.history.runs(schedule.uid, before=NOON * 2, limit=1)

    assert await store.stats.steps([run.run_id, RunId("nobody's")]) == {}
