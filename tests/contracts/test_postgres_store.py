"""The store on PostgreSQL keeps the contract: on the oldest and the newest version, and behind a pooler."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

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
from contracts.store import StoreContract
from contracts.stuck_runs import StuckRunsContract
from contracts.sub_runs import SubRunContract
from contracts.task_approvals import TaskApprovalContract
from contracts.task_states import TaskStateContract
from contracts.tasks import TaskContract
from contracts.tokens import TokenContract
from gnomon.adapters.sql import SqlStore, open_postgres
from support.pooler import Pooler
from support.postgres_server import postgres
from support.row_editing import EditRow, WriteState, sql_row_editor, sql_state_writer

#: All columns that expire by the clock of the store.
ENDS = {
    "shard": "lease_until",
    "node": "seen_until",
    "attempt": "lease_until",
    "worker": "seen_until",
    "turn": "until_at",
    "announcement": "claimed_until",
    "change_follower": "until_at",
    "change_log": "created_at",
}


class PostgresContract(
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
    version: int
    statement_cache = True

    @pytest.fixture
    async def url(self) -> AsyncIterator[str]:
        async with postgres(self.version).database() as url:
            yield url

    @pytest.fixture
    async def store(self, url: str) -> AsyncIterator[SqlStore]:
        store = await open_postgres(self.through(url), statement_cache=self.statement_cache, pool_size=2)
        yield store
        await store.close()

    def through(self, url: str) -> str:
        """The address that the store uses: direct, or through a pooler."""
        return url

    @pytest.fixture
    def plant(self, store: SqlStore) -> EditRow:
        return sql_row_editor(store)

    @pytest.fixture
    def write_state(self, store: SqlStore) -> WriteState:
        return sql_state_writer(store)

    @pytest.fixture
    def advance(self, url: str) -> Callable[[int], None]:
        """Move all expiry times back, because the clock of a server cannot be moved."""

        async def move(by: int) -> None:
            for table, end in ENDS.items():
                await postgres(self.version).run(f"UPDATE {table} SET {end} = {end} - {by}", url=url)  # noqa: S608 - our own names

        def advance(by: int) -> None:
            # The test blocks its event loop, so another one does it.
            with ThreadPoolExecutor(1) as thread:
                thread.submit(asyncio.run, move(by)).result()

        return advance


@pytest.mark.thorough
class TestPostgres16Store(PostgresContract):
    version = 16


class TestPostgres18Store(PostgresContract):
    version = 18


@pytest.mark.thorough
class TestPostgresStoreBehindAPooler(PostgresContract):
    version = 18
    statement_cache = False

    @pytest.fixture(autouse=True)
    def pooler(self) -> Iterator[None]:
        with Pooler(postgres(self.version).port, sessions=3) as self._pooler:
            yield

    def through(self, url: str) -> str:
        return self._pooler.through(url)
