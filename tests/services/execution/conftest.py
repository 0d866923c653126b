"""The stores on which runs of graphs are tested."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from contracts.store import NOON
from gnomon.adapters.memory import MemoryStore
from gnomon.adapters.sql import open_postgres
from gnomon.testing.clock import VirtualClock
from support.effort import thorough
from support.gates import LateGate
from support.graph_runs import HarnessFactory
from support.postgres_server import postgres
from support.sqlite_files import open_new_sqlite


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave PostgreSQL with a late gate to `make test-all`: when the gate answers does not change what is written."""
    for item in items:
        chosen = getattr(getattr(item, "callspec", None), "params", {})
        if chosen.get("any_gate") is LateGate and chosen.get("backend") == 18:
            item.add_marker(pytest.mark.thorough)


@pytest.fixture(params=["memory", thorough("sqlite"), "sqlite handed over", 18], ids=str)
async def backend(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[HarnessFactory]:
    clock = VirtualClock(NOON)
    if request.param == "memory":
        yield HarnessFactory(MemoryStore(clock.now), clock)
    elif request.param != 18:
        store = await open_new_sqlite(tmp_path / "gnomon.db", now=clock.now)
        yield HarnessFactory(store, clock, together=request.param != "sqlite")
        await store.close()
    else:
        async with postgres(request.param).database() as url:
            store = await open_postgres(url)
            yield HarnessFactory(store, clock)
            await store.close()
