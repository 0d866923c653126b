"""The store in memory keeps the contract."""

from collections.abc import Callable

import pytest

from contracts.actions import ActionContract, ApprovalContract
from contracts.agent_sessions import AgentSessionContract
from contracts.agent_usage import AgentUsageContract
from contracts.announcements import AnnouncementContract
from contracts.attempt_progress import AttemptProgressContract
from contracts.audit import AuditContract
from contracts.backfills import BackfillContract
from contracts.breakers import BreakerContract
from contracts.budgets import BudgetContract
from contracts.calendar import CalendarContract
from contracts.deadlines import DeadlineContract
from contracts.external_events import ExternalEventContract
from contracts.invariants import InvariantContract
from contracts.late_checks import LateCheckContract
from contracts.output_rulings import HeldOutputContract, OutputRulingContract
from contracts.overview import OverviewContract
from contracts.placement import PlacementContract
from contracts.policies import PolicyContract
from contracts.retention import RetentionContract
from contracts.sign_in_codes import SignInCodeContract
from contracts.store import ManualClock, StoreContract
from contracts.stuck_runs import StuckRunsContract
from contracts.sub_runs import SubRunContract
from contracts.task_approvals import TaskApprovalContract
from contracts.task_states import TaskStateContract
from contracts.tasks import TaskContract
from contracts.tokens import TokenContract
from gnomon.adapters.memory import MemoryStore
from support.row_editing import EditRow, WriteState, memory_row_editor, memory_state_writer


class TestMemoryStore(
    StoreContract,
    TaskContract,
    TaskStateContract,
    DeadlineContract,
    PlacementContract,
    OverviewContract,
    CalendarContract,
    ExternalEventContract,
    AuditContract,
    SignInCodeContract,
    TokenContract,
    ActionContract,
    ApprovalContract,
    TaskApprovalContract,
    PolicyContract,
    OutputRulingContract,
    HeldOutputContract,
    LateCheckContract,
    BreakerContract,
    BudgetContract,
    AgentSessionContract,
    AgentUsageContract,
    AttemptProgressContract,
    BackfillContract,
    RetentionContract,
    StuckRunsContract,
    SubRunContract,
    InvariantContract,
    AnnouncementContract,
):
    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    def store(self, clock: ManualClock) -> MemoryStore:
        return MemoryStore(lambda: clock.now)

    @pytest.fixture
    def plant(self, store: MemoryStore) -> EditRow:
        return memory_row_editor(store)

    @pytest.fixture
    def write_state(self, store: MemoryStore) -> WriteState:
        return memory_state_writer(store)

    @pytest.fixture
    def advance(self, clock: ManualClock) -> Callable[[int], None]:
        return clock.advance
