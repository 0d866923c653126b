"""Fixtures of whole fleets: a database and a bus of their own, and a file that bodies write to."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gnomon.adapters.sql import open_postgres
from gnomon.adapters.sql.store import SqlStore
from support.nats_redis_servers import Nats
from support.nats_users import nats_with_users
from support.postgres_server import postgres


@pytest.fixture
async def url() -> AsyncIterator[str]:
    """The address of a database."""
    async with postgres(18).database() as url:
        yield url


@pytest.fixture
async def store(url: str) -> AsyncIterator[SqlStore]:
    """Its lines."""
    store = await open_postgres(url, pool_size=2)
    yield store
    await store.close()


@pytest.fixture
def nats() -> Iterator[Nats]:
    """A bus on which everybody may only do what is theirs. It may be hurt, so that nobody else has it."""
    with nats_with_users() as running:
        yield running


@pytest.fixture
def witness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the bodies of jobs write what they do."""
    file = tmp_path / "witness"
    monkeypatch.setenv("GNOMON_WITNESS", str(file))
    return file
