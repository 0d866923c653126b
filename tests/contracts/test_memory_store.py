"""The store in memory keeps the contract."""

from collections.abc import Callable

import pytest

from contracts.audit import AuditContract
from contracts.backfills import BackfillContract
from contracts.events import ExternalEventContract
from contracts.keeping import RetentionContract
from contracts.mending import StuckRunsContract
from contracts.placing import PlacementContract
from contracts.store import ManualClock, StoreContract
from contracts.vitals import InvariantContract
from contracts.work import TaskContract
from support.planting import EditableMemoryStore, EditRow


class TestMemoryStore(
    StoreContract,
    TaskContract,
    PlacementContract,
    ExternalEventContract,
    AuditContract,
    BackfillContract,
    RetentionContract,
    StuckRunsContract,
    InvariantContract,
):
    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    def store(self, clock: ManualClock) -> EditableMemoryStore:
        return EditableMemoryStore(lambda: clock.now)

    @pytest.fixture
    def plant(self, store: EditableMemoryStore) -> EditRow:
        return store.plant

    @pytest.fixture
    def advance(self, clock: ManualClock) -> Callable[[int], None]:
        return clock.advance
