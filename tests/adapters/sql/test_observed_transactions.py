"""Observers are called for every commit, once, and for nothing else."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from gnomon.adapters.sql import SqlStore
from gnomon.adapters.sql.after_commit import notify_activity
from gnomon.adapters.sql.connect import open_sqlite
from gnomon.services.observability.metrics import MetricsRecorder
from support.sqlite_files import new_sqlite_file


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    opened = await open_sqlite(str(new_sqlite_file(tmp_path / "gnomon.db")))
    yield opened
    await opened.close()


@pytest.fixture
def meter() -> MetricsRecorder:
    return MetricsRecorder(max_jobs=10)


def dead_lettered(meter: MetricsRecorder) -> int:
    return sum(meter.counters["dead_letters"].values())


def noting(conn: sa.Connection) -> str:
    notify_activity(conn, lambda observer: observer.dead_lettered(["job"]))
    return "done"


def failing(conn: sa.Connection) -> str:
    noting(conn)
    raise ZeroDivisionError


async def test_a_commit_is_reported(store: SqlStore, meter: MetricsRecorder) -> None:
    assert await store.observed(observers=[meter]).transactions.write(noting) == "done"

    assert dead_lettered(meter) == 1


async def test_each_of_two_observers_is_called_once(store: SqlStore, meter: MetricsRecorder) -> None:
    other = MetricsRecorder(max_jobs=10)
    both = store.observed(observers=[meter, other]).transactions
    await asyncio.gather(*(both.write(job) for job in [noting, failing, noting] * 20), return_exceptions=True)

    assert (dead_lettered(meter), dead_lettered(other)) == (40, 40)


async def test_a_rollback_is_not_reported(store: SqlStore, meter: MetricsRecorder) -> None:
    with pytest.raises(ZeroDivisionError):
        await store.observed(observers=[meter]).transactions.write(failing)

    assert dead_lettered(meter) == 0


async def test_each_write_of_a_shared_commit_is_reported_once(store: SqlStore, meter: MetricsRecorder) -> None:
    engine = store.observed(observers=[meter]).transactions

    done = await asyncio.gather(*(engine.write(job) for job in [noting, failing, noting] * 20), return_exceptions=True)

    assert done.count("done") == dead_lettered(meter) == 40


async def test_without_anybody_who_counts_nothing_is_kept(store: SqlStore) -> None:
    assert await store.transactions.write(noting) == "done"
    assert await store.transactions.write(lambda conn: conn.info.get("gnomon.notices")) is None
