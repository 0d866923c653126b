"""The store in an SQLite file keeps the contract."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from contracts.audit import AuditContract
from contracts.backfills import BackfillContract
from contracts.events import EventContract
from contracts.keeping import KeepingContract
from contracts.mending import MendingContract
from contracts.placing import PlacingContract
from contracts.store import HandClock, StoreContract
from contracts.vitals import VitalsContract
from contracts.work import WorkContract
from gnomon.adapters.sql import SqlStore, open_sqlite
from support.planting import Plant, planting


class TestSqliteStore(
    StoreContract,
    WorkContract,
    PlacingContract,
    EventContract,
    AuditContract,
    BackfillContract,
    KeepingContract,
    MendingContract,
    VitalsContract,
):
    @pytest.fixture
    def clock(self) -> HandClock:
        return HandClock()

    @pytest.fixture
    async def store(self, clock: HandClock, tmp_path: Path) -> AsyncIterator[SqlStore]:
        store = await open_sqlite(str(tmp_path / "gnomon.db"), now=lambda: clock.now)
        yield store
        await store.close()

    @pytest.fixture
    def plant(self, store: SqlStore) -> Plant:
        return planting(store)

    @pytest.fixture
    def advance(self, clock: HandClock) -> Callable[[int], None]:
        return clock.advance
