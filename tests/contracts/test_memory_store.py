"""The store in memory keeps the contract."""

from collections.abc import Callable

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
from support.planting import Plant, PlantedStore


class TestMemoryStore(
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
    def store(self, clock: HandClock) -> PlantedStore:
        return PlantedStore(lambda: clock.now)

    @pytest.fixture
    def plant(self, store: PlantedStore) -> Plant:
        return store.plant

    @pytest.fixture
    def advance(self, clock: HandClock) -> Callable[[int], None]:
        return clock.advance
