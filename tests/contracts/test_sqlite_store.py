"""The store in an SQLite file keeps the contract."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

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
from contracts.change_log import ChangeLogContract
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
from gnomon.adapters.sql import SqlStore
from support.row_editing import EditRow, WriteState, sql_row_editor, sql_state_writer
from support.sqlite_files import open_new_sqlite


class TestSqliteStore(
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
    ChangeLogContract,
):
    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    async def store(self, clock: ManualClock, tmp_path: Path) -> AsyncIterator[SqlStore]:
        store = await open_new_sqlite(tmp_path / "gnomon.db", now=lambda: clock.now)
        yield store
        await store.close()

    @pytest.fixture
    def plant(self, store: SqlStore) -> EditRow:
        return sql_row_editor(store)

    @pytest.fixture
    def write_state(self, store: SqlStore) -> WriteState:
        return sql_state_writer(store)

    @pytest.fixture
    def advance(self, clock: ManualClock) -> Callable[[int], None]:
        return clock.advance
