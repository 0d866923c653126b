"""The store in memory keeps the contract."""

from collections.abc import Callable

import pytest

from contracts.audit import AuditContract
from contracts.backfills import BackfillContract
from contracts.external_events import ExternalEventContract
from contracts.invariants import InvariantContract
from contracts.placement import PlacementContract
from contracts.retention import RetentionContract
from contracts.store import ManualClock, StoreContract
from contracts.stuck_runs import StuckRunsContract
from contracts.task_states import TaskStateContract, WriteState
from contracts.tasks import TaskContract
from support.row_editing import EditableMemoryStore, EditRow


class TestMemoryStore(
    StoreContract,
    TaskContract,
    TaskStateContract,
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
    def write_state(self, store: EditableMemoryStore) -> WriteState:
        return store.write_state

    @pytest.fixture
    def advance(self, clock: ManualClock) -> Callable[[int], None]:
        return clock.advance
